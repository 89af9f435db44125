"""Simulating a workload on a configuration."""

from __future__ import annotations

import time

import numpy as np

from ..errors import Deadlock, InvalidInput
from .assemble import Assembly, assemble
from .fold import fold
from .kernel import layout as L
from .kernel.jit import compile_kernel, is_compiled, is_on_disk
from .kernel.loop import BROKEN, NEEDS, PAUSED
from .limits import MOST_NS, check_steps, too_long
from .outcome import Outcome, collect
from .population import Population
from .settings import Config, Options
from .signature import Composer
from .waiting import explain
from .workload import Workload

MODELS = ("unaware", "aware", "scaleacross")
CHUNKWISE = 3_000  # messages up to which every message is simulated, in the order of the reference's events
CHUNKWISE_PAIRS = 100_000  # the same where ranks send to each other: there equal times are common, and order matters
READ_FROM = 15_000  # nodes and messages in a process from which reading the compiled kernel pays
COMPILE_FROM = 150_000  # and from which compiling it does
_done = {"work": 0}


def simulate(
    workload: Workload,
    config: Config,
    model: str = "unaware",
    queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    comm_scale: float = 1.0,
    compute_scale: float = 1.0,
    time_limit: float | None = None,
    timeline: bool = False,
    detail: str = "auto",
) -> Outcome:
    """Simulate; a problem of the input is an outcome with status ``invalid``, not an exception.

    Args:
        model: ``unaware`` or ``aware``, as ASTRA-sim's analytical backends; ``scaleacross``: tiers and contention, see
            :func:`.fluid.simulate_fluid`.
        queues_per_dim, injection_scale, rendezvous: as on the reference's command line. comm_scale, compute_scale:
        accepted
            and without effect, as there.
        time_limit: seconds. timeline: keep every operator's interval.
        detail: ``composed`` times collectives as wholes, ``chunks`` simulates every message, ``auto`` chooses: both
        give
            the same cycles, save where events of one rank coincide to the nanosecond.
    """
    del comm_scale, compute_scale
    begun = time.perf_counter()
    options = Options(queues_per_dim, injection_scale, rendezvous)
    try:
        outcome = _simulate(workload, config, options, model, detail, time_limit, timeline)
    except InvalidInput as error:
        outcome = Outcome("invalid", str(error))
    except OverflowError:  # the interpreted kernel meets a time that its 64-bit memory can't hold
        outcome = Outcome("invalid", str(too_long("an event")))
    except Deadlock as error:
        outcome = Outcome("deadlock", str(error))
    outcome.model = model
    outcome.wall_s = time.perf_counter() - begun
    return outcome


