"""How each tier was used: bytes, how busy its ports and uplinks were, and what held transfers up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..use import TierUse
from .build import Built
from .flows import IN
from .resources import PORT, UPLINK, Resource

Float64 = NDArray[np.float64]


def sent_per_dimension(built: Built, ran: Float64) -> list[float]:
    """Bytes that a rank sends on each network dimension, on average. ``ran``: executions of each job."""
    total = np.zeros(len(built.fabric.shape))
    sizes = built.resources.sizes
    for job, times in zip(built.jobs, ran.tolist(), strict=True):
        members = sum(int(sizes[sim]) for sim in job.sims)
        for d, share in job.flow.dims.items():
            total[d] += times * members * job.flow.size * share
    return [float(count) for count in total / built.fabric.npus]


def carried(built: Built, ran: Float64) -> Float64:
    """Bytes through each resource, float64[resources]."""
    total = np.zeros(len(built.resources.found))
    for job, times, uses in zip(built.jobs, ran.tolist(), built.laid.means, strict=True):
        for resource, load in uses:
            total[resource] += times * job.flow.size * load
    return total


def limited(built: Built, ran: Float64, shared: Float64) -> Float64:
    """Nanoseconds for which ports and uplinks of each level set a rate, float64[levels, 2].

    ``shared``: of the resources that streams share, as the loop counted.
    """
    total = np.zeros((len(built.fabric.levels), 2))
    for resource, time in zip(built.resources.found, shared.tolist(), strict=True):
        total[resource.level, resource.kind] += time
    for job, level, kind, time in built.laid.private:
        total[level, kind] += ran[job] * time
    return total


def tier_uses(
    built: Built, through: Float64, sent: Sequence[float], held: Float64, iteration: float
) -> tuple[TierUse, ...]:
    """Use of every level.

    Args:
        through: bytes through each resource. sent: bytes of a rank on each dimension.
        held: of :func:`limited`. iteration: ns.
    """
    found = built.resources.found
    busy = [float(moved / resource.capacity / iteration) for moved, resource in zip(through, found, strict=True)]
    uses = []
    for k, level in enumerate(built.fabric.levels):
        own = [r for r, resource in enumerate(found) if resource.level == k]
        ports = [r for r in own if found[r].kind == PORT]
        uplinks = [r for r in own if found[r].kind == UPLINK]
        cut = uplinks if built.resources.has_uplinks(k) else ports
        limits = {kind: float(held[k, kind]) for kind in (PORT, UPLINK)}
        uses.append(
            TierUse(
                name=level.name,
                sent_bytes=sum(sent[d] for d in level.dims),
                cut_bytes=float(sum(through[r] * found[r].count for r in cut if found[r].lane != IN)),
                cut_bytes_max=_heaviest(found, through, cut),
                port_busy=_average(found, busy, ports, built.fabric.npus),
                port_busy_max=max((busy[r] for r in ports), default=0.0),
                uplink_busy=_average(found, busy, uplinks, built.fabric.units_of(k)),
                uplink_busy_max=max((busy[r] for r in uplinks), default=0.0),
                limited_ns=sum(limits.values()),
                bottleneck=_longer(limits),
            )
        )
    if built.fabric.sites:  # no dimension is the outermost tier's: what leaves a site counts for it
        sent_out = uses[-1].cut_bytes / built.fabric.npus
        uses[-2] = replace(uses[-2], sent_bytes=uses[-2].sent_bytes - sent_out)
        uses[-1] = replace(uses[-1], sent_bytes=sent_out)
    return tuple(uses)


def _heaviest(found: Sequence[Resource], through: Float64, chosen: Iterable[int]) -> float:
    """Bytes of the unit and direction that carries most, the lanes of a unit added up."""
    total: dict[tuple[int, bool], float] = {}
    for r in chosen:
        key = (found[r].owner, found[r].lane == IN)
        total[key] = total.get(key, 0.0) + float(through[r])
    return max(total.values(), default=0.0)


def _average(found: Sequence[Resource], busy: Sequence[float], chosen: Iterable[int], owners: int) -> float:
    """Mean over all owners and sending lanes."""
    sending = [r for r in chosen if found[r].lane != IN]
    lanes = len({found[r].lane for r in sending}) or 1
    return sum(busy[r] * found[r].count for r in sending) / owners / lanes


def _longer(limits: dict[int, float]) -> str:
    if not any(limits.values()):
        return "none"
    return "port" if limits[PORT] >= limits[UPLINK] else "uplink"
