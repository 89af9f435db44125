"""Greedy list scheduling of a pipeline with delays between ranks and a limit on activations.

Time is simulated; whenever a rank is free it takes the best ready action under a policy. Micro-batches go first in,
first out through every chunk. A forward of chunk c of C starts only if a slot for each later chunk of its rank stays
free, so the oldest unfinished micro-batch can always go on and no limit of C or more deadlocks: later micro-batches
hold at most limit - C + c.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from .actions import Action, action

First = Literal["B", "F", "other"]


@dataclass(frozen=True)
class Problem:
    """What to schedule.

    ``f, b, w`` are durations by position, ``delay[from][to]`` between ranks in the same unit, ``limits`` the most chunk
    activations a rank may hold, ``positions[rank][chunk]`` where the chunks lie, ``split`` whether B and W are apart.
    """

    micro_batches: int
    positions: tuple[tuple[int, ...], ...]
    f: Sequence[float]
    b: Sequence[float]
    w: Sequence[float]
    delay: Sequence[Sequence[float]]
    limits: tuple[int, ...]
    split: bool

    @property
    def stages(self) -> int:
        return len(self.positions)

    @property
    def depth(self) -> int:
        return len(self.f)


@dataclass(frozen=True)
class Policy:
    """How a free rank chooses: which kind first, and whether it starts something that would keep a known arrival
    waiting.

    ``first``: "B" (finish old work), "F" (fill up to the limit) or "other" (the kind it did not run last, as in 1F1B).
    ``patient``: leave a gap idle rather than delay an action of a preferred kind already on its way.
    """

    first: First
    patient: bool


_FIRST: tuple[First, ...] = ("B", "F", "other")
POLICIES = tuple(Policy(first, patient) for first, patient in product(_FIRST, (False, True)))


def greedy(problem: Problem, policy: Policy) -> list[list[Action]]:
    """``[rank]`` -> its actions in order. O(actions * chunks * log)."""
    ranks = [_Rank(problem, rank) for rank in range(problem.stages)]
    owners = {position: (r, c) for r, row in enumerate(problem.positions) for c, position in enumerate(row)}
    entry, entry_chunk = owners[0]
    for m in range(problem.micro_batches):
        ranks[entry].arrive("F", entry_chunk, 0.0, m)
    events = [(0.0, rank) for rank in range(problem.stages)]
    while events:
        now, r = heapq.heappop(events)
        rank = ranks[r]
        if now < rank.free:
            continue
        chosen = rank.choose(now, policy)
        if chosen is None:
            later = rank.next_arrival(now)
            if later is not None:
                heapq.heappush(events, (later, r))
            continue
        step, end = rank.run(*chosen, now)
        heapq.heappush(events, (end, r))
        _deliver(problem, owners, ranks, events, r, step, end)
    return [rank.row for rank in ranks]


def _deliver(
    problem: Problem,
    owners: dict[int, tuple[int, int]],
    ranks: list[_Rank],
    events: list[tuple[float, int]],
    source: int,
    step: Action,
    end: float,
) -> None:
    """Tell the rank of the next position (F) or the one before (B) when its input arrives."""
    if step.kind == "W":
        return
    position = problem.positions[source][step.chunk]
    kind, target = step.kind, position + 1 if step.kind == "F" else position - 1
    if target == problem.depth:
        kind, target = "B", position
    if target < 0:
        return
    rank, chunk = owners[target]
    arrival = end + (problem.delay[source][rank] if rank != source else 0.0)
    ranks[rank].arrive(kind, chunk, arrival, step.micro_batch)
    heapq.heappush(events, (arrival, rank))


class _Rank:
    """One rank: what has arrived or will, what it holds, what it ran."""

    def __init__(self, problem: Problem, rank: int) -> None:
        self.limit, self.split = problem.limits[rank], problem.split
        self.chunks = range(len(problem.positions[rank]))
        places = problem.positions[rank]
        self.duration = {
            "F": [problem.f[p] for p in places],
            "B": [problem.b[p] + (0.0 if problem.split else problem.w[p]) for p in places],
            "W": [problem.w[p] for p in places],
        }
        # Inputs in order of micro-batches as (arrival, micro-batch), known as soon as the sender has started.
        self.inputs: dict[str, list[deque[tuple[float, int]]]] = {k: [deque() for _ in places] for k in "FB"}
        self.owed: deque[Action] = deque()
        self.held, self.free, self.last = 0, 0.0, "B"
        self.row: list[Action] = []

    def arrive(self, kind: str, chunk: int, arrival: float, micro_batch: int) -> None:
        self.inputs[kind][chunk].append((arrival, micro_batch))

    def next_arrival(self, now: float) -> float | None:
        heads = (queue[0][0] for queues in self.inputs.values() for queue in queues if queue)
        return min((arrival for arrival in heads if arrival > now), default=None)

    def choose(self, now: float, policy: Policy) -> tuple[str, int] | None:
        """(kind, chunk) to start now, or None."""
        first = policy.first if policy.first != "other" else ("F" if self.last == "B" else "B")
        awaited = float("inf")
        for kind in (first, "F" if first == "B" else "B"):
            chunk, arrival = self._head(kind, now)
            if chunk >= 0 and arrival <= now:
                if not policy.patient or now + self.duration[kind][chunk] <= awaited:
                    return kind, chunk
            elif chunk >= 0:
                awaited = min(awaited, arrival)
        if self.owed:
            chunk = self.owed[0].chunk
            blocked = self._head("F", now)[0] < 0 and any(queue for queue in self.inputs["F"])
            if blocked or not policy.patient or now + self.duration["W"][chunk] <= awaited:
                return "W", chunk
        return None

    def run(self, kind: str, chunk: int, now: float) -> tuple[Action, float]:
        """Start an action; returns it and its end."""
        if kind == "W":
            step = self.owed.popleft()
        else:
            _, micro_batch = self.inputs[kind][chunk].popleft()
            step = action("F" if kind == "F" else "B", micro_batch, chunk, kind == "F" or not self.split)
            self.last = kind
            if kind == "B" and self.split:
                self.owed.append(action("W", micro_batch, chunk))
        self.held += (kind == "F") - (kind == "W" or (kind == "B" and not self.split))
        self.row.append(step)
        self.free = now + self.duration[kind][chunk]
        return step, self.free

    def _head(self, kind: str, now: float) -> tuple[int, float]:
        """(chunk, arrival) of the next input of a kind that memory lets start, -1 if none is known.

        Of several chunks the earliest; of several that are there already the one later in the rank's chunks: for a
        forward the one further on its way, for a backward the one with the longer way to go.
        """
        best, earliest = -1, float("inf")
        for chunk in self.chunks:
            queue = self.inputs[kind][chunk]
            if queue and (kind == "B" or self.held + len(self.chunks) - chunk <= self.limit):
                arrival = max(queue[0][0], now)
                if arrival <= earliest:
                    best, earliest = chunk, arrival
        return best, earliest
