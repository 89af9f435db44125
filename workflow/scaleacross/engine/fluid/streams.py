"""Streams and traffic classes, as ``x-scaleacross`` in ``system.json`` says.

*Streams*: which operators of a rank wait for each other's end, by the label in their names. ``comm-streams: per-axis``
(the default): each of tp, cp, ep, pp, dp and other has a stream for its collectives, as NCCL has a stream for each
communicator; sends have one for each peer, since NCCL orders messages only between the same two ranks. Operators of a
stream run in the order of the trace, in which a framework launches them. ``comm-streams: 1`` is ASTRA-sim's single
communication slot, which takes whatever is ready. Receives need none.

*Traffic classes*. ``qos: fair`` (the default): all flows share alike. ``by-axis``: strict priority, pipeline messages
before the collectives of layers (tp, cp, ep) before data parallelism and the rest. NCCLX gives pipeline, data-parallel
and other groups classes of their own (arXiv 2510.20171); how switches serve them it does not say. ``reserved``: nobody
uses what others leave idle, every stream has the share of each port and uplink that it would get if all sent at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput, did_you_mean
from ..kernel import layout
from ..program import AXIS_NAMES, Program

Int64 = NDArray[np.int64]
PER_AXIS, SINGLE = "per-axis", 1
FAIR, BY_AXIS, RESERVED = QOS = ("fair", "by-axis", "reserved")
CLASSES = {"pp": 0, "tp": 1, "cp": 1, "ep": 1, "dp": 2, "other": 2}
OTHER = AXIS_NAMES.index("other")
COMPUTE_SLOT, CPU_SLOT, NO_SLOT = 0, 1, -1


@dataclass(frozen=True, slots=True)
class Streams:
    """``single``: one communication slot a rank. ``qos``: how flows share, one of QOS."""

    single: bool = False
    qos: str = FAIR

    def traffic(self, axis: int) -> int:
        """Traffic class of an axis (index into AXIS_NAMES): lower ones are served first."""
        return CLASSES[AXIS_NAMES[axis]] if self.qos == BY_AXIS else 0


def read_streams(extension: Mapping[str, Any]) -> Streams:
    """What ``x-scaleacross`` of ``system.json`` asks for.

    Raises:
        InvalidInput: E-SYSTEM-EXT for another key or value.
    """
    known = ("comm-streams", "qos")
    for key in extension:
        if key not in known:
            clash = f"system.json: x-scaleacross has an unknown key {key!r}"
            raise InvalidInput("E-SYSTEM-EXT", clash, did_you_mean(str(key), known))
    value, qos = extension.get("comm-streams", PER_AXIS), extension.get("qos", FAIR)
    if value != PER_AXIS and (value != SINGLE or isinstance(value, bool)):
        raise InvalidInput("E-SYSTEM-EXT", f"system.json: comm-streams is {value!r}", "write per-axis or 1")
    if qos not in QOS:
        raise InvalidInput("E-SYSTEM-EXT", f"system.json: qos is {qos!r}", f"write one of {', '.join(QOS)}")
    return Streams(value != PER_AXIS, str(qos))


def comm_axis(program: Program) -> Int64:
    """Axis of each row as an index into AXIS_NAMES; what is no labelled communication counts as other."""
    return np.where(program.axis >= 0, program.axis, OTHER)


def slots(programs: Sequence[Program], single: bool, npus: int) -> list[tuple[Int64, int]]:
    """Of each program, the slot of each row within its rank (NO_SLOT for receives and marks), and their number."""
    found, rows, streams = [], [], []
    for program in programs:
        slot = np.full(len(program), NO_SLOT, np.int64)
        slot[program.slot == layout.COMPUTE] = COMPUTE_SLOT
        slot[program.slot == layout.CPU] = CPU_SLOT
        own = np.flatnonzero(program.slot == layout.COMM)
        stream = np.zeros(len(own), np.int64)
        if not single:
            peer = np.where(program.kind[own] == layout.SEND, program.trace.comm_dst[program.order[own]], npus)
            stream = comm_axis(program)[own] * (npus + 1) + peer
        found.append(slot)
        rows.append(own)
        streams.append([stream])
    _, which, first = by_program(streams)
    ends = np.cumsum([len(own) for own in rows])
    for number, (slot, own, end) in enumerate(zip(found, rows, ends.tolist(), strict=True)):
        slot[own] = 2 + which[end - len(own) : end] - first[number]
    return [(slot, 2 + int(count)) for slot, count in zip(found, np.diff(first), strict=True)]


def by_program(columns: Sequence[Sequence[Int64]]) -> tuple[list[tuple[int, ...]], Int64, Int64]:
    """The different rows of each program's columns.

    Returns:
        (program, values) in ascending order; which of them each row is, one program after the other; where each
        program's begin, and the end.
    """
    number = np.repeat(np.arange(len(columns)), [len(own[0]) for own in columns])
    keys, which = different(number, *(np.concatenate(column) for column in zip(*columns, strict=True)))
    first = np.searchsorted([key[0] for key in keys], np.arange(len(columns) + 1)).astype(np.int64)
    return keys, which, first


def different(*columns: Int64) -> tuple[list[tuple[int, ...]], Int64]:
    """The different rows of some columns in ascending order, and which of them each row is."""
    if len(columns[0]) == 0:
        return [], np.zeros(0, np.int64)
    least = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, least, strict=True)]
    if math.prod(spans) < 1 << 62:  # a row is one number
        code = np.zeros(len(columns[0]), np.int64)
        for column, low, span in zip(columns, least, spans, strict=True):
            code = code * span + (column - low)
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
    else:
        _, first, number = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), number
