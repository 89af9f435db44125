"""From programs and configuration to a machine: durations, calls, orbits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..trace.columns import COMP, METADATA
from .custom import algorithm_of, graph, node_of, own_rows, position, read_algorithm
from .kernel import layout as L
from .limits import MOST_NS, too_long, whole_ns
from .machine import Machine, Parts, RankPart
from .plan import Plan, custom_plan, group_plan, world_plan
from .population import Communicator, Population, communicator
from .program import Call, Program
from .settings import Config, Options

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Orbit:
    """A communicator as the simulated ranks see it.

    Attributes:
        who: the ranks, as one of the members sees them. sims: simulated ranks in it, ascending. first: member record
        of sims[0].
        handle: its record.
    """

    who: Communicator
    sims: tuple[int, ...]
    first: int
    handle: int


@dataclass(frozen=True, slots=True)
class Signature:
    """A kind of collective: what it does on which pattern of ranks. ``even``: every member ends when every other does,
    if all arrive at once."""

    call: Call
    plan: Plan
    pattern: tuple[int, ...]
    even: bool


@dataclass(slots=True)
class Assembly:
    """A machine and what its numbers mean."""

    machine: Machine
    parts: Parts
    population: Population
    times: list[Int64]  # duration of each row of each program
    orbit_at: dict[int, Orbit]  # by handle
    signatures: dict[int, Signature]  # by handle
    call_of: dict[tuple[int, int], tuple[int, int]]  # (simulated rank, call) -> handles of signature and orbit


def durations(program: Program, config: Config) -> Int64:
    """Nanoseconds of each row that takes time by itself.

    ``duration_micros`` x 1000 (0: 1 ns); with the roofline on, a compute node that is not on the CPU takes
    trunc(1e9 x (ops / min(bandwidth x (ops / bytes), peak))), in this order of double operations.

    Raises:
        InvalidInput: E-TRACE-ROOFLINE when a node has no num_ops or tensor_size above 0, E-TRACE-MEMORY, E-TIME-RANGE.
    """
    trace, order, system = program.trace, program.order, config.system
    if len(order) and int(trace.duration_micros[order].max()) > MOST_NS // 1000:
        raise too_long("a node's duration_micros")
    times = np.maximum(trace.duration_micros[order] * 1000, 1)
    times[trace.types[order] == METADATA] = 0
    if system.roofline_enabled and not system.replay_only:
        rows = np.flatnonzero((trace.types[order] == COMP) & (program.slot == L.COMPUTE))
        ops, size = trace.num_ops[order[rows]], trace.tensor_size[order[rows]]
        bad = np.flatnonzero((ops <= 0) | (size <= 0))
        if len(bad):
            row = int(order[rows[bad[0]]])
            clash = (
                f"node {trace.ids[row]} ({trace.names[row]!r}) has num_ops {ops[bad[0]]}, tensor_size {size[bad[0]]}"
            )
            raise InvalidInput("E-TRACE-ROOFLINE", clash, "with the roofline on, compute nodes need both above 0")
        work = ops.astype(np.float64)
        speed = np.minimum(
            system.local_mem_bandwidth * 1_000_000_000 * (work / size.astype(np.float64)),
            system.peak_perf * 1_000_000_000_000,
        )
        with np.errstate(over="ignore", divide="ignore"):
            times[rows] = whole_ns(work / speed * 1e9, "a compute node on the roofline")
    memory = np.flatnonzero(program.kind == L.MEMORY)
    if len(memory) and not system.replay_only:
        if config.memory.kind == "NO_MEMORY_EXPANSION":
            clash = f"node {trace.ids[order[memory[0]]]} uses remote memory, which the memory file excludes"
            raise InvalidInput("E-TRACE-MEMORY", clash, "choose another memory-type")
        size = np.maximum(trace.tensor_size[order[memory]], 0).astype(np.float64)
        times[memory] = config.memory.latency + whole_ns(size / config.memory.bandwidth, "a memory node")
    return times


def node_table(program: Program, config: Config, times: Int64, first_child: int) -> Int64:
    """The kernel's node records of a program, its children listed from ``first_child``."""
    trace, order = program.trace, program.order
    cells = np.zeros((len(order), L.N_SIZE), np.int64)
    cells[:, L.N_KIND] = program.kind
    cells[:, L.N_SLOT] = program.slot
    cells[:, L.N_TIME] = times
    cells[:, L.N_CALL] = program.call
    cells[:, L.N_BYTES] = trace.comm_size[order]
    cells[:, L.N_TAG] = trace.comm_tag[order] % L.COLLECTIVE_TAG
    cells[:, L.N_PEER] = np.where(program.kind == L.SEND, trace.comm_dst[order], trace.comm_src[order])
    for k, row in enumerate(own_rows(program, config)):
        cells[row, L.N_CALL] = len(program.calls) + k
    cells[:, L.N_CHILDREN] = program.child_ptr[:-1] + first_child
    cells[:, L.N_CHILDREN_END] = program.child_ptr[1:] + first_child
    if config.system.replay_only:
        cells[program.kind != L.SKIPPED, L.N_KIND] = L.TIMED
    exchange = (program.kind == L.SEND) | (program.kind == L.RECEIVE)
    wrong = np.flatnonzero(exchange & (cells[:, L.N_PEER] >= config.npus))
    if len(wrong):
        clash = f"node {trace.ids[order[wrong[0]]]} talks to rank {cells[wrong[0], L.N_PEER]}; there are {config.npus}"
        raise InvalidInput("E-TRACE-PEER", clash, "use ranks of the network")
    return cells


