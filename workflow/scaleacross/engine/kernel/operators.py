"""Operators of a trace: which may start, what starting and ending does.

A rank has one CPU slot, one compute slot and one communication slot; receives need none. When something ends, ready
nodes are tried in ascending id and each whose slot is free starts.
"""

from __future__ import annotations

from .layout import (
    C_CHUNKS,
    C_COUNTER,
    C_CUSTOM,
    C_MEMBER,
    C_NODE,
    C_ORBIT,
    C_SIGNATURE,
    C_SIZE,
    COLLECTIVE,
    E_ORBIT,
    FREE,
    G_COMPOSED,
    G_DIMS,
    G_MEMORY,
    G_NEED,
    G_NOW,
    G_UNFINISHED,
    I_MEMORY,
    I_NODE,
    I_STALE,
    MEMBER_CALL,
    MEMBER_END,
    MEMBER_LEAD,
    MEMBER_NODE,
    MEMBER_QUEUE,
    MEMBER_RANK,
    MEMBER_SIZE,
    MEMBER_STALE,
    MEMBER_TIME,
    MEMORY,
    N_BYTES,
    N_CALL,
    N_CHILDREN,
    N_CHILDREN_END,
    N_KIND,
    N_PEER,
    N_SLOT,
    N_TAG,
    N_TIME,
    O_ARRIVED,
    O_CALL,
    O_EVEN,
    O_FIRST,
    O_MEMBERS,
    O_SEQUENCE,
    O_STATUS,
    O_TIME,
    O_WAITING,
    R_BUSY,
    R_CALLS,
    R_CHANNEL,
    R_COLL_NODE,
    R_DEFERRED,
    R_FINISH,
    R_LAST,
    R_LEFT,
    R_NODES,
    R_ONGOING,
    R_READY,
    R_STALE,
    R_TRUE,
    RECEIVE,
    SEND,
    SKIPPED,
    STALE,
    TIMED,
    W_AFTER,
    W_END,
    W_RANK,
    W_ROW,
    W_START,
    W_WAITS,
    X_BUSY,
    X_FINAL,
    X_FIRST,
    X_SIZE,
    Y_FRESH,
    Y_KNOWN,
    Y_QUEUE,
    Y_STALE,
    Memory,
)
from .network import displacement, post_receive, post_send
from .pools import push, register
from .streams import hold_place, start_streams


def make_ready(m: Memory, node: int) -> None:
    """Insert into the ready list of the node's slot, which is kept in ascending id."""
    rank = m[node + W_RANK]
    slot = m[m[node + W_ROW] + N_SLOT]
    last = m[rank + R_LAST + slot]
    m[node + W_AFTER] = 0
    if last == 0:
        m[rank + R_READY + slot] = node
        m[rank + R_LAST + slot] = node
    elif last < node:
        m[last + W_AFTER] = node
        m[rank + R_LAST + slot] = node
    elif m[rank + R_READY + slot] > node:
        m[node + W_AFTER] = m[rank + R_READY + slot]
        m[rank + R_READY + slot] = node
    else:
        before = m[rank + R_READY + slot]
        while m[before + W_AFTER] < node:
            before = m[before + W_AFTER]
        m[node + W_AFTER] = m[before + W_AFTER]
        m[before + W_AFTER] = node


def next_ready(m: Memory, rank: int) -> int:
    """The slot whose first ready node has the lowest id among the free slots, -1: none."""
    best = 0
    slot_of_best = -1
    for slot in range(4):
        head = m[rank + R_READY + slot]
        if head != 0 and (slot == FREE or m[rank + R_BUSY + slot] == 0) and (best == 0 or head < best):
            best = head
            slot_of_best = slot
    return slot_of_best


def issue_ready(m: Memory, h: Memory, f: Memory, rank: int) -> None:
    """Start what can start, in ascending id; then the rank may be finished."""
    while True:
        slot = next_ready(m, rank)
        if slot < 0:
            break
        node = m[rank + R_READY + slot]
        m[rank + R_READY + slot] = m[node + W_AFTER]
        if m[node + W_AFTER] == 0:
            m[rank + R_LAST + slot] = 0
        issue(m, h, f, rank, node, slot)
    deferred = m[rank + R_DEFERRED]
    m[rank + R_DEFERRED] = 0
    while deferred != 0:
        following = m[deferred + W_AFTER]
        make_ready(m, deferred)
        deferred = following
    if m[rank + R_FINISH] < 0 and m[rank + R_ONGOING] == 0:
        for slot in range(4):
            if m[rank + R_READY + slot] != 0:
                return
        m[rank + R_FINISH] = m[G_NOW]
        m[G_UNFINISHED] -= 1


