"""Gray order of pipeline stages over network dimensions, and how much of a unit's traffic crosses each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def pipeline_shares(sizes: Sequence[int], wraps: bool) -> list[float]:
    """Share of a unit's stages that send across each pipeline dimension, from the stage boundaries (see NetworkDim)."""
    stages = math.prod(sizes)
    digits = [gray_digits(stage, sizes) for stage in range(stages)]
    shares: list[float] = []
    for dim in range(len(sizes)):
        senders: dict[tuple[int, ...], set[int]] = {}
        for stage in range(stages):
            for other in (stage - 1, stage + 1):
                if not wraps and not 0 <= other < stages:
                    continue
                if digits[other % stages][dim] != digits[stage][dim]:
                    senders.setdefault(tuple(digits[stage][dim:]), set()).add(stage)
        unit = math.prod(sizes[:dim])
        shares.append(max((len(members) for members in senders.values()), default=0) / unit)
    return shares


def gray_digits(number: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Reflected mixed-radix Gray code, innermost digit first: successive numbers differ in one digit, by one.

    Where the outermost size is even (or there is one digit), the last and the first number differ in one digit too.
    """
    digits: list[int] = []
    for size in sizes:
        number, digit = divmod(number, size)
        digits.append(size - 1 - digit if number % 2 else digit)
    return tuple(digits)


def gray_number(digits: Sequence[int], sizes: Sequence[int]) -> int:
    """The inverse of ``gray_digits``."""
    number = 0
    for digit, size in zip(reversed(digits), reversed(sizes), strict=True):
        number = number * size + (size - 1 - digit if number % 2 else digit)
    return number


def radix_number(digits: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Mixed-radix value, first digit fastest; works on numbers and on arrays."""
    value, radix = 0, 1
    for digit, size in zip(digits, sizes, strict=True):
        value = value + digit * radix
        radix *= size
    return value
