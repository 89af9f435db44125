"""Small generated plans on 16 ranks, folded and expanded, with a network of tiers of any numbers."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fluid_cases import TierSpec, tiered
from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.engine import load_workload
from scaleacross.engine.settings import Config
from scaleacross.engine.workload import Workload
from scaleacross.model import Model, Moe
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.plan.placement import Placement, place
from scaleacross.plan.rules import micro_batches
from scaleacross.schedule import build
from scaleacross.trace.expand import expand
from scaleacross.trace.groups import GroupNames
from scaleacross.trace.plan_files import write_plan

ROOT = Path(__file__).parents[3]
H100 = load_accelerator(ROOT / "config" / "accelerators" / "h100-sxm.yaml")
SIZES = {"hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 8192, "vocab": 16384}
DENSE = Model.model_validate({"name": "dense", "layers": 8, **SIZES})
EXPERTS = DENSE.model_copy(update={"moe": Moe(experts=8, top_k=2, ffn=1024, shared_experts=1)})
TIERS = (
    TierSpec("node", (2,), 400, 2_000),
    TierSpec("zone", (2,), 50, 10_000, 1.0),
    TierSpec("building", (2,), 50, 40_000, 2.0),
    TierSpec("campus", (2,), 50, 150_000, 4.0),
)
PLANS: dict[str, tuple[Model, dict[str, Any]]] = {
    "pipeline inside": (DENSE, {"tp": 2, "pp": 4, "schedule": "1f1b"}),
    "pipeline across": (
        DENSE,
        {"tp": 2, "pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "interleaved", "chunks": 2},
    ),
    "fsdp": (DENSE, {"tp": 2, "pp": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"}),
    "hsdp": (DENSE, {"pp": 2, "tp": 2, "dp_sharding": "hsdp", "dp_overlap": "prefetch"}),
    "context": (DENSE, {"pp": 2, "cp": 4, "dp_sharding": "zero1"}),
    "experts": (EXPERTS, {"tp": 2, "pp": 2, "ep": 4, "dp_sharding": "zero1"}),
    "zero bubble across": (DENSE, {"tp": 2, "pp": 4, "order": ["tp", "cp", "dp", "pp"], "schedule": "zb-h1"}),
    "dualpipe": (DENSE, {"tp": 2, "pp": 4, "schedule": "dualpipe", "dp_overlap": "prefetch"}),
    "flat rings": (DENSE, {"tp": 2, "pp": 2, "flat_rings": ["dp"], "dp_sharding": "fsdp", "dp_overlap": "prefetch"}),
}


@dataclass(frozen=True)
class Plan:
    """A plan's traces, folded and one file a rank, its placement and communicators."""

    folded: Workload
    expanded: Workload
    placement: Placement
    groups: Mapping[int, tuple[int, ...]]

    def tiers(self, tiers: Sequence[TierSpec] = TIERS) -> list[TierSpec]:
        """Tiers with the plan's dimensions."""
        sizes: dict[str, list[int]] = {}
        for dim in self.placement.dims:
            sizes.setdefault(dim.tier, []).append(dim.size)
        return [replace(tier, dims=tuple(sizes[tier.name])) for tier in tiers]

    def config(self, tiers: Sequence[TierSpec] = TIERS, algorithm: str = "ring", **values: Any) -> Config:
        """A network of ``tiers`` (their dimensions are those of the plan)."""
        settings = {"local_mem_bandwidth": 3350.0, "peak_perf": 989.0, "roofline_enabled": True, **values}
        return tiered(self.tiers(tiers), algorithm, self.groups, **settings)


@cache
def plan(name: str, layers: int = 8, batch: int = 32) -> Plan:
    """One of ``PLANS``."""
    model, values = PLANS[name]
    training = Training(2048, batch)
    sizes = [SimpleTier(tier.name, math.prod(tier.dims)) for tier in TIERS]
    parallelism = parallelism_from(values, math.prod(tier.size for tier in sizes))
    placement = place(parallelism, sizes)
    schedule = build(
        parallelism.schedule,
        parallelism.pp,
        micro_batches(training, parallelism),
        parallelism.chunks,
        **dict(parallelism.schedule_parameters),
    )
    names = GroupNames(placement, parallelism.flat_rings).comm_groups() or {}
    groups = {int(key): tuple(ranks) for key, ranks in names.items()}
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch) / "folded", Path(scratch) / "expanded"
        shorter = model.model_copy(update={"layers": layers})
        write_plan(folder, shorter, training, parallelism, placement, schedule, H100)
        expand(folder, out, groups)
        return Plan(load_workload(folder / "workload"), load_workload(out / "workload"), placement, groups)


@dataclass(frozen=True)
class SimpleTier:
    """What placement needs of a tier."""

    name: str
    size: int
