"""Messages between two ranks: latency, and the ports and uplinks on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .fabric import Fabric, ring_hops
from .flows import IN, OUT, Lane, lanes_of


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a message.

    Attributes:
        latency: ns. dimension: the highest in which the ends differ, which its bytes count for.
        out, into: (level, lane, load) at the sender's and the receiver's ports and uplinks.
        passed: (level, lane, rank, load) at ranks in between, on rings.
    """

    latency: float
    dimension: int
    out: tuple[tuple[int, Lane, float], ...]
    into: tuple[tuple[int, Lane, float], ...]
    passed: tuple[tuple[int, Lane, int, float], ...]


def route(fabric: Fabric, rank: int, peer: int) -> Route:
    """The way from ``rank`` to ``peer``, which differ."""
    steps = fabric.offset(rank, peer)
    differing = [d for d, step in enumerate(steps) if step]
    top = int(fabric.top(rank, peer)) if fabric.sites else fabric.level_of[differing[-1]]
    ends = [top] if fabric.tiered else sorted({fabric.level_of[d] for d in differing})
    out: list[tuple[int, Lane, float]] = []
    into: list[tuple[int, Lane, float]] = []
    passed: list[tuple[int, Lane, int, float]] = []
    latency = 0.0
    for k in ends:
        level = fabric.levels[k]
        moved = [(d, steps[d], fabric.shape[d]) for d in level.dims if steps[d]]
        hops = sum(int(ring_hops(step, size)) for _, step, size in moved) if level.topology == "Ring" else 1
        latency += hops * level.latency
        for lane, _ in lanes_of(level, moved):
            (into if lane == IN else out).append((k, lane, 1.0))
        if level.topology == "Ring":
            passed += _between(fabric, k, rank, moved)
    for k in fabric.chain(top)[:-1] if fabric.tiered else ():
        out.append((k, OUT, 1.0))
        into.append((k, IN, 1.0))
    return Route(latency, differing[-1], tuple(out), tuple(into), tuple(passed))


def _between(
    fabric: Fabric, k: int, rank: int, moved: Sequence[tuple[int, int, int]]
) -> list[tuple[int, Lane, int, float]]:
    """Ring links after the first in each dimension, with the rank that each belongs to."""
    found: list[tuple[int, Lane, int, float]] = []
    for d, step, size in moved:
        sign = 1 if 2 * step <= size else -1
        stride = fabric.strides[d]
        for hop in range(int(ring_hops(step, size))):
            if hop:
                found.append((k, ("ring", d, sign), rank, 1.0))
            at = rank // stride % size
            rank += ((at + sign) % size - at) * stride
    return found


def codes(fabric: Fabric, ranks: np.ndarray, peers: np.ndarray) -> np.ndarray:
    """Steps forward from ranks to peers in all dimensions as one number, int64[n]: equal for translated pairs."""
    total = np.zeros(len(ranks), np.int64)
    for stride, size in zip(fabric.strides, fabric.shape, strict=True):
        total += (peers // stride - ranks // stride) % size * stride
    return total
