"""One rank's execution trace as columns: a row a node, in the order of the file.

A trace of a few thousand nodes is read, checked, simulated and written as numpy arrays; no object is made per node.
Numbers are those of the Chakra schema: bytes, FLOPs, microseconds. ``-1`` says that an attribute is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Chakra NodeType
INVALID, METADATA, MEM_LOAD, MEM_STORE, COMP, SEND, RECV, COLL = range(8)
NODE_TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")

# Chakra CollectiveCommType, those that a simulator runs
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7
COMM_TYPES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)

ABSENT = -1
INT_COLUMNS = ("num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")

# How one node's attributes were written: (attribute name, oneof member, serialized attribute when no column holds it).
AttributeForm = tuple[tuple[str, str, bytes], ...]

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int8 = NDArray[np.int8]


@dataclass(slots=True)
class NodeExtra:
    """Fields of a node that no simulator reads, kept so that a file read and written again has the same bytes."""

    start_time_micros: int = 0
    inputs: bytes | None = None
    outputs: bytes | None = None


@dataclass(slots=True, eq=False)
class Trace:
    """The nodes of one ``.et`` file, n rows in the file's order.

    Attributes:
        ids: node ids, int64[n].
        types: Chakra NodeType numbers, int8[n].
        names: n names.
        duration_micros: int64[n], 0 when absent.
        is_cpu_op: int8[n]: -1 absent, 0, 1.
        num_ops, tensor_size, comm_type, comm_size, comm_src, comm_dst, comm_tag: int64[n], -1 when absent.
        comm_priority: int64[n], 0 when absent.
        pg: int32[n], index into ``pg_names``; ``pg_names[0]`` is "" (absent).
        involved: int32[n], index into ``involved_sets``; ``involved_sets[0]`` is None (absent).
        data_ptr, data_deps: node ids that row i depends on are ``data_deps[data_ptr[i]:data_ptr[i + 1]]``.
        ctrl_ptr, ctrl_deps: the same for control dependencies.
        form, forms: order and integer kinds of the attributes as read, ``forms[form[i]]``; ``forms[0]`` is None, the
            canonical one.
        extras: row -> fields that no simulator reads.
        metadata: the serialized GlobalMetadata; None is this package's own.
    """

    ids: Int64
    types: Int8
    names: list[str]
    duration_micros: Int64
    is_cpu_op: Int8
    num_ops: Int64
    tensor_size: Int64
    comm_type: Int64
    comm_size: Int64
    comm_src: Int64
    comm_dst: Int64
    comm_tag: Int64
    comm_priority: Int64
    pg: Int32
    pg_names: list[str]
    involved: Int32
    involved_sets: list[tuple[bool, ...] | None]
    data_ptr: Int64
    data_deps: Int64
    ctrl_ptr: Int64
    ctrl_deps: Int64
    form: Int32
    forms: list[AttributeForm | None] = field(default_factory=lambda: [None])
    extras: dict[int, NodeExtra] = field(default_factory=dict)
    metadata: bytes | None = None

    def __len__(self) -> int:
        return len(self.names)

    def axis(self, row: int) -> str:
        """``tp``, ``cp``, ``ep``, ``pp`` or ``dp`` when the node's name starts with it and a dot, else ``other``."""
        head = self.names[row].partition(".")[0]
        return head if head in AXES else "other"

    def nodes_equal(self, other: Trace) -> bool:
        """True when both hold the same nodes in the same order, whatever the attributes' order in the file was."""
        arrays = ("ids", "types", "duration_micros", "is_cpu_op", *INT_COLUMNS, "comm_priority", *DEPENDENCIES)
        return (
            self.names == other.names
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays)
            and [self.pg_names[i] for i in self.pg.tolist()] == [other.pg_names[i] for i in other.pg.tolist()]
            and [self.involved_sets[i] for i in self.involved.tolist()]
            == [other.involved_sets[i] for i in other.involved.tolist()]
        )


AXES = ("tp", "cp", "ep", "pp", "dp")
DEPENDENCIES = ("data_ptr", "data_deps", "ctrl_ptr", "ctrl_deps")


