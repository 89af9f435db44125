"""Every distinct trace of a workload as one table, so that a check is a few numpy operations, however many ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..trace.columns import COLL, MEM_LOAD, MEM_STORE, RECV, SEND, Trace
from ..trace.ranks import RankMap
from ..trace.workload import Workload

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

_COLUMNS = (
    "ids",
    "types",
    "duration_micros",
    "is_cpu_op",
    "num_ops",
    "tensor_size",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
)


@dataclass(frozen=True)
class NodeTable:
    """Nodes of the distinct traces, one after the other.

    Attributes:
        ranks: the workload's rank map.
        traces: the distinct traces.
        users: per trace the classes that run it.
        start: int64[traces + 1], row of each trace's first node.
        ids ... comm_tag: the columns of :class:`scaleacross.trace.columns.Trace`, one after the other.
    """

    ranks: RankMap
    traces: tuple[Trace, ...]
    users: tuple[tuple[int, ...], ...]
    start: Int64
    ids: Int64
    types: NDArray[np.int8]
    duration_micros: Int64
    is_cpu_op: NDArray[np.int8]
    num_ops: Int64
    tensor_size: Int64
    comm_type: Int64
    comm_size: Int64
    comm_src: Int64
    comm_dst: Int64
    comm_tag: Int64

    @staticmethod
    def build(workload: Workload) -> NodeTable:
        """The table of a workload's readable traces."""
        position: dict[int, int] = {}
        traces: list[Trace] = []
        users: list[list[int]] = []
        for index, trace in enumerate(workload.traces):
            if trace is None:
                continue
            if id(trace) not in position:
                position[id(trace)] = len(traces)
                traces.append(trace)
                users.append([])
            users[position[id(trace)]].append(index)
        start = np.zeros(len(traces) + 1, dtype=np.int64)
        np.cumsum([len(trace) for trace in traces], out=start[1:])
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(trace, name) for trace in traces]) if traces else np.zeros(0, np.int64)
            for name in _COLUMNS
        }
        return NodeTable(workload.ranks, tuple(traces), tuple(map(tuple, users)), start, **columns)

    def __len__(self) -> int:
        return int(self.start[-1])

    @cached_property
    def owner(self) -> Int64:
        """The trace of each row."""
        return np.repeat(np.arange(len(self.traces)), np.diff(self.start))

    @cached_property
    def class_trace(self) -> Int64:
        """The trace of each class, -1 where it could not be read."""
        traces = np.full(len(self.ranks.classes), -1, dtype=np.int64)
        for trace, users in enumerate(self.users):
            traces[list(users)] = trace
        return traces

    @cached_property
    def communicates(self) -> Bool:
        """Rows that are collectives, sends or receives."""
        return np.isin(self.types, (COLL, SEND, RECV))

    @cached_property
    def remote_memory(self) -> Bool:
        """Rows that load from or store to remote memory."""
        return np.isin(self.types, (MEM_LOAD, MEM_STORE))

    def name(self, row: int) -> str:
        """The name of a node."""
        trace = int(self.owner[row])
        return self.traces[trace].names[row - int(self.start[trace])]

    def who(self, trace: int) -> str:
        """``rank 3``, ``ranks 0 (and 7 more)`` or ``class 2 (rank 64 and 63 more)`` for messages."""
        users = self.users[trace]
        entry = self.ranks.classes[users[0]]
        if self.ranks.folded:
            others = len(self.ranks.members(users[0])) - 1
            return f"class {users[0]} (rank {entry.representative}" + (f" and {others} more)" if others else ")")
        return f"rank {entry.representative}" + (f" (and {len(users) - 1} more)" if len(users) > 1 else "")

    def node(self, row: int) -> str:
        """``rank 3 node 17 'dp.rs'``."""
        return f"{self.who(int(self.owner[row]))} node {int(self.ids[row])} '{self.name(row)}'"

    @cached_property
    def groups(self) -> Int64:
        """Communicator id of each row: 0 is all ranks, -1 a name that is not a whole number."""
        return self._mapped("pg", [[_group_id(name) for name in trace.pg_names] for trace in self.traces])

    @cached_property
    def involved_sets(self) -> list[tuple[bool, ...] | None]:
        """The distinct ``involved_dim`` lists of all traces; the first is None (absent)."""
        found: dict[tuple[bool, ...] | None, None] = {None: None}
        for trace in self.traces:
            found.update(dict.fromkeys(trace.involved_sets))
        return list(found)

    @cached_property
    def involved(self) -> Int64:
        """Index into ``involved_sets`` of each row."""
        position = {dims: index for index, dims in enumerate(self.involved_sets)}
        return self._mapped("involved", [[position[dims] for dims in trace.involved_sets] for trace in self.traces])

    def _mapped(self, column: str, values: list[list[int]]) -> Int64:
        parts = [
            np.array(numbers, dtype=np.int64)[getattr(trace, column)]
            for trace, numbers in zip(self.traces, values, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    @cached_property
    def edges(self) -> tuple[Int64, Int64, Bool, Int64]:
        """Dependencies as (row, row it depends on or -1, is a control dependency, node id it depends on)."""
        rows, wanted, control = [], [], []
        for kind in ("data", "ctrl"):
            for start, trace in zip(self.start.tolist(), self.traces, strict=False):
                deps = getattr(trace, f"{kind}_deps")
                if len(deps):
                    counts = np.diff(getattr(trace, f"{kind}_ptr"))
                    rows.append(np.repeat(np.arange(start, start + len(trace)), counts))
                    wanted.append(deps)
                    control.append(np.full(len(deps), kind == "ctrl"))
        if not rows:
            empty = np.zeros(0, dtype=np.int64)
            return empty, empty, np.zeros(0, dtype=bool), empty
        row, node, ctrl = np.concatenate(rows), np.concatenate(wanted), np.concatenate(control)
        return row, self._row_of(self.owner[row], node), ctrl, node

    def _row_of(self, traces: Int64, nodes: Int64) -> Int64:
        """Row of a node id in a trace, -1 where there is none."""
        if self.numbered:
            inside = nodes < np.diff(self.start)[traces]
            return np.where(inside, self.start[traces] + nodes, -1)
        values, codes = np.unique(np.concatenate([self.ids, nodes]), return_inverse=True)
        keys = self.owner * len(values) + codes[: len(self.ids)]
        order = np.argsort(keys, kind="stable")
        wanted = traces * len(values) + codes[len(self.ids) :]
        place = np.minimum(np.searchsorted(keys[order], wanted), max(len(keys) - 1, 0))
        found = keys[order][place] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
        return np.where(found, order[place] if len(keys) else 0, -1)

    @cached_property
    def numbered(self) -> bool:
        """True when every trace's ids are 0, 1, 2 ... in order."""
        return bool(np.array_equal(self.ids, np.arange(len(self)) - self.start[self.owner]))

    @cached_property
    def ascending(self) -> Bool:
        """Per trace: ids ascend in the file and every node depends on lower ids only (then it has no cycle)."""
        good = np.ones(len(self.traces), dtype=bool)
        row, target, _, _ = self.edges
        good[self.owner[row[target >= row]]] = False
        if not self.numbered and len(self) > 1:
            falls = (np.diff(self.ids) <= 0) & (np.diff(self.owner) == 0)
            good[self.owner[1:][falls]] = False
        return good


def _group_id(name: str) -> int:
    if name in ("", "0"):
        return 0
    return int(name) if name.isdecimal() and name.isascii() and len(name) < 10 and int(name) > 0 else -1
