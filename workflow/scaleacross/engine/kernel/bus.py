"""The shared bus between a rank's endpoint and its memory (``model-shared-bus``), two links deep.

Each link has two sides of LogGP kind: a side sends one request at a time, and while one side sends, the other
receives. Behind the endpoint's side lies a second, faster link that every request crosses first (or last); work that
a reduction asks for is done there one request after the other. Sides: 0 endpoint, 1 memory, and 2, 3 the same of the
inner link.
"""

from __future__ import annotations

from .layout import (
    FREE_REQUEST,
    G_DIMS,
    G_NOW,
    G_REDUCE,
    I_BUS,
    Q_BYTES,
    Q_EVENT,
    Q_NEXT,
    Q_OUTER,
    Q_PROCESSED,
    Q_RETURNS,
    Q_SIDE,
    Q_SIZE,
    Q_STREAM,
    Q_WORK,
    R_BUS,
    V_BEFORE,
    V_BUSY,
    V_G,
    V_L,
    V_LAST,
    V_O,
    V_QUEUES,
    V_RANK,
    V_READS,
    V_SIDE,
    V_SIZE,
    V_STATE,
    V_WAITING,
    Memory,
)
from .pools import alloc, free, register

IDLE, SENDING, RECEIVING = range(3)
SEND_DONE, RECEIVE_DONE, WORK_DONE, RETIRE, PROCESS, GIVE_BACK = range(6)
TO_SEND, RECEIVED, TO_PROCESS = 0, 2, 4  # queues of a side: head and tail cells
THRESHOLD = 8  # requests in a row before the other side goes first


def side_of(m: Memory, rank: int, which: int) -> int:
    """Record of a rank's side 0 .. 3."""
    return m[rank + R_BUS] + which * V_SIZE


def append(m: Memory, side: int, queue: int, request: int) -> None:
    """Put a request at the end of a side's queue."""
    cell = side + V_QUEUES + queue
    m[request + Q_NEXT] = 0
    if m[cell] == 0:
        m[cell] = request
    else:
        m[m[cell + 1] + Q_NEXT] = request
    m[cell + 1] = request
    if queue == RECEIVED:
        m[side + V_WAITING] += 1


def take(m: Memory, side: int, queue: int) -> int:
    """The first request of a side's queue."""
    cell = side + V_QUEUES + queue
    request = m[cell]
    m[cell] = m[request + Q_NEXT]
    if queue == RECEIVED:
        m[side + V_WAITING] -= 1
    return request