class TraceBuilder:
    """Collects nodes with ids 0, 1, 2 ... in the order of the calls; ``build`` makes the columns once.

    ``rank`` is the rank whose trace this is: it becomes the source of its sends and the destination of its receives.
    Without it those attributes are left out and a simulator takes the rank that runs the trace.
    """

    def __init__(self, rank: int = ABSENT) -> None:
        self.rank = rank
        self._rows: list[tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]] = []
        self._names: list[str] = []
        self._data: list[Sequence[int]] = []
        self._ctrl: list[Sequence[int]] = []
        self._pgs: dict[str, int] = {"": 0}
        self._involved: dict[tuple[bool, ...] | None, int] = {None: 0}

    def __len__(self) -> int:
        return len(self._rows)

    def compute(
        self,
        name: str,
        num_ops: int,
        tensor_size: int,
        deps: Sequence[int] = (),
        ctrl: Sequence[int] = (),
        duration_micros: int = 0,
        cpu: bool = False,
    ) -> int:
        """A compute node: ``num_ops`` FLOPs over ``tensor_size`` bytes, or ``duration_micros`` without roofline."""
        row = (COMP, duration_micros, int(cpu), num_ops, tensor_size, -1, -1, -1, -1, -1, 0, 0, 0)
        return self._add(name, row, deps, ctrl)

    def collective(
        self,
        name: str,
        comm_type: int,
        size: int,
        deps: Sequence[int] = (),
        ctrl: Sequence[int] = (),
        involved: Iterable[bool] | None = None,
        pg: str | int = "",
        priority: int = 0,
        duration_micros: int = 0,
    ) -> int:
        """A collective of ``size`` bytes (all-gather: one rank's shard; the others: the whole buffer).

        ``involved`` has a bool per network dimension; ``pg`` is a communicator id of comm_groups.json: one or neither.
        """
        if involved is not None and pg != "":
            raise ValueError(f"{name}: involved dimensions and a communicator group exclude each other")
        dims = None if involved is None else tuple(bool(dim) for dim in involved)
        group = self._pgs.setdefault(str(pg), len(self._pgs))
        involved_index = self._involved.setdefault(dims, len(self._involved))
        row = (COLL, duration_micros, 0, -1, -1, comm_type, size, -1, -1, -1, priority, group, involved_index)
        return self._add(name, row, deps, ctrl)

    def send(
        self, name: str, peer: int, size: int, tag: int, deps: Sequence[int] = (), ctrl: Sequence[int] = ()
    ) -> int:
        """Send ``size`` bytes to rank ``peer``; the receive there has the same size and tag."""
        return self._add(name, (SEND, 0, 0, -1, -1, -1, size, self.rank, peer, tag, 0, 0, 0), deps, ctrl)

    def recv(
        self, name: str, peer: int, size: int, tag: int, deps: Sequence[int] = (), ctrl: Sequence[int] = ()
    ) -> int:
        """Receive ``size`` bytes from rank ``peer``."""
        return self._add(name, (RECV, 0, 0, -1, -1, -1, size, peer, self.rank, tag, 0, 0, 0), deps, ctrl)

    def memory(
        self, name: str, tensor_size: int, store: bool, deps: Sequence[int] = (), ctrl: Sequence[int] = ()
    ) -> int:
        """Load ``tensor_size`` bytes from remote memory, or store them there."""
        row = (MEM_STORE if store else MEM_LOAD, 0, 0, -1, tensor_size, -1, -1, -1, -1, -1, 0, 0, 0)
        return self._add(name, row, deps, ctrl)

    def depend(self, node: int, deps: Sequence[int] = (), ctrl: Sequence[int] = ()) -> None:
        """Add dependencies to a node made before."""
        if deps:
            self._data[node] = (*self._data[node], *deps)
        if ctrl:
            self._ctrl[node] = (*self._ctrl[node], *ctrl)

    def build(self) -> Trace:
        """The columns of every node added so far."""
        count = len(self._rows)
        table = np.array(self._rows, dtype=np.int64).reshape(count, 13)
        columns = [np.ascontiguousarray(column) for column in table.T]
        data_ptr, data_deps = pack_dependencies(self._data)
        ctrl_ptr, ctrl_deps = pack_dependencies(self._ctrl)
        return Trace(
            ids=np.arange(count, dtype=np.int64),
            types=columns[0].astype(np.int8),
            names=list(self._names),
            duration_micros=columns[1],
            is_cpu_op=columns[2].astype(np.int8),
            num_ops=columns[3],
            tensor_size=columns[4],
            comm_type=columns[5],
            comm_size=columns[6],
            comm_src=columns[7],
            comm_dst=columns[8],
            comm_tag=columns[9],
            comm_priority=columns[10],
            pg=columns[11].astype(np.int32),
            pg_names=list(self._pgs),
            involved=columns[12].astype(np.int32),
            involved_sets=list(self._involved),
            data_ptr=data_ptr,
            data_deps=data_deps,
            ctrl_ptr=ctrl_ptr,
            ctrl_deps=ctrl_deps,
            form=np.zeros(count, dtype=np.int32),
        )

    def _add(
        self,
        name: str,
        row: tuple[int, int, int, int, int, int, int, int, int, int, int, int, int],
        deps: Sequence[int],
        ctrl: Sequence[int],
    ) -> int:
        node = len(self._rows)
        self._rows.append(row)
        self._names.append(name)
        self._data.append(deps)
        self._ctrl.append(ctrl)
        return node


def pack_dependencies(lists: Sequence[Sequence[int]]) -> tuple[Int64, Int64]:
    """Lists of node ids as (pointers int64[n + 1], ids int64[...])."""
    pointers = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)), out=pointers[1:])
    flat = np.fromiter((node for deps in lists for node in deps), dtype=np.int64, count=int(pointers[-1]))
    return pointers, flat
