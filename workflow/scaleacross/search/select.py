"""From result rows to decisions: the optimum, and the speedup over each baseline, in every environment.

An environment is one combination of what the world decides (oversubscription, latency); designs compete only inside
one. The first values of each environment key are the headline. Rows are those of ``results.csv``: times as numbers,
dimensions as the text of their cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ..study.tables import Row, cell
from .baselines import BEST_OF, PICKED_BY, picked
from .objective import ITERATION_TIME, OBJECTIVES, TIME, Objective

__all__ = ["TIME", "Rules", "baseline_row", "best", "contenders", "environments", "rank", "rules_of", "speedups"]


@dataclass(frozen=True)
class Rules:
    """What ``select`` must know of a study.

    Attributes:
        environment: values of each environment key, as cells, headline first.
        baselines: name to the cells a baseline fixes, or ``{"best_of": [names]}``; ``picked_by`` names a cost model.
        allow_unphysical: whether a point faster than its lower bound may win.
        objective: by which points are ranked.
    """

    environment: Mapping[str, Sequence[str]] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allow_unphysical: bool = False
    objective: Objective = ITERATION_TIME


def rules_of(study: Mapping[str, Any]) -> Rules:
    """The rules of a study given as the plain mapping of its file."""
    baselines = {
        name: dict(wanted) if "best_of" in wanted else {key: cell(value) for key, value in wanted.items()}
        for name, wanted in study.get("baselines", {}).items()
    }
    environment = {name: [cell(value) for value in values] for name, values in study.get("environment", {}).items()}
    objective = OBJECTIVES[study.get("objective", ITERATION_TIME.name)]
    return Rules(environment, baselines, bool(study.get("allow_unphysical", False)), objective)


def environments(rules: Rules) -> Iterator[dict[str, str]]:
    """Every combination of the environment, the headline first."""
    for combination in product(*rules.environment.values()):
        yield dict(zip(rules.environment, combination, strict=True))


def contenders(rows: Sequence[Row], rules: Rules, environment: Mapping[str, str]) -> list[Row]:
    """Rows that may be ranked in an environment: ok (or unphysical where allowed) with a score."""
    ranked = {"ok", "unphysical"} if rules.allow_unphysical else {"ok"}
    return [
        row
        for row in rows
        if row["status"] in ranked
        and rules.objective.score(row) < float("inf")
        and all(row.get(name) == value for name, value in environment.items())
    ]


def rank(row: Row, objective: Objective) -> tuple[float, float, float, str]:
    """What rows are sorted by, best first: score, then time, memory and id."""
    return objective.score(row), row[TIME], row.get("memory_gib") or 0.0, row["point_id"]


def best(rows: Sequence[Row], objective: Objective = ITERATION_TIME) -> Row | None:
    """The row with the least score; of equal ones the one with the least time, the least memory, then the least id."""
    return min(rows, key=lambda row: rank(row, objective), default=None)


def baseline_row(rows: Sequence[Row], rules: Rules, name: str) -> Row | None:
    """The best of ``rows`` that matches a baseline: generous to it, since what it leaves open is chosen for it."""
    wanted = rules.baselines[name]
    if BEST_OF in wanted:
        members = wanted[BEST_OF] if isinstance(wanted[BEST_OF], list) else [wanted[BEST_OF]]
        found = (baseline_row(rows, rules, str(member)) for member in members)
        return best([row for row in found if row is not None], rules.objective)
    fixed = {key: value for key, value in wanted.items() if key != PICKED_BY}
    matching = [row for row in rows if all(row.get(key) == value for key, value in fixed.items())]
    return best(picked(matching, wanted[PICKED_BY]) if PICKED_BY in wanted else matching, rules.objective)


def speedups(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """One row for each environment and baseline: speedup = baseline time / best time - 1, and the objective's gain."""
    table = []
    for environment in environments(rules):
        ranked = contenders(rows, rules, environment)
        winner = best(ranked, rules.objective)
        for name in rules.baselines:
            row: Row = {**environment, "baseline": name}
            if winner is not None:
                row.update(_told("best", winner))
            baseline = baseline_row(ranked, rules, name)
            if baseline is not None and winner is not None:
                row.update(_told("baseline", baseline))
                row["speedup_pct"] = ITERATION_TIME.gain_pct(winner, baseline)
                row["gain_pct"] = rules.objective.gain_pct(winner, baseline)
            table.append(row)
    return table


def _told(side: str, row: Row) -> Row:
    return {
        f"{side}_point_id": row["point_id"],
        f"{side}_time_s": row[TIME],
        f"{side}_tokens_per_usd": row.get("tokens_per_usd"),
    }
