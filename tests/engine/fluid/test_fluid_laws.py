"""Laws of the network model on whole plans, small ones with random networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from fluid_cases import A2A, AG, AR, MIB, RS, TierSpec, run, sends, tiered, workload
from fluid_plans import PLANS, TIERS, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.engine import simulate
from scaleacross.engine.fluid.build import build
from scaleacross.engine.fluid.layout import FINISH
from scaleacross.engine.fluid.loop import run as go
from scaleacross.engine.fluid.machine import make_machine
from scaleacross.engine.fluid.prepared import _kept
from scaleacross.engine.settings import Options
from scaleacross.engine.workload import Workload
from scaleacross.trace.columns import TraceBuilder

ANOMALY = 0.005  # a slower network may gain so much by an anomaly of fair sharing


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
@pytest.mark.parametrize("name", PLANS)
def test_folded_equals_expanded(name: str, algorithm: str) -> None:
    """A class stands for all its members: the same time, breakdown, bytes and use of every tier."""
    made = plan(name)
    config = made.config(algorithm=algorithm)
    small, large = run(made.folded, config), run(made.expanded, config)
    assert small.time_ns == pytest.approx(large.time_ns, rel=1e-9)
    assert small.finish_cycles == pytest.approx(large.finish_cycles, abs=1)
    assert small.breakdown == pytest.approx(large.breakdown, rel=1e-9, abs=1)
    assert small.bytes_per_dim == pytest.approx(large.bytes_per_dim, rel=1e-9)
    for ours, theirs in zip(small.tiers, large.tiers, strict=True):
        assert ours.cut_bytes == pytest.approx(theirs.cut_bytes, rel=1e-9)
        assert ours.port_busy == pytest.approx(theirs.port_busy, rel=1e-9)
        assert ours.uplink_busy_max == pytest.approx(theirs.uplink_busy_max, rel=1e-9)


@pytest.mark.parametrize("name", PLANS)
def test_networks_one_after_the_other_equal_networks_alone(name: str) -> None:
    """What is kept of a workload between networks does not tell: other numbers, tiers, streams, classes, compute."""
    made = plan(name)
    node, zone, building, campus = made.tiers()
    joined = (node, replace(zone, dims=zone.dims + building.dims), campus)  # the same dimensions in fewer tiers
    configs = [
        made.config(),
        made.config(slowed(TIERS, "oversubscription", 2, 4.0), "direct"),
        tiered(joined, "ring", made.groups, local_mem_bandwidth=3350.0, peak_perf=989.0, roofline_enabled=True),
        made.config(extension={"comm-streams": 1}),
        made.config(extension={"qos": "by-axis"}),
        made.config(local_mem_bandwidth=500.0),
    ]
    configs.append(replace(configs[0], network=replace(configs[0].network, extension={})))
    alone = []
    for config in configs:
        _kept.clear()
        alone.append(run(made.folded, config))
    for number in (*range(7), 3, 0, 6, 1, 0, 5, 2, 4):
        found = run(made.folded, configs[number])
        assert found.time_ns == alone[number].time_ns
        assert found.breakdown == alone[number].breakdown
        assert found.tiers == alone[number].tiers
    assert len({outcome.time_ns for outcome in alone}) > 3


@pytest.mark.parametrize("name", [name for name in PLANS if "flat rings" not in name])
def test_one_stream_on_plain_dimensions_is_the_exact_engine(name: str) -> None:
    """Without anything to share (one communication at a time, a port a dimension) the exact engine's time comes out."""
    made = plan(name)
    tiers = made.config(extension={"comm-streams": 1}, algorithm="ring")
    config = replace(tiers, network=replace(tiers.network, extension={}))
    exact = simulate(made.folded, config)
    assert exact.status == "ok", exact.message
    assert run(made.folded, config).time_ns == pytest.approx(exact.iteration_ns, rel=1e-4)


@st.composite
def networks(draw: st.DrawFn) -> tuple[TierSpec, ...]:
    """The tiers with other numbers; ports never widen outwards."""
    made, port = [], 400.0
    for tier in TIERS:
        port = port * draw(st.sampled_from([1.0, 1.0, 0.5, 0.2])) if tier.name != "zone" else 50.0
        latency = tier.one_way * draw(st.sampled_from([0.1, 1.0, 10.0]))
        ratio = draw(st.sampled_from([1.0, 2.0, 2.8, 7.0])) if tier.name != "node" else 1.0
        made.append(replace(tier, port=port, one_way=latency, oversubscription=ratio))
    return tuple(made)


