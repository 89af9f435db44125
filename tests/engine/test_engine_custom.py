"""Custom collectives. The wanted cycles were printed by ASTRA-sim's binaries on the same inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scaleacross.astra.collectives import Implementation
from scaleacross.astra.config_files import MemoryFile, NetworkFile, SystemFile
from scaleacross.engine import Config, simulate
from scaleacross.engine.workload import prepare
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import ALL_REDUCE, ALL_TO_ALL, TraceBuilder
from scaleacross.trace.ranks import RankMap
from scaleacross.trace.workload import Workload as Source

RANKS = 8


def write_ring(folder: Path) -> str:
    """A ring that reduces 64 KiB blocks, one step or two of local work a block."""
    for rank in range(RANKS):
        builder = TraceBuilder()
        last: list[int] = []
        for step in range(RANKS - 1):
            builder.send("s", (rank + 1) % RANKS, 65536, step, last)
            come = builder.recv("r", (rank - 1) % RANKS, 65536, step, last)
            last = [builder.compute("reduce", 1, 1, [come], duration_micros=step % 2)]
        write_trace(folder / f"ring.{rank}.et", builder.build())
    return str(folder / "ring")


def write_exchange(folder: Path, ranks: int, size: int) -> str:
    """Everyone sends to everyone at once."""
    for rank in range(ranks):
        builder = TraceBuilder()
        for k in range(1, ranks):
            to, come = (rank + k) % ranks, (rank - k) % ranks
            builder.send("s", to, size, rank * ranks + to)
            builder.recv("r", come, size, come * ranks + rank)
        write_trace(folder / f"exchange{ranks}.{rank}.et", builder.build())
    return str(folder / f"exchange{ranks}")


def config(topology: str, **system: Any) -> Config:
    """Eight ranks, 50 GiB/s, 500 ns."""
    ring = (Implementation("ring"),)
    settings = SystemFile(dict.fromkeys((0, 2, 6, 7), ring), local_mem_bandwidth=1600.0, **system)
    network = NetworkFile((topology,), (RANKS,), (50.0,), (500.0,))
    return Config(network, settings, MemoryFile(), {1: (0, 1, 2, 3), 2: (4, 5, 6, 7)})


def workload(grouped: bool) -> Source:
    """A skewed start, then three collectives."""
    traces = []
    for rank in range(RANKS):
        builder = TraceBuilder(rank)
        first = builder.compute("c", 1, 1, duration_micros=1 + rank % 3)
        group = rank // 4 + 1
        if grouped:
            second = builder.collective("x", ALL_TO_ALL, 1 << 20, [first], pg=group)
            third = builder.collective("y", ALL_REDUCE, 1 << 20, [second], pg=group)
            builder.collective("z", ALL_TO_ALL, 1 << 20, [third], involved=[True])
        else:
            second = builder.collective("x", ALL_REDUCE, 1 << 20, [first], involved=[True])
            builder.collective("y", ALL_REDUCE, 1 << 20, [second], involved=[True])
            builder.collective("z", ALL_TO_ALL, 1 << 20, [second], involved=[True])
        traces.append(builder.build())
    return Source(Path("drawn"), RankMap.unfolded(RANKS), tuple(traces))


RING_UNAWARE = [114725, 114726, 115724, 115725, 115726, 115724, 115725, 115726]
RING_AWARE = [114725, 115223, 115724, 115725, 115726, 115724, 115725, 115726]


@pytest.mark.parametrize(("model", "wanted"), [("unaware", RING_UNAWARE), ("aware", RING_AWARE)])
def test_an_algorithm_for_a_collective_type(tmp_path: Path, model: str, wanted: list[int]) -> None:
    settings = config("Ring", custom={ALL_REDUCE: write_ring(tmp_path)})
    outcome = simulate(prepare(workload(False)), settings, model)
    assert outcome.finish_cycles.tolist() == wanted


@pytest.mark.parametrize(("model", "wanted"), [("unaware", 44622), ("aware", 86017)])
def test_algorithms_by_node_in_groups(tmp_path: Path, model: str, wanted: int) -> None:
    by_node = {1: write_exchange(tmp_path, 4, 100_000), 3: write_exchange(tmp_path, 8, 50_000)}
    outcome = simulate(prepare(workload(True)), config("Switch", per_node_custom=by_node), model)
    assert outcome.finish_cycles.tolist() == [wanted] * RANKS


def test_more_chunks_change_nothing(tmp_path: Path) -> None:
    """The reference waits for chunks that a custom collective does not have."""
    settings = config("FullyConnected", custom={ALL_TO_ALL: write_exchange(tmp_path, 8, 50_000)})
    wanted = simulate(prepare(workload(False)), settings)
    assert wanted.finish_cycles.tolist() == [90481] * RANKS
    assert wanted.bytes_per_dim == [pytest.approx(7 * 50_000 + 2 * 14 * (1 << 20) / 8)]
    again = replace(settings, system=replace(settings.system, preferred_dataset_splits=2))
    assert simulate(prepare(workload(False)), again).status == "ok"