def assemble(
    population: Population,
    config: Config,
    options: Options,
    composed: bool,
    aware: bool = False,
    names: list[str] | None = None,
) -> Assembly:
    """Put a machine together. ``names``: what each simulated rank's trace is called in errors.

    Raises:
        InvalidInput: what the collectives, groups and durations raise.
    """
    parts = Parts(config, options, composed=composed, aware=aware)
    programs = population.programs
    times = [durations(program, config) for program in programs]
    edges = np.cumsum([0, *(len(p.child) for p in programs)])
    tables = [node_table(p, config, t, int(e)) for p, t, e in zip(programs, times, edges, strict=False)]
    rows = np.cumsum([0, *map(len, programs)])
    if config.memory.kind in ("MEMORY_POOL", "PER_NODE_MEMORY_EXPANSION"):
        parts.channels = 1 if config.memory.kind == "MEMORY_POOL" else config.memory.nodes
    which = population.program.tolist()
    receives = max(int((p.slot == L.FREE).sum()) for p in programs)
    parts.room = max(parts.room, 64 * receives + 256)
    calls = _Calls(population, config, parts, names)
    for sim, k in enumerate(which):
        true = int(population.true_of[sim])
        first_call = calls.add(sim, programs[k])
        parts.ranks.append(RankPart(true, int(rows[k]), len(programs[k]), first_call, _channel(config, true)))
    waits = np.concatenate([programs[k].waits for k in which])
    machine = parts.build(np.concatenate(tables), np.concatenate([p.child for p in programs]), waits, population.sim_of)
    return Assembly(machine, parts, population, times, calls.orbits, calls.signatures, calls.call_of)


def _channel(config: Config, rank: int) -> int:
    """Loads and stores of a rank queue on its node's memory or on the pool (channel + 1), or on its own (0)."""
    if config.memory.kind == "MEMORY_POOL":
        return 1
    if config.memory.kind != "PER_NODE_MEMORY_EXPANSION":
        return 0
    node = rank // config.memory.npus_per_node
    if node >= config.memory.nodes:
        clash = f"rank {rank} is on node {node}, the memory file has {config.memory.nodes}"
        raise InvalidInput("E-MEMORY-NODES", clash, "num-nodes x num-npus-per-node must cover all NPUs")
    return node + 1


