"""Bytes on each dimension, and what the ports could do at best.

A rank's port of a dimension carries at most its bandwidth: a Switch port one link, a Ring port one link a direction, a
FullyConnected port one link a peer. A message that takes several hops of a Ring loads a link in each. Nothing can be
faster than the bytes that its ranks send, spread evenly over these links.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..astra.config_files import NetworkFile
from .assemble import Assembly, Orbit, Signature
from .kernel import layout as L
from .plan import Phase
from .settings import Config
from .use import TierUse

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What all ranks send.

    Attributes:
        bytes_per_dim: of an average rank, by the dimension that the model charges.
        port_ns: float64[classes, dims], what the ports of each class need in all.
        least: least ratio of a collective's time to what its ports need.
        leaving: float64[classes, dims], bytes x links of each class by the highest dimension that they cross; NaN where
            messages are not known one by one (collectives given as traces, replayed operators).
        weights: share of each class among the ranks.
    """

    bytes_per_dim: list[float]
    port_ns: Float64
    least: float
    leaving: Float64
    weights: Float64

    def bound_ratio(self, iteration_ns: int, compute_ns: int) -> float:
        """Least ratio of a time to its lower bound, over the iteration and all collectives."""
        bound = max(float(self.port_ns.max(initial=0.0)), float(compute_ns))
        return min(self.least, iteration_ns / bound if bound > 0 else float("inf"))

    def uses(self, sim_of: Int64, config: Config, iteration_ns: int) -> tuple[TierUse, ...]:
        """Use of each tier; busy is above 1 where the model lets messages share a link for free.

        A GPU has links of its own into the innermost tier: what leaves that tier does not pass them.

        Args:
            sim_of: int64[npus], class of each rank.
        """
        found = []
        sizes, busy = config.network.npus_count, self.port_ns / max(1, iteration_ns)
        for name, dims in tier_dims(config.network):
            unit = math.prod(sizes[: dims[0]])
            beyond = self.leaving[:, dims[0] :] if unit > 1 else self.leaving[:, list(dims)]
            out = beyond.sum(axis=1)[sim_of].reshape(-1, unit).sum(axis=1)
            shares = np.full_like(busy, math.nan) if math.isnan(out[0]) else busy
            found.append(
                TierUse(
                    name=name,
                    sent_bytes=float(sum(self.bytes_per_dim[d] for d in dims)),
                    cut_bytes=float(out.sum()),
                    cut_bytes_max=float(out.max()),
                    port_busy=max(float(self.weights @ shares[:, d]) for d in dims),
                    port_busy_max=float(shares[:, list(dims)].max()),
                )
            )
        return tuple(found)


def tier_dims(network: NetworkFile) -> list[tuple[str, tuple[int, ...]]]:
    """Name and dimensions of each tier, inner to outer: what ``x-scaleacross`` says, else a dimension each.

    The models of ASTRA-sim ignore that key, so here it may say anything.
    """
    told = network.extension.get("dims")
    entries = told if isinstance(told, list) and len(told) == network.dimensions else [None] * network.dimensions
    found: dict[str, tuple[int, ...]] = {}
    for d, entry in enumerate(entries):
        name = str(entry["tier"]) if isinstance(entry, Mapping) and "tier" in entry else f"dim{d}"
        found[name] = (*found.get(name, ()), d)
    return list(found.items())


def capacity(config: Config, d: int) -> float:
    """Bytes/ns that a rank's port of dimension ``d`` sends at best."""
    links = {"Switch": 1, "Ring": 2 if config.network.npus_count[d] > 2 else 1}
    return config.bytes_per_ns[d] * links.get(config.network.topology[d], config.network.npus_count[d] - 1)


def hops(config: Config, d: int, distance: int) -> int:
    """Links of a Ring that a message over ``distance`` takes; 1 elsewhere."""
    size = config.network.npus_count[d]
    return min(distance % size, -distance % size) if config.network.topology[d] == "Ring" else 1


def collective_traffic(config: Config, signature: Signature, orbit: Orbit) -> tuple[Float64, Float64, Float64]:
    """Averaged over the members: bytes sent over each dimension and bytes x links, as the model charges them, and bytes
    x links by the highest dimension that they cross."""
    dims = config.network.dimensions
    sent, load, leaving = np.zeros(dims), np.zeros(dims), np.zeros(dims)
    for phase in signature.plan.phases:
        messages = _messages(phase, signature.plan.chunks)
        if orbit.who.dims and phase.nodes == config.network.npus_count[phase.level]:
            for offset, size in messages:
                sent[phase.level] += size
                load[phase.level] += size * hops(config, phase.level, offset)
                leaving[phase.level] += size * hops(config, phase.level, offset)
            continue
        for offset, size in _gathered(messages):
            lowest, highest = _pairs(config, orbit.who.members, np.roll(orbit.who.members, -offset))
            for d in range(dims):
                sent[d] += size * float((lowest[0] == d).mean())
                load[d] += size * float(lowest[1][lowest[0] == d].sum()) / len(lowest[0])
                leaving[d] += size * float(highest[1][highest[0] == d].sum()) / len(lowest[0])
    return sent, load, leaving


