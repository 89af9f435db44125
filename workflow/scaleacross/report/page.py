"""The page: findings as the plain values that ``templates/report.html.j2`` lays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .columns import Column, dictionary
from .findings import PARTS, TIME, Findings, memory_use
from .tables import Row, number_of, text_of
from .words import (
    GAINS,
    PART_PHRASES,
    alternative_sentence,
    column_label,
    column_words,
    compact,
    design_words,
    environment_text,
    name_of,
    number,
    percent,
    score_text,
    seconds,
    short_label,
    signed_percent,
    speedup_sentence,
    tie_sentence,
    value_of,
    why_sentences,
)

#: Rows of the table of points in the page; all of them are in results.csv.
MOST_ROWS = 1000
#: Of those, at least so many are kept for points that are not ok, when there are that many.
LEAST_FAILED = 250
#: Rows laid out when the page opens, the others on demand: a browser needs a second for a thousand.
FIRST_ROWS = 150

#: Training settings that say nothing at this value.
_NO_EFFECT = {"document_length": 0.0, "attention_imbalance": 1.0}

_NOT_FAILED = ("ok", "infeasible", "rejected", "unphysical")

NETWORK_MODELS = {
    "unaware": "ASTRA-sim's congestion-unaware model: messages in flight at the same time do not slow one another down",
    "aware": "ASTRA-sim's congestion-aware model: messages queue at each link",
    "scaleacross": "ports serialise, oversubscribed uplinks are shared max-min fairly, communication streams overlap",
}


def context(findings: Findings, figures: Mapping[str, str], missing: Mapping[str, str]) -> dict[str, Any]:
    """Everything the template needs. ``figures``: inline SVG by name; ``missing``: why a figure is not there."""
    winner = findings.winner()
    return {
        "facts": findings.facts,
        "figures": figures,
        "missing": missing,
        "gpus": _gpus(findings),
        "objective": findings.objective,
        "gain": GAINS[findings.objective.name],
        "fronts": [_front(findings, columns) for columns in findings.facts.fronts],
        "alternatives": [
            alternative_sentence(item, findings.objective, findings.varied) for item in findings.facts.alternatives
        ],
        "complete": findings.facts.complete,
        "counts": findings.counts(),
        "total": len(findings.results.rows),
        "ok": len(findings.best()),
        "headline": environment_text(findings.headline),
        "environments": len(findings.environments),
        "varied": [
            (name, name_of(name), [value_of(name, v) for v in findings.values[name]]) for name in findings.varied
        ],
        "fixed": [(name, name_of(name), value_of(name, value)) for name, value in findings.fixed.items()],
        "verdict": None if winner is None else _verdict(findings, winner),
        "comparison": None if winner is None else _comparison(findings, winner),
        "speedups": _speedups(findings),
        "reasons": _reasons(findings),
        "table": _points(findings),
        "training": {
            key.replace("_", " "): value
            for key, value in findings.facts.training.items()
            if value != _NO_EFFECT.get(key)
        },
        "dictionary": _dictionary(findings),
    }


def front_name(columns: Sequence[str]) -> str:
    """Name of a front's figure."""
    return "-".join(("pareto", *columns))


def _front(findings: Findings, columns: Sequence[str]) -> dict[str, Any]:
    """A front: its heading, its figure and how many points are on it."""
    front = findings.pareto(columns)
    words = " against ".join(column_words(name)[0] for name in columns)
    return {
        "name": front_name(columns),
        "words": words[0].upper() + words[1:],
        "count": len(front),
        "memory": "memory_gib" in columns,
    }


def _gpus(findings: Findings) -> str:
    """How many GPUs the points use, as a range where they differ."""
    counts = [count for row in findings.results.rows if (count := number_of(row, "gpus")) > 0]
    if not counts:
        return "" if findings.facts.gpus is None else f"{findings.facts.gpus:,}"
    low, high = min(counts), max(counts)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _verdict(findings: Findings, winner: Row) -> dict[str, Any]:
    """The winner in words and in four numbers."""
    comparisons, first = findings.against(), findings.first_baseline()
    objective = findings.objective
    tiles = [(seconds(number_of(winner, TIME)), "an iteration", "")]
    if not objective.is_time:
        tiles.insert(0, (compact(number_of(winner, objective.column)), "tokens per dollar", ""))
    if first is not None:
        what = "training speed" if objective.is_time else "tokens per dollar"
        tiles.append((signed_percent(first.gain(objective)), f"{what} over {first.baseline}", ""))
    tiles.append((percent(number_of(winner, "mfu")), "model FLOPs utilization", ""))
    tiles.append((compact(number_of(winner, "tokens_per_s")), "tokens a second", ""))
    memory = f"{number(number_of(winner, 'memory_gib'))} GiB"
    tiles.append((memory, f"of {number(number_of(winner, 'memory_limit_gib'))} GiB on the heaviest stage", ""))
    model = text_of(winner, "network_model")
    return {
        "design": design_words(findings, winner),
        "point_id": text_of(winner, "point_id"),
        "tiles": tiles,
        "speedups": [speedup_sentence(item, objective) for item in comparisons],
        "why": [] if first is None else why_sentences(first),
        "ranked": "the fastest" if objective.is_time else "the one with most tokens per dollar",
        "why_baseline": "" if first is None else first.baseline,
        "tie": tie_sentence(findings),
        "no_baseline": not comparisons,
        "model": model,
        "model_text": NETWORK_MODELS.get(model, ""),
        "simulator": text_of(winner, "simulator"),
        "failed": sum(n for status, n in findings.counts().items() if status not in _NOT_FAILED),
        "rejected": findings.counts().get("rejected", 0),
        "required": ", ".join(findings.facts.require),
        "unphysical": findings.counts().get("unphysical", 0),
    }


