"""Sailor's cost model of a plan (arXiv 2504.17096), as its published code has it: what it would choose.

    T = (M - 1) max over stages (compute + p2p) + sum p2p + sum compute + T_sync,
    T_sync = max over stages of a ring all-reduce of its gradients in buckets of 500 MB,
    ring of n ranks and s bytes = 2 (n - 1) t(s / n), t(s) = latency + s / bandwidth of a pair of GPUs.

It knows neither schedules nor overlap, oversubscription or algorithms. Compute times are those of our traces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..plan.rules import micro_batches
from ..schema import read_yaml
from ..study.plans import read_plan
from ..study.tables import Row
from ..trace.cookbook import Cookbook
from ..trace.timing import stage_delays, stage_durations
from ..units import GIB
from .baselines import cost_column

BUCKET = 500e6  # bytes
PICKER = "sailor"


@dataclass(frozen=True)
class PairSpeed:
    """A tier as a profiler that measures one pair of GPUs sees it: bytes/s, seconds; never oversubscribed."""

    name: str
    bandwidth: float
    latency: float
    oversubscription: float = 1.0


def sailor_seconds(cookbook: Cookbook, tiers: Sequence[PairSpeed]) -> float:
    """Sailor's estimate of the iteration time of a plan, seconds."""
    parallelism, stages = cookbook.parallelism, cookbook.parallelism.pp
    f, b, w = stage_durations(cookbook, tiers)
    compute = [0.0] * stages
    for position in range(len(f)):  # chunks of a rank: Sailor has one stage a rank, so only their sum counts
        compute[position % stages] += 1e-9 * (f[position] + b[position] + w[position])
    delays = stage_delays(cookbook, tiers)
    p2p = [1e-9 * delays[stage][stage + 1] for stage in range(stages - 1)] + [0.0]
    count = micro_batches(cookbook.training, parallelism)
    slowest = max(work + send for work, send in zip(compute, p2p, strict=True))
    return (count - 1) * slowest + sum(p2p) + sum(compute) + _synchronization(cookbook, tiers)


def _synchronization(cookbook: Cookbook, tiers: Sequence[PairSpeed]) -> float:
    placement, parallelism = cookbook.placement, cookbook.parallelism
    ranks = placement.size_of("data")
    if ranks == 1:
        return 0.0
    slow = next(tier for tier in tiers if tier.name == placement.tiers_of("data")[-1])
    held = [0] * parallelism.pp
    for position, units in enumerate(cookbook.positions):
        held[position % parallelism.pp] += sum(unit.dense + unit.expert for unit in units)
    size = max(held) * parallelism.gradient_bytes
    buckets = [BUCKET] * int(size // BUCKET) + [size % BUCKET]
    return sum(2 * (ranks - 1) * (slow.latency + part / ranks / slow.bandwidth) for part in buckets if part)


def add_estimates(rows: Sequence[Row], traces: Path, configs: Path) -> None:
    """Give every row that was simulated Sailor's estimate, from the plan beside its traces and its configuration.

    A row whose plan or configuration is not there gets none, and so cannot be picked.
    """
    for row in rows:
        if row.get("plan_id") and row.get("config_id"):
            row[cost_column(PICKER)] = _estimate(traces / row["plan_id"], configs / row["config_id"])


@lru_cache(maxsize=65536)
def _estimate(plan: Path, config: Path) -> float | None:
    try:
        content = json.loads((plan / "plan.json").read_text())["plan"]
        network = config / "network.yml"
        tiers = _tiers(network) if network.is_file() else ()
    except (OSError, ValueError, KeyError):
        return None
    return sailor_seconds(cookbook_of(content), tiers) if tiers else None


def cookbook_of(content: Mapping[str, Any]) -> Cookbook:
    """The cookbook of a plan in its plain form."""
    model, training, parallelism, placement, accelerator = read_plan(content)
    return Cookbook(model, training, parallelism, placement, accelerator)


@lru_cache(maxsize=4096)
def _tiers(network: Path) -> tuple[PairSpeed, ...]:
    extension = read_yaml(network).get("x-scaleacross") or {}
    return tuple(
        PairSpeed(tier["name"], float(tier["bandwidth"]) * GIB, 1e-9 * float(tier["one-way"]))
        for tier in extension.get("tiers", ())
    )
