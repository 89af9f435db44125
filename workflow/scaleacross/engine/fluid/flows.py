"""What a collective sends, phase by phase and as one: latency, bytes a member sends, loads of ports and uplinks.

Sources of the step counts: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH"
(2005) for ring and halving-doubling; ASTRA-sim's analytical backend for what a message, a window and a reduction are
(see ``engine.plan``). A rank sends its messages one after the other or shares its port between them, so n - 1 parallel
messages of ``direct`` take n - 1 message times on one port, whatever the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from ...trace.columns import ALL_REDUCE, REDUCE_SCATTER
from ..kernel import layout
from ..plan import Phase, Plan, tree_table
from ..settings import Config
from .fabric import Fabric, Level, ring_hops

Lane = tuple[Any, ...]  # which port of a level
Key = TypeVar("Key")
Loads = dict[tuple[int, Lane], float]  # (level, lane) -> load of a port for one byte that a member sends
OUT: Lane = ("out",)
IN: Lane = ("in",)
MANY_PEERS = 32  # of fully connected levels, from which direct loads all links as one
PASSES = 3  # over local memory for a reduction, as in ASTRA-sim


@dataclass(frozen=True)
class Transfer:
    """A phase of a collective, or all of them as one: every member sends at one rate, after a time that bandwidth does
    not change.

    Attributes:
        latency: ns. size: bytes that its rate counts (of a phase, what a member sends).
        limit: bytes per ns at most.
        ports: loads of the ports of every member. uplinks: loads that every member puts on the uplinks above it.
        spread: loads that differ between members (groups); ports and uplinks are empty then.
        dims: network dimension -> bytes sent on it for a byte of the size.
        held: level -> ns for which its ports limit phases, of all of them as one.
    """

    latency: float
    size: float
    limit: float = math.inf
    ports: Loads = field(default_factory=dict)
    uplinks: Loads = field(default_factory=dict)
    spread: Any = None
    dims: dict[int, float] = field(default_factory=dict)
    held: dict[int, float] = field(default_factory=dict)

    @property
    def levels(self) -> set[int]:
        """Levels whose ports it uses."""
        return {k for k, _ in (self.spread.ports if self.spread else self.ports)}

    def port_limit(self, fabric: Fabric) -> tuple[float, int]:
        """Bytes per ns that the ports of the busiest member let through, and the level that sets it (-1: none)."""
        loads = {key: float(load.max()) for key, load in self.spread.ports.items()} if self.spread else self.ports
        rates = [(fabric.port_rate(k, links_in(lane)) / load, k) for (k, lane), load in loads.items() if load]
        return min([(self.limit, -1), *rates])


@dataclass(frozen=True, slots=True)
class Local:
    """What an endpoint costs: ns a message, bytes per ns of local memory."""

    endpoint: float
    memory: float

    def reduction(self, size: int) -> int:
        """Nanoseconds of reducing ``size`` bytes: three passes, each truncated to whole ns as in the reference."""
        return PASSES * int(size / self.memory)


def local_costs(config: Config, injection_scale: float, group: bool) -> Local:
    """Endpoint delay (10 ns for groups smaller than the world, as in the reference) and memory of a configuration."""
    endpoint = 10 if group else int(config.system.endpoint_delay * injection_scale)
    return Local(float(endpoint), config.system.local_mem_bandwidth or math.inf)


def rounds(messages: int, window: int) -> int:
    """Times that a latency is waited for when ``window`` of ``messages`` are in flight."""
    return -(-messages // window)


def fixed_time(phase: Phase, local: Local) -> float:
    """Endpoint delays and reductions of a phase, ns.

    Every algorithm that reduces does so with n - 1 blocks a member. (The reference leaves some out: of direct it
    reduces one block in two windows, of halving-doubling all but the first and largest.)
    """
    others = phase.nodes - 1
    if phase.algorithm == layout.TREE:
        depth = tree_depth(phase.nodes)
        return (2 * depth + 1) * local.endpoint + 2 * depth * local.reduction(phase.size)
    steps, reduced = phase.steps, others * local.reduction(phase.size)
    if phase.algorithm == layout.HALVING:
        halves = phase.table[: phase.steps // 2] if phase.comm_type == ALL_REDUCE else phase.table[: phase.steps]
        reduced = sum(local.reduction(size) for _, size in halves)
    elif phase.algorithm == layout.DIRECT:
        steps = rounds(others, phase.window) * (phase.steps // others)
    return (steps + 1) * local.endpoint + (reduced if phase.comm_type in (ALL_REDUCE, REDUCE_SCATTER) else 0)


def dimension_transfers(fabric: Fabric, phase: Phase, local: Local) -> list[Transfer]:
    """The transfers of a phase over one whole network dimension."""
    d = phase.dimension
    k = fabric.level_of[d]
    level, n = fabric.levels[k], phase.nodes
    fixed = fixed_time(phase, local)
    if phase.algorithm == layout.RING:
        return [_transfer(fabric, k, d, fixed + phase.steps * level.latency, phase.steps * phase.size, {1: 1.0})]
    if phase.algorithm == layout.DIRECT:
        return [_direct(fabric, k, d, phase, fixed)]
    if phase.algorithm == layout.HALVING:
        return _halving(fabric, k, d, phase, fixed)
    depth = tree_depth(n)
    busiest = sum(tree_fans(n)) if level.topology == "Switch" else depth
    hops = n // 2 if level.topology == "Ring" else 1
    offsets = dict.fromkeys(range(1, n), 1.0)
    latency = fixed + 2 * depth * hops * level.latency
    return [_transfer(fabric, k, d, latency, 2 * busiest * phase.size, offsets, spread_evenly=False)]


def _direct(fabric: Fabric, k: int, d: int, phase: Phase, fixed: float) -> Transfer:
    level, n, w = fabric.levels[k], phase.nodes, phase.window
    times = phase.steps // (n - 1)
    offsets = dict.fromkeys(range(1, n), 1.0 / (n - 1))
    if level.topology == "Ring":
        hops = [ring_hops(o, n) for o in range(1, n)]
        latency = level.latency * sum(max(hops[k : k + w]) for k in range(0, n - 1, w))
        link = level.uplink / level.unit
        limit = math.inf if w >= n - 1 else link * (n - 1) / sum(hops)
    else:
        latency = level.latency * rounds(n - 1, w)
        limit = min(w, n - 1) * level.port
    made = _transfer(fabric, k, d, fixed + times * latency, phase.steps * phase.size, offsets)
    return replace(made, limit=limit)


def _halving(fabric: Fabric, k: int, d: int, phase: Phase, fixed: float) -> list[Transfer]:
    """On a Switch all steps load the same port; elsewhere each has a link, or a distance, of its own."""
    level, n = fabric.levels[k], phase.nodes
    steps = phase.table[: phase.steps]
    if level.topology == "Switch":
        latency = fixed + len(steps) * level.latency
        return [_transfer(fabric, k, d, latency, sum(size for _, size in steps), {1: 1.0})]
    made = []
    for number, (offset, size) in enumerate(steps):
        hops = ring_hops(offset, n) if level.topology == "Ring" else 1
        latency = hops * level.latency + (fixed if number == 0 else 0)
        both = {offset: 1.0, n - offset: 1.0}  # a member's partner is ahead of it or behind
        made.append(_transfer(fabric, k, d, latency, size, both, spread_evenly=False))
    return made


def _transfer(
    fabric: Fabric, k: int, d: int, latency: float, size: float, offsets: dict[int, float], spread_evenly: bool = True
) -> Transfer:
    """A transfer in dimension ``d`` of level ``k``; ``offsets``: share of the bytes that goes so many places on.

    ``spread_evenly=False``: the shares don't add up to 1, because not every member uses each of these lanes.
    """
    level = fabric.levels[k]
    links: dict[Lane, float] = {}
    ports: dict[Lane, float] = {}
    for offset, share in offsets.items():
        for lane, hops in lanes_of(level, ((d, offset, fabric.shape[d]),)):
            links[lane] = links.get(lane, 0.0) + hops * share
            ports[lane] = ports.get(lane, 0.0) + (share if fabric.tiered else hops * share)
    if level.topology == "FullyConnected" and len(links) >= MANY_PEERS:
        links = ports = {("peers", len(links)): sum(offsets.values())}
    if level.topology == "Switch" and not spread_evenly:
        links = ports = {OUT: 1.0, IN: 1.0}
    loads, above = _loads(fabric, k, ports), _loads(fabric, k, links)
    return Transfer(latency, float(size), ports=loads, uplinks=above, dims={d: 1.0})


def lanes_of(level: Level, steps: Sequence[tuple[int, int, int]]) -> list[tuple[Lane, float]]:
    """Links of a level that a message uses, with how many of each. ``steps``: (dimension, steps forward, size).

    On a ring it passes units in between: of plain dimensions their ports, of tiers only their uplinks.
    """
    if level.topology == "Switch":
        return [(OUT, 1.0), (IN, 1.0)]
    if level.topology == "FullyConnected":
        return [(("peer", *((d, offset) for d, offset, _ in steps)), 1.0)]
    lanes: list[tuple[Lane, float]] = []
    for d, offset, size in steps:
        forward = 2 * offset <= size
        lanes.append((("ring", d, 1 if forward else -1), float(offset if forward else size - offset)))
    return lanes


def links_in(lane: Lane) -> int:
    """How many links a lane stands for."""
    return int(lane[1]) if lane[0] == "peers" else 1


def _loads(fabric: Fabric, top: int, lanes: dict[Lane, float]) -> Loads:
    loads: Loads = {(top, lane): load for lane, load in lanes.items()}
    for below in fabric.chain(top)[:-1]:
        loads[below, OUT] = loads[below, IN] = 1.0
    return loads


def as_one(fabric: Fabric, phases: Sequence[Sequence[Transfer]], plan: Plan, window: int) -> Transfer:
    """All phases and chunks of a collective as one transfer: latencies, then every byte, all resources loaded evenly.

    It takes as long as ports make it: the first chunk goes through its phases one after the other; the others overlap
    in different dimensions and share ports where phases use the same, ``window`` of them in flight in a dimension, so
    that they hide each other's latency. Uplinks have no part in that; they are shared as long as it takes. Every byte
    is sent within the rates of ports and uplinks, so that no number of chunks undercuts the bandwidth bound.

    Fair shares are shares of a rate. What it counts are bytes that a member sends out of its node (inside it where
    nothing leaves; on a network without tiers, in the dimension that carries most, the first left out), whatever the
    bandwidths.
    """
    first = [transfer for phase in phases for transfer in phase]
    rest = plan.chunks - 1
    latency = sum(transfer.latency for transfer in first)
    sent: dict[int, float] = {}
    held: dict[int, float] = {}
    time = 0.0
    for transfer in first:
        limit, level = transfer.port_limit(fabric)
        time += transfer.size / limit
        held[level] = held.get(level, 0.0) + transfer.size / limit
        for k in transfer.levels:
            sent[k] = sent.get(k, 0.0) + transfer.size
    size = max([sent[k] for k in sent if k > 0] or [*sent.values(), 0.0])
    if size == 0:
        return Transfer(latency, 0.0)
    shares = [(transfer, transfer.size / size) for transfer in first]
    merged = Transfer(
        latency=latency,
        size=size,
        limit=min(size * transfer.limit / transfer.size for transfer in first if transfer.size),
        ports=_added([(transfer.ports, share) for transfer, share in shares]),
        uplinks=_added([(transfer.uplinks, share) for transfer, share in shares]),
        spread=first[0].spread.added([(t.spread, share) for t, share in shares]) if first[0].spread else None,
        dims=_added([(transfer.dims, share) for transfer, share in shares]),
    )
    if rest:
        limit, level = merged.port_limit(fabric)
        time += rest * size / limit
        held[level] = held.get(level, 0.0) + rest * size / limit
        waits = [sum(transfer.latency for transfer in phase) for phase in phases]
        levels = [phase.level for phase in plan.phases]
        most = max(sum(wait for wait, own in zip(waits, levels, strict=True) if own == k) for k in levels)
        latency += (rounds(plan.chunks, window) - 1) * most
    held.pop(-1, None)
    whole = size * plan.chunks
    return replace(merged, latency=latency, size=whole, limit=whole / time if time else math.inf, held=held)


def _added(parts: Sequence[tuple[dict[Key, float], float]]) -> dict[Key, float]:
    loads: dict[Key, float] = {}
    for part, share in parts:
        for key, load in part.items():
            loads[key] = loads.get(key, 0.0) + load * share
    return loads


@cache
def tree_fans(nodes: int) -> tuple[int, ...]:
    """Most children that a place has, at each depth of the first tree of a double binary tree."""
    table = tree_table(nodes)
    fans: dict[int, int] = {}
    for place in range(nodes):
        parent, left, right = table[3 * place : 3 * place + 3]
        depth = 0
        while parent >= 0:
            depth, parent = depth + 1, table[3 * parent]
        fans[depth] = max(fans.get(depth, 0), (left >= 0) + (right >= 0))
    return tuple(fans[depth] for depth in sorted(fans) if fans[depth])


def tree_depth(nodes: int) -> int:
    """Levels between the root and the lowest leaf."""
    return len(tree_fans(nodes))
