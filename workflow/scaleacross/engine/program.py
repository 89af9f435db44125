"""A trace made ready to run: rows in ascending id, what kind of work each is, who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..trace.columns import (
    AXES,
    BROADCAST,
    COLL,
    COMP,
    MEM_LOAD,
    MEM_STORE,
    METADATA,
    RECV,
    SEND,
    Trace,
)
from .kernel import layout

Int64 = NDArray[np.int64]
AXIS_NAMES = (*AXES, "other")
COMPUTE_AXIS = -1
QUIET_AXIS = -2  # neither compute nor communication


@dataclass(frozen=True, slots=True)
class Call:
    """A collective as a trace writes it."""

    comm_type: int
    size: int
    group: str
    involved: tuple[bool, ...] | None
    priority: int


@dataclass(frozen=True, slots=True)
class Program:
    """A trace's rows in ascending id.

    Attributes:
        order: row in the trace of each row here.
        kind, slot: of :mod:`.kernel.layout`.
        call: index into ``calls``, -1.
        child_ptr, child: rows that wait for a row.
        waits: rows that a row waits for.
        axis: index into AXIS_NAMES, COMPUTE_AXIS or QUIET_AXIS.
    """

    trace: Trace
    order: Int64
    kind: Int64
    slot: Int64
    call: Int64
    calls: tuple[Call, ...]
    child_ptr: Int64
    child: Int64
    waits: Int64
    axis: Int64

    def __len__(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True)
class Structure:
    """What traces share that differ in peers and group numbers only."""

    order: Int64
    kind: Int64
    slot: Int64
    child_ptr: Int64
    child: Int64
    waits: Int64
    axis: Int64


def build_program(trace: Trace, where: str, known: dict[bytes, Structure] | None = None) -> Program:
    """Check a trace and make it ready. ``where``: its name in errors. ``known``: structures made before.

    Raises:
        InvalidInput: E-TRACE-NODES (none), E-TRACE-ID (twice), E-TRACE-DEP (unknown), E-TRACE-COMM (a communication
        node
            without what it needs, on the CPU, or of a collective type that is not simulated).
    """
    known = {} if known is None else known
    key = _structure_key(trace)
    if key not in known:
        known[key] = _structure(trace, where)
    s = known[key]
    call, calls = _calls(trace, s.order, s.kind, where)
    return Program(trace, s.order, s.kind, s.slot, call, calls, s.child_ptr, s.child, s.waits, s.axis)


def _structure_key(trace: Trace) -> bytes:
    digest = blake2b(digest_size=16)
    for column in (
        trace.ids,
        trace.types,
        trace.is_cpu_op,
        trace.comm_type,
        trace.data_ptr,
        trace.data_deps,
        trace.ctrl_ptr,
        trace.ctrl_deps,
        trace.comm_size > 0,
        trace.comm_src >= 0,
        trace.comm_dst >= 0,
        trace.comm_tag >= 0,
    ):
        digest.update(column.tobytes())
    digest.update("\0".join(trace.names).encode())
    return digest.digest()


def _structure(trace: Trace, where: str) -> Structure:
    if len(trace) == 0:
        fix = "an idle rank needs one, for instance a compute node"
        raise InvalidInput("E-TRACE-NODES", f"{where} has no nodes", fix)
    order = np.argsort(trace.ids, kind="stable").astype(np.int64)
    ids = trace.ids[order]
    twice = np.flatnonzero(ids[1:] == ids[:-1])
    if len(twice):
        raise InvalidInput("E-TRACE-ID", f"{where} has node id {ids[twice[0]]} twice", "give each node its own id")
    types = trace.types[order].astype(np.int64)
    kind, slot = _kinds(trace, order, types, where)
    child_ptr, child, waits = _edges(trace, order, ids, where)
    return Structure(order, kind, slot, child_ptr, child, waits, _axes(trace, order, types))


def _kinds(trace: Trace, order: Int64, types: Int64, where: str) -> tuple[Int64, Int64]:
    kind = np.full(len(order), layout.SKIPPED, np.int64)
    kind[types == COMP] = layout.TIMED
    kind[types == COLL] = layout.COLLECTIVE
    kind[types == SEND] = layout.SEND
    kind[types == RECV] = layout.RECEIVE
    kind[(types == MEM_LOAD) | (types == MEM_STORE)] = layout.MEMORY
    comm_type = trace.comm_type[order]
    kind[(types == COLL) & (comm_type == BROADCAST)] = layout.TIMED  # the reference waits for its duration
    kind[types == METADATA] = layout.TIMED
    slot = np.full(len(order), layout.COMM, np.int64)
    slot[types == COMP] = layout.COMPUTE
    slot[types == RECV] = layout.FREE
    slot[types == METADATA] = layout.FREE
    on_cpu = trace.is_cpu_op[order] == 1
    communicates = (types == COLL) | (types == SEND) | (types == RECV)
    _refuse(trace, order, communicates & on_cpu, where, "is a communication on the CPU", "set is_cpu_op to false")
    slot[on_cpu] = layout.CPU
    sizeless = communicates & (kind != layout.TIMED) & (trace.comm_size[order] <= 0)
    _refuse(trace, order, sizeless, where, "has no comm_size above 0", "write its bytes")
    _refuse(trace, order, (types == SEND) & (trace.comm_dst[order] < 0), where, "has no comm_dst", "write the receiver")
    _refuse(trace, order, (types == RECV) & (trace.comm_src[order] < 0), where, "has no comm_src", "write the sender")
    tagless = ((types == SEND) | (types == RECV)) & (trace.comm_tag[order] < 0)
    _refuse(trace, order, tagless, where, "has no comm_tag", "write a tag")
    known = np.isin(comm_type, (0, 2, BROADCAST, 6, 7))
    _refuse(
        trace, order, (types == COLL) & ~known, where, "is of a type that is not simulated", "use type 0, 2, 5, 6 or 7"
    )
    return kind, slot


def _refuse(trace: Trace, order: Int64, bad: NDArray[np.bool_], where: str, what: str, fix: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        row = int(order[rows[0]])
        raise InvalidInput("E-TRACE-COMM", f"{where}: node {trace.ids[row]} ({trace.names[row]!r}) {what}", fix)


def _calls(trace: Trace, order: Int64, kind: Int64, where: str) -> tuple[Int64, tuple[Call, ...]]:
    call = np.full(len(order), -1, np.int64)
    rows = np.flatnonzero(kind == layout.COLLECTIVE)
    at = order[rows]
    columns = (trace.comm_type[at], trace.comm_size[at], trace.pg[at], trace.involved[at], trace.comm_priority[at])
    found: dict[tuple[int, ...], int] = {}
    calls: list[Call] = []
    for row, key in zip(rows.tolist(), zip(*(c.tolist() for c in columns), strict=True), strict=True):
        if key not in found:
            found[key] = len(calls)
            group = trace.pg_names[key[2]]
            if group and not group.isdecimal():
                clash = f"{where}: node {trace.ids[order[row]]} names the group {group!r}"
                raise InvalidInput("E-TRACE-COMM", clash, "pg_name is the group's number in the groups file")
            group = "" if group.lstrip("0") == "" else group.lstrip("0")
            calls.append(Call(key[0], key[1], group, trace.involved_sets[key[3]], key[4]))
        call[row] = found[key]
    return call, tuple(calls)


def _edges(trace: Trace, order: Int64, ids: Int64, where: str) -> tuple[Int64, Int64, Int64]:
    """Children of each row and how many rows each waits for; a dependency named twice counts once."""
    n = len(order)
    counts = np.diff(trace.data_ptr), np.diff(trace.ctrl_ptr)
    rank_of = np.empty(n, np.int64)
    rank_of[order] = np.arange(n)
    children = np.concatenate([np.repeat(rank_of, c) for c in counts])
    parents = np.concatenate([trace.data_deps, trace.ctrl_deps])
    rows = np.searchsorted(ids, parents)
    wrong = np.flatnonzero((rows >= n) | (ids[np.minimum(rows, n - 1)] != parents))
    if len(wrong):
        clash = f"{where}: node {ids[children[wrong[0]]]} depends on node {parents[wrong[0]]}, which does not exist"
        raise InvalidInput("E-TRACE-DEP", clash, "mend the dependency or the trace's end")
    pairs = np.unique(rows * n + children)
    parent, child = pairs // n, pairs % n
    child_ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(parent, minlength=n), out=child_ptr[1:])
    return child_ptr, child, np.bincount(child, minlength=n).astype(np.int64)


def _axes(trace: Trace, order: Int64, types: Int64) -> Int64:
    index = {name: k for k, name in enumerate(AXIS_NAMES)}
    heads = {name: index.get(name.partition(".")[0], index["other"]) for name in set(trace.names)}
    axis = np.array([heads[trace.names[row]] for row in order.tolist()], np.int64)
    axis[types == COMP] = COMPUTE_AXIS
    axis[~np.isin(types, (COMP, COLL, SEND, RECV))] = QUIET_AXIS
    axis[(types == COMP) & (trace.is_cpu_op[order] == 1)] = QUIET_AXIS
    return axis
