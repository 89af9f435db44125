"""``scaleacross timeline`` on a study that has run: Chrome trace events and the critical path of any point."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scaleacross.cli.main import main
from scaleacross.study.flow import prepare_all
from scaleacross.study.tables import read_csv
from test_search import decide

OVERRIDES = ["dimensions.order=[[tp, cp, pp, dp]]", "dimensions.collective=[ring]", "network_model=scaleacross"]


@pytest.fixture
def ran(project: Path) -> Path:
    """The tiny study after its steps; the folder of its results."""
    flow = prepare_all({"study": "tiny", "batches": 1, "overrides": OVERRIDES})["tiny"]
    folder = project / flow.folder
    assert main(["render", str(folder / "design/configs.json"), f"--folder={flow.configs}", "--output=c.json"]) == 0
    assert main(["trace", str(folder / "design/plans_000.json"), f"--output={folder}/traces/batch_000.json"]) == 0
    inputs = [f"--traces={folder}/traces/batch_000.json", f"--configs={flow.configs}", f"--output={flow.row_files[0]}"]
    assert main(["simulate", str(folder / "design/runs_000.json"), *inputs]) == 0
    decide(folder, flow.row_files, flow.points_file)
    return folder


def spans(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """(process, lane) -> intervals in us."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    return found


def test_designs_on_one_time_axis(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["point_id"]: row for row in read_csv(ran / "results.csv", ["iteration_time_s"])}
    ok = [point for point, row in rows.items() if row["status"] == "ok"]
    output = tmp_path / "t.json"
    capsys.readouterr()
    assert main(["timeline", "tiny", "winner", "production", ok[-1], "--output", str(output)]) == 0
    told = capsys.readouterr().out
    assert told.count("of the critical path: compute") == 3
    events = json.loads(output.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [sum(name.startswith(f"{design}: rank") for name in names.values()) > 1 for design in ("winner", ok[-1])]
    for own in spans(events).values():
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(sorted(own)))
    paths = {pid: own for (pid, _), own in spans(events).items() if names[pid].endswith("critical path")}
    assert len(paths) == 3
    ends = []
    for own in paths.values():
        assert sum(end - start for start, end in own) == pytest.approx(max(end for _, end in own), rel=1e-6)
        ends.append(max(end for _, end in own) * 1e-6)
    assert ends[-1] == pytest.approx(rows[ok[-1]]["iteration_time_s"], rel=1e-6)


def test_words_that_name_no_point(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "tiny", "producton"]) == 2
    assert "production" in capsys.readouterr().err
    infeasible = next(row["point_id"] for row in read_csv(ran / "results.csv") if row["status"] == "infeasible")
    assert main(["timeline", "tiny", infeasible]) == 2
    assert "has no time: infeasible" in capsys.readouterr().err


def test_inputs_that_changed_since_are_refused(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = ran / "results.csv"
    row = next(row for row in read_csv(table) if row["status"] == "ok")
    table.write_text(table.read_text().replace(row["iteration_time_s"], "123.0"))
    assert main(["timeline", "tiny", row["point_id"]]) == 2
    assert capsys.readouterr().err.startswith("E-TIMELINE: the step ends after")
