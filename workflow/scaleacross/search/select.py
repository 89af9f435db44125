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

TIME = "iteration_time_s"


@dataclass(frozen=True)
class Rules:
    """What ``select`` must know of a study.

    Attributes:
        environment: values of each environment key, as cells, headline first.
        baselines: name to the cells a baseline fixes, or ``{"best_of": [names]}``; ``picked_by`` names a cost model.
        allow_unphysical: whether a point faster than its lower bound may win.
    """

    environment: Mapping[str, Sequence[str]] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allow_unphysical: bool = False


def rules_of(study: Mapping[str, Any]) -> Rules:
    """The rules of a study given as the plain mapping of its file."""
    baselines = {
        name: dict(wanted) if "best_of" in wanted else {key: cell(value) for key, value in wanted.items()}
        for name, wanted in study.get("baselines", {}).items()
    }
    environment = {name: [cell(value) for value in values] for name, values in study.get("environment", {}).items()}
    return Rules(environment, baselines, bool(study.get("allow_unphysical", False)))


def environments(rules: Rules) -> Iterator[dict[str, str]]:
    """Every combination of the environment, the headline first."""
    for combination in product(*rules.environment.values()):
        yield dict(zip(rules.environment, combination, strict=True))


def contenders(rows: Sequence[Row], rules: Rules, environment: Mapping[str, str]) -> list[Row]:
    """Rows that may be ranked in an environment: ok (or unphysical where allowed) with a time."""
    ranked = {"ok", "unphysical"} if rules.allow_unphysical else {"ok"}
    return [
        row
        for row in rows
        if row["status"] in ranked
        and row.get(TIME) is not None
        and all(row.get(name) == value for name, value in environment.items())
    ]


def best(rows: Sequence[Row]) -> Row | None:
    """The row with the least iteration time; of equal times the one with the least memory, then the least id."""
    return min(rows, key=lambda row: (row[TIME], row.get("memory_gib") or 0.0, row["point_id"]), default=None)


def baseline_row(rows: Sequence[Row], rules: Rules, name: str) -> Row | None:
    """The best of ``rows`` that matches a baseline: generous to it, since what it leaves open is chosen for it."""
    wanted = rules.baselines[name]
    if BEST_OF in wanted:
        members = wanted[BEST_OF] if isinstance(wanted[BEST_OF], list) else [wanted[BEST_OF]]
        found = (baseline_row(rows, rules, str(member)) for member in members)
        return best([row for row in found if row is not None])
    fixed = {key: value for key, value in wanted.items() if key != PICKED_BY}
    matching = [row for row in rows if all(row.get(key) == value for key, value in fixed.items())]
    return best(picked(matching, wanted[PICKED_BY]) if PICKED_BY in wanted else matching)


def speedups(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """One row for each environment and baseline: speedup = baseline time / best time - 1, in percent."""
    table = []
    for environment in environments(rules):
        ranked = contenders(rows, rules, environment)
        winner = best(ranked)
        for name in rules.baselines:
            row: Row = {**environment, "baseline": name}
            if winner is not None:
                row.update(best_point_id=winner["point_id"], best_time_s=winner[TIME])
            baseline = baseline_row(ranked, rules, name)
            if baseline is not None and winner is not None:
                row.update(
                    baseline_point_id=baseline["point_id"],
                    baseline_time_s=baseline[TIME],
                    speedup_pct=100.0 * (baseline[TIME] / winner[TIME] - 1.0),
                )
            table.append(row)
    return table