def _simulate(
    workload: Workload,
    config: Config,
    options: Options,
    model: str,
    detail: str,
    time_limit: float | None,
    timeline: bool,
) -> Outcome:
    if model not in MODELS:
        raise InvalidInput("E-MODEL", f"network model {model!r}", f"choose one of {', '.join(MODELS)}")
    if options.queues_per_dim < 1:
        raise InvalidInput("E-QUEUES", f"{options.queues_per_dim} queues a dimension", "give at least 1")
    if model == "aware" and config.network.dimensions != 1:
        clash = f"the congestion-aware model has 1 dimension, the network file {config.network.dimensions}"
        raise InvalidInput("E-MODEL", clash, "use the unaware model, or one dimension")
    if workload.npus < config.npus or (workload.folded and workload.npus != config.npus):
        clash = f"{config.npus} NPUs in the network file, {workload.npus} ranks in the workload"
        raise InvalidInput("E-WORLD", clash, "change npus_count or the workload")
    if model == "scaleacross":
        from .fluid import simulate_fluid  # imports numba

        return simulate_fluid(workload, config, options, time_limit, timeline)
    if config.system.extension.get("qos", "fair") != "fair":
        clash = f"system.json: qos is {config.system.extension['qos']!r}; the {model} model has no traffic classes"
        raise InvalidInput("E-QOS", clash, "use the scaleacross model, or qos fair")
    population = population_of(workload, config)
    largest = max(int(program.trace.comm_size.max(initial=0)) for program in population.programs)
    memory = config.system.local_mem_bandwidth
    check_steps(largest, config.npus, config.network.latency, config.bytes_per_ns, memory)
    aware = model == "aware"
    chunks = aware or detail == "chunks" or needs_chunks(population, config)
    chunks = chunks or (options.rendezvous and not workload.folded)  # see Composer
    if workload.folded and chunks:
        clash = (
            "a folded workload with what needs every rank: the aware model, a shared bus or memory, custom collectives"
        )
        raise InvalidInput("E-FOLDED", clash, "write every rank's trace with scaleacross expand")
    names = workload.files
    small = population if workload.folded or chunks else fold(population, config, names)
    shown = names if workload.folded else [names[k] for k in small.true_of.tolist()]
    assembly = assemble(small, config, options, not chunks, aware, shown)
    messages = estimate(assembly)
    pairs = any((program.kind == L.SEND).any() for program in population.programs)
    limit = CHUNKWISE_PAIRS if pairs else CHUNKWISE
    if not chunks and detail == "auto" and not workload.folded and messages <= limit:
        chunks, small = True, population
        assembly = assemble(small, config, options, False, False, names)
    _done["work"] += int(assembly.machine.first_node[-1]) + (messages if chunks else 0)
    if not is_compiled() and (_done["work"] > COMPILE_FROM or (_done["work"] > READ_FROM and is_on_disk())):
        compile_kernel()
        assembly.machine.compile()
    status = execute(assembly, Composer(config, options), time_limit)
    outcome = collect(assembly, status, timeline)
    if status == "ok" and not (outcome.finish_cycles.min() >= 0 and outcome.iteration_ns <= MOST_NS):
        raise too_long("the iteration")  # the compiled kernel's times wrap round instead of overflowing
    if status != "ok":
        outcome.message = explain(assembly, status, time_limit)
    return outcome


def needs_chunks(population: Population, config: Config) -> bool:
    """True when ranks share something besides messages, or a collective need not involve all its ranks: the order of
    all events matters."""
    if config.system.custom or config.system.per_node_custom:
        return True
    shared = config.memory.kind in ("MEMORY_POOL", "PER_NODE_MEMORY_EXPANSION")
    return config.system.model_shared_bus or (
        shared and any((program.kind == L.MEMORY).any() for program in population.programs)
    )


def population_of(workload: Workload, config: Config) -> Population:
    """The simulated ranks of a workload: every rank of the network, or a representative a class."""
    if workload.folded:
        return Population(
            workload.programs, workload.program, workload.representative, workload.sim_of, workload.family
        )
    everyone = np.arange(config.npus)
    return Population(workload.programs, workload.program[: config.npus], everyone, everyone)


def estimate(assembly: Assembly) -> int:
    """Messages of a chunk-wise simulation of all ranks."""
    total = 0
    weights = assembly.population.weights().tolist()
    for sim, k in enumerate(assembly.population.program.tolist()):
        program = assembly.population.programs[k]
        counts = np.bincount(program.call[program.call >= 0], minlength=len(program.calls))
        for number, count in enumerate(counts.tolist()):
            plan = assembly.signatures[assembly.call_of[(sim, number)][0]].plan
            total += weights[sim] * count * plan.chunks * sum(phase.steps or 2 for phase in plan.phases)
    return total


def execute(assembly: Assembly, composer: Composer, time_limit: float | None) -> str:
    """Run to the end: ok, deadlock or timeout.

    Raises:
        InvalidInput: E-MESSAGE.
    """
    machine = assembly.machine
    deadline = None if time_limit is None else time.monotonic() + time_limit
    budget = 1 << 62 if deadline is None else 5_000 if is_compiled() else 500
    machine.start()
    while True:
        why = machine.run(budget)
        if why == BROKEN:
            raise machine.complain()
        if why == NEEDS:
            composer.settle(assembly)
            machine.settle()
        elif why != PAUSED:
            break
        if deadline is not None and time.monotonic() > deadline:
            return "timeout"
    return "deadlock" if machine.unfinished() else "ok"
