"""Workloads and networks in memory for the tests of the network model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scaleacross.astra.collectives import Implementation, parse_implementation
from scaleacross.astra.config_files import NetworkFile, SystemFile
from scaleacross.engine.fluid import FluidOutcome, simulate_fluid
from scaleacross.engine.program import build_program
from scaleacross.engine.settings import Config
from scaleacross.engine.workload import Workload
from scaleacross.trace.columns import TraceBuilder

AR, AG, A2A, RS = 0, 2, 6, 7
GIB = 1 << 30
MIB = 1 << 20
HOPS = {"Switch": 2, "FullyConnected": 1, "Ring": 1}


def byte_rate(gib_per_second: float) -> float:
    """GiB/s in bytes per ns."""
    return gib_per_second * GIB / 1e9


@dataclasses.dataclass(frozen=True)
class TierSpec:
    """A tier for :func:`tiered`: port in GiB/s, one way in ns; ``dims``: its size as factors, one network dimension
    each."""

    name: str
    dims: tuple[int, ...]
    port: float
    one_way: float
    oversubscription: float = 1.0
    topology: str = "Switch"


def system(algorithm: str | Sequence[str] = "ring", dims: int = 1, **values: Any) -> SystemFile:
    """A system file with one algorithm (a dimension); local memory so fast that reductions take no time."""
    names = [algorithm] * dims if isinstance(algorithm, str) else list(algorithm)
    entries = tuple(parse_implementation(name) or Implementation("ring") for name in names)
    exchange = tuple(Implementation("direct", window=1) if e.algorithm == "halvingDoubling" else e for e in entries)
    listed = {AR: entries, AG: entries, RS: entries, A2A: exchange}
    settings = {"local_mem_bandwidth": 1e12, "endpoint_delay": 1, **values}
    return SystemFile(implementations=listed, **settings)


def plain(
    sizes: Sequence[int],
    bandwidth: float | Sequence[float] = 50.0,
    latency: float | Sequence[float] = 500.0,
    topology: str | Sequence[str] = "Switch",
    algorithm: str | Sequence[str] = "ring",
    groups: Mapping[int, tuple[int, ...]] | None = None,
    **values: Any,
) -> Config:
    """A network of plain dimensions."""
    n = len(sizes)
    network = NetworkFile(
        (topology,) * n if isinstance(topology, str) else tuple(topology),
        tuple(sizes),
        (float(bandwidth),) * n if isinstance(bandwidth, int | float) else tuple(bandwidth),
        (float(latency),) * n if isinstance(latency, int | float) else tuple(latency),
    )
    return Config(network, system(algorithm, n, **values), groups=dict(groups or {}))


def tiered(
    tiers: Sequence[TierSpec],
    algorithm: str | Sequence[str] = "ring",
    groups: Mapping[int, tuple[int, ...]] | None = None,
    **values: Any,
) -> Config:
    """A network of tiers."""
    dims = [(tier, size) for tier in tiers for size in tier.dims]
    extension = {
        "cluster": "test",
        "dims": [
            {"tier": tier.name, "axis": "dp", "share": 1.0, "port": tier.port, "one-way": tier.one_way}
            for tier, _ in dims
        ],
        "tiers": [
            {
                "name": tier.name,
                "size": math.prod(tier.dims),
                "bandwidth": tier.port,
                "one-way": tier.one_way,
                "oversubscription": tier.oversubscription,
                "topology": tier.topology,
            }
            for tier in tiers
        ],
    }
    network = NetworkFile(
        tuple(tier.topology for tier, _ in dims),
        tuple(size for _, size in dims),
        tuple(tier.port / tier.oversubscription for tier, _ in dims),
        tuple(tier.one_way / HOPS[tier.topology] for tier, _ in dims),
        extension,
    )
    return Config(network, system(algorithm, len(dims), **values), groups=dict(groups or {}))


def workload(build: Callable[[int, TraceBuilder], None], npus: int) -> Workload:
    """Every rank's trace, written by ``build(rank, builder)``."""
    programs = []
    for rank in range(npus):
        builder = TraceBuilder(rank)
        build(rank, builder)
        programs.append(build_program(builder.build(), f"rank {rank}"))
    return Workload("test", programs, np.arange(npus), [f"workload.{rank}.et" for rank in range(npus)])


def folded(
    builds: Sequence[Callable[[TraceBuilder], None]], representatives: Sequence[int], class_of: Sequence[int]
) -> Workload:
    """A trace a class. ``class_of``: class of each rank."""
    programs = []
    for rank, build in zip(representatives, builds, strict=True):
        builder = TraceBuilder(rank)
        build(builder)
        programs.append(build_program(builder.build(), f"class of {rank}"))
    files = [f"workload.c{k}.et" for k in range(len(builds))]
    return Workload(
        "test",
        programs,
        np.arange(len(builds)),
        files,
        np.array(representatives, np.int64),
        np.array(class_of, np.int64),
    )


def run(work: Workload, config: Config, **options: Any) -> FluidOutcome:
    """Simulate and expect it to end."""
    outcome = simulate_fluid(work, config, **options)
    assert outcome.status == "ok", outcome.message
    return outcome


def one_collective(npus: int, comm_type: int, size: int, **where: Any) -> Workload:
    """All ranks call one collective."""
    return workload(lambda _, t: t.collective("dp.x", comm_type, size, **where) and None, npus)


def sends(npus: int, messages: Sequence[tuple[int, int, int]]) -> Workload:
    """Messages (source, target, bytes) that all start at once; every rank also has a node of its own."""

    def build(rank: int, trace: TraceBuilder) -> None:
        trace.compute("c", 0, 0, duration_micros=0)
        for tag, (source, target, size) in enumerate(messages):
            if rank == source:
                trace.send(f"pp.s{tag}", target, size, tag)
            if rank == target:
                trace.recv(f"pp.r{tag}", source, size, tag)

    return workload(build, npus)
