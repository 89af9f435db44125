"""Timelines as Chrome trace events, which Perfetto opens.

A process a rank, a lane a kind of work, and above them a process for the critical path where it is known. Chrome's
complete events of one lane must nest or be disjoint, so whatever overlaps (receives that wait at the same time) is
spread over several lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .outcome import Outcome, Row
from .program import AXIS_NAMES

LANES = ("compute", *AXIS_NAMES)
Design = tuple[str, Outcome, Sequence[str]]  # title, what was simulated, names of the simulated ranks' traces


def chrome_trace(outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
    """The document: ``ts`` and ``dur`` in microseconds. ``names``: of the simulated ranks' traces."""
    return chrome_traces([("", outcome, names)])


def chrome_traces(designs: Sequence[Design]) -> dict[str, Any]:
    """One document with several designs on one time axis; their processes are named and sorted by design.

    Process ids are ranks; those of a further design go on where the one before ends.
    """
    events: list[dict[str, Any]] = []
    first = 0
    for title, outcome, names in designs:
        named = f"{title}: " if title else ""
        after = first + len(outcome.finish_cycles)
        if outcome.critical:
            events += _process(after, 2 * first, f"{named}critical path")
            events.append(_meta("thread_name", after, 1, "critical path"))
            events += [
                _event((step.end - step.adds, step.end, step.name, step.axis), after, 1) | {"args": {"rank": step.rank}}
                for step in outcome.critical
                if step.adds > 0
            ]
        for k, (rank, rows) in enumerate(zip(outcome.representatives, outcome.timelines, strict=True)):
            events += _process(first + rank, 2 * (first + rank) + 1, f"{named}rank {rank} ({names[k]})")
            number = 0
            for label in LANES:
                for lane in lanes([row for row in rows if row[3] == label]):
                    number += 1
                    events.append(_meta("thread_name", first + rank, number, label))
                    events.extend(_event(row, first + rank, number) for row in lane)
        first = after + 1
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


def _event(row: tuple[float, float, str, str], rank: int, lane: int) -> dict[str, Any]:
    begun, over = round(row[0]), round(row[1])  # whole ns: neighbours on the critical path must not overlap
    return {
        "ph": "X",
        "name": row[2],
        "cat": row[3],
        "pid": rank,
        "tid": lane,
        "ts": begun / 1000,
        "dur": (over - begun) / 1000,
    }


def _process(number: int, place: int, name: str) -> list[dict[str, Any]]:
    sorted_at = {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": place}}
    return [_meta("process_name", number, 0, name), sorted_at]


def _meta(kind: str, rank: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": lane, "args": {"name": name}}
