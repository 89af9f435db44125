"""Uplinks: what a dimension's bandwidth promises, every uplink on the way can carry. Checked rank by rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from scaleacross.astra.dimensions import astra_dimensions, crossing_shares
from scaleacross.cluster import Cluster, Tier
from scaleacross.errors import Infeasible
from scaleacross.plan.degrees import Parallelism
from scaleacross.plan.dims import Placement
from scaleacross.plan.placement import place
from scaleacross.units import GIB

PORT = 50e9


def uplink_loads(placement: Placement, cluster: Cluster, dim: int, wraps: bool) -> dict[int, float]:
    """Tier -> largest share of a unit's ports that send across ``dim`` at once, by listing the ranks."""
    stages = placement.size_of("pp")
    senders = []
    for rank in range(placement.ranks):
        stage = placement.stage(rank)
        peers = [peer % stages for peer in (stage - 1, stage + 1) if wraps or 0 <= peer < stages]
        place_ = placement.coordinates(rank)
        if any(placement.coordinates(placement.stage_rank(rank, peer))[dim] != place_[dim] for peer in peers):
            senders.append(rank)
    top = cluster.tier_index(placement.dims[dim].tier)
    unit_sizes = [prod(tier.size for tier in cluster.tiers[:below]) for below in range(top + 1)]
    return {
        tier: max(Counter(rank // size for rank in senders).values()) / size for tier, size in enumerate(unit_sizes)
    }


degrees = st.sampled_from([1, 2, 3, 4, 8])
ratios = st.sampled_from([1.0, 1.5, 2.8, 7.0])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.tuples(degrees, degrees, degrees, degrees),
    st.permutations(["cp", "pp", "dp"]),
    st.tuples(degrees, degrees, degrees),
    ratios,
    ratios,
    st.booleans(),
)
def test_pipeline_sends_fill_but_never_pass_the_fullest_uplink(
    sizes: tuple[int, ...], order: list[str], axes: tuple[int, ...], zone: float, building: float, wraps: bool
) -> None:
    oversubscription = [1.0, 1.0, zone, building]
    names = ("node", "zone", "building", "campus")
    tiers = tuple(Tier(n, s, PORT, 1e-6, o) for n, s, o in zip(names, sizes, oversubscription, strict=True))
    cluster = Cluster("c", "gpu", tiers)
    degree = dict(zip(order, axes, strict=True))
    rest = cluster.gpus // prod(axes)
    assume(rest * prod(axes) == cluster.gpus and 2 <= cluster.gpus <= 512)
    try:
        parallelism = Parallelism(tp=rest, cp=degree["cp"], pp=degree["pp"], dp=degree["dp"], order=("tp", *order))
        placement = place(parallelism, cluster.tiers, wraps=wraps)
    except Infeasible:
        reject()
    for index, column in enumerate(astra_dimensions(placement.dims, cluster)):
        rate = column.bandwidth * GIB
        if column.axis == "pp":
            loads = uplink_loads(placement, cluster, index, wraps)
        else:
            loads = dict.fromkeys(range(cluster.tier_index(column.tier) + 1), 1.0)
        used = {tier: share * rate * tiers[tier].oversubscription / PORT for tier, share in loads.items()}
        assert max(used.values()) <= 1 + 1e-5
        assert max(used.values()) == pytest.approx(1, rel=1e-5) or rate == pytest.approx(PORT, rel=1e-5)


def test_a_message_between_buildings_passes_its_zone_s_uplink() -> None:
    """16 stages, two a zone, eight a building: one of eight sends across, but it is half of its zone."""
    sizes = (2, 4, 2)
    assert crossing_shares(sizes, (1.0, 1.0, 1 / 8))[2] == (1.0, 0.5, 1 / 8)
    assert crossing_shares(sizes, (1.0, 1.0, 2 / 8))[2] == (1.0, 0.5, 2 / 8)  # interleaved: stage 15 sends to 0
    tiers = (
        Tier("node", 8, 429e9, 2e-6),
        Tier("zone", 256, PORT, 35e-6),
        Tier("building", 4, PORT, 75e-6, 2.8),
        Tier("campus", 2, PORT, 150e-6, 2.8),
    )
    cluster = Cluster("c", "gpu", tiers)
    placement = place(Parallelism(tp=8, pp=16, dp=128, order=("tp", "cp", "dp", "pp")), cluster.tiers)
    campus = astra_dimensions(placement.dims, cluster)[-1]
    assert campus.bandwidth * GIB == pytest.approx(PORT / (2.8 * 0.5), rel=1e-6)
    flat = replace(cluster, tiers=(*tiers[:2], replace(tiers[2], oversubscription=1.0), tiers[3]))
    assert astra_dimensions(placement.dims, flat)[-1].bandwidth * GIB == pytest.approx(PORT, rel=1e-6)


def test_shares_that_no_stage_order_has_are_taken_as_concentrated() -> None:
    assert crossing_shares((4, 2), (0.9, 0.3)) == ((0.9,), (1.0, 0.3))
