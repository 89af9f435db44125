"""What each pipeline stage does when: bars from an engine's timeline or from a replayed schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Bar(NamedTuple):
    """One thing a stage does: seconds from the start of the step, F, B, W or an axis, and which micro-batch."""

    start: float
    end: float
    kind: str
    micro_batch: int = -1
    chunk: int = 0


@dataclass(frozen=True)
class Gantt:
    """A step of one design: a title and, for each stage from the first, its bars."""

    title: str
    rows: Sequence[Sequence[Bar]]

    @property
    def end(self) -> float:
        """When the last bar ends, in seconds."""
        return max((bar.end for row in self.rows for bar in row), default=0.0)

    @property
    def count(self) -> int:
        """Number of bars."""
        return sum(len(row) for row in self.rows)


def from_schedule(title: str, rows: Iterable[tuple[int, float, float, str, int, int]], unit: float = 1.0) -> Gantt:
    """Rows (rank, start, end, kind, micro_batch, chunk) of ``schedule.gantt_rows``; ``unit``: theirs in s."""
    stages: dict[int, list[Bar]] = {}
    for rank, start, end, kind, micro_batch, chunk in rows:
        stages.setdefault(rank, []).append(Bar(start * unit, end * unit, kind, micro_batch, chunk))
    return Gantt(title, [stages[rank] for rank in sorted(stages)])


# Compute of a pass (``F.m3.c0.l2.attention``) and the communication inside it (``tp.F.m3.c0.l2.attention.rs``).
_PASS = re.compile(r"(?:(?:tp|cp|ep)\.)?(?P<kind>[FBW])\.m(?P<micro_batch>\d+)(?:\.c(?P<chunk>\d+))?(?:\.|\Z)")
# A receive is posted long before its message comes: waiting for it is idle time, the sender's bar is the transfer.
_RECEIVE = re.compile(r"(?:\A|\.)recv(?:\.|\Z)")
_AXES = ("tp", "cp", "ep", "pp", "dp", "other")


def _bar(start_ns: float, end_ns: float, name: str, axis: str) -> Bar:
    """A timeline row as a bar: the pass and micro-batch are in the name of its nodes; the rest goes by its axis."""
    match = _PASS.match(name)
    if match:
        return Bar(start_ns * 1e-9, end_ns * 1e-9, match["kind"], int(match["micro_batch"]), int(match["chunk"] or 0))
    return Bar(start_ns * 1e-9, end_ns * 1e-9, axis if axis in _AXES else "compute")


def from_timeline(title: str, stages: Mapping[int, Iterable[tuple[float, float, str, str]]]) -> Gantt:
    """Rows (start_ns, end_ns, name, axis) of the engine's timeline of one rank a stage, by stage number.

    The operators of one pass of one micro-batch, its tensor-, context- and expert-parallel communication included,
    become one bar unless a gap above 0.1 % of the step parts them. Receives are left out.
    """
    rows = {
        stage: [_bar(*row) for row in timeline if not _RECEIVE.search(row[2])] for stage, timeline in stages.items()
    }
    gap = 1e-3 * max((bar.end for row in rows.values() for bar in row), default=0.0)
    return Gantt(title, [_merged(rows[stage], gap) for stage in sorted(rows)])


def _merged(bars: Iterable[Bar], gap: float) -> list[Bar]:
    """Join bars of the same kind, micro-batch and chunk that touch or nearly touch."""
    merged: list[Bar] = []
    last: dict[str, int] = {}
    for bar in sorted(bars):
        track = "compute" if bar.micro_batch >= 0 else bar.kind
        before = merged[last[track]] if track in last else None
        if before is not None and before[2:] == bar[2:] and bar.start - before.end <= gap:
            merged[last[track]] = before._replace(end=max(before.end, bar.end))
        else:
            last[track] = len(merged)
            merged.append(bar)
    return merged