plans = st.sampled_from(sorted(PLANS))
algorithms = st.sampled_from(["ring", "direct", "halvingDoubling", "direct1"])


@settings(max_examples=40, deadline=None)
@given(plans, networks(), algorithms, st.sampled_from([1, 4]))
def test_never_below_the_physical_bound(name: str, tiers: tuple[TierSpec, ...], algorithm: str, splits: int) -> None:
    made = plan(name)
    out = run(
        made.folded, made.config(tiers, algorithm, preferred_dataset_splits=splits, active_chunks_per_dimension=4)
    )
    assert out.bound_ratio >= 1 - 1e-9
    assert sum(out.breakdown.values()) == pytest.approx(out.time_ns, rel=1e-9)
    for tier in out.tiers:
        assert 0 <= tier.port_busy <= tier.port_busy_max <= 1 + 1e-9
        assert 0 <= tier.uplink_busy <= tier.uplink_busy_max <= 1 + 1e-9


@settings(max_examples=40, deadline=None)
@given(plans, networks(), algorithms)
def test_the_critical_path_fills_the_iteration(name: str, tiers: tuple[TierSpec, ...], algorithm: str) -> None:
    """From the first moment to the last, each operator starting before the one before it ends."""
    out = run(plan(name).folded, plan(name).config(tiers, algorithm), timeline=True)
    reached = 0.0
    for step in out.critical:
        assert step.start <= reached
        assert step.adds == pytest.approx(max(0.0, step.end - reached))
        reached = max(reached, step.end)
    assert sum(out.critical_parts().values()) == pytest.approx(out.time_ns)
    rows = {sim: {row[2:] for row in out.timeline(sim)} for sim in range(len(out.timelines))}
    assert all((step.name, step.axis) in rows[step.sim] for step in out.critical)


def slowed(tiers: Sequence[TierSpec], what: str, where: int, factor: float) -> list[TierSpec]:
    """Tiers with one number worse; a slower port slows the tiers further out too."""
    slower = list(tiers)
    for k in range(where, len(tiers) if what == "bandwidth" else where + 1):
        tier = tiers[k]
        slower[k] = {
            "bandwidth": replace(tier, port=tier.port / factor),
            "latency": replace(tier, one_way=tier.one_way * factor),
            "oversubscription": replace(tier, oversubscription=tier.oversubscription * factor),
        }[what]
    return slower


CHANGES = ["bandwidth", "latency", "oversubscription"]
FACTORS = [1.01, 1.05, 1.5, 4.0]


@settings(max_examples=60, deadline=None)
@given(plans, networks(), algorithms, st.sampled_from(CHANGES[:2]), st.integers(0, 3), st.sampled_from(FACTORS))
def test_a_slower_network_is_never_faster_where_nothing_is_shared(
    name: str, tiers: tuple[TierSpec, ...], algorithm: str, what: str, where: int, factor: float
) -> None:
    """One communication of a rank at a time and a port a dimension: every operation only gets longer."""
    made = plan(name)
    times = []
    for chosen in (tiers, slowed(tiers, what, where, factor)):
        config = made.config(chosen, algorithm, extension={"comm-streams": 1})
        times.append(run(made.folded, replace(config, network=replace(config.network, extension={}))).time_ns)
    assert times[1] >= times[0] * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(plans, networks(), algorithms, st.sampled_from(CHANGES), st.integers(0, 3), st.sampled_from(FACTORS))
def test_a_slower_network_is_never_faster_where_shares_are_reserved(
    name: str, tiers: tuple[TierSpec, ...], algorithm: str, what: str, where: int, factor: float
) -> None:
    """Streams in a fixed order and rates that nobody else's progress changes: every operation only gets longer."""
    made = plan(name)
    reserved = {"extension": {"qos": "reserved"}}
    before, after = (
        run(made.folded, made.config(chosen, algorithm, **reserved)).time_ns
        for chosen in (tiers, slowed(tiers, what, where, factor))
    )
    assert after >= before * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(plans, networks(), algorithms)
