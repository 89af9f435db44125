"""What a simulation with contention found."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..program import AXIS_NAMES
from . import layout as L
from .bounds import bound_ratio
from .build import Built
from .machine import Machine
from .prepared import COMPUTES
from .stuck import stuck_message
from .tiers import TierUse, sent_per_dimension, tier_uses

Int64 = NDArray[np.int64]
BREAKDOWN = (*(f"exposed_{axis}" for axis in AXIS_NAMES), "compute", "idle")
Row = tuple[float, float, str, str]


@dataclass
class FluidOutcome:
    """Result of :func:`.simulate_fluid`; the fields of the exact engine's outcome, and ``tiers``.

    Attributes:
        status: ok, deadlock or timeout (invalid input is raised). message: the reason where it is not ok.
        finish_cycles, exposed_cycles: int64[npus], ns; exposed is finish minus compute, as ASTRA-sim prints it.
        iteration_ns: when the last rank finishes.
        breakdown: ns averaged over ranks, summing up to ``iteration_ns``: compute; exposed_<axis>, some communication
            of the axis under way and no compute (the first of tp, cp, ep, pp, dp, other counts); idle, everything else:
            waiting for a message or a partner is idle, not communication.
        bytes_per_dim: bytes that a rank sends on each network dimension, on average.
        bound_ratio: time over the least time that compute, ports and uplinks allow; below 1 would be unphysical.
        tiers: use of each tier (of each dimension of a plain network).
        events, flows_solved: how much work the simulation was.
    """

    status: str
    message: str = ""
    finish_cycles: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    exposed_cycles: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    iteration_ns: float = 0.0
    breakdown: dict[str, float] = field(default_factory=dict)
    bytes_per_dim: list[float] = field(default_factory=list)
    bound_ratio: float = 1.0
    tiers: tuple[TierUse, ...] = ()
    events: int = 0
    flows_solved: int = 0
    _timelines: dict[int, list[Row]] = field(default_factory=dict, repr=False)
    _critical: list[tuple[int, str, float, float]] = field(default_factory=list, repr=False)

    def timeline(self, k: int) -> list[Row]:
        """Operators of class ``k`` as (start ns, end ns, name, axis), by start; asked for with ``timeline=True``."""
        return self._timelines[k]

    def critical_path(self) -> list[tuple[int, str, float, float]]:
        """The chain of operators that ended last, first to last: (class, name, start ns, end ns)."""
        return self._critical


def read_outcome(built: Built, machine: Machine, status: str, timeline: bool) -> FluidOutcome:
    """Everything a user may ask, from the memory of a finished (or stuck) run."""
    sizes = built.resources.sizes
    finish = machine.real("sim", L.FINISH)
    if status != "ok":
        message = "the time limit was reached" if status == "timeout" else stuck_message(built, machine)
        return FluidOutcome(status, message, events=int(machine.m[L.G_EVENTS]))
    spent = np.stack([machine.real("sim", L.SPENT + k) for k in range(8)])
    iteration = float(finish.max())
    spent[7] += iteration - machine.real("sim", L.CHANGED)
    mean = spent @ sizes / sizes.sum()
    compute = spent[COMPUTES]
    ran = _executions(built, machine)
    sim_of = built.resources.sim_of
    return FluidOutcome(
        status="ok",
        finish_cycles=np.rint(finish).astype(np.int64)[sim_of],
        exposed_cycles=np.rint(finish - compute).astype(np.int64)[sim_of],
        iteration_ns=iteration,
        breakdown={name: float(mean[k]) for k, name in enumerate(BREAKDOWN)},
        bytes_per_dim=sent_per_dimension(built, ran),
        bound_ratio=bound_ratio(built, ran, iteration, compute),
        tiers=tier_uses(built, ran, machine.real("resource", L.LIMITED), iteration),
        events=int(machine.m[L.G_EVENTS]),
        flows_solved=int(machine.m[L.G_SOLVED]),
        _timelines=_timelines(built, machine) if timeline else {},
        _critical=_critical_path(built, machine) if timeline else [],
    )


def _executions(built: Built, machine: Machine) -> NDArray[np.float64]:
    """How often each job ran, float64[jobs]."""
    job = machine.tables.job
    ran = job[(machine.real("row", L.END) >= 0) & (job >= 0)]
    return np.bincount(ran, minlength=len(built.jobs)) / np.maximum(1, machine.tables.need)


def _timelines(built: Built, machine: Machine) -> dict[int, list[Row]]:
    start, end, begin = (machine.real("row", cell) for cell in (L.START, L.END, L.BEGIN))
    axis = machine.tables.axis
    labels = (*AXIS_NAMES, "compute", "")
    found = {}
    for sim, program in enumerate(built.programs):
        base = int(built.first_row[sim])
        names = [program.trace.names[row] for row in program.order.tolist()]
        rows = [
            (float(max(start[k], begin[k])), float(end[k]), names[k - base], labels[axis[k]])
            for k in range(base, base + len(names))
        ]
        found[sim] = sorted(rows)
    return found


def _critical_path(built: Built, machine: Machine) -> list[tuple[int, str, float, float]]:
    """From the last row back: what ended when it became ready, or, where its slot was busy then, what it waited for."""
    start, end = machine.real("row", L.START), machine.real("row", L.END)
    cause = machine.whole("row", L.CAUSE)
    slot, sim_of_row = machine.tables.slot, machine.tables.sim
    row = int(np.argmax(end))
    path = []
    while True:
        sim = int(sim_of_row[row])
        name = built.programs[sim].trace.names[int(built.programs[sim].order[row - int(built.first_row[sim])])]
        path.append((sim, name, float(start[row]), float(end[row])))
        before = int((cause[row] - machine.at["row"]) // L.ROW_SIZE) if cause[row] else -1
        if before < 0 or end[before] < start[row]:
            same = np.flatnonzero((slot == slot[row]) & (end == start[row]) & (slot >= 0))
            before = int(same[0]) if len(same) and start[row] > 0 else before
        if before < 0 or len(path) > len(end):
            return path[::-1]
        row = before
