"""Small sets of ASTRA-sim inputs to break in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import ALL_REDUCE, TraceBuilder
from scaleacross.validate import Finding, check_inputs

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
    "peak-perf": 900,
    "roofline-enabled": 1,
    **{
        f"{kind}-implementation": ["ring", "ring"]
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
}
NETWORK: dict[str, Any] = {
    "topology": ["Ring", "Switch"],
    "npus_count": [2, 2],
    "bandwidth": [100.0, 50.0],
    "latency": [50.0, 500.0],
}
MEMORY: dict[str, Any] = {"memory-type": "NO_MEMORY_EXPANSION"}
Program = Callable[[TraceBuilder, int], None]


def ordinary(builder: TraceBuilder, rank: int) -> None:
    """Compute, an all-reduce of the world, a message to the next rank, one of a group."""
    work = builder.compute("F", 10**9, 10**6)
    reduced = builder.collective("dp.ar", ALL_REDUCE, 1 << 20, deps=[work])
    sent = builder.send("pp.s", (rank + 1) % 4, 4096, 7, deps=[reduced])
    got = builder.recv("pp.r", (rank - 1) % 4, 4096, 7, deps=[reduced])
    builder.collective("tp.ar", ALL_REDUCE, 1 << 10, deps=[sent, got], pg=1 + rank // 2)


class Inputs:
    """A folder of inputs that is written with changes and checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = dict(NETWORK)
        self.system = dict(SYSTEM)
        self.memory = dict(MEMORY)
        self.groups: Mapping[str, Any] | None = {"1": [0, 1], "2": [2, 3]}
        self.program: Program = ordinary
        self.ranks = 4
        self.model: str | None = None

    def write(self) -> list[str]:
        """Write the files; returns the command-line flags that name them."""
        for rank in range(self.ranks):
            builder = TraceBuilder(rank)
            self.program(builder, rank)
            write_trace(self.folder / f"workload.{rank}.et", builder.build())
        (self.folder / "network.yml").write_text(yaml.safe_dump(self.network))
        (self.folder / "system.json").write_text(json.dumps(self.system))
        (self.folder / "memory.json").write_text(json.dumps(self.memory))
        if self.groups is not None:
            (self.folder / "comm_groups.json").write_text(json.dumps(self.groups))
        return self.flags()

    def flags(self) -> list[str]:
        """The flags that name the files."""
        names = {
            "workload": "workload",
            "network": "network.yml",
            "system": "system.json",
            "remote-memory": "memory.json",
        }
        if self.groups is not None:
            names["comm-group"] = "comm_groups.json"
        return [f"--{key}-configuration={self.folder / name}" for key, name in names.items()]

    def check(self) -> list[Finding]:
        """Check the files that are there."""
        groups = self.folder / "comm_groups.json" if self.groups is not None else None
        files = [self.folder / name for name in ("network.yml", "system.json", "memory.json")]
        return check_inputs(self.folder / "workload", files[0], files[1], files[2], groups, self.model)

    def errors(self) -> list[Finding]:
        """Write, check, and return the errors."""
        self.write()
        return [finding for finding in self.check() if finding.severity == "error"]

    def ids(self) -> set[str]:
        """Write, check, and return the ids of everything found."""
        self.write()
        return {finding.error_id for finding in self.check()}
