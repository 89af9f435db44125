"""Cells and tables: written the same way every time, read back as they were."""

from pathlib import Path
from typing import Any

import pytest
from scaleacross.errors import InvalidInput
from scaleacross.study.reasons import tabulate
from scaleacross.study.tables import cell, read_csv, same, write_csv


def test_cells() -> None:
    assert [cell(value) for value in (None, True, 3, 0.1, "1:2.8", ["tp", "dp"], [1, 2])] == [
        "", "true", "3", "0.1", "1:2.8", "tp-dp", "1-2",
    ]  # fmt: skip


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [{"id": "a,b", "time": 0.1 + 0.2, "reason": 'x "y"\nz'}, {"id": "c"}]
    write_csv(path, rows, ["id", "time", "reason"])
    assert read_csv(path, ["time"]) == [
        {"id": "a,b", "time": 0.1 + 0.2, "reason": 'x "y"\nz'},
        {"id": "c", "time": None, "reason": ""},
    ]
    before = path.stat().st_mtime_ns
    write_csv(path, rows, ["id", "time", "reason"])
    assert path.stat().st_mtime_ns == before


def test_bad_tables(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="E-FILE"):
        read_csv(tmp_path / "none.csv")
    (tmp_path / "t.csv").write_text("a,time\n1,fast\n")
    with pytest.raises(InvalidInput, match=r"E-TABLE.*line 2.*'fast'"):
        read_csv(tmp_path / "t.csv", ["time"])


def test_reasons_are_counted_most_frequent_first() -> None:
    rows = [
        {"point_id": "p1", "status": "infeasible", "reason": "E-A: first"},
        {"point_id": "p2", "status": "feasible", "reason": ""},
        {"point_id": "p3", "status": "infeasible", "reason": "E-B: x"},
        {"point_id": "p4", "status": "infeasible", "reason": "E-B: y"},
    ]
    first, second = tabulate(rows).splitlines()
    assert first.split()[:3] == ["2", "x", "E-B"] and "p3" in first
    assert second.split()[:3] == ["1", "x", "E-A"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("tp-cp-pp-dp", ["tp", "cp", "pp", "dp"], True),
        (["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"], False),
        (1, 1.0, True),
        (1, True, False),
        (1, "1", False),
        ("ring", "ring", True),
    ],
)
def test_values_are_the_same_however_they_are_written(a: Any, b: Any, expected: bool) -> None:
    assert same(a, b) is same(b, a) is expected
