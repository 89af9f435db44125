"""Streams: the chunks of a collective, phase by phase, and the algorithms of a phase.

A packet is *inserted* (at the start of a phase, and for each received message), passes the endpoint, then, where data
is
reduced, the local memory, and is then *free*: a free packet sends the oldest unsent packet and posts its receive. A
phase ends when all is sent and as many packets are free as the phase keeps in flight.
"""

from __future__ import annotations

from .custom import begin_custom
from .layout import (
    C_CHUNKS,
    C_COUNT,
    C_COUNTER,
    C_NONE,
    C_PHASES,
    C_PRIORITY,
    C_STREAM,
    COLLECTIVE_TAG,
    CUSTOM,
    DIRECT,
    FREE_STREAM,
    G_CONCURRENT,
    G_DIMS,
    G_POLICY,
    G_QUEUES,
    G_QUOTIENT,
    G_STREAM,
    HALVING,
    P_ALGORITHM,
    P_ALLOCATOR,
    P_BYTES,
    P_LEVEL,
    P_NODES,
    P_PROCESSED,
    P_SIZE,
    P_STEPS,
    P_TABLE,
    P_TREE,
    P_TYPE,
    P_WINDOW,
    R_PRIORITY,
    R_QUEUES,
    R_ROBINS,
    R_STREAMS_LEFT,
    R_TRUE,
    S_CALL,
    S_FREE,
    S_INSERTED,
    S_NEXT,
    S_PATH,
    S_PHASE,
    S_PLAIN,
    S_PRIORITY,
    S_QUEUE,
    S_RANK,
    S_RECEIVED,
    S_REDUCED,
    S_SENT,
    S_STARTED,
    S_STATE,
    S_STEPS,
    S_TAG,
    S_TOGGLE,
    S_WORK,
    TREE,
    Memory,
)
from .network import post_receive, post_send
from .packets import bundle, index_in_ring, phase_of, rank_at
from .pools import alloc
from .trees import begin_tree, step_tree

ALL_REDUCE, REDUCE_SCATTER = 0, 7


def allocate_queue(m: Memory, rank: int, phase: int) -> int:
    """Next queue of the phase's dimension and its direction: queue * 4 + 2 when anticlockwise.

    Three round robins per dimension: over all queues (the upper half anticlockwise), over the first half (clockwise),
    over the second half (anticlockwise). They persist from one collective to the next.
    """
    queues = m[G_QUEUES]
    level = m[phase + P_LEVEL]
    cell = m[rank + R_ROBINS] + 3 * level + m[phase + P_ALLOCATOR]
    queue = m[cell]
    kind = m[phase + P_ALLOCATOR]
    reverse = 0
    following = queue + 1
    if kind == 0:
        if queues > 1 and queue >= queues // 2:
            reverse = 2
        if following >= queues:
            following = 0
    elif kind == 1:
        if following >= queues // 2:
            following = 0
    else:
        reverse = 2
        if following >= queues:
            following = queues // 2
    m[cell] = following
    return (level * queues + queue) * 4 + reverse


def choose_tree(m: Memory, rank: int, phase: int) -> int:
    """0 or 1: a double tree gives its two trees in turn, counted per collective type and dimension (not in groups)."""
    cell = m[rank + R_ROBINS] + 3 * m[G_DIMS] + m[phase + P_TREE]
    tree = m[cell]
    m[cell] = 1 - tree
    return tree


def start_streams(m: Memory, h: Memory, f: Memory, rank: int, call: int) -> None:
    """Cut a collective into streams and queue each: started at once where its queue has a free place."""
    chunks = m[call + C_CHUNKS]
    count = m[call + C_COUNT]
    counter = m[call + C_COUNTER]
    priority = m[call + C_PRIORITY]
    if m[G_POLICY] == 0:
        priority = m[rank + R_PRIORITY]
        m[rank + R_PRIORITY] = priority + 1
    elif m[G_POLICY] == 1:
        priority = m[rank + R_PRIORITY]
        m[rank + R_PRIORITY] = priority - 1
    m[rank + R_STREAMS_LEFT] = chunks
    if count == 0:
        return
    for _ in range(chunks):
        stream = alloc(m, FREE_STREAM, m[G_STREAM])
        m[stream + S_RANK] = rank
        m[stream + S_CALL] = call
        m[stream + S_PRIORITY] = priority
        m[stream + S_PHASE] = 0
        for k in range(count):
            phase = m[call + C_PHASES] + P_SIZE * k
            path = 0
            if m[phase + P_ALGORITHM] != CUSTOM:
                path = allocate_queue(m, rank, phase)
            if m[phase + P_ALGORITHM] == TREE:
                path += choose_tree(m, rank, phase)
            m[stream + S_PATH + k] = path
        m[stream + S_TAG] = m[counter] % COLLECTIVE_TAG + COLLECTIVE_TAG
        m[counter] += 1
        queue_stream(m, stream)
        start_waiting(m, h, f, rank, m[stream + S_QUEUE])


