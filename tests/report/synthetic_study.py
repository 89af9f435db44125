"""Tables of a made-up study in the shape that the flow writes them: plausible times, every status, environments.

The times come from a back-of-the-envelope formula (bubble, exposed data-parallel traffic, pipeline latency), so that
the report has something sensible to tell. They are no result of anything.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleacross.report.columns import IDENTITY, MEASURES, tier_names

TIERS = ("node", "zone", "building", "campus")
ENVIRONMENT = {"oversubscription": ["1:2.8", "1:7"], "uplink_latency": ["75 us", "500 us"]}
DIMENSIONS: dict[str, list[Any]] = {
    "tp": [8],
    "cp": [1],
    "pp": [8, 16, 32],
    "order": ["[tp, cp, pp, dp]", "[tp, cp, dp, pp]"],
    "schedule": ["1f1b", "interleaved"],
    "chunks": [1, 2, 4],
    "micro_batch": [1, 2],
    "dp_sharding": ["zero1", "fsdp"],
    "collective": ["ring", "hierarchical"],
}
PRODUCTION = {"order": "[tp, cp, pp, dp]", "schedule": "interleaved", "dp_sharding": "fsdp", "collective": "ring"}
LIMIT = 74.5


def _times(values: Mapping[str, Any]) -> dict[str, float]:
    """Parts of the iteration (s) by name."""
    dp = 16384 // (8 * values["pp"])
    batches = 2048 // dp // values["micro_batch"]
    across = "dp" if str(values["order"]).rstrip("]").endswith("dp") else "pp"
    ratio = float(str(values.get("oversubscription", "1:2.8"))[2:])
    latency = float(str(values.get("uplink_latency", "75 us")).split()[0]) * 1e-6
    compute = 4.31 * (1.0 if values["micro_batch"] == 2 else 1.045)
    bubble = compute * (values["pp"] - 1) / (batches * values["chunks"])
    shard = 0.42 if values["dp_sharding"] == "zero1" else 0.63
    dp_time = shard * (ratio if across == "dp" else 1.0) * (0.7 if values["collective"] == "hierarchical" else 1.0)
    hops = values["pp"] * values["chunks"] * (1 if across == "pp" else 0.2)
    pp_time = 0.03 * values["chunks"] + (0.02 * batches + hops) * (latency * 6 + 1e-3 * ratio * (across == "pp"))
    tp_time = 0.52
    return {"compute_s": compute, "exposed_tp_s": tp_time, "exposed_pp_s": pp_time, "exposed_dp_s": dp_time,
            "exposed_cp_s": 0.0, "exposed_ep_s": 0.0, "exposed_other_s": 0.0, "idle_s": bubble}  # fmt: skip


def _failure(values: Mapping[str, Any], memory: float, number: int) -> tuple[str, str]:
    dp = 16384 // (8 * values["pp"])
    batches = 2048 // dp // values["micro_batch"]
    if (values["schedule"] == "interleaved") != (values["chunks"] > 1):
        return "infeasible", f"E-CONSTRAINT: schedule != 'interleaved' or chunks > 1 ({values['chunks']} chunks)"
    if values["schedule"] == "interleaved" and batches % values["pp"]:
        return (
            "infeasible",
            f"E-SCHEDULE: {batches} micro-batches are no multiple of {values['pp']} stages; change micro_batch or pp",
        )
    if memory > LIMIT:
        return "infeasible", f"E-MEMORY: stage 0 needs {memory:.1f} GiB of {LIMIT} GiB; more pp, fsdp or recomputation"
    if number % 61 == 60:
        return "timeout", "E-LIMIT: no result after 60 s"
    return "ok", ""


def _point(values: Mapping[str, Any], number: int) -> dict[str, Any]:
    parts = _times(values)
    total = sum(parts.values())
    digest = hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:12]
    memory = 810 / values["pp"] * (1 if values["dp_sharding"] == "zero1" else 0.55) + 13 * values["micro_batch"] + 11
    status, reason = _failure(values, memory, number)
    row: dict[str, Any] = {"point_id": f"tp8-pp{values['pp']}-{digest}", "status": status, "reason": reason, **values}
    row |= {"plan_id": f"plan-{digest[:6]}", "config_id": f"config-{digest[6:]}", "provenance": digest}
    row |= {"simulator": "embedded", "network_model": "unaware"}
    row |= {"memory_gib": round(memory, 2), "memory_stage": 0, "memory_limit_gib": LIMIT}
    if status == "ok":
        tokens = 8192 * 2048 / total
        flops = 6 * 405e9 * tokens / 16384 / 1e12
        row |= {"iteration_time_s": total, "tokens_per_s": tokens, "tflops_per_gpu": flops, "mfu": flops / 989.5}
        row |= parts | {"bound_ratio": 1.31, "simulate_wall_s": 0.043}
        across = 90.0 if str(values["order"]).rstrip("]").endswith("dp") else 4.0
        row |= dict(zip((f"sent_{tier}_gb" for tier in TIERS), (1910.0, 46.0, 22.0, across), strict=True))
        row |= dict(zip((f"cut_{tier}_gb" for tier in TIERS), (1910.0, 510.0, 13000.0, 46000.0), strict=True))
        row |= dict(zip((f"busy_{tier}" for tier in TIERS), (0.78, 0.17, 0.31, 0.01 * across), strict=True))
        row |= {"bottleneck": "campus uplinks" if across > 50 else "node ports"}
    return row


def make_rows(
    dimensions: Mapping[str, Sequence[Any]], environment: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """A row for every combination."""
    axes = {**environment, **dimensions}
    return [
        _point(dict(zip(axes, values, strict=True)), number)
        for number, values in enumerate(itertools.product(*axes.values()))
    ]


def speedup_rows(rows: list[dict[str, Any]], environment: Mapping[str, Sequence[str]], baselines: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:  # fmt: skip  # noqa: E501
    """Best ok point against the best ok point of each baseline, per environment."""
    found = []
    for values in itertools.product(*environment.values()):
        where = dict(zip(environment, values, strict=True))
        ok = [r for r in rows if r["status"] == "ok" and all(r[key] == value for key, value in where.items())]
        ok.sort(key=lambda r: r["iteration_time_s"])
        for name, wanted in baselines.items():
            match = [r for r in ok if all(r[key] == value for key, value in wanted.items())]
            row = {**where, "baseline": name, "best_point_id": ok[0]["point_id"] if ok else ""}
            row |= {"best_time_s": ok[0]["iteration_time_s"] if ok else ""}
            if match:
                time = match[0]["iteration_time_s"]
                row |= {"baseline_point_id": match[0]["point_id"], "baseline_time_s": time}
                row |= {"speedup_pct": 100 * (time / ok[0]["iteration_time_s"] - 1)}
            found.append(row)
    return found


def write_study(
    folder: Path,
    dimensions: Mapping[str, Sequence[Any]] = DIMENSIONS,
    environment: Mapping[str, Sequence[str]] = ENVIRONMENT,
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    rows: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Write ``results.csv`` and ``speedups.csv``; returns the rows of the results."""
    baselines = {"production": PRODUCTION} if baselines is None else baselines
    rows = make_rows(dimensions, environment) if rows is None else rows
    names = [column.name for column in IDENTITY] + list(environment) + list(dimensions)
    names += [column.name for column in MEASURES[:-2]] + tier_names(TIERS) + [column.name for column in MEASURES[-2:]]
    _write(folder / "results.csv", names, rows)
    if baselines:
        names = [*environment, "baseline", "baseline_point_id", "baseline_time_s", "best_point_id", "best_time_s"]
        _write(folder / "speedups.csv", [*names, "speedup_pct"], speedup_rows(rows, environment, baselines))
    return rows


def _write(path: Path, names: list[str], rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, restval="")
        writer.writeheader()
        writer.writerows(rows)