def issue(m: Memory, h: Memory, f: Memory, rank: int, node: int, slot: int) -> None:
    """Start one node."""
    row = m[node + W_ROW]
    kind = m[row + N_KIND]
    m[node + W_START] = m[G_NOW]
    if kind == SKIPPED:
        # An invalid node ends at once, but what it frees is looked at only when something else ends.
        m[node + W_END] = m[G_NOW]
        m[rank + R_LEFT] -= 1
        release_children(m, node, 1)
        return
    m[rank + R_ONGOING] += 1
    if slot != FREE:
        m[rank + R_BUSY + slot] = 1
    if kind == TIMED:
        register(m, h, rank, m[G_NOW] + m[row + N_TIME], I_NODE, node, 0)
    elif kind == STALE:
        stream = hold_place(m, rank, m[row + N_CALL])
        register(m, h, rank, m[G_NOW] + m[row + N_TIME], I_STALE, node, stream)
    elif kind == MEMORY:
        use_memory(m, h, rank, node)
    elif kind == COLLECTIVE:
        call = m[rank + R_CALLS] + m[row + N_CALL] * C_SIZE
        if m[call + C_CUSTOM] == 0 and m[G_COMPOSED] == 1:
            join_orbit(m, h, rank, node, call)
        else:
            m[rank + R_COLL_NODE] = node
            start_streams(m, h, f, rank, call)
    else:
        me, peer, tag, size = m[rank + R_TRUE], m[row + N_PEER], m[row + N_TAG], m[row + N_BYTES]
        there = displacement(m, m[G_DIMS], me, peer)
        back = displacement(m, m[G_DIMS], peer, me)
        if kind == SEND:
            post_send(m, h, f, rank, peer, there, back, tag, size, C_NODE, node, 0)
        elif kind == RECEIVE:
            post_receive(m, h, f, rank, peer, back, there, tag, size, C_NODE, node, 0)


def release_children(m: Memory, node: int, deferred: int) -> None:
    """A dependency of each child is met; those with none left become ready (deferred: after this issue round)."""
    rank = m[node + W_RANK]
    row = m[node + W_ROW]
    for k in range(m[row + N_CHILDREN], m[row + N_CHILDREN_END]):
        child = m[rank + R_NODES] + m[k]
        m[child + W_WAITS] -= 1
        if m[child + W_WAITS] == 0:
            if deferred == 0:
                make_ready(m, child)
            else:
                m[child + W_AFTER] = m[rank + R_DEFERRED]
                m[rank + R_DEFERRED] = child


def node_done(m: Memory, h: Memory, f: Memory, node: int) -> None:
    """A node has ended: free its slot, release its children, start what can start."""
    rank = m[node + W_RANK]
    if m[rank + R_FINISH] >= 0:
        return
    m[node + W_END] = m[G_NOW]
    m[rank + R_ONGOING] -= 1
    m[rank + R_LEFT] -= 1
    slot = m[m[node + W_ROW] + N_SLOT]
    if slot != FREE:
        m[rank + R_BUSY + slot] = 0
    release_children(m, node, 0)
    issue_ready(m, h, f, rank)


# Remote memory ------------------------------------------------------------------------------------------------------


def use_memory(m: Memory, h: Memory, rank: int, node: int) -> None:
    """A load or store: at once on memory of its own, else one after the other on its channel."""
    if m[rank + R_CHANNEL] == 0:
        register(m, h, rank, m[G_NOW] + m[m[node + W_ROW] + N_TIME], I_NODE, node, 0)
        return
    channel = m[G_MEMORY] + (m[rank + R_CHANNEL] - 1) * X_SIZE
    if m[channel + X_BUSY] == 0:
        m[channel + X_BUSY] = 1
        transfer(m, h, channel, node)
        return
    m[node + W_AFTER] = 0
    if m[channel + X_FIRST] == 0:
        m[channel + X_FIRST] = node
    else:
        m[m[channel + X_FINAL] + W_AFTER] = node
    m[channel + X_FINAL] = node


