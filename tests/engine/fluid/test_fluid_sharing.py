"""Who shares what: ports, uplinks, streams; each case worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fluid_cases import A2A, AG, AR, MIB, RS, TierSpec, byte_rate, one_collective, plain, run, sends, tiered, workload
from scaleacross.engine.settings import Config
from scaleacross.engine.workload import Workload
from scaleacross.errors import InvalidInput
from scaleacross.trace.columns import TraceBuilder

NIC = byte_rate(50)


def campus(ratio: float = 2.0, wan: float = 50.0, **options: Any) -> Config:
    """16 GPUs: nodes of 2, zones of 2 nodes, buildings of 2 zones, a campus of 2; uplinks 1:ratio above the zone."""
    tiers = (
        TierSpec("node", (2,), 400, 1000),
        TierSpec("zone", (2,), 50, 10_000),
        TierSpec("building", (2,), 50, 20_000, ratio),
        TierSpec("campus", (2,), wan, 100_000, ratio),
    )
    return tiered(tiers, **options)


def test_an_uplink_is_shared_by_the_messages_that_cross_it() -> None:
    """A zone of 4 at 1:2 lets two ports out: one message has its port, four have half of it each."""
    size = 100 * MIB
    assert run(sends(16, [(0, 4, size)]), campus()).time_ns == pytest.approx(20_000 + size / NIC)
    four = run(sends(16, [(k, 4 + k, size) for k in range(4)]), campus())
    assert four.time_ns == pytest.approx(20_000 + 2 * size / NIC)
    assert four.tiers[2].bottleneck == "uplink"
    # as many that stay in their zone have their ports
    inside = run(sends(16, [(k, (k + 2) % 4, size) for k in range(4)]), campus())
    assert inside.time_ns == pytest.approx(10_000 + size / NIC)
    # two leave zone 0, two leave zone 1: two uplinks
    apart = run(sends(16, [(0, 4, size), (1, 5, size), (6, 2, size), (7, 3, size)]), campus())
    assert apart.time_ns == pytest.approx(20_000 + size / NIC)


def test_ingress_is_a_port_too() -> None:
    size = 100 * MIB
    two = run(sends(16, [(0, 2, size), (4, 2, size)]), campus())
    assert two.time_ns == pytest.approx(10_000 + 2 * size / NIC)  # it ends later


def test_a_message_between_buildings_uses_the_zones_uplinks_too() -> None:
    """Latency is the highest tier's; bytes pass the uplink of the zone, shared with what stays in the building."""
    size = 100 * MIB
    assert run(sends(16, [(0, 8, size)]), campus()).time_ns == pytest.approx(100_000 + size / NIC)
    mixed = run(sends(16, [(0, 8, size), (1, 9, size), (2, 4, size), (3, 5, size)]), campus())
    assert mixed.time_ns > 20_000 + 1.9 * size / NIC
    assert mixed.tiers[2].cut_bytes == pytest.approx(4 * size)  # out of zone 0, what goes further included
    assert mixed.tiers[3].cut_bytes == pytest.approx(2 * size)


def test_a_slower_port_of_an_outer_tier_leaves_the_nic_to_others() -> None:
    size = 100 * MIB
    far = byte_rate(5)
    out = run(sends(16, [(0, 8, size), (0, 2, 9 * size)]), campus(wan=5))
    assert out.time_ns == pytest.approx(100_000 + size / far, rel=0.02)
    assert out.time_ns == pytest.approx(10_000 + 9 * size / (NIC - far), rel=0.02)


@pytest.mark.parametrize(("ratio", "pace"), [(1.0, 1.0), (2.0, 1.0), (4.0, 1.0), (8.0, 0.5), (16.0, 0.25)])
def test_a_flat_ring_crosses_once_a_zone(ratio: float, pace: float) -> None:
    """One member in four of a zone sends out: it has the full port as long as four is the ratio at most."""
    size = 160 * MIB
    config = campus(ratio, groups={1: tuple(range(8))}, algorithm="ring")
    found = run(group_call(range(8), RS, size), config)
    hops = [1000, 10_000, 1000, 20_000] * 2
    bytes_time = 7 / 8 * size / (NIC * pace)
    assert found.time_ns == pytest.approx(sum(hops) - 1000 + bytes_time, rel=1e-3)


