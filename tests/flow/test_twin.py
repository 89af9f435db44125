"""Twins of a study's points: complete ASTRA-sim inputs of every rank, on which both forms and both simulators agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scaleacross.cli.main import main
from scaleacross.cli.twin import simulate_embedded
from scaleacross.errors import InvalidInput
from scaleacross.study.design import Designer
from scaleacross.study.points import Point, enumerate_points
from scaleacross.study.schema import Study, load_study
from scaleacross.study.twin import FOLDED, Twin, find_points, write_twin

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("ASTRA_SIM")


def points_of(study: Study, **values: object) -> list[Point]:
    return [p for p in enumerate_points(study) if all(p.values[name] == value for name, value in values.items())]


@pytest.fixture(params=["1f1b", "interleaved"])
def twin(project: Path, request: pytest.FixtureRequest) -> Twin:
    study = load_study("tiny")
    chunks = 2 if request.param == "interleaved" else 1
    point = points_of(study, schedule=request.param, chunks=chunks, pp=4, collective="ring")[0]
    return write_twin(Designer(study), point, project / "twin")


def test_a_twin_is_complete_and_takes_the_same_cycles_folded_and_expanded(twin: Twin) -> None:
    names = {file.name for file in twin.folder.iterdir()}
    assert {f"workload.{rank}.et" for rank in range(twin.npus)} <= names
    assert {"network.yml", "system.json", "memory.json"} <= names
    expanded = simulate_embedded(twin.folder / "workload", twin.folder)
    folded = simulate_embedded(twin.folder / FOLDED / "workload", twin.folder)
    assert expanded.status == folded.status == "ok", expanded.message + folded.message
    assert expanded.finish_cycles.tolist() == folded.finish_cycles.tolist()
    assert expanded.exposed_cycles.tolist() == folded.exposed_cycles.tolist()


def test_its_flags_are_what_the_stand_alone_simulator_takes(twin: Twin, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *twin.flags]) == 0
    assert capsys.readouterr().out.count("finished") == twin.npus


def test_a_point_of_16384_gpus_becomes_at_most_256(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = load_study("llama3-405b-2dc")
    point = points_of(study, schedule="interleaved", chunks=2, pp=16, recompute="selective", micro_batch=1)[0]
    twin = write_twin(Designer(study), point, project / "twin")
    assert 64 <= twin.npus <= 256 and len(list(twin.folder.glob("workload.*.et"))) == twin.npus
    assert "16384 -> " in twin.description
    assert simulate_embedded(twin.folder / FOLDED / "workload", twin.folder).status == "ok"


def test_an_older_twin_leaves_nothing_behind(project: Path) -> None:
    study = load_study("tiny")
    folder = project / "twin"
    folder.mkdir()
    (folder / "workload.99.et").write_text("old")
    twin = write_twin(Designer(study), points_of(study, schedule="1f1b", chunks=1, pp=2)[0], folder)
    assert not (folder / "workload.99.et").exists() and twin.npus == 32


def test_unknown_point_and_missing_results(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = load_study("tiny")
    point = next(enumerate_points(study)).point_id
    with pytest.raises(InvalidInput, match=rf"E-POINT.*did you mean '{point}'"):
        find_points(study, [point[:-1]])
    assert main(["twin", "tiny"]) == 2
    assert capsys.readouterr().err.startswith("E-RESULTS")
    assert not (project / "results").exists()


@pytest.mark.skipif(not BINARY, reason="ASTRA_SIM names no binary")
def test_the_binary_agrees_to_the_nanosecond(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTRA_SIM", str(BINARY))
    study = load_study("tiny")
    wanted = points_of(study, schedule="interleaved", chunks=2, pp=4, oversubscription="1:2")
    ids = [point.point_id for point in wanted]
    assert main(["twin", "tiny", *ids, "--output", str(project / "twins"), "--compare"]) == 0
    out = capsys.readouterr().out
    assert out.count("finish 0, exposed 0") == 2 * len(ids) == 8
