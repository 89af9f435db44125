"""Laws of the network model on whole plans, small ones with random networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fluid_cases import A2A, AG, AR, MIB, RS, TierSpec, run, sends, tiered, workload
from fluid_plans import PLANS, TIERS, plan
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.engine import simulate
from scaleacross.engine.workload import Workload
from scaleacross.trace.columns import TraceBuilder

ANOMALY = 0.005  # how much a slower network may gain: see the end of docs/network-model.md


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


@pytest.mark.parametrize("name", [name for name in PLANS if name != "flat rings"])
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


@settings(max_examples=60, deadline=None)
@given(
    plans,
    networks(),
    algorithms,
    st.sampled_from(["bandwidth", "latency", "oversubscription"]),
    st.integers(0, 3),
    st.sampled_from([1.05, 1.5, 4.0]),
)
def test_a_slower_network_is_never_faster(
    name: str, tiers: tuple[TierSpec, ...], algorithm: str, what: str, where: int, factor: float
) -> None:
    made = plan(name)
    slower = list(tiers)
    for k in range(where, len(tiers) if what == "bandwidth" else where + 1):
        tier = tiers[k]
        slower[k] = {
            "bandwidth": replace(tier, port=tier.port / factor),
            "latency": replace(tier, one_way=tier.one_way * factor),
            "oversubscription": replace(tier, oversubscription=tier.oversubscription * factor),
        }[what]
    before = run(made.folded, made.config(tiers, algorithm)).time_ns
    after = run(made.folded, made.config(slower, algorithm)).time_ns
    assert after >= before * (1 - ANOMALY)


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