def group_call(ranks: range, kind: int, size: int) -> Workload:
    def build(rank: int, trace: TraceBuilder) -> None:
        if rank in ranks:
            trace.collective("dp.ring", kind, size, pg=1)
        else:
            trace.compute("idle", 0, 0, duration_micros=0)

    return workload(build, 16)


def test_the_order_of_a_ring_decides_how_often_it_crosses() -> None:
    """Ring order by zone crosses twice, alternating order always: pitfalls.md measures 0.29 against 13.99 ms."""
    size = 160 * MIB
    good = campus(8.0, groups={1: (0, 1, 2, 3, 4, 5, 6, 7)})
    bad = campus(8.0, groups={1: (0, 4, 1, 5, 2, 6, 3, 7)})
    work = group_call(range(8), RS, size)
    assert run(work, bad).time_ns > 3.5 * run(work, good).time_ns


def test_an_all_to_all_sees_all_of_the_oversubscription() -> None:
    """Over the building dimension every member sends its half across: the zone's uplink gives each port / ratio."""
    size = 64 * MIB
    config = campus(4.0, algorithm="direct1")
    work = one_collective(16, A2A, size, involved=(False, False, True, False))
    assert run(work, config).time_ns == pytest.approx(20_000 + size / 2 / (NIC / 4), rel=1e-3)


def test_a_pipeline_boundary_sees_the_ranks_of_one_stage() -> None:
    """Stage 0 is half of the zone: 2 of 4 send across a 1:4 uplink, at half their port each."""
    size = 64 * MIB
    out = run(sends(16, [(0, 4, size), (1, 5, size)]), campus(4.0))
    assert out.time_ns == pytest.approx(20_000 + size / (NIC / 2), rel=1e-3)


def beside(first: tuple[bool, ...], second: tuple[bool, ...], labels: tuple[str, str] = ("dp", "ep")) -> Workload:
    def build(_: int, trace: TraceBuilder) -> None:
        trace.collective(f"{labels[0]}.a", RS, 64 * MIB, involved=first)
        trace.collective(f"{labels[1]}.b", RS, 64 * MIB, involved=second)

    return workload(build, 16)


ZONE, CAMPUS, NODE = (False, True, False, False), (False, False, False, True), (True, False, False, False)


def test_tiers_above_the_node_share_the_nic() -> None:
    bytes_time = 32 * MIB / NIC
    both = run(beside(ZONE, CAMPUS), campus(1.0)).time_ns
    assert both == pytest.approx(10_000 + 2 * bytes_time, rel=0.01)
    assert both > 1.9 * bytes_time
    apart = run(beside(NODE, CAMPUS), campus(1.0)).time_ns
    assert apart == pytest.approx(100_000 + bytes_time, rel=1e-3)


def test_plain_dimensions_have_ports_of_their_own() -> None:
    config = plain([2, 2, 2, 2], [400, 50, 50, 50], 0)
    assert run(beside(ZONE, CAMPUS), config).time_ns == pytest.approx(32 * MIB / NIC, rel=1e-3)


def test_streams_follow_the_label() -> None:
    """One label: one after the other. Two: at once. ``comm-streams: 1``: always one after the other."""
    config = campus(1.0)
    single = dataclasses.replace(config, system=dataclasses.replace(config.system, extension={"comm-streams": 1}))
    one = run(beside(NODE, CAMPUS, ("dp", "dp")), config)
    two = run(beside(NODE, CAMPUS), config)
    slot = run(beside(NODE, CAMPUS), single)
    node = 1000 + 32 * MIB / byte_rate(400)
    assert one.time_ns == pytest.approx(slot.time_ns, rel=1e-9)
    assert one.time_ns - two.time_ns == pytest.approx(node, rel=1e-3)
    for wrong in ({"comm-streams": 2}, {"comm-streams": True}, {"streams": 1}, {"qos": "best"}):
        bad = dataclasses.replace(config, system=dataclasses.replace(config.system, extension=wrong))
        with pytest.raises(InvalidInput, match="E-SYSTEM-EXT"):
            run(one_collective(16, AR, MIB), bad)


def late_and_ready(first: str, second: str) -> Workload:
    """On 16 ranks: a collective after 1 ms of compute, then one that could start at once."""

    def build(_: int, trace: TraceBuilder) -> None:
        work = trace.compute("c", 0, 0, duration_micros=1000)
        trace.collective(first, AR, 32 * MIB, [work])
        trace.collective(second, AR, 32 * MIB)

    return workload(build, 16)


