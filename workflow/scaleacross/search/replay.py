"""The order of actions run through as fast as their max-plus maps allow (compiled); see :mod:`.relax`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.fluid.jit import entry

NEVER = -1e30
KIND, OWN, WAIT, LAG, PAIRED = range(5)  # rows of the table


@entry
def replay(first: Any, table: Any, maps: Any, fixed: Any, work: Any, lags: Any, slots: int) -> Any:
    """Run every rank's actions in order, each as soon as its rank is free and its input there.

    Args:
        first: int64[ranks + 1], where each rank's actions start. table: int64[5, actions].
        maps: float64[kinds, 4], seconds: compute and output from a free rank, then from the input. fixed:
            float64[kinds, 2], the times before which gates keep compute and output. work: float64[kinds], compute
            alone. lags: float64[pairs of ranks]. slots: number of outputs.

    Returns:
        When the rank was free and the input there for each action, when each rank ends its last compute block, and
        whether all actions ran.
    """
    ranks = len(first) - 1
    free_at, given_at = np.full(table.shape[1], NEVER), np.full(table.shape[1], NEVER)
    output, is_done = np.full(slots, NEVER), np.zeros(slots, np.bool_)
    free, position = np.zeros(ranks), first[:-1].copy()
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            while position[rank] < first[rank + 1]:
                start = position[rank]
                count = 2 if table[PAIRED, start] == 1 and start + 1 < first[rank + 1] else 1
                blocked = False
                for row in range(start, start + count):
                    wait = table[WAIT, row]
                    if wait >= 0 and not is_done[wait]:
                        blocked = True
                if blocked:
                    break
                begin, end, busy = free[rank], NEVER, 0.0
                for row in range(start, start + count):
                    kind, wait, lag = table[KIND, row], table[WAIT, row], table[LAG, row]
                    given = NEVER
                    if wait >= 0:
                        given = output[wait] + (lags[lag] if lag >= 0 else 0.0)
                    computed = max(begin + maps[kind, 0], given + maps[kind, 2], fixed[kind, 0])
                    ready = max(begin + maps[kind, 1], given + maps[kind, 3], fixed[kind, 1])
                    own = table[OWN, row]
                    output[own], is_done[own] = ready, True
                    free_at[row], given_at[row] = begin, given
                    end = max(end, computed)
                    busy += work[kind]
                if count == 2:
                    end = max(end, begin + busy)
                free[rank] = end
                position[rank] += count
                moved = True
    done = True
    for rank in range(ranks):
        if position[rank] < first[rank + 1]:
            done = False
    return free_at, given_at, free, done


def compile_replay() -> None:
    """Compile now, or read what was compiled before, for processes that are forked later."""
    nothing = np.zeros((1, 4))
    table = np.array([[0], [0], [-1], [-1], [0]], np.int64)
    replay(np.array([0, 1], np.int64), table, nothing, nothing[:, :2].copy(), np.zeros(1), np.zeros(1), 1)
