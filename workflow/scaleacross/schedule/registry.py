"""Schedules by name. A new one is one decorated function, inside this package or in a user's own module:

>>> from scaleacross.schedule import Schedule, action, looped_positions, register
>>> @register("all-forward-first")
... def all_forward_first(stages: int, micro_batches: int, chunks: int) -> Schedule:
...     row = tuple(action(kind, m) for kind in "FB" for m in range(micro_batches))
...     return Schedule("all-forward-first", stages, micro_batches, 1, (row,) * stages, looped_positions(stages, 1))

It takes ``(stages, micro_batches, chunks)`` and any named parameters with defaults, and raises ``Infeasible`` with the
rule and its values where the schedule doesn't exist. ``build`` finds it by name and checks what it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import Infeasible, InvalidInput, did_you_mean
from .actions import Schedule
from .check import check_complete

Builder = Callable[..., Schedule]

_BUILDERS: dict[str, Builder] = {}


def register(name: str) -> Callable[[Builder], Builder]:
    """Decorator: make a function available as ``build(name, ...)``.

    Raises:
        InvalidInput: E-SCHEDULE if another function already has the name (the same one again, on a reload, is fine).
    """

    def add(builder: Builder) -> Builder:
        known = _BUILDERS.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (builder.__module__, builder.__qualname__):
            raise InvalidInput("E-SCHEDULE", f"schedule {name!r} is already {known.__module__}.{known.__qualname__}")
        _BUILDERS[name] = builder
        return builder

    return add


def names() -> tuple[str, ...]:
    """Every registered schedule, in order of registration."""
    return tuple(_BUILDERS)


def parameters(name: str) -> dict[str, Any]:
    """The named parameters of a schedule beside stages, micro_batches, chunks, with their defaults."""
    declared = list(inspect.signature(_builder(name)).parameters.values())[3:]
    return {item.name: item.default for item in declared}


def build(name: str, stages: int, micro_batches: int, chunks: int = 1, **params: Any) -> Schedule:
    """Build a schedule by name.

    Raises:
        InvalidInput: E-SCHEDULE for an unknown name, parameter, or a count below 1.
        InvalidInput: E-SCHEDULE-INCOMPLETE if the function returned a schedule that leaves work out.
        Infeasible: E-SCHEDULE, the schedule's own rule (Megatron's or the paper's) with its values.
    """
    builder = _builder(name)
    for label, value in (("stages", stages), ("micro_batches", micro_batches), ("chunks", chunks)):
        check_count(label, value)
    known = parameters(name)
    for key in params:
        if key not in known:
            hint = did_you_mean(key, known) if known else "it takes none"
            raise InvalidInput("E-SCHEDULE", f"schedule {name!r} has no parameter {key!r}", hint)
    schedule = builder(stages, micro_batches, chunks, **params)
    check_complete(schedule)
    return schedule


def check_count(label: str, value: object) -> None:
    """Raise InvalidInput E-SCHEDULE unless a value is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput("E-SCHEDULE", f"{label} is {value!r}", "give a whole number of at least 1")


def require(holds: bool, schedule: str, rule: str, fix: str, shortfall: float = 1.0) -> None:
    """Raise Infeasible E-SCHEDULE unless a schedule's rule holds; ``rule`` is the equation with its values."""
    if not holds:
        raise Infeasible("E-SCHEDULE", f"{schedule} needs {rule}", fix, shortfall)


def _builder(name: str) -> Builder:
    if name not in _BUILDERS:
        raise InvalidInput("E-SCHEDULE", f"unknown schedule {name!r}", did_you_mean(name, _BUILDERS))
    return _BUILDERS[name]