def hold_place(m: Memory, rank: int, queue: int) -> int:
    """A stream that runs in a queue and does nothing: stands for one whose end issues the next collective."""
    stream = alloc(m, FREE_STREAM, m[G_STREAM])
    cell = m[rank + R_QUEUES] + 2 * queue
    m[stream + S_RANK] = rank
    m[stream + S_QUEUE] = queue
    m[stream + S_STARTED] = 1
    m[stream + S_NEXT] = 0
    m[cell] = stream
    m[cell + 1] = 1
    return stream


def queue_stream(m: Memory, stream: int) -> None:
    """Put the stream into its phase's queue: behind running streams and behind waiting ones of no lower priority."""
    rank = m[stream + S_RANK]
    queue = m[stream + S_PATH + m[stream + S_PHASE]] // 4
    m[stream + S_QUEUE] = queue
    m[stream + S_STARTED] = 0
    cell = m[rank + R_QUEUES] + 2 * queue
    before = 0
    other = m[cell]
    while other != 0 and (m[other + S_STARTED] == 1 or m[other + S_PRIORITY] >= m[stream + S_PRIORITY]):
        before = other
        other = m[other + S_NEXT]
    m[stream + S_NEXT] = other
    if before == 0:
        m[cell] = stream
    else:
        m[before + S_NEXT] = stream


def unqueue_stream(m: Memory, stream: int) -> None:
    """Take the stream out of its queue's list; its place stays occupied until :func:`release_place`."""
    rank = m[stream + S_RANK]
    cell = m[rank + R_QUEUES] + 2 * m[stream + S_QUEUE]
    other = m[cell]
    if other == stream:
        m[cell] = m[stream + S_NEXT]
        return
    while m[other + S_NEXT] != stream:
        other = m[other + S_NEXT]
    m[other + S_NEXT] = m[stream + S_NEXT]


def release_place(m: Memory, h: Memory, f: Memory, rank: int, queue: int) -> None:
    """A stream has left the queue: the next may start."""
    cell = m[rank + R_QUEUES] + 2 * queue
    m[cell + 1] -= 1
    start_waiting(m, h, f, rank, queue)


def start_waiting(m: Memory, h: Memory, f: Memory, rank: int, queue: int) -> None:
    """Start streams from the place behind the running ones while the queue has room."""
    cell = m[rank + R_QUEUES] + 2 * queue
    stream = m[cell]
    for _ in range(m[cell + 1]):
        stream = m[stream + S_NEXT]
    while stream != 0 and m[cell + 1] < m[G_CONCURRENT]:
        m[stream + S_STARTED] = 1
        begin_phase(m, h, f, stream)
        m[cell + 1] += 1
        stream = m[stream + S_NEXT]


def begin_phase(m: Memory, h: Memory, f: Memory, stream: int) -> None:
    """Start the stream's phase: insert as many packets as it keeps in flight."""
    phase = phase_of(m, stream)
    m[stream + S_STEPS] = m[phase + P_STEPS]
    m[stream + S_INSERTED] = 0
    m[stream + S_SENT] = 0
    m[stream + S_FREE] = 0
    m[stream + S_RECEIVED] = 0
    m[stream + S_PLAIN] = 0
    m[stream + S_WORK] = 0
    m[stream + S_TOGGLE] = 0
    m[stream + S_STATE] = 0
    m[stream + S_REDUCED] = 0
    if m[phase + P_ALGORITHM] == TREE:
        begin_tree(m, h, f, stream, phase)
        return
    if m[phase + P_ALGORITHM] == CUSTOM:
        begin_custom(m, h, f, stream)
        return
    for _ in range(m[phase + P_WINDOW]):
        insert_packet(m, h, f, stream, phase)


