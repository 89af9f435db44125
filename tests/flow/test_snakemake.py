"""The flow as a user starts it: `snakemake --cores 2`, again after edits, and with bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from scaleacross.study.tables import read_csv

Edit = Callable[[str, str, str], None]
STUDY = "config/studies/tiny.yaml"
ROOT = Path(__file__).resolve().parents[2]


def snakemake(*options: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Snakemake by its path, in an environment whose PATH does not hold this package's command."""
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if part != str(Path(sys.executable).parent)
    )
    command = [sys.executable, "-m", "snakemake", *options]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=300, check=False
    )


def jobs(result: subprocess.CompletedProcess[str]) -> list[str]:
    """Rules of the jobs that finished, in order."""
    lines = (result.stdout + result.stderr).splitlines()
    return [line.split("(Rule: ")[1].rstrip(")") for line in lines if "(Rule: " in line]


def planned(result: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Rule -> number of jobs of a dry run."""
    lines = (result.stdout + result.stderr).split("Job stats:")[-1].split("total")[0].splitlines()
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def test_dry_run_plans_batches_not_points(project: Path) -> None:
    result = snakemake("-n", "--cores", "2")
    assert result.returncode == 0, result.stderr
    expected = {
        "trace": 2,
        "render": 1,
        "simulate": 2,
        "aggregate": 1,
        "thresholds": 1,
        "select": 1,
        "report": 1,
        "verdict": 1,
        "all": 1,
    }
    assert planned(result) == expected
    assert (project / "results/tiny/points.csv").is_file()


def test_bad_input_is_one_error_before_any_job(project: Path, edit: Edit) -> None:
    edit(STUDY, "baselines:", "baseline:")
    result = snakemake("--cores", "2")
    text = result.stdout + result.stderr
    assert result.returncode != 0
    assert "E-STUDY" in text and "did you mean 'baselines'?" in text and "Traceback" not in text
    assert not (project / "results").exists()


def test_the_catalogs_snakefile_runs_everything(project: Path) -> None:
    result = snakemake("-n", "--cores", "2", "--snakefile", str(project / "workflow/Snakefile"))
    assert result.returncode == 0, result.stderr
    assert planned(result)["all"] == 1


@pytest.mark.slow
def test_lint_and_format() -> None:
    result = snakemake("--lint", folder=ROOT)
    assert result.returncode == 0 and "good condition" in result.stderr + result.stdout, result.stderr
    files = ["Snakefile", "workflow/Snakefile", "workflow/rules"]
    subprocess.run([sys.executable, "-m", "snakefmt", "--check", *files], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.slow
def test_from_study_to_report_and_again(project: Path, edit: Edit) -> None:
    folder = project / "results/tiny"
    result = snakemake("--cores", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {row["point_id"]: row for row in read_csv(folder / "results.csv")}
    points = read_csv(folder / "points.csv")
    assert list(rows) == [point["point_id"] for point in points]
    assert {row["status"] for row in rows.values()} <= {"ok", "infeasible", "unphysical"}
    optimum = yaml.safe_load((folder / "optimum.yaml").read_text())
    assert rows[optimum["environments"][0]["point_id"]]["status"] == "ok"
    for name in ("report.html", "speedups.csv", "provenance.yaml", "verdict.txt"):
        assert (folder / name).stat().st_size > 0
    for step in ("trace_000", "render", "simulate_001", "aggregate", "thresholds", "select", "report", "verdict"):
        assert (folder / f"logs/{step}.log").is_file() and (folder / f"benchmarks/{step}.tsv").is_file()

    # Nothing changed: nothing runs. A comment: nothing runs.
    assert "Nothing to be done" in snakemake("--cores", "2").stderr
    (project / STUDY).write_text((project / STUDY).read_text() + "# a comment\n")
    after_comment = jobs(snakemake("--cores", "2"))
    assert not {"trace", "render", "simulate"} & set(after_comment)

    # One more value of an environment: no trace is written again, and only its own points are simulated.
    edit(STUDY, '"1:8"]', '"1:8", "1:4"]')
    result = snakemake("--cores", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "trace" not in jobs(result)
    again = {row["point_id"]: row for row in read_csv(folder / "results.csv")}
    assert len(again) == len(rows) * 3 // 2
    kept = [point for point in rows if again[point]["simulate_wall_s"] == rows[point]["simulate_wall_s"]]
    assert kept == list(rows)

    # Fewer values: rows of the points that are gone do not come back.
    edit(STUDY, "pp: [2, 4]", "pp: [4]")
    assert snakemake("--cores", "2").returncode == 0
    assert {row["pp"] for row in read_csv(folder / "results.csv")} == {"4"}


@pytest.mark.slow
def test_too_many_failures_fail_the_run_after_the_report(project: Path, edit: Edit) -> None:
    edit(STUDY, "baselines:", "time_limit: 1 us\nbaselines:")
    result = snakemake("--cores", "2")
    assert result.returncode != 0
    assert "E-FAILURES" in result.stdout + result.stderr
    rows = read_csv(project / "results/tiny/results.csv")
    assert {row["status"] for row in rows} == {"infeasible", "timeout"}
    assert not (project / "results/tiny/verdict.txt").exists()