def send_next(m: Memory, h: Memory, f: Memory, side: int) -> None:
    """The first waiting request crosses the link to the other side."""
    now = m[G_NOW]
    offset = m[side + V_O]
    since = now - m[side + V_LAST]
    if m[side + V_BEFORE] == SENDING and m[side + V_O] + since <= m[side + V_G]:
        offset = m[side + V_G] - since
    request = take(m, side, TO_SEND)
    other = side + V_SIZE if m[side + V_SIDE] % 2 == 0 else side - V_SIZE
    append(m, other, RECEIVED, request)
    m[other + V_BEFORE] = m[other + V_STATE]
    m[other + V_STATE] = RECEIVING
    m[other + V_READS] = 0
    gap = f[2 * m[G_DIMS] + 1 + m[side + V_SIDE] // 2]
    last = m[request + Q_BYTES] - 1
    rank = m[side + V_RANK]
    register(m, h, rank, now + int(offset + last * gap + m[side + V_L] + m[side + V_O]), I_BUS, other, RECEIVE_DONE)
    m[side + V_STATE] = SENDING
    register(m, h, rank, now + int(offset + gap * last), I_BUS, side, SEND_DONE)


def go_on(m: Memory, h: Memory, f: Memory, side: int) -> None:
    """An idle side with something to send sends, unless it is the other's turn."""
    if m[side + V_STATE] != IDLE or m[side + V_QUEUES + TO_SEND] == 0:
        return
    other = side + V_SIZE if m[side + V_SIDE] % 2 == 0 else side - V_SIZE
    if m[side + V_READS] > THRESHOLD and m[other + V_QUEUES + TO_SEND] != 0 and m[other + V_READS] <= THRESHOLD:
        if m[other + V_STATE] == IDLE:
            send_next(m, h, f, other)
        return
    send_next(m, h, f, side)


def request_on(m: Memory, side: int, size: int, processed: int, returns: int) -> int:
    """A new request, waiting at a side."""
    request = alloc(m, FREE_REQUEST, Q_SIZE)
    m[request + Q_SIDE] = side
    m[request + Q_BYTES] = size
    m[request + Q_PROCESSED] = processed
    m[request + Q_RETURNS] = returns
    m[request + Q_OUTER] = 0
    append(m, side, TO_SEND, request)
    return request


def inner(m: Memory, h: Memory, f: Memory, side: int, request: int, event: int, which: int, returns: int) -> None:
    """An endpoint's request crosses the inner link from side ``which``; ``event`` then happens to it."""
    m[request + Q_EVENT] = event
    m[request + Q_SIDE] = side
    start = side_of(m, m[side + V_RANK], which)
    crossing = request_on(m, start, m[request + Q_BYTES], 0, returns)
    m[crossing + Q_OUTER] = request
    go_on(m, h, f, start)


def enter_bus(
    m: Memory, h: Memory, f: Memory, rank: int, stream: int, size: int, work: int, to_memory: int, returns: int
) -> None:
    """A packet crosses the bus, from the endpoint to the memory or back."""
    size = (size + 2**31) % 2**32 - 2**31  # the reference keeps it in 32 bits
    if to_memory == 0:
        side = side_of(m, rank, 1)
        request = request_on(m, side, size, 1 if work > 0 else 0, returns)
        m[request + Q_STREAM] = stream
        m[request + Q_WORK] = work
        go_on(m, h, f, side)
        return
    side = side_of(m, rank, 0)
    request = alloc(m, FREE_REQUEST, Q_SIZE)
    m[request + Q_BYTES] = size
    m[request + Q_PROCESSED] = 1 if work > 0 else 0
    m[request + Q_RETURNS] = returns
    m[request + Q_OUTER] = 0
    m[request + Q_STREAM] = stream
    m[request + Q_WORK] = work
    inner(m, h, f, side, request, GIVE_BACK, 3, 0)


def start_work(m: Memory, h: Memory, side: int) -> None:
    """An idle side with something to process processes it."""
    request = m[side + V_QUEUES + TO_PROCESS]
    if m[side + V_BUSY] == 0 and request != 0:
        m[side + V_BUSY] = 1
        wait = m[request + Q_BYTES] // 100 * m[G_REDUCE] + 50
        register(m, h, m[side + V_RANK], m[G_NOW] + wait, I_BUS, side, WORK_DONE)


def hand_on(m: Memory, h: Memory, f: Memory, side: int, request: int) -> int:
    """A request that has crossed (and was processed): back over the link, or done. Returns it when it is done here."""
    endpoint = m[side + V_SIDE] == 0
    if m[request + Q_RETURNS] == 1:
        m[request + Q_RETURNS] = 0
        if endpoint:
            inner(m, h, f, side, request, GIVE_BACK, 2, 1)
        else:
            append(m, side, TO_SEND, request)
        return 0
    if endpoint:
        inner(m, h, f, side, request, RETIRE, 2, 0)
        return 0
    return request


def bus_event(m: Memory, h: Memory, f: Memory, side: int, event: int, request: int) -> int:
    """Something ends at a side. Returns a request that is done there, or 0. :func:`go_on` follows."""
    if event == SEND_DONE:
        m[side + V_LAST] = m[G_NOW]
        m[side + V_BEFORE] = m[side + V_STATE]
        m[side + V_STATE] = IDLE
        m[side + V_READS] += 1
    elif event == RECEIVE_DONE:
        m[side + V_LAST] = m[G_NOW]
        m[side + V_BEFORE] = m[side + V_STATE]
        if m[side + V_WAITING] < 2:
            m[side + V_STATE] = IDLE
        request = take(m, side, RECEIVED)
        if m[request + Q_PROCESSED] == 0:
            return hand_on(m, h, f, side, request)
        m[request + Q_PROCESSED] = 0
        if m[side + V_SIDE] == 0:
            inner(m, h, f, side, request, PROCESS, 2, 1)
        else:
            append(m, side, TO_PROCESS, request)
        start_work(m, h, side)
    elif event == WORK_DONE:
        request = take(m, side, TO_PROCESS)
        m[side + V_BUSY] = 0
        done = hand_on(m, h, f, side, request)
        start_work(m, h, side)
        return done
    elif event == PROCESS:
        append(m, side, TO_PROCESS, request)
        start_work(m, h, side)
    elif event == GIVE_BACK:
        append(m, side, TO_SEND, request)
    else:
        return request
    return 0


def drop(m: Memory, request: int) -> None:
    """Give a request's record back."""
    free(m, FREE_REQUEST, request)
