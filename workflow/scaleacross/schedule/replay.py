"""Play a schedule with given durations and delays: when every action starts and ends, the makespan and the bubble.

A rank runs its actions in order, each as soon as the rank is free and its input has arrived. Sends cost the rank
nothing and links have no queue: a delay is latency plus transfer time. The papers' model, not a network simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import Deadlock, InvalidInput
from .actions import Action, Schedule

Durations = float | Sequence[float]
Delays = float | Sequence[Sequence[float]]


@dataclass(frozen=True)
class Replay:
    """Times of every action, in the unit of the durations given.

    ``starts[rank][i]`` and ``ends[rank][i]`` belong to ``schedule.actions[rank][i]``; ``busy[rank]`` is time not idle.
    """

    schedule: Schedule
    starts: tuple[list[float], ...] = field(repr=False)
    ends: tuple[list[float], ...] = field(repr=False)
    busy: tuple[float, ...]

    @property
    def ranks(self) -> list[list[tuple[Action, float, float]]]:
        """Per rank its (action, start, end) in order."""
        rows = zip(self.schedule.actions, self.starts, self.ends, strict=True)
        return [list(zip(*row, strict=True)) for row in rows]

    @cached_property
    def makespan(self) -> float:
        """From 0 to the last end of any rank."""
        return max((row[-1] for row in self.ends if row), default=0.0)

    @cached_property
    def span(self) -> float:
        """The longest any one rank takes from its own first start to its own last end.

        The iteration time where ranks need not wait for each other between iterations: the *cost* of Zero Bubble
        (arXiv 2401.10241), which its post-validation of the optimizer step allows. Never above ``makespan``.
        """
        return max((end[-1] - start[0] for start, end in zip(self.starts, self.ends, strict=True) if end), default=0.0)

    @property
    def bubble_fraction(self) -> float:
        """Idle share of the ranks' time, 1 - busy / (stages * makespan): Zero Bubble's bubble rate."""
        total = len(self.busy) * self.makespan
        return 1 - sum(self.busy) / total if total else 0.0

    @property
    def span_bubble_fraction(self) -> float:
        """1 - busiest / span: Zero Bubble's bubble rate without a synchronisation of the ranks between iterations."""
        return 1 - max(self.busy, default=0.0) / self.span if self.span else 0.0

    @property
    def bubble_over_ideal(self) -> float:
        """Idle over busy time: the bubble fraction of Narayanan et al. (arXiv 2104.04473), (p - 1) / m for 1F1B."""
        busy = sum(self.busy)
        return len(self.busy) * self.makespan / busy - 1 if busy else 0.0


def replay(
    schedule: Schedule,
    f: Durations,
    b: Durations,
    w: Durations,
    delay: Delays = 0.0,
    overlapped: Durations | None = None,
) -> Replay:
    """Run a schedule.

    Args:
        f, b, w: durations of a forward, an input gradient and a weight gradient through ONE virtual stage: one number,
            or one a position (length ``schedule.depth``). A whole ``B`` takes b + w.
        delay: one number, or ``delay[from_rank][to_rank]``; nothing between two chunks of the same rank.
        overlapped: duration of an overlapped F&B pair (DualPipe), one number or by the position of the pair's forward.
            By default the sum of the two: overlapping gains nothing.

    Raises:
        Deadlock: E-SCHEDULE-DEADLOCK with an action that never starts and what it waits for.
        InvalidInput: E-REPLAY for durations or delays that are negative or of another shape.
    """
    costs = [as_durations(name, value, schedule.depth) for name, value in zip("fbw", (f, b, w), strict=True)]
    pairs = None if overlapped is None else as_durations("overlapped", overlapped, schedule.depth)
    delays = as_delay_rows(delay, schedule.stages)
    launches = [_launches(schedule, rank, costs, pairs, delays) for rank in range(schedule.stages)]
    starts, ends, busy = _run(schedule, launches)
    return Replay(schedule, starts, ends, busy)


# What a rank starts at once: (duration, own id, id waited for, its delay, the other actions of an overlapped pair as
# (own id, id waited for, its delay)). Ids are (kind, position, micro-batch) as one integer; -1, which the forwards of
# the embedding wait for, is done at time 0.
_Launch = tuple[float, int, int, float, tuple[tuple[int, int, float], ...]]


def _launches(
    schedule: Schedule, rank: int, costs: list[list[float]], pairs: list[float] | None, delays: list[list[float]]
) -> list[_Launch]:
    """A rank's actions with every look-up done."""
    table = [_chunk_launches(schedule, rank, chunk, costs, delays) for chunk in range(len(schedule.positions[rank]))]
    launches: list[_Launch] = []
    group: list[_Launch] = []
    length, position = 0.0, -1
    for step in schedule.actions[rank]:
        duration, own, wait, lag = table[step.chunk][step.kind if step.kind != "B" or not step.whole else "BW"]
        micro_batch = step.micro_batch
        launch = (duration, own + micro_batch, wait + micro_batch if wait >= 0 else -1, lag, ())
        if not group and not step.overlaps_next:
            launches.append(launch)
            continue
        group.append(launch)
        length += duration
        position = schedule.positions[rank][step.chunk] if step.kind == "F" else position
        if not step.overlaps_next:
            length = pairs[position] if pairs is not None and position >= 0 else length
            mates = tuple(mate[1:4] for mate in group[1:])
            launches.append((length, *group[0][1:4], mates))
            group, length, position = [], 0.0, -1
    return launches


