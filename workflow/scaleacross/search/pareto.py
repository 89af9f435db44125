"""Pareto fronts: the points that no other beats in all of some columns, and what one gives up for the other.

Exact for the rows it is given. A search that leaves points out makes no promise for them: its bounds are about the
objective alone, so a point that was never simulated may belong on a front of something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..study.outcomes import MORE_IS_BETTER
from ..study.tables import Row
from .objective import ITERATION_TIME, Objective
from .select import Rules, contenders, environments, rank

#: Columns of ``pareto.csv`` before the design and after it.
FIRST, LAST = ("front", "point_id"), ("exact",)
CLOSE_PCT = (1.0, 5.0)  # that an alternative may cost
SHARE = 0.5  # of what the winner has, whatever that costs
_DIGITS = 4


def losses(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[float, ...] | None:
    """The columns as numbers of which less is better; None where one is not known."""
    found = []
    for name in columns:
        value = row.get(name)
        if not isinstance(value, int | float) or value != value:
            return None
        found.append(-float(value) if name in MORE_IS_BETTER else float(value))
    return tuple(found)


def front(rows: Sequence[Row], columns: Sequence[str], objective: Objective = ITERATION_TIME) -> list[Row]:
    """The rows that no other row beats: as good in every column and better in one. The first column's best come first.

    Of rows that are equal in all columns, the one that the objective ranks first stands for all.
    """
    known = [(key, rank(row, objective), row) for row in rows if (key := losses(row, columns)) is not None]
    found: list[tuple[tuple[float, ...], Row]] = []
    # In this order nothing beats what came before it: a row is on the front unless one that is there beats it.
    for key, _, row in sorted(known, key=lambda item: item[:2]):
        if not any(all(a <= b for a, b in zip(other, key, strict=True)) for other, _ in reversed(found)):
            found.append((key, row))
    return [row for _, row in found]


def pareto_rows(
    rows: Sequence[Row], rules: Rules, fronts: Sequence[Sequence[str]], design: Sequence[str], exact: bool
) -> Iterator[Row]:
    """Rows of ``pareto.csv``: every point of every front in every environment.

    Args:
        rows: of ``results.csv``. fronts: their columns. design: dimensions of the study.
        exact: whether the rows are all points of the study.
    """
    told = front_columns(fronts)
    for environment in environments(rules):
        ranked = contenders(rows, rules, environment)
        for columns in fronts:
            for row in front(ranked, columns, rules.objective):
                kept = {name: row.get(name) for name in (*design, *told)}
                yield {**environment, "front": " ".join(columns), "point_id": row["point_id"], **kept, "exact": exact}


def front_columns(fronts: Sequence[Sequence[str]]) -> list[str]:
    """Every column of some front, once."""
    return list(dict.fromkeys(name for columns in fronts for name in columns))


def alternatives(
    winner: Row, ranked: Sequence[Row], objective: Objective, fronts: Sequence[Sequence[str]], design: Sequence[str]
) -> list[dict[str, Any]]:
    """Points to take instead of the winner: least of something within 1 % and 5 % of the best, and half of it.

    Only fronts of the objective against one other column are asked.

    Returns:
        For each: ``column``, its value there and for the winner, ``costs_pct`` of the objective, changes, a sentence.
    """
    found: list[dict[str, Any]] = []
    for columns in fronts:
        if len(columns) != 2 or columns[0] != objective.column or losses(winner, columns) is None:
            continue
        told: list[str] = []
        for row in _choices(winner, front(ranked, columns, objective), objective, columns[1]):
            if row["point_id"] not in told:
                told.append(row["point_id"])
                found.append(_alternative(winner, row, objective, columns[1], design))
    return found


def _choices(winner: Row, points: Sequence[Row], objective: Objective, column: str) -> Iterator[Row]:
    """Points of a front with less of a column than the winner: most saving within each limit, and the cheapest half."""
    less = [row for row in points if _less(row, winner, column)]
    for limit in CLOSE_PCT:
        close = [row for row in less if _costs(winner, row, objective) <= limit]
        if close:
            yield close[-1]
    if column not in MORE_IS_BETTER:
        half = [row for row in less if float(row[column]) <= SHARE * float(winner[column])]
        if half:
            yield half[0]


def _costs(winner: Row, row: Row, objective: Objective) -> float:
    return 100.0 * (objective.score(row) / objective.score(winner) - 1.0)


def _less(row: Row, winner: Row, column: str) -> bool:
    one, other = losses(row, [column]), losses(winner, [column])
    return one is not None and other is not None and one < other


def _alternative(winner: Row, row: Row, objective: Objective, column: str, design: Sequence[str]) -> dict[str, Any]:
    costs = _costs(winner, row, objective)
    changed = {key: {"from": winner.get(key), "to": row.get(key)} for key in design if winner.get(key) != row.get(key)}
    turned = ", ".join(f"{key} {change['from']} -> {change['to']}" for key, change in changed.items())
    what = "slower" if objective.is_time else "more dollars a token"
    return {
        "point_id": row["point_id"],
        "column": column,
        "value": row[column],
        "winner": winner[column],
        "costs_pct": round(costs, _DIGITS),
        "changed": changed,
        "summary": f"{costs:.2f} % {what}, {column} {row[column]:.4g} instead of {winner[column]:.4g} ({turned})",
    }