def test_a_stream_runs_in_the_order_of_the_trace() -> None:
    """What is behind a collective that waits for compute waits too, unless it has another stream or the slot is one."""
    config = campus(1.0)
    single = dataclasses.replace(config, system=dataclasses.replace(config.system, extension={"comm-streams": 1}))
    alone = run(one_collective(16, AR, 32 * MIB), config).time_ns
    assert run(late_and_ready("dp.a", "dp.b"), config).time_ns == pytest.approx(1e6 + 2 * alone)
    slot = run(late_and_ready("dp.a", "dp.b"), single).time_ns
    assert slot == pytest.approx(max(1e6, alone) + alone)
    assert run(late_and_ready("dp.a", "cp.b"), config).time_ns < 1e6 + 2 * alone - 1


def test_orders_that_contradict_each_other_give_way_to_what_is_ready() -> None:
    """Rank 0 names x before y, the others y before x, and x is not ready before y has run: no order of theirs ends."""

    def build(rank: int, trace: TraceBuilder) -> None:
        if rank == 0:
            work = trace.compute("c", 0, 0, duration_micros=1000)
            trace.collective("dp.x", AR, MIB, [work], pg=1)
            trace.collective("dp.y", AR, MIB, pg=2)
        else:
            before = trace.collective("dp.y", AR, MIB, pg=2)
            trace.collective("dp.x", AR, MIB, [before], pg=1)

    config = dataclasses.replace(campus(1.0), groups={1: tuple(range(16)), 2: tuple(reversed(range(16)))})
    assert run(workload(build, 16), config).time_ns > 1e6


def two_messages() -> Workload:
    """Rank 0 sends 10 MiB to rank 8 for the pipeline and 10 MiB to rank 10 for data parallelism."""

    def build(rank: int, trace: TraceBuilder) -> None:
        trace.compute("c", 0, 0, duration_micros=0)
        for label, peer in (("pp", 8), ("dp", 10)):
            if rank == 0:
                trace.send(f"{label}.s", peer, 10 * MIB, peer)
            if rank == peer:
                trace.recv(f"{label}.r", 0, 10 * MIB, peer)

    return workload(build, 16)


@pytest.mark.parametrize(("qos", "first", "last"), [("fair", 2, 2), ("by-axis", 1, 2), ("reserved", 2, 2)])
def test_traffic_classes(qos: str, first: int, last: int) -> None:
    """Fair: both take twice as long. By axis: the pipeline's message has the port until it is through."""
    config = campus(1.0)
    config = dataclasses.replace(config, system=dataclasses.replace(config.system, extension={"qos": qos}))
    finish = run(two_messages(), config).finish_cycles
    alone = 10 * MIB / NIC
    assert finish[8] == pytest.approx(100_000 + first * alone, abs=1)
    assert finish[10] == pytest.approx(100_000 + last * alone, abs=1)


def test_a_reserved_share_stays_idle_when_the_others_are_done() -> None:
    """A second, longer message keeps its half of the port after the first one has ended."""
    size = [(0, 8, 10 * MIB), (0, 10, 20 * MIB)]
    config = campus(1.0)
    reserved = dataclasses.replace(config, system=dataclasses.replace(config.system, extension={"qos": "reserved"}))
    assert run(sends(16, size), config).time_ns == pytest.approx(100_000 + 30 * MIB / NIC)
    assert run(sends(16, size), reserved).time_ns == pytest.approx(100_000 + 40 * MIB / NIC)


def test_sends_to_different_peers_overlap_and_to_one_peer_queue() -> None:
    """Messages to one peer wait for each other's latency, to two peers they only share the port."""
    size = 10 * MIB
    one = run(sends(16, [(0, 8, size), (0, 8, size)]), campus(1.0)).time_ns
    two = run(sends(16, [(0, 8, size), (0, 10, size)]), campus(1.0)).time_ns
    assert one == pytest.approx(2 * (100_000 + size / NIC))
    assert two == pytest.approx(100_000 + 2 * size / NIC)


