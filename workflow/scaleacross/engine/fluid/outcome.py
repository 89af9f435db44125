"""What a simulation with contention found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..limits import MOST_NS, too_long
from ..outcome import Outcome, Row
from ..program import AXIS_NAMES
from . import layout as L
from .bounds import bound_ratio
from .build import Built
from .critical import LABELS, critical_path
from .machine import Machine
from .prepared import COMPUTES
from .stuck import stuck_message
from .tiers import carried, limited, sent_per_dimension, tier_uses

Int64 = NDArray[np.int64]
BREAKDOWN = (*(f"exposed_{axis}" for axis in AXIS_NAMES), "compute", "idle")
IDLE = 7


@dataclass(slots=True)
class FluidOutcome(Outcome):
    """Result of :func:`.simulate_fluid`: what every outcome tells, and how the tiers were used.

    Time that a rank waits for a partner or a message is idle in ``breakdown``, not communication: a collective counts
    from when all have called, a receive from when its message is on the way.

    Attributes:
        time_ns: ``iteration_ns`` before rounding.
        flows_solved: flows that were given a rate by sharing.
    """

    time_ns: float = 0.0
    flows_solved: int = 0


def read_outcome(built: Built, machine: Machine, status: str, timeline: bool) -> FluidOutcome:
    """Everything a user may ask, from the memory of a finished (or stuck) run.

    Raises:
        InvalidInput: E-TIME-RANGE for an iteration longer than can be counted.
    """
    sizes, sim_of = built.resources.sizes, built.resources.sim_of
    finish = machine.real("sim", L.FINISH)
    spent = np.stack([machine.real("sim", L.SPENT + k) for k in range(8)])
    compute = spent[COMPUTES]
    if not finish.max() <= MOST_NS:
        raise too_long("the iteration")
    done = finish >= 0
    outcome = FluidOutcome(
        status,
        finish_cycles=np.where(done, np.rint(finish), -1).astype(np.int64)[sim_of],
        exposed_cycles=np.where(done, np.rint(finish - compute), -1).astype(np.int64)[sim_of],
        events=int(machine.m[L.G_EVENTS]),
        model="scaleacross",
        representatives=built.rows.true_of.tolist(),
        flows_solved=int(machine.m[L.G_SOLVED]),
    )
    outcome.time_ns = float(finish.max())
    outcome.iteration_ns = round(outcome.time_ns)
    if timeline:
        outcome.timelines = _timelines(built, machine)
    if status == "deadlock":
        outcome.message = stuck_message(built, machine)
    if status != "ok":
        return outcome
    if timeline:
        outcome.critical = critical_path(built, machine)
    spent[IDLE] += outcome.time_ns - machine.real("sim", L.CHANGED)
    mean = spent @ sizes / sizes.sum()
    outcome.breakdown = {name: float(mean[k]) for k, name in enumerate(BREAKDOWN)}
    ran = _executions(built, machine)
    through = carried(built, ran)
    outcome.bytes_per_dim = sent_per_dimension(built, ran)
    outcome.bound_ratio = bound_ratio(built, ran, through, outcome.time_ns, compute)
    held = limited(built, ran, machine.real("resource", L.LIMITED))
    outcome.tiers = tier_uses(built, through, outcome.bytes_per_dim, held, outcome.time_ns)
    return outcome


def _executions(built: Built, machine: Machine) -> NDArray[np.float64]:
    """How often each job ran, float64[jobs]."""
    job = machine.tables.job
    ran = job[(machine.real("row", L.END) >= 0) & (job >= 0)]
    return np.bincount(ran, minlength=len(built.jobs)) / np.maximum(1, machine.tables.need[: len(built.jobs)])


def _timelines(built: Built, machine: Machine) -> list[list[Row]]:
    start, end, begin = (np.rint(machine.real("row", cell)).astype(np.int64) for cell in (L.START, L.END, L.BEGIN))
    found = []
    for sim, program in enumerate(built.programs):
        base = int(built.rows.first_row[sim])
        rows = []
        for k, at in enumerate(program.order.tolist(), base):
            if end[k] >= 0:
                begun = int(max(start[k], begin[k]))
                rows.append((begun, int(end[k]), program.trace.names[at], LABELS[int(machine.tables.axis[k])]))
        found.append(sorted(rows, key=lambda row: row[:2]))
    return found
