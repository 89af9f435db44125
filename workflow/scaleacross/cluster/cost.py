"""Dollars and joules of a step, where the cluster file gives prices and the accelerator file power."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .accelerator import Accelerator
from .spec import Cluster

HOUR = 3600.0


@dataclass(frozen=True)
class Rates:
    """What running on a cluster costs: in proportion to time, and to the bytes that cross a tier.

    Attributes:
        gpus: that take part.
        usd_per_hour: of all of them, their energy included where it has a price; None without a price.
        watts: of all of them at the boards' power limit, cooling included (PUE); None without a power.
        egress: tier -> usd a byte sent across, for the tiers that have a price.
    """

    gpus: int
    usd_per_hour: float | None = None
    watts: float | None = None
    egress: Mapping[str, float] = field(default_factory=dict)

    def cost(self, seconds: float, crossing: Mapping[str, float]) -> float | None:
        """USD of a step: the GPUs' time, and what is charged for traffic. It grows with both, so bounds give bounds.

        Args:
            seconds: of the step.
            crossing: tier -> bytes that a GPU sends across it, on average; a tier without a price costs nothing.

        Returns:
            None where the cluster has no prices.
        """
        if self.usd_per_hour is None:
            return None
        traffic = sum(price * crossing.get(tier, 0.0) * self.gpus for tier, price in self.egress.items())
        return self.usd_per_hour * seconds / HOUR + traffic

    def energy(self, seconds: float) -> float | None:
        """Joules of a step at the boards' power limit, so an upper bound; None without a power."""
        return None if self.watts is None else self.watts * seconds


def hourly_price(cluster: Cluster) -> float | None:
    """USD an hour for the GPUs in use; None unless every one has a price. Idle ones of larger sites are not counted."""
    if not cluster.sites:
        return cluster.gpus * cluster.price if cluster.price else None
    if not all(site.price for site in cluster.sites):
        return None
    used = sum(site.used for site in cluster.sites)
    return sum(site.price * site.used for site in cluster.sites) * (cluster.gpus / used)


def missing_prices(cluster: Cluster) -> list[str]:
    """Keys of the cluster file without which a step has no cost, empty where it has one."""
    if not cluster.sites:
        return [] if cluster.price else ["price"]
    return [f"price of site {site.name}" for site in cluster.sites if not site.price]


def rates_of(cluster: Cluster, accelerator: Accelerator) -> Rates:
    """The rates of a cluster."""
    powers = [site.accelerator.power for site in accelerator.by_site] or [accelerator.power]
    watts = cluster.gpus * sum(powers) / len(powers) * cluster.pue if all(powers) else None
    hourly = hourly_price(cluster)
    if hourly is not None and watts is not None:
        hourly += watts * HOUR * cluster.energy_price
    egress = {tier.name: tier.egress for tier in cluster.tiers if tier.egress}
    return Rates(cluster.gpus, hourly, watts, egress)
