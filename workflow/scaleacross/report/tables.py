"""Reading the tables of a study: rows as plain dictionaries, numbers as floats (NaN where empty), all else as text."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInput
from .columns import SPEEDUPS, describe, missing_columns

#: One row of a table: text, or a float where the data dictionary says "number".
Row = dict[str, str | float]

NAN = float("nan")
_SPEEDUPS = {column.name: column for column in SPEEDUPS}


@dataclass(frozen=True)
class Table:
    """Column names in file order and the rows."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def number_of(row: Row, name: str) -> float:
    """A cell as a number; NaN when it is empty, text, or not there."""
    value = row.get(name, NAN)
    return value if isinstance(value, float) else NAN


def text_of(row: Row, name: str) -> str:
    """A cell as text; empty when it is not there."""
    return str(row.get(name, ""))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return NAN


def _read(path: Path, numeric: dict[str, bool]) -> Table:
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.reader(stream)
        header = tuple(next(reader, ()))
        is_number = [numeric.get(name, False) for name in header]
        rows = tuple(
            {
                name: _float(cell) if as_number else cell
                for name, cell, as_number in zip(header, cells, is_number, strict=False)
            }
            for cells in reader
            if cells
        )
    return Table(header, rows)


def read_results(path: Path) -> Table:
    """``results.csv``.

    Raises:
        InvalidInput: E-RESULTS when it is missing or lacks columns of the data dictionary.
    """
    if not path.is_file():
        raise InvalidInput("E-RESULTS", f"{path} does not exist", "run the study first (snakemake)")
    with path.open(newline="", encoding="utf-8") as stream:
        header = next(csv.reader(stream), [])
    missing = missing_columns(header)
    if missing:
        raise InvalidInput("E-RESULTS", f"{path} lacks {', '.join(missing)}", "rerun the step `aggregate`")
    numeric = {name: column.numeric for name in header if (column := describe(name)) is not None}
    return _read(path, numeric)


def read_speedups(path: Path) -> Table:
    """``speedups.csv``; an empty table when there is none (no baseline to compare with)."""
    if not path.is_file():
        return Table((), ())
    return _read(path, {name: column.numeric for name, column in _SPEEDUPS.items()})


def environment_columns(speedups: Table) -> tuple[str, ...]:
    """The columns of ``speedups.csv`` that name the environment."""
    return tuple(name for name in speedups.columns if name not in _SPEEDUPS)
