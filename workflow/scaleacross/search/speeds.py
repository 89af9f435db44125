"""Least times of collectives and messages on a network: what a simulated one can never undercut.

*Ideal*: whatever the algorithm. Of n members in blocks of m that share a unit, o = n / m blocks: an all-reduce of D
bytes has to bring 2 D (o - 1) / o out of a block, reduce-scatter and all-gather D (o - 1) / o (D: the whole buffer), an
all-to-all m D (o - 1) / o (Patarasuk and Yuan, 2009); and one latency of the outermost tier that it spans.
*Exact*: the engine's own transfer of the collective with the network to itself.
*Unaware*: ASTRA-sim's backend shares links for free, so only what its own bound check enforces of a point that is ok:
a collective takes no less than its bytes over a dimension's port.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from ..astra.dimensions import AstraDim, SimulatedTier
from ..engine.fluid.blocks import lanes, leading_out
from ..engine.fluid.fabric import Fabric, build_fabric
from ..engine.fluid.flows import Transfer, as_one, dimension_transfers, links_in, local_costs
from ..engine.plan import implementations, world_plan
from ..engine.settings import Config
from ..errors import InvalidInput
from ..plan.placement import Placement
from ..trace.columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL
from ..units import GIB

# Sizes are cut into whole chunks and blocks, times into whole ns; and ok points may undercut their bound by 1e-3.
ROUNDING, TOLERANCE = 1.0 - 1e-4, 1.0 - 1.1e-3


class Speeds(Protocol):
    """Lower bounds, seconds."""

    def collective(self, comm_type: int, size: int, group: str) -> float:
        """A collective of ``size`` bytes (as in a trace) over a kind of group."""
        ...

    def message(self, size: int, here: int, there: int) -> float:
        """A message between two pipeline stages."""
        ...

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        """Seconds that uplinks are full with one such collective of every group of one stage, by the units they belong
        to: how many of the innermost network dimensions lie inside a unit."""
        ...


class Free:
    """A network that takes no time."""

    def collective(self, comm_type: int, size: int, group: str) -> float:
        del comm_type, size, group
        return 0.0

    def message(self, size: int, here: int, there: int) -> float:
        del size, here, there
        return 0.0

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        del comm_type, size, group
        return {}


FREE = Free()


@dataclass(frozen=True)
class Ideal:
    """Bounds that hold for every algorithm, from the tiers after their transports."""

    placement: Placement
    tiers: Sequence[SimulatedTier]
    _known: dict[tuple[int, int, str], float] = field(default_factory=dict, compare=False)

    def collective(self, comm_type: int, size: int, group: str) -> float:
        key = (comm_type, size, group)
        if key not in self._known:
            parts = [self._crossing(comm_type, size, group, k) for k in range(len(self.tiers))]
            latency = max((self.tiers[k].latency for k in self._levels(group)), default=0.0)
            self._known[key] = (latency + max(parts, default=0.0)) * ROUNDING
        return self._known[key]

    def message(self, size: int, here: int, there: int) -> float:
        top = self.top(here, there)
        if top < 0:
            return 0.0
        return (self.tiers[top].latency + size / self._wire(top)) * ROUNDING

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        found: dict[int, float] = {}
        for k, tier in enumerate(self.tiers):
            if k > 0 and tier.oversubscription > 1:
                share = self._per_member(comm_type, size, group, k)
                if share > 0:
                    inside = sum(level < k for level in self.level_of)
                    seconds = share * self.stage_share(k) * tier.oversubscription / tier.bandwidth
                    seconds *= ROUNDING / self._links(k)
                    # a tier of one unit joins nothing: the tier above it has the same units, and the slower counts
                    found[inside] = max(seconds, found.get(inside, 0.0))
        return found

    def top(self, here: int, there: int) -> int:
        """Outermost tier between two stages, -1 for one and the same."""
        first, second = (self.placement.stage_coordinates(stage) for stage in (here, there))
        apart = [self.level_of[dim] for dim in first if first[dim] != second[dim]]
        return max(apart, default=-1)

    @cached_property
    def level_of(self) -> tuple[int, ...]:
        """Tier of every dimension."""
        names = [tier.name for tier in self.tiers]
        return tuple(names.index(dim.tier) for dim in self.placement.dims)

    def stage_share(self, k: int) -> float:
        """Share of a unit below tier k that one of its pipeline stages has."""
        dims = self.placement.dims_of("pp")
        return 1.0 / math.prod(self.placement.shape[dim] for dim in dims if self.level_of[dim] < k)

    def _levels(self, group: str) -> list[int]:
        return [self.level_of[dim] for dim in self.placement.dims_of(group)]

    def _wire(self, k: int) -> float:
        """Bytes/s of a port on the way up to tier k: above the node all tiers share one NIC."""
        return min(tier.bandwidth for tier in self.tiers[1 : k + 1]) if k else self.tiers[0].bandwidth

    def _links(self, k: int) -> int:
        """Uplinks of a unit below tier k: one of a Switch, else one for each port to peers and one for what goes on."""
        tier = self.tiers[k]
        return self._lanes(k) + (tier.topology != "Switch")

    def _lanes(self, k: int) -> int:
        return lanes(self.tiers[k].topology, self.tiers[k].size, max(1, self.level_of.count(k)))

    @cached_property
    def _out(self) -> tuple[float, ...]:
        """Bytes/s that a GPU can send over each tier and all further out."""
        ports = [tier.bandwidth for tier in self.tiers]
        own = [self._lanes(k) * port for k, port in enumerate(ports)]
        topologies = [tier.topology for tier in self.tiers]
        return tuple(leading_out(ports, own, topologies, k) for k in range(len(ports)))

    def _crossing(self, comm_type: int, size: int, group: str, k: int) -> float:
        share = self._per_member(comm_type, size, group, k)
        if share <= 0:
            return 0.0
        tier = self.tiers[k]
        if k == 0:  # a node's ports and the NIC may both carry it
            return share / self._out[0]
        uplink = self._links(k) * tier.bandwidth / (tier.oversubscription * self.stage_share(k))
        return share / min(self._out[k], uplink)

    def _per_member(self, comm_type: int, size: int, group: str, k: int) -> float:
        """Bytes a member has to bring out of its unit below tier k."""
        dims = self.placement.dims_of(group)
        inside = math.prod(self.placement.shape[dim] for dim in dims if self.level_of[dim] < k)
        nodes = math.prod(self.placement.shape[dim] for dim in dims)
        return least_bytes(comm_type, size, nodes, inside)


def least_bytes(comm_type: int, size: int, nodes: int, inside: int) -> float:
    """Bytes that each of ``inside`` members of a block has to bring out of it, of ``nodes`` members in all."""
    if nodes == inside:
        return 0.0
    blocks = nodes / inside
    share = (size * nodes if comm_type == ALL_GATHER else size) * (blocks - 1) / blocks
    if comm_type == ALL_REDUCE:
        share *= 2
    return share if comm_type == ALL_TO_ALL else share / inside


@dataclass(frozen=True)
class Exact:
    """The engine's own time of a collective alone (network model ``scaleacross``); ideal where it has no such form."""

    ideal: Ideal
    config: Config
    _known: dict[tuple[int, int, str], float] = field(default_factory=dict, compare=False)

    def collective(self, comm_type: int, size: int, group: str) -> float:
        key = (comm_type, size, group)
        if key not in self._known:
            ideal = self.ideal.collective(comm_type, size, group)
            self._known[key] = max(ideal, self._alone(comm_type, size, group) * ROUNDING)
        return self._known[key]

    def message(self, size: int, here: int, there: int) -> float:
        return self.ideal.message(size, here, there)

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        return self.ideal.uplink_seconds(comm_type, size, group)

    @cached_property
    def _fabric(self) -> Fabric:
        return build_fabric(self.config.network)

    def _alone(self, comm_type: int, size: int, group: str) -> float:
        involved = self.ideal.placement.involved(group)
        try:
            if self.config.groups or self.config.system.custom or implementations(self.config, comm_type)[0].one:
                return 0.0
            plan = world_plan(self.config, comm_type, size, involved)
            local = local_costs(self.config, 1.0, group=False)
            phases = [dimension_transfers(self._fabric, phase, local) for phase in plan.phases]
        except InvalidInput:
            return 0.0
        window = self.config.system.active_chunks_per_dimension
        return 1e-9 * self._time(as_one(self._fabric, phases, plan, window))

    def _time(self, transfer: Transfer) -> float:
        """Nanoseconds of a transfer in which the members of one stage have ports and uplinks to themselves."""
        rate, _ = transfer.port_limit(self._fabric)
        levels = self._fabric.levels
        for (k, lane), load in transfer.uplinks.items():
            if self._fabric.tiered and levels[k].unit > 1 and load:
                share = self.ideal.stage_share(k) * levels[k].oversubscription
                rate = min(rate, links_in(lane) * levels[k].port / (share * load))
        return transfer.latency + (transfer.size / rate if transfer.size else 0.0)