def transfer(m: Memory, h: Memory, channel: int, node: int) -> None:
    """A load or store occupies its channel. The operator ends before the channel is given on."""
    end = m[G_NOW] + m[m[node + W_ROW] + N_TIME]
    register(m, h, m[node + W_RANK], end, I_NODE, node, 0)
    register(m, h, m[node + W_RANK], end, I_MEMORY, channel, 0)


def free_memory(m: Memory, h: Memory, channel: int) -> None:
    """The channel is free: the next waiting load or store goes."""
    node = m[channel + X_FIRST]
    if node == 0:
        m[channel + X_BUSY] = 0
        return
    m[channel + X_FIRST] = m[node + W_AFTER]
    transfer(m, h, channel, node)


# Composed collectives -----------------------------------------------------------------------------------------------


def join_orbit(m: Memory, h: Memory, rank: int, node: int, call: int) -> None:
    """A rank enters a collective. No rank can leave one before all are in, so it is timed when the last comes.

    Members that disagree on the collective's number, type or size wait for ever, as their messages never match.
    """
    orbit = m[call + C_ORBIT]
    member = m[call + C_MEMBER]
    counter = m[call + C_COUNTER]
    sequence = m[counter]
    m[counter] += m[call + C_CHUNKS]
    m[member + MEMBER_RANK] = rank
    m[member + MEMBER_TIME] = m[G_NOW]
    m[member + MEMBER_NODE] = node
    m[member + MEMBER_CALL] = call
    m[member + MEMBER_STALE] = m[rank + R_STALE]
    if m[orbit + O_ARRIVED] == 0:
        m[orbit + O_SEQUENCE] = sequence
        m[orbit + O_CALL] = call
        m[orbit + O_EVEN] = 1
    else:
        first = m[orbit + O_CALL]
        if m[orbit + O_SEQUENCE] != sequence or m[first + C_SIGNATURE] != m[call + C_SIGNATURE]:
            m[orbit + O_STATUS] = 1
        if m[orbit + O_TIME] != m[G_NOW] or m[m[first + C_MEMBER] + MEMBER_STALE] != m[rank + R_STALE]:
            m[orbit + O_EVEN] = 0
    m[orbit + O_TIME] = m[G_NOW]
    m[orbit + O_ARRIVED] += 1
    if m[orbit + O_ARRIVED] == m[orbit + O_MEMBERS] and m[orbit + O_STATUS] == 0:
        if use_known(m, orbit, call) == 1:
            leave_orbit(m, h, orbit)
        else:
            m[orbit + O_WAITING] = m[G_NEED]
            m[G_NEED] = orbit


def use_known(m: Memory, orbit: int, call: int) -> int:
    """Fill in the durations of a signature that is known for simultaneous arrival. Returns 1 if it is."""
    cell = m[call + C_SIGNATURE]
    known = m[cell + Y_KNOWN]
    if known == 0 or m[orbit + O_EVEN] == 0:
        return 0
    stale = m[m[orbit + O_FIRST] + MEMBER_STALE]
    if stale == 0 and known & 1 != 0:
        cell += Y_FRESH
    elif stale != 0 and known & 2 != 0 and m[cell + Y_QUEUE] == stale:
        cell += Y_STALE
    else:
        return 0
    for k in range(m[orbit + O_MEMBERS]):
        member = m[orbit + O_FIRST] + k * MEMBER_SIZE
        m[member + MEMBER_END] = m[G_NOW] + m[cell]
        m[member + MEMBER_LEAD] = m[cell + 1]
        m[member + MEMBER_QUEUE] = m[cell + 2]
    return 1


def leave_orbit(m: Memory, h: Memory, orbit: int) -> None:
    """All durations are known: schedule each member's last packet, ``lead`` before its end."""
    for k in range(m[orbit + O_MEMBERS]):
        member = m[orbit + O_FIRST] + k * MEMBER_SIZE
        time = m[member + MEMBER_END] - m[member + MEMBER_LEAD]
        push(m, h, max(time, m[G_NOW]), E_ORBIT, member)
    m[orbit + O_ARRIVED] = 0
