"""Messages in the two network models, and the matching of sends with receives."""

from __future__ import annotations

from .layout import (
    C_NODE,
    C_REAL_RECEIVE,
    C_REAL_SEND,
    E_ARRIVAL,
    E_LINK,
    E_RECEIVE,
    FREE_MESSAGE,
    G_AWARE,
    G_BAD,
    G_BUCKET,
    G_DIMS,
    G_LINK,
    G_MASK,
    G_NOW,
    G_NPUS,
    G_RENDEZVOUS,
    G_SHAPE,
    G_SIM_OF,
    G_TOPOLOGY,
    M_ARRIVED,
    M_AT,
    M_BEFORE,
    M_BUCKET,
    M_BYTES,
    M_CALLBACK,
    M_DST,
    M_KIND,
    M_LANE,
    M_NEXT,
    M_QUEUE,
    M_RECEIVER,
    M_SIZE,
    M_SRC,
    M_TAG,
    M_TIME,
    M_TO,
    POSTED,
    R_SENT,
    R_TRUE,
    RENDEZVOUS_BYTES,
    RENDEZVOUS_TAG,
    SENT,
    W_START,
    Memory,
)
from .pools import alloc, free, push


def dimension(m: Memory, dims: int, src: int, dst: int) -> int:
    """The dimension that carries a message: the first in which the ranks differ (-1: none)."""
    for d in range(dims):
        size = m[m[G_SHAPE] + 3 * d]
        stride = m[m[G_SHAPE] + 3 * d + 1]
        if (src // stride) % size != (dst // stride) % size:
            return d
    return -1


def delay(m: Memory, f: Memory, dims: int, src: int, dst: int, size: int) -> int:
    """Congestion-unaware time: trunc(hops x latency + bytes / bandwidth) on the one dimension that is charged.

    Hops: shortest way round a Ring, 1 in a FullyConnected, 2 through a Switch.
    """
    d = dimension(m, dims, src, dst)
    nodes = m[m[G_SHAPE] + 3 * d]
    stride = m[m[G_SHAPE] + 3 * d + 1]
    topology = m[m[G_SHAPE] + 3 * d + 2]
    hops = 1
    if topology == 0:
        hops = ((dst // stride) % nodes - (src // stride) % nodes) % nodes
        if nodes - hops < hops:
            hops = nodes - hops
    elif topology == 2:
        hops = 2
    return int(hops * f[d] + size / f[dims + d])


def displacement(m: Memory, dims: int, src: int, dst: int) -> int:
    """How far ``dst`` is from ``src`` in each dimension, as one number: equal for pairs that are translated images."""
    total = 0
    for d in range(dims):
        size = m[m[G_SHAPE] + 3 * d]
        stride = m[m[G_SHAPE] + 3 * d + 1]
        total += (((dst // stride) % size - (src // stride) % size) % size) * stride
    return total


def next_link(m: Memory, at: int, to: int) -> int:
    """The link that a message at device ``at`` takes towards rank ``to``. A switch is device number NPUS."""
    npus = m[G_NPUS]
    if m[G_TOPOLOGY] == 0:
        clockwise = (to - at) % npus
        return 2 * at + (1 if npus - clockwise < clockwise else 0)
    if m[G_TOPOLOGY] == 1:
        return at * npus + to
    return npus + to if at == npus else at


def next_device(m: Memory, at: int, to: int) -> int:
    """Where :func:`next_link` leads."""
    npus = m[G_NPUS]
    if m[G_TOPOLOGY] == 0:
        clockwise = (to - at) % npus
        return (at - 1) % npus if npus - clockwise < clockwise else (at + 1) % npus
    if m[G_TOPOLOGY] == 1 or at == npus:
        return to
    return npus


def occupy_link(m: Memory, h: Memory, f: Memory, link: int, message: int) -> None:
    """Start a transmission: arrival at the next device after trunc(latency + bytes / bandwidth), the link is free after
    trunc(bytes / bandwidth). Both are scheduled here, the arrival first."""
    m[link] = 1
    seconds = m[message + M_BYTES] / f[1]
    now = m[G_NOW]
    push(m, h, now + int(f[0] + seconds), E_ARRIVAL, message)
    push(m, h, now + int(seconds), E_LINK, link)


def take_link(m: Memory, h: Memory, f: Memory, message: int) -> None:
    """Send over the next link of the route, or wait for it in arrival order."""
    link = m[G_LINK] + 3 * next_link(m, m[message + M_AT], m[message + M_TO])
    if m[link] == 0:
        occupy_link(m, h, f, link, message)
        return
    m[message + M_QUEUE] = 0
    if m[link + 1] == 0:
        m[link + 1] = message
    else:
        m[m[link + 2] + M_QUEUE] = message
    m[link + 2] = message


def free_link(m: Memory, h: Memory, f: Memory, link: int) -> None:
    """The link is free: the next waiting message goes."""
    m[link] = 0
    message = m[link + 1]
    if message != 0:
        m[link + 1] = m[message + M_QUEUE]
        occupy_link(m, h, f, link, message)


def match(m: Memory, tag: int, dst: int, lane: int, size: int, kind: int) -> int:
    """Take the oldest record of ``kind`` with this key out of the table (0: none): nth send meets nth receive."""
    mixed = (tag * 1000003 + dst) * 1000003 + lane * 8191 + size
    bucket = m[G_BUCKET] + 2 * ((mixed ^ (mixed >> 17)) & m[G_MASK])
    found = m[bucket]
    while found != 0 and (
        m[found + M_TAG] != tag
        or m[found + M_DST] != dst
        or m[found + M_LANE] != lane
        or m[found + M_BYTES] != size
        or m[found + M_KIND] != kind
    ):
        found = m[found + M_NEXT]
    if found != 0:
        before = m[found + M_BEFORE]
        after = m[found + M_NEXT]
        if before == 0:
            m[bucket] = after
        else:
            m[before + M_NEXT] = after
        if after == 0:
            m[bucket + 1] = before
        else:
            m[after + M_BEFORE] = before
    return found


def record(m: Memory, tag: int, dst: int, lane: int, size: int, kind: int) -> int:
    """A new record of ``kind`` with this key at the end of its bucket."""
    handle = alloc(m, FREE_MESSAGE, M_SIZE)
    mixed = (tag * 1000003 + dst) * 1000003 + lane * 8191 + size
    bucket = m[G_BUCKET] + 2 * ((mixed ^ (mixed >> 17)) & m[G_MASK])
    m[handle + M_KIND] = kind
    m[handle + M_TAG] = tag
    m[handle + M_DST] = dst
    m[handle + M_LANE] = lane
    m[handle + M_BYTES] = size
    m[handle + M_BUCKET] = bucket
    m[handle + M_NEXT] = 0
    m[handle + M_BEFORE] = m[bucket + 1]
    m[handle + M_CALLBACK] = 0
    m[handle + M_RECEIVER] = 0
    m[handle + M_ARRIVED] = 0
    if m[bucket + 1] == 0:
        m[bucket] = handle
    else:
        m[m[bucket + 1] + M_NEXT] = handle
    m[bucket + 1] = handle
    return handle


def send_now(
    m: Memory,
    h: Memory,
    f: Memory,
    src: int,
    dst_true: int,
    lane: int,
    tag: int,
    size: int,
    kind: int,
    a: int,
    b: int,
) -> None:
    """Put a message on the network. ``kind, a, b``: what happens at the sender when it arrives."""
    dst = m[m[G_SIM_OF] + dst_true]
    src_true = m[src + R_TRUE]
    if size <= 0 or dst_true == src_true:
        m[G_BAD] = 1
        return
    posted = match(m, tag, dst, lane, size, POSTED)
    if posted == 0:
        handle = record(m, tag, dst, lane, size, SENT)
    else:
        handle = posted
        m[handle + M_KIND] = 0
        if m[handle + M_RECEIVER] == C_NODE:  # a receive operator: its transfer starts now
            m[m[handle + M_RECEIVER + 1] + W_START] = m[G_NOW]
    m[handle + M_SRC] = src
    m[handle + M_CALLBACK] = kind
    m[handle + M_CALLBACK + 1] = a
    m[handle + M_CALLBACK + 2] = b
    m[handle + M_ARRIVED] = 0
    m[handle + M_TIME] = m[G_NOW]
    d = dimension(m, m[G_DIMS], src_true, dst_true)
    m[m[src + R_SENT] + d] += size
    if m[G_AWARE] == 0:
        push(m, h, m[G_NOW] + delay(m, f, m[G_DIMS], src_true, dst_true, size), E_ARRIVAL, handle)
    else:
        m[handle + M_AT] = src_true
        m[handle + M_TO] = dst_true
        take_link(m, h, f, handle)


def receive_now(m: Memory, h: Memory, dst: int, lane: int, tag: int, size: int, kind: int, a: int, b: int) -> None:
    """Post a receive. A message that has arrived completes it behind the other events of this time."""
    if size <= 0:
        m[G_BAD] = 1
        return
    handle = match(m, tag, dst, lane, size, SENT)
    arrived = 0
    if handle == 0:
        handle = record(m, tag, dst, lane, size, POSTED)
    else:
        m[handle + M_KIND] = 0
        arrived = m[handle + M_ARRIVED]
    m[handle + M_RECEIVER] = kind
    m[handle + M_RECEIVER + 1] = a
    m[handle + M_RECEIVER + 2] = b
    if arrived == 1:
        push(m, h, m[G_NOW], E_RECEIVE, handle)


def waiting(m: Memory, src: int, peer_true: int, lane: int, tag: int, size: int, kind: int, a: int, b: int) -> int:
    """A rendezvous that waits for its handshake: what will be sent or posted then."""
    handle = alloc(m, FREE_MESSAGE, M_SIZE)
    m[handle + M_SRC] = src
    m[handle + M_TO] = peer_true
    m[handle + M_LANE] = lane
    m[handle + M_TAG] = tag
    m[handle + M_BYTES] = size
    m[handle + M_CALLBACK] = kind
    m[handle + M_CALLBACK + 1] = a
    m[handle + M_CALLBACK + 2] = b
    return handle


def post_send(
    m: Memory,
    h: Memory,
    f: Memory,
    src: int,
    dst_true: int,
    lane: int,
    back: int,
    tag: int,
    size: int,
    kind: int,
    a: int,
    b: int,
) -> None:
    """A send; under the rendezvous protocol it first receives the other side's 8 KiB request (``back``: its lane)."""
    if m[G_RENDEZVOUS] == 0:
        send_now(m, h, f, src, dst_true, lane, tag, size, kind, a, b)
        return
    handle = waiting(m, src, dst_true, lane, tag, size, kind, a, b)
    receive_now(m, h, src, back, tag + RENDEZVOUS_TAG, RENDEZVOUS_BYTES, C_REAL_SEND, handle, 0)


def post_receive(
    m: Memory,
    h: Memory,
    f: Memory,
    dst: int,
    src_true: int,
    lane: int,
    back: int,
    tag: int,
    size: int,
    kind: int,
    a: int,
    b: int,
) -> None:
    """A receive; under the rendezvous protocol it is posted when its 8 KiB request has reached the sender."""
    if m[G_RENDEZVOUS] == 0:
        receive_now(m, h, dst, lane, tag, size, kind, a, b)
        return
    handle = waiting(m, dst, src_true, lane, tag, size, kind, a, b)
    tag += RENDEZVOUS_TAG
    send_now(m, h, f, dst, src_true, back, tag, RENDEZVOUS_BYTES, C_REAL_RECEIVE, handle, 0)


def forget(m: Memory, handle: int) -> None:
    """Give a message's record back."""
    free(m, FREE_MESSAGE, handle)