def _comparison(findings: Findings, winner: Row) -> dict[str, Any]:
    """Winner and baselines side by side: dimensions that the study varies, then the measures."""
    columns: list[tuple[str, Row]] = [("winner", winner)]
    columns += [(item.baseline, item.point) for item in findings.against() if item.point is not None][:4]
    points = [row for _, row in columns]
    design = [
        (name_of(name), [value_of(name, row[name]) for row in points], len({str(row[name]) for row in points}) > 1)
        for name in (*findings.varied, *findings.facts.derived)
    ]
    measures: list[tuple[str, list[str]]] = [
        ("iteration time", [seconds(number_of(row, TIME)) for row in points]),
        *_unpaced(points),
        ("tokens a second", [compact(number_of(row, "tokens_per_s")) for row in points]),
        ("TFLOP/s a GPU", [number(number_of(row, "tflops_per_gpu")) for row in points]),
        ("model FLOPs utilization", [percent(number_of(row, "mfu")) for row in points]),
        ("memory, heaviest stage (GiB)", [_memory(row) for row in points]),
    ]
    for name in ("gpus", "usd_per_iteration", "tokens_per_usd", "energy_kwh_per_iteration"):
        texts = [f"{number_of(row, name):,.0f}" if name == "gpus" else compact(number_of(row, name)) for row in points]
        if any(number_of(row, name) > 0 for row in points) and (name != "gpus" or len(set(texts)) > 1):
            measures.append((column_label(name), texts))
    for part in PARTS:
        if any(number_of(row, part) > 1e-4 * number_of(row, TIME) for row in points):
            measures.append(
                (PART_PHRASES[part], [seconds(number_of(row, part), like=number_of(winner, TIME)) for row in points])
            )
    if any(text_of(row, "bottleneck") for row in points):
        measures.append(("busiest", [text_of(row, "bottleneck") or "–" for row in points]))
    measures.append(("time over lower bound", [number(number_of(row, "bound_ratio")) for row in points]))
    return {"names": [name for name, _ in columns], "ids": [text_of(row, "point_id") for row in points],
            "design": design, "measures": measures}  # fmt: skip


