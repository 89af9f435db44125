"""Lowered collectives on the real ASTRA-sim binary: traces as algorithms, and native ones in their place.

Needs $ASTRA_SIM. Times are compared with what the messages take: a trace's send ends after latency + bytes / bandwidth.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scaleacross.astra.algorithms.custom import with_custom, write_custom
from scaleacross.astra.algorithms.schedules import make_schedule
from scaleacross.astra.binary import find_binary
from scaleacross.astra.render import render_config, write_config
from scaleacross.astra.runner import run_astra_sim
from scaleacross.cluster import Accelerator, Cluster, Tier
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import TraceBuilder
from scaleacross.units import GIB

pytestmark = pytest.mark.skipif(
    not os.environ.get("ASTRA_SIM"), reason="set ASTRA_SIM to the binary of ASTRA-sim's congestion-unaware backend"
)
COMM_TYPES = {"all-reduce": 0, "all-gather": 2, "all-to-all": 6, "reduce-scatter": 7}
GPU = Accelerator("gpu", {"bf16": 989e12}, 80e9, 1e18)  # memory so fast that sums cost nothing
NEAR, FAR = 1e-6, 100e-6  # seconds one way
SIZE = 1 << 20


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str
    share: float = 1.0


@pytest.fixture(scope="module")
def binary() -> Path:
    return find_binary()


def prepare(folder: Path, sizes: list[int], kind: str, size: int, **values: Any) -> Path:
    """One or two tiers of switches and a collective of everybody (or of each group); returns the workload's prefix."""
    names, latencies = ("zone", "campus"), (NEAR, FAR)
    tiers = tuple(Tier(names[k], n, 50 * GIB, latencies[k]) for k, n in enumerate(sizes))
    dims = tuple(Dim(n, names[k], "dp") for k, n in enumerate(sizes))
    groups = values.pop("groups", None)
    write_config(folder, render_config(dims, Cluster("c", "gpu", tiers), GPU, values, groups=groups))
    shard = size // int(np.prod(sizes)) if kind == "all-gather" and not groups else size
    for rank in range(int(np.prod(sizes))):
        builder = TraceBuilder()
        group = next((name for name, members in (groups or {}).items() if rank in members), "")
        if group and kind == "all-gather":
            shard = size // len(groups[group])
        builder.collective("dp.x", COMM_TYPES[kind], shard, pg=group)
        write_trace(folder / f"workload.{rank}.et", builder.build())
    return folder / "workload"


def customise(folder: Path, algorithm: str, collective: str, sizes: list[int], size: int) -> None:
    schedule = make_schedule(algorithm, collective, sizes)
    entry = write_custom(folder / "algorithm", schedule, size)
    system = json.loads((folder / "system.json").read_text())
    (folder / "system.json").write_text(json.dumps(with_custom(system, entry)))


def finish(binary: Path, workload: Path) -> list[int]:
    result = run_astra_sim(binary, workload, workload.parent, 60)
    assert result.status == "ok", result.message
    return [int(cycles) for cycles in result.finish_cycles]


def message_ns(count: float, latency: float = NEAR) -> int:
    return int(latency * 1e9 + count / (50 * GIB) * 1e9)


