"""Collective algorithms message by message: for the traces that are handed to ASTRA-sim, and to check the counts.

A buffer is cut into ``parts`` equal blocks; a message carries some of them. An all-gather is a tree a block, from its
owner to everybody; a reduce-scatter is the same trees backwards in time, with sums; an all-reduce is the second and
then the first. Only the double binary tree is an all-reduce of its own. Members are positions 0 .. n - 1 of a group in
ring order; over several dimensions they are numbered in mixed radix, dimension 0 fastest, as ASTRA-sim numbers ranks.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, IJHPCA 19(1), 2005 (ring, recursive doubling and halving); PAT: arXiv
2506.20252 (Bruck's algorithm with the far distances first); double binary tree: P. Sanders, J. Speck, J. L. Träff,
Parallel Computing 35(12), 2009, in NCCL's shape (a rank's lowest set bit is its level).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import Infeasible, InvalidInput, did_you_mean

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


@dataclass(frozen=True, slots=True)
class Message:
    """``blocks`` from one position to another; ``adds`` where the receiver sums instead of storing."""

    source: int
    target: int
    blocks: tuple[int, ...]
    adds: bool = False


Step = list[Message]


@dataclass(frozen=True)
class MessageSchedule:
    """Messages of each step. A position sends in a step what it holds after the steps before.

    Attributes:
        members: positions in the group. parts: equal blocks of the buffer.
    """

    algorithm: str
    collective: str
    members: int
    parts: int
    steps: tuple[tuple[Message, ...], ...]


def make_schedule(
    algorithm: str, collective: str, sizes: Sequence[int], aggregation: int = 0, inner: str = "ring"
) -> MessageSchedule:
    """The messages of a collective.

    Args:
        algorithm: a name of :data:`scaleacross.astra.algorithms.traffic.NAMES`.
        collective: all-gather, reduce-scatter, all-reduce or (direct only) all-to-all.
        sizes: members along each dimension, innermost first; flat algorithms see their product as one dimension.
        aggregation: of ``pat``: blocks a message may hold, 0 without limit.
        inner: of ``hierarchical``: the algorithm within a dimension (the outermost takes halving-doubling if it can).

    Raises:
        InvalidInput: E-COLLECTIVE for an unknown name; Infeasible E-HALVING off powers of two, E-COLLECTIVE where the
            algorithm has no such collective.
    """
    check_supported(algorithm, collective)
    members = math.prod(sizes)
    if algorithm == "double-binary-tree":
        return MessageSchedule(algorithm, collective, members, 2, tuple(map(tuple, _tree_steps(members))))
    if collective == "all-to-all":
        pairs = [Message(s, t, (s * members + t,)) for s in range(members) for t in range(members) if s != t]
        return MessageSchedule(algorithm, collective, members, members * members, (tuple(pairs),))
    if algorithm == "hierarchical":
        gather = _gather_by_dimension(sizes, across_dimensions(sizes, inner), aggregation)
    else:
        gather = _gather(algorithm, members, aggregation)
    steps = {
        "all-gather": gather,
        "reduce-scatter": _backwards(gather),
        "all-reduce": [*_backwards(gather), *gather],
    }[collective]
    return MessageSchedule(algorithm, collective, members, members, tuple(map(tuple, steps)))


def check_supported(algorithm: str, collective: str) -> None:
    """Refuse an unknown algorithm or collective, and a pair that does not exist; raises as :func:`make_schedule`."""
    known = (*GATHERS, "hierarchical", "double-binary-tree")
    if algorithm not in known:
        raise InvalidInput("E-COLLECTIVE", f"no algorithm '{algorithm}'", did_you_mean(algorithm, known))
    if collective not in COLLECTIVES:
        raise InvalidInput("E-COLLECTIVE", f"no collective '{collective}'", did_you_mean(collective, COLLECTIVES))
    if collective == "all-to-all" and algorithm != "direct":
        raise Infeasible("E-COLLECTIVE", f"{algorithm} is no all-to-all", "use direct for all-to-all")
    if algorithm == "double-binary-tree" and collective != "all-reduce":
        raise Infeasible("E-COLLECTIVE", f"a double binary tree is no {collective}", "use it for all-reduce only")


def across_dimensions(sizes: Sequence[int], inner: str) -> list[str]:
    """Algorithm of each dimension of a hierarchical collective: ``inner``, and log steps across the outermost."""
    last = "halving-doubling-farthest" if _power_of_two(sizes[-1]) else "ring"
    return [*([inner] * (len(sizes) - 1)), last]


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def check_halving(members: int) -> None:
    """Infeasible E-HALVING unless ``members`` is a power of two."""
    if not _power_of_two(members):
        nearest = 2 ** round(math.log2(members))
        clash, fix = f"halving-doubling over {members} members, no power of two", f"use ring or pat, or {nearest}"
        raise Infeasible("E-HALVING", clash, fix, abs(members - nearest) / members)


def _ring(members: int, aggregation: int) -> list[Step]:  # noqa: ARG001
    return [
        [Message(r, (r + 1) % members, ((r - step) % members,)) for r in range(members)] for step in range(members - 1)
    ]


def _direct(members: int, aggregation: int) -> list[Step]:  # noqa: ARG001
    return [[Message(s, t, (s,)) for s in range(members) for t in range(members) if s != t]] if members > 1 else []


def _doubling(members: int, farthest: bool) -> list[Step]:
    check_halving(members)
    distances = [2**k for k in range(members.bit_length() - 1)]
    held: list[tuple[int, ...]] = [(r,) for r in range(members)]
    steps = []
    for distance in reversed(distances) if farthest else distances:
        steps.append([Message(r, r ^ distance, held[r]) for r in range(members)])
        held = [tuple(sorted((*held[r], *held[r ^ distance]))) for r in range(members)]
    return steps


def _nearest(members: int, aggregation: int) -> list[Step]:  # noqa: ARG001
    return _doubling(members, farthest=False)


def _farthest(members: int, aggregation: int) -> list[Step]:  # noqa: ARG001
    return _doubling(members, farthest=True)


def pat_distances(members: int) -> list[int]:
    """Distances of PAT's rounds: powers of two below the number of members, far ones first."""
    return [2**k for k in reversed(range(max(0, (members - 1).bit_length())))]


