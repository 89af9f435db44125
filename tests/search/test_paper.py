"""The experiment's summary on results whose distribution is known; its studies are valid."""

import json
from pathlib import Path

import pytest
import yaml
from scaleacross.search.paper import distribution, read_experiment, summary
from scaleacross.study.schema import load_study

STUDIES = sorted(Path("config/studies/paper").glob("*.yaml"))


def write(folder: Path, name: str, gains: list[tuple[str, str, str]]) -> Path:
    (folder / name / "design").mkdir(parents=True)
    note = {"subject": "campus size = 2", "text": "assumption: set by the study"}
    study = {"study": {"name": name, "environment": {"os": ["1", "7"]}}, "gpus": 64, "assumptions": [note]}
    (folder / name / "design/study.json").write_text(json.dumps(study))
    entries = [{"environment": {"os": os}, "why": {"changed": {"order": {}, "schedule": {}}}} for os in ("1", "7")]
    certificate = {"points": 10, "infeasible": 2, "simulated": 3, "pruned": 5, "gap": 0.0, "seconds": 1.0}
    optimum = {"environments": entries, "certificate": {"environments": [certificate]}}
    (folder / name / "optimum.yaml").write_text(yaml.safe_dump(optimum))
    lines = ["os,baseline,baseline_point_id,baseline_time_s,best_point_id,best_time_s,speedup_pct"]
    lines += [f"{os},{baseline},b,2,a,1,{gain}" for os, baseline, gain in gains]
    (folder / name / "speedups.csv").write_text("\n".join(lines) + "\n")
    return folder / name


def test_the_summary(tmp_path: Path) -> None:
    gains = [("1", "production", "10.0"), ("7", "production", "30.0"), ("1", "state-of-the-art", "")]
    experiment = read_experiment([write(tmp_path, "a", gains), write(tmp_path, "b", [("1", "production", "20.0")])])
    found = distribution(experiment.rows, "production")
    assert found == {
        "count": 3, "least": 10.0, "first quarter": 10.0, "median": 20.0, "third quarter": 30.0, "largest": 30.0,
    }  # fmt: skip
    assert distribution(experiment.rows, "state-of-the-art") == {}
    text = summary(experiment)
    assert "| production | 3 | 10.00 % | 10.00 % | 20.00 % | 30.00 % | 30.00 % | 64.62 % |" in text
    assert "- order: 3 of 3 design points" in text and "no ok point matches" in text
    assert text.count("- campus size = 2: set by the study") == 1
    assert "a: 10 points, 2 infeasible, 3 simulated, 5 pruned by their bounds, gap 0.0000 %" in text


def test_losses_of_one_after_the_other(tmp_path: Path) -> None:
    folder = write(tmp_path, "a", [("1", "production", "10.0"), ("7", "production", "30.0")])
    lines = ["os,method,order,point_id,iteration_time_s,loss_pct,pair,pair_gain_pct,dimensions,dimensions_gain_pct"]
    lines += ["1,joint,,p,1,0.0,,,,", "1,sequential,abc,p,1,0.0,,,,", "1,sequential,cba,q,1.2,20.0,,,pp x order,5.0"]
    lines += ["7,sequential,abc,p,1,0.0,,,,", "7,sequential,cba,p,1,0.0,,,,"]
    (folder / "interplay.csv").write_text("\n".join(lines) + "\n")
    experiment = read_experiment([folder])
    assert [row["loss_pct"] for row in experiment.sequential] == [20.0, 0.0]
    text = summary(experiment)
    assert "in 1 of 2 design points" in text and "20.00 % at most; the best order by 0.00 % at most" in text
    assert "| a | os 1 | cba | 20.00 % | abc | 0.00 % | pp x order |" in text


def test_production_is_one_configuration_and_tuned_is_not() -> None:
    for path in STUDIES:
        study = load_study(f"paper/{path.stem}")
        fixed, tuned = study.baselines["production"], study.baselines["production-tuned"]
        varied = {name for name, values in study.dimensions.items() if len(values) > 1}
        assert varied - {*fixed} <= {"layout"}  # which follows from pp and chunks
        assert tuned.items() < fixed.items(), path


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_are_valid_and_compare_with_the_same_baselines(path: Path) -> None:
    study = load_study(f"paper/{path.stem}")
    assert study.name == path.stem and study.search == "certified" and study.network_model == "scaleacross"
    assert list(study.baselines) == [
        "production", "production-tuned", "crosspipe", "atlas", "sailor", "state-of-the-art",
    ]  # fmt: skip


def test_the_experiment_covers_what_it_says() -> None:
    assert {load_study(f"paper/{path.stem}").model for path in STUDIES} == {
        "llama3-70b", "llama3-405b", "deepseek-v3", "llama4-maverick",
    }  # fmt: skip