def test_the_breakdown_separates_waiting_from_communication() -> None:
    """Rank 1 waits 1 ms for rank 0's compute, which is idle, then 0.1 ms and the bytes, which is communication."""

    def build(rank: int, trace: TraceBuilder) -> None:
        if rank == 0:
            trace.send("pp.s", 1, MIB, 1, [trace.compute("F", 0, 0, duration_micros=1000)])
        else:
            got = trace.recv("pp.r", 0, MIB, 1)
            trace.compute("F", 0, 0, [got], duration_micros=500)

    config = plain([2], 1, 50_000)
    out = run(workload(build, 2), config, timeline=True)
    message = 100_000 + MIB / byte_rate(1)
    assert out.time_ns == pytest.approx(1_500_000 + message)
    assert out.breakdown["compute"] == pytest.approx(750_000)
    assert out.breakdown["exposed_pp"] == pytest.approx(message)
    assert out.breakdown["idle"] == pytest.approx(750_000)
    assert sum(out.breakdown.values()) == pytest.approx(out.time_ns)
    assert [(step.sim, step.name) for step in out.critical] == [(0, "F"), (0, "pp.s"), (1, "pp.r"), (1, "F")]
    assert out.timeline(0)[0][2:] == ("F", "compute") and out.timeline(1)[-1][:2] == (
        round(1e6 + message),
        out.iteration_ns,
    )


def test_what_each_tier_carries() -> None:
    """An all-gather of 1 MiB shards over the campus dimension: of two members, one shard each way."""
    out = run(one_collective(16, AG, MIB, involved=CAMPUS), campus(2.0))
    assert out.bytes_per_dim == [0, 0, 0, MIB]
    names = [tier.name for tier in out.tiers]
    assert names == ["node", "zone", "building", "campus"]
    assert [tier.sent_bytes for tier in out.tiers] == [0, 0, 0, MIB]
    assert [tier.cut_bytes for tier in out.tiers] == [0, 16 * MIB, 16 * MIB, 16 * MIB]
    assert out.tiers[3].cut_bytes_max == 8 * MIB  # a building's
    assert out.tiers[2].uplink_busy == pytest.approx(2 * out.tiers[1].port_busy)
    assert out.tiers[2].bottleneck == "uplink"


def four_buildings(topology: str, ratio: float = 2.0, **options: Any) -> Config:
    """Four buildings of two nodes of two GPUs, joined all to all or in a ring."""
    tiers = (
        TierSpec("node", (2,), 400, 1000),
        TierSpec("building", (2,), 50, 10_000),
        TierSpec("campus", (4,), 50, 100_000, ratio, topology),
    )
    return tiered(tiers, **options)


def test_fully_connected_buildings_have_an_uplink_a_peer() -> None:
    """Four GPUs at 1:4 have one port's worth to each other building: to one they share it, to three they do not."""
    size = 64 * MIB
    config = four_buildings("FullyConnected", 4.0)
    together = run(sends(16, [(k, 4 + k, size) for k in range(3)]), config)
    assert together.time_ns == pytest.approx(100_000 + 3 * size / NIC)
    apart = run(sends(16, [(0, 4, size), (1, 9, size), (2, 14, size)]), config)
    assert apart.time_ns == pytest.approx(100_000 + size / NIC)
    # a GPU still has one NIC
    one = run(sends(16, [(0, 4, size), (0, 8, size), (0, 12, size)]), config)
    assert one.time_ns == pytest.approx(100_000 + 3 * size / NIC)


def test_a_ring_of_buildings_carries_what_passes() -> None:
    """Two hops forward, past building 1, whose uplink forward its own messages share; backward is another uplink."""
    size = 64 * MIB
    config = four_buildings("Ring", 4.0)
    past = run(sends(16, [(0, 8, size), (4, 8 + 1, size)]), config)
    assert past.time_ns == pytest.approx(100_000 + 2 * size / NIC)
    back = run(sends(16, [(0, 8, size), (9, 4, size)]), config)
    assert back.time_ns == pytest.approx(200_000 + size / NIC)
    # direct over the dimension: blocks one, two (forward) and one (backward) places on: 3 blocks forward
    out = run(
        one_collective(16, A2A, size, involved=(False, False, True)), four_buildings("Ring", 4.0, algorithm="direct")
    )
    assert out.time_ns == pytest.approx(200_000 + 3 * (size / 4) / (NIC / 4), rel=1e-3)
    group = four_buildings("Ring", 4.0, groups={k + 1: (k, 4 + k, 8 + k, 12 + k) for k in range(4)})
    flat = workload(lambda rank, t: t.collective("dp.x", RS, size, pg=1 + rank % 4) and None, 16)
    whole = one_collective(16, RS, size, involved=(False, False, True))
    assert run(flat, group).time_ns == pytest.approx(run(whole, four_buildings("Ring", 4.0)).time_ns, abs=100)
