"""A tiny model on a tiny cluster, studies of it, and a search of them in one process."""

from __future__ import annotations

import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from scaleacross.errors import Infeasible
from scaleacross.search.certify_worker import Worker
from scaleacross.study.schema import Study
from scaleacross.study.tables import cell

ROOT = Path(__file__).resolve().parents[2]
MODEL = "{name: tiny, layers: 8, hidden: 1024, heads: 16, kv_heads: 8, ffn: 4096, vocab: 32000}"
MOE = (
    "{name: tiny-moe, layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 2048, vocab: 8000, "
    "moe: {experts: 8, top_k: 2, ffn: 512}}"
)
DEEP = (
    "{name: tiny-deep, layers: 4, hidden: 512, heads: 8, ffn: 2048, vocab: 8000, mtp_modules: 1, "
    "mla: {query_rank: 128, kv_rank: 64, nope_size: 32, rope_size: 16, value_size: 32}, "
    "moe: {experts: 16, top_k: 4, ffn: 256, shared_experts: 1, first_dense_layers: 1, router_bias: true}}"
)
CLUSTER = """
name: tiny-2dc
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: zone, size: 2, bandwidth: 400 Gbps, latency: {{ zone_latency | default("35 us") }},
     topology: {{ zone_topology | default("Switch") }}}
  - name: campus
    size: 4
    bandwidth: {{ uplink_bandwidth | default("400 Gbps") }}
    latency: {{ uplink_latency | default("150 us") }}
    oversubscription: "{{ oversubscription }}"
    topology: {{ campus_topology | default("Switch") }}
"""
ONE_BUILDING = CLUSTER.replace("tiny-2dc", "tiny-one").replace(
    "  - name: campus",
    '  - {name: building, size: 1, bandwidth: 400 Gbps, latency: 75 us, oversubscription: "1:2"}\n  - name: campus',
)
VALUES: dict[str, list[Any]] = {
    "order": [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"], ["tp", "pp", "cp", "dp"]],
    "tp": [1, 2, 4],
    "cp": [1, 2],
    "pp": [1, 2, 4],
    "dp_sharding": ["ddp", "zero1", "zero2", "fsdp", "fsdp-reshard", "hsdp"],
    "dp_overlap": ["none", "backward", "prefetch"],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipe", "dualpipe-v", "latency-aware"],
    "chunks": [1, 2],
    "micro_batch": [1, 2],
    "recompute": ["none", "selective", "full"],
    "granularity": ["layer", "operator", "block"],
    "bucket_layers": [1, 2],
    "p2p_overlap": [True, False],
    "cp_method": ["all-gather", "ring"],
    "collective": ["ring", "direct", "halving-doubling", "node:direct"],
    "chunk_splits": [1, 4],
    "active_chunks": [1, 2],
    "zone_latency": ["5 us", "35 us"],
    "uplink_bandwidth": ["100 Gbps", "400 Gbps"],
    "uplink_latency": ["75 us", "1 ms"],
    "zone_topology": ["Switch", "Ring", "FullyConnected"],
    "campus_topology": ["Switch", "Ring", "FullyConnected"],
}


def make_project(folder: Path) -> Path:
    """Models and a cluster in a folder."""
    for name, text in {
        "config/models/tiny.yaml": MODEL,
        "config/models/tiny-moe.yaml": MOE,
        "config/models/tiny-deep.yaml": DEEP,
        "config/clusters/tiny-2dc.yaml.j2": CLUSTER,
        "config/clusters/tiny-one.yaml.j2": ONE_BUILDING,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "config/accelerators").symlink_to(ROOT / "config/accelerators")
    return folder


def study(dimensions: dict[str, list[Any]], **more: Any) -> Study:
    """A certified study of the tiny model."""
    content = {
        "name": "tiny",
        "model": "tiny",
        "cluster": "tiny-2dc",
        "training": {"sequence_length": 1024, "global_batch": 64},
        "dimensions": dimensions,
        "environment": {"oversubscription": ["1:4"]},
        "network_model": "scaleacross",
        "search": "certified",
        **more,
    }
    return Study.model_validate(content)


def worker(made: Study, root: Path, work: Path) -> Worker:
    """What a process of its search would be."""
    settings = {"simulator": "embedded", "network_model": made.network_model, "time_limit_s": 60.0}
    return Worker(made, root, work / "traces", work / "configs", settings, None)


class Inline:
    """A pool without processes; ``ahead`` tasks go out before the first comes back."""

    def __init__(self, only: Worker, ahead: int = 2) -> None:
        self.only, self.room = only, ahead

    def submit(self, plan: int, method: str, *arguments: Any) -> Future[Any]:
        del plan
        self.room -= 1
        future: Future[Any] = Future()
        future.set_result(getattr(self.only, method)(*arguments))
        return future

    def done(self, future: Future[Any]) -> None:
        del future
        self.room += 1


def drawn(random_: random.Random, most: int, names: list[str] | None = None) -> dict[str, list[Any]]:
    """A few values of every dimension, ``most`` points at most."""
    dimensions = {name: [random_.choice(VALUES[name])] for name in VALUES}
    points = 1
    for name in random_.sample(names or list(VALUES), len(names or VALUES)):
        count = random_.randint(2, len(VALUES[name]))
        if points * count <= most:
            dimensions[name] = random_.sample(VALUES[name], count)
            points *= count
    return dimensions


def everything(made: Study, only: Worker) -> list[dict[str, Any]]:
    """Rows of all points, as the exhaustive flow has them."""
    space, rows = only.space, []
    for environment in space.environments():
        for plan in range(space.plan_count):
            for number, network in enumerate(space.networks):
                try:
                    only.designer.check_constraints(space.values(environment, space.plan(plan), network))
                    row = only.simulate(environment, plan, number)
                except Infeasible:
                    continue
                if "result" in row:
                    cells = {name: cell(value) for name, value in row.items() if name in made.swept}
                    rows.append({**row, **row["result"], **cells})
    return rows
