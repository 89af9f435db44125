"""The event loop's memory, filled from the tables; and reading it afterwards.

What a workload decides whatever the network (operators, slots, channels) stands first and is kept, so that the next
network of a study starts from a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import layout as L
from .build import Tables

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Image = tuple[Int64, Float64]  # the first cells of a machine's memory
MOST_KEPT = 300_000  # rows of a workload whose image is kept (200 bytes each)


@dataclass(slots=True)
class Machine:
    """Memory of a run and where its blocks are.

    Attributes:
        m, f: see :mod:`.layout`.
        at: first address of each block. tables: what they were made from.
    """

    m: Int64
    f: Float64
    at: dict[str, int]
    tables: Tables

    def whole(self, block: str, cell: int) -> Int64:
        """A cell of every record of a block, int64[records] (a copy)."""
        return _column(self.m, self.at[block], RECORDS[block], self.count(block), cell).copy()

    def real(self, block: str, cell: int) -> Float64:
        """A cell of every record of a block, float64[records] (a copy)."""
        return _column(self.f, self.at[block], RECORDS[block], self.count(block), cell).copy()

    def count(self, block: str) -> int:
        """Records of a block."""
        return counts(self.tables)[block]


RECORDS = {
    "row": L.ROW_SIZE,
    "slot": L.SLOT_SIZE,
    "job": L.JOB_SIZE,
    "stretch": L.STRETCH_SIZE,
    "use": L.USE_SIZE,
    "resource": L.RESOURCE_SIZE,
    "channel": L.CHANNEL_SIZE,
    "sim": L.SIM_SIZE,
    "link": L.LINK_SIZE,
}


def counts(tables: Tables) -> dict[str, int]:
    """How many records there are of each kind."""
    return {
        "row": len(tables.kind),
        "slot": len(tables.ready_ptr) - 1,
        "job": len(tables.first),
        "stretch": len(tables.latency),
        "use": len(tables.use_load),
        "resource": len(tables.capacity),
        "channel": len(tables.send_ptr) - 1,
        "sim": int(tables.sim[-1]) + 1,
        "link": int(tables.servers.max(initial=-1)) + 1,
    }


def make_machine(tables: Tables, waits: Int64, in_line: bool, images: dict[bool, Image] | None = None) -> Machine:
    """A machine at time 0 whose rows without dependencies are ready.

    Args:
        waits: rows that each row waits for.
        in_line: slots start their rows in the order of their numbers, not as they become ready.
        images: of the workload, for both values of ``in_line``; one that is missing is added.
    """
    number = counts(tables)
    at, first = _places(("row", "slot", "channel", "sim"), number, _workload_lists(tables, number), L.G_SIZE)
    others, end = _places(("job", "stretch", "use", "resource", "link"), number, _network_lists(tables, number), first)
    at |= others
    kept = images.get(in_line) if images is not None else None
    if kept is None:
        kept = _image(Machine(np.zeros(first, np.int64), np.zeros(first, np.float64), at, tables), waits, in_line)
        if images is not None and number["row"] <= MOST_KEPT:
            images[in_line] = kept
    machine = Machine(_longer(kept[0], end), _longer(kept[1], end), at, tables)
    _set(machine, "row", L.JOB, _addresses(machine, "job", tables.job))
    for cell, name in (
        (L.G_HEAP, "heap"),
        (L.G_SEEDS, "seeds"),
        (L.G_FRESH, "fresh"),
        (L.G_FLOWS, "flows"),
        (L.G_POOL, "pool"),
        (L.G_FIRST_JOB, "job"),
    ):
        machine.m[cell] = at[name]
    _jobs(machine)
    _flows(machine)
    return machine


def _places(
    blocks: Sequence[str], number: dict[str, int], lists: dict[str, int], begin: int
) -> tuple[dict[str, int], int]:
    """First addresses of blocks of records and of lists, one after the other, and the end."""
    at, end = {}, begin
    for name, cells in {**{block: RECORDS[block] * number[block] for block in blocks}, **lists}.items():
        at[name] = end
        end += cells
    return at, end


def _workload_lists(tables: Tables, number: dict[str, int]) -> dict[str, int]:
    return {
        "stack": number["row"],
        "touched": number["slot"],
        "children": len(tables.child),
        "ready": int(tables.ready_ptr[-1]),
        "sends": int(tables.send_ptr[-1]),
        "receives": int(tables.receive_ptr[-1]),
    }


def _network_lists(tables: Tables, number: dict[str, int]) -> dict[str, int]:
    return {
        "heap": number["slot"] + number["job"],
        "seeds": number["resource"],
        "fresh": number["job"],
        "flows": number["job"],
        "pool": number["resource"],
        "members": int(tables.member_ptr[-1]),
        "ends": int(tables.ends_ptr[-1]),
    }


def _image(machine: Machine, waits: Int64, in_line: bool) -> Image:
    """Memory of what a workload decides; operators that wait for nothing are ready."""
    m, at = machine.m, machine.at
    m[L.G_STACK], m[L.G_TOUCHED] = at["stack"], at["touched"]
    m[L.G_LEFT] = len(waits)
    m[L.G_MARK] = 1
    _rows(machine, waits)
    _slots(machine, in_line)
    _ready(machine, waits)
    return m, machine.f


def _longer(array: NDArray[Any], end: int) -> NDArray[Any]:
    """A copy with zeros behind it, up to ``end`` in all."""
    longer = np.empty(end, array.dtype)
    longer[: len(array)] = array
    longer[len(array) :] = 0
    return longer


def _column(array: NDArray[Any], first: int, size: int, count: int, cell: int) -> NDArray[Any]:
    return array[first : first + size * count].reshape(count, size)[:, cell]


def _set(machine: Machine, block: str, cell: int, values: Any, real: bool = False) -> None:
    array = machine.f if real else machine.m
    _column(array, machine.at[block], RECORDS[block], machine.count(block), cell)[:] = values


def _addresses(machine: Machine, block: str, numbers: Int64) -> Int64:
    """Addresses of records by number; 0 for negative numbers."""
    return np.where(numbers >= 0, machine.at[block] + numbers * RECORDS[block], 0)


def _rows(machine: Machine, waits: Int64) -> None:
    tables, at = machine.tables, machine.at
    _set(machine, "row", L.KIND, tables.kind)
    _set(machine, "row", L.SLOT, _addresses(machine, "slot", tables.slot))
    _set(machine, "row", L.CHANNEL, _addresses(machine, "channel", tables.channel))
    _set(machine, "row", L.AXIS, tables.axis)
    _set(machine, "row", L.SIM, _addresses(machine, "sim", tables.sim))
    _set(machine, "row", L.CHILD, at["children"] + tables.child_ptr[:-1])
    _set(machine, "row", L.CHILD_END, at["children"] + tables.child_ptr[1:])
    _set(machine, "row", L.WAITS, waits)
    _set(machine, "row", L.DURATION, tables.time, real=True)
    for cell in (L.START, L.BEGIN, L.END):
        _set(machine, "row", cell, -1.0, real=True)
    machine.m[at["children"] : at["children"] + len(tables.child)] = _addresses(machine, "row", tables.child)


def _slots(machine: Machine, in_line: bool) -> None:
    tables, at = machine.tables, machine.at
    _set(machine, "slot", L.POSITION, -1)
    _set(machine, "slot", L.READY, at["ready"] + tables.ready_ptr[:-1])
    if in_line:
        _set(machine, "slot", L.LINE, at["ready"] + tables.ready_ptr[:-1])
        _set(machine, "slot", L.LINE_END, at["ready"] + tables.ready_ptr[1:])
        rows = tables.in_line
        machine.m[at["ready"] : at["ready"] + len(rows)] = _addresses(machine, "row", rows)
    _set(machine, "sim", L.ROWS_LEFT, np.bincount(tables.sim))
    _set(machine, "sim", L.FINISH, -1.0, real=True)
    _set(machine, "channel", L.SENDS, at["sends"] + tables.send_ptr[:-1])
    _set(machine, "channel", L.RECEIVES, at["receives"] + tables.receive_ptr[:-1])


def _jobs(machine: Machine) -> None:
    tables = machine.tables
    _set(machine, "job", L.POSITION, -1)
    _set(machine, "job", L.FIRST, _addresses(machine, "stretch", tables.first))
    _set(machine, "job", L.LAST, _addresses(machine, "stretch", tables.first + tables.stretches))
    _set(machine, "job", L.NEED, tables.need)
    _set(machine, "job", L.CLASS, tables.traffic)
    _set(machine, "job", L.MEMBERS, machine.at["members"] + tables.member_ptr[:-1])
    _set(machine, "job", L.FORMER, _addresses(machine, "job", tables.former))
    _set(machine, "job", L.LATTER, _addresses(machine, "job", tables.latter))
    _set(machine, "job", L.OTHERS, _addresses(machine, "job", tables.others))
    _set(machine, "job", L.LINK_OUT, _addresses(machine, "link", tables.servers[:, 0]))
    _set(machine, "job", L.LINK_IN, _addresses(machine, "link", tables.servers[:, 1]))
    _set(machine, "job", L.ENDS, machine.at["ends"] + tables.ends_ptr[:-1])
    for cell, times in zip((L.TURN_TIME, L.BEHIND, L.ROUND), tables.turn_time.T, strict=True):
        _set(machine, "job", cell, times, real=True)
    machine.m[L.G_TURNS] = int(tables.turn.any())


def _flows(machine: Machine) -> None:
    tables = machine.tables
    _set(machine, "stretch", L.USES, _addresses(machine, "use", tables.use_ptr[:-1]))
    _set(machine, "stretch", L.USES_END, _addresses(machine, "use", tables.use_ptr[1:]))
    _set(machine, "stretch", L.TURN, tables.turn)
    _set(machine, "stretch", L.TIGHTEST, _addresses(machine, "resource", tables.tightest))
    _set(machine, "stretch", L.LATENCY, tables.latency, real=True)
    _set(machine, "stretch", L.BYTES, tables.size, real=True)
    _set(machine, "stretch", L.LIMIT, tables.limit, real=True)
    _set(machine, "use", L.RESOURCE, _addresses(machine, "resource", tables.use_resource))
    job_of = np.repeat(np.arange(len(tables.first)), tables.stretches)
    _set(machine, "use", L.OWNER, _addresses(machine, "job", np.repeat(job_of, np.diff(tables.use_ptr))))
    _set(machine, "use", L.LOAD, tables.use_load, real=True)
    _set(machine, "resource", L.CAPACITY, tables.capacity, real=True)


def _ready(machine: Machine, waits: Int64) -> None:
    """Put the rows that wait for nothing in their slots."""
    from .loop import make_all_ready

    make_all_ready(machine.m, machine.f, _addresses(machine, "row", np.flatnonzero(waits == 0)))


__all__ = ["Machine", "counts", "make_machine"]
