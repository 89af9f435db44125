"""Records that come and go, and the event queue.

Semantics of the reference's event queue: events of one time run in the order in which they were scheduled. A rank's own
timers at one time form a batch that runs where its first timer was scheduled, and timers added while it runs join it.
"""

from __future__ import annotations

from .layout import (
    B_FINAL,
    B_FIRST,
    B_NEXT,
    B_RANK,
    B_SIZE,
    B_TIME,
    E_BATCH,
    FREE_BATCH,
    FREE_ITEM,
    G_FREE,
    G_SEQ,
    G_TOP,
    I_A,
    I_B,
    I_KIND,
    I_NEXT,
    I_SIZE,
    R_BATCHES,
    Memory,
)


def grow(pool: Memory) -> Memory:
    """A pool twice as long (interpreted: a list; compiled: :func:`grow_array`)."""
    pool.extend([0] * len(pool))
    return pool


def alloc(m: Memory, kind: int, size: int) -> int:
    """A record of ``size`` cells of the free list ``kind``, whose first cell links free records. Cells keep what they
    held."""
    handle = m[G_FREE + kind]
    if handle != 0:
        m[G_FREE + kind] = m[handle]
        return handle
    handle = m[G_TOP]
    m[G_TOP] = handle + size
    return handle


def free(m: Memory, kind: int, handle: int) -> None:
    """Give a record back."""
    m[handle] = m[G_FREE + kind]
    m[G_FREE + kind] = handle


def with_room(m: Memory, h: Memory, cells: int) -> tuple[Memory, Memory]:
    """Memory and heap with room for what one step may take."""
    while len(m) - m[G_TOP] < cells:
        m = grow(m)
    while len(h) - 3 * h[0] < cells:
        h = grow(h)
    return m, h


def push(m: Memory, heap: Memory, time: int, kind: int, handle: int) -> None:
    """Schedule an event behind all others of its time. ``heap[0]`` counts; then (time, order, handle * 8 + kind)."""
    order = m[G_SEQ]
    m[G_SEQ] = order + 1
    at = heap[0]
    heap[0] = at + 1
    while at > 0:
        above = (at - 1) >> 1
        cell = 1 + 3 * above
        if heap[cell] <= time:  # the newcomer is the latest of its time
            break
        to = 1 + 3 * at
        heap[to] = heap[cell]
        heap[to + 1] = heap[cell + 1]
        heap[to + 2] = heap[cell + 2]
        at = above
    to = 1 + 3 * at
    heap[to] = time
    heap[to + 1] = order
    heap[to + 2] = handle * 8 + kind


def pop(heap: Memory) -> int:
    """Remove the first event; its time is ``heap[1]`` before. Returns handle * 8 + kind."""
    first = heap[3]
    count = heap[0] - 1
    heap[0] = count
    last = 1 + 3 * count
    time = heap[last]
    order = heap[last + 1]
    payload = heap[last + 2]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        cell = 1 + 3 * below
        if below + 1 < count and (
            heap[cell + 3] < heap[cell] or (heap[cell + 3] == heap[cell] and heap[cell + 4] < heap[cell + 1])
        ):
            below += 1
            cell += 3
        if time < heap[cell] or (time == heap[cell] and order < heap[cell + 1]):
            break
        to = 1 + 3 * at
        heap[to] = heap[cell]
        heap[to + 1] = heap[cell + 1]
        heap[to + 2] = heap[cell + 2]
        at = below
    to = 1 + 3 * at
    heap[to] = time
    heap[to + 1] = order
    heap[to + 2] = payload
    return first


def register(m: Memory, h: Memory, rank: int, time: int, kind: int, a: int, b: int) -> None:
    """A timer of ``rank``: joins the rank's batch of that time or opens one."""
    batch = m[rank + R_BATCHES]
    while batch != 0 and m[batch + B_TIME] != time:
        batch = m[batch + B_NEXT]
    if batch == 0:
        batch = alloc(m, FREE_BATCH, B_SIZE)
        m[batch + B_TIME] = time
        m[batch + B_RANK] = rank
        m[batch + B_FIRST] = 0
        m[batch + B_FINAL] = 0
        m[batch + B_NEXT] = m[rank + R_BATCHES]
        m[rank + R_BATCHES] = batch
        push(m, h, time, E_BATCH, batch)
    item = alloc(m, FREE_ITEM, I_SIZE)
    m[item + I_KIND] = kind
    m[item + I_A] = a
    m[item + I_B] = b
    m[item + I_NEXT] = 0
    if m[batch + B_FIRST] == 0:
        m[batch + B_FIRST] = item
    else:
        m[m[batch + B_FINAL] + I_NEXT] = item
    m[batch + B_FINAL] = item


def close_batch(m: Memory, batch: int) -> None:
    """Unlink a batch that has run."""
    rank = m[batch + B_RANK]
    other = m[rank + R_BATCHES]
    if other == batch:
        m[rank + R_BATCHES] = m[batch + B_NEXT]
    else:
        while m[other + B_NEXT] != batch:
            other = m[other + B_NEXT]
        m[other + B_NEXT] = m[batch + B_NEXT]
    free(m, FREE_BATCH, batch)
