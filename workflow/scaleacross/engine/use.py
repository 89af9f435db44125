"""How a tier of the network was used, whatever the network model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierUse:
    """Use of a tier in one iteration (of a network dimension, where the network or its model knows no tiers).

    A tier joins units of the tier below it: GPUs in a node, buildings on a campus. Busy is bytes carried over what the
    link could carry in the iteration. NaN where the model cannot tell.

    Attributes:
        name: of the tier, or ``dim<k>``.
        sent_bytes: bytes that a GPU sends to GPUs whose lowest common tier this is, on average.
        cut_bytes: bytes in all that leave units through this tier: what goes further out, and what only passes a unit
            of a ring, included (GPUs, which have other ports outwards: only what stays inside the tier).
        cut_bytes_max: of the unit that carries most, in its heavier direction.
        port_busy: of a GPU's port into the tier, sending, on average. port_busy_max: of the busiest, either direction.
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
    uplink_busy: float = 0.0
    uplink_busy_max: float = 0.0
    limited_ns: float = float("nan")
    bottleneck: str = "none"
