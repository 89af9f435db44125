"""Transports in the rendered network: ASTRA-sim's columns and the tiers of the embedded model tell one story."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from scaleacross.astra.dimensions import astra_dimensions, simulated_tiers
from scaleacross.astra.render import render_config
from scaleacross.cluster import Accelerator, Cluster, Scheme, Tier, Transport, effective, load_cluster
from scaleacross.units import GIB

ROOT = Path(__file__).parents[2]
GPU = Accelerator("gpu", {"bf16": 989e12}, 80 * GIB, 3350e9)
TRANSPORTS = ("ideal", "roce-gbn", "roce-sr", "sdr-ec", "tcp-16")


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str
    share: float = 1.0


PLACED = (Dim(8, "node", "tp"), Dim(16, "zone", "dp"), Dim(16, "zone", "pp", 0.5), Dim(4, "building", "dp"))
ACROSS = (*PLACED, Dim(2, "campus", "dp"))
REGIONS = (*PLACED, Dim(2, "region", "dp"))


def network(cluster: str, **values: Any) -> dict[str, Any]:
    loaded = load_cluster(ROOT / "config" / "clusters" / f"{cluster}.yaml.j2", values)
    dims = ACROSS if cluster.startswith("meta") else REGIONS
    return dict(yaml.safe_load(render_config(dims, loaded, GPU, values)["network.yml"]))


@pytest.mark.parametrize("cluster", ["meta-2dc-16k", "long-haul-1000km"])
def test_a_transport_changes_the_outermost_dimension_and_nothing_else(cluster: str) -> None:
    ideal = network(cluster)
    assert network(cluster, transport="ideal") == ideal
    for name in TRANSPORTS[1:]:
        content = network(cluster, transport=name, loss=1e-4)
        assert content["bandwidth"][:-1] == ideal["bandwidth"][:-1]
        assert content["latency"][:-1] == ideal["latency"][:-1]
        assert content["latency"][-1] >= ideal["latency"][-1]
        assert content["bandwidth"][-1] < ideal["bandwidth"][-1]


@pytest.mark.parametrize("name", TRANSPORTS)
@pytest.mark.parametrize("loss", [0.0, 1e-4, 1e-2])
def test_columns_and_tiers_agree(name: str, loss: float) -> None:
    content = network("long-haul-1000km", transport=name, loss=loss)
    tiers = content["x-scaleacross"]["tiers"]
    outer = tiers[-1]
    assert 2 * content["latency"][-1] == pytest.approx(outer["one-way"], rel=1e-4)
    assert content["x-scaleacross"]["dims"][-1]["port"] == outer["bandwidth"]
    assert outer["oversubscription"] >= 1
    # all GPUs send: the column's bandwidth is the uplink's capacity for payload, shared out
    share = outer["bandwidth"] / outer["oversubscription"]
    assert content["bandwidth"][-1] == pytest.approx(share, rel=1e-4)
    assert content["bandwidth"][-1] <= outer["bandwidth"] * (1 + 1e-6)


def test_parity_takes_its_share_of_a_crowded_uplink_and_of_a_free_port() -> None:
    coded = Transport("ec", Scheme("erasure-coding", data_chunks=32, parity_chunks=8))
    for ratio in (1.0, 4.0):
        cluster = Cluster("c", "gpu", (Tier("zone", 8, 50e9, 1e-5), Tier("region", 2, 50e9, 1e-3, ratio)))
        with_parity = Cluster("c", "gpu", (cluster.tiers[0], Tier("region", 2, 50e9, 1e-3, ratio, transport=coded)))
        dims = (Dim(8, "zone", "dp"), Dim(2, "region", "dp"))
        plain, parity = astra_dimensions(dims, cluster)[1], astra_dimensions(dims, with_parity)[1]
        assert parity.bandwidth == pytest.approx(plain.bandwidth * 32 / 40, rel=1e-3)


def test_a_window_below_the_uplink_s_share_makes_oversubscription_free() -> None:
    """5 ms away with 1 MiB in flight: a sender gets 0.1 GB/s, the crowded uplink would give 5."""
    small = Transport("small", Scheme("selective-repeat", 1, 2.0**20))
    for ratio in (1.0, 10.0):
        tier = Tier("region", 2, 50e9, 5e-3, ratio, transport=small)
        cluster = Cluster("c", "gpu", (Tier("zone", 8, 50e9, 1e-5), tier))
        outer = simulated_tiers(cluster)[1]
        assert outer.oversubscription == pytest.approx(1.0, rel=0.01)
        assert outer.bandwidth == pytest.approx(effective(tier).bandwidth) and outer.bandwidth < 0.2e9


def test_hashing_leaves_part_of_an_uplink_unused() -> None:
    def bandwidth(balance: Any, pairs: int) -> float:
        transport = Transport("t", Scheme("go-back-n", pairs), balance)
        tier = Tier("region", 2, 50e9, 1e-4, 2.0, transport=transport, paths=8)
        cluster = Cluster("c", "gpu", (Tier("zone", 64, 50e9, 1e-5), tier))
        return astra_dimensions((Dim(64, "zone", "dp"), Dim(2, "region", "dp")), cluster)[1].bandwidth * GIB

    assert bandwidth("spray", 1) == pytest.approx(25e9)
    assert 15e9 < bandwidth("ecmp", 1) < bandwidth("ecmp", 16) < 25e9


def test_the_embedded_network_model_accepts_what_is_rendered(tmp_path: Path) -> None:
    fabric = pytest.importorskip("scaleacross.engine.fluid.fabric", reason="the contention model is not there")
    from scaleacross.astra.config_files import load_network
    from scaleacross.astra.render import write_config

    for name in TRANSPORTS:
        cluster = load_cluster(
            ROOT / "config/clusters/long-haul-1000km.yaml.j2", {"transport": name, "loss": 1e-4, "outstanding": "1 MiB"}
        )
        write_config(tmp_path / name, render_config(REGIONS, cluster, GPU, {}))
        levels = fabric.build_fabric(load_network(tmp_path / name / "network.yml")).levels
        assert levels[-1].port == pytest.approx(effective(cluster.tiers[-1]).bandwidth / 1e9, rel=1e-4)
