"""No point is lost between design and table, and a run with too many failures fails."""

from pathlib import Path

import pytest
from scaleacross.errors import InvalidInput, ScaleAcrossError
from scaleacross.search.table import join, read_rows
from scaleacross.search.verdict import judge

POINTS = [
    {"point_id": "p1", "status": "feasible", "reason": "", "plan_id": "a", "config_id": "x", "pp": "8"},
    {"point_id": "p2", "status": "feasible", "reason": "", "plan_id": "a", "config_id": "y", "pp": "8"},
    {"point_id": "p3", "status": "infeasible", "reason": "E-MEMORY: ...", "plan_id": "", "config_id": "", "pp": "4"},
    {"point_id": "p4", "status": "feasible", "reason": "", "plan_id": "b", "config_id": "x", "pp": "2"},
]


def test_join_keeps_every_point(tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text(
        '{"plan_id": "a", "config_id": "x", "status": "ok", "reason": "", "iteration_time_s": 2.5}\n'
        '{"plan_id": "a", "config_id": "y", "status": "timeout", "reason": "E-TIME-LIMIT: 60 s"}\n'
        '{"plan_id": "old", "config_id": "old", "status": "ok", "reason": "", "iteration_time_s": 1.0}\n'
    )
    table = join(POINTS, read_rows([file]))
    assert [(row["point_id"], row["status"]) for row in table] == [
        ("p1", "ok"), ("p2", "timeout"), ("p3", "infeasible"), ("p4", "crash"),
    ]  # fmt: skip
    assert table[0]["iteration_time_s"] == 2.5 and table[0]["pp"] == "8"
    assert table[3]["reason"].startswith("E-ROW-LOST")


def test_a_spoilt_row_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text('{"plan_id": "a", "config_id"')
    with pytest.raises(InvalidInput, match=r"E-ROWS.*line 1"):
        read_rows([file])


def rows(**counts: int) -> list[dict[str, str]]:
    return [{"point_id": f"{s}{i}", "status": s, "reason": "why"} for s, n in counts.items() for i in range(n)]


def test_verdict_counts() -> None:
    assert judge(rows(ok=9, infeasible=5, timeout=1), 0.1) == "15 points: 9 ok, 5 infeasible, 1 timeout"


def test_verdict_fails_above_the_threshold() -> None:
    with pytest.raises(ScaleAcrossError, match=r"E-FAILURES: 1 of 10 feasible.*10.0%.*timeout0, timeout: why"):
        judge(rows(ok=9, infeasible=5, timeout=1), 0.09)


def test_verdict_fails_without_any_ok_point() -> None:
    with pytest.raises(ScaleAcrossError, match="no point is ok"):
        judge(rows(unphysical=3), 1.0)
