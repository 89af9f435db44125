"""Jobs on their way: latency, then bytes at the rate that sharing leaves."""

from __future__ import annotations

from typing import Any

from .agenda import schedule
from .jit import kernel
from .layout import (
    BEFORE,
    BEHIND,
    BOTTLENECK,
    BYTES,
    ENDS,
    FIRST,
    FLOWS,
    FORMER,
    FREE,
    G_FLOWS,
    G_FRESH,
    G_FRESHLY,
    G_MARK,
    G_SEEDED,
    G_SEEDS,
    G_SOLVED,
    HAS_TURN,
    HEAD,
    IDLE,
    LAST,
    LATENCY,
    LATTER,
    LIMIT,
    LIMITED,
    LINK_IN,
    LINK_OUT,
    MARKED,
    NEED,
    NEXT,
    NEXT_BOTTLENECK,
    NEXT_RATE,
    NOW,
    OTHERS,
    OWNER,
    RATE,
    REMAINING,
    RESOURCE,
    ROUND,
    SEED,
    SINCE,
    STATE,
    STRETCH,
    STRETCH_SIZE,
    TIGHTEST,
    TURN,
    TURN_TIME,
    TURNED,
    USE_SIZE,
    USERS,
    USES,
    USES_END,
    WAITS_FORMER,
    WAITS_LATENCY,
)
from .maxmin import fill, gather

NEVER = 1e300  # ns; end of a flow to which the classes before its own leave nothing


@kernel
def begin_job(m: Any, f: Any, job: int) -> None:
    """All have called: the first stretch begins."""
    m[job + STRETCH] = m[job + FIRST]
    begin_stretch(m, f, job)


@kernel
def next_stretch(m: Any, f: Any, job: int) -> bool:
    """What a job waited for has happened. True when it was the last."""
    if m[job + STATE] == WAITS_LATENCY and f[m[job + STRETCH] + BYTES] > 0.0:
        if m[m[job + STRETCH] + TURN] == 1:
            take_turn(m, f, job)
        else:
            begin_flow(m, f, job)
        return False
    if m[job + STATE] == HAS_TURN:
        begin_flow(m, f, job)
        return False
    if m[job + STATE] == FLOWS:
        end_flow(m, f, job)
    m[job + STRETCH] += STRETCH_SIZE
    if m[job + STRETCH] == m[job + LAST]:
        m[job + STATE] = IDLE
        if m[job + NEED] == 0:
            take_others_turns(m, f, job)
        return True
    begin_stretch(m, f, job)
    return False


@kernel
def begin_stretch(m: Any, f: Any, job: int) -> None:
    """Wait for the stretch's latency; a latency of 0 passes at once, as an event of its own."""
    m[job + STATE] = WAITS_LATENCY
    schedule(m, f, job, f[NOW] + f[m[job + STRETCH] + LATENCY])


@kernel
def take_turn(m: Any, f: Any, job: int) -> None:
    """A job is ready for its turn: the first of a round begins when the last round has ended, the others one by one."""
    while job != 0:
        place, former = m[job + TURNED], m[job + FORMER]
        out, into = m[job + LINK_OUT], m[job + LINK_IN]
        if former == 0:
            start = max(f[NOW], f[out + FREE], f[into + FREE])
            end = start + f[job + TURN_TIME]
            f[out + FREE] = f[into + FREE] = start + f[job + ROUND]
        elif m[former + TURNED] <= place:
            m[job + STATE] = WAITS_FORMER
            return
        else:
            end = max(f[NOW] + f[job + TURN_TIME], f[m[former + ENDS] + place] + f[job + BEHIND])
            f[out + FREE] = max(f[out + FREE], end)
            f[into + FREE] = max(f[into + FREE], end)
        f[m[job + ENDS] + place] = end
        m[job + TURNED] = place + 1
        m[job + STATE] = HAS_TURN
        schedule(m, f, job, max(f[NOW], end - f[job + TURN_TIME]))
        job = m[job + LATTER]
        if job == 0:
            return
        if m[job + OTHERS] != 0:
            take_others_turns(m, f, m[job + OTHERS])
        if m[job + STATE] != WAITS_FORMER:
            return


