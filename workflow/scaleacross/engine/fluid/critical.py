"""The critical path of a finished run: the chain of operators that ends last, without a gap from the first moment on.

From the last operator back: an operator started when the operator that made it ready ended (a dependency; of a receive,
its send; of a collective, the member that came last), or else when its slot became free, so then the operator that held
the slot is the one before. An operator adds what of it lies after the end of the one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..outcome import Step
from ..program import AXIS_NAMES
from . import layout as L
from .build import Built
from .machine import Machine

LABELS = (*AXIS_NAMES, "compute", "other")  # of an operator's axis


def critical_path(built: Built, machine: Machine) -> list[Step]:
    """The path, first to last."""
    start, end = machine.real("row", L.START), machine.real("row", L.END)
    cause = machine.whole("row", L.CAUSE)
    holder = _holders(machine.tables.slot, start, end)
    row, chain = int(np.argmax(end)), []
    while row >= 0:
        chain.append(row)
        before = int((cause[row] - machine.at["row"]) // L.ROW_SIZE) if cause[row] else -1
        if before < 0 or end[before] < start[row]:
            before = holder.get((int(machine.tables.slot[row]), float(start[row])), before)
        row = before
    steps, reached = [], 0.0
    for row in reversed(chain):
        sim = int(machine.tables.sim[row])
        program = built.programs[sim]
        name = program.trace.names[int(program.order[row - int(built.rows.first_row[sim])])]
        axis = LABELS[int(machine.tables.axis[row])]
        adds = max(0.0, float(end[row]) - reached)
        reached += adds
        steps.append(Step(sim, int(built.rows.true_of[sim]), name, axis, float(start[row]), float(end[row]), adds))
    return steps


def _holders(
    slot: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> dict[tuple[int, float], int]:
    """(slot, time) -> the row that held the slot until then; rows that take no time hold none."""
    rows = np.flatnonzero((slot >= 0) & (end > start))
    return {(s, t): r for s, t, r in zip(slot[rows].tolist(), end[rows].tolist(), rows.tolist(), strict=True)}
