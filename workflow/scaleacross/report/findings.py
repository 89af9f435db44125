"""What the tables say: winner, baselines, runners-up, Pareto front, effect of each dimension, reasons.

Everything is computed from ``results.csv`` and ``speedups.csv``; nothing here draws or knows how a number was
simulated. Dimension values stay the text that stands in the table (``1:2.8``, ``75 us``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..search.objective import ITERATION_TIME, OBJECTIVES, TIME, Objective
from ..search.pareto import front
from .columns import BREAKDOWN, dimension_columns, tier_of
from .tables import NAN, Row, Table, environment_columns, number_of, read_results, read_speedups, text_of

#: Columns whose values add up to the iteration time.
PARTS = tuple(column.name for column in BREAKDOWN)


@dataclass(frozen=True)
class Assumption:
    """Something the numbers rest on: what it is about, and the text with its source."""

    subject: str
    text: str


@dataclass(frozen=True)
class StudyFacts:
    """What the tables do not hold, from the study and the cluster.

    Attributes:
        training: of one iteration: global batch (sequences), sequence length (tokens), precision ...
        environment: dimensions that the world decides, read off ``speedups.csv`` when empty.
        derived: columns that follow from the dimensions (``dp``): told, but not a choice.
        baselines: what each baseline fixes.
        chosen: ids of the points that were chosen, one an environment; needed only where there are no speedups.
        allow_unphysical: points faster than their lower bound count too.
        objective, require: of the study. fronts: columns of every Pareto front.
        alternatives: of ``optimum.yaml`` for the headline.
        complete: whether the tables hold every point of the study; a certified search leaves some out.
        tiers: names, inner to outer.
        assumptions, sources: what the numbers rest on without a source, and where the others come from.
        provenance: versions and digests.
        flags: launcher flags of the winner. paths: its inputs, by what they are.
    """

    name: str
    model: str = ""
    cluster: str = ""
    gpus: int | None = None
    training: Mapping[str, object] = field(default_factory=dict)
    environment: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    baselines: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    allow_unphysical: bool = False
    objective: str = ITERATION_TIME.name
    require: tuple[str, ...] = ()
    fronts: tuple[tuple[str, ...], ...] = ((TIME, "memory_gib"),)
    alternatives: Sequence[Mapping[str, Any]] = ()
    complete: bool = True
    tiers: tuple[str, ...] = ()
    assumptions: Sequence[Assumption] = ()
    sources: Sequence[Assumption] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Against:
    """An environment's best point beside one baseline; ``point`` is None when no ok point matches the baseline."""

    environment: Mapping[str, str]
    baseline: str
    best: Row
    point: Row | None

    @property
    def speedup(self) -> float | None:
        """Baseline time / best time - 1 (0.25: a quarter faster), None without a matching point."""
        return self.gain(ITERATION_TIME)

    def gain(self, objective: Objective) -> float | None:
        """The same in an objective: the baseline's score / the best score - 1."""
        return None if self.point is None else objective.gain_pct(self.best, self.point) / 100


@dataclass(frozen=True)
class Effect:
    """Best score for each value of one dimension with the others free, NaN where no ok point has the value."""

    dimension: str
    best: Mapping[str, float]

    @property
    def spread(self) -> float:
        """Worst over best score, minus 1."""
        scores = [score for score in self.best.values() if score == score]
        return max(scores) / min(scores) - 1 if scores else 0.0


@dataclass(frozen=True)
class Reason:
    """Points that failed for the same reason: how many, of which status, and one of them in full."""

    status: str
    text: str
    count: int
    example: str
    point_id: str


