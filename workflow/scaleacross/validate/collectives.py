"""Collectives across ranks: the members of a communicator issue the same sequence of (type, size).

A communicator is a group of ``comm_groups.json``, or the ranks that differ only in the dimensions of ``involved_dim``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..trace.columns import BROADCAST, COLL, COMM_TYPES
from .findings import Findings
from .graph import Orders, issue_order
from .table import NodeTable

Int64 = NDArray[np.int64]
Groups = Mapping[int, tuple[int, ...]]
_SHOWN = 20


@dataclass(frozen=True)
class Sequences:
    """Collectives by segment: what one trace issues on one communicator, in the order of issue.

    Attributes:
        table: the nodes.
        npus_count: sizes of the network dimensions.
        groups: communicator id -> ranks.
    """

    table: NodeTable
    npus_count: tuple[int, ...]
    groups: Groups

    @cached_property
    def dimension_sets(self) -> list[tuple[bool, ...]]:
        """The distinct sets of involved dimensions."""
        return list(dict.fromkeys(self._dims(dims) for dims in self.table.involved_sets))

    def _dims(self, dims: tuple[bool, ...] | None) -> tuple[bool, ...]:
        count = len(self.npus_count)
        return (True,) * count if dims is None else (tuple(dims) + (False,) * count)[:count]

    @cached_property
    def family(self) -> dict[int, int]:
        """Communicator id -> number of its family; ids that are in none have their own."""
        numbers = dict(self.table.ranks.family_of)
        count = len(self.table.ranks.group_families)
        for group in self.groups:
            if group not in numbers:
                numbers[group], count = count, count + 1
        return numbers

    @cached_property
    def communicator(self) -> Int64:
        """Of each row: the family of its group, or after the families the number of its dimension set; -1 for none."""
        table = self.table
        families = 1 + max(self.family.values(), default=-1)
        positions = {dims: families + index for index, dims in enumerate(self.dimension_sets)}
        sets = np.array([positions[self._dims(dims)] for dims in table.involved_sets], dtype=np.int64)
        values, codes = np.unique(table.groups, return_inverse=True)
        numbers = np.array([self.family.get(group, -1) for group in values.tolist()], dtype=np.int64)
        result = np.where(table.groups == 0, sets[table.involved], numbers[codes])
        return np.where((table.types == COLL) & (table.comm_type != BROADCAST), result, -1)

    @cached_property
    def orders(self) -> Orders:
        """What is certain about the order of issue."""
        return Orders(self.table)

    @property
    def communicators(self) -> int:
        """Number of communicator numbers: families, then dimension sets."""
        return 1 + max(self.family.values(), default=-1) + len(self.dimension_sets)

    @cached_property
    def segments(self) -> tuple[Int64, Int64, Int64]:
        """Rows by segment in order of issue, starts int64[segments + 1], trace x communicators + communicator."""
        table = self.table
        place = np.arange(len(table))
        for trace in np.flatnonzero(~table.ascending).tolist():
            issued = issue_order(table, trace)
            place[issued] = np.arange(len(issued))
        rows = np.flatnonzero(self.communicator >= 0)
        keys = table.owner[rows] * self.communicators + self.communicator[rows]
        order = np.lexsort((place[rows], keys))
        rows, keys = rows[order], keys[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        return rows, np.append(firsts, len(rows)), keys[firsts]

    def segment(self, index: int) -> Int64:
        """Rows of a segment in the order of issue."""
        rows, start, _ = self.segments
        return rows[start[index] : start[index + 1]]

    @cached_property
    def content(self) -> Int64:
        """Equal for segments with the same sequence of (type, size)."""
        rows, start, _ = self.segments
        known: dict[bytes, int] = {}
        pairs = np.stack([self.table.comm_type[rows], self.table.comm_size[rows]], axis=1)
        cuts = start.tolist()
        keys = (pairs[begin:end].tobytes() for begin, end in pairwise(cuts))
        return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)

    def of_ranks(self, ranks: Int64, communicator: Int64 | int) -> Int64:
        """The segment that each rank issues on a communicator, -1 for none."""
        keys = self.segments[2]
        traces = self.table.class_trace[self.table.ranks.class_of[ranks]]
        wanted = np.where(traces < 0, -1, traces * self.communicators + communicator)
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where(keys[place] == wanted, place, -1) if len(keys) else np.full(len(wanted), -1)

    @cached_property
    def members(self) -> tuple[Int64, Int64, Int64, list[str]]:
        """Every communicator in use: (ranks one after the other, communicator, number of the instance, its names)."""
        ranks, communicators, instances = [], [], []
        names: list[str] = []
        used = set((self.segments[2] % self.communicators).tolist())
        world = self.table.ranks.ranks
        for group, members in self.groups.items():
            inside = np.array([rank for rank in members if rank < world], dtype=np.int64)
            if self.family[group] in used and len(inside):
                ranks.append(inside)
                communicators.append(np.full(len(inside), self.family[group]))
                instances.append(np.full(len(inside), len(names)))
                names.append(f"group {group}")
        first = 1 + max(self.family.values(), default=-1)
        for index, dims in enumerate(self.dimension_sets):
            if first + index in used:
                slices, count = self._slices(dims)
                order = np.argsort(slices, kind="stable")
                ranks.append(order)
                communicators.append(np.full(world, first + index))
                instances.append(slices[order] + len(names))
                names += [f"dimensions {[dim for dim, used in enumerate(dims) if used]}"] * count
        if not ranks:
            empty = np.zeros(0, dtype=np.int64)
            return empty, empty, empty, names
        return np.concatenate(ranks), np.concatenate(communicators), np.concatenate(instances), names

    def _slices(self, dims: tuple[bool, ...]) -> tuple[Int64, int]:
        """The number of each rank's communicator when these dimensions are involved, and how many there are."""
        ranks = np.arange(self.table.ranks.ranks, dtype=np.int64)
        slices, count, stride = np.zeros_like(ranks), 1, 1
        for used, size in zip(dims, self.npus_count, strict=True):
            if not used:
                slices += ranks // stride % size * count
                count *= size
            stride *= size
        return slices, count


