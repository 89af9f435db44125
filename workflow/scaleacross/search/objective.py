"""What a study optimizes, as a score of which less is better, and the bound of a score from bounds of time and bytes.

``iteration_time``: the score is the time, in seconds. ``tokens_per_usd`` (the same as tokens/s over dollars a second):
the score is dollars per million tokens. Both grow with the time and with the bytes that cross a priced tier, so lower
bounds of these give a lower bound of the score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster.cost import Rates

TIME = "iteration_time_s"
MILLION = 1e6


@dataclass(frozen=True)
class Objective:
    """An objective of a study.

    Attributes:
        name: in the study file. column: of ``results.csv``, in which the objective is told.
        unit: of the score. better: what a design that beats another is (``10 % faster``).
        measure: what the score is, in words.
    """

    name: str
    column: str
    unit: str
    better: str
    measure: str

    @property
    def is_time(self) -> bool:
        """Whether the score is the iteration time."""
        return self.column == TIME

    def score(self, row: Mapping[str, Any]) -> float:
        """Score of a row of ``results.csv``; infinite where it has none."""
        value = row.get(self.column)
        if not isinstance(value, int | float) or not value > 0:
            return float("inf")
        return float(value) if self.is_time else MILLION / value

    def score_of(self, seconds: float, tokens: float, rates: Rates, crossing: Mapping[str, float]) -> float:
        """Score of an iteration, or the least score there can be where time and bytes are lower bounds.

        Args:
            seconds: of the iteration. tokens: of the iteration.
            crossing: tier -> bytes that a GPU sends across it, on average; ``{}`` is a bound.

        Returns:
            Infinite where the objective needs prices and there are none.
        """
        if self.is_time:
            return seconds
        usd = rates.cost(seconds, crossing)
        return float("inf") if usd is None else MILLION * usd / tokens

    def value(self, score: float) -> float:
        """A score as the column has it."""
        return score if self.is_time else MILLION / score

    def gain_pct(self, row: Mapping[str, Any], over: Mapping[str, Any]) -> float:
        """By how much a row is better than another, in percent of the better one: score over / score - 1."""
        return 100.0 * (self.score(over) / self.score(row) - 1.0)


ITERATION_TIME = Objective("iteration_time", TIME, "s", "faster", "iteration time")
TOKENS_PER_USD = Objective(
    "tokens_per_usd", "tokens_per_usd", "USD per million tokens", "more tokens per dollar", "cost of a million tokens"
)
OBJECTIVES = {objective.name: objective for objective in (ITERATION_TIME, TOKENS_PER_USD)}
