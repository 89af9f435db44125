"""How much each pair of members exchanges under an algorithm, in closed form: groups of thousands in milliseconds.

Equal to the sums over :func:`scaleacross.astra.algorithms.schedules.make_schedule`, which the tests check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .schedules import (
    across_dimensions,
    check_halving,
    check_supported,
    pat_distances,
    tree_depths,
    tree_parents,
)

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Messages by pair of positions.

    Attributes:
        members: positions. parts: equal blocks of the buffer. steps: rounds one after the other.
        source, target: int64[pairs], positions. messages, blocks: int64[pairs], what the first sends the second in all.
    """

    members: int
    parts: int
    steps: int
    source: Int64
    target: Int64
    messages: Int64
    blocks: Int64

    def sent(self) -> Int64:
        """Blocks that each position sends, int64[members]."""
        return np.bincount(self.source, self.blocks, self.members).astype(np.int64)

    def received(self) -> Int64:
        """Blocks that each position receives, int64[members]."""
        return np.bincount(self.target, self.blocks, self.members).astype(np.int64)


def traffic(
    algorithm: str, collective: str, sizes: Sequence[int], aggregation: int = 0, inner: str = "ring"
) -> Traffic:
    """The traffic of a collective; arguments and errors as :func:`make_schedule`."""
    check_supported(algorithm, collective)
    members = math.prod(sizes)
    if algorithm == "double-binary-tree":
        return _tree(members)
    if collective == "all-to-all":
        whole = _direct(members, 0)
        return Traffic(members, members * members, 1, whole.source, whole.target, whole.messages, whole.blocks)
    if algorithm == "hierarchical":
        gather = _by_dimension(sizes, across_dimensions(sizes, inner), aggregation)
    else:
        gather = _GATHERS[algorithm](members, aggregation)
    if collective == "all-gather":
        return gather
    scatter = Traffic(members, gather.parts, gather.steps, gather.target, gather.source, gather.messages, gather.blocks)
    return scatter if collective == "reduce-scatter" else _joined(members, members, [scatter, gather])


def _joined(members: int, parts: int, pieces: Sequence[Traffic]) -> Traffic:
    """One after the other."""
    columns = [
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("source", "target", "messages", "blocks")
    ]
    return Traffic(members, parts, sum(piece.steps for piece in pieces), *columns)


def _shifted(members: int, distance: int, messages: int, blocks: int, steps: int) -> Traffic:
    """Everybody sends ``blocks`` in ``messages`` to the position ``distance`` on."""
    r = np.arange(members, dtype=np.int64)
    full = np.full(members, 1, np.int64)
    return Traffic(members, members, steps, r, (r + distance) % members, full * messages, full * blocks)


def _ring(members: int, aggregation: int) -> Traffic:  # noqa: ARG001
    return _shifted(members, 1, members - 1, members - 1, members - 1)


def _direct(members: int, aggregation: int) -> Traffic:  # noqa: ARG001
    source, target = np.nonzero(~np.eye(members, dtype=bool))
    ones = np.ones(len(source), np.int64)
    return Traffic(members, members, int(members > 1), source.astype(np.int64), target.astype(np.int64), ones, ones)


def _doubling(members: int, farthest: bool) -> Traffic:
    check_halving(members)
    distances = [2**k for k in range(members.bit_length() - 1)]
    r, ones = np.arange(members, dtype=np.int64), np.ones(members, np.int64)
    pieces = [
        Traffic(members, members, 1, r, r ^ distance, ones, ones * 2**step)
        for step, distance in enumerate(reversed(distances) if farthest else distances)
    ]
    return _joined(members, members, pieces) if pieces else _shifted(members, 0, 0, 0, 0)


def _pat(members: int, aggregation: int) -> Traffic:
    pieces = []
    for distance in pat_distances(members):
        blocks = -(-(members - distance) // (2 * distance))
        messages = -(-blocks // aggregation) if aggregation else 1
        pieces.append(_shifted(members, distance, messages, blocks, messages))
    return _joined(members, members, pieces) if pieces else _shifted(members, 0, 0, 0, 0)


_GATHERS: dict[str, Callable[[int, int], Traffic]] = {
    "ring": _ring,
    "direct": _direct,
    "halving-doubling-nearest": lambda members, _: _doubling(members, farthest=False),
    "halving-doubling-farthest": lambda members, _: _doubling(members, farthest=True),
    "pat": _pat,
}
NAMES = (*_GATHERS, "hierarchical", "double-binary-tree")


def _by_dimension(sizes: Sequence[int], algorithms: Sequence[str], aggregation: int) -> Traffic:
    members = math.prod(sizes)
    everybody = np.arange(members, dtype=np.int64)
    held = 1
    pieces = []
    for dim in reversed(range(len(sizes))):
        stride, size = math.prod(sizes[:dim]), sizes[dim]
        line = _GATHERS[algorithms[dim]](size, aggregation)
        bases = everybody[everybody // stride % size == 0]
        source = (bases[:, None] + line.source * stride).ravel()
        target = (bases[:, None] + line.target * stride).ravel()
        copies = len(bases)
        pieces.append(
            Traffic(
                members,
                members,
                line.steps,
                source,
                target,
                np.tile(line.messages, copies),
                np.tile(line.blocks, copies) * held,
            )
        )
        held *= size
    return _joined(members, members, pieces)


def _tree(members: int) -> Traffic:
    sources, targets = [], []
    trees = tree_parents(members)
    for parents in trees:
        children = [r for r in range(members) if parents[r] >= 0]
        sources += children + [parents[r] for r in children]
        targets += [parents[r] for r in children] + children
    ones = np.ones(len(sources), np.int64)
    steps = 2 * max(max(tree_depths(parents)) for parents in trees)
    return Traffic(members, 2, steps, np.array(sources, np.int64), np.array(targets, np.int64), ones, ones)
