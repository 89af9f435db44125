"""Traces, configurations and result rows through the command line; a script stands in for the ASTRA-sim binary."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scaleacross.cli.main import main
from scaleacross.study.flow import prepare_all

Edit = Callable[[str, str, str], None]

# Prints what the binary prints for every rank, or goes wrong as the environment says for a configuration whose network
# is the slow one. Each run leaves a line in `calls`.
BINARY = """#!{python}
import os, re, sys, time
flags = dict(flag.lstrip("-").split("=", 1) for flag in sys.argv[1:])
network = open(flags["network-configuration"]).read()
open("{folder}/calls", "a").write("run\\n")
npus = 1
for count in re.search(r"npus_count: *\\[(.*?)\\]", network)[1].split(","):
    npus *= int(count)
for rank in range(npus):
    assert os.path.isfile(flags["workload-configuration"] + f".{{rank}}.et")
slow = "oversubscription: 8" in network
mode = os.environ.get("MODE", "ok") if slow else "ok"
if mode == "crash":
    os.abort()
if mode == "refuse":
    sys.exit(3)
if mode == "hang":
    time.sleep(60)
for rank in range(npus if mode != "deadlock" else npus - 1):
    cycles = 2_000_000 if slow else 1_000_000
    print(f"[2026-01-01 00:00:00.000] [workload] [info] sys[{{rank}}] finished, {{cycles}} cycles, exposed communication 400000 cycles.")
