"""The ranks of a collective in blocks that share a unit of a level: what has to leave a block bounds its time."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
            found.append((inside, _rate(fabric, k)))
    return tuple(found)


def _rate(fabric: Fabric, k: int) -> float:
    """Rate of a GPU's ports that lead to level ``k`` or further out, bytes per ns."""
    ports = [level.port for level in fabric.levels]
    own = [lanes(level.topology, level.size, len(level.dims)) * level.port for level in fabric.levels]
    if not fabric.tiered:
        return sum(own[k:])
    return leading_out(ports, own, [level.topology for level in fabric.levels], k)


def lanes(topology: str, size: int, dims: int) -> int:
    """Ports of a GPU into a level: of a Switch one, of FullyConnected one a peer, of a Ring two a dimension."""
    return {"Switch": 1, "FullyConnected": size - 1, "Ring": 2 * dims}[topology]


def leading_out(ports: Sequence[float], own: Sequence[float], topologies: Sequence[str], k: int) -> float:
    """Rate at which a GPU can send over tier ``k`` and all further out.

    Above the innermost tier what goes further out passes a port of every tier on its way: of a Switch the one that its
    own traffic takes, too, of others one beside those to peers.

    Args:
        ports: rate of a port of each tier. own: of all ports to peers of a tier. topologies: of each tier.
    """

    def rate(tier: int) -> float:
        beside = ports[tier] if topologies[tier] != "Switch" and tier + 1 < len(ports) else 0.0
        return own[tier] + beside

    if k == 0:
        return own[0] + (rate(1) if len(ports) > 1 else 0.0)
    return min([rate(k), *ports[1:k]])
