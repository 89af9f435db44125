"""Is a schedule complete: every forward and backward (and weight gradient) once, on the rank that holds the chunk?"""

from __future__ import annotations

from ..errors import InvalidInput
from .actions import Action, Kind, Schedule

_EACH: tuple[Kind, ...] = ("F", "B")
_Key = tuple[Kind, int, int]


def check_complete(schedule: Schedule) -> None:
    """Every rank runs F and B of each of its micro-batches and chunks once, and W once unless the B is whole.

    Order and deadlock are ``replay``'s to find. O(actions).

    Raises:
        InvalidInput: E-SCHEDULE-INCOMPLETE with the first action that is missing, doubled or out of place.
    """
    for rank, row in enumerate(schedule.actions):
        keys = {step.key for step in row}
        whole = {(step.micro_batch, step.chunk) for step in row if step.kind == "B" and step.whole}
        runs = [
            (micro_batch, chunk)
            for micro_batch in range(schedule.micro_batches)
            for chunk in _chunks_of(schedule, schedule.copy_of(micro_batch))
        ]
        expected: set[_Key] = {(kind, *run) for run in runs for kind in _EACH}
        expected |= {("W", *run) for run in runs if run not in whole}
        if keys != expected or len(row) != len(expected):
            raise InvalidInput(
                "E-SCHEDULE-INCOMPLETE",
                f"{schedule.name!r}, rank {rank}: {_difference(row, keys, expected)}",
                "each micro-batch needs one F, one B and, unless the B is whole, one W on each chunk of its copy",
            )


def _chunks_of(schedule: Schedule, copy: int) -> range:
    return range(copy * schedule.chunks, (copy + 1) * schedule.chunks)


def _difference(row: tuple[Action, ...], keys: set[_Key], expected: set[_Key]) -> str:
    def first(some: set[_Key]) -> str:
        kind, micro_batch, chunk = min(some)
        return f"{kind} of micro-batch {micro_batch}, chunk {chunk} ({len(some)} in all)"

    if expected - keys:
        return f"misses {first(expected - keys)}"
    if keys - expected:
        return f"has an unexpected {first(keys - expected)}"
    return f"{len(row)} actions for {len(expected)} distinct ones"
