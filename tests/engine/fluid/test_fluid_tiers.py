"""What an outcome says of tiers: bytes that leave their units, how full the links are; laws and a case by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fluid_cases import AR, MIB, TierSpec, byte_rate, one_collective, run, sends, tiered
from fluid_plans import PLANS, TIERS, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.engine import simulate
from scaleacross.engine.fluid.fabric import build_fabric
from scaleacross.engine.fluid.flows import OUT
from scaleacross.engine.fluid.resources import Resources
from scaleacross.engine.use import TierUse

SITES = (
    TierSpec("node", (2,), 400, 1000),
    TierSpec("building", (4,), 50, 10_000),
    TierSpec("campus", (2,), 50, 1e5, 4),
)


def test_a_message_by_hand() -> None:
    """GPU 0 of building 0 sends 100 MiB to building 1, GPU 9 of building 1 sends 50 MiB to building 0."""
    size = 50 * MIB
    out = run(sends(16, [(0, 8, 2 * size), (9, 1, size)]), tiered(SITES))
    node, building, campus = out.tiers
    assert (node.sent_bytes, node.cut_bytes, node.port_busy_max) == (0, 0, 0)
    assert campus.sent_bytes == pytest.approx(3 * size / 16)
    assert (building.cut_bytes, building.cut_bytes_max) == (3 * size, 2 * size)
    assert (campus.cut_bytes, campus.cut_bytes_max) == (3 * size, 2 * size)
    port = byte_rate(50)
    assert out.time_ns == pytest.approx(2 * size / port + 1e5)
    assert building.port_busy_max == pytest.approx(2 * size / port / out.time_ns)
    assert building.port_busy == pytest.approx(3 * size / port / out.time_ns / 16)
    assert campus.uplink_busy_max == pytest.approx(2 * size / (8 * port / 4) / out.time_ns)  # 8 GPUs at 1:4
    assert campus.uplink_busy == pytest.approx(1.5 * size / (8 * port / 4) / out.time_ns)


def test_the_heavier_direction_counts() -> None:
    """Seven GPUs of building 0 each send to another one of building 1, which sends nothing: one port each way."""
    out = run(sends(16, [(k, 8, MIB) for k in range(7)]), tiered(SITES))
    _, building, campus = out.tiers
    assert campus.cut_bytes_max == 7 * MIB
    assert building.cut_bytes_max == 7 * MIB  # into the node of GPU 8
    assert building.port_busy_max == pytest.approx(7 * MIB / byte_rate(50) / out.time_ns)  # its port, receiving


def test_a_ring_of_buildings_adds_up_both_ways_round() -> None:
    """Four buildings in a ring; every GPU exchanges with its peers: each message to the opposite passes one between."""
    ring = (TierSpec("node", (2,), 400, 1000), TierSpec("campus", (4,), 50, 1e5, 1, "Ring"))
    out = run(sends(8, [(0, 2, MIB), (0, 6, MIB), (0, 4, MIB)]), tiered(ring))
    assert out.tiers[1].cut_bytes == 4 * MIB  # one, one, and two links
    assert out.tiers[1].cut_bytes_max == 3 * MIB  # all leave node 0


def everything(tiers: tuple[TierUse, ...]) -> list[float]:
    return [number for use in tiers for number in (use.cut_bytes, use.cut_bytes_max)]


@pytest.mark.parametrize("name", PLANS)
def test_models_agree_on_what_crosses(name: str) -> None:
    """The model of ASTRA-sim counts messages, ours the loads of uplinks: the same bytes leave every unit."""
    config = plan(name).config()
    ours, theirs = run(plan(name).folded, config), simulate(plan(name).folded, config)
    assert theirs.status == "ok"
    assert [use.name for use in theirs.tiers] == [use.name for use in ours.tiers]
    assert everything(theirs.tiers) == pytest.approx(everything(ours.tiers), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(PLANS)), st.sampled_from(["ring", "direct"]), st.floats(1.0, 8.0), st.floats(1.0, 8.0))
def test_what_leaves_adds_up_and_slower_uplinks_are_fuller(
    name: str, algorithm: str, ratio: float, more: float
) -> None:
    """What leaves the units of a tier is what GPUs send over it and over those further out; time changes no byte."""
    wide, narrow = (
        run(plan(name).folded, plan(name).config((*TIERS[:3], replace(TIERS[3], oversubscription=r)), algorithm))
        for r in (ratio, ratio * more)
    )
    gpus = 16
    for k, use in enumerate(wide.tiers):
        further = wide.tiers[k : k + 1] if k == 0 else wide.tiers[k:]  # GPUs have other ports out of the node
        assert use.cut_bytes == pytest.approx(gpus * sum(each.sent_bytes for each in further), rel=1e-9)
    assert everything(narrow.tiers) == pytest.approx(everything(wide.tiers), rel=1e-9)
    # Bytes over capacity and time: the capacity shrinks by `more`, the time grows by no more than that.
    assert narrow.tiers[3].uplink_busy_max >= wide.tiers[3].uplink_busy_max * (1 - 1e-9)


def test_unknown_where_operators_are_replayed() -> None:
    out = simulate(one_collective(16, AR, MIB), tiered(SITES, replay_only=True))
    assert out.status == "ok"
    assert all(math.isnan(use.cut_bytes) and math.isnan(use.port_busy_max) for use in out.tiers)


def test_units_are_one_kind_only_where_every_load_is_equal() -> None:
    """Loads are round numbers, which differ in few bits: no two units that differ may be taken for alike."""
    random = np.random.default_rng(3)
    fabric = build_fabric(tiered((TierSpec("node", (2,), 400, 1000), TierSpec("zone", (4096,), 50, 10_000))).network)
    everyone = np.zeros(fabric.npus, np.int64)
    for _ in range(20):
        resources = Resources(fabric, everyone, np.array([fabric.npus]))
        rows = random.choice([0.0, 0.5, 1.0, 2.0, 3.0, 4.0], (6, 4096))
        added = [resources.add_row(1, row) for row in rows]
        uses = [resources.uplink_uses([(OUT, row, 1.0)]) for row in added]
        kinds = {r for own in uses for r, _ in own}
        assert len(kinds) == len({tuple(column) for column in rows.T if column.any()})
        carried = sum(load * resources.found[r].count for own in uses for r, load in own)
        assert carried == pytest.approx(rows.sum())
