"""How long a point takes after its traces are read: CPU time, so that a busy machine does not matter."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from scaleacross.astra.render import render_config, write_config
from scaleacross.cluster import load_cluster
from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.engine import load_config, load_workload, simulate
from scaleacross.model import load_model
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.plan.placement import place
from scaleacross.plan.rules import micro_batches
from scaleacross.schedule import build
from scaleacross.trace.plan_files import write_plan

CONFIG = Path(__file__).parents[3] / "config"


def seconds_a_point(folder: Path, pp: int, batch: int, sizes: dict[str, int]) -> float:
    """Least CPU seconds of three simulations of a Llama 3 405B plan, configuration files included."""
    cluster = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {}).scaled(sizes)
    accelerator = load_accelerator(CONFIG / "accelerators" / f"{cluster.accelerator}.yaml")
    model = load_model(CONFIG / "models" / "llama3-405b.yaml")
    values = {
        "tp": 8,
        "pp": pp,
        "dp_sharding": "fsdp",
        "schedule": "interleaved",
        "chunks": 4,
        "dp_overlap": "prefetch",
    }
    plan = parallelism_from({**values, "order": ["tp", "cp", "dp", "pp"]}, cluster.gpus)
    training = Training(8192, batch)
    placement = place(plan, cluster.tiers)
    schedule = build(plan.schedule, plan.pp, micro_batches(training, plan), plan.chunks)
    write_plan(folder, model, training, plan, placement, schedule, accelerator)
    write_config(folder / "config", render_config(placement.dims, cluster, accelerator, {}, training.precision))
    workload = load_workload(folder / "workload")
    times = []
    for _ in range(4):
        begun = time.process_time()
        config = load_config(folder / "config" / "network.yml", folder / "config" / "system.json")
        outcome = simulate(workload, config, model="scaleacross")
        times.append(time.process_time() - begun)
        assert outcome.status == "ok", outcome.message
    return min(times)


@pytest.mark.slow
def test_a_point_of_the_default_study_takes_50_ms(tmp_path: Path) -> None:
    """16,384 GPUs, 16 stages of about 1,700 operators."""
    assert seconds_a_point(tmp_path, 16, 2048, {}) < 0.05


@pytest.mark.slow
def test_131072_gpus_take_two_seconds_and_a_gigabyte(tmp_path: Path) -> None:
    assert seconds_a_point(tmp_path, 32, 16384, {"building": 8, "campus": 8}) < 2.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20  # KiB
