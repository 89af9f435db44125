"""The event loop: operators start and end, collectives and messages flow.

At each time all that ends is taken first, then what may start is started, then the rates of flows whose resources have
changed hands are computed anew. A flow that shares nothing never meets the solver.
"""

from __future__ import annotations

from typing import Any

from .agenda import next_row, schedule, take, touch, wait
from .flowing import begin_job, next_stretch, settle
from .jit import entry, kernel
from .layout import (
    ARRIVED,
    AXIS,
    BEGIN,
    CAUSE,
    CHANGED,
    CHANNEL,
    CHILD,
    CHILD_END,
    COUNTS,
    DURATION,
    END,
    FINISH,
    G_EVENTS,
    G_FIRST_JOB,
    G_HEAP,
    G_ITEMS,
    G_LEFT,
    G_STACK,
    G_STACKED,
    G_TOUCHED,
    G_TOUCHES,
    JOB,
    KEY,
    KIND,
    LINE,
    LISTED,
    MEMBERS,
    NEED,
    NOW,
    POSTED,
    RECEIVES,
    ROWS_LEFT,
    RUNNING,
    SENDS,
    SENT,
    SEQUENCE,
    SIM,
    SLOT,
    SPENT,
    START,
    WAITS,
)

TIMED, COLLECTIVE, SEND, RECEIVE = range(4)
COMPUTES, QUIET, IDLE_TIME = 6, 7, 7
AXES = 6
DONE, PAUSED = 0, 1


@entry
def run(m: Any, f: Any, budget: int) -> int:
    """Go on until nothing is left to happen (DONE) or ``budget`` events have passed (PAUSED)."""
    end_rows(m, f)
    start_touched(m, f)
    settle(m, f)
    last = m[G_EVENTS] + budget
    while m[G_ITEMS] > 0:
        if m[G_EVENTS] >= last:
            return PAUSED
        now = f[m[m[G_HEAP]] + KEY]
        f[NOW] = now
        while m[G_ITEMS] > 0 and f[m[m[G_HEAP]] + KEY] == now:
            while m[G_ITEMS] > 0 and f[m[m[G_HEAP]] + KEY] == now:
                m[G_EVENTS] += 1
                item = take(m, f)
                if item >= m[G_FIRST_JOB]:
                    if next_stretch(m, f, item):
                        end_job(m, item)
                else:
                    push_ended(m, m[item + RUNNING])
            end_rows(m, f)
            start_touched(m, f)
        settle(m, f)
    return DONE


@kernel
def push_ended(m: Any, row: int) -> None:
    """Note that a row ends now."""
    m[m[G_STACK] + m[G_STACKED]] = row
    m[G_STACKED] += 1


@kernel
def end_job(m: Any, job: int) -> None:
    """All rows that called a job end."""
    for k in range(m[job + ARRIVED]):
        push_ended(m, m[m[job + MEMBERS] + k])
    m[job + ARRIVED] = 0


@kernel
def count(m: Any, f: Any, sim: int, axis: int, change: int) -> None:
    """A row of ``axis`` starts (+1) or ends (-1): the time until now goes to what the rank has done."""
    now = f[NOW]
    passed = now - f[sim + CHANGED]
    if passed > 0:
        spent = IDLE_TIME
        if m[sim + COUNTS + COMPUTES] > 0:
            spent = COMPUTES
        else:
            for k in range(AXES):
                if m[sim + COUNTS + k] > 0:
                    spent = k
                    break
        f[sim + SPENT + spent] += passed
        f[sim + CHANGED] = now
    m[sim + COUNTS + axis] += change


@kernel
def begin(m: Any, f: Any, row: int) -> None:
    """A row's work or communication begins now."""
    f[row + BEGIN] = f[NOW]
    if m[row + AXIS] != QUIET:
        count(m, f, m[row + SIM], m[row + AXIS], 1)


