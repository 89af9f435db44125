"""The data dictionary: every column of ``results.csv`` and ``speedups.csv`` with its unit and meaning.

The one place that knows them: the report prints it, the README shows it (``dictionary_markdown``), tests compare it
with what the flow writes. Columns of ``results.csv`` that are not here are the study's dimensions, one column each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its name (which ends in its unit), the unit spelled out, what it means, text or number."""

    name: str
    unit: str
    meaning: str
    numeric: bool = True


def _text(name: str, meaning: str) -> Column:
    return Column(name, "", meaning, numeric=False)


#: Columns before the dimensions.
IDENTITY = (
    _text("point_id", "design point: a slug and a short hash of its values"),
    _text(
        "status",
        "ok; infeasible (cannot be built or does not fit in memory); rejected (ran, but misses a requirement of the "
        "study: cannot win); unphysical (faster than its links allow: cannot win); timeout, deadlock, crash, invalid "
        "(the simulation failed)",
    ),
    _text("reason", "why a point is not ok: an error id, the values that clash, the fix"),
)

#: Time of the iteration by what a GPU does, averaged over GPUs; the parts add up to ``iteration_time_s``.
BREAKDOWN = (
    Column("compute_s", "s", "time a GPU computes, whether or not it also communicates"),
    Column("exposed_tp_s", "s", "tensor-parallel communication that no compute hides"),
    Column("exposed_cp_s", "s", "context-parallel communication that no compute hides"),
    Column("exposed_ep_s", "s", "expert-parallel communication that no compute hides"),
    Column("exposed_pp_s", "s", "pipeline sends and receives that no compute hides"),
    Column("exposed_dp_s", "s", "data-parallel communication (gradients, sharded parameters) that no compute hides"),
    Column("exposed_other_s", "s", "communication of no axis that no compute hides"),
    Column("idle_s", "s", "neither computing nor communicating: pipeline bubble, waiting for the slowest GPU"),
)

#: Columns after the dimensions; those of the tiers (``TIER_COLUMNS``) stand before ``simulate_wall_s``.
MEASURES = (
    _text("plan_id", "the plan (model, parallelism, schedule): folder of its Chakra traces"),
    _text("config_id", "the configuration (network, system, memory): folder of its ASTRA-sim inputs"),
    _text("simulator", "embedded or astra-sim"),
    _text("network_model", "network model of the simulator: scaleacross, unaware or aware"),
    Column("gpus", "", "GPUs that the point uses"),
    Column("iteration_time_s", "s", "time of one training step, until the slowest GPU ends"),
    Column("tokens_per_s", "tokens/s", "global batch in tokens over iteration time"),
    Column(
        "tflops_per_gpu",
        "TFLOP/s",
        "model FLOPs of a step (no recomputation, attention's full square as Megatron-LM counts) per GPU and second",
    ),
    Column("mfu", "", "model FLOPs utilization: tflops_per_gpu over the accelerator's peak, 0 to 1"),
    Column(
        "usd_per_hour",
        "USD/h",
        "price of the GPUs an hour, and of their energy where it has a price; empty without a price",
    ),
    Column(
        "usd_per_iteration",
        "USD",
        "cost of one training step: usd_per_hour over its time, and what is charged for the bytes sent over priced "
        "tiers; empty without a price",
    ),
    Column(
        "tokens_per_usd",
        "tokens/USD",
        "global batch in tokens over usd_per_iteration, which is tokens/s over dollars a second; empty without a price",
    ),
    Column(
        "energy_kwh_per_iteration",
        "kWh",
        "energy of one training step with every board at its power limit, cooling included (PUE): an upper bound",
    ),
    Column("memory_gib", "GiB", "memory of a GPU of the heaviest pipeline stage"),
    Column("memory_stage", "", "number of the heaviest pipeline stage, from 0"),
    Column("memory_limit_gib", "GiB", "memory a GPU has for the plan"),
    *BREAKDOWN,
    Column(
        "bound_ratio",
        "",
        "time over the least time that links and compute allow: of the iteration, or of a collective alone where that "
        "ratio is less (unaware, astra-sim); below 1 is unphysical",
    ),
    _text(
        "bottleneck",
        "what is in use for the largest share of the iteration: compute (of the GPU that computes longest), "
        "`<tier> ports` (of GPUs) or `<tier> uplinks` (of the units the tier joins)",
    ),
    Column(
        "unpaced_time_s",
        "s",
        "own iteration time of a point that is paced like a worse network of the study, on which it takes less time "
        "(an anomaly of fair sharing; config_id names that network, all other columns are its run); else empty",
    ),
    Column("simulate_wall_s", "s", "wall-clock time the simulation of this point took"),
    _text("provenance", "hash of everything the row depends on: inputs, package, simulator"),
)