"""  # noqa: E501

SETTINGS: dict[str, Any] = {
    "study": "tiny",
    "batches": 1,
    "overrides": [
        "dimensions.pp=[2]",
        "dimensions.order=[[tp, cp, pp, dp]]",
        "dimensions.collective=[ring]",
        "dimensions.schedule=[1f1b]",
        "dimensions.chunks=[1]",
        "baselines=",
        "simulator=astra-sim",
        "time_limit=2 s",
    ],
}


@pytest.fixture
def binary(project: Path) -> Path:
    path = project / "binary"
    path.write_text(BINARY.format(python=sys.executable, folder=project))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def simulate(project: Path, binary: Path | None, settings: dict[str, Any] = SETTINGS) -> list[dict[str, Any]]:
    """The steps up to the rows, as the rules call them."""
    chosen = [] if binary is None else ["--astra-sim", str(binary)]
    prepare_all({**settings, "astra_sim": chosen[-1] if chosen else None})
    folder = project / "results/tiny"
    design = folder / "design"
    manifest, output = folder / "traces/batch_000.json", folder / "runs/batch_000.jsonl"
    assert main(["trace", str(design / "plans_000.json"), "--output", str(manifest)]) == 0
    configs = ["--folder", "astra_configs/tiny", "--output", str(folder / "configs.json")]
    assert main(["render", str(design / "configs.json"), *configs]) == 0
    options = ["--traces", str(manifest), "--configs", "astra_configs/tiny", *chosen]
    assert main(["simulate", str(design / "runs_000.json"), *options, "--output", str(output)]) == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


def calls(project: Path) -> int:
    return (project / "calls").read_text().count("run")


def test_rows_of_the_binary_and_their_reuse(project: Path, binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = simulate(project, binary)
    assert sorted(row["iteration_time_s"] for row in rows) == [0.001, 0.002]
    assert all(row["status"] == "ok" and row["simulator"] == "astra-sim" for row in rows)
    assert all(row["compute_s"] == pytest.approx(row["iteration_time_s"] - 0.0004) for row in rows)
    assert rows[0]["tokens_per_s"] == pytest.approx(32 * 1024 / rows[0]["iteration_time_s"])
    assert rows[0]["mfu"] == pytest.approx(rows[0]["tflops_per_gpu"] / 989.4, rel=1e-3)
    assert calls(project) == 2
    capsys.readouterr()
    assert simulate(project, binary) == rows
    assert calls(project) == 2
    assert "kept" in capsys.readouterr().out
    binary.write_text(binary.read_text() + "# another binary\n")
    simulate(project, binary)
    assert calls(project) == 4


def test_traces_are_made_again_when_they_are_gone_or_incomplete(project: Path, binary: Path) -> None:
    rows = simulate(project, binary)
    folder = project / "results/tiny/traces" / rows[0]["plan_id"]
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    (folder / "workload.c1.et").unlink()
    simulate(project, binary)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == files


@pytest.mark.parametrize(
    ("mode", "status"), [("crash", "crash"), ("hang", "timeout"), ("deadlock", "deadlock"), ("refuse", "invalid")]
)
def test_a_failing_point_is_a_row(
    project: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, mode: str, status: str
) -> None:
    monkeypatch.setenv("MODE", mode)
    rows = {row["status"]: row for row in simulate(project, binary)}
    assert set(rows) == {"ok", status}
    assert rows[status]["reason"].startswith("E-") and "iteration_time_s" not in rows[status]
    before = calls(project)
    monkeypatch.setenv("MODE", "ok")
    simulate(project, binary)
    # What may have been the machine's fault is tried again; a deadlock or a refusal is a property of the point.
    assert calls(project) - before == (1 if status in ("crash", "timeout") else 0)


def test_a_simulator_that_cannot_start_still_gives_rows(project: Path, binary: Path) -> None:
    binary.write_text("#!/no/such/interpreter\n")
    rows = simulate(project, binary)
    assert len(rows) == 2 and all(row["status"] in ("crash", "invalid") and row["reason"] for row in rows)


def test_table_optimum_and_verdict(project: Path, binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(project, binary)
    folder = project / "results/tiny"
    study = ["--study", str(folder / "design/study.json")]
    outputs = ["--output", str(folder / "results.csv"), "--provenance", str(folder / "provenance.yaml")]
    rows = str(folder / "runs/batch_000.jsonl")
    assert main(["aggregate", rows, "--points", str(folder / "points.csv"), *study, *outputs]) == 0
    decided = ["--optimum", str(folder / "optimum.yaml"), "--speedups", str(folder / "speedups.csv")]
    decided += ["--interplay", str(folder / "interplay.csv"), "--pareto", str(folder / "pareto.csv")]
    assert main(["select", str(folder / "results.csv"), *study, *decided]) == 0
    assert main(["verdict", str(folder / "results.csv"), *study, "--output", str(folder / "verdict.txt")]) == 0
    assert (folder / "verdict.txt").read_text() == "2 points: 2 ok\n"
    capsys.readouterr()
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert "best design: tp4-pp2-" in out and "0.001 s an iteration" in out and "oversubscription 1:8" in out


def test_verdict_fails_a_run_with_failures(
    project: Path, binary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODE", "crash")
    simulate(project, binary)
    folder = project / "results/tiny"
    study = ["--study", str(folder / "design/study.json")]
    outputs = ["--output", str(folder / "results.csv"), "--provenance", str(folder / "provenance.yaml")]
    rows = str(folder / "runs/batch_000.jsonl")
    assert main(["aggregate", rows, "--points", str(folder / "points.csv"), *study, *outputs]) == 0
    assert main(["verdict", str(folder / "results.csv"), *study, "--output", str(folder / "verdict.txt")]) == 1
    assert "E-FAILURES: 1 of 2 feasible points failed" in capsys.readouterr().err
    assert not (folder / "verdict.txt").exists()


REAL = os.environ.get("ASTRA_SIM")


@pytest.mark.skipif(not REAL, reason="ASTRA_SIM names no binary")
def test_both_simulators_give_the_same_row(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = simulate(project, Path(str(REAL)))
    overrides = [text for text in SETTINGS["overrides"] if not text.startswith("simulator")]
    monkeypatch.setitem(SETTINGS, "overrides", [*overrides, "network_model=unaware"])
    embedded = simulate(project, Path(str(REAL)))
    assert [row["status"] for row in real] == ["ok", "ok"] and all(row["simulator"] == "embedded" for row in embedded)
    own = {"simulator", "simulate_wall_s", "provenance"}
    kept = [[{name: row[name] for name in row if name not in own} for row in rows] for rows in (real, embedded)]
    assert kept[0] == kept[1]
    assert all(row["bound_ratio"] is not None and row["idle_s"] is not None for row in real)


def test_the_aware_model_runs_on_every_ranks_trace(project: Path, edit: Edit) -> None:
    """Studies write folded traces, which link queues cannot use."""
    name = "config/clusters/tiny-2dc.yaml.j2"
    text = (project / name).read_text()
    edit(name, text[text.index("  - {name: building") :], "")
    edit("config/studies/tiny.yaml", 'environment:\n  oversubscription: ["1:2", "1:8"]\n', "")
    settings = {
        **SETTINGS,
        "overrides": [text for text in SETTINGS["overrides"] if not text.startswith(("simulator", "dimensions.pp"))]
        + ["dimensions.pp=[1]", "dimensions.collective=[ring, direct]", "network_model=aware"],
    }
    rows = simulate(project, None, settings)
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    assert len({row["iteration_time_s"] for row in rows}) == 2
