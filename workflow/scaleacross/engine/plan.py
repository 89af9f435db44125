"""How a collective is carried out: its chunks, and the phases of a chunk.

Rules, as observed in the reference: a collective is cut into ``preferred-dataset-splits`` chunks of ``size //
splits`` bytes, raised to the number of NPUs (and the collective with it) when smaller, except for an all-gather; what
is left over is one more chunk of full size. Over the whole world a chunk has one phase a dimension: all-gather from
the last to the first, the others from the first to the last; an all-reduce under ``localBWAware`` is a reduce-scatter
up the dimensions, an all-reduce in the last and an all-gather back down, under ``baseline`` an all-reduce in each. A
phase hands on its final size. A group
smaller than the world has one phase: the algorithm if the list has one entry, else a ring.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from ..astra.collectives import COLLECTIVE_KEYS, Implementation
from ..errors import InvalidInput
from ..trace.columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from .kernel import layout
from .settings import Config

CODES = {
    "ring": layout.RING,
    "direct": layout.DIRECT,
    "halvingDoubling": layout.HALVING,
    "doubleBinaryTree": layout.TREE,
}
FAMILY = {ALL_REDUCE: 0, ALL_GATHER: 1, ALL_TO_ALL: 2, REDUCE_SCATTER: 3}
RING_ONLY = (Implementation("ring"),)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a chunk, as every member sees it.

    Attributes:
        algorithm: RING, DIRECT, HALVING, TREE or CUSTOM of the kernel.
        comm_type: Chakra collective type.
        nodes: ranks that take part. window: packets in flight. steps: messages that a rank sends.
        size: bytes of a message (a tree: of the buffer; halving-doubling: see ``table``).
        processed: insertions with local work in a round.
        dimension: network dimension, -1 for a group. stride: rank distance of neighbours.
        level: dimension whose queues it takes. allocator: 0 all queues, 1 first half, 2 second half.
        table: halving-doubling: (offset, bytes) of each packet.
    """

    algorithm: int
    comm_type: int
    nodes: int
    window: int
    steps: int
    size: int
    processed: int
    dimension: int
    stride: int
    level: int
    allocator: int
    family: int
    table: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    def sent(self) -> int:
        """Bytes that a rank sends in the phase (of a tree: on average, rounded down)."""
        if self.algorithm == layout.TREE:
            return 2 * (self.nodes - 1) * self.size // self.nodes
        if self.algorithm == layout.HALVING:
            return sum(size for _, size in self.table[: self.steps])
        return self.steps * self.size


@dataclass(frozen=True, slots=True)
class Plan:
    """``chunks`` streams, each through ``phases``. ``dims``: network dimensions that take part (none for a group)."""

    chunks: int
    phases: tuple[Phase, ...]
    dims: tuple[int, ...]


