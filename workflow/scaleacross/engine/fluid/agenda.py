"""The event loop's queues: items by time, and the ready rows of a slot by number."""

from __future__ import annotations

from typing import Any

from .jit import kernel
from .layout import (
    G_HEAP,
    G_ITEMS,
    G_TOUCHED,
    G_TOUCHES,
    KEY,
    LINE,
    LINE_END,
    LISTED,
    POSITION,
    READY,
    WAITING,
    WAITS,
)


@kernel
def before(f: Any, a: int, b: int) -> bool:
    """Whether item ``a`` comes before ``b``; at equal times the lower address does."""
    return f[a + KEY] < f[b + KEY] or (f[a + KEY] == f[b + KEY] and a < b)


@kernel
def rise(m: Any, f: Any, item: int, at: int) -> None:
    """Move an item up from place ``at``."""
    heap = m[G_HEAP]
    while at > 0:
        parent = (at - 1) >> 1
        other = m[heap + parent]
        if not before(f, item, other):
            break
        m[heap + at] = other
        m[other + POSITION] = at
        at = parent
    m[heap + at] = item
    m[item + POSITION] = at


@kernel
def sink(m: Any, f: Any, item: int, at: int) -> None:
    """Move an item down from place ``at``."""
    heap, items = m[G_HEAP], m[G_ITEMS]
    while True:
        child = 2 * at + 1
        if child >= items:
            break
        other = m[heap + child]
        if child + 1 < items and before(f, m[heap + child + 1], other):
            child += 1
            other = m[heap + child]
        if not before(f, other, item):
            break
        m[heap + at] = other
        m[other + POSITION] = at
        at = child
    m[heap + at] = item
    m[item + POSITION] = at


@kernel
def schedule(m: Any, f: Any, item: int, time: float) -> None:
    """Put an item on the agenda, or move it to another time."""
    at = m[item + POSITION]
    if at < 0:
        f[item + KEY] = time
        m[G_ITEMS] += 1
        rise(m, f, item, m[G_ITEMS] - 1)
    elif time < f[item + KEY]:
        f[item + KEY] = time
        rise(m, f, item, at)
    else:
        f[item + KEY] = time
        sink(m, f, item, at)


@kernel
def take(m: Any, f: Any) -> int:
    """The first item, off the agenda."""
    heap = m[G_HEAP]
    item = m[heap]
    m[item + POSITION] = -1
    m[G_ITEMS] -= 1
    if m[G_ITEMS] > 0:
        sink(m, f, m[heap + m[G_ITEMS]], 0)
    return item


@kernel
def touch(m: Any, slot: int) -> None:
    """Remember that a slot may start something."""
    if m[slot + LISTED] == 0:
        m[slot + LISTED] = 1
        m[m[G_TOUCHED] + m[G_TOUCHES]] = slot
        m[G_TOUCHES] += 1


@kernel
def wait(m: Any, slot: int, row: int) -> None:
    """Add a ready row to its slot."""
    ready, at = m[slot + READY], m[slot + WAITING]
    m[slot + WAITING] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if m[ready + parent] < row:
            break
        m[ready + at] = m[ready + parent]
        at = parent
    m[ready + at] = row


@kernel
def next_waiting(m: Any, slot: int) -> int:
    """The ready row of the lowest number, taken off."""
    ready = m[slot + READY]
    first = m[ready]
    m[slot + WAITING] -= 1
    count = m[slot + WAITING]
    row = m[ready + count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and m[ready + child + 1] < m[ready + child]:
            child += 1
        if m[ready + child] > row:
            break
        m[ready + at] = m[ready + child]
        at = child
    m[ready + at] = row
    return first


@kernel
def next_row(m: Any, slot: int) -> int:
    """The row that a free slot starts now, 0 for none."""
    place = m[slot + LINE]
    if place == 0:
        return next_waiting(m, slot) if m[slot + WAITING] > 0 else 0
    if place == m[slot + LINE_END] or m[m[place] + WAITS] > 0:
        return 0
    m[slot + LINE] = place + 1
    return m[place]
