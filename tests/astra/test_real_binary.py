"""Rendered folders on the real ASTRA-sim binary, unchanged. Needs $ASTRA_SIM."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scaleacross.astra.binary import binary_digest, find_binary
from scaleacross.astra.render import render_config, write_config
from scaleacross.astra.runner import run_astra_sim
from scaleacross.cluster import Accelerator, Cluster, Tier, load_cluster
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import TraceBuilder
from scaleacross.units import GIB

pytestmark = pytest.mark.skipif(
    not os.environ.get("ASTRA_SIM"), reason="set ASTRA_SIM to the binary of ASTRA-sim's congestion-unaware backend"
)
META = Path(__file__).parents[2] / "config" / "clusters" / "meta-2dc-16k.yaml.j2"
ALL_REDUCE, ALL_TO_ALL = 0, 6


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str
    share: float = 1.0


@pytest.fixture(scope="module")
def binary() -> Path:
    return find_binary()


def write_traces(folder: Path, builders: Sequence[TraceBuilder]) -> Path:
    for rank, builder in enumerate(builders):
        write_trace(folder / f"workload.{rank}.et", builder.build())
    return folder / "workload"


def prepare(folder: Path, dims: Sequence[Dim], cluster: Cluster, accelerator: Accelerator, **values: Any) -> None:
    groups = values.pop("groups", None)
    write_config(folder, render_config(dims, cluster, accelerator, values, groups=groups))


def test_a_golden_case_rendered_from_tiers_gives_its_cycles(tmp_path: Path, binary: Path) -> None:
    """Golden case 2d_hd_hd_ar: a 4 MiB all-reduce on Switch(4) x Switch(8), 200 and 50 GiB/s, 50 and 500 ns a hop."""
    tiers = (Tier("node", 4, 200 * GIB, 100e-9), Tier("zone", 8, 50 * GIB, 1e-6))
    gpu = Accelerator("gpu", {"bf16": 100e12}, 80e9, 1600e9)
    dims = (Dim(4, "node", "tp"), Dim(8, "zone", "dp"))
    prepare(tmp_path, dims, Cluster("golden", "gpu", tiers), gpu, collective="halving-doubling")
    builders = [TraceBuilder() for _ in range(32)]
    for builder in builders:
        builder.collective("all_reduce", ALL_REDUCE, 4 * 2**20)
    result = run_astra_sim(binary, write_traces(tmp_path, builders), tmp_path, 60)
    assert (result.status, result.message) == ("ok", "")
    assert result.finish_cycles.tolist() == result.exposed_cycles.tolist() == [72_697] * 32


PLACED = (Dim(8, "node", "tp"), Dim(2, "zone", "dp"), Dim(2, "building", "dp"), Dim(2, "campus", "pp", 0.5))


def test_a_scaled_twin_of_the_default_cluster_charges_what_its_tiers_say(tmp_path: Path, binary: Path) -> None:
    """Computation, then a send across the campus: every number of the folder is used, none is lost on the way."""
    cluster = load_cluster(META, {"uplink_latency": "300 us"}).scaled([8, 2, 2, 2])
    gpu = Accelerator("gpu", {"bf16": 989e12}, 80 * GIB, 3350e9)
    groups = {"1": list(range(32)), "2": list(range(32, 64))}
    prepare(tmp_path, PLACED, cluster, gpu, groups=groups)
    size, operations, memory = 32 * 2**20, 2 * 10**12, 10**9
    builders = [TraceBuilder() for _ in range(64)]
    for rank, builder in enumerate(builders):
        computed = builder.compute("c0.gemm", operations, memory)
        if rank < 32:
            builder.send("pp.forward", rank + 32, size, 7, deps=[computed])
        else:
            builder.recv("pp.forward", rank - 32, size, 7, deps=[computed])
    result = run_astra_sim(binary, write_traces(tmp_path, builders), tmp_path, 60)
    assert (result.status, result.message) == ("ok", "")
    compute = math.floor(operations / 989e12 * 1e9)
    bandwidth = cluster.tier("campus").bandwidth / (2.8 * 0.5)
    assert result.finish_cycles.tolist() == pytest.approx([compute + 300_000 + size / bandwidth * 1e9] * 64, rel=1e-6)
    assert result.exposed_cycles.tolist() == (result.finish_cycles - compute).tolist()


@pytest.mark.parametrize("all_to_all", ["direct1", "ring", "direct"])
def test_the_default_all_to_all_is_the_one_that_respects_the_port(
    tmp_path: Path, binary: Path, all_to_all: str
) -> None:
    port, latency, size = 50e9, 35e-6, 64 * 2**20
    cluster = Cluster("c", "gpu", (Tier("zone", 8, port, latency),))
    gpu = Accelerator("gpu", {"bf16": 989e12}, 80e9, 3350e9)
    prepare(tmp_path, (Dim(8, "zone", "dp"),), cluster, gpu, all_to_all=all_to_all)
    builders = [TraceBuilder() for _ in range(8)]
    for builder in builders:
        builder.collective("ep.dispatch", ALL_TO_ALL, size)
    result = run_astra_sim(binary, write_traces(tmp_path, builders), tmp_path, 60)
    assert result.status == "ok"
    seconds, port_bound = result.iteration_ns * 1e-9, 7 / 8 * size / port
    if all_to_all == "direct":  # seven messages at once, each with the whole port
        assert seconds < port_bound / 3
    elif all_to_all == "ring":  # a block passes every rank on its way
        assert seconds > 3.5 * port_bound
    else:
        assert seconds == pytest.approx(port_bound + 7 * latency, rel=1e-3)


def broken(folder: Path, name: str, old: str, new: str) -> Path:
    cluster = Cluster("c", "gpu", (Tier("zone", 6, 50e9, 35e-6),))
    prepare(folder, (Dim(6, "zone", "dp"),), cluster, Accelerator("gpu", {"bf16": 989e12}, 80e9, 3350e9))
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    builders = [TraceBuilder() for _ in range(6)]
    for builder in builders:
        builder.collective("dp.gradients", ALL_REDUCE, 2**20)
    return write_traces(folder, builders)


@pytest.mark.parametrize(
    ("name", "old", "new", "status", "says"),
    [
        ("system.json", '"ring"', '"halvingDoubling"', "deadlock", "6 of 6 ranks never finished"),
        ("system.json", '"ring"', '"rang"', "invalid", "Cannot interpret collective implementations"),
        ("system.json", '"endpoint-delay": 10', '"endpoint-delay": 0', "crash", "Assertion"),
        ("system.json", '["ring"]', '["ring", "ring"]', "crash", "Assertion"),
        ("system.json", '"preferred-dataset-splits": 1,', "", "crash", "SIGFPE"),
    ],
)
def test_the_ways_it_fails_are_told_apart(
    tmp_path: Path, binary: Path, name: str, old: str, new: str, status: str, says: str
) -> None:
    result = run_astra_sim(binary, broken(tmp_path, name, old, new), tmp_path, 60)
    assert result.status == status and says in result.message


def test_the_time_limit_holds(tmp_path: Path, binary: Path) -> None:
    workload = broken(tmp_path, "network.yml", "topology", "topology")
    assert run_astra_sim(binary, workload, tmp_path, 60).status == "ok"
    assert run_astra_sim(binary, workload, tmp_path, 0.0).status == "timeout"


def test_a_double_free_at_teardown_never_loses_a_result(tmp_path: Path, binary: Path) -> None:
    """Several groups and several collectives each: about a quarter of such runs abort after the last line."""
    groups = {"1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}
    cluster = Cluster("c", "gpu", (Tier("zone", 4, 50e9, 1e-6),))
    gpu = Accelerator("gpu", {"bf16": 989e12}, 80e9, 3350e9)
    prepare(tmp_path, (Dim(4, "zone", "dp"),), cluster, gpu, groups=groups)
    builders = [TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(builders):
        last: list[int] = []
        for _ in range(3):
            for name, members in groups.items():
                if rank in members:
                    last = [builder.collective("dp.gradients", ALL_REDUCE, 2**20, pg=name, deps=last)]
    workload = write_traces(tmp_path, builders)
    results = [run_astra_sim(binary, workload, tmp_path, 60) for _ in range(20)]
    assert {result.status for result in results} == {"ok"}
    assert len({json.dumps(result.finish_cycles.tolist()) for result in results}) == 1


def test_the_digest_tells_binaries_apart(binary: Path) -> None:
    assert binary_digest(binary) == binary_digest(binary) != binary_digest(Path("/bin/sh").resolve())
