"""What no order of a schedule's actions can beat."""

from __future__ import annotations

from itertools import accumulate, pairwise

from .actions import Schedule
from .replay import Delays, Durations, as_delay_rows, as_durations


def makespan_lower_bound(schedule: Schedule, f: Durations, b: Durations, w: Durations, delay: Delays = 0.0) -> float:
    """A lower bound of ``replay(...).makespan`` (without ``overlapped``) over every order of the same actions.

    The larger of two: one micro-batch's way to the loss and back to the embedding; and, over the ranks, the earliest
    arrival of a forward + all the rank's work + the shortest way back to the embedding from there (0 where some
    backward is split: the rank may end with a W).
    """
    forward, backward, weight = (
        as_durations(name, value, schedule.depth) for name, value in zip("fbw", (f, b, w), strict=True)
    )
    delays = as_delay_rows(delay, schedule.stages)
    whole = [x + y for x, y in zip(backward, weight, strict=True)]
    steps_back = backward if schedule.splits_backward else whole
    bound = 0.0
    heads, tails = [float("inf")] * schedule.stages, [float("inf")] * schedule.stages
    work = [0.0] * schedule.stages
    for copy in range(schedule.weight_copies):
        ranks = [schedule.owner_in(copy, position)[0] for position in range(schedule.depth)]
        links = list(pairwise(ranks))
        there = list(accumulate(map(sum, zip(forward, (delays[a][b] for a, b in links), strict=False)), initial=0.0))
        back = list(accumulate(map(sum, zip(steps_back, (delays[b][a] for a, b in links), strict=False)), initial=0.0))
        bound = max(bound, there[-1] + forward[-1] + back[-1] + steps_back[-1])
        share = sum(schedule.copy_of(m) == copy for m in range(schedule.micro_batches))
        for position, rank in enumerate(ranks):
            heads[rank] = min(heads[rank], there[position])
            tails[rank] = min(tails[rank], back[position])
            work[rank] += share * (forward[position] + whole[position])
    if schedule.splits_backward:
        tails = [0.0] * schedule.stages
    return max(bound, *(sum(parts) for parts in zip(heads, work, tails, strict=True)))
