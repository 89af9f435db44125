"""Network dimensions as ASTRA-sim's analytical backend counts them: bandwidth of a port, latency of a hop.

The backend knows neither tiers nor shared uplinks, so both are folded into the numbers of each dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..cluster import Cluster
from ..errors import InvalidInput
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
        port: bytes/s of a port before oversubscription.
        one_way: seconds between two GPUs whose lowest common tier is this one.
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


def astra_dimensions(dims: Sequence[DimLike], cluster: Cluster) -> tuple[AstraDim, ...]:
    """The columns of ``network.yml`` for placed dimensions, innermost first.

    *Bandwidth*: that of the tier's port, cut by the largest oversubscription of the tiers crossed on the way up to it
    (a message between buildings passes the zones' uplinks too), see :func:`effective_bandwidth`.

    *Latency*: a tier states one way, GPU to GPU. The backend charges hops: two for a Switch (so a hop is half of it),
    one for FullyConnected, and on a Ring one for each step between neighbours.

    Raises:
        InvalidInput: E-TIER for a dimension on a tier that the cluster has not, E-DIMS where the dimensions of a tier
            don't multiply to its size, are not in the cluster's order, or have an impossible size or share.
    """
    _check_filled(dims, cluster)
    return tuple(_astra_dimension(dim, cluster) for dim in dims)


def _astra_dimension(dim: DimLike, cluster: Cluster) -> AstraDim:
    index = cluster.tier_index(dim.tier)
    tier = cluster.tiers[index]
    ratio = max(crossed.oversubscription for crossed in cluster.tiers[: index + 1])
    return AstraDim(
        topology=tier.topology,
        size=dim.size,
        bandwidth=gib_per_second(effective_bandwidth(tier.bandwidth, ratio, dim.share)),
        latency=nanoseconds(tier.latency / HOPS[tier.topology]),
        tier=dim.tier,
        axis=dim.axis,
        share=dim.share,
        port=tier.bandwidth,
        one_way=tier.latency,
        oversubscription=ratio,
    )


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
