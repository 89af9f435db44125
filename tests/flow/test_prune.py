"""``scaleacross prune``: traces and configurations of points that left a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scaleacross.cli.main import main
from scaleacross.study.flow import prepare_all

Edit = Callable[[str, str, str], None]


def written(project: Path) -> set[Path]:
    """Folders of traces and configurations."""
    return {path.parent for path in project.rglob("plan.json")} | {path.parent for path in project.rglob("network.yml")}


def make(project: Path) -> None:
    flow = prepare_all({"study": "tiny", "batches": 1})["tiny"]
    folder = project / flow.folder
    assert main(["render", str(folder / "design/configs.json"), f"--folder={flow.configs}", "--output=c.json"]) == 0
    assert main(["trace", str(folder / "design/plans_000.json"), f"--output={folder}/traces/batch_000.json"]) == 0


def test_only_what_left_the_study_goes(project: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    make(project)
    before = written(project)
    assert main(["prune", "tiny"]) == 0 and "nothing is unused" in capsys.readouterr().out
    kept = project / "results/tiny/runs/kept"
    kept.mkdir(parents=True)
    (kept / "gone-plan.jsonl").write_text("{}\n")
    foreign = project / "results/tiny/traces/notes"
    foreign.mkdir()
    edit("config/studies/tiny.yaml", "pp: [2, 4]", "pp: [2]")
    edit("config/studies/tiny.yaml", '["1:2", "1:8"]', '["1:2"]')
    make(project)
    capsys.readouterr()
    assert main(["prune", "tiny"]) == 0
    listed = capsys.readouterr().out
    assert "--remove" in listed and written(project) == before
    assert main(["prune", "tiny", "--remove"]) == 0
    left = written(project)
    assert left < before and foreign.is_dir() and not list(kept.iterdir())
    assert all(str(path.relative_to(project)) in listed for path in before - left)
    assert not any("pp4" in path.name for path in left) and any("pp2" in path.name for path in left)
    assert not list((project / "results/tiny/traces").glob(".*pp4*"))  # locks too
    make(project)
    assert written(project) == left  # nothing that the study uses was removed
    capsys.readouterr()
    assert main(["prune", "tiny"]) == 0 and "nothing is unused" in capsys.readouterr().out


def test_a_certified_study_must_have_been_searched(
    project: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    edit("config/studies/tiny.yaml", "name: tiny\n", "name: tiny\nsearch: certified\nnetwork_model: scaleacross\n")
    assert main(["prune", "tiny"]) == 2
    assert capsys.readouterr().err.startswith("E-RESULTS: ")
    (project / "results/tiny/search").mkdir()
    (project / "results/tiny/search/points.csv").write_text("point_id,plan_id,config_id\nx,keep,config\n")
    for name in ("keep", "drop"):
        (project / "results/tiny/traces" / name).mkdir(parents=True)
        (project / "results/tiny/traces" / name / "plan.json").write_text("{}")
    assert main(["prune", "tiny", "--remove"]) == 0
    assert [path.name for path in (project / "results/tiny/traces").iterdir()] == ["keep"]