def _unpaced(points: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The own times of points that are paced like a worse network (``search.pacing``)."""
    own = [number_of(row, "unpaced_time_s") for row in points]
    if not any(time > 0 for time in own):
        return []
    return [("without pacing", [seconds(time) if time > 0 else "–" for time in own])]


def _memory(row: Row) -> str:
    return f"{number(number_of(row, 'memory_gib'))} of {number(number_of(row, 'memory_limit_gib'))}"


def _speedups(findings: Findings) -> dict[str, Any]:
    """The best design of each environment and its speedup over each baseline."""
    baselines = list(dict.fromkeys(item.baseline for item in findings.comparisons))
    objective = findings.objective
    found = {(tuple(item.environment.values()), item.baseline): item.gain(objective) for item in findings.comparisons}
    rows = []
    for environment in findings.environments:
        best = findings.winner(environment)
        rows.append(
            {
                "environment": list(environment.values()),
                "best": "no ok point" if best is None else short_label(best, findings.varied),
                "time": "–" if best is None else score_text(objective, objective.score(best)),
                "speedups": [signed_percent(found.get((tuple(environment.values()), name))) for name in baselines],
            }
        )
    wanted = {name: _definition(values) for name, values in findings.facts.baselines.items()}
    return {
        "spread": _spread(findings, baselines),
        "baselines": baselines,
        "environment": [name_of(name) for name in findings.environment],
        "rows": rows,
        "definitions": [(name, wanted.get(name, "")) for name in (baselines or wanted)],
    }


def _definition(values: Mapping[str, object]) -> str:
    """What a baseline is, in words."""
    if "best_of" in values:
        members = values["best_of"] if isinstance(values["best_of"], list) else [values["best_of"]]
        return "the best of " + ", ".join(str(member) for member in members)
    picker = values.get("picked_by")
    fixed = ", ".join(f"{name_of(key)} {value_of(key, value)}" for key, value in values.items() if key != "picked_by")
    if picker:
        return f"the point that {picker}'s own cost model picks" + (f" among those with {fixed}" if fixed else "")
    return "the best feasible point" + (f" with {fixed}" if fixed else "")


def _spread(findings: Findings, baselines: list[str]) -> list[str]:
    """Range and median of the gain over each baseline, where there are environments enough to have them."""
    objective = findings.objective
    told = []
    for name in baselines:
        gains = [item.gain(objective) for item in findings.comparisons if item.baseline == name]
        found = sorted(gain for gain in gains if gain is not None)
        if len(found) > 2:
            low, middle, high = signed_percent(found[0]), signed_percent(median(found)), signed_percent(found[-1])
            told.append(f"Over {name}, in {len(found)} environments: {low} to {high}, median {middle}.")
    return told


def _reasons(findings: Findings) -> dict[str, Any]:
    reasons, miss = findings.reasons(), findings.closest_miss()
    most = max((reason.count for reason in reasons), default=1)
    closest = ""
    if miss is not None:
        closest = (
            f"{number(number_of(miss, 'memory_gib'))} GiB of {number(number_of(miss, 'memory_limit_gib'))} GiB "
            f"({signed_percent(memory_use(miss) - 1)})"
        )
    rows = [(reason, round(100 * reason.count / most, 1)) for reason in reasons]
    return {
        "rows": rows,
        "total": sum(reason.count for reason in reasons),
        "closest": closest,
        "closest_id": "" if miss is None else text_of(miss, "point_id"),
    }


def _points(findings: Findings) -> dict[str, Any]:
    """The table of points: what varies and the main measures; ok points of the headline first, best first."""
    best, score, priced = {}, findings.objective.score, not findings.objective.is_time
    for environment in findings.environments:
        row = findings.winner(environment)
        best[tuple(environment.values())] = float("nan") if row is None else score(row)
    rows = _chosen_rows(findings)
    names = [name for name in (*findings.environment, *findings.varied) if len(findings.values[name]) > 1]
    marks = {id(item.point): item.baseline for item in findings.against()}
    marks[id(findings.winner())] = "winner"
    cells = []
    for row in rows:
        time = number_of(row, TIME)
        over = score(row) / best.get(tuple(text_of(row, name) for name in findings.environment), float("nan")) - 1
        over = over if over < float("inf") else float("nan")
        measures = [
            (number(time, 4), time),
            (signed_percent(over) if over else "best", over),
            (percent(number_of(row, "mfu")), number_of(row, "mfu")),
            (number(number_of(row, "memory_gib")), number_of(row, "memory_gib")),
        ]
        if priced:
            dollars = number_of(row, "tokens_per_usd")
            measures.insert(0, (compact(dollars), dollars))
        cells.append(
            {
                "id": text_of(row, "point_id"),
                "status": text_of(row, "status"),
                "mark": marks.get(id(row), ""),
                "values": [value_of(name, row[name]) for name in names],
                "measures": [(text, "" if value != value else f"{value:.6g}") for text, value in measures],
                "reason": text_of(row, "reason"),
            }
        )
    return {
        "dimensions": [(name, name_of(name)) for name in names],
        "first": FIRST_ROWS,
        "measures": [
            *(["tokens per dollar"] if priced else []),
            "iteration time (s)",
            "over best",
            "MFU",
            "memory (GiB)",
        ],
        "rows": cells,
        "left_out": len(findings.results.rows) - len(rows),
        "statuses": list(findings.counts()),
    }


def _chosen_rows(findings: Findings) -> list[Row]:
    head = findings.best()
    inside = {id(row) for row in head}
    ok = head + [row for row in findings.ok if id(row) not in inside]
    counted = {id(row) for row in ok}
    failed = [row for row in findings.results.rows if id(row) not in counted]
    kept = max(MOST_ROWS - len(failed), MOST_ROWS - LEAST_FAILED)
    ok = ok[:kept]
    return ok + failed[: MOST_ROWS - len(ok)]


def _dictionary(findings: Findings) -> list[Column]:
    names = findings.results.columns
    told = {name: Column(name, "", "dimension of the study: " + name_of(name)) for name in findings.dimensions}
    told |= {name: Column(name, "", "environment of the study: " + name_of(name)) for name in findings.environment}
    known = {column.name: column for column in dictionary(names)}
    return [known.get(name) or told[name] for name in names]
