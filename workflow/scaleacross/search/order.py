"""The order of a schedule's actions as arrays for :func:`.replay.replay`: what plans with the same schedule share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..schedule import Action, Schedule

Slot = tuple[int, tuple[str, int, int]]


class Kind(NamedTuple):
    """Actions of one rank and chunk that do the same; ``first_use``: their chunk's parameters are gathered for them."""

    stage: int
    chunk: int
    phase: str
    first_use: bool


class Order:
    """Attributes:
    kinds: numbered in the order of their first use on each rank.
    first: int64[ranks + 1], where each rank's actions start. table: int64[5, actions], see :mod:`.replay`.
    lags: pairs of ranks (from, to) that send to each other, numbered. slots: number of outputs.
    closing: ``[rank]`` -> positions in its row of the actions after which gradients are reduced.
    """

    def __init__(self, schedule: Schedule, gathers_always: bool, reduces_always: bool) -> None:
        self.stages, self.name = schedule.stages, schedule.name
        self.lags: dict[tuple[int, int], int] = {}
        self._numbers: dict[Kind, int] = {}
        slots: dict[Slot, int] = {}
        for stage, row in enumerate(schedule.actions):
            for step in row:
                slots[stage, step.key] = len(slots)
        rows = [self._row(schedule, stage, slots, gathers_always) for stage in range(schedule.stages)]
        self.kinds = tuple(self._numbers)
        self.first = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        self.table = np.array([entry for row in rows for entry in row], np.int64).T.copy()
        self.slots = len(slots)
        self.closing = [_closing(row, reduces_always) for row in schedule.actions]

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return int(self.table.nbytes)

    def _row(
        self, schedule: Schedule, stage: int, slots: Mapping[Slot, int], gathers_always: bool
    ) -> list[tuple[int, ...]]:
        """(kind, own slot, slot waited for, lag, overlaps next) of every action of a rank."""
        seen: set[int] = set()
        row: list[tuple[int, ...]] = []
        for step in schedule.actions[stage]:
            first = step.kind != "W" and (gathers_always or step.chunk not in seen)
            if step.kind != "W":
                seen.add(step.chunk)
            source, lag = _source(schedule, stage, step), -1
            if source is not None and source[0] != stage:
                lag = self.lags.setdefault((source[0], stage), len(self.lags))
            wait = -1 if source is None else slots[source]
            phase = "BW" if step.kind == "B" and step.whole else step.kind
            kind = self._numbers.setdefault(Kind(stage, step.chunk, phase, first), len(self._numbers))
            row.append((kind, slots[stage, step.key], wait, lag, int(step.overlaps_next)))
        return row


def _source(schedule: Schedule, stage: int, step: Action) -> Slot | None:
    """(rank, output) that an action needs; None for a weight gradient or the embedding."""
    if step.kind == "W":
        return None
    forward = step.kind == "F"
    peer = schedule.previous(stage, step) if forward else schedule.next(stage, step)
    if peer is None:
        return None if forward else (stage, ("F", step.micro_batch, step.chunk))
    return peer[0], (step.kind, step.micro_batch, peer[1])


def _closing(row: tuple[Action, ...], reduces_always: bool) -> list[int]:
    last: dict[object, int] = {}
    for position, step in enumerate(row):
        if step.kind == "W" or (step.kind == "B" and step.whole):
            last[(step.micro_batch, step.chunk) if reduces_always else step.chunk] = position
    return list(last.values())