@kernel
def take_others_turns(m: Any, f: Any, job: int) -> None:
    """The turns of the other replicas of a class follow that of the replica before them, round by round."""
    former, place = m[job + FORMER], m[job + TURNED]
    if m[job + STATE] == IDLE and m[former + TURNED] > place:
        m[job + TURNED] = place + 1
        m[job + STRETCH] = m[job + FIRST]
        m[job + STATE] = HAS_TURN
        schedule(m, f, job, max(f[NOW], f[m[former + ENDS] + place]))


@kernel
def begin_flow(m: Any, f: Any, job: int) -> None:
    """A job starts to send: alone on its resources at its limit, else at a rate that :func:`settle` finds."""
    stretch = m[job + STRETCH]
    m[job + STATE] = FLOWS
    f[job + REMAINING] = f[stretch + BYTES]
    f[job + SINCE] = f[NOW]
    f[job + RATE] = 0.0
    shares = False
    for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
        resource = m[use + RESOURCE]
        head = m[resource + HEAD]
        m[use + NEXT] = head
        m[use + BEFORE] = 0
        if head != 0:
            m[head + BEFORE] = use
            shares = True
        m[resource + HEAD] = use
        m[resource + USERS] += 1
    if shares:
        m[m[G_FRESH] + m[G_FRESHLY]] = job
        m[G_FRESHLY] += 1
    else:
        set_rate(m, f, job, f[stretch + LIMIT], m[stretch + TIGHTEST])


@kernel
def end_flow(m: Any, f: Any, job: int) -> None:
    """A job has sent its bytes: those it shared with get their rates anew."""
    if m[job + BOTTLENECK] != 0:
        f[m[job + BOTTLENECK] + LIMITED] += f[NOW] - f[job + SINCE]
    stretch = m[job + STRETCH]
    for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
        resource = m[use + RESOURCE]
        following, former = m[use + NEXT], m[use + BEFORE]
        if former != 0:
            m[former + NEXT] = following
        else:
            m[resource + HEAD] = following
        if following != 0:
            m[following + BEFORE] = former
        m[resource + USERS] -= 1
        if m[resource + USERS] > 0 and m[resource + SEED] == 0:
            m[resource + SEED] = 1
            m[m[G_SEEDS] + m[G_SEEDED]] = resource
            m[G_SEEDED] += 1


@kernel
def set_rate(m: Any, f: Any, job: int, rate: float, bottleneck: int) -> None:
    """Change a job's rate: what it has sent until now counts at the old one."""
    now = f[NOW]
    passed = now - f[job + SINCE]
    if m[job + BOTTLENECK] != 0:
        f[m[job + BOTTLENECK] + LIMITED] += passed
    m[job + BOTTLENECK] = bottleneck
    f[job + REMAINING] = max(0.0, f[job + REMAINING] - f[job + RATE] * passed)
    f[job + SINCE] = now
    f[job + RATE] = rate
    schedule(m, f, job, now + f[job + REMAINING] / rate if rate > 0.0 else NEVER)


@kernel
def settle(m: Any, f: Any) -> None:
    """Rates of all flows that are connected with one that has begun or ended."""
    before = m[G_MARK]
    while m[G_FRESHLY] > 0:
        m[G_FRESHLY] -= 1
        job = m[m[G_FRESH] + m[G_FRESHLY]]
        if f[job + RATE] == 0.0:
            solve(m, f, job)
    while m[G_SEEDED] > 0:
        m[G_SEEDED] -= 1
        resource = m[m[G_SEEDS] + m[G_SEEDED]]
        m[resource + SEED] = 0
        use = m[resource + HEAD]
        while use != 0:
            job = m[use + OWNER]
            if m[job + MARKED] <= before:
                solve(m, f, job)
            use = m[use + NEXT]


@kernel
def solve(m: Any, f: Any, job: int) -> None:
    """Share out the resources of the component of ``job``."""
    m[G_MARK] += 1
    flows = gather(m, job, 0)
    m[G_SOLVED] += flows
    fill(m, f, flows)
    for k in range(flows):
        other = m[m[G_FLOWS] + k]
        rate = f[other + NEXT_RATE]
        if rate == 0.0 or abs(rate - f[other + RATE]) > 1e-12 * rate:
            set_rate(m, f, other, rate, m[other + NEXT_BOTTLENECK])
