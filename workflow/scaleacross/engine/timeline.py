"""Timelines as Chrome trace events, which Perfetto opens.

A process a rank, a lane a kind of work. Chrome's complete events of one lane must nest or be disjoint, so whatever
overlaps (receives that wait at the same time) is spread over several lanes.
"""

from __future__ import annotations

from typing import Any

from .outcome import Outcome, Row
from .program import AXIS_NAMES

LANES = ("compute", *AXIS_NAMES)


def chrome_trace(outcome: Outcome, names: list[str]) -> dict[str, Any]:
    """The document: ``ts`` and ``dur`` in microseconds. ``names``: of the simulated ranks' traces."""
    events: list[dict[str, Any]] = []
    for k, (rank, rows) in enumerate(zip(outcome.representatives, outcome.timelines, strict=True)):
        events.append(_meta("process_name", rank, 0, f"rank {rank} ({names[k]})"))
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
        number = 0
        for label in LANES:
            for lane in lanes([row for row in rows if row[3] == label]):
                number += 1
                events.append(_meta("thread_name", rank, number, label))
                events.extend(_event(row, rank, number) for row in lane)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def lanes(rows: list[Row]) -> list[list[Row]]:
    """Spread rows, given in order of start, over as few lanes as hold them without overlap."""
    filled: list[list[Row]] = []
    for row in rows:
        for lane in filled:
            if lane[-1][1] <= row[0]:
                lane.append(row)
                break
        else:
            filled.append([row])
    return filled


def _event(row: Row, rank: int, lane: int) -> dict[str, Any]:
    begun, over, name, axis = row
    return {
        "ph": "X",
        "name": name,
        "cat": axis,
        "pid": rank,
        "tid": lane,
        "ts": begun / 1000,
        "dur": (over - begun) / 1000,
    }


def _meta(kind: str, rank: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": lane, "args": {"name": name}}