@kernel
def end_rows(m: Any, f: Any) -> None:
    """End every noted row, and what ends with it: slots are free, children may be ready, receives get their message."""
    while m[G_STACKED] > 0:
        m[G_STACKED] -= 1
        row = m[m[G_STACK] + m[G_STACKED]]
        f[row + END] = f[NOW]
        if f[row + BEGIN] >= 0.0 and m[row + AXIS] != QUIET:
            count(m, f, m[row + SIM], m[row + AXIS], -1)
        sim = m[row + SIM]
        m[sim + ROWS_LEFT] -= 1
        m[G_LEFT] -= 1
        if m[sim + ROWS_LEFT] == 0:
            f[sim + FINISH] = f[NOW]
        slot = m[row + SLOT]
        if slot != 0:
            m[slot + RUNNING] = 0
            touch(m, slot)
        if m[row + KIND] == SEND:
            deliver(m, row)
        for k in range(m[row + CHILD], m[row + CHILD_END]):
            child = m[k]
            m[child + WAITS] -= 1
            if m[child + WAITS] == 0:
                m[child + CAUSE] = row
                make_ready(m, f, child)


@kernel
def deliver(m: Any, row: int) -> None:
    """A message has arrived: its receive ends, if it is posted."""
    channel = m[row + CHANNEL]
    if m[row + SEQUENCE] < m[channel + POSTED]:
        receive = m[m[channel + RECEIVES] + m[row + SEQUENCE]]
        m[receive + CAUSE] = row
        push_ended(m, receive)


@entry
def make_all_ready(m: Any, f: Any, rows: Any) -> None:
    """Start a run: the rows (addresses) that wait for nothing are ready."""
    for k in range(len(rows)):
        make_ready(m, f, rows[k])


@kernel
def make_ready(m: Any, f: Any, row: int) -> None:
    """A row's dependencies are met: it waits for its slot, or starts where it needs none."""
    slot = m[row + SLOT]
    if slot != 0:
        if m[slot + LINE] == 0:
            wait(m, slot, row)
        touch(m, slot)
        return
    f[row + START] = f[NOW]
    if m[row + KIND] == RECEIVE:
        post(m, f, row)
    else:
        push_ended(m, row)


@kernel
def post(m: Any, f: Any, row: int) -> None:
    """A receive meets its message: it has arrived, is on the way, or has not been sent."""
    channel = m[row + CHANNEL]
    place = m[channel + POSTED]
    m[channel + POSTED] += 1
    m[row + SEQUENCE] = place
    m[m[channel + RECEIVES] + place] = row
    if place < m[channel + SENT]:
        send = m[m[channel + SENDS] + place]
        if f[send + END] >= 0.0:
            push_ended(m, row)
        else:
            begin(m, f, row)


@kernel
def start_touched(m: Any, f: Any) -> None:
    """Free slots start their next row; what ends at once frees more."""
    k = 0
    while k < m[G_TOUCHES]:
        slot = m[m[G_TOUCHED] + k]
        m[slot + LISTED] = 0
        k += 1
        row = next_row(m, slot) if m[slot + RUNNING] == 0 else 0
        if row != 0:
            start(m, f, slot, row)
    m[G_TOUCHES] = 0


@kernel
def start(m: Any, f: Any, slot: int, row: int) -> None:
    """A row takes its slot."""
    m[slot + RUNNING] = row
    f[row + START] = f[NOW]
    kind = m[row + KIND]
    if kind == TIMED:
        begin(m, f, row)
        schedule(m, f, slot, f[NOW] + f[row + DURATION])
        return
    job = m[row + JOB]
    m[m[job + MEMBERS] + m[job + ARRIVED]] = row
    m[job + ARRIVED] += 1
    if m[job + ARRIVED] == m[job + NEED]:
        for k in range(m[job + ARRIVED]):
            member = m[m[job + MEMBERS] + k]
            begin(m, f, member)
            if f[member + START] < f[NOW]:
                m[member + CAUSE] = row
        begin_job(m, f, job)
    if kind == SEND:
        channel = m[row + CHANNEL]
        place = m[channel + SENT]
        m[channel + SENT] += 1
        m[row + SEQUENCE] = place
        m[m[channel + SENDS] + place] = row
        if place < m[channel + POSTED]:
            begin(m, f, m[m[channel + RECEIVES] + place])
