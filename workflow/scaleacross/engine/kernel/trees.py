"""The double binary tree: data is reduced up to the root and handed down again."""

from __future__ import annotations

from .layout import (
    C_NONE,
    C_STREAM,
    P_BYTES,
    P_NODES,
    P_TABLE,
    R_TRUE,
    S_PATH,
    S_PHASE,
    S_RANK,
    S_REDUCED,
    S_STATE,
    S_TAG,
    Memory,
)
from .network import post_receive, post_send
from .packets import bundle, index_in_ring, rank_at

# States of S_STATE: 0 at the start, then
TO_PARENT, FROM_PARENT, LAST, TWO_CHILDREN, ONE_CHILD, TO_CHILDREN = 1, 2, 3, 4, 5, 6


def relative(m: Memory, stream: int, phase: int, which: int) -> int:
    """True rank of the parent (0), left (1) or right (2) child in the stream's tree, -1: there is none."""
    index = index_in_ring(m, stream, phase)
    tree = m[stream + S_PATH + m[stream + S_PHASE]] & 1
    cell = m[phase + P_TABLE] + 3 * (tree * m[phase + P_NODES] + index) + which
    place = m[cell]
    return -1 if place < 0 else rank_at(m, stream, phase, index, place)


def tree_send(m: Memory, h: Memory, f: Memory, stream: int, phase: int, to: int) -> None:
    rank = m[stream + S_RANK]
    me = m[rank + R_TRUE]
    tag = m[stream + S_TAG]
    post_send(m, h, f, rank, to, me, to, tag, m[phase + P_BYTES], C_NONE, 0, 0)


def tree_receive(m: Memory, h: Memory, f: Memory, stream: int, phase: int, come: int) -> None:
    rank = m[stream + S_RANK]
    me = m[rank + R_TRUE]
    tag = m[stream + S_TAG]
    post_receive(m, h, f, rank, come, come, me, tag, m[phase + P_BYTES], C_STREAM, stream, 0)


def begin_tree(m: Memory, h: Memory, f: Memory, stream: int, phase: int) -> None:
    """Leaves start to send; inner ranks wait for two children, the root for its one."""
    left = relative(m, stream, phase, 1)
    right = relative(m, stream, phase, 2)
    if relative(m, stream, phase, 0) < 0:
        m[stream + S_STATE] = ONE_CHILD
        tree_receive(m, h, f, stream, phase, left if left >= 0 else right)
    elif left < 0 and right < 0:
        bundle(m, h, f, stream, phase, 0, m[phase + P_BYTES], 1, 0)
        m[stream + S_STATE] = TO_PARENT
    else:
        m[stream + S_STATE] = TWO_CHILDREN
        tree_receive(m, h, f, stream, phase, left)
        tree_receive(m, h, f, stream, phase, right)


def step_tree(m: Memory, h: Memory, f: Memory, stream: int, phase: int, received: int) -> int:
    """Next step of a tree: ``received`` 1 for a message, 0 for a packet that is through. Returns 1 at the end."""
    now = m[stream + S_STATE]
    size = m[phase + P_BYTES]
    parent = relative(m, stream, phase, 0)
    left = relative(m, stream, phase, 1)
    right = relative(m, stream, phase, 2)
    if parent >= 0 and left < 0 and right < 0:
        if now == TO_PARENT:
            tree_send(m, h, f, stream, phase, parent)
            tree_receive(m, h, f, stream, phase, parent)
            m[stream + S_STATE] = FROM_PARENT
        elif now == FROM_PARENT:
            bundle(m, h, f, stream, phase, 0, size, 0, 0)
            m[stream + S_STATE] = LAST
        else:
            return 1
    elif parent >= 0:
        if now == TWO_CHILDREN and received == 1:
            bundle(m, h, f, stream, phase, size, size, 0, 0)
            m[stream + S_STATE] = ONE_CHILD
        elif now == ONE_CHILD and received == 1:
            bundle(m, h, f, stream, phase, size, size, 0, 1)
            m[stream + S_STATE] = TO_PARENT
        elif m[stream + S_REDUCED] < 1 and received == 0:
            m[stream + S_REDUCED] += 1
        elif now == TO_PARENT:
            m[stream + S_STATE] = FROM_PARENT
            tree_send(m, h, f, stream, phase, parent)
            tree_receive(m, h, f, stream, phase, parent)
        elif now == FROM_PARENT and received == 1:
            bundle(m, h, f, stream, phase, size, size, 0, 1)
            m[stream + S_STATE] = TO_CHILDREN
        elif now == TO_CHILDREN:
            tree_send(m, h, f, stream, phase, left)
            tree_send(m, h, f, stream, phase, right)
            return 1
    elif now == ONE_CHILD:
        bundle(m, h, f, stream, phase, size, size, 0, 1)
        m[stream + S_STATE] = TO_CHILDREN
    elif now == TO_CHILDREN:
        tree_send(m, h, f, stream, phase, left if left >= 0 else right)
        return 1
    return 0