def _chunk_launches(
    schedule: Schedule, rank: int, chunk: int, costs: list[list[float]], delays: list[list[float]]
) -> dict[str, tuple[float, int, int, float]]:
    """For each kind ("BW": a whole backward) of micro-batch 0: (duration, own id, id waited for, its delay)."""
    count, block = schedule.micro_batches, schedule.depth * schedule.micro_batches
    position, copy = schedule.positions[rank][chunk], chunk // schedule.chunks
    forward, backward, weight = (cost[position] for cost in costs)
    own = position * count
    first, last = position == 0, position == schedule.depth - 1
    before = rank if first else schedule.owner_in(copy, position - 1)[0]
    after = rank if last else schedule.owner_in(copy, position + 1)[0]
    back = (block + own, own if last else block + own + count, delays[after][rank])
    return {
        "F": (forward, own, -1 if first else own - count, delays[before][rank]),
        "B": (backward, *back),
        "BW": (backward + weight, *back),
        "W": (weight, 2 * block + own, block + own, 0.0),
    }


def _run(
    schedule: Schedule, launches: list[list[_Launch]]
) -> tuple[tuple[list[float], ...], tuple[list[float], ...], tuple[float, ...]]:
    """Advance each rank until it waits for something not done, and again when that is done: O(actions)."""
    size = 3 * schedule.depth * schedule.micro_batches
    done = [-1.0] * size + [0.0]
    waiter = [-1] * size
    starts: tuple[list[float], ...] = tuple([] for _ in launches)
    ends: tuple[list[float], ...] = tuple([] for _ in launches)
    counter, free, busy = [0] * len(launches), [0.0] * len(launches), [0.0] * len(launches)
    ready = list(range(len(launches)))
    while ready:
        rank = ready.pop()
        now, index, program = free[rank], counter[rank], launches[rank]
        begin, finish, worked = starts[rank].append, ends[rank].append, 0.0
        while index < len(program):
            duration, own, wait, lag, mates = program[index]
            arrived = done[wait]
            if arrived < 0:
                waiter[wait] = rank
                break
            if arrived + lag > now and wait >= 0:
                now = arrived + lag
            if mates:
                late = next((mate for mate in mates if done[mate[1]] < 0), None)
                if late is not None:
                    waiter[late[1]], now = rank, free[rank]
                    break
                now = max(now, *(done[mate[1]] + mate[2] for mate in mates))
            end = now + duration
            for identity in (own, *(mate[0] for mate in mates)) if mates else (own,):
                begin(now)
                finish(end)
                done[identity] = end
                if waiter[identity] >= 0:
                    ready.append(waiter[identity])
            free[rank] = now = end
            worked += duration
            index += 1
        counter[rank] = index
        busy[rank] += worked
    _check_finished(schedule, starts)
    return starts, ends, tuple(busy)


def _check_finished(schedule: Schedule, starts: tuple[list[float], ...]) -> None:
    for rank, (row, begun) in enumerate(zip(schedule.actions, starts, strict=True)):
        if len(begun) < len(row):
            index = len(begun)
            clash = f"{schedule.name!r}: rank {rank} never starts {row[index]}, action {index} of {len(row)}"
            raise Deadlock(
                "E-SCHEDULE-DEADLOCK", clash, "its input comes from an action that is missing or ordered after it"
            )


def as_durations(name: str, value: Durations, depth: int) -> list[float]:
    """One duration a position.

    Raises:
        InvalidInput: E-REPLAY for another number of them, a negative one, or one that isn't finite.
    """
    values = [float(value)] * depth if isinstance(value, int | float) else [float(item) for item in value]
    if len(values) != depth or not all(0 <= item < math.inf for item in values):
        clash = f"{name} has {len(values)} durations, from {min(values, default=0)}, for {depth} virtual stages"
        raise InvalidInput("E-REPLAY", clash, "give one number, or one a virtual stage, finite and not negative")
    return values


def as_delay_rows(delay: Delays, stages: int) -> list[list[float]]:
    """``[from][to]`` with a zero diagonal.

    Raises:
        InvalidInput: E-REPLAY for another shape, a negative delay, or one that isn't finite.
    """
    if isinstance(delay, int | float):
        rows = [[float(delay)] * stages for _ in range(stages)]
    else:
        rows = [[float(item) for item in row] for row in delay]
    if [len(row) for row in rows] != [stages] * stages or not all(0 <= item < math.inf for row in rows for item in row):
        clash = f"delay is not {stages} x {stages} finite numbers of at least 0"
        raise InvalidInput("E-REPLAY", clash, "give one number, or a row a sending rank with one a receiving rank")
    for rank in range(stages):
        rows[rank][rank] = 0.0
    return rows
