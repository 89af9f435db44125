"""The table of results: a row for every point of a study, the infeasible ones included."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import InvalidInput
from ..study.tables import Row, cell

Pair = tuple[str, str]


def read_rows(files: Iterable[Path]) -> dict[Pair, Row]:
    """Result rows of the batches by (plan, configuration).

    Raises:
        InvalidInput: E-ROWS for a file that is not one JSON object a line.
    """
    rows: dict[Pair, Row] = {}
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                row = json.loads(line)
                rows[row["plan_id"], row["config_id"]] = row
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput("E-ROWS", f"{file}, line {number}: {error!r}", "delete the file and rerun") from None
    return rows


def join(points: Iterable[Row], rows: Mapping[Pair, Row]) -> list[Row]:
    """Every point with its measures; a feasible point whose pair has no row is a ``crash``, never a gap.

    A row's ``status`` and ``reason`` replace those of the design, which only says ``feasible``.
    """
    table = []
    for point in points:
        if point["status"] != "feasible":
            table.append(dict(point))
            continue
        row = rows.get((point["plan_id"], point["config_id"]))
        lost: Row = {"status": "crash", "reason": "E-ROW-LOST: no result row was written; see the log of its batch"}
        table.append({**point, **(lost if row is None else row)})
    return table


def write_parquet(path: Path, table: Sequence[Row], columns: Sequence[str], numeric: Container[str]) -> bool:
    """The table as parquet where pyarrow (an extra) is installed: ``numeric`` columns as float64, the others as text.

    Says whether it was written.
    """
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return False
    content = {
        name: pyarrow.array(
            [_number(row.get(name)) if name in numeric else cell(row.get(name)) for row in table],
            type=pyarrow.float64() if name in numeric else pyarrow.string(),
        )
        for name in columns
    }
    temporary = path.with_name(f".{path.name}.part")
    pyarrow.parquet.write_table(pyarrow.table(content), temporary)
    temporary.replace(path)
    return True


def _number(value: object) -> float | None:
    """A cell of a numeric column, which the design wrote as text or a simulator as a number."""
    return None if value in (None, "") else float(str(value))
