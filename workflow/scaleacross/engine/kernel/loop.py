"""The event loop."""

from __future__ import annotations

from .bus import bus_event, drop, go_on
from .custom import end_step
from .layout import (
    B_FIRST,
    B_RANK,
    C_COUNT,
    C_CUSTOM_NODE,
    C_NODE,
    C_REAL_RECEIVE,
    C_REAL_SEND,
    C_STREAM,
    E_ARRIVAL,
    E_BATCH,
    E_LINK,
    E_ORBIT,
    E_RECEIVE,
    FREE_ITEM,
    FREE_STREAM,
    G_AWARE,
    G_BAD,
    G_COUNT,
    G_DIMS,
    G_ENDPOINT,
    G_EVENTS,
    G_LEAD,
    G_NEED,
    G_NOW,
    G_RANKS,
    G_ROOM,
    I_A,
    I_B,
    I_BUNDLE,
    I_BUS,
    I_CUSTOM,
    I_KIND,
    I_MEMORY,
    I_NEXT,
    I_NODE,
    I_STALE,
    M_ARRIVED,
    M_AT,
    M_BYTES,
    M_CALLBACK,
    M_LANE,
    M_RECEIVER,
    M_SRC,
    M_TAG,
    M_TO,
    MEMBER_END,
    MEMBER_NODE,
    MEMBER_QUEUE,
    MEMBER_RANK,
    O_WAITING,
    P_LOCAL,
    Q_EVENT,
    Q_OUTER,
    Q_SIDE,
    Q_STREAM,
    Q_WORK,
    R_COLL_NODE,
    R_END_QUEUE,
    R_LEAD,
    R_SIZE,
    R_STALE,
    R_STREAMS_LEFT,
    S_CALL,
    S_PHASE,
    S_QUEUE,
    S_RANK,
    Memory,
)
from .network import forget, free_link, next_device, receive_now, send_now, take_link
from .operators import free_memory, issue_ready, leave_orbit, node_done
from .packets import LOCAL_DELAY, phase_of
from .pools import close_batch, free, pop, register, with_room
from .streams import (
    message_received,
    packet_free,
    queue_stream,
    release_place,
    start_waiting,
    unqueue_stream,
)

DONE, NEEDS, PAUSED, BROKEN = range(4)


def end_phase(m: Memory, h: Memory, f: Memory, stream: int) -> None:
    """A stream has ended a phase: on to the next, or to its end.

    The last stream of a collective ends the operator, and what becomes ready starts, while the stream still holds its
    place in the queue; so streams of a collective that starts there wait in priority order, also the first of them.
    """
    rank = m[stream + S_RANK]
    queue = m[stream + S_QUEUE]
    m[stream + S_PHASE] += 1
    over = m[stream + S_PHASE] == m[m[stream + S_CALL] + C_COUNT]
    if over:
        m[rank + R_STREAMS_LEFT] -= 1
        if m[rank + R_STREAMS_LEFT] == 0:
            m[rank + R_END_QUEUE] = queue + 1
            m[rank + R_LEAD] = m[G_LEAD]
            m[rank + R_STALE] = queue + 1
            node_done(m, h, f, m[rank + R_COLL_NODE])
            m[rank + R_STALE] = 0
    unqueue_stream(m, stream)
    if over:
        free(m, FREE_STREAM, stream)
        release_place(m, h, f, rank, queue)
        return
    queue_stream(m, stream)
    release_place(m, h, f, rank, queue)
    start_waiting(m, h, f, rank, m[stream + S_QUEUE])


def fire(m: Memory, h: Memory, f: Memory, kind: int, a: int, b: int) -> None:
    """What the end of a transfer sets off at one side."""
    if kind == C_NODE:
        node_done(m, h, f, a)
    elif kind == C_STREAM:
        if message_received(m, h, f, a) == 1:
            end_phase(m, h, f, a)
    elif kind == C_CUSTOM_NODE:
        if end_step(m, h, f, a, b) == 1:
            end_phase(m, h, f, a)
    elif kind == C_REAL_SEND or kind == C_REAL_RECEIVE:  # noqa: SIM109 (a tuple is slow to compile)
        rank, peer, lane, tag, size = m[a + M_SRC], m[a + M_TO], m[a + M_LANE], m[a + M_TAG], m[a + M_BYTES]
        does, first, second = m[a + M_CALLBACK], m[a + M_CALLBACK + 1], m[a + M_CALLBACK + 2]
        forget(m, a)
        if kind == C_REAL_SEND:
            send_now(m, h, f, rank, peer, lane, tag, size, does, first, second)
        else:
            receive_now(m, h, rank, lane, tag, size, does, first, second)


def arrive(m: Memory, h: Memory, f: Memory, message: int) -> None:
    """A message has reached the next device, or its destination: then the sender's side ends, then the receiver's."""
    if m[G_AWARE] == 1:
        at = next_device(m, m[message + M_AT], m[message + M_TO])
        m[message + M_AT] = at
        if at != m[message + M_TO]:
            take_link(m, h, f, message)
            return
    posted = m[message + M_RECEIVER]
    m[message + M_ARRIVED] = 1
    fire(m, h, f, m[message + M_CALLBACK], m[message + M_CALLBACK + 1], m[message + M_CALLBACK + 2])
    if posted != 0:
        receive(m, h, f, message)


def receive(m: Memory, h: Memory, f: Memory, message: int) -> None:
    """The receiver's side of a message ends."""
    kind, a, b = m[message + M_RECEIVER], m[message + M_RECEIVER + 1], m[message + M_RECEIVER + 2]
    forget(m, message)
    fire(m, h, f, kind, a, b)


