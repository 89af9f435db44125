"""The paper's experiment over all its studies: how speedups are distributed, beside the two published figures.

ScaleAcross Explorer (arXiv 2605.24326) reports up to 64.62 % over its production configuration and up to 37.59 % over
the state of the art. Its models, cluster sizes and baselines are not public, so nothing here is fitted to them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ..schema import read_yaml
from ..study.tables import Row, read_csv

PUBLISHED = {"production": 64.62, "production-tuned": 64.62, "state-of-the-art": 37.59}  # percent, the largest of each
_SAME = 1e-3  # percent
OWN_ASSUMPTIONS = (
    "production, first reading: one fixed configuration in every environment; for Llama 3 405B the published one, for "
    "the other models, whose settings are not public, what production-tuned chooses without oversubscription",
    "production, second reading (production-tuned): the same arrangement with its own best degrees, chunks and "
    "micro-batch in every environment; the paper does not say which of the two its figure is over",
    "the state of the art is the best of CrossPipe, ATLAS and Sailor on a point, each with all knobs that it does not "
    "fix itself chosen for it by our simulator: the speedups over it are cautious ones",
    "models, sizes, oversubscription, latencies and packet loss are chosen from public figures, not those of the paper",
)
COLUMNS = (
    "study", "gpus", "environment", "baseline", "baseline_time_s", "best_time_s", "speedup_pct", "best_point_id",
    "changed",
)  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """Attributes: ``rows`` one a study, environment and baseline; ``assumptions`` of all studies (subject, text);
    ``searched`` one line a study: what its search did; ``sequential`` one a study and environment: what the best and
    the worst order of optimizing placement, schedule and network one after the other loses, in percent."""

    rows: Sequence[Row]
    assumptions: Sequence[tuple[str, str]]
    searched: Sequence[str] = field(default_factory=tuple)
    sequential: Sequence[Row] = field(default_factory=tuple)


def read_experiment(folders: Iterable[Path]) -> Experiment:
    """The results of the studies in these folders.

    Raises:
        InvalidInput: E-FILE where a study has no results.
    """
    rows: list[Row] = []
    notes: dict[tuple[str, str], None] = {}
    searched: list[str] = []
    sequential: list[Row] = []
    for folder in folders:
        content = json.loads((folder / "design/study.json").read_text())
        optimum = read_yaml(folder / "optimum.yaml")
        numeric = ("baseline_time_s", "best_time_s", "speedup_pct")
        environment = list(content["study"]["environment"])
        turned = {_place(entry["environment"], environment): _changed(entry) for entry in optimum["environments"]}
        for row in read_csv(folder / "speedups.csv", numeric):
            place = _place(row, environment)
            own = {"study": content["study"]["name"], "gpus": content["gpus"], "environment": place}
            rows.append({**row, **own, "changed": turned.get(place, "") if row["baseline"] == "production" else ""})
        notes.update({(note["subject"], note["text"]): None for note in content.get("assumptions", ())})
        searched.append(_searched(content["study"]["name"], optimum.get("certificate")))
        sequential += _sequential(content["study"]["name"], folder / "interplay.csv", environment)
    return Experiment(rows, list(notes), searched, sequential)


def _sequential(study: str, path: Path, environment: Sequence[str]) -> list[Row]:
    """Best and worst order of one study in each environment; none where it has no interplay."""
    places: dict[str, list[Row]] = {}
    for row in read_csv(path, ("loss_pct",)) if path.is_file() else ():
        if row["method"] == "sequential" and row["loss_pct"] is not None:
            places.setdefault(_place(row, environment), []).append(row)
    found: list[Row] = []
    for place, rows in places.items():
        ordered = sorted(rows, key=lambda row: float(row["loss_pct"]))
        low, high = ordered[0], ordered[-1]
        own = {"study": study, "environment": place, "best_loss_pct": low["loss_pct"], "best_order": low["order"]}
        pair = high.get("dimensions") or high.get("pair") or ""
        found.append({**own, "loss_pct": high["loss_pct"], "order": high["order"], "pair": pair})
    return found


def _place(row: Mapping[str, Any], environment: Sequence[str]) -> str:
    return ", ".join(f"{name} {row.get(name)}" for name in environment)


def _changed(entry: Mapping[str, Any]) -> str:
    why = entry.get("why")
    return " ".join(why["changed"]) if isinstance(why, Mapping) else ""


def _searched(name: str, certificate: Mapping[str, Any] | None) -> str:
    if certificate is None:
        return f"{name}: every point simulated"
    entries = certificate["environments"]
    total = {key: sum(entry[key] for entry in entries) for key in ("points", "infeasible", "simulated", "pruned")}
    gaps = [entry["gap"] for entry in entries]
    gap = "without an optimum" if None in gaps else f"gap {100 * max(gaps):.4f} %"
    seconds = sum(entry["seconds"] for entry in entries)
    return (
        f"{name}: {total['points']} points, {total['infeasible']} infeasible, {total['simulated']} simulated, "
        f"{total['pruned']} pruned by their bounds, {gap}, {seconds:.0f} s"
    )


def distribution(rows: Sequence[Row], baseline: str) -> dict[str, float]:
    """Least, quartiles and largest speedup over a baseline in percent, and their number; empty for none."""
    values = sorted(
        row["speedup_pct"] for row in rows if row["baseline"] == baseline and row["speedup_pct"] is not None
    )
    if not values:
        return {}
    half = len(values) // 2
    low, high = values[: half or 1], values[-(half or 1) :]
    return {
        "count": len(values),
        "least": values[0],
        "first quarter": median(low),
        "median": median(values),
        "third quarter": median(high),
        "largest": values[-1],
    }


def _sequential_lines(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    losing = [row for row in rows if row["loss_pct"] > _SAME]
    losses = [float(row["loss_pct"]) for row in rows]
    lines = ["", "## Joint optimization against one dimension after the other", ""]
    lines += [
        f"Placement, schedule and network optimized one after the other, from production: in {len(losing)} of "
        f"{len(rows)} design points the worst of the six orders misses the joint optimum, by {median(losses):.2f} % "
        f"in the median of all and {max(losses):.2f} % at most; the best order by "
        f"{max(row['best_loss_pct'] for row in rows):.2f} % at most.",
    ]
    if losing:
        lines += ["", "| study | environment | worst order | loss | best order | loss | what interacts |"]
        lines += ["|---|---|---|---|---|---|---|"]
    for row in sorted(losing, key=lambda row: -row["loss_pct"]):
        lines.append(
            f"| {row['study']} | {row['environment']} | {row['order']} | {row['loss_pct']:.2f} % | "
            f"{row['best_order']} | {row['best_loss_pct']:.2f} % | {row['pair']} |"
        )
    return lines


def summary(experiment: Experiment) -> str:
    """The experiment as Markdown: distributions, knobs, every design point, searches, assumptions."""
    lines = ["# The paper's experiment on open numbers", ""]
    lines += ["Speedup = baseline time / best time - 1. Design points are pairs of a study and an environment.", ""]
    lines += ["| over | design points | least | 1st quarter | median | 3rd quarter | largest | published largest |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["baseline"] for row in experiment.rows):
        found = distribution(experiment.rows, name)
        if found:
            parts = [f"{value:.2f} %" for key, value in found.items() if key != "count"]
            told = f"{PUBLISHED[name]:.2f} %" if name in PUBLISHED else ""
            lines.append(f"| {name} | {found['count']:.0f} | {' | '.join(parts)} | {told} |")
    lines += [
        "",
        "The published figures are of models, sizes and baselines that are not public; nothing is fitted.",
        "",
    ]
    lines += ["## Knobs that winners turn against production", ""]
    knobs = Counter(knob for row in experiment.rows for knob in str(row["changed"]).split())
    count = sum(row["baseline"] == "production" and row["speedup_pct"] is not None for row in experiment.rows)
    lines += [f"- {knob}: {number} of {count} design points" for knob, number in knobs.most_common()]
    lines += [
        "",
        "## Design points",
        "",
        "| study | GPUs | environment | baseline | speedup |",
        "|---|---|---|---|---|",
    ]
    for row in experiment.rows:
        gain = "no ok point matches" if row["speedup_pct"] is None else f"{row['speedup_pct']:.2f} %"
        lines.append(f"| {row['study']} | {row['gpus']} | {row['environment']} | {row['baseline']} | {gain} |")
    lines += _sequential_lines(experiment.sequential)
    lines += ["", "## Searches", "", *(f"- {line}" for line in experiment.searched)]
    lines += ["", "## Assumptions", ""]
    lines += [f"- {text}" for text in OWN_ASSUMPTIONS]
    lines += [f"- {subject}: {text.removeprefix('assumption: ')}" for subject, text in experiment.assumptions]
    return "\n".join(lines) + "\n"
