"""Which plans and networks a study's constraints leave, for millions of combinations at once.

A constraint reads a few keys, so it is evaluated once for each combination of their values and looked up for all others
(numpy, in blocks): what is kept in memory is the numbers of the plans that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Infeasible
from ..study.design import check
from ..study.plans import derived_names, parallelism_of
from .space import Space

BLOCK = 1 << 18  # combinations looked at together
DEGREES = ("tp", "cp", "pp", "dp", "micro_batch", "global_batch")
Values = Mapping[str, Any]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Check:
    """Something that must hold: ``test`` raises Infeasible for values of ``plan`` and ``network`` keys."""

    text: str
    plan: tuple[str, ...]
    network: tuple[str, ...]
    test: Callable[[Values], None]


@dataclass
class Excluded:
    """Points that something excludes, and why one of them is."""

    points: int = 0
    example: str = ""


class Screen:
    """The constraints of a study in one environment.

    Attributes:
        excluded: what excludes points -> how many, each point counted once; complete when ``blocks`` has run through.
        masks: sets of networks by number; ``masks[0]`` is all of them.
    """

    def __init__(self, space: Space, environment: Values) -> None:
        self.space, self.environment = space, environment
        self.excluded: dict[str, Excluded] = {}
        self.masks: list[NDArray[np.bool_]] = [np.ones(len(space.networks), np.bool_)]
        self._mask_numbers = {self.masks[0].tobytes(): 0}
        self.checks = sorted(self._checks(), key=lambda item: (bool(item.network), self._size(item)))
        self._known: list[dict[int, tuple[int, str]]] = [{} for _ in self.checks]
        self._pairs: dict[tuple[int, int], int] = {}
        self._stride, stride = {}, 1
        for name in reversed(space.plan_names):
            self._stride[name] = stride
            stride *= len(space.plan_lists[name])
        self._first = {name: values[0] for name, values in space.swept.items()}

    def _checks(self) -> Iterator[Check]:
        designer, names = self.space.designer, self.space.plan_names
        for expression in designer.own_constraints:
            yield Check(
                expression.text,
                tuple(name for name in names if name in expression.names),
                tuple(name for name in self.space.network_names if name in expression.names),
                lambda values, expression=expression: check([expression], values),  # type: ignore[misc]
            )
        degrees = {*DEGREES, *designer.cluster_variables}
        yield Check("degrees", tuple(name for name in names if name in degrees), (), self._degrees)
        for expression in designer.constraints:
            wanted = degrees | expression.names
            yield Check(
                expression.text,
                tuple(name for name in names if name in wanted),
                tuple(name for name in self.space.network_names if name in expression.names),
                lambda values, expression=expression: check([expression], self._derived(values)),  # type: ignore[misc]
            )

    def _derived(self, values: Values) -> Values:
        setting = self.space.designer.setting(values)
        return {**derived_names(setting, parallelism_of(values, setting.cluster.gpus)), **values}

    def _degrees(self, values: Values) -> None:
        self._derived(values)

    def _size(self, item: Check) -> int:
        size = 1
        for name in item.plan:
            size *= len(self.space.plan_lists[name])
        return size

    def blocks(self) -> Iterator[tuple[Numbers, Numbers]]:
        """(numbers of plans that are left, number of the mask of their networks), block by block."""
        for start in range(0, self.space.plan_count, BLOCK):
            numbers = np.arange(start, min(start + BLOCK, self.space.plan_count), dtype=np.int64)
            masks = np.zeros(len(numbers), np.int64)
            for place in range(len(self.checks)):
                if len(numbers):
                    numbers, masks = self._apply(place, numbers, masks)
            yield numbers, masks

    def _apply(self, place: int, numbers: Numbers, masks: Numbers) -> tuple[Numbers, Numbers]:
        item = self.checks[place]
        codes, inverse = np.unique(self._codes(item.plan, numbers), return_inverse=True)
        found = [self._evaluated(place, int(code)) for code in codes]
        other = np.array([mask for mask, _ in found], np.int64)[inverse]
        joint = masks * len(self.masks) + other
        kinds, which = np.unique(joint, return_inverse=True)
        count = len(self.masks)
        after = np.array([self._both(*divmod(int(kind), count)) for kind in kinds], np.int64)[which]
        left = np.array([int(mask.sum()) for mask in self.masks], np.int64)
        lost = left[masks] - left[after]
        if lost.any():
            entry = self.excluded.setdefault(item.text, Excluded())
            entry.points += int(lost.sum())
            entry.example = entry.example or found[inverse[int(np.argmax(lost > 0))]][1]
        kept = left[after] > 0
        return numbers[kept], after[kept]

    def _codes(self, names: Sequence[str], numbers: Numbers) -> Numbers:
        """The values of a few keys as one number."""
        codes = np.zeros(len(numbers), np.int64)
        for name in names:
            size = len(self.space.plan_lists[name])
            codes = codes * size + numbers // self._stride[name] % size
        return codes

    def _evaluated(self, place: int, code: int) -> tuple[int, str]:
        """(mask of the networks on which a check holds, why it does not on others)."""
        known, item = self._known[place], self.checks[place]
        if code not in known:
            values, rest = {**self._first, **self.environment}, code
            for name in reversed(item.plan):
                rest, digit = divmod(rest, len(self.space.plan_lists[name]))
                values[name] = self.space.plan_lists[name][digit]
            known[code] = self._on_networks(item, values)
        return known[code]

    def _on_networks(self, item: Check, values: Values) -> tuple[int, str]:
        reason, holds = "", {}
        for combination in product(*(range(len(self.space.swept[name])) for name in item.network)):
            own = {name: self.space.swept[name][digit] for name, digit in zip(item.network, combination, strict=True)}
            try:
                item.test({**values, **own})
                holds[combination] = True
            except Infeasible as error:
                holds[combination], reason = False, str(error)
        if not item.network:
            return (0 if holds[()] else self._number(np.zeros_like(self.masks[0]))), reason
        shape = [len(self.space.swept[name]) for name in self.space.network_names]
        digits = dict(
            zip(self.space.network_names, np.unravel_index(np.arange(len(self.masks[0])), shape), strict=True)
        )
        rows = zip(*(digits[name].tolist() for name in item.network), strict=True)
        return self._number(np.array([holds[row] for row in rows], np.bool_)), reason

    def _both(self, one: int, other: int) -> int:
        if (one, other) not in self._pairs:
            self._pairs[one, other] = self._number(self.masks[one] & self.masks[other])
        return self._pairs[one, other]

    def _number(self, mask: NDArray[np.bool_]) -> int:
        key = mask.tobytes()
        if key not in self._mask_numbers:
            self._mask_numbers[key] = len(self.masks)
            self.masks.append(mask)
        return self._mask_numbers[key]