def pass_packet(m: Memory, h: Memory, f: Memory, rank: int, stream: int, work: int) -> None:
    """A packet is through the endpoint (``work`` >= 0: bytes to reduce) or through its reduction (-1 - ns that it
    took)."""
    if work > 0:
        # Local work of a reduction: read, read, write, each truncated to a nanosecond.
        wait = 3 * int(work / f[2 * m[G_DIMS]] * 1e9)
        register(m, h, rank, m[G_NOW] + wait, I_BUNDLE, stream, -1 - wait)
        return
    local = m[phase_of(m, stream) + P_LOCAL] == 1
    m[G_LEAD] = -1 - work if work < 0 else (LOCAL_DELAY if local else m[G_ENDPOINT])
    if packet_free(m, h, f, stream) == 1:
        end_phase(m, h, f, stream)


def cross_bus(m: Memory, h: Memory, f: Memory, rank: int, side: int, event: int) -> None:
    """Something ends at a side of the shared bus. A request that is done on the inner link goes on at the endpoint; a
    packet that is through acts before the sides look for their next request."""
    outer = 0
    done = bus_event(m, h, f, side, event, 0)
    if done != 0 and m[done + Q_OUTER] != 0:
        request = m[done + Q_OUTER]
        outer = m[request + Q_SIDE]
        drop(m, done)
        done = bus_event(m, h, f, outer, m[request + Q_EVENT], request)
    if done != 0:
        stream, work = m[done + Q_STREAM], m[done + Q_WORK]
        drop(m, done)
        pass_packet(m, h, f, rank, stream, work)
    if outer != 0:
        go_on(m, h, f, outer)
    go_on(m, h, f, side)


def run_item(m: Memory, h: Memory, f: Memory, rank: int, kind: int, a: int, b: int) -> None:
    """One timer of a rank."""
    if kind == I_BUNDLE:
        pass_packet(m, h, f, rank, a, b)
    elif kind == I_BUS:
        cross_bus(m, h, f, rank, a, b)
    elif kind == I_NODE:
        m[rank + R_STALE] = b
        node_done(m, h, f, a)
        m[rank + R_STALE] = 0
    elif kind == I_MEMORY:
        free_memory(m, h, a)
    elif kind == I_CUSTOM:
        if end_step(m, h, f, a, b) == 1:
            end_phase(m, h, f, a)
    elif kind == I_STALE:
        node_done(m, h, f, a)
        unqueue_stream(m, b)
        queue = m[b + S_QUEUE]
        free(m, FREE_STREAM, b)
        release_place(m, h, f, rank, queue)


def start(m: Memory, h: Memory, f: Memory) -> tuple[Memory, Memory]:
    """Time 0: every rank, in ascending order, starts what it can."""
    for k in range(m[G_COUNT]):
        m, h = with_room(m, h, m[G_ROOM])
        issue_ready(m, h, f, m[G_RANKS] + k * R_SIZE)
    return m, h


def settle(m: Memory, h: Memory) -> tuple[Memory, Memory]:
    """Take up collectives whose durations have been filled in."""
    while m[G_NEED] != 0:
        orbit = m[G_NEED]
        m[G_NEED] = m[orbit + O_WAITING]
        m, h = with_room(m, h, m[G_ROOM])
        leave_orbit(m, h, orbit)
    return m, h


def run_batch(m: Memory, h: Memory, f: Memory, batch: int) -> tuple[Memory, Memory]:
    """The timers of a rank at one time, in the order of setting."""
    rank = m[batch + B_RANK]
    while m[batch + B_FIRST] != 0:
        m, h = with_room(m, h, m[G_ROOM])
        item = m[batch + B_FIRST]
        m[batch + B_FIRST] = m[item + I_NEXT]
        kind, a, b = m[item + I_KIND], m[item + I_A], m[item + I_B]
        free(m, FREE_ITEM, item)
        run_item(m, h, f, rank, kind, a, b)
    close_batch(m, batch)
    return m, h


def run(m: Memory, h: Memory, f: Memory, budget: int) -> tuple[int, Memory, Memory]:
    """Run until nothing is left (DONE), a signature is needed (NEEDS), ``budget`` events have run (PAUSED), or the
    input is broken (BROKEN). May be called again after NEEDS, behind :func:`settle`, and after PAUSED."""
    left = budget
    while h[0] > 0:
        if m[G_NEED] != 0 and h[1] > m[G_NOW]:
            return NEEDS, m, h
        if left <= 0:
            return PAUSED, m, h
        left -= 1
        m[G_EVENTS] += 1
        m, h = with_room(m, h, m[G_ROOM])
        m[G_NOW] = h[1]
        event = pop(h)
        kind = event & 7
        handle = event >> 3
        if kind == E_ARRIVAL:
            arrive(m, h, f, handle)
        elif kind == E_BATCH:
            m, h = run_batch(m, h, f, handle)
        elif kind == E_RECEIVE:
            receive(m, h, f, handle)
        elif kind == E_LINK:
            free_link(m, h, f, handle)
        elif kind == E_ORBIT:
            end, stale = m[handle + MEMBER_END], m[handle + MEMBER_QUEUE]
            register(m, h, m[handle + MEMBER_RANK], end, I_NODE, m[handle + MEMBER_NODE], stale)
        if m[G_BAD] != 0:
            return BROKEN, m, h
    if m[G_NEED] != 0:
        return NEEDS, m, h
    return DONE, m, h
