"""Speed of ``scaleacross sim`` against ASTRA-sim's congestion-unaware binary, whole process against whole process.

    python benchmarks/bench_engine.py [--sizes 64 256 1024] [--repeat 3]

Inputs: one step of an 8-layer transformer, tensor parallel 8 with 4 MiB all-reduces and data parallel with 16 MiB
all-reduces, put as dimensions (tf2d: FullyConnected(8) x Switch) or as groups on one Switch (tf_groups); and one 1
GiB all-reduce on a ring, a switch, a full mesh and three dimensions. With the binary's path in $ASTRA_SIM both run
side by side, otherwise its times are those recorded once on a 2-core Xeon machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scaleacross.trace.chakra_io import serialize_trace
from scaleacross.trace.columns import ALL_REDUCE, Trace, TraceBuilder

RECORDED = {  # wall seconds, peak MiB of the reference
    ("tf2d", 64): (0.32, 19), ("tf2d", 256): (2.58, 45), ("tf2d", 1024): (44.7, 163),
    ("tf_groups", 64): (0.22, 18), ("tf_groups", 256): (1.93, 55), ("tf_groups", 1024): (39.9, 454),
    ("ring1d", 64): (0.04, 13), ("ring1d", 256): (0.32, 36), ("ring1d", 1024): (5.1, 354),
    ("fc_direct", 64): (0.03, 15), ("fc_direct", 256): (0.72, 68), ("fc_direct", 1024): (29.4, 868),
    ("mesh3d", 64): (0.03, 13), ("mesh3d", 256): (0.17, 22), ("mesh3d", 1024): (1.6, 57),
    ("switch_hd", 64): (0.03, 14), ("switch_hd", 256): (0.17, 36), ("switch_hd", 1024): (1.0, 355),
}  # fmt: skip
WANTED = {("tf2d", 1024): 50, ("tf_groups", 1024): 50, ("tf2d", 256): 3, ("tf_groups", 256): 3}
LAYERS, TENSOR = 8, 8


def transformer(tensor: dict[str, Any], data: dict[str, Any]) -> Trace:
    """Forward, backward and optimizer of 8 layers; ``tensor`` and ``data`` name the communicators."""
    builder = TraceBuilder()
    last: list[int] = []
    for _ in range(LAYERS):
        work = builder.compute("F", 200_000_000_000, 100_000_000, last)
        last = [builder.collective("tp.F", ALL_REDUCE, 4 << 20, [work], **tensor)]
    gradients = []
    for _ in range(LAYERS):
        work = builder.compute("B", 400_000_000_000, 200_000_000, last)
        last = [builder.collective("tp.B", ALL_REDUCE, 4 << 20, [work], **tensor)]
        gradients.append(builder.collective("dp", ALL_REDUCE, 16 << 20, [work], **data))
    builder.compute("O", 2_000_000_000, 100_000_000, [*gradients, *last])
    return builder.build()


def system(algorithms: list[str], chunks: int, roofline: bool) -> dict[str, Any]:
    """A system file."""
    content: dict[str, Any] = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": max(1, chunks // 2),
        "preferred-dataset-splits": chunks,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 2000 if roofline else 1600,
    }
    for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        content[f"{name}-implementation"] = algorithms
    return {**content, "roofline-enabled": 1, "peak-perf": 300} if roofline else content


def write_case(name: str, npus: int, folder: Path) -> None:
    """A case's files."""
    builder = TraceBuilder()
    builder.collective("ar", ALL_REDUCE, 1 << 30)
    traces = [builder.build()] * npus
    network: tuple[list[str], list[int], list[float], list[float]]
    settings = {"ring1d": ["ring"], "switch_hd": ["halvingDoubling"], "fc_direct": ["direct"]}
    if name in ("tf2d", "tf_groups"):
        rest = npus // TENSOR
        if name == "tf2d":
            network = (["FullyConnected", "Switch"], [TENSOR, rest], [400.0, 50.0], [200.0, 1000.0])
            traces = [transformer({"involved": (True, False)}, {"involved": (False, True)})] * npus
        else:
            network = (["Switch"], [npus], [50.0], [1000.0])
            traces = [transformer({"pg": r // TENSOR + 1}, {"pg": rest + 1 + r % TENSOR}) for r in range(npus)]
            groups = {str(k + 1): list(range(k * TENSOR, (k + 1) * TENSOR)) for k in range(rest)}
            groups.update({str(rest + 1 + k): list(range(k, npus, TENSOR)) for k in range(TENSOR)})
            (folder / "comm_groups.json").write_text(json.dumps(groups))
        content = system(["direct", "ring"] if name == "tf2d" else ["ring"], 4, roofline=True)
    elif name == "mesh3d":
        shape = {64: [4, 4, 4], 256: [4, 8, 8], 1024: [8, 8, 16]}[npus]
        network = (["Ring", "FullyConnected", "Switch"], shape, [400.0, 200.0, 50.0], [100.0, 300.0, 1000.0])
        content = system(["ring", "direct", "ring"], 4, roofline=False)
    else:
        topology = {"ring1d": "Ring", "switch_hd": "Switch", "fc_direct": "FullyConnected"}[name]
        network = ([topology], [npus], [100.0], [500.0])
        content = system(settings[name], 1, roofline=False)
    keys = ("topology", "npus_count", "bandwidth", "latency")
    (folder / "network.yml").write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in zip(keys, network, strict=True)))
    (folder / "system.json").write_text(json.dumps(content))
    (folder / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    for rank, trace in enumerate(traces):
        (folder / f"workload.{rank}.et").write_bytes(serialize_trace(trace))


def arguments(folder: Path) -> list[str]:
    """The flags that both programs take."""
    names = {"workload": "workload", "network": "network.yml", "system": "system.json", "remote-memory": "memory.json"}
    found = [f"--{name}-configuration={folder / file}" for name, file in names.items()]
    groups = folder / "comm_groups.json"
    return [*found, f"--comm-group-configuration={groups}"] if groups.exists() else found


def measure(command: list[str], folder: Path) -> tuple[float, float]:
    """Wall seconds and peak MiB of a child process."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(child.pid, 0)
    return time.perf_counter() - begun, usage.ru_maxrss / 1024


def phases(folder: Path) -> str:
    """Where the time of a run goes, measured in one fresh process."""
    script = (
        "import sys, time; t = [time.perf_counter()]; tick = lambda: t.append(time.perf_counter())\n"
        "from scaleacross.engine import load_config, simulate\n"
        "from scaleacross.engine.workload import prepare\n"
        "from scaleacross.trace.workload import open_workload\n"
        "from scaleacross.validate import check_loaded; tick()\n"
        "d, groups = sys.argv[1], sys.argv[2] or None\n"
        "config = load_config(f'{d}/network.yml', f'{d}/system.json', f'{d}/memory.json', groups)\n"
        "source = open_workload(f'{d}/workload'); tick()\n"
        "check_loaded(source, config.network, config.system, config.memory, config.groups, groups); tick()\n"
        "workload = prepare(source); tick()\n"
        "simulate(workload, config); tick()\n"
        "names = ('imports', 'read', 'check', 'prepare', 'simulate')\n"
        "print(', '.join(f'{n} {1000 * (b - a):.0f} ms' for n, a, b in zip(names, t, t[1:])))\n"
    )
    groups = folder / "comm_groups.json"
    given = str(groups) if groups.exists() else ""
    return subprocess.run(
        [sys.executable, "-c", script, str(folder), given], check=True, capture_output=True, text=True
    ).stdout.strip()


def main() -> int:
    """Print a row a case; exit code 1 when a wanted ratio is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024], choices=[64, 256, 1024])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    binary = os.environ.get("ASTRA_SIM")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    command = [str(Path(sys.executable).with_name("scaleacross")), "sim"]
    print(
        f"reference: {'side by side, ' + Path(binary).name if binary else 'recorded times'}; best of {options.repeat}"
    )
    print(
        f"{'case':10} {'NPUs':>5} {'ours s':>8} {'MiB':>6} {'ref. s':>8} {'MiB':>6} {'ratio':>7}  where our time goes"
    )
    missed = 0
    for name in ("tf2d", "tf_groups", "ring1d", "fc_direct", "mesh3d", "switch_hd"):
        for npus in options.sizes:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                write_case(name, npus, folder)
                own = min(measure([*command, *arguments(folder)], folder) for _ in range(options.repeat))
                there = measure([binary, *arguments(folder)], folder) if binary else RECORDED[name, npus]
                ratio = there[0] / own[0]
                short = ratio < WANTED.get((name, npus), 0)
                missed += short
                row = f"{name:10} {npus:5} {own[0]:8.2f} {own[1]:6.0f} {there[0]:8.2f} {there[1]:6.0f} {ratio:6.1f}x"
                print(f"{row}  {phases(folder)}" + ("  TOO SLOW" if short else ""), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
