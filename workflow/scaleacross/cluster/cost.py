"""Dollars and joules of a step, where the cluster file gives prices and the accelerator file power."""

from __future__ import annotations

from collections.abc import Mapping

from .accelerator import Accelerator
from .spec import Cluster

HOUR = 3600.0


def hourly_price(cluster: Cluster) -> float | None:
    """USD an hour for the GPUs in use; None unless every one has a price. Idle ones of larger sites are not counted."""
    if not cluster.sites:
        return cluster.gpus * cluster.price if cluster.price else None
    if not all(site.price for site in cluster.sites):
        return None
    return sum(site.price for site in cluster.sites) * (cluster.gpus / len(cluster.sites))


def step_cost(cluster: Cluster, seconds: float, sent_bytes: Mapping[str, float]) -> float | None:
    """USD of a step: the GPUs' time, and what is charged for traffic.

    Args:
        seconds: of the step.
        sent_bytes: tier -> bytes that a GPU sends over it, on average; a tier without a price costs nothing.

    Returns:
        None where the cluster has no prices.

    Raises:
        InvalidInput: E-TIER for a tier that the cluster has not.
    """
    hourly = hourly_price(cluster)
    if hourly is None:
        return None
    traffic = sum(cluster.tier(tier).egress * count * cluster.gpus for tier, count in sent_bytes.items())
    return hourly * seconds / HOUR + traffic


def step_energy(cluster: Cluster, accelerator: Accelerator, seconds: float) -> float | None:
    """Joules of a step at the boards' power limit, cooling included (PUE): an upper bound. None without a power."""
    if not accelerator.power:
        return None
    return cluster.gpus * accelerator.power * cluster.pue * seconds