def _pat(members: int, aggregation: int) -> list[Step]:
    """Block at offset o (owner = position - o) goes on by d where o is a multiple of 2 d and o + d < members."""
    steps: list[Step] = []
    for distance in pat_distances(members):
        offsets = [o for o in range(0, members, 2 * distance) if o + distance < members]
        limit = aggregation or len(offsets)
        for first in range(0, len(offsets), limit):
            part = offsets[first : first + limit]
            steps.append(
                [Message(r, (r + distance) % members, tuple((r - o) % members for o in part)) for r in range(members)]
            )
    return steps


GATHERS = {
    "ring": _ring,
    "direct": _direct,
    "halving-doubling-nearest": _nearest,
    "halving-doubling-farthest": _farthest,
    "pat": _pat,
}


def _gather(algorithm: str, members: int, aggregation: int) -> list[Step]:
    return GATHERS[algorithm](members, aggregation)


def _gather_by_dimension(sizes: Sequence[int], algorithms: Sequence[str], aggregation: int) -> list[Step]:
    """All-gather the outermost dimension first, as ASTRA-sim does: what crosses the cut is one block a member."""
    members = math.prod(sizes)
    held: list[tuple[int, ...]] = [(r,) for r in range(members)]
    steps: list[Step] = []
    for dim in reversed(range(len(sizes))):
        stride, size = math.prod(sizes[:dim]), sizes[dim]
        lines = [
            [r + k * stride for k in range(size)] for r in range(members) if r // stride % size == 0
        ]  # positions that differ in this dimension alone
        for step in _gather(algorithms[dim], size, aggregation):
            steps.append(
                [
                    Message(line[m.source], line[m.target], tuple(b for k in m.blocks for b in held[line[k]]))
                    for line in lines
                    for m in step
                ]
            )
        gathered = list(held)
        for line in lines:
            whole = tuple(sorted(b for r in line for b in held[r]))
            for r in line:
                gathered[r] = whole
        held = gathered
    return steps


def _backwards(steps: Sequence[Step]) -> list[Step]:
    return [[Message(m.target, m.source, m.blocks, adds=True) for m in step] for step in reversed(steps)]


def tree_parents(members: int) -> tuple[list[int], list[int]]:
    """Parent of each position in both trees, -1 at the root.

    First tree: position r > 0 has the level of its lowest set bit; odd positions are leaves. Second tree: the first one
    mirrored (even counts) or moved by one (odd counts), so that whoever is inside one is a leaf of the other.
    """
    first = [-1] * members
    for r in range(1, members):
        bit = r & -r
        up = (r ^ bit) | (bit << 1)
        first[r] = up if up < members else r ^ bit

    def renamed(r: int) -> int:
        return members - 1 - r if members % 2 == 0 else (r + 1) % members

    second = [-1] * members
    for r, parent in enumerate(first):
        second[renamed(r)] = renamed(parent) if parent >= 0 else -1
    return first, second


def tree_depths(parents: Sequence[int]) -> list[int]:
    """Steps from each position up to the root."""
    depths = []
    for start in range(len(parents)):
        depth, r = 0, start
        while parents[r] >= 0:
            depth, r = depth + 1, parents[r]
        depths.append(depth)
    return depths


def _tree_steps(members: int) -> list[Step]:
    """Half of the buffer up and down each tree: a level a step, the deepest first."""
    trees = tree_parents(members)
    depths = [tree_depths(parents) for parents in trees]
    deepest = max(max(depth) for depth in depths)
    up: list[Step] = []
    for level in range(deepest, 0, -1):
        up.append(
            [
                Message(r, parents[r], (half,), adds=True)
                for half, (parents, depth) in enumerate(zip(trees, depths, strict=True))
                for r in range(members)
                if depth[r] == level
            ]
        )
    down = [[Message(m.target, m.source, m.blocks) for m in step] for step in reversed(up)]
    return [*up, *down]