@pytest.mark.parametrize("members", [3, 6, 8])
@pytest.mark.parametrize(
    ("algorithm", "collective"),
    [
        ("ring", "all-reduce"),
        ("ring", "all-gather"),
        ("direct", "reduce-scatter"),
        ("direct", "all-to-all"),
        ("pat", "all-gather"),
        ("pat", "reduce-scatter"),
        ("pat", "all-reduce"),
        ("double-binary-tree", "all-reduce"),
        ("halving-doubling-nearest", "all-gather"),
        ("halving-doubling-farthest", "all-reduce"),
    ],
)
def test_a_trace_as_the_algorithm_takes_its_messages_time(
    tmp_path: Path, binary: Path, algorithm: str, collective: str, members: int
) -> None:
    if algorithm.startswith("halving") and members != 8:
        pytest.skip("powers of two only")
    workload = prepare(tmp_path, [members], collective, SIZE)
    customise(tmp_path, algorithm, collective, [members], SIZE)
    schedule = make_schedule(algorithm, collective, [members])
    block = -(-SIZE // (members if collective == "all-to-all" else schedule.parts))
    expected = sum(max(message_ns(block * len(m.blocks)) for m in step) for step in schedule.steps)
    slowest = max(finish(binary, workload))
    if algorithm == "double-binary-tree":  # the levels of the two trees start when they can
        assert expected / 2 < slowest <= expected + 1
    else:
        assert slowest == pytest.approx(expected, abs=len(schedule.steps) + 1)


@pytest.mark.parametrize(("collective", "members"), [("all-gather", 8), ("reduce-scatter", 16), ("all-reduce", 8)])
def test_pat_and_both_halving_doublings_cost_what_the_native_one_does(
    tmp_path: Path, binary: Path, collective: str, members: int
) -> None:
    """Why they are lowered to it within a dimension: same sizes, hops and steps. Endpoint delays of 1 ns apart."""
    native = finish(
        binary, prepare(tmp_path, [members], collective, SIZE, collective="halving-doubling", endpoint_delay="1 ns")
    )
    steps = len(make_schedule("pat", collective, [members]).steps)
    for algorithm in ("pat", "halving-doubling-nearest", "halving-doubling-farthest"):
        folder = tmp_path / algorithm
        folder.mkdir()
        workload = prepare(folder, [members], collective, SIZE)
        customise(folder, algorithm, collective, [members], SIZE)
        assert max(finish(binary, workload)) == pytest.approx(max(native), abs=6 * steps)


@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize("sizes", [[4, 2], [3, 4]])
def test_the_hierarchical_trace_costs_what_the_native_dimensions_do(
    tmp_path: Path, binary: Path, collective: str, sizes: list[int]
) -> None:
    native = finish(
        binary, prepare(tmp_path, sizes, collective, SIZE * 3, collective="hierarchical", endpoint_delay="1 ns")
    )
    folder = tmp_path / "trace"
    folder.mkdir()
    workload = prepare(folder, sizes, collective, SIZE * 3)
    customise(folder, "hierarchical", collective, sizes, SIZE * 3)
    steps = len(make_schedule("hierarchical", collective, sizes).steps)
    assert max(finish(binary, workload)) == pytest.approx(max(native), abs=6 * steps)


def test_a_tree_all_reduces_across_the_cut_and_rings_scatter_inside(tmp_path: Path, binary: Path) -> None:
    sizes = [4, 8]
    content = None
    times = {}
    for algorithm in ("ring", "double-binary-tree"):
        folder = tmp_path / algorithm
        folder.mkdir()
        times[algorithm] = max(finish(binary, prepare(folder, sizes, "all-reduce", 4096, collective=algorithm)))
        content = json.loads((folder / "system.json").read_text())
    assert content is not None
    assert content["all-reduce-implementation"] == ["ring", "doubleBinaryTree"]
    assert content["all-gather-implementation"] == content["reduce-scatter-implementation"] == ["ring", "ring"]
    # a small buffer: 14 far steps of the ring against a tree's two times three or four levels
    assert 6 * FAR * 1e9 < times["double-binary-tree"] < 10 * FAR * 1e9 < 14 * FAR * 1e9 < times["ring"]


def test_a_trace_serves_every_communicator_by_position(tmp_path: Path, binary: Path) -> None:
    """Two groups share one set of files: <prefix>.<position in the group>.et. Lists in ascending order, see custom."""
    groups = {"1": [0, 2, 4, 6], "2": [1, 3, 5, 7]}
    workload = prepare(tmp_path, [8], "all-gather", SIZE, groups=groups)
    customise(tmp_path, "pat", "all-gather", [4], SIZE)
    assert len(list((tmp_path / "algorithm").glob("*.et"))) == 4
    times = finish(binary, workload)
    expected = message_ns(SIZE / 4) + message_ns(SIZE / 2)
    assert times == [pytest.approx(expected, abs=4)] * 8


def test_nearest_first_pays_more_than_farthest_first_across_a_cut(tmp_path: Path, binary: Path) -> None:
    """On two dimensions the order is not the same any more, which is why nearest-first is refused there."""
    slowest = {}
    for order in ("nearest", "farthest"):
        folder = tmp_path / order
        folder.mkdir()
        workload = prepare(folder, [4, 4], "all-gather", 64 * SIZE)
        # a slow cut, as oversubscription makes it
        network = (folder / "network.yml").read_text().replace("[ 50.0, 50.0 ]", "[ 50.0, 5.0 ]")
        assert "5.0 ]" in network
        (folder / "network.yml").write_text(network)
        customise(folder, f"halving-doubling-{order}", "all-gather", [16], 64 * SIZE)
        slowest[order] = max(finish(binary, workload))
    assert slowest["farthest"] < 0.5 * slowest["nearest"]
