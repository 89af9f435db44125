"""How each tier was used: bytes, how busy its ports and uplinks were, and what held transfers up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .build import Built
from .flows import IN
from .resources import PORT, UPLINK

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TierUse:
    """Use of a tier in one iteration.

    Attributes:
        name: of the tier (``dim<k>`` of a plain network).
        sent_bytes: bytes that a GPU sends to GPUs whose lowest common tier this is, on average.
        cut_bytes: bytes in all that leave units of the tier below through this tier (those that go further out
            included); ``cut_bytes_max``: of the unit that sends most.
        port_busy: share of the time that a GPU's port into the tier is full, on average; ``port_busy_max``: of the
            busiest.
        uplink_busy, uplink_busy_max: the same of the units' uplinks; 0 where there are none (ports of single GPUs).
        limited_ns: ns that transfers, summed over classes, went at the rate that this tier's ports or uplinks allowed.
        bottleneck: ``uplink``, ``port`` or ``none``: which of them limited transfers longer.
    """

    name: str
    sent_bytes: float
    cut_bytes: float
    cut_bytes_max: float
    port_busy: float
    port_busy_max: float
    uplink_busy: float
    uplink_busy_max: float
    limited_ns: float
    bottleneck: str


def sent_per_dimension(built: Built, ran: Float64) -> list[float]:
    """Bytes that a rank sends on each network dimension, on average. ``ran``: executions of each job."""
    total = np.zeros(len(built.fabric.shape))
    sizes = built.resources.sizes
    for job, times in zip(built.jobs, ran.tolist(), strict=True):
        members = sum(int(sizes[sim]) for sim in job.sims)
        for stretch in job.stretches:
            for d, share in stretch.dims.items():
                total[d] += times * members * stretch.size * share
    return [float(count) for count in total / built.fabric.npus]


def carried(built: Built, ran: Float64) -> Float64:
    """Bytes through each resource, float64[resources]."""
    total = np.zeros(len(built.resources.found))
    for job, times, uses in zip(built.jobs, ran.tolist(), built.laid.means, strict=True):
        for stretch, own in zip(job.stretches, uses, strict=True):
            for resource, load in own:
                total[resource] += times * stretch.size * load
    return total


def limited(built: Built, ran: Float64, shared: Float64) -> Float64:
    """Nanoseconds for which each resource set a rate. ``shared``: of those that streams share, as the loop counted."""
    total = shared.copy()
    for job, resource, time in built.laid.private:
        if resource >= 0:
            total[resource] += ran[job] * time
    return total


def tier_uses(
    built: Built, through: Float64, sent: Sequence[float], held: Float64, iteration: float
) -> tuple[TierUse, ...]:
    """Use of every level.

    Args:
        through: bytes through each resource. sent: bytes of a rank on each dimension.
        held: ns for which each resource set a rate. iteration: ns.
    """
    found = built.resources.found
    busy = [float(moved / resource.capacity / iteration) for moved, resource in zip(through, found, strict=True)]
    uses = []
    for k, level in enumerate(built.fabric.levels):
        own = [r for r, resource in enumerate(found) if resource.level == k and resource.lane != IN]
        ports = [r for r in own if found[r].kind == PORT]
        uplinks = [r for r in own if found[r].kind == UPLINK]
        units = built.fabric.npus // level.unit
        lanes = len({found[r].lane for r in own}) or 1
        cut = uplinks if built.resources.has_uplinks(k) else ports
        set_by = {
            kind: sum(held[r] for r, resource in enumerate(found) if resource.level == k and resource.kind == kind)
            for kind in (PORT, UPLINK)
        }
        uses.append(
            TierUse(
                name=level.name,
                sent_bytes=sum(sent[d] for d in level.dims),
                cut_bytes=float(sum(through[r] * found[r].count for r in cut)),
                cut_bytes_max=float(max((through[r] for r in cut), default=0.0)),
                port_busy=sum(busy[r] * found[r].count for r in ports) / built.fabric.npus / lanes,
                port_busy_max=max((busy[r] for r in ports), default=0.0),
                uplink_busy=sum(busy[r] * found[r].count for r in uplinks) / units / lanes,
                uplink_busy_max=max((busy[r] for r in uplinks), default=0.0),
                limited_ns=float(set_by[PORT] + set_by[UPLINK]),
                bottleneck="none"
                if not any(set_by.values())
                else "port"
                if set_by[PORT] >= set_by[UPLINK]
                else "uplink",
            )
        )
    return tuple(uses)