def test_fair_shares_lie_between_links_for_oneself_and_reserved_shares(
    name: str, tiers: tuple[TierSpec, ...], algorithm: str
) -> None:
    """Both ends are monotone, so that no slower network gains more than what lies between them."""
    made = plan(name)
    fair = made.config(tiers, algorithm)
    built = build(made.folded, fair, Options())
    own = built.tables._replace(capacity=np.full(len(built.tables.capacity), 1e30))
    machine = make_machine(own, built.rows.waits, built.in_line)
    go(machine.m, machine.f, 1 << 60)
    alone = float(machine.real("sim", FINISH).max())
    shared = run(made.folded, fair).time_ns
    reserved = run(made.folded, made.config(tiers, algorithm, extension={"qos": "reserved"})).time_ns
    assert alone * (1 - 1e-9) <= shared <= reserved * (1 + 1e-9)


@pytest.mark.parametrize("qos", ["by-axis", "reserved"])
@pytest.mark.parametrize("name", PLANS)
def test_folded_equals_expanded_with_traffic_classes(name: str, qos: str) -> None:
    made = plan(name)
    config = made.config(extension={"qos": qos})
    small, large = run(made.folded, config), run(made.expanded, config)
    assert small.time_ns == pytest.approx(large.time_ns, rel=1e-9)
    assert small.breakdown == pytest.approx(large.breakdown, rel=1e-9, abs=1)


def test_a_slower_network_is_hardly_ever_faster_where_flows_share() -> None:
    """Fair sharing has anomalies: a delay can take transfers of different stages out of each other's way on an uplink
    (docs/network-model.md). Over 400 pairs of networks, always the same, they are rare and small."""
    random = np.random.default_rng(11)
    gains = []
    for _ in range(400):
        name = sorted(PLANS)[random.integers(len(PLANS))]
        tiers = [
            replace(
                tier,
                port=tier.port if k < 2 else tier.port * random.choice([1.0, 0.5, 0.25]),
                one_way=tier.one_way * random.choice([0.1, 1.0, 10.0]),
                oversubscription=1.0 if k == 0 else random.choice([1.0, 2.0, 2.8, 7.0]),
            )
            for k, tier in enumerate(TIERS)
        ]
        tiers[3] = replace(tiers[3], port=min(tiers[2].port, tiers[3].port))
        worse = slowed(tiers, random.choice(CHANGES), int(random.integers(4)), random.choice(FACTORS))
        algorithm = random.choice(["ring", "direct", "halvingDoubling"])
        made = plan(name)
        before, after = (run(made.folded, made.config(these, algorithm)).time_ns for these in (tiers, worse))
        gains.append(before / after - 1)
    assert np.mean(np.array(gains) > 1e-9) < 0.05
    assert np.mean(np.array(gains) > ANOMALY) <= 0.01
    assert max(gains) < 0.02


def group_of(ranks: list[int], kind: int, size: int) -> Workload:
    def build(rank: int, trace: TraceBuilder) -> None:
        trace.compute("c", 0, 0, duration_micros=0)
        if rank in ranks:
            trace.collective("dp.x", kind, size, pg=1)

    return workload(build, 16)


@settings(max_examples=60, deadline=None)
@given(networks(), st.sampled_from([AR, AG, RS, A2A]), st.integers(0, 2))
def test_moving_a_group_across_a_slower_tier_is_never_faster(
    tiers: tuple[TierSpec, ...], kind: int, level: int
) -> None:
    """Two ranks of one unit, or of two: alone on the network, the tier further out is not the faster one."""
    worse = []
    for k, tier in enumerate(tiers):
        inner = tiers[: k + 1]
        one_way, ratio = max(t.one_way for t in inner), max(t.oversubscription for t in inner)
        worse.append(replace(tier, one_way=one_way, oversubscription=ratio))
    inside, outside = [[0, 1], [0, 2], [0, 4]][level], [[0, 2], [0, 4], [0, 8]][level]
    times = [
        run(group_of(ranks, kind, 8 * MIB), tiered(worse, groups={1: tuple(ranks)})).time_ns
        for ranks in (inside, outside)
    ]
    assert times[1] >= times[0] * (1 - 1e-9)
    message = [run(sends(16, [(0, ranks[1], MIB)]), tiered(worse)).time_ns for ranks in (inside, outside)]
    assert message[1] >= message[0] * (1 - 1e-9)


def test_equal_inputs_give_equal_results() -> None:
    made = plan("experts")
    first, second = (run(made.folded, made.config()) for _ in range(2))
    assert first.time_ns == second.time_ns
    assert np.array_equal(first.finish_cycles, second.finish_cycles)