class _Calls:
    """Resolves each simulated rank's calls to plans, orbits and signatures."""

    def __init__(self, population: Population, config: Config, parts: Parts, names: list[str] | None) -> None:
        self.population, self.config, self.parts, self.names = population, config, parts, names
        self.orbits: dict[int, Orbit] = {}
        self.orbit_of: dict[tuple[object, ...], Orbit] = {}
        self.signatures: dict[int, Signature] = {}
        self.number_of: dict[tuple[object, ...], int] = {}
        self.call_of: dict[tuple[int, int], tuple[int, int]] = {}
        self.plans: dict[tuple[object, ...], Plan] = {}
        self.group_at: dict[int, int] = {}
        self.patterns: dict[tuple[int, bool], tuple[tuple[int, ...], bool]] = {}

    def add(self, sim: int, program: Program) -> int:
        """Call records of one simulated rank, in the order of its program's calls; returns the first one's handle."""
        parts = self.parts
        counter_of = {0: parts.put([0])}
        records: list[int] = []
        seen: dict[tuple[object, ...], list[int]] = {}
        rank = int(self.population.true_of[sim])
        where = self.names[sim] if self.names else f"rank {rank}"
        calls = [(call, algorithm_of(self.config, call, -1)) for call in program.calls]
        for row in own_rows(program, self.config):
            call = program.calls[int(program.call[row])]
            calls.append((call, algorithm_of(self.config, call, node_of(program, row))))
        for number, (call, algorithm) in enumerate(calls):
            who = communicator(self.config, call, rank, where)
            if who.group not in counter_of:
                counter_of[who.group] = parts.put([who.group * 1_000_000])
            plan = self._plan(call, who) if algorithm is None else custom_plan()
            orbit = self._orbit(who, seen)
            signature = self._signature(call, who, plan)
            self.call_of[(sim, number)] = (signature, orbit.handle)
            cells = [0] * L.C_SIZE
            cells[L.C_CHUNKS] = plan.chunks
            group = 0 if algorithm is not None or who.dims or not plan.phases else self._members(who)
            cells[L.C_PHASES] = parts.add_phases(plan, group)
            cells[L.C_COUNT] = len(plan.phases)
            cells[L.C_ORBIT] = orbit.handle
            cells[L.C_SIGNATURE] = signature
            cells[L.C_MEMBER] = orbit.first + orbit.sims.index(sim) * L.MEMBER_SIZE
            if not who.dims:
                cells[L.C_POSITION] = int(np.flatnonzero(who.members == rank)[0])
            cells[L.C_COUNTER] = counter_of[who.group]
            cells[L.C_PRIORITY] = call.priority
            if algorithm is not None:
                cells[L.C_CUSTOM] = self._custom(algorithm, who, rank)
            records.extend(cells)
        return parts.put(records)

    def _custom(self, algorithm: str, who: Communicator, rank: int) -> int:
        """Handle of the graph that a rank runs."""
        program = read_algorithm(algorithm, position(who, rank))
        self.parts.custom_cells = max(self.parts.custom_cells, 1 + len(program))
        self.parts.room = max(self.parts.room, 64 * len(program))
        return self.parts.put(graph(program, who))

    def _plan(self, call: Call, who: Communicator) -> Plan:
        key = (call.comm_type, call.size, call.involved if not call.group else None, len(who.members), bool(who.dims))
        if key not in self.plans:
            if who.dims or not call.group:
                involved = None if call.group else call.involved
                self.plans[key] = world_plan(self.config, call.comm_type, call.size, involved)
            else:
                self.plans[key] = group_plan(self.config, call.comm_type, call.size, len(who.members))
        return self.plans[key]

    def _members(self, who: Communicator) -> int:
        if who.group not in self.group_at:
            self.group_at[who.group] = self.parts.put(who.members.tolist())
        return self.group_at[who.group]

    def _orbit(self, who: Communicator, seen: dict[tuple[object, ...], list[int]]) -> Orbit:
        """The communicator's orbit. Two communicators of a rank on the same simulated ranks are told apart by group
        number."""
        population = self.population
        sims = tuple(np.unique(population.sim_of[who.members]).tolist())
        family = population.family.get(who.group, -1)
        kind: tuple[object, ...] = (family, who.dims, len(who.members), sims)
        if who.group:
            numbers = seen.setdefault(kind, [])
            if who.group not in numbers:
                numbers.append(who.group)
                numbers.sort()
            kind = (*kind, numbers.index(who.group))
        if kind not in self.orbit_of:
            first = self.parts.put([0] * (len(sims) * L.MEMBER_SIZE))
            cells = [0] * L.O_SIZE
            cells[L.O_MEMBERS] = len(sims)
            cells[L.O_FIRST] = first
            self.orbit_of[kind] = Orbit(who, sims, first, self.parts.put(cells))
            self.orbits[self.orbit_of[kind].handle] = self.orbit_of[kind]
        return self.orbit_of[kind]

    def _signature(self, call: Call, who: Communicator, plan: Plan) -> int:
        if who.dims or not plan.phases:
            pattern: tuple[int, ...] = plan.dims
            even = all(phase.algorithm != L.TREE for phase in plan.phases)
        else:
            pattern, even = self._pattern(who, plan.phases[0].algorithm)
        key = (
            call.comm_type,
            call.size,
            len(who.members),
            bool(who.dims),
            pattern,
            plan.phases[:1] == custom_plan().phases,
        )
        if key not in self.number_of:
            self.number_of[key] = self.parts.put([0] * L.Y_SIZE)
            self.signatures[self.number_of[key]] = Signature(call, plan, pattern, even)
        return self.number_of[key]

    def _pattern(self, who: Communicator, algorithm: int) -> tuple[tuple[int, ...], bool]:
        """What distinguishes groups: nothing where all pairs cost the same, the hops round a ring, or the ranks
        themselves."""
        network = self.config.network
        if network.dimensions == 1 and network.topology[0] != "Ring":
            return (), True
        key = (who.group, algorithm == L.RING)
        if key not in self.patterns:
            if algorithm == L.RING:
                pattern = hop_pattern(self.config, who.members)
                self.patterns[key] = pattern, len(set(pattern)) == 1
            else:
                self.patterns[key] = tuple(who.members.tolist()), False
        return self.patterns[key]


def hop_pattern(config: Config, members: Int64) -> tuple[int, ...]:
    """Cost class of the way from each member to the next: dimension that is charged, and hops in it."""
    nxt = np.roll(members, -1)
    found = np.full(len(members), -1, np.int64)
    for d in reversed(range(config.network.dimensions)):
        stride, size = config.strides[d], config.network.npus_count[d]
        away = ((nxt // stride) % size - (members // stride) % size) % size
        hops = np.minimum(away, size - away) if config.network.topology[d] == "Ring" else np.ones_like(away)
        found = np.where(away > 0, d * config.npus + hops, found)
    return tuple(found.tolist())
