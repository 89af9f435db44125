"""Streams: which operators of a rank wait for each other's end, by the label in their names.

``x-scaleacross: {comm-streams: per-axis}`` in ``system.json`` (the default): each of tp, cp, ep, pp, dp and other has a
stream for its collectives, as NCCL has a stream for each communicator; sends have one for each peer, since NCCL orders
messages only between the same two ranks. ``comm-streams: 1`` is ASTRA-sim's single communication slot. Receives need
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput, did_you_mean
from ..kernel import layout
from ..program import AXIS_NAMES, Program

Int64 = NDArray[np.int64]
PER_AXIS, SINGLE = "per-axis", 1
OTHER = AXIS_NAMES.index("other")
COMPUTE_SLOT, CPU_SLOT, NO_SLOT = 0, 1, -1


def single_stream(extension: Mapping[str, Any]) -> bool:
    """Whether ``x-scaleacross`` of ``system.json`` asks for one communication slot.

    Raises:
        InvalidInput: E-SYSTEM-EXT for another key or value.
    """
    for key in extension:
        if key != "comm-streams":
            clash = f"system.json: x-scaleacross has an unknown key {key!r}"
            raise InvalidInput("E-SYSTEM-EXT", clash, did_you_mean(str(key), ["comm-streams"]))
    value = extension.get("comm-streams", PER_AXIS)
    if value != PER_AXIS and (value != SINGLE or isinstance(value, bool)):
        raise InvalidInput("E-SYSTEM-EXT", f"system.json: comm-streams is {value!r}", "write per-axis or 1")
    return bool(value != PER_AXIS)


def comm_axis(program: Program) -> Int64:
    """Axis of each row as an index into AXIS_NAMES; what is no labelled communication counts as other."""
    return np.where(program.axis >= 0, program.axis, OTHER)


def slots(program: Program, single: bool, npus: int) -> tuple[Int64, int]:
    """Slot of each row within its rank (NO_SLOT for receives and marks), and how many slots the rank has."""
    slot = np.full(len(program), NO_SLOT, np.int64)
    slot[program.slot == layout.COMPUTE] = COMPUTE_SLOT
    slot[program.slot == layout.CPU] = CPU_SLOT
    rows = np.flatnonzero(program.slot == layout.COMM)
    if len(rows) == 0:
        return slot, 2
    stream = np.zeros(len(rows), np.int64)
    if not single:
        axis = comm_axis(program)[rows]
        peer = np.where(program.kind[rows] == layout.SEND, program.trace.comm_dst[program.order[rows]], npus)
        stream = axis * (npus + 1) + peer
    names, number = np.unique(stream, return_inverse=True)
    slot[rows] = 2 + number
    return slot, 2 + len(names)
