"""``optimum.yaml``: the chosen design of every environment, its inputs, and why it beats the first baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..study.outcomes import MEASURED, PARTS
from ..study.tables import Row
from .explain import knobs, uses
from .frameworks import framework_settings
from .objective import ITERATION_TIME, TIME, Objective
from .pareto import alternatives
from .select import Rules, baseline_row, best, contenders, environments

_MEASURES = (*MEASURED, "memory_limit_gib", "bound_ratio")
_EXACT = "exact: no point of the study is missing"
_PARTIAL = "only of the points that were simulated: one that the search ruled out by its bound may belong on a front"
_WORDS = {
    "compute_s": "compute",
    "exposed_tp_s": "exposed tensor-parallel communication",
    "exposed_cp_s": "exposed context-parallel communication",
    "exposed_ep_s": "exposed expert-parallel communication",
    "exposed_pp_s": "exposed pipeline communication",
    "exposed_dp_s": "exposed data-parallel communication",
    "exposed_other_s": "other exposed communication",
    "idle_s": "idle time (bubble, waiting)",
}
_NEGLIGIBLE = 0.01  # of the total difference: parts below it are left out of the sentence


def optimum(
    rows: Sequence[Row],
    rules: Rules,
    dimensions: Sequence[str],
    traces: Path,
    configs: Path,
    gpus_per_node: int = 8,
    complete: bool = True,
    fronts: Sequence[Sequence[str]] = (),
    derived: Sequence[str] = (),
    turned: Callable[[Row, Row | None], Sequence[Row]] | None = None,
) -> dict[str, Any]:
    """The content of ``optimum.yaml``: an entry an environment, the headline first.

    Args:
        rows: rows of ``results.csv``.
        dimensions: columns that describe a design (environment left out).
        traces, configs: folders that hold a folder for each plan and each configuration.
        gpus_per_node: for the launch lines of other frameworks.
        complete: whether the rows are all points of the study (a certified search leaves some out).
        fronts: columns of every Pareto front.
        derived: dimensions that follow from others (``dp``): told, but no knobs.
        turned: simulates what a search left out, the winner with one knob turned (:func:`.ondemand.turned_back`); asked
            for the headline.
    """
    own = [name for name in dimensions if name not in derived]
    entries: list[dict[str, Any]] = []
    for environment in environments(rules):
        ranked = contenders(rows, rules, environment)
        winner = best(ranked, rules.objective)
        entry: dict[str, Any] = {"environment": dict(environment)}
        if winner is None:
            entry["point_id"] = None
            entry["why"] = "no point of this environment was simulated with status ok"
        else:
            entry.update(_describe(winner, dimensions, traces, configs))
            baselines = {name: baseline_row(ranked, rules, name) for name in rules.baselines}
            for key, of in (("speedup_pct", ITERATION_TIME), ("gain_pct", rules.objective)):
                entry[key] = {name: round(of.gain_pct(winner, row), 4) for name, row in baselines.items() if row}
            against = next(((name, row) for name, row in baselines.items() if row), None)
            if against is not None:
                entry["why"] = explain(winner, *against, dimensions, rules.objective)
            back = against[1] if against else None
            more = turned(winner, back) if turned is not None and not entries else ()
            entry["knobs"] = knobs(winner, ranked, back, own, complete, rules.objective, more)
            entry["alternatives"] = alternatives(winner, ranked, rules.objective, fronts, dimensions)
            entry["uses"] = uses(winner)
            frameworks = framework_settings(traces / winner["plan_id"], gpus_per_node)
            if frameworks is not None:
                entry["frameworks"] = frameworks
        entries.append(entry)
    told = {
        "fronts": [list(columns) for columns in fronts],
        "exact": complete,
        "note": _EXACT if complete else _PARTIAL,
    }
    return {"objective": rules.objective.column, "environments": entries, "pareto": told}


def explain(
    winner: Row, name: str, baseline: Row, dimensions: Sequence[str], objective: Objective = ITERATION_TIME
) -> dict[str, Any]:
    """What the winner does differently from a baseline and which part of the iteration time that saves."""
    changed = {
        key: {"from": baseline.get(key), "to": winner.get(key)}
        for key in dimensions
        if baseline.get(key) != winner.get(key)
    }
    saved = {
        part: baseline[part] - winner[part]
        for part in PARTS
        if baseline.get(part) is not None and winner.get(part) is not None
    }
    return {
        "against": name,
        "point_id": baseline["point_id"],
        "iteration_time_s": baseline[TIME],
        "changed": changed,
        "seconds_saved": {part.removesuffix("_s"): round(value, 6) for part, value in saved.items()},
        "summary": _sentence(winner, name, baseline, changed, saved, objective),
    }


def _sentence(
    winner: Row, name: str, baseline: Row, changed: Mapping[str, Any], saved: Mapping[str, float], objective: Objective
) -> str:
    gain = baseline[TIME] - winner[TIME]
    if not changed:
        return f"{name} is the best design of this environment"
    turned = ", ".join(f"{key} {change['from']} -> {change['to']}" for key, change in changed.items())
    text = f"{objective.gain_pct(winner, baseline):.2f} % {objective.better} than {name} ({turned})"
    if baseline.get("gpus") != winner.get("gpus"):  # seconds of unequal numbers of GPUs do not compare
        sizes = [f"{row[TIME]:.3f} s an iteration on {row['gpus']:,.0f} GPUs" for row in (winner, baseline)]
        return f"{text}: {' against '.join(sizes)}"
    moved = sorted(saved.items(), key=lambda item: -abs(item[1]))
    words = [
        f"{abs(value):.3f} s {'less' if value > 0 else 'more'} {_WORDS[part]}"
        for part, value in moved
        if abs(value) > _NEGLIGIBLE * max(abs(gain), 1e-9)
    ]
    return f"{text}: {', '.join(words)}" if words else text


def _describe(row: Row, dimensions: Sequence[str], traces: Path, configs: Path) -> dict[str, Any]:
    workload, config = traces / row["plan_id"], configs / row["config_id"]
    command = (
        f"scaleacross sim --workload-configuration={workload}/workload --system-configuration={config}/system.json"
        f" --remote-memory-configuration={config}/memory.json --network-configuration={config}/network.yml"
        f" --network-model={row['network_model']}"
    )
    return {
        "point_id": row["point_id"],
        "design": {key: row[key] for key in dimensions if row.get(key) not in (None, "")},
        "simulator": row["simulator"],
        **({"unpaced_time_s": row["unpaced_time_s"]} if row.get("unpaced_time_s") else {}),
        "network_model": row["network_model"],
        **{key: int(row[key]) if key == "gpus" else row[key] for key in _MEASURES if row.get(key) is not None},
        "traces": str(workload),
        "configuration": str(config),
        "command": command,
    }
