"""Why nothing is feasible: a histogram of reasons and the closest miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import Infeasible


@dataclass(frozen=True)
class Miss:
    """An infeasible point and its error."""

    point_id: str
    error: Infeasible


def histogram(misses: Iterable[Miss]) -> str:
    """Lines ``count  id  example``, most frequent first, then the point that missed by least."""
    misses = list(misses)
    counts = Counter(miss.error.error_id for miss in misses)
    nearest = {
        error_id: min((m for m in misses if m.error.error_id == error_id), key=lambda m: m.error.shortfall)
        for error_id in counts
    }
    width = max((len(error_id) for error_id in counts), default=0)
    lines = [
        f"{count:>7} x {error_id:<{width}}  for example {nearest[error_id].point_id}: {nearest[error_id].error.clash}"
        for error_id, count in counts.most_common()
    ]
    # A constraint that excludes a point says nothing about how near it came, so a real miss is preferred.
    real = [miss for miss in misses if miss.error.error_id != "E-CONSTRAINT"] or misses
    if real:
        closest = min(real, key=lambda miss: miss.error.shortfall)
        lines.append(f"closest miss: {closest.point_id}: {closest.error}")
    return "\n".join(lines)


def tabulate(rows: Iterable[Mapping[str, Any]]) -> str:
    """Lines ``count  id  example`` for the infeasible rows of ``points.csv``, most frequent first."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["status"] == "infeasible":
            error_id, _, text = row["reason"].partition(": ")
            reasons.setdefault(error_id, []).append(f"for example {row['point_id']}: {text}")
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(examples):>7} x {error_id}  {examples[0]}" for error_id, examples in ordered)
