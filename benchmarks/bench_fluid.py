"""What a point of the ``scaleacross`` network model takes after its traces are read: CPU time of one core, peak memory.

    python benchmarks/bench_fluid.py [--repeat 4]

Points: Llama 3 405B on 16,384 and on 131,072 GPUs (interleaved 1F1B, FSDP, 16 and 32 stages), and 64 stages of about
2,000 operators. Each in a process of its own; configuration files are read every time, as a sweep does.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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

CONFIG = Path(__file__).parents[1] / "config"
POINTS = {  # stages, layers, sequences a step, sizes of tiers, wanted seconds
    "16,384 GPUs": (16, 126, 2048, {}, 0.05),
    "131,072 GPUs": (32, 126, 16384, {"building": 8, "campus": 8}, 2.0),
    "64 stages": (64, 128, 2048, {}, None),
}


def measure(name: str, repeat: int) -> None:
    """Print the least CPU time of some runs of a point."""
    stages, layers, batch, sizes, wanted = POINTS[name]
    cluster = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {}).scaled(sizes)
    accelerator = load_accelerator(CONFIG / "accelerators" / f"{cluster.accelerator}.yaml")
    model = load_model(CONFIG / "models" / "llama3-405b.yaml").model_copy(update={"layers": layers})
    knobs = {"schedule": "interleaved", "chunks": 4 if stages < 64 else 2, "dp_sharding": "fsdp"}
    values = {"tp": 8, "pp": stages, "dp_overlap": "prefetch", "order": ["tp", "cp", "dp", "pp"], **knobs}
    plan = parallelism_from(values, cluster.gpus)
    training = Training(8192, batch)
    placement = place(plan, cluster.tiers)
    schedule = build(plan.schedule, plan.pp, micro_batches(training, plan), plan.chunks)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_plan(folder, model, training, plan, placement, schedule, accelerator)
        write_config(folder / "config", render_config(placement.dims, cluster, accelerator, {}, training.precision))
        workload = load_workload(folder / "workload")
        times = []
        for _ in range(repeat):
            begun = time.process_time()
            config = load_config(folder / "config" / "network.yml", folder / "config" / "system.json")
            outcome = simulate(workload, config, model="scaleacross")
            times.append(time.process_time() - begun)
            assert outcome.status == "ok", outcome.message
    operators = sum(len(workload.programs[k]) for k in workload.program.tolist())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    limit = f" (wanted: {1e3 * wanted:.0f} ms)" if wanted else ""
    print(
        f"{name:>13}: {len(workload.program)} classes, {operators:,} operators, {outcome.events:,} events, "
        f"{1e3 * min(times):.0f} ms{limit}, {peak} MiB"
    )


def main() -> None:
    """Every point in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--point", choices=POINTS)
    arguments = parser.parse_args()
    if arguments.point:
        measure(arguments.point, arguments.repeat)
        return
    for name in POINTS:
        subprocess.run([sys.executable, __file__, "--point", name, "--repeat", str(arguments.repeat)], check=True)


if __name__ == "__main__":
    main()
