"""A schedule as rows to draw."""

from __future__ import annotations

from typing import NamedTuple

from .actions import Kind, Schedule
from .replay import Delays, Durations, replay


class GanttRow(NamedTuple):
    """One bar: a rank is a line, start and end are in the unit of the durations. A whole backward is one bar ``B``."""

    rank: int
    start: float
    end: float
    kind: Kind
    micro_batch: int
    chunk: int


def gantt_rows(
    schedule: Schedule,
    f: Durations = 1.0,
    b: Durations = 1.0,
    w: Durations = 1.0,
    delay: Delays = 0.0,
    overlapped: Durations | None = None,
) -> list[GanttRow]:
    """(rank, start, end, kind, micro_batch, chunk) of every action, by rank and time; arguments as for ``replay``.

    The two bars of an overlapped pair (DualPipe) have the same start and end.
    """
    times = replay(schedule, f, b, w, delay, overlapped)
    return [
        GanttRow(rank, start, end, step.kind, step.micro_batch, step.chunk)
        for rank, row in enumerate(times.ranks)
        for step, start, end in row
    ]