@dataclass(frozen=True)
class Findings:
    """The tables of a study and what follows from them; ``dimensions`` are those one chooses, without environment."""

    facts: StudyFacts
    results: Table
    speedups: Table
    environment: tuple[str, ...]
    dimensions: tuple[str, ...]

    @property
    def objective(self) -> Objective:
        """By which points are ranked."""
        return OBJECTIVES[self.facts.objective]

    @cached_property
    def ok(self) -> list[Row]:
        """The points that count, best first."""
        counted = ("ok", "unphysical") if self.facts.allow_unphysical else ("ok",)
        score = self.objective.score
        rows = [row for row in self.results.rows if row["status"] in counted and score(row) < float("inf")]
        return sorted(rows, key=lambda row: (score(row), number_of(row, TIME), text_of(row, "point_id")))

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """Every value of every dimension, environment included, in the order of first appearance."""
        names = (*self.environment, *self.dimensions)
        return {name: list(dict.fromkeys(text_of(row, name) for row in self.results.rows)) for name in names}

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """Dimensions one chooses that take more than one value; what only follows from them is left out."""
        names = [name for name in self.dimensions if name not in self.facts.derived]
        return tuple(name for name in names if len(self.values[name]) > 1)

    @cached_property
    def fixed(self) -> dict[str, str]:
        """Dimensions with one value everywhere, environment included, and that value."""
        return {name: values[0] for name, values in self.values.items() if len(values) == 1}

    @cached_property
    def environments(self) -> list[dict[str, str]]:
        """Every environment, the headline first."""
        if not self.environment:
            return [{}]
        rows = self.speedups.rows or self.results.rows
        found = dict.fromkeys(tuple(text_of(row, name) for name in self.environment) for row in rows)
        return [dict(zip(self.environment, values, strict=True)) for values in found] or [{}]

    @property
    def headline(self) -> dict[str, str]:
        """The first environment: what the winner in words is about."""
        return self.environments[0]

    @cached_property
    def points(self) -> dict[str, Row]:
        """Every point by its id."""
        return {text_of(row, "point_id"): row for row in self.results.rows}

    def best(self, environment: Mapping[str, str] | None = None) -> list[Row]:
        """The ok points of an environment (default: the headline), best first."""
        return within(self.ok, self.headline if environment is None else environment)

    def winner(self, environment: Mapping[str, str] | None = None) -> Row | None:
        """The point chosen in an environment (default: the headline), else the best; None when none is ok."""
        environment = self.headline if environment is None else environment
        told = [text_of(row, "best_point_id") for row in within(self.speedups.rows, environment)]
        known = [self.points[point_id] for point_id in (*told, *self.facts.chosen) if point_id in self.points]
        return next(iter([*within(known, environment), *self.best(environment)]), None)

    @cached_property
    def comparisons(self) -> list[Against]:
        """Every environment's best against every baseline, in the order of ``speedups.csv``."""
        found = []
        for environment in self.environments:
            best = self.winner(environment)
            if best is not None:
                for row in within(self.speedups.rows, environment):
                    point = self.points.get(text_of(row, "baseline_point_id"))
                    found.append(Against(environment, text_of(row, "baseline"), best, point))
        return found

    def against(self) -> list[Against]:
        """Comparisons of the headline environment."""
        return [item for item in self.comparisons if item.environment == self.headline]

    def first_baseline(self) -> Against | None:
        """The headline's comparison with the first baseline that has a point."""
        return next((item for item in self.against() if item.point is not None), None)

    def ties(self) -> list[Row]:
        """Other points of the headline environment with the winner's score (to 1e-9 of it)."""
        winner = self.winner()
        if winner is None:
            return []
        score, own = self.objective.score, self.objective.score(winner)
        return [row for row in self.best() if row is not winner and abs(score(row) - own) <= 1e-9 * own]

    def runners_up(self, count: int) -> list[Row]:
        """The next best points of the headline environment; one of those with exactly the same times."""
        winner = self.winner()
        if winner is None:
            return []
        found: list[Row] = []
        seen = {_times(winner)}
        for row in self.best():
            if len(found) < count and _times(row) not in seen:
                seen.add(_times(row))
                found.append(row)
        return found

    def pareto(self, columns: Sequence[str]) -> list[Row]:
        """Points of the headline environment that no other beats in all these columns, the first one's best first."""
        return front(self.best(), columns, self.objective)

    def known(self, columns: Sequence[str]) -> list[Row]:
        """Points of the headline environment that have all these columns."""
        return [row for row in self.best() if all(number_of(row, name) == number_of(row, name) for name in columns)]

    def effects(self) -> list[Effect]:
        """What each dimension does in the headline environment, the one with the largest spread first."""
        rows, found = self.best(), []
        for name in self.varied:
            best = dict.fromkeys(self.values[name], NAN)
            for row in reversed(rows):
                best[text_of(row, name)] = self.objective.score(row)
            order = sorted(best, key=lambda value: (best[value] != best[value], best[value]))
            found.append(Effect(name, {value: best[value] for value in order}))
        return sorted(found, key=lambda effect: -effect.spread)

    def reasons(self, limit: int = 15) -> list[Reason]:
        """Why points are not ok, most frequent first."""
        return count_reasons([row for row in self.results.rows if row["status"] != "ok"], limit)

    def closest_miss(self) -> Row | None:
        """The infeasible point that exceeds its memory limit by least, None when none does."""
        rows = [row for row in self.results.rows if row["status"] == "infeasible" and memory_use(row) > 1]
        return min(rows, key=memory_use, default=None)

    @cached_property
    def tiers(self) -> list[str]:
        """Tiers with a traffic column, inner to outer as the columns stand."""
        return [tier for name in self.results.columns if (tier := tier_of(name))]

    def counts(self) -> dict[str, int]:
        """Number of points by status, ok first, then by number."""
        counts = Counter(text_of(row, "status") for row in self.results.rows)
        return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))


def _times(row: Row) -> tuple[float, ...]:
    return tuple(number_of(row, name) for name in (TIME, *PARTS))


def memory_use(row: Row) -> float:
    """Memory of the heaviest stage over the limit."""
    limit = number_of(row, "memory_limit_gib")
    return number_of(row, "memory_gib") / limit if limit > 0 else NAN


def within(rows: Iterable[Row], values: Mapping[str, str]) -> list[Row]:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def count_reasons(rows: Sequence[Row], limit: int) -> list[Reason]:
    """Group failed rows by status and reason; reasons that differ only in numbers count as one.

    When that gives more than ``limit`` groups, the error id alone decides.
    """

    def grouped(key_of: re.Pattern[str] | None) -> dict[tuple[str, str], list[Row]]:
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            text = text_of(row, "reason") or "no reason given"
            key = _NUMBER.sub("n", text if key_of is None else key_of.sub("", text))
            groups.setdefault((text_of(row, "status"), key), []).append(row)
        return groups

    groups = grouped(None)
    if len(groups) > limit:
        groups = grouped(re.compile(r":.*", re.DOTALL))
    found = [
        Reason(status, key, len(group), text_of(group[0], "reason"), text_of(group[0], "point_id"))
        for (status, key), group in groups.items()
    ]
    return sorted(found, key=lambda reason: (-reason.count, reason.text))


def load_findings(folder: Path, facts: StudyFacts) -> Findings:
    """Read the tables of ``results/<study>``; ``speedups.csv`` may be absent.

    Raises:
        InvalidInput: E-RESULTS when ``results.csv`` is missing or lacks columns of the data dictionary.
    """
    results, speedups = read_results(folder / "results.csv"), read_speedups(folder / "speedups.csv")
    dimensions = dimension_columns(results.columns)
    named = facts.environment or environment_columns(speedups)
    environment = tuple(name for name in named if name in dimensions)
    return Findings(facts, results, speedups, environment, tuple(n for n in dimensions if n not in environment))
