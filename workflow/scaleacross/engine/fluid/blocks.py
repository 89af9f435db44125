"""The ranks of a collective in blocks that share a unit of a level: what has to leave a block bounds its time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .fabric import Fabric


def blocks_of(
    fabric: Fabric, members: NDArray[np.int64] | None, dims: tuple[int, ...]
) -> tuple[tuple[int, float], ...]:
    """(members of a block, rate of a member's ports that lead out of it in bytes per ns), a pair for each level."""
    found = []
    for k, level in enumerate(fabric.levels):
        if members is None:
            inside = math.prod(fabric.shape[d] for d in dims if fabric.level_of[d] < k)
            outside = any(fabric.level_of[d] >= k for d in dims)
        else:
            counts = np.unique(members // level.unit, return_counts=True)[1]
            inside, outside = int(counts[0]), len(counts) > 1 and len(set(counts.tolist())) == 1
        if outside:
            found.append((inside, sum(_rates(fabric, k))))
    return tuple(found)


def _rates(fabric: Fabric, k: int) -> list[float]:
    """Rates of a GPU's ports that lead to level ``k`` or further out; tiers above the node share one NIC."""
    rates = []
    for j in range(k, len(fabric.levels)):
        level = fabric.levels[j]
        lanes = {"Switch": 1, "FullyConnected": level.size - 1, "Ring": 2}[level.topology]
        rates.append(lanes * level.port)
    if not fabric.tiered:
        return rates
    first = rates[:1] if k == 0 else []
    rest = rates[1:] if k == 0 else rates
    return [*first, *([max(rest)] if rest else [])]