def insert_packet(m: Memory, h: Memory, f: Memory, stream: int, phase: int) -> None:
    """Insertions come in rounds: ``window`` without local work, then ``processed`` with it where data is reduced (an
    all-reduce: in every other round, the first being one)."""
    window = m[phase + P_WINDOW]
    if m[stream + S_PLAIN] == 0 and m[stream + S_WORK] == 0:
        m[stream + S_PLAIN] = window
        m[stream + S_WORK] = m[phase + P_PROCESSED]
        m[stream + S_TOGGLE] = 1 - m[stream + S_TOGGLE]
    size = m[phase + P_BYTES]
    if m[phase + P_ALGORITHM] == HALVING:
        size = m[m[phase + P_TABLE] + 2 * m[stream + S_INSERTED] + 1]
    m[stream + S_INSERTED] += 1
    if m[stream + S_PLAIN] > 0:
        m[stream + S_PLAIN] -= 1
        bundle(m, h, f, stream, phase, 0, size, 1, 0)
        return
    kind = m[phase + P_TYPE]
    reduces = kind == REDUCE_SCATTER or (kind == ALL_REDUCE and m[stream + S_TOGGLE] == 1)
    returns = 0 if m[stream + S_WORK] <= window else 1
    m[stream + S_WORK] -= 1
    bundle(m, h, f, stream, phase, size if reduces else 0, size, 0, returns)


def send_packet(m: Memory, h: Memory, f: Memory, stream: int, phase: int) -> None:
    """A free packet sends the oldest unsent one and posts the receive that goes with it, if there is any."""
    step = m[stream + S_SENT]
    if step == m[stream + S_INSERTED] or m[stream + S_STEPS] == 0 or m[stream + S_FREE] == 0:
        return
    nodes = m[phase + P_NODES]
    algorithm = m[phase + P_ALGORITHM]
    reverse = m[stream + S_PATH + m[stream + S_PHASE]] & 2
    size = m[phase + P_BYTES]
    index = index_in_ring(m, stream, phase)
    if algorithm == HALVING:
        pair = m[phase + P_TABLE] + 2 * step
        offset = m[pair]
        size = m[pair + 1]
        if offset > 0 and (index // offset) % 2 == 1:
            offset = nodes - offset % nodes
        offset %= nodes
        source = offset
        lane = min(offset, nodes - offset)
        lane_out, back_out, lane_in, back_in = lane, lane, lane, lane
    else:
        offset = 1
        if algorithm == DIRECT:
            offset = step % (nodes - 1) + 1
        if reverse != 0:
            offset = nodes - offset
        source = nodes - offset
        lane_out, back_out, lane_in, back_in = offset, source, offset, source
    to = rank_at(m, stream, phase, index, (index + offset) % nodes)
    come = rank_at(m, stream, phase, index, (index + source) % nodes)
    rank = m[stream + S_RANK]
    tag = m[stream + S_TAG]
    if m[G_QUOTIENT] == 0:
        me = m[rank + R_TRUE]
        lane_out, back_out, lane_in, back_in = me, to, come, me
    post_send(m, h, f, rank, to, lane_out, back_out, tag, size, C_NONE, 0, 0)
    post_receive(m, h, f, rank, come, lane_in, back_in, tag, size, C_STREAM, stream, 0)
    m[stream + S_STEPS] -= 1
    m[stream + S_SENT] += 1
    m[stream + S_FREE] -= 1


def packet_free(m: Memory, h: Memory, f: Memory, stream: int) -> int:
    """A packet has passed endpoint and memory. Returns 1 when the phase is over.

    ``direct`` all-reduce: once the first half is sent, nothing more goes out before the whole first half has come in;
    the next free packet then lets all that wait go.
    """
    phase = phase_of(m, stream)
    algorithm = m[phase + P_ALGORITHM]
    if algorithm == TREE:
        return step_tree(m, h, f, stream, phase, 0)
    window = m[phase + P_WINDOW]
    m[stream + S_FREE] += 1
    half = m[phase + P_NODES] - 1
    if algorithm == DIRECT and m[phase + P_TYPE] == ALL_REDUCE and m[stream + S_STEPS] <= half:
        if m[stream + S_RECEIVED] < half:
            return 0
        for _ in range(window):
            send_packet(m, h, f, stream, phase)
    else:
        send_packet(m, h, f, stream, phase)
    return 1 if m[stream + S_STEPS] == 0 and m[stream + S_FREE] == window else 0


def message_received(m: Memory, h: Memory, f: Memory, stream: int) -> int:
    """A receive of the stream has completed. Returns 1 when the phase is over."""
    phase = phase_of(m, stream)
    if m[phase + P_ALGORITHM] == TREE:
        return step_tree(m, h, f, stream, phase, 1)
    m[stream + S_RECEIVED] += 1
    insert_packet(m, h, f, stream, phase)
    return 0
