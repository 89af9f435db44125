"""CSV tables of the flow: how values are written in a cell, and rows read back with numbers as numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..files import write_atomic

Row = dict[str, Any]


def cell(value: Any) -> str:
    """A value as the text of a cell: nothing for None, ``tp-cp-pp-dp`` for a list, shortest exact text for a float."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "-".join(cell(item) for item in value)
    return repr(value) if isinstance(value, float) else str(value)


def same(a: Any, b: Any) -> bool:
    """Whether two values of a study say the same: ``tp-cp-pp-dp`` and its list, 1 and 1.0; but not true and 1."""
    kinds = {isinstance(value, bool) for value in (a, b)}
    if isinstance(a, str | list | tuple) and isinstance(b, str | list | tuple):
        return cell(a) == cell(b)
    return len(kinds) == 1 and bool(a == b)


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Write a table, whole or not at all; an equal file stays as it is."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    write_atomic(path, stream.getvalue(), only_if_changed=True)


def read_csv(path: Path, numeric: Iterable[str] = ()) -> list[Row]:
    """Rows of a table; cells of ``numeric`` columns become floats, or None where empty, all others stay text.

    Raises:
        InvalidInput: E-FILE when the table cannot be read, E-TABLE for text in a numeric column.
    """
    try:
        with path.open(newline="") as stream:
            rows: list[Row] = list(csv.DictReader(stream))
    except OSError as error:
        raise InvalidInput("E-FILE", f"cannot read {path} ({error.strerror})", "run snakemake first") from None
    for number, row in enumerate(rows, start=2):
        for name in numeric:
            text = row.get(name)
            try:
                row[name] = float(text) if text else None
            except ValueError:
                raise InvalidInput("E-TABLE", f"{path}, line {number}: {name} is {text!r}", "run it again") from None
    return rows