@dataclass(frozen=True)
class Unaware:
    """Bounds for points that are ok under ASTRA-sim's congestion-unaware model."""

    placement: Placement
    dims: Sequence[AstraDim]
    _known: dict[tuple[int, int, str], float] = field(default_factory=dict, compare=False)

    def collective(self, comm_type: int, size: int, group: str) -> float:
        key = (comm_type, size, group)
        if key not in self._known:
            own = self.placement.dims_of(group)
            nodes = math.prod(self.placement.shape[dim] for dim in own)
            inside, bound = 1, 0.0
            for dim in own:
                size_of, column = self.placement.shape[dim], self.dims[dim]
                links = {"Switch": 1, "Ring": 2}.get(column.topology, size_of - 1)
                sent = self._sent(comm_type, size, nodes, inside, size_of)
                bound = max(bound, sent / (column.bandwidth * GIB * links))
                inside *= size_of
            self._known[key] = bound * TOLERANCE
        return self._known[key]

    @staticmethod
    def _sent(comm_type: int, size: int, nodes: int, inside: int, here: int) -> float:
        """Bytes a member sends over a dimension of ``here`` ranks when all dimensions are gone through in turn."""
        return least_bytes(comm_type, size, nodes, inside) - least_bytes(comm_type, size, nodes, inside * here)

    def message(self, size: int, here: int, there: int) -> float:
        first, second = (self.placement.stage_coordinates(stage) for stage in (here, there))
        for dim in sorted(first):
            if first[dim] != second[dim]:
                return size / (self.dims[dim].bandwidth * GIB) * TOLERANCE
        return 0.0

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        del comm_type, size, group  # this model has no uplinks
        return {}
