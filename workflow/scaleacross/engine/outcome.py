"""What a simulation tells: when each rank ends, where the time goes, how many bytes cross each dimension."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .assemble import Assembly
from .bounds import Traffic, traffic
from .kernel import layout as L
from .program import AXIS_NAMES, COMPUTE_AXIS, Program
from .use import TierUse

Int64 = NDArray[np.int64]
Row = tuple[int, int, str, str]


class Step(NamedTuple):
    """An operator on the critical path.

    Attributes:
        sim: number of its class. rank: that the class is simulated as. name, axis: of the operator (``compute``,
            ``other``, or tp, cp, ep, pp, dp).
        start, end: ns. adds: ns by which it makes the path longer; those of all steps add up to the iteration.
    """

    sim: int
    rank: int
    name: str
    axis: str
    start: float
    end: float
    adds: float


@dataclass(slots=True)
class Outcome:
    """Result of a simulation.

    Attributes:
        status: ok, deadlock, invalid or timeout. message: why, where it is not ok.
        finish_cycles: ns at which each rank ended, -1 where it did not. exposed_cycles: finish minus the rank's
        compute time,
            which is what ASTRA-sim calls exposed communication.
        iteration_ns: the latest finish.
        breakdown: ns averaged over the ranks, summing to ``iteration_ns``: ``compute``, ``exposed_<axis>`` (some
            communication of the axis and no computation runs on the rank; the first of tp, cp, ep, pp, dp, other if
            several do), ``idle``. A receive counts from when its message is on the way.
        bytes_per_dim: bytes that a rank sends over each dimension, on average.
        tiers: how each tier was used, inner to outer (each network dimension, where the model knows no tiers).
        bound_ratio: least ratio of a time to its physical lower bound, over the iteration and every collective; below
        1 the
            design uses more bandwidth than its ports have. ``inf`` without communication and computation.
        wall_s: time that the simulation took. events: events simulated.
        representatives: rank of each timeline.
        critical: the critical path, first to last; needs ``timeline=True`` and the model ``scaleacross``.
    """

    status: str
    message: str = ""
    finish_cycles: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    exposed_cycles: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    iteration_ns: int = 0
    breakdown: dict[str, float] = field(default_factory=dict)
    bytes_per_dim: list[float] = field(default_factory=list)
    tiers: tuple[TierUse, ...] = ()
    bound_ratio: float = float("inf")
    wall_s: float = 0.0
    events: int = 0
    model: str = "unaware"
    representatives: list[int] = field(default_factory=list)
    timelines: list[list[Row]] = field(default_factory=list)
    critical: list[Step] = field(default_factory=list, repr=False)

    @property
    def compute_max_ns(self) -> int:
        """Time that the rank which computes longest does so (of those that finished)."""
        done = self.finish_cycles >= 0
        return int((self.finish_cycles - self.exposed_cycles)[done].max(initial=0))

    def critical_parts(self) -> dict[str, float]:
        """Nanoseconds that the operators of each kind (``compute``, an axis, ``other``) add to the critical path, the
        largest first."""
        total: dict[str, float] = {}
        for step in self.critical:
            total[step.axis] = total.get(step.axis, 0.0) + step.adds
        return dict(sorted(((axis, ns) for axis, ns in total.items() if ns > 0), key=lambda item: -item[1]))

    def timeline(self, k: int) -> list[Row]:
        """Rows (start_ns, end_ns, name, axis) of simulated rank (class) ``k`` in order of start; needs
        ``timeline=True``."""
        return self.timelines[k]


def compute_time(program: Program, times: Int64, replay: bool) -> int:
    """Time that counts as computation in the reference: compute nodes not on the CPU (replayed traces: all such
    nodes)."""
    timed = program.slot != L.CPU if replay else program.axis == COMPUTE_AXIS
    return int(times[timed].sum())


def collect(assembly: Assembly, status: str, with_timeline: bool) -> Outcome:
    """The outcome of a machine that has run."""
    machine, population = assembly.machine, assembly.population
    which = population.program.tolist()
    replay = assembly.parts.config.system.replay_only
    busy = [compute_time(p, t, replay) for p, t in zip(population.programs, assembly.times, strict=True)]
    finish = machine.ranks(L.R_FINISH)
    finish[machine.ranks(L.R_LEFT) > 0] = -1
    exposed = np.where(finish < 0, -1, finish - np.array([busy[k] for k in which]))
    start, end = machine.nodes(L.W_START), machine.nodes(L.W_END)
    last = int(finish.max())
    outcome = Outcome(
        status,
        finish_cycles=finish[population.sim_of],
        exposed_cycles=exposed[population.sim_of],
        iteration_ns=last,
        events=int(machine.m[L.G_EVENTS]),
        representatives=population.true_of.tolist(),
    )
    if status == "ok":
        weights = population.weights() / len(population.sim_of)
        axis = np.concatenate([population.programs[k].axis for k in which])
        owner = np.repeat(np.arange(len(which)), np.diff(machine.first_node))
        outcome.breakdown = breakdown(owner, axis, start, end, weights, last)
        crossing: Traffic = traffic(assembly, start, end, weights)
        outcome.bytes_per_dim = crossing.bytes_per_dim
        outcome.tiers = crossing.uses(population.sim_of, assembly.parts.config, last)
        outcome.bound_ratio = crossing.bound_ratio(last, max(busy[k] for k in which))
    if with_timeline:
        outcome.timelines = [_rows(assembly, k, start, end) for k in range(len(which))]
    return outcome


def breakdown(
    owner: Int64, axis: Int64, start: Int64, end: Int64, weights: NDArray[np.float64], last: int
) -> dict[str, float]:
    """Where the time of an average rank goes, by union of intervals.

    Args:
        owner: simulated rank of each node. axis: as in :class:`Program`. start, end: ns. weights: share of each rank.
    """
    shown = (axis >= COMPUTE_AXIS) & (end > start)
    owner, axis, start, end = owner[shown], axis[shown], start[shown], end[shown]
    span = last + 1
    moments = np.concatenate([owner * span + start, owner * span + end])
    order = np.argsort(moments, kind="stable")
    step = np.diff(moments[order])
    category = np.concatenate([axis + 1, axis + 1])[order]
    change = np.concatenate([np.ones(len(axis), np.int64), np.full(len(axis), -1, np.int64)])[order]
    share = weights[np.concatenate([owner, owner])[order]]
    free = step > 0
    total: dict[str, float] = {}
    names = ("compute", *(f"exposed_{name}" for name in AXIS_NAMES))
    for k, name in enumerate(names):
        mine = category == k
        if not mine.any():
            total[name] = 0.0
            continue
        active = np.cumsum(np.where(mine, change, 0))[:-1] > 0
        total[name] = float((step * share[:-1])[active & free].sum())
        free &= ~active
    total["idle"] = max(0.0, float(last) - sum(total.values()))
    return total


def _rows(assembly: Assembly, k: int, start: Int64, end: Int64) -> list[Row]:
    program = assembly.population.programs[int(assembly.population.program[k])]
    first = int(assembly.machine.first_node[k])
    rows = []
    for row in range(len(program)):
        begun, over = int(start[first + row]), int(end[first + row])
        if over >= 0:
            axis = int(program.axis[row])
            label = "compute" if axis == COMPUTE_AXIS else AXIS_NAMES[axis] if axis >= 0 else "other"
            rows.append((begun, over, program.trace.names[int(program.order[row])], label))
    return sorted(rows, key=lambda row: row[:2])
