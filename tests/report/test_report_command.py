"""``scaleacross report`` on a folder as the flow leaves it."""

import json

import pytest
import yaml
from scaleacross.cli.main import main
from scaleacross.errors import InvalidInput
from scaleacross.search.timeline import check_end
from synthetic_study import DIMENSIONS, ENVIRONMENT, PRODUCTION, TIERS, write_study


def prepared(folder):
    rows = write_study(folder)
    (folder / "design").mkdir()
    study = {"name": "made-up", "model": "m", "cluster": "c", "training": {"global_batch": 2048},
             "environment": ENVIRONMENT, "dimensions": DIMENSIONS, "baselines": {"production": PRODUCTION}}  # fmt: skip
    content = {
        "study": study,
        "dimension_columns": [*ENVIRONMENT, *DIMENSIONS],
        "tiers": TIERS,
        "pareto": [["iteration_time_s", "memory_gib"]],
        "gpus": 16384,
    }
    content |= {"configs": str(folder / "configs"), "assumptions": [{"subject": "zone", "text": "assumption: four"}]}
    (folder / "design/study.json").write_text(json.dumps(content))
    (folder / "provenance.yaml").write_text(yaml.safe_dump({"versions": {"python": "3.11.7"}, "design_key": "abc"}))
    return rows


def test_the_command_writes_the_page(tmp_path, capsys):
    prepared(tmp_path)
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "design/study.json"), "--output", str(page), "--no-timelines"]) == 0
    html = page.read_text()
    assert "<td>four</td>" in html and "3.11.7" in html and "16,384 GPUs" in html
    assert capsys.readouterr().out == f"report: {page}\n"


def test_a_point_whose_traces_are_gone_costs_its_timeline_alone(tmp_path, capsys):
    prepared(tmp_path)
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "design/study.json"), "--output", str(page)]) == 0
    assert "No timeline was kept of these points." in page.read_text()
    assert capsys.readouterr().err.count("no timeline of tp8-pp") == 2


def test_a_study_that_has_not_run_is_one_clear_error(tmp_path, capsys):
    prepared(tmp_path)
    (tmp_path / "results.csv").unlink()
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "design/study.json"), "--output", str(page)]) == 2
    assert capsys.readouterr().err.startswith("E-RESULTS: ") and not page.exists()


def test_a_timeline_that_contradicts_the_table_is_refused():
    check_end(5.0, 5.0 + 1e-9)
    check_end(5.0, None)
    with pytest.raises(InvalidInput, match=r"E-TIMELINE: the step ends after 5 s, results.csv says 5.2 s"):
        check_end(5.0, 5.2)
