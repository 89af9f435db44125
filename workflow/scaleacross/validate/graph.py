"""Order inside one trace: cycles, the order in which nodes are issued, and which orders are certain."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..trace.columns import Trace
from .table import NodeTable

_BITSET_NODES = 20_000  # ancestor sets take n^2 / 8 bytes


class TraceGraph:
    """Dependencies of one trace by row number. Dependencies on unknown nodes are left out."""

    def __init__(self, trace: Trace) -> None:
        self.ids: list[int] = trace.ids.tolist()
        row_of = {node: row for row, node in enumerate(self.ids)}
        self.parents: list[list[int]] = [[] for _ in self.ids]
        for pointers, nodes in ((trace.data_ptr, trace.data_deps), (trace.ctrl_ptr, trace.ctrl_deps)):
            cuts, deps = pointers.tolist(), nodes.tolist()
            for row, parents in enumerate(self.parents):
                for node in deps[cuts[row] : cuts[row + 1]]:
                    if node in row_of:
                        parents.append(row_of[node])

    def order(self) -> list[int]:
        """Rows in the order of issue when nothing takes time: ready ones by ascending id; without those in a cycle."""
        children: list[list[int]] = [[] for _ in self.ids]
        waiting = [0] * len(self.ids)
        for child, parents in enumerate(self.parents):
            for parent in set(parents):
                children[parent].append(child)
                waiting[child] += 1
        ready = [(self.ids[row], row) for row, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, row = heapq.heappop(ready)
            order.append(row)
            for child in children[row]:
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, (self.ids[child], child))
        return order

    def cycle(self) -> list[int]:
        """Rows of one dependency cycle, each depending on the next; empty when there is none."""
        stuck = set(range(len(self.ids))) - set(self.order())
        return walk_cycle(min(stuck), lambda row: next(p for p in self.parents[row] if p in stuck)) if stuck else []

    def ancestors(self, order: list[int]) -> list[int] | None:
        """Per row the set of rows that must have finished before, as the bits of an integer; None for huge traces."""
        if len(self.ids) > _BITSET_NODES:
            return None
        bits = [0] * len(self.ids)
        for row in order:
            mine = 0
            for parent in self.parents[row]:
                mine |= bits[parent] | 1 << parent
            bits[row] = mine
        return bits


def walk_cycle(start: int, before: Callable[[int], int]) -> list[int]:
    """Follow ``before`` from ``start`` until a row comes again; the rows of that cycle."""
    seen: dict[int, int] = {}
    path: list[int] = []
    row = start
    while row not in seen:
        seen[row] = len(path)
        path.append(row)
        row = before(row)
    return path[seen[row] :]


def surely_before(ancestors: list[int], first: int, second: int, ids: list[int]) -> bool:
    """True when node ``first`` is issued before ``second`` whatever the timing.

    Either it is an ancestor, or whatever it waits for ``second`` waits for too and its id is lower: among ready nodes
    of one slot the lowest id goes first.
    """
    if ancestors[second] >> first & 1:
        return True
    return not ancestors[first] & ~ancestors[second] and ids[first] < ids[second]


class Orders:
    """Which nodes of one communication slot surely go in which order; traces of the same shape are looked at once."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._keys: dict[int, int] = {}
        self._known: dict[bytes, int] = {}
        self._graphs: dict[int, tuple[TraceGraph, list[int], list[int] | None]] = {}
        self._sure: dict[tuple[int, bytes], bool] = {}

    def shape(self, trace: int) -> int:
        """A number that is equal for traces with the same nodes and dependencies."""
        if trace not in self._keys:
            self._keys[trace] = self._known.setdefault(structure_key(self.table.traces[trace]), len(self._known))
        return self._keys[trace]

    def graph(self, trace: int) -> tuple[TraceGraph, list[int], list[int] | None]:
        """The trace's dependencies, its order of issue, and the ancestors of each row (None for huge traces)."""
        shape = self.shape(trace)
        if shape not in self._graphs:
            graph = TraceGraph(self.table.traces[trace])
            order = graph.order()
            self._graphs[shape] = (graph, order, graph.ancestors(order))
        return self._graphs[shape]

    def sure(self, rows: NDArray[np.int64]) -> bool:
        """True when these rows of the table, all of one trace, are issued in this order whatever the timing."""
        trace = int(self.table.owner[rows[0]])
        relative = rows - self.table.start[trace]
        key = (self.shape(trace), relative.tobytes())
        if key not in self._sure:
            graph, _, ancestors = self.graph(trace)
            self._sure[key] = ancestors is not None and all(
                surely_before(ancestors, first, second, graph.ids) for first, second in pairwise(relative.tolist())
            )
        return self._sure[key]


def issue_order(table: NodeTable, trace: int) -> list[int]:
    """Rows (of the table) of a trace in the order of issue when nothing takes time."""
    first, last = int(table.start[trace]), int(table.start[trace + 1])
    if table.ascending[trace]:
        return list(range(first, last))
    return [first + row for row in TraceGraph(table.traces[trace]).order()]


def structure_key(trace: Trace) -> bytes:
    """Equal for traces whose nodes and dependencies have the same shape, whatever their sizes, peers and groups."""
    arrays = (trace.ids, trace.types, trace.data_ptr, trace.data_deps, trace.ctrl_ptr, trace.ctrl_deps)
    return b"|".join(np.ascontiguousarray(array).tobytes() for array in arrays)
