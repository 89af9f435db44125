"""Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).

All flows of a component grow together. When a resource is full, or a flow reaches its limit, the flows concerned keep
their rate and the others grow on. A flow that loads a resource ``w`` times its rate (the members of a class below one
uplink, say) takes ``w`` shares of it. Traffic classes are served one after the other: each shares what those before
it leave.
"""

from __future__ import annotations

from typing import Any

from .jit import kernel
from .layout import (
    CAPACITY,
    CLASS,
    FIXED,
    G_FLOWS,
    G_MARK,
    G_POOL,
    G_TURNS,
    HEAD,
    LEFT,
    LIMIT,
    LOAD,
    MARKED,
    NEXT,
    NEXT_BOTTLENECK,
    NEXT_RATE,
    OPEN,
    OWNER,
    RESOURCE,
    SEEN,
    STRETCH,
    TIGHTEST,
    TURN,
    USE_SIZE,
    USERS,
    USES,
    USES_END,
    WEIGHT,
)

TIE = 1.0 + 1e-12  # resources that fill up together
TRACE = 1e-9  # share of a resource that turns leave to the others in any case
NOTHING = 1e-12  # share of a capacity that rounding may leave when it is full
UNSERVED, GROWS, SERVED = 0, 1, 2
NO_CLASS = 1 << 30


@kernel
def gather(m: Any, job: int, flows: int) -> int:
    """Add the flows that share resources with ``job``, directly or through others. Returns how many there are."""
    first = m[G_FLOWS]
    m[job + MARKED] = m[G_MARK]
    m[first + flows] = job
    at = flows
    flows += 1
    while at < flows:
        stretch = m[m[first + at] + STRETCH]
        at += 1
        for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
            resource = m[use + RESOURCE]
            if m[resource + SEEN] == m[G_MARK] or m[resource + USERS] < 2:
                continue
            m[resource + SEEN] = m[G_MARK]
            other = m[resource + HEAD]
            while other != 0:
                owner = m[other + OWNER]
                if m[owner + MARKED] != m[G_MARK]:
                    m[owner + MARKED] = m[G_MARK]
                    m[first + flows] = owner
                    flows += 1
                other = m[other + NEXT]
    return flows


@kernel
def fill(m: Any, f: Any, flows: int) -> None:
    """NEXT_RATE and NEXT_BOTTLENECK of the first ``flows`` jobs of the component."""
    pool = _open(m, f, flows)
    unserved = flows
    if m[G_TURNS] == 1:
        unserved -= _fix_turns(m, f, flows)
    while unserved > 0:
        admitted = _admit_class(m, f, flows, pool)
        _fill_class(m, f, flows, pool, admitted)
        unserved -= admitted


@kernel
def _admit_class(m: Any, f: Any, flows: int, pool: int) -> int:
    """Let the flows of the first class without rates share what is left. Returns how many they are."""
    first = NO_CLASS
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        if m[job + FIXED] == UNSERVED:
            first = min(first, m[job + CLASS])
    for k in range(pool):
        resource = m[m[G_POOL] + k]
        if f[resource + LEFT] < NOTHING * f[resource + CAPACITY]:
            f[resource + LEFT] = 0.0
        f[resource + WEIGHT] = 0.0
        m[resource + OPEN] = 0
    admitted = 0
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        if m[job + FIXED] == UNSERVED and m[job + CLASS] == first:
            m[job + FIXED] = GROWS
            admitted += 1
            stretch = m[job + STRETCH]
            for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
                f[m[use + RESOURCE] + WEIGHT] += f[use + LOAD]
                m[m[use + RESOURCE] + OPEN] += 1
    return admitted


@kernel
def _fill_class(m: Any, f: Any, flows: int, pool: int, left: int) -> None:
    """Progressive filling among the ``left`` flows that were admitted."""
    while left > 0:
        level = _tightest_flow(m, f, flows)
        full = 0
        for k in range(pool):
            resource = m[m[G_POOL] + k]
            if m[resource + OPEN] > 0:
                share = f[resource + LEFT] / f[resource + WEIGHT]
                if share < level:
                    level = share
                    full = resource
        if full == 0:
            left -= _fix_limited(m, f, flows, level)
        else:
            for k in range(pool):
                resource = m[m[G_POOL] + k]
                if m[resource + OPEN] > 0 and f[resource + LEFT] <= level * TIE * f[resource + WEIGHT]:
                    left -= _fix_users(m, f, resource, level)


@kernel
def _open(m: Any, f: Any, flows: int) -> int:
    """Make the resources that several flows of the component share ready. Returns how many there are."""
    pool = 0
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        m[job + FIXED] = UNSERVED
        stretch = m[job + STRETCH]
        for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
            resource = m[use + RESOURCE]
            if m[resource + USERS] < 2:
                continue
            if m[resource + SEEN] != -m[G_MARK]:
                m[resource + SEEN] = -m[G_MARK]
                m[m[G_POOL] + pool] = resource
                pool += 1
                f[resource + LEFT] = f[resource + CAPACITY]
    return pool


@kernel
def _tightest_flow(m: Any, f: Any, flows: int) -> float:
    level = 1e300
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        if m[job + FIXED] == GROWS:
            level = min(level, f[m[job + STRETCH] + LIMIT])
    return level


@kernel
def _fix_turns(m: Any, f: Any, flows: int) -> int:
    """What has its turn comes first: it keeps its rate, and the others share what is left, if but a trace."""
    fixed = 0
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        stretch = m[job + STRETCH]
        if m[stretch + TURN] == 1:
            _fix(m, f, job, f[stretch + LIMIT], m[stretch + TIGHTEST])
            fixed += 1
            for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
                resource = m[use + RESOURCE]
                f[resource + LEFT] = max(f[resource + LEFT], TRACE * f[resource + CAPACITY])
    return fixed


@kernel
def _fix_limited(m: Any, f: Any, flows: int, level: float) -> int:
    fixed = 0
    for k in range(flows):
        job = m[m[G_FLOWS] + k]
        stretch = m[job + STRETCH]
        if m[job + FIXED] == GROWS and f[stretch + LIMIT] <= level * TIE:
            _fix(m, f, job, f[stretch + LIMIT], m[stretch + TIGHTEST])
            fixed += 1
    return fixed


@kernel
def _fix_users(m: Any, f: Any, resource: int, level: float) -> int:
    fixed = 0
    use = m[resource + HEAD]
    while use != 0:
        job = m[use + OWNER]
        if m[job + FIXED] == GROWS:
            _fix(m, f, job, level, resource)
            fixed += 1
        use = m[use + NEXT]
    return fixed


@kernel
def _fix(m: Any, f: Any, job: int, rate: float, bottleneck: int) -> None:
    m[job + FIXED] = SERVED
    m[job + NEXT_BOTTLENECK] = bottleneck
    f[job + NEXT_RATE] = rate
    stretch = m[job + STRETCH]
    for use in range(m[stretch + USES], m[stretch + USES_END], USE_SIZE):
        resource = m[use + RESOURCE]
        f[resource + LEFT] = max(0.0, f[resource + LEFT] - rate * f[use + LOAD])
        f[resource + WEIGHT] -= f[use + LOAD]
        m[resource + OPEN] -= 1
