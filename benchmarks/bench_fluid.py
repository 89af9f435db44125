"""What a point of the ``scaleacross`` network model takes after its traces are read: CPU time of one core, peak memory.

    python benchmarks/bench_fluid.py [--repeat 4]

Points: Llama 3 405B on 16,384 and on 131,072 GPUs (interleaved 1F1B, FSDP, 16 and 32 stages), and 64 stages of about
2,000 operators. Each in a process of its own; configuration files are read every time, as a sweep does. Then every
second plan of the default study on its configurations: the first run works out what is the same on all networks.
"""

from __future__ import annotations

import argparse
import resource
import statistics
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
from scaleacross.study.design import design
from scaleacross.study.schema import load_study
from scaleacross.study.traces import write_traces
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


def measure_study(repeat: int) -> None:
    """Print CPU times of points of the default study: of the first run of a plan, and the least of the others."""
    designed = design(load_study("llama3-405b-2dc", studies=CONFIG / "studies"), CONFIG.parent)
    first: list[float] = []
    others: list[float] = []
    for plan_id in sorted(designed.pairs)[::2]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_traces(folder / "traces", designed.plans[plan_id].content)
            workload = load_workload(folder / "traces" / "workload")
            for number, config_id in enumerate(designed.pairs[plan_id]):
                write_config(folder / config_id, designed.configs[config_id])
                times = []
                for _ in range(repeat):
                    begun = time.process_time()
                    config = load_config(folder / config_id / "network.yml", folder / config_id / "system.json")
                    assert simulate(workload, config, model="scaleacross").status == "ok"
                    times.append(1e3 * (time.process_time() - begun))
                first += times[:1] if number == 0 else []
                others.append(min(times[1:]))
    for name, found in (("first run of a plan", first[1:]), ("other runs", others)):
        middle, most = statistics.median(found), statistics.quantiles(found, n=10)[-1]
        print(
            f"default study, {name}: {len(found)} points, median {middle:.0f} ms, 90 % {most:.0f} ms, "
            f"longest {max(found):.0f} ms, {sum(time > 50 for time in found)} above 50 ms"
        )


def main() -> None:
    """Every point in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--point", choices=[*POINTS, "study"])
    arguments = parser.parse_args()
    if arguments.point == "study":
        measure_study(arguments.repeat)
        return
    if arguments.point:
        measure(arguments.point, arguments.repeat)
        return
    for name in [*POINTS, "study"]:
        subprocess.run([sys.executable, __file__, "--point", name, "--repeat", str(arguments.repeat)], check=True)


if __name__ == "__main__":
    main()