def _messages(phase: Phase, chunks: int) -> list[tuple[int, int]]:
    """(ring offset, bytes) of what a rank sends in a phase, all chunks together."""
    if phase.algorithm == L.DIRECT:
        times = phase.steps // (phase.nodes - 1) * chunks
        return [(k, phase.size * times) for k in range(1, phase.nodes)]
    if phase.algorithm == L.HALVING:
        return [(offset, size * chunks) for offset, size in phase.table[: phase.steps]]
    return [(1, phase.sent() * chunks)]


def _gathered(messages: list[tuple[int, int]]) -> list[tuple[int, int]]:
    total: dict[int, int] = {}
    for offset, size in messages:
        total[offset] = total.get(offset, 0) + size
    return list(total.items())


def _pairs(config: Config, ranks: Int64, others: Int64) -> tuple[tuple[Int64, Int64], tuple[Int64, Int64]]:
    """(dimension, links taken in it) of the lowest dimension in which ranks and others differ, which the model charges,
    and of the highest; -1 where they are the same."""
    low, high = np.full(len(ranks), -1, np.int64), np.full(len(ranks), -1, np.int64)
    low_links, high_links = np.ones(len(ranks), np.int64), np.ones(len(ranks), np.int64)
    for d in range(config.network.dimensions):
        stride, size = config.strides[d], config.network.npus_count[d]
        away = ((others // stride) % size - (ranks // stride) % size) % size
        ring = config.network.topology[d] == "Ring"
        links = np.minimum(away, size - away) if ring else np.ones_like(away)
        first, here = (away > 0) & (low < 0), away > 0
        low[first], low_links[first] = d, links[first]
        high[here], high_links[here] = d, links[here]
    return (low, low_links), (high, high_links)


def traffic(assembly: Assembly, start: Int64, end: Int64, weights: Float64) -> Traffic:
    """What all operators send."""
    config, population = assembly.parts.config, assembly.population
    dims = config.network.dimensions
    room = np.array([capacity(config, d) for d in range(dims)])
    sent, load, leaving = (np.zeros((len(weights), dims)) for _ in range(3))
    least = float("inf")
    known: dict[tuple[int, int], tuple[Float64, Float64, Float64]] = {}
    for sim, k in enumerate(population.program.tolist()):
        program = population.programs[k]
        span = slice(int(assembly.machine.first_node[sim]), int(assembly.machine.first_node[sim + 1]))
        took = (end - start)[span]
        for number, call in enumerate(program.calls):
            key = assembly.call_of[(sim, number)]
            if key not in known:
                known[key] = collective_traffic(config, assembly.signatures[key[0]], assembly.orbit_at[key[1]])
            mine = program.call == number
            count = int(mine.sum())
            for total, each in zip((sent, load, leaving), known[key], strict=True):
                total[sim] += each * count
            bound = float((known[key][1] / room).max())
            if bound > 0 and call.size > 0:
                least = min(least, float(took[mine].min()) / bound)
        _add_sends(assembly, sim, sent, load, leaving)
    system = config.system
    if system.custom or system.per_node_custom or system.replay_only:
        leaving[:] = math.nan
    if not assembly.parts.composed:
        sent = assembly.machine.sent().astype(np.float64)
    return Traffic((weights @ sent).tolist(), load / room, least, leaving, weights)


def _add_sends(assembly: Assembly, sim: int, sent: Float64, load: Float64, leaving: Float64) -> None:
    config = assembly.parts.config
    program = assembly.population.programs[int(assembly.population.program[sim])]
    rows = program.order[program.kind == L.SEND]
    if not len(rows) or config.system.replay_only:
        return
    size = program.trace.comm_size[rows].astype(np.float64)
    here = np.full(len(rows), assembly.population.true_of[sim], np.int64)
    (low, low_links), (high, high_links) = _pairs(config, here, program.trace.comm_dst[rows])
    for d in range(config.network.dimensions):
        sent[sim, d] += size[low == d].sum()
        load[sim, d] += (size * low_links)[low == d].sum()
        leaving[sim, d] += (size * high_links)[high == d].sum()
