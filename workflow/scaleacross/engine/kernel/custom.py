"""Custom collectives: a Chakra trace is the algorithm. Its nodes have no slots: whatever is ready starts.

A graph in ``memory``: number of nodes, then ``NODE`` cells a node, in ascending id; children are listed behind.
"""

from __future__ import annotations

from .layout import (
    C_CUSTOM,
    C_CUSTOM_NODE,
    G_DIMS,
    G_NOW,
    I_CUSTOM,
    R_CUSTOM,
    R_TRUE,
    S_CALL,
    S_RANK,
    S_STATE,
    Memory,
)
from .network import displacement, post_receive, post_send
from .pools import register

# Cells of a node; the peer is a true rank, children are stored from CHILD to END in the same array.
KIND, TIME, BYTES, TAG, PEER, CHILD, END, WAITS, NODE = range(9)
DO_NOTHING, DO_SEND, DO_RECEIVE, DO_WAIT = range(4)


def begin_custom(m: Memory, h: Memory, f: Memory, stream: int) -> int:
    """Start the nodes without dependencies. Returns 1 when there is nothing to do."""
    rank = m[stream + S_RANK]
    graph = m[m[stream + S_CALL] + C_CUSTOM]
    count = m[graph]
    region = m[rank + R_CUSTOM]
    m[stream + S_STATE] = region
    m[region] = 0
    for k in range(count):
        m[region + 1 + k] = m[graph + 1 + k * NODE + WAITS]
    for k in range(count):
        if m[graph + 1 + k * NODE + WAITS] == 0:
            start_step(m, h, f, stream, graph, k)
    return 1 if count == 0 else 0


def start_step(m: Memory, h: Memory, f: Memory, stream: int, graph: int, k: int) -> None:
    """Start node ``k`` of the graph. A node of another kind never ends."""
    rank = m[stream + S_RANK]
    node = graph + 1 + k * NODE
    m[m[stream + S_STATE]] += 1
    kind = m[node + KIND]
    if kind == DO_WAIT:
        register(m, h, rank, m[G_NOW] + m[node + TIME], I_CUSTOM, stream, k)
        return
    me = m[rank + R_TRUE]
    peer = m[node + PEER]
    there = displacement(m, m[G_DIMS], me, peer)
    back = displacement(m, m[G_DIMS], peer, me)
    tag = m[node + TAG]
    size = m[node + BYTES]
    if kind == DO_SEND:
        post_send(m, h, f, rank, peer, there, back, tag, size, C_CUSTOM_NODE, stream, k)
    elif kind == DO_RECEIVE:
        post_receive(m, h, f, rank, peer, back, there, tag, size, C_CUSTOM_NODE, stream, k)


def end_step(m: Memory, h: Memory, f: Memory, stream: int, k: int) -> int:
    """Node ``k`` has ended: start what it frees. Returns 1 when the whole graph has run."""
    graph = m[m[stream + S_CALL] + C_CUSTOM]
    region = m[stream + S_STATE]
    node = graph + 1 + k * NODE
    m[region] -= 1
    for at in range(m[node + CHILD], m[node + END]):
        child = m[graph + at]
        m[region + 1 + child] -= 1
        if m[region + 1 + child] == 0:
            start_step(m, h, f, stream, graph, child)
    return 1 if m[region] == 0 else 0
