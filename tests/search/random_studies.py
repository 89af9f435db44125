"""Random studies of one point: presets of the repository, plans that a run might have, and worse networks for each.

Models of 8B to 405B parameters, dense and MoE, on 64 to 16,384 GPUs of the preset clusters, with the oversubscription
(1:1 to 1:10) and outer latency drawn; plans that are feasible and fit in memory. Study ``n`` is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scaleacross.astra.render import render_config
from scaleacross.cluster import Cluster
from scaleacross.engine import load_workload, simulate
from scaleacross.errors import ScaleAcrossError
from scaleacross.search.bounds import config_from
from scaleacross.search.whatif import Quantity, Times, quantities
from scaleacross.study.design import Designer
from scaleacross.study.plans import Plan, Setting, parallelism_of
from scaleacross.study.schema import Study
from scaleacross.study.traces import write_traces

ROOT = Path(__file__).parents[2]
MODELS = {  # GPUs, tensor parallelism
    "llama3-8b": ([64, 128, 256, 512], [1, 2, 4]),
    "llama3-70b": ([256, 512, 1024, 2048], [2, 4, 8]),
    "llama3-405b": ([2048, 4096, 8192, 16384], [8]),
    "gpt3-175b": ([512, 1024, 3072], [4, 8]),
    "mixtral-8x7b": ([128, 256, 512], [1, 2, 4]),
    "qwen3-235b-a22b": ([512, 1024, 2048], [1, 2, 4]),
    "deepseek-v3": ([1024, 2048], [1, 2]),
    "llama4-maverick": ([1024, 2048, 8192], [1, 4, 8]),
}
EXPERTS = ("mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3", "llama4-maverick")
OUTER_LATENCY = {  # s, one way across the outermost tier, least and most
    "meta-2dc-16k": (1e-4, 5e-4),
    "scale-across": (1e-4, 5e-4),
    "llama3-24k": (1e-4, 5e-4),
    "meta-5dc": (1e-4, 5e-4),
    "metro": (5e-5, 5e-4),
    "long-haul-1000km": (2e-3, 1e-2),
    "bag-regions": (5e-5, 1e-3),
    "sailor-gcp": (2e-4, 1e-3),
}
OVERSUBSCRIPTIONS = [1, 1.5, 2, 2.8, 4, 4.5, 7, 10]
MILD, LARGE = [1.02, 1.05, 1.1, 1.2, 1.5], [2.0, 3.0, 5.0, 10.0]
MOST_MICRO_BATCHES, MOST_TOKENS = 64, 6.4e7


@dataclass(frozen=True)
class Drawn:
    """What a study is made of: ``batches`` micro-batches a stage, ``ratios`` of the outer two tiers."""

    model: str
    gpus: int
    cluster: str
    sequence: int
    values: Mapping[str, Any]
    batches: int
    ratios: Sequence[float]
    latency: float


@dataclass(frozen=True)
class Made:
    """A feasible one, on its cluster."""

    drawn: Drawn
    setting: Setting
    plan: Plan


def one_of(random: np.random.Generator, items: Sequence[Any]) -> Any:
    """A member of a list, kept as it is."""
    return items[int(random.integers(len(items)))]


def draw(random: np.random.Generator) -> Drawn:
    """A study that may or may not be feasible."""
    model = one_of(random, list(MODELS))
    gpus, cluster = one_of(random, MODELS[model][0]), one_of(random, list(OUTER_LATENCY))
    schedule = one_of(random, ["1f1b", "interleaved", "interleaved", "zb-h1", "zbv", "dualpipev", "gpipe"])
    sequence = one_of(random, [4096, 8192, 8192, 8192, 32768])
    inner = ["tp", "cp", "pp", "dp"]
    values = {
        "cp": one_of(random, [1, 1, 2]) if sequence < 10000 else one_of(random, [2, 4, 8]),
        "tp": one_of(random, MODELS[model][1]),
        "pp": one_of(random, [2, 4, 4, 8, 8, 16]),
        "order": one_of(random, [inner, *2 * [["tp", "cp", "dp", "pp"]], ["tp", "pp", "cp", "dp"]]),
        "schedule": schedule,
        "chunks": {"interleaved": one_of(random, [2, 4]), "zbv": 2, "dualpipev": 2}.get(schedule, 1),
        "micro_batch": one_of(random, [1, 1, 2]),
        "recompute": one_of(random, ["none", "selective", "full"]),
        "dp_sharding": one_of(random, ["zero1", "zero2", "fsdp", "fsdp", "fsdp-reshard", "hsdp"]),
        "dp_overlap": one_of(random, ["none", "backward", "prefetch", "prefetch"]),
        "bucket_layers": one_of(random, [1, 1, 2, 4]),
        "cp_method": one_of(random, ["all-gather", "ring"]),
        "collective": one_of(random, ["ring", "direct", "halving-doubling", "hierarchical", "pat"]),
        "p2p_overlap": bool(random.random() < 0.85),
    }
    values |= {"sequence_parallel": True} if values["tp"] > 1 else {}
    values |= {"ep": one_of(random, [4, 8, 16, 32])} if model in EXPERTS else {}
    batches, ratios = one_of(random, [1, 2, 2, 4, 8]), [float(one_of(random, OVERSUBSCRIPTIONS)) for _ in range(2)]
    least, most = OUTER_LATENCY[cluster]
    latency = float(least * (most / least) ** random.random())
    return Drawn(model, gpus, cluster, sequence, values, batches, ratios, latency)


def sizes(random: np.random.Generator, drawn: Drawn, preset: Cluster) -> list[int]:
    """Sizes of the tiers: the preset's node, two or four units of the outermost tier."""
    node = preset.tiers[0].size
    rest = drawn.gpus // node
    outer = one_of(random, [2, 2, 2, 4]) if rest % 4 == 0 else 2
    rest //= outer
    if len(preset.tiers) == 3:
        return [node, rest, outer]
    zone = 2 if drawn.cluster == "llama3-24k" else max(1, rest // one_of(random, [2, 4]))
    return [node, zone, rest // zone, outer]


def shaped(drawn: Drawn, preset: Cluster, own: Sequence[int]) -> Cluster:
    """The preset in other sizes, with the drawn oversubscription and outer latency."""
    tiers = [replace(tier, size=size) for tier, size in zip(preset.tiers, own, strict=True)]
    tiers[-1] = replace(tiers[-1], oversubscription=drawn.ratios[0], latency=drawn.latency)
    if tiers[-2].oversubscription > 1:
        tiers[-2] = replace(tiers[-2], oversubscription=drawn.ratios[1])
    return replace(preset, tiers=tuple(tiers))


def make(number: int) -> Made:
    """The first feasible draw of a seed."""
    random = np.random.default_rng(number)
    while True:
        drawn = draw(random)
        values = drawn.values
        replicas = drawn.gpus // (values["tp"] * values["cp"] * values["pp"])
        batch = replicas * values["micro_batch"] * values["pp"] * drawn.batches
        if replicas < 2 or values["pp"] * drawn.batches > MOST_MICRO_BATCHES or batch * drawn.sequence > MOST_TOKENS:
            continue
        content = {
            "name": "random",
            "model": drawn.model,
            "cluster": drawn.cluster,
            "training": {"sequence_length": drawn.sequence, "global_batch": batch},
            "fixed": dict(values),
            "dimensions": {},
        }
        try:
            designer = Designer(Study.model_validate(content), ROOT)
            setting = designer.setting(values)
            own = sizes(random, drawn, setting.cluster)
            if math.prod(own) != drawn.gpus or min(own) < 2:
                continue
            setting = replace(setting, cluster=shaped(drawn, setting.cluster, own))
            plan = designer.plan(setting, parallelism_of(values, drawn.gpus))
            files(Made(drawn, setting, plan), setting.cluster)
        except ScaleAcrossError:
            continue
        if plan.problem is None:
            return Made(drawn, setting, plan)


def files(made: Made, cluster: Cluster) -> dict[str, str]:
    """ASTRA-sim's configuration of a study on a cluster."""
    setting, plan, values = made.setting, made.plan, made.drawn.values
    return render_config(
        plan.placement.dims, cluster, setting.accelerator, values, setting.training.precision, plan.groups
    )


def worse_networks(number: int, cluster: Cluster, mild: int, large: int) -> Iterator[tuple[Quantity, float, Cluster]]:
    """One number of one tier worse by a mild or a large factor, more often of the outermost tier."""
    random = np.random.default_rng(10_000 + number)
    known = quantities(cluster)
    for k in range(mild + large):
        quantity = one_of(random, known if random.random() < 0.6 else known[-3:])
        factor = one_of(random, MILD if k < mild else LARGE)
        yield quantity, factor, Times(quantity, 1 / factor if quantity.name == "bandwidth" else factor)(cluster)


@dataclass(frozen=True)
class Gain:
    """What a worse network gained: ``share`` of the time; ``exposed``: share of the better network's iteration that
    communication is not hidden under compute."""

    study: int
    quantity: Quantity
    factor: float
    share: float
    exposed: float


def gains(number: int, folder: Path, mild: int = 8, large: int = 5) -> Iterator[Gain]:
    """The gains of a study on worse networks; negative where it takes longer, as it should."""
    made = make(number)
    write_traces(folder / str(number), made.plan.content)
    workload = load_workload(folder / str(number) / "workload")

    def outcome(cluster: Cluster) -> Any:
        found = simulate(workload, config_from(files(made, cluster)), model="scaleacross")
        assert found.status == "ok", found.message
        return found

    before = outcome(made.setting.cluster)
    exposed = sum(value for name, value in before.breakdown.items() if name.startswith("exposed"))
    for quantity, factor, cluster in worse_networks(number, made.setting.cluster, mild, large):
        share = before.iteration_ns / outcome(cluster).iteration_ns - 1
        yield Gain(number, quantity, factor, share, exposed / before.iteration_ns)
