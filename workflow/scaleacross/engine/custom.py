"""Custom collectives: Chakra traces as algorithms.

The system file names a prefix per collective type, or, in a YAML file, per node id; ``PREFIX.<position>.et`` is what
the rank at a position of the communicator does. As in the reference, a rank's position in a group counts the group's
ranks in ascending order, while peers in the trace are places in the group's list; sizes and tags are those of the
trace.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ..trace.chakra_io import read_trace
from ..trace.columns import COMP
from .kernel import custom as K
from .kernel import layout as L
from .population import Communicator
from .program import Call, Program, build_program
from .settings import Config


def algorithm_of(config: Config, call: Call, node: int) -> str | None:
    """Prefix of the trace that is a collective's algorithm, None for a native one: by node id, else by type."""
    return config.system.per_node_custom.get(node, config.system.custom.get(call.comm_type))


def own_rows(program: Program, config: Config) -> list[int]:
    """Rows of collectives with an algorithm by node id. In a group, the first collective of a type decides for all."""
    by_node = config.system.per_node_custom
    if not by_node:
        return []
    ids = program.trace.ids[program.order].tolist()
    first: dict[tuple[str, int], int] = {}
    rows = []
    for row in np.flatnonzero(program.kind == L.COLLECTIVE).tolist():
        call = program.calls[int(program.call[row])]
        decides = first.setdefault((call.group, call.comm_type), ids[row]) if call.group else ids[row]
        if decides in by_node:
            rows.append(row)
    return rows


def node_of(program: Program, row: int) -> int:
    """Id of the node that decides on the algorithm of a row of :func:`own_rows`."""
    ids = program.trace.ids[program.order]
    call = program.calls[int(program.call[row])]
    if not call.group:
        return int(ids[row])
    for other in np.flatnonzero(program.kind == L.COLLECTIVE).tolist():
        that = program.calls[int(program.call[other])]
        if (that.group, that.comm_type) == (call.group, call.comm_type):
            return int(ids[other])
    return int(ids[row])


def position(who: Communicator, rank: int) -> int:
    """Whose trace a rank runs."""
    return int(np.flatnonzero(who.members == rank)[0]) if who.group else rank


@cache
def read_algorithm(prefix: str, place: int) -> Program:
    """The trace of one position.

    Raises:
        InvalidInput: as reading a trace does.
    """
    path = f"{prefix}.{place}.et"
    return build_program(read_trace(path), path)


def graph(program: Program, who: Communicator) -> list[int]:
    """The kernel's record of an algorithm on a communicator."""
    trace, order = program.trace, program.order
    count = len(program)
    cells = np.zeros((count, K.NODE), np.int64)
    cells[:, K.KIND] = K.DO_NOTHING
    cells[program.kind == L.SEND, K.KIND] = K.DO_SEND
    cells[program.kind == L.RECEIVE, K.KIND] = K.DO_RECEIVE
    cells[trace.types[order] == COMP, K.KIND] = K.DO_WAIT
    cells[:, K.TIME] = np.maximum(trace.duration_micros[order] * 1000, 1)
    cells[:, K.BYTES] = trace.comm_size[order]
    cells[:, K.TAG] = trace.comm_tag[order] % L.COLLECTIVE_TAG
    peers = np.where(program.kind == L.SEND, trace.comm_dst[order], trace.comm_src[order])
    cells[:, K.PEER] = who.members[np.maximum(peers, 0)] if who.group else peers
    first = 1 + count * K.NODE
    cells[:, K.CHILD] = first + program.child_ptr[:-1]
    cells[:, K.END] = first + program.child_ptr[1:]
    cells[:, K.WAITS] = program.waits
    return [count, *cells.ravel().tolist(), *program.child.tolist()]