def check_sequences(sequences: Sequences, found: Findings) -> bool:
    """Members of each communicator issue equal sequences; returns True when they do, order included."""
    ranks, communicators, instances, names = sequences.members
    if not len(ranks):
        return True
    segments = sequences.of_ranks(ranks, communicators)
    content = np.append(sequences.content, -1)[segments]
    firsts = np.flatnonzero(np.diff(instances, prepend=-1))
    lead = firsts[np.cumsum(np.diff(instances, prepend=-1) != 0) - 1]
    bad = np.flatnonzero(content != content[lead])
    # One finding for each pair of different sequences, not for each rank.
    combos = (segments[lead[bad]] + 1) * (len(sequences.content) + 1) + segments[bad] + 1
    _, first, counts = np.unique(combos, return_index=True, return_counts=True)
    for place, count in sorted(zip(first.tolist(), counts.tolist(), strict=True))[:_SHOWN]:
        row = int(bad[place])
        pair = (int(ranks[lead[row]]), int(ranks[row]))
        both = (int(segments[lead[row]]), int(segments[row]))
        more = f" (and {count - 1} more ranks alike)" if count > 1 else ""
        _explain(sequences, names[int(instances[row])], pair, both, more, found)
    if len(first) > _SHOWN:
        clash = f"{len(first) - _SHOWN} more pairs of ranks whose collectives differ"
        found.error("E-GROUP-MORE", clash, "mend the ones above first")
    return not len(bad)


def _explain(
    sequences: Sequences, where: str, ranks: tuple[int, int], segments: tuple[int, int], more: str, found: Findings
) -> None:
    """The first collective in which two members differ."""
    rows = [sequences.segment(segment).tolist() if segment >= 0 else [] for segment in segments]
    table = sequences.table
    kinds = [[(int(table.comm_type[row]), int(table.comm_size[row])) for row in side] for side in rows]
    place = next(
        (i for i, pair in enumerate(zip(kinds[0], kinds[1], strict=False)) if pair[0] != pair[1]),
        min(map(len, rows)),
    )
    texts = [
        f"rank {rank} issues {_collective(table, side[place]) if place < len(side) else 'nothing more'}"
        for rank, side in zip(ranks, rows, strict=True)
    ]
    clash = f"{where}: as collective {place + 1} {texts[0]}, {texts[1]}{more}"
    if Counter(kinds[0]) != Counter(kinds[1]):
        found.error("E-GROUP-SEQUENCE", clash, "members issue the same types and sizes, or all of them wait forever")
    elif all(sequences.orders.sure(sequences.segment(segment)) for segment in segments):
        found.error("E-GROUP-DISORDER", clash, "the same collectives in another order never finish; use one order")
    else:
        clash += ", if both issue ready nodes by ascending id"
        found.warning("W-GROUP-DISORDER", clash, "timing may bring them into another order; add dependencies")


def _collective(table: NodeTable, row: int) -> str:
    kind = COMM_TYPES[int(table.comm_type[row])] if 0 <= table.comm_type[row] < len(COMM_TYPES) else "?"
    return f"{kind} of {int(table.comm_size[row])} bytes (node {int(table.ids[row])} '{table.name(row)}')"
