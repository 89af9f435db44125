"""Inputs for tests of the engine: golden cases, and small random ones drawn by hypothesis."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from scaleacross.astra.collectives import Implementation
from scaleacross.astra.config_files import MemoryFile, NetworkFile, SystemFile
from scaleacross.engine import Config, Workload, load_config, load_workload
from scaleacross.engine.workload import prepare
from scaleacross.trace.columns import Trace, TraceBuilder
from scaleacross.trace.ranks import RankMap
from scaleacross.trace.workload import Workload as Source

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


@cache
def expected(name: str) -> dict[str, Any]:
    """What the reference printed for a golden case."""
    content: dict[str, Any] = json.loads((GOLDEN / name / "expected.json").read_text())
    return content


@cache
def golden(name: str) -> tuple[Workload, Config]:
    """Inputs of a golden case."""
    folder = GOLDEN / name
    groups = folder / "comm_groups.json"
    files = (folder / "network.yml", folder / "system.json", folder / "memory.json")
    return load_workload(folder / "workload"), load_config(*files, groups if groups.is_file() else None)


def golden_options(name: str) -> dict[str, Any]:
    """The case's command line as arguments of ``simulate``."""
    given = dict(flag[2:].split("=") for flag in expected(name).get("args", []))
    return {
        "queues_per_dim": int(given.get("num-queues-per-dim", 1)),
        "injection_scale": float(given.get("injection-scale", 1)),
        "rendezvous": given.get("rendezvous-protocol") == "true",
        "comm_scale": float(given.get("comm-scale", 1)),
        "compute_scale": float(given.get("compute-scale", 1)),
    }


@dataclass
class Drawn:
    """A random case."""

    traces: list[Trace]
    config: Config
    queues: int
    rendezvous: bool

    def workload(self) -> Workload:
        """Ready to be simulated."""
        ranks = RankMap.unfolded(len(self.traces))
        return prepare(Source(Path("drawn"), ranks, tuple(self.traces)))


SHAPES = [[2], [3], [4], [5], [6], [8], [9], [2, 2], [2, 3], [4, 2], [3, 4], [2, 2, 2], [2, 3, 2]]
SIZES = [1024, 4096, 65537, 1 << 20, 3_000_001]


@st.composite
def draws(draw: st.DrawFn, groups: bool = True, skewed: bool = True) -> Drawn:
    """A random small case: topology, settings, groups, and one program that every rank runs with times of its own."""
    shape = draw(st.sampled_from(SHAPES))
    npus = math.prod(shape)
    network = NetworkFile(
        topology=tuple(draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in shape),
        npus_count=tuple(shape),
        bandwidth=tuple(draw(st.sampled_from([1.0, 12.5, 50.0, 400.0])) for _ in shape),
        latency=tuple(draw(st.sampled_from([0.0, 100.0, 500.5, 1000.0])) for _ in shape),
    )
    system = SystemFile(
        implementations={kind: draw(_algorithms(shape, kind, groups)) for kind in (0, 2, 6, 7)},
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO", "EXPLICIT"])),
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
        preferred_dataset_splits=draw(st.integers(1, 4)),
        active_chunks_per_dimension=draw(st.integers(1, 3)),
        endpoint_delay=draw(st.sampled_from([1, 10, 37])),
        local_mem_bandwidth=draw(st.sampled_from([10.0, 50.0, 1600.0])),
        peak_perf=100.0,
        roofline_enabled=draw(st.booleans()),
    )
    made: dict[int, tuple[int, ...]] = {}
    group_of: dict[int, int] = {}
    if groups and npus >= 4:
        order = draw(st.permutations(range(npus)))
        size = draw(st.sampled_from([k for k in range(2, npus + 1) if npus % k == 0]))
        for number in range(npus // size):
            made[number + 1] = tuple(order[number * size : (number + 1) * size])
            group_of.update(dict.fromkeys(made[number + 1], number + 1))
    config = Config(network, system, MemoryFile(), made)
    steps = draw(st.lists(_step(npus, len(shape), bool(made)), min_size=1, max_size=6))
    seeds = draw(st.lists(st.integers(0, 3), min_size=npus, max_size=npus)) if skewed else [0] * npus
    chain = draw(st.booleans())
    traces = [program(rank, npus, steps, seeds[rank], chain, group_of) for rank in range(npus)]
    return Drawn(traces, config, draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([False, False, True])))


@st.composite
def _algorithms(draw: st.DrawFn, shape: list[int], kind: int, groups: bool) -> tuple[Implementation, ...]:
    found = []
    for size in shape:
        names = ["ring", "direct", "direct2"]
        if size & (size - 1) == 0 and kind != 6:
            # A group of another size on a single list would take it too.
            names += [] if groups else ["halvingDoubling", "doubleBinaryTree"]
        name = draw(st.sampled_from(names))
        found.append(Implementation("direct", False, 2) if name == "direct2" else Implementation(name))
    return tuple(found)


@st.composite
def _step(draw: st.DrawFn, npus: int, dims: int, grouped: bool) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(["compute", "world", "shift", "pair"] + ["group"] * grouped))
    if kind == "compute":
        return kind, draw(st.sampled_from([0, 1, 5, 40]))
    size = draw(st.sampled_from(SIZES))
    if kind == "world":
        involved = tuple(draw(st.lists(st.booleans(), min_size=dims, max_size=dims)))
        involved = involved if any(involved) else (True,) * dims
        return kind, draw(st.sampled_from([0, 2, 6, 7])), size, involved, draw(st.integers(0, 2))
    if kind == "group":
        return kind, draw(st.sampled_from([0, 2, 6, 7])), size, draw(st.integers(0, 2))
    return kind, size, draw(st.integers(1, npus - 1)), draw(st.integers(0, npus - 1))


def program(
    rank: int, npus: int, steps: list[tuple[Any, ...]], skew: int, chain: bool, group_of: dict[int, int]
) -> Trace:
    """A rank's trace of steps as :func:`_step` draws them."""
    builder = TraceBuilder(rank)
    last = [builder.compute("start", 1_000_000, 4096, duration_micros=skew)]
    for tag, (kind, *values) in enumerate(steps):
        made: list[int] = []
        deps = last if chain or tag % 2 == 0 else last[:1]
        if kind == "compute":
            made = [builder.compute("c", 10**8 * (values[0] + 1), 10**5, deps=deps, duration_micros=values[0] + skew)]
        elif kind == "world":
            made = [builder.collective("w", values[0], values[1], deps, involved=values[2], priority=values[3])]
        elif kind == "group":
            made = [builder.collective("g", values[0], values[1], deps, pg=group_of[rank], priority=values[2])]
        elif kind == "shift":
            size, shift, _ = values
            made = [
                builder.send("s", (rank + shift) % npus, size, tag, deps),
                builder.recv("r", (rank - shift) % npus, size, tag, deps),
            ]
        else:
            size, shift, source = values
            if rank == source:
                made = [builder.send("s", (source + shift) % npus, size, tag, deps)]
            elif rank == (source + shift) % npus:
                made = [builder.recv("r", source, size, tag, deps)]
        last = made or last
    return builder.build()
