"""A study with ``search: certified`` through the commands of the flow, against the same study simulated in full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from scaleacross.cli.main import main
from scaleacross.study.flow import prepare_all
from scaleacross.study.tables import read_csv

Edit = Callable[[str, str, str], None]


def decide(folder: Path, rows: list[str], points: str, *more: str) -> None:
    study = ["--study", str(folder / "design/study.json")]
    outputs = ["--output", str(folder / "results.csv"), "--provenance", str(folder / "provenance.yaml")]
    assert main(["aggregate", *rows, "--points", points, *study, *outputs]) == 0
    decided = [f"--{name}={folder / name}.{kind}" for name, kind in (("optimum", "yaml"), ("speedups", "csv"))]
    decided += [f"--{name}={folder / name}.csv" for name in ("interplay", "pareto")] + [*more]
    assert main(["select", str(folder / "results.csv"), *study, *decided]) == 0


@pytest.mark.slow
def test_certified_and_exhaustive_agree(project: Path, edit: Edit) -> None:
    edit("config/studies/tiny.yaml", "name: tiny\n", "name: tiny\nnetwork_model: scaleacross\n")
    flow = prepare_all({"study": "tiny", "batches": 1})["tiny"]
    folder = project / "results/tiny"
    assert main(["render", str(folder / "design/configs.json"), f"--folder={flow.configs}", "--output=c.json"]) == 0
    assert main(["trace", str(folder / "design/plans_000.json"), f"--output={folder}/traces/batch_000.json"]) == 0
    traces = f"--traces={folder}/traces/batch_000.json"
    rows = f"{folder}/runs/batch_000.jsonl"
    assert main(
        ["simulate", str(folder / "design/runs_000.json"), traces, f"--configs={flow.configs}", f"--output={rows}"]
    ) == 0  # fmt: skip
    decide(folder, flow.row_files, flow.points_file)
    wanted, gains = yaml.safe_load((folder / "optimum.yaml").read_text()), read_csv(folder / "speedups.csv")
    edit("config/studies/tiny.yaml", "name: tiny\n", "name: tiny\nsearch: certified\n")
    flow = prepare_all({"study": "tiny", "batches": 1})["tiny"]
    assert flow.certified and flow.batches == ()
    outputs = [f"--points={flow.points_file}", f"--rows={flow.row_files[0]}", f"--plans={folder}/search/plans.csv.gz"]
    certificate = flow.certificate_files[0]
    assert (
        main(["search", f"{flow.folder}/design/study.json", "--cores=2", *outputs, f"--certificate={certificate}"]) == 0
    )
    decide(folder, flow.row_files, flow.points_file, f"--certificate={certificate}")
    found = yaml.safe_load((folder / "optimum.yaml").read_text())
    assert read_csv(folder / "speedups.csv") == gains
    for one, other in zip(found["environments"], wanted["environments"], strict=True):
        assert one["point_id"] == other["point_id"] and one["iteration_time_s"] == other["iteration_time_s"]
    for entry in found["certificate"]["environments"]:
        assert entry["gap"] == 0 and entry["points"] == 32
        assert entry["simulated"] + entry["pruned"] + entry["infeasible"] <= 32


def test_the_rules_of_a_certified_study(project: Path, edit: Edit) -> None:
    edit("config/studies/tiny.yaml", "name: tiny\n", "name: tiny\nnetwork_model: scaleacross\nsearch: certified\n")
    run = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--cores", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
    )
    assert run.returncode == 0, run.stderr
    jobs = run.stdout + run.stderr
    assert "rule search" in jobs and "rule select" in jobs
    assert "rule simulate" not in jobs and "rule trace" not in jobs
