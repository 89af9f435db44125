"""All algorithms of a collective side by side, and the command that prints them and writes one as traces."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from scaleacross.astra.algorithms.schedules import make_schedule
from scaleacross.astra.algorithms.survey import IN_TURN, survey
from scaleacross.astra.binary import find_binary
from scaleacross.astra.render import render_config, write_config
from scaleacross.astra.runner import run_astra_sim
from scaleacross.cli.main import main
from scaleacross.cluster import Accelerator, Cluster, Tier
from scaleacross.errors import InvalidInput
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import TraceBuilder


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str = "dp"
    share: float = 1.0


def test_an_all_reduce_of_two_sites_by_hand() -> None:
    """16 members, blocks of 1: a ring sends 30 over each of its two links across, hierarchical 2 x 8 x 1/2 x 2."""
    found = {choice.algorithm: choice for choice in survey({"zone": 8, "campus": 2}, "all-reduce", 16.0)}
    reports = {name: choice.report for name, choice in found.items()}
    across = {name: (r.crossings["campus"], r.cut_bytes["campus"]) for name, r in reports.items() if r is not None}
    assert across == {
        "ring": (60, 30.0),
        IN_TURN: (480, 240.0),
        "direct": (256, 128.0),
        "halving-doubling-nearest": (32, 128.0),
        "halving-doubling-farthest": (32, 16.0),
        "pat": (60, 64.0),
        "hierarchical": (32, 16.0),
        "double-binary-tree": (8, 32.0),
    }
    assert {name: choice.lowered for name, choice in found.items()} == {
        "ring": "groups",
        IN_TURN: "groups",
        "direct": "trace",
        "halving-doubling-nearest": "trace",
        "halving-doubling-farthest": "native: halvingDoubling halvingDoubling",
        "pat": "trace",
        "hierarchical": "native: ring halvingDoubling",
        "double-binary-tree": "trace",
    }


@pytest.mark.parametrize("members", [{"zone": 8}, {"zone": 8, "campus": 1}, {"node": 1, "zone": 6}])
def test_within_one_dimension_what_astra_sim_has_is_native(members: dict[str, int]) -> None:
    power = 8 in members.values()
    found = {choice.algorithm: choice for choice in survey(members, "all-reduce", 1e9)}
    assert IN_TURN not in found and found["ring"].lowered == "native: ring"
    assert found["pat"].lowered == ("native: halvingDoubling" if power else "trace")
    assert found["double-binary-tree"].lowered == ("native: doubleBinaryTree" if power else "trace")
    assert (found["halving-doubling-nearest"].report is None) == (not power)


def test_a_reason_stands_where_there_is_no_report() -> None:
    found = survey({"zone": 3, "campus": 2}, "all-to-all", 1e9)
    assert [choice.algorithm for choice in found if choice.report] == ["direct"]
    assert all(choice.lowered for choice in found)


@pytest.mark.parametrize("members", [{}, {"zone": 1}, {"zone": 0}, {"zone": 4097}])
def test_a_group_has_members(members: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="E-COLLECTIVE"):
        survey(members, "all-reduce", 1.0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["zone"], "members 'zone'"),
        (["zone:8", "zone:2"], "members 'zone:2'"),
        (["zone:-8"], "members 'zone:-8'"),
        (["zone:8", "--type", "all-reduced"], "did you mean 'all-reduce'?"),
        (["zone:8", "--size", "1"], "E-UNIT"),
        (["zone:8", "--size", "-1 GiB"], "--size '-1 GiB'"),
        (["zone:8", "--size", "0 B"], "give 1 byte or more"),
        (["zone:8", "--size", "1e30 GiB"], "give 1 byte or more"),
        (["zone:8", "--algorithm", "pat"], "--write and --algorithm go together"),
        (["zone:8", "--algorithm", "pad", "--write", "out"], "did you mean 'pat'?"),
        (["zone:600", "--algorithm", "pat", "--write", "out"], "512 at most"),
    ],
)
def test_a_mistake_is_one_error_and_writes_nothing(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["collective", *words]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["collective", "zone:4", "campus:2", "--type", "all-gather", "--algorithm", "pat", "--write", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "hierarchical" in printed and "no double-binary-tree: a double binary tree is no all-gather" in printed
    entry = json.loads((tmp_path / "system-entry.json").read_text())
    assert len(list(tmp_path.glob("all-gather.*.et"))) == 8
    assert entry == {"all-gather-implementation-custom": [str(tmp_path / "all-gather")]}


@pytest.mark.skipif(not os.environ.get("ASTRA_SIM"), reason="set ASTRA_SIM to ASTRA-sim's congestion-unaware binary")
@pytest.mark.parametrize("algorithm", ["direct", "halving-doubling-nearest", "pat", "double-binary-tree"])
def test_what_is_written_runs_on_the_binary(tmp_path: Path, algorithm: str) -> None:
    """Everything that is lowered to a trace, on two tiers, from the command's own files."""
    rate, near, far = 50e9, 1e-6, 100e-6
    out = tmp_path / "algorithm"
    assert main(["collective", "zone:4", "campus:2", "--algorithm", algorithm, "--write", str(out)]) == 0
    tiers = (Tier("zone", 4, rate, near), Tier("campus", 2, rate, far))
    gpu = Accelerator("gpu", {"bf16": 989e12}, 80e9, 1e18)
    write_config(tmp_path, render_config((Dim(4, "zone"), Dim(2, "campus")), Cluster("c", "gpu", tiers), gpu, {}))
    system = json.loads((tmp_path / "system.json").read_text())
    (tmp_path / "system.json").write_text(json.dumps(system | json.loads((out / "system-entry.json").read_text())))
    for rank in range(8):
        builder = TraceBuilder()
        builder.collective("dp.x", 0, 2**30)
        write_trace(tmp_path / f"workload.{rank}.et", builder.build())
    result = run_astra_sim(find_binary(), tmp_path / "workload", tmp_path, 60)
    assert result.status == "ok", result.message
    schedule = make_schedule(algorithm, "all-reduce", [4, 2])
    expected = sum(
        max(
            (far if m.source // 4 != m.target // 4 else near) + len(m.blocks) * 2**30 / schedule.parts / rate
            for m in step
        )
        for step in schedule.steps
    )
    if algorithm == "double-binary-tree":  # the levels of the two trees start when they can
        assert expected / 2 < result.iteration_ns * 1e-9 <= expected * (1 + 1e-6)
    else:  # in a step of PAT some partners are near and some far: who has near ones is ahead for a latency
        early = len(schedule.steps) * (far - near) if algorithm == "pat" else 0.0
        assert (expected - early) * (1 - 1e-5) <= result.iteration_ns * 1e-9 <= expected * (1 + 1e-5)