#: Columns of ``speedups.csv`` after those of the environment.
SPEEDUPS = (
    _text("baseline", "name of the baseline in the study"),
    _text("baseline_point_id", "the best ok point that matches the baseline in this environment; empty when none does"),
    Column("baseline_time_s", "s", "its iteration time"),
    Column("baseline_tokens_per_usd", "tokens/USD", "its tokens per dollar; empty without prices"),
    _text("best_point_id", "the best ok point in this environment, by the study's objective"),
    Column("best_time_s", "s", "its iteration time"),
    Column("best_tokens_per_usd", "tokens/USD", "its tokens per dollar; empty without prices"),
    Column("speedup_pct", "%", "baseline_time_s / best_time_s - 1, in percent"),
    Column(
        "gain_pct",
        "%",
        "by how much the best point is better in the study's objective: speedup_pct for iteration_time, "
        "best_tokens_per_usd / baseline_tokens_per_usd - 1 in percent for tokens_per_usd",
    ),
)

#: Columns of ``pareto.csv`` beside environment, design and the columns that its fronts are about.
PARETO = (
    _text("front", "columns of the front, the first one ascending from its best"),
    _text("point_id", "a point that no other ok point of the environment beats in all of them"),
    _text("exact", "true; false after a certified search, where points that were not simulated may be missing"),
)

#: Columns of every tier: {} is its name, and in the meaning how to speak of it.
TIER_COLUMNS = (
    Column("sent_{}_gb", "GB", "bytes a GPU sends over {} in one step, average over GPUs (1e9 bytes)"),
    Column(
        "cut_{}_gb",
        "GB",
        "bytes that the busiest of the units that {} joins (GPUs of a node, buildings of a campus) sends or receives "
        "through it in one step, whichever is more, what goes further out included (1e9 bytes)",
    ),
    Column(
        "busy_{}",
        "",
        "bytes through the fullest port or uplink into {} over what it can carry in the iteration; above 1 where a "
        "network model shares links for free",
    ),
)
_TIER = re.compile(r"(?:(?P<kind>sent|cut)_(?P<tier>\w+)_gb|busy_(?P<busy>\w+))\Z")


def tier_of(name: str, kind: str = "sent") -> str | None:
    """Tier of a column of that kind (``sent``, ``cut``, ``busy``): ``campus`` for ``sent_campus_gb``, else None."""
    match = _TIER.match(name)
    if match is None:
        return None
    return match["tier"] if match["kind"] == kind else match["busy"] if kind == "busy" else None


def tier_names(tiers: Iterable[str]) -> list[str]:
    """The columns of these tiers, kind by kind."""
    tiers = list(tiers)
    return [column.name.format(tier) for column in TIER_COLUMNS for tier in tiers]


def _tier_column(column: Column, tier: str, spoken: str) -> Column:
    return Column(column.name.format(tier), column.unit, column.meaning.format(spoken))


def describe(name: str) -> Column | None:
    """Dictionary entry of a column of ``results.csv``, or None when it is a dimension of the study."""
    for column, kind in zip(TIER_COLUMNS, ("sent", "cut", "busy"), strict=True):
        tier = tier_of(name, kind)
        if tier:
            return _tier_column(column, tier, f"the {tier} tier")
    return _BY_NAME.get(name)


_BY_NAME = {column.name: column for column in (*IDENTITY, *MEASURES)}


def dimension_columns(names: Iterable[str]) -> list[str]:
    """The names that the dictionary does not know: the dimensions of the study, environment included."""
    return [name for name in names if describe(name) is None]


def missing_columns(names: Iterable[str]) -> list[str]:
    """Columns every ``results.csv`` must have that are not among ``names``."""
    present = set(names)
    return [name for name in _BY_NAME if name not in present]


def dictionary(names: Iterable[str] | None = None) -> list[Column]:
    """Entries for the given columns in their order (dimensions left out), or the whole dictionary."""
    if names is None:
        tiers = [_tier_column(column, "<tier>", "this tier") for column in TIER_COLUMNS]
        return [*IDENTITY, *MEASURES[:-2], *tiers, *MEASURES[-2:]]
    return [column for name in names if (column := describe(name)) is not None]


def dictionary_markdown() -> str:
    """The dictionary of ``results.csv``, ``speedups.csv`` and ``pareto.csv`` as Markdown tables for the README."""
    return "\n\n".join(
        f"`{file}`\n\n| column | unit | meaning |\n| --- | --- | --- |\n"
        + "\n".join(f"| `{column.name}` | {column.unit or '-'} | {column.meaning} |" for column in columns)
        for file, columns in (
            ("results.csv", dictionary()),
            ("speedups.csv", list(SPEEDUPS)),
            ("pareto.csv", list(PARETO)),
        )
    )
