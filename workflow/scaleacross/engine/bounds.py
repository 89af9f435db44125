"""Bytes on each dimension, and what the ports could do at best.

A rank's port of a dimension carries at most its bandwidth: a Switch port one link, a Ring port one link a direction, a
FullyConnected port one link a peer. A message that takes several hops of a Ring loads a link in each. Nothing can be
faster than the bytes that its ranks send, spread evenly over these links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .assemble import Assembly, Orbit, Signature
from .kernel import layout as L
from .plan import Phase
from .settings import Config

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Attributes: ``bytes_per_dim`` of an average rank; ``port_ns``: most that the port of a rank and dimension needs
    in all;
    ``least``: least ratio of a collective's time to what its ports need."""

    bytes_per_dim: list[float]
    port_ns: float
    least: float

    def bound_ratio(self, iteration_ns: int, compute_ns: int) -> float:
        """Least ratio of a time to its lower bound, over the iteration and all collectives."""
        bound = max(self.port_ns, float(compute_ns))
        return min(self.least, iteration_ns / bound if bound > 0 else float("inf"))


def capacity(config: Config, d: int) -> float:
    """Bytes/ns that a rank's port of dimension ``d`` sends at best."""
    links = {"Switch": 1, "Ring": 2 if config.network.npus_count[d] > 2 else 1}
    return config.bytes_per_ns[d] * links.get(config.network.topology[d], config.network.npus_count[d] - 1)


def hops(config: Config, d: int, distance: int) -> int:
    """Links of a Ring that a message over ``distance`` takes; 1 elsewhere."""
    size = config.network.npus_count[d]
    return min(distance % size, -distance % size) if config.network.topology[d] == "Ring" else 1


def collective_traffic(config: Config, signature: Signature, orbit: Orbit) -> tuple[Float64, Float64]:
    """Bytes that a member sends over each dimension, and bytes x links, averaged over the members."""
    dims = config.network.dimensions
    sent, load = np.zeros(dims), np.zeros(dims)
    for phase in signature.plan.phases:
        messages = _messages(phase, signature.plan.chunks)
        if orbit.who.dims and phase.nodes == config.network.npus_count[phase.level]:
            for offset, size in messages:
                sent[phase.level] += size
                load[phase.level] += size * hops(config, phase.level, offset)
            continue
        for offset, size in _gathered(messages):
            charged, links = _pairs(config, orbit.who.members, offset)
            for d in range(dims):
                sent[d] += size * float((charged == d).mean())
                load[d] += size * float(links[charged == d].sum()) / len(charged)
    return sent, load


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


def _pairs(config: Config, members: Int64, offset: int) -> tuple[Int64, Int64]:
    """For each member and the one ``offset`` further: the dimension that is charged and the links taken."""
    other = np.roll(members, -offset)
    charged, links = np.full(len(members), -1, np.int64), np.ones(len(members), np.int64)
    for d in reversed(range(config.network.dimensions)):
        stride, size = config.strides[d], config.network.npus_count[d]
        away = ((other // stride) % size - (members // stride) % size) % size
        ring = config.network.topology[d] == "Ring"
        links = np.where(away > 0, np.minimum(away, size - away) if ring else 1, links)
        charged = np.where(away > 0, d, charged)
    return charged, links


def traffic(assembly: Assembly, start: Int64, end: Int64, weights: Float64) -> Traffic:
    """What all operators send."""
    config, population = assembly.parts.config, assembly.population
    dims = config.network.dimensions
    room = np.array([capacity(config, d) for d in range(dims)])
    sent, load = np.zeros((len(weights), dims)), np.zeros((len(weights), dims))
    least = float("inf")
    known: dict[tuple[int, int], tuple[Float64, Float64]] = {}
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
            sent[sim] += known[key][0] * count
            load[sim] += known[key][1] * count
            bound = float((known[key][1] / room).max())
            if bound > 0 and call.size > 0:
                least = min(least, float(took[mine].min()) / bound)
        _add_sends(assembly, sim, sent, load)
    if not assembly.parts.composed:
        sent = assembly.machine.sent().astype(np.float64)
    port = float((load / room).max()) if dims else 0.0
    return Traffic((weights @ sent).tolist(), port, least)


def _add_sends(assembly: Assembly, sim: int, sent: Float64, load: Float64) -> None:
    config = assembly.parts.config
    program = assembly.population.programs[int(assembly.population.program[sim])]
    rows = program.order[program.kind == L.SEND]
    if not len(rows) or config.system.replay_only:
        return
    size = program.trace.comm_size[rows].astype(np.float64)
    pairs = np.stack([np.full(len(rows), assembly.population.true_of[sim]), program.trace.comm_dst[rows]])
    left = np.ones(len(rows), bool)
    for d in range(config.network.dimensions):
        stride, count = config.strides[d], config.network.npus_count[d]
        away = ((pairs[1] // stride) % count - (pairs[0] // stride) % count) % count
        here = left & (away > 0)
        links = np.minimum(away, count - away) if config.network.topology[d] == "Ring" else np.ones_like(away)
        sent[sim, d] += size[here].sum()
        load[sim, d] += (size * links)[here].sum()
        left &= ~here
