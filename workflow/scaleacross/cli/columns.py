"""Which columns ``results.csv`` has, in which order, by the data dictionary of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..report.columns import IDENTITY, MEASURES, describe, tier_names


def result_columns(dimensions: Sequence[str], tiers: Sequence[str]) -> list[str]:
    """Columns of ``results.csv``: identity, the study's dimensions, measures, with those of each tier."""
    names = [column.name for column in MEASURES]
    place = names.index("simulate_wall_s")
    return [*(column.name for column in IDENTITY), *dimensions, *names[:place], *tier_names(tiers), *names[place:]]


def numeric_columns(columns: Iterable[str]) -> list[str]:
    """Those columns of a results table that hold numbers (the study's dimensions stay text)."""
    return [name for name in columns if (column := describe(name)) is not None and column.numeric]
