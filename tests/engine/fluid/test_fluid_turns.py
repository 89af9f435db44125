"""Temporal sharing between sites: turns over the replicas, folded to the first and the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from fluid_cases import TierSpec, byte_rate, run, sends, tiered
from fluid_plans import DENSE, PLANS, Plan, plan
from scaleacross.cluster.sharing import turn_arrivals
from scaleacross.engine.fluid import turns
from scaleacross.engine.fluid.turns import replica_ends
from scaleacross.engine.settings import Config
from scaleacross.errors import InvalidInput

GB = 1e9
PIPELINES = {  # 4 replicas of 4 stages, two of them a site
    "1f1b in turns": {"pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "1f1b"},
    "interleaved in turns": {"pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "interleaved", "chunks": 2},
    "zero bubble in turns": {"pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "zb-h1"},
    "fsdp in turns": {
        "pp": 4,
        "order": ["tp", "cp", "dp", "pp"],
        "schedule": "1f1b",
        "dp_sharding": "fsdp",
        "dp_overlap": "prefetch",
    },
    "lanes in turns": {"tp": 2, "pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "1f1b"},
    "flat rings in turns": {"pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "1f1b", "flat_rings": ["dp"]},
    "zero2 in turns": {"pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "1f1b", "dp_sharding": "zero2"},
}
PLANS.update({name: (DENSE, values) for name, values in PIPELINES.items()})


def tiers(ratio: float, port: float = 50.0, latency: float = 1_000_000) -> tuple[TierSpec, ...]:
    return (
        TierSpec("node", (2,), 400, 2_000),
        TierSpec("zone", (2,), 50, 10_000, 1.0),
        TierSpec("building", (2,), 50, 40_000, 1.0),
        TierSpec("campus", (2,), port, latency, ratio),
    )


def sharing(config: Config, axes: Sequence[str], how: str) -> Config:
    """The network with the axes of its dimensions, shared fairly or in turns."""
    dims = [{**dim, "axis": axis} for dim, axis in zip(config.network.extension["dims"], axes, strict=True)]
    extension = {**config.network.extension, "dims": dims, "wan-sharing": how}
    return replace(config, network=replace(config.network, extension=extension))


def config_of(case: Plan, how: str, *numbers: Any) -> Config:
    return sharing(case.config(tiers(*numbers)), [dim.axis for dim in case.placement.dims], how)


@cache
def small(name: str) -> Plan:
    return plan(name, 8, 16)


@pytest.mark.parametrize(("port", "ratio"), [(50.0, 64.0), (50.0, 4.0), (2.0, 1.0), (2.0, 3.0), (50.0, 1.0)])
def test_arrivals_are_those_of_the_formula(port: float, ratio: float) -> None:
    """Four replicas of one rank a site send at once."""
    size, count = 10_000_000, 4
    network = tiered(
        [TierSpec("node", (4,), 50, 0), TierSpec("campus", (2,), port, 5_000, ratio)],
        endpoint_delay=1,
    )
    config = sharing(network, ["dp", "pp"], "temporal")
    outcome = run(sends(8, [(r, r + 4, size) for r in range(4)]), config)
    gib = (1 << 30) / 1e9
    link = min(4 * port * gib / ratio, 4 * port * gib)
    expected = 5_000 + turn_arrivals(size, count, link, port * gib, 50 * gib)
    assert outcome.finish_cycles[4:] == pytest.approx(expected, rel=1e-6, abs=2)


@pytest.mark.parametrize("ratio", [1.0, 8.0, 64.0, 400.0])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_class_a_replica_is_the_simulation_of_every_rank(name: str, ratio: float) -> None:
    case = small(name)
    config = config_of(case, "temporal", ratio)
    whole, folded = run(case.expanded, config), run(case.folded, config)
    assert folded.time_ns == pytest.approx(whole.time_ns, rel=1e-9)
    assert folded.finish_cycles == pytest.approx(whole.finish_cycles, abs=2)


@pytest.mark.parametrize("name", PIPELINES)
def test_two_classes_of_replicas_are_near(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = small(name)
    for ratio in (1.0, 8.0, 64.0, 400.0):
        config = config_of(case, "temporal", ratio)
        every = run(case.folded, config)
        with monkeypatch.context() as patch:
            patch.setattr(turns, "MOST_ROWS", 1)
            two = run(case.folded, config)
        assert len(two.representatives) == 8 <= len(every.representatives)
        assert two.time_ns == pytest.approx(every.time_ns, rel=1e-3)


def test_groups_of_replicas_end_with_the_last() -> None:
    found = [replica_ends(replicas, rows).tolist() for replicas, rows in ((4, 10), (128, 10**6), (9, 50_000))]
    assert found == [[0, 1, 2, 3], [0, 127], [0, 3, 6, 8]]


def test_turns_help_where_the_wide_area_is_slow_but_hidden() -> None:
    """The first replica's pipeline starts a whole round earlier, and the last no later than with fair shares."""
    case = small("1f1b in turns")
    fair, temporal = (run(case.folded, config_of(case, how, 64.0)) for how in ("fair", "temporal"))
    assert temporal.time_ns < fair.time_ns
    assert temporal.bound_ratio >= 1.0
    assert [tier.sent_bytes for tier in temporal.tiers] == pytest.approx([tier.sent_bytes for tier in fair.tiers])


@pytest.mark.parametrize(
    ("name", "how", "text"),
    [
        ("pipeline inside", "temporal", "more than pipeline stages lie across tier campus"),
        ("1f1b in turns", "turns", "wan-sharing is 'turns'"),
    ],
)
def test_what_cannot_take_turns_says_so(name: str, how: str, text: str) -> None:
    case = small(name)
    with pytest.raises(InvalidInput, match=text):
        run(case.folded, config_of(case, how, 4.0))


def test_one_replica_has_nobody_to_take_turns_with() -> None:
    network = tiered([TierSpec("node", (4,), 50, 0), TierSpec("campus", (2,), 50, 5_000)])
    with pytest.raises(InvalidInput, match=r"E-WAN-SHARING.*one data-parallel replica"):
        run(sends(8, [(0, 4, 1000)]), sharing(network, ["tp", "pp"], "temporal"))


def test_nothing_that_crosses_is_an_error() -> None:
    network = tiered([TierSpec("node", (4,), 50, 0), TierSpec("campus", (2,), 50, 5_000)])
    with pytest.raises(InvalidInput, match=r"E-WAN-SHARING.*no message crosses campus"):
        run(sends(8, [(0, 1, 1000)]), sharing(network, ["dp", "pp"], "temporal"))


@pytest.mark.parametrize("port", [5.0, 2.0, 1.0, 0.75])
@pytest.mark.parametrize("how", ["fair", "temporal"])
def test_turns_leave_through_the_uplinks_of_their_units(how: str, port: float) -> None:
    """Four replicas of a node send 100 MB each to the other site and as much to the other node of theirs: all of it
    passes the node's uplink at 1:7, whatever the way between the sites."""
    net = (
        TierSpec("node", (4,), 50, 0),
        TierSpec("zone", (2,), 5, 0, 7.0),
        TierSpec("campus", (2,), port, 0, 1.5),
    )
    size = 100_000_000
    out = run(
        sends(16, [(rank, rank + away, size) for rank in range(4) for away in (8, 4)]),
        sharing(tiered(net), ("dp", "pp", "pp"), how),
    )
    assert out.time_ns >= 8 * size / (4 * byte_rate(5) / 7) * (1 - 1e-9)
    assert out.bound_ratio >= 1 - 1e-9
    assert out.tiers[1].uplink_busy_max <= 1 + 1e-9
