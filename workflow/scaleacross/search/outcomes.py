"""What follows from a simulated point: its cost and energy, and whether it meets the study's requirements."""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.cost import Rates
from ..study.expressions import Expression
from ..study.outcomes import judged, rates_from, traffic_columns
from ..study.tables import Row

JOULES_A_KWH = 3.6e6
RAN = ("ok", "unphysical")


def with_outcomes(row: Row, wanted: Sequence[Expression], tiers: Sequence[str]) -> Row:
    """A row with its cost, energy and, where it misses a requirement, the status ``rejected``; others as they are.

    Args:
        row: a point (with its rates) joined with its result.
        wanted: the study's requirements.
        tiers: names of the cluster's tiers. A tier that a point does not use carries nothing: its traffic is 0.

    Raises:
        InvalidInput: E-EXPRESSION for a requirement whose operands clash.
    """
    if row["status"] not in RAN:
        return row
    for kind in ("sent", "cut"):
        traffic = traffic_columns(tiers, kind)
        if any(row.get(name) not in (None, "") for name in traffic):
            row = {**row, **{name: 0.0 for name in traffic if row.get(name) in (None, "")}}
    rates = rates_from(row)
    row = {**row, **_cost(row, rates, tiers)}
    return {**row, **judged(row, wanted)}


def _cost(row: Row, rates: Rates, tiers: Sequence[str]) -> Row:
    """``usd_per_iteration``, ``tokens_per_usd``, ``energy_kwh_per_iteration``; empty where they are not known.

    Traffic that is priced must be known: without it the cost would be too low.
    """
    seconds = float(row["iteration_time_s"])
    joules = rates.energy(seconds)
    found: Row = {"energy_kwh_per_iteration": None if joules is None else joules / JOULES_A_KWH}
    sent = {tier: row.get(name) for tier, name in zip(tiers, traffic_columns(tiers), strict=True)}
    if any(sent[tier] in (None, "") for tier in rates.egress):
        return found
    usd = rates.cost(seconds, {tier: float(sent[tier] or 0.0) * 1e9 for tier in rates.egress})
    if usd is not None:
        found["usd_per_iteration"] = usd
        found["tokens_per_usd"] = float(row["tokens_per_s"]) * seconds / usd
    return found
