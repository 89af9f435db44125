"""Transports of a tier: what a simulator is handed, the file's section, hashed paths, taking turns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.cluster import Tier, load_cluster
from scaleacross.cluster.protocols import Path, completion
from scaleacross.cluster.scheme import Scheme
from scaleacross.cluster.sharing import collision_efficiency, expected_fullest, shared_arrivals, turn_arrivals
from scaleacross.cluster.transport import Transport, effective, uplink_efficiency
from scaleacross.errors import InvalidInput

CLUSTERS = File(__file__).parents[2] / "config" / "clusters"
MIB = 2**20
FAR = Tier("region", 2, 50e9, 5e-3, loss=1e-5)

MINIMAL = """
name: mini
accelerator: h100-sxm
transports:
  gbn: {scheme: go-back-n, queue_pairs: 4, outstanding: 1 MiB, source: {queue_pairs: a page}}
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: region, size: 2, bandwidth: 400 Gbps, latency: 1 ms, loss: 1e-4, transport: gbn, paths: 8}
"""

transports = st.builds(
    Transport,
    name=st.just("t"),
    scheme=st.builds(
        Scheme,
        kind=st.sampled_from(["go-back-n", "selective-repeat", "erasure-coding", "tcp"]),
        queue_pairs=st.sampled_from([1, 16]),
        outstanding=st.sampled_from([1.0 * MIB, 128.0 * MIB, math.inf]),
    ),
    message=st.sampled_from([65536.0, 16.0 * MIB, 1e9]),
)


@settings(max_examples=200, deadline=None)
@given(transports, st.floats(1e-6, 0.05), st.sampled_from([0.0, 1e-6, 1e-4, 1e-2]))
def test_a_simulator_s_time_is_the_protocol_s_at_the_reference(
    transport: Transport, latency: float, loss: float
) -> None:
    tier = replace(FAR, latency=latency, loss=loss, transport=transport)
    usable = effective(tier)
    exact = completion(transport.scheme, Path(tier.bandwidth, 2 * latency, loss), transport.message)
    assert usable.latency + transport.message / usable.bandwidth == pytest.approx(exact, rel=1e-9)
    assert usable.latency >= latency and usable.bandwidth <= tier.bandwidth * (1 + 1e-9)
    assert usable.overhead >= 1


@settings(max_examples=150, deadline=None)
@given(
    transports,
    st.floats(1e-6, 0.02),
    st.floats(1, 3),
    st.sampled_from([0.0, 1e-6, 1e-4, 1e-2]),
    st.sampled_from([1, 10]),
    st.floats(1, 10),
)
def test_a_worse_network_is_never_faster_for_messages_from_the_reference_up(
    transport: Transport, latency: float, farther: float, loss: float, lossier: int, larger: float
) -> None:
    tier = replace(FAR, latency=latency, loss=loss, transport=transport)
    worse = replace(tier, latency=latency * farther, loss=loss * lossier)
    before, after = effective(tier), effective(worse)
    size = transport.message * larger
    assert after.latency + size / after.bandwidth >= (before.latency + size / before.bandwidth) * (1 - 5e-3)
    assert effective(tier, rate=tier.bandwidth / farther).bandwidth <= before.bandwidth * (1 + 5e-3)


def test_a_tier_without_a_transport_is_what_it_says() -> None:
    assert effective(FAR) == effective(replace(FAR, transport=Transport("ideal")))
    assert (effective(FAR).bandwidth, effective(FAR).latency, effective(FAR).overhead) == (50e9, 5e-3, 1.0)
    assert effective(FAR, rate=1e9).bandwidth == 1e9


def test_a_file_s_transport_reaches_its_tier(tmp_path: File) -> None:
    path = tmp_path / "mini.yaml.j2"
    path.write_text(MINIMAL)
    cluster = load_cluster(path)
    assert cluster.tier("node").transport is None
    region = cluster.tier("region")
    assert region.transport is not None and (region.loss, region.paths) == (1e-4, 8)
    assert region.transport.scheme == Scheme("go-back-n", 4, MIB)
    texts = {(note.tier, note.field): note.text for note in cluster.sources()}
    assert texts["transport gbn", "queue_pairs"] == "a page"
    assert texts["transport gbn", "outstanding"] == "assumption: no source stated"


@pytest.mark.parametrize(
    ("old", "new", "error_id", "says"),
    [
        ("transport: gbn", "transport: gnb", "E-TRANSPORT", ["'gnb'", "did you mean 'gbn'?"]),
        ("queue_pairs: 4", "queue_pair: 4", "E-KEY", ["transports.gbn.queue_pair", "'queue_pairs'?"]),
        ("queue_pairs: 4", "parity_chunks: 4", "E-VALUE", ["'parity_chunks' means nothing to scheme go-back-n"]),
        ("outstanding: 1 MiB", "outstanding: 1048576", "E-VALUE", ["transports.gbn.outstanding", "no unit"]),
        ("scheme: go-back-n", "scheme: go-back-m", "E-VALUE", ["transports.gbn.scheme", "go-back-m"]),
        ("loss: 1e-4", "loss: 1", "E-VALUE", ["tiers.1.loss"]),
        ("loss: 1e-4", "loss: 0.99", "E-VALUE", ["tiers.1.loss", "0.5"]),
        ("outstanding: 1 MiB", "mtu: 32 B", "E-VALUE", ["transports.gbn.mtu", "64"]),
        ("outstanding: 1 MiB", "message: 1e300 MiB", "E-VALUE", ["transports.gbn.message", "more than 1e+15 byte"]),
        ("loss: 1e-4", "loss: 5 %", "E-VALUE", ["tiers.1.loss"]),
        ("paths: 8", "paths: -1", "E-VALUE", ["tiers.1.paths"]),
        ("queue_pairs: a page", "mtu: a page", "E-KEY", ["transports.gbn", "'mtu'"]),
    ],
)
def test_a_mistake_is_one_clear_error(tmp_path: File, old: str, new: str, error_id: str, says: list[str]) -> None:
    assert MINIMAL.count(old) == 1
    path = tmp_path / "mini.yaml.j2"
    path.write_text(MINIMAL.replace(old, new))
    with pytest.raises(InvalidInput) as caught:
        load_cluster(path)
    assert caught.value.error_id == error_id and "\n" not in str(caught.value)
    for words in ("mini.yaml.j2", *says):
        assert words in str(caught.value)


def test_chunks_that_hardly_ever_arrive_whole_are_refused_before_memory_runs_out(tmp_path: File) -> None:
    """99.7 % of chunks of 16 packets need 12,000 repeats of repeats; at 90 % the mean is still found in no time."""
    text = MINIMAL.replace("scheme: go-back-n", "scheme: selective-repeat, chunk: 16 KiB")
    path = tmp_path / "mini.yaml.j2"
    path.write_text(text.replace("loss: 1e-4", "loss: 0.43"))
    assert 0 < effective(load_cluster(path).tier("region")).bandwidth < load_cluster(path).tier("region").bandwidth
    path.write_text(text.replace("loss: 1e-4", "loss: 0.5").replace("16 KiB", "64 KiB"))
    with pytest.raises(
        InvalidInput, match=r"E-TRANSPORT: .*tiers.region: 100.0% of the chunks of 65536 bytes.*smaller"
    ):
        load_cluster(path)


PRESETS = ("meta-2dc-16k", "meta-5dc", "llama3-24k", "bag-regions", "metro", "long-haul-1000km")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("transport", ["roce-gbn", "roce-sr", "sdr-ec", "tcp-16"])
def test_every_preset_takes_every_transport_and_says_where_its_numbers_come_from(preset: str, transport: str) -> None:
    path = CLUSTERS / f"{preset}.yaml.j2"
    values: dict[str, Any] = {"transport": transport}
    cluster = load_cluster(path, values)
    assert cluster.tiers[-1].transport is not None and cluster.tiers[-1].transport.name == transport
    assert all(tier.transport is None for tier in cluster.tiers[:-1])
    assert not [str(note) for note in cluster.sources() if note.text.endswith("no source stated")]
    swept = load_cluster(path, {**values, "loss": 1e-3, "queue_pairs": 2, "outstanding": "2 MiB", "tcp_connections": 2})
    assert effective(swept.tiers[-1]).bandwidth < effective(cluster.tiers[-1]).bandwidth


def test_schemes_rank_as_published_on_a_lossy_long_haul_link() -> None:
    """At 1,000 km and one loss in 1,000 packets: go-back-N collapses, TCP too; erasure coding pays its parity only."""
    usable = {
        name: effective(
            load_cluster(CLUSTERS / "long-haul-1000km.yaml.j2", {"transport": name, "loss": 1e-3}).tiers[-1]
        )
        for name in ("roce-gbn", "roce-sr", "sdr-ec", "tcp-16")
    }
    message = 16 * MIB
    times = {name: u.latency + message / u.bandwidth for name, u in usable.items()}
    assert times["sdr-ec"] < times["roce-sr"] < times["roce-gbn"] < times["tcp-16"]


@pytest.mark.parametrize(("flows", "paths"), [(2, 8), (8, 8), (64, 8), (64, 76), (4096, 76), (256, 256), (32768, 76)])
def test_hashing_fills_the_fullest_path_as_drawing_does(flows: int, paths: int) -> None:
    drawn = np.random.default_rng(1).multinomial(flows, [1 / paths] * paths, size=1000).max(axis=1)
    assert expected_fullest(flows, paths) == pytest.approx(drawn.mean(), rel=0.02 if flows > paths else 0.12)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_hashing_wastes_and_more_queue_pairs_waste_less(flows: int, paths: int) -> None:
    assert 0 < collision_efficiency(flows, paths) <= 1
    if flows >= 2 * paths:
        assert collision_efficiency(16 * flows, paths) >= collision_efficiency(flows, paths)
    hashed = Transport("t", Scheme("go-back-n"), "ecmp")
    tier = replace(FAR, paths=paths, transport=hashed)
    assert uplink_efficiency(tier, flows) == collision_efficiency(flows, paths)
    assert uplink_efficiency(replace(tier, transport=replace(hashed, balance="spray")), flows) == 1


@given(
    st.floats(1e3, 1e9),
    st.integers(1, 64),
    st.floats(1e8, 1e11),
    st.sampled_from([1e8, 6e8, math.inf]),
    st.sampled_from([1e10, math.inf]),
)
def test_taking_turns_makes_nobody_later_than_sharing_but_for_the_local_way(
    size: float, replicas: int, link: float, pair: float, local: float
) -> None:
    shared = shared_arrivals(size, replicas, link, pair)
    turns = turn_arrivals(size, replicas, link, pair, local)
    extra = 2 * size / local
    assert (turns <= shared * (1 + 1e-9) + extra).all()
    assert turns[-1] >= shared[-1] * (1 - 1e-9)
    assert (np.diff(turns) >= 0).all()
    # bytes a second over the link while it is used never pass it, nor what the pairs can carry
    assert (size * np.arange(1, replicas + 1) <= (turns + 1e-12) * min(link, replicas * pair) * (1 + 1e-9)).all()
    if local == math.inf:
        assert turns.mean() == pytest.approx(shared.mean() * (replicas + 1) / (2 * replicas))


def test_turns_agree_with_a_fluid_run_of_one_replica_after_the_other() -> None:
    """Four replicas of 1 GB over 10 GB/s, 5 GB/s a node pair: 0.4 s for all when they share, 0.1 s apart in turns."""
    assert shared_arrivals(1e9, 4, 10e9, 5e9).tolist() == pytest.approx([0.4] * 4)
    assert turn_arrivals(1e9, 4, 10e9, 5e9).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    # a link wider than the pairs that share it: turns use all pairs for each replica
    assert shared_arrivals(1e9, 4, 100e9, 5e9).tolist() == pytest.approx([0.2] * 4)
    assert turn_arrivals(1e9, 4, 100e9, 5e9).tolist() == pytest.approx([0.05, 0.1, 0.15, 0.2])
