"""Network dimensions as ASTRA-sim's analytical backend counts them: bandwidth of a port, latency of a hop.

The backend knows neither tiers nor shared uplinks, so both are folded into the numbers of each dimension.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from ..cluster import Cluster
from ..cluster.transport import effective, uplink_efficiency
from ..errors import InvalidInput
from ..plan.gray import gray_digits, pipeline_shares
from ..units import gib_per_second, nanoseconds

# Hops the backend charges between two NPUs of a dimension (on a Ring: between neighbours).
HOPS = {"Switch": 2, "FullyConnected": 1, "Ring": 1}


class DimLike(Protocol):
    """What rendering needs of a placed dimension (:class:`scaleacross.plan.NetworkDim` has more)."""

    @property
    def size(self) -> int: ...
    @property
    def tier(self) -> str: ...
    @property
    def axis(self) -> str: ...
    @property
    def share(self) -> float: ...


@dataclass(frozen=True)
class AstraDim:
    """One column of ``network.yml``.

    Attributes:
        topology: Switch, Ring or FullyConnected.
        size: NPUs along the dimension.
        bandwidth: GiB/s (2^30) of a port, after oversubscription.
        latency: ns of one hop.
        tier, axis, share: as placed.
        port: bytes/s of payload through a port before oversubscription, after its transport.
        one_way: seconds between two GPUs whose lowest common tier is this one, its transport's repairs included.
        oversubscription: largest ratio of the tiers crossed.
    """

    topology: str
    size: int
    bandwidth: float
    latency: float
    tier: str
    axis: str
    share: float
    port: float
    one_way: float
    oversubscription: float


def effective_bandwidth(port: float, oversubscription: float, share: float) -> float:
    """Bytes/s each sender gets through an oversubscribed uplink: ``port * min(1, 1 / (oversubscription * share))``.

    A unit of N GPUs has an uplink of ``N * port / oversubscription``. When ``share * N`` of them send at once, each
    gets ``port / (oversubscription * share)``, and never more than its own port. A collective that works along the
    dimension has all its members sending (share 1); at a pipeline boundary only the GPUs of the boundary's stages do.
    """
    return port * min(1.0, 1.0 / (oversubscription * share))


@dataclass(frozen=True)
class SimulatedTier:
    """A tier as ``x-scaleacross`` states it: what the transport leaves of the port and of the uplinks.

    Attributes:
        name, size, topology: of the tier.
        bandwidth: bytes/s of payload through a port alone.
        latency: seconds one way, repairs included.
        oversubscription: such that a unit's uplink, members * bandwidth / oversubscription, carries the payload that it
            does when all members send: after what repairs and parity take of it and what hashing leaves unused. 1 where
            windows keep the members below it.
    """

    name: str
    size: int
    bandwidth: float
    latency: float
    oversubscription: float
    topology: str


def simulated_tiers(cluster: Cluster) -> tuple[SimulatedTier, ...]:
    """The tiers, innermost first, after their transports."""
    found, unit = [], 1
    for tier in cluster.tiers:
        usable = effective(tier)
        crowded = tier.bandwidth * min(1.0, uplink_efficiency(tier, unit) / tier.oversubscription)
        ratio = max(1.0, usable.bandwidth / effective(tier, rate=crowded).bandwidth)
        found.append(SimulatedTier(tier.name, tier.size, usable.bandwidth, usable.latency, ratio, tier.topology))
        unit *= tier.size
    return tuple(found)


def astra_dimensions(dims: Sequence[DimLike], cluster: Cluster) -> tuple[AstraDim, ...]:
    """The columns of ``network.yml`` for placed dimensions, innermost first.

    *Bandwidth*: of the tier's port, cut by each uplink on the way up to the tier (a message between buildings passes
    the zones' uplinks too) as far as its unit's GPUs send through it at once, see :func:`effective_bandwidth`. Only
    the traffic along the dimension itself is counted: what else uses an uplink at the same time, ASTRA-sim can't say.
    A tier's transport then decides what loss, distance and windows leave of that rate, and hashing what an uplink of
    several paths carries (:mod:`scaleacross.cluster.transport`).

    *Latency*: a tier states one way, GPU to GPU. The backend charges hops: two for a Switch (so a hop is half of it),
    one for FullyConnected, and on a Ring one for each step between neighbours.

    Raises:
        InvalidInput: E-TIER for a dimension on a tier that the cluster has not, E-DIMS where the dimensions of a tier
            don't multiply to its size, are not in the cluster's order, or have an impossible size or share.
    """
    _check_filled(dims, cluster)
    pipeline = [dim for dim in dims if dim.axis == "pp"]
    crossing = iter(crossing_shares(tuple(dim.size for dim in pipeline), tuple(dim.share for dim in pipeline)))
    columns = []
    for dim in dims:
        if dim.axis == "pp":
            by_stages = next(crossing)
            levels = [_stage_level(pipeline, cluster, tier) for tier in range(cluster.tier_index(dim.tier) + 1)]
            shares = [by_stages[min(level, len(by_stages) - 1)] for level in levels]
        else:
            shares = [dim.share] * (cluster.tier_index(dim.tier) + 1)
        columns.append(_astra_dimension(dim, cluster, shares))
    return tuple(columns)


def _stage_level(pipeline: Sequence[DimLike], cluster: Cluster, tier: int) -> int:
    """How many pipeline dimensions lie inside one unit below a tier."""
    return sum(cluster.tier_index(dim.tier) < tier for dim in pipeline)


def _astra_dimension(dim: DimLike, cluster: Cluster, shares: Sequence[float]) -> AstraDim:
    """One column; ``shares[t]`` is the share of a unit below tier t that sends across the dimension at once."""
    index = cluster.tier_index(dim.tier)
    tier = cluster.tiers[index]
    wire, unit = tier.bandwidth, 1
    for crossed, share in zip(cluster.tiers[: index + 1], shares, strict=True):
        ratio = crossed.oversubscription / uplink_efficiency(crossed, share * unit)
        wire = min(wire, effective_bandwidth(tier.bandwidth, ratio, share))
        unit *= crossed.size
    alone = effective(tier)
    return AstraDim(
        topology=tier.topology,
        size=dim.size,
        bandwidth=gib_per_second(effective(tier, rate=wire).bandwidth),
        latency=nanoseconds(alone.latency / HOPS[tier.topology]),
        tier=dim.tier,
        axis=dim.axis,
        share=dim.share,
        port=alone.bandwidth,
        one_way=alone.latency,
        oversubscription=max(crossed.oversubscription for crossed in cluster.tiers[: index + 1]),
    )


@lru_cache(maxsize=4096)
def crossing_shares(sizes: tuple[int, ...], shares: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """How concentrated the senders of each pipeline dimension are in the smaller units below it.

    One stage of eight may send between buildings, but it is half of its zone of two stages, and the zone's uplink sees
    that half.

    Args:
        sizes: of the pipeline dimensions, innermost first; stages lie on them in Gray order.
        shares: of each dimension, as placed; they tell whether the last stage sends to the first.

    Returns:
        Entry [d][l], l <= d: the largest share of the stages in a unit of the first l dimensions that send across d.
    """
    found: tuple[tuple[float, ...], ...] | None = None
    for wraps in (False, True):
        if all(map(math.isclose, pipeline_shares(sizes, wraps), shares)):
            exact = _crossing_shares(sizes, wraps)
            found = exact if found is None else tuple(tuple(map(max, *rows)) for rows in zip(found, exact, strict=True))
    if found is None:  # not a share of Gray order: all of a unit's senders may sit in one smaller unit
        found = tuple(
            tuple(min(1.0, share * math.prod(sizes[level:dim])) for level in range(dim + 1))
            for dim, share in enumerate(shares)
        )
    return found


def _crossing_shares(sizes: tuple[int, ...], wraps: bool) -> tuple[tuple[float, ...], ...]:
    stages = math.prod(sizes)
    digits = [gray_digits(stage, sizes) for stage in range(stages)]
    rows = []
    for dim in range(len(sizes)):
        senders = [
            stage
            for stage in range(stages)
            if any(
                digits[peer % stages][dim] != digits[stage][dim]
                for peer in (stage - 1, stage + 1)
                if wraps or 0 <= peer < stages
            )
        ]
        fullest = [max(Counter(digits[stage][level:] for stage in senders).values()) for level in range(dim + 1)]
        rows.append(tuple(count / math.prod(sizes[:level]) for level, count in enumerate(fullest)))
    return tuple(rows)


def _check_filled(dims: Sequence[DimLike], cluster: Cluster) -> None:
    for number, dim in enumerate(dims):
        cluster.tier_index(dim.tier)
        if dim.size < 2 or not 0 < dim.share <= 1:
            clash = f"dimension {number} ({dim.tier}, {dim.axis}) has size {dim.size} and share {dim.share}"
            raise InvalidInput("E-DIMS", clash, "a dimension needs 2 or more NPUs and a share in (0, 1]")
    order = [cluster.tier_index(dim.tier) for dim in dims]
    if order != sorted(order):
        names = [dim.tier for dim in dims]
        raise InvalidInput("E-DIMS", f"dimensions on tiers {names} are not inner to outer", "place them again")
    for tier in cluster.tiers:
        sizes = [dim.size for dim in dims if dim.tier == tier.name]
        if math.prod(sizes) != tier.size:
            product = " x ".join(map(str, sizes)) or "none"
            clash = (
                f"dimensions of tier {tier.name} ({product}) multiply to {math.prod(sizes)}, not its size {tier.size}"
            )
            raise InvalidInput("E-DIMS", clash, f"place the plan on cluster {cluster.name} again")