def chunk_plan(config: Config, comm_type: int, size: int) -> tuple[int, int]:
    """Number of chunks and bytes of each.

    Raises:
        InvalidInput: E-COLL-SIZE when an all-gather has fewer bytes than chunks (the reference does not return).
    """
    splits = config.system.preferred_dataset_splits
    chunk = size // splits
    if comm_type != ALL_GATHER and config.npus > chunk:
        chunk = config.npus
        size = splits * chunk
    if chunk == 0:
        clash = f"an all-gather of {size} bytes in {splits} chunks"
        raise InvalidInput("E-COLL-SIZE", clash, "give it at least a byte a chunk")
    return -(-size // chunk), chunk


def implementations(config: Config, comm_type: int) -> tuple[Implementation, ...]:
    """The system file's list for a collective type.

    Raises:
        InvalidInput: E-COLL-IMPL when there is none.
    """
    try:
        return config.system.implementations[comm_type]
    except KeyError:
        stem = COLLECTIVE_KEYS[comm_type]
        fix = f'add "{stem}-implementation", with an algorithm a dimension'
        raise InvalidInput("E-COLL-IMPL", f"the system file says nothing of {stem}", fix) from None


def world_plan(config: Config, comm_type: int, size: int, involved: tuple[bool, ...] | None) -> Plan:
    """A collective over whole dimensions.

    Raises:
        InvalidInput: E-COLL-IMPL (as many entries as dimensions, or a single one*), E-COLL-SIZE, E-COLL-TYPE,
        E-COLL-DIMS.
    """
    listed = implementations(config, comm_type)
    stem = COLLECTIVE_KEYS[comm_type]
    dims = config.network.dimensions
    ones = [k for k, entry in enumerate(listed) if entry.one]
    if ones and (ones != [0] or len(listed) > 1):
        raise InvalidInput("E-COLL-IMPL", f"{stem}-implementation mixes a one* algorithm with others", "write it alone")
    if not ones and len(listed) != dims:
        clash = f"{stem}-implementation has {len(listed)} entries for {dims} dimensions"
        raise InvalidInput("E-COLL-IMPL", clash, "write one entry a dimension")
    if involved is not None and len(involved) < dims:
        clash = f"involved_dim has {len(involved)} entries for {dims} dimensions"
        raise InvalidInput("E-COLL-DIMS", clash, "write one entry a dimension")
    chunks, chunk = chunk_plan(config, comm_type, size)
    if ones:
        if involved is not None and not involved[0]:
            return Plan(chunks, (), ())
        spaces = [(0, listed[0], config.npus, 1)]
    else:
        sizes = config.network.npus_count
        spaces = [(d, listed[d], sizes[d], config.strides[d]) for d in range(dims) if involved is None or involved[d]]
    family = FAMILY[comm_type]
    if comm_type != ALL_REDUCE or config.system.collective_optimization == "baseline":
        walk = [(space, comm_type, 0) for space in (reversed(spaces) if comm_type == ALL_GATHER else spaces)]
    else:
        up = [(space, REDUCE_SCATTER, 1) for space in spaces[:-1]]
        down = [(space, ALL_GATHER, 2) for space in reversed(spaces[:-1])]
        walk = [*up, *((space, ALL_REDUCE, 1) for space in spaces[-1:]), *down]
    phases = []
    for (level, implementation, nodes, stride), kind, allocator in walk:
        phase, chunk = make_phase(implementation, kind, chunk, nodes, stride, level, allocator, family)
        phases.append(phase)
    return Plan(chunks, tuple(phases), tuple(range(dims)) if ones else tuple(space[0] for space in spaces))


def group_plan(config: Config, comm_type: int, size: int, nodes: int) -> Plan:
    """A collective of a group smaller than the world.

    Raises:
        InvalidInput: E-COLL-IMPL, E-COLL-SIZE, E-COLL-TYPE.
    """
    listed = implementations(config, comm_type)
    implementation = listed[0] if len(listed) == 1 else RING_ONLY[0]
    if implementation.algorithm == "doubleBinaryTree":
        clash = f"a group of {nodes} of {config.npus} NPUs has no double binary tree"
        raise InvalidInput("E-COLL-IMPL", clash, "use ring, direct or halvingDoubling for groups")
    chunks, chunk = chunk_plan(config, comm_type, size)
    half = int(comm_type == ALL_REDUCE and config.system.collective_optimization != "baseline")
    phase, _ = make_phase(implementation, comm_type, chunk, nodes, 0, 0, half, FAMILY[comm_type], group=True)
    return Plan(chunks, (phase,), ())


def custom_plan() -> Plan:
    """A collective whose algorithm is a Chakra trace: one stream, one phase."""
    return Plan(1, (Phase(layout.CUSTOM, 0, 1, 0, 0, 1, 0, -1, 0, 0, 0, 0),), ())


def make_phase(
    implementation: Implementation,
    comm_type: int,
    data: int,
    nodes: int,
    stride: int,
    level: int,
    allocator: int,
    family: int,
    group: bool = False,
) -> tuple[Phase, int]:
    """A phase on ``data`` bytes, and the bytes that it leaves.

    Raises:
        InvalidInput: E-COLL-TYPE (halving-doubling cannot do it), E-COLL-TREE (a tree needs a power of two).
    """
    final = {ALL_GATHER: data * nodes, REDUCE_SCATTER: data // nodes}.get(comm_type, data)
    part = data if comm_type == ALL_GATHER else data // nodes
    code = CODES[implementation.algorithm]
    dimension = -1 if group else level
    table: tuple[tuple[int, int], ...] = ()
    if code == layout.RING:
        window = 1
        steps = {ALL_REDUCE: 2 * (nodes - 1), ALL_TO_ALL: nodes * (nodes - 1) // 2}.get(comm_type, nodes - 1)
        processed = nodes - 1
    elif code == layout.DIRECT:
        window = nodes - 1 if implementation.window < 0 else min(implementation.window, nodes - 1)
        steps = 2 * (nodes - 1) if comm_type == ALL_REDUCE else nodes - 1
        processed = (nodes - 1) * window if group else window
    elif code == layout.HALVING:
        if comm_type == ALL_TO_ALL:
            raise InvalidInput("E-COLL-TYPE", "halvingDoubling has no all-to-all", "use ring or direct for it")
        window = 1
        steps = int((2 if comm_type == ALL_REDUCE else 1) * math.log2(nodes))
        processed = int(math.log2(nodes) - 1)
        table = halving_table(comm_type, data, nodes, steps + 2)
        part = table[0][1]
    else:
        if nodes & (nodes - 1):
            clash = f"doubleBinaryTree on {nodes} NPUs"
            raise InvalidInput("E-COLL-TREE", clash, "it needs a power of two (the reference crashes)")
        # Whatever the collective, the tree runs an all-reduce of the data it is given.
        return Phase(code, ALL_REDUCE, nodes, 0, 0, data, 0, dimension, stride, level, allocator, family), data
    phase = Phase(
        code, comm_type, nodes, window, steps, part, processed, dimension, stride, level, allocator, family, table
    )
    return phase, final


def halving_table(comm_type: int, data: int, nodes: int, count: int) -> tuple[tuple[int, int], ...]:
    """(ring offset, bytes) of the packets of halving-doubling, in order of insertion.

    Distances double and sizes halve; an all-reduce turns at the middle. Sizes are truncated to whole bytes at each
    step, also on the way back.
    """
    gather = comm_type == ALL_GATHER
    offset, size, doubling = (nodes // 2, data, False) if gather else (1, data // 2, True)
    table = []
    for _ in range(count):
        table.append((offset, size))
        if doubling:
            offset, size = offset * 2, size // 2
            if offset == nodes and comm_type == ALL_REDUCE:
                doubling = False
                offset, size = offset // 2, size * 2
        else:
            offset, size = offset // 2, size * 2
    return tuple(table)


@cache
def tree_table(nodes: int) -> tuple[int, ...]:
    """Parent, left and right child (-1: none) of each place in the two trees of a double binary tree, flat.

    A complete binary tree of ``nodes - 1`` places hangs under the root as its left child (the first tree, root last)
    or its right child (the second, root first); places are numbered in order. The first collective takes the first
    tree.
    """
    flat: list[int] = []
    for first in (0, 1):
        relatives = [[-1, -1, -1] for _ in range(nodes)]
        root, low = (0, 1) if first else (nodes - 1, 0)
        if nodes > 1:
            top = _subtree(relatives, low, low + nodes - 1, root)
            relatives[root][2 if first else 1] = top
        flat.extend(cell for three in relatives for cell in three)
    return tuple(flat)


def _subtree(relatives: list[list[int]], low: int, high: int, parent: int) -> int:
    """Number the places low .. high - 1 in order; returns the place at the top."""
    middle = (low + high) // 2
    relatives[middle][0] = parent
    if high - low > 1:
        relatives[middle][1] = _subtree(relatives, low, middle, middle)
        relatives[middle][2] = _subtree(relatives, middle + 1, high, middle)
    return middle
