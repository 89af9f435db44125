"""Whole sets of inputs: golden cases pass, folded and expanded agree, damaged files never end in a traceback."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_inputs import Inputs
from scaleacross.cli.main import main
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import ALL_REDUCE, TraceBuilder
from scaleacross.trace.expand import expand
from scaleacross.trace.ranks import RankClass, RankMap
from scaleacross.validate import check_inputs

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = sorted(path.parent for path in GOLDEN.glob("*/expected.json"))


@pytest.mark.skipif(not CASES, reason="tests/golden is not there")
def test_golden_cases_have_no_error() -> None:
    """The reference completes every golden case, so none of them may be refused."""
    errors = []
    for case in CASES:
        groups = case / "comm_groups.json"
        found = check_inputs(
            case / "workload",
            case / "network.yml",
            case / "system.json",
            case / "memory.json",
            groups if groups.is_file() else None,
        )
        errors += [f"{case.name}: {finding}" for finding in found if finding.severity == "error"]
    assert errors == []


def write_folded(folder: Path, wrong: str = "") -> None:
    """A pipeline of two stages on 2 x 3 x 2 NPUs, one class a stage; ``wrong`` breaks the second stage."""
    groups: dict[int, list[int]] = {}
    families, classes = [], []
    for stage in range(2):
        base = 6 * stage
        family = {1 + 3 * stage + y: [base + 2 * y, base + 2 * y + 1] for y in range(3)}
        groups |= family
        families.append(tuple(family))
        builder = TraceBuilder(rank=base)
        deps = [builder.compute("F", 10**9, 10**6)]
        broken = wrong if stage else ""
        if stage:
            deps = [builder.recv("pp.r", 2 if broken == "peer" else 0, 65 if broken == "size" else 64, 9)]
        if broken != "missing":
            deps = [builder.collective("tp.ar", ALL_REDUCE, 96, deps=deps, pg=1 + 3 * stage)]
        last = builder.collective("dp.ar", ALL_REDUCE, 48, deps=deps, involved=[True, True, False])
        if broken == "cycle":
            builder.send("pp.back", 0, 64, 8, deps=[last])
        if not stage:
            back = [builder.recv("pp.wait", 6, 64, 8)] if wrong == "cycle" else []
            builder.send("pp.s", 6, 64, 9, deps=[last, *back])
        write_trace(folder / f"workload.c{stage}.et", builder.build())
        classes.append(RankClass(f"workload.c{stage}.et", base, (None, None, (stage,))))
    ranks = RankMap((2, 3, 2), tuple(classes), tuple(families))
    (folder / "ranks.json").write_text(json.dumps(ranks.to_json()))
    (folder / "comm_groups.json").write_text(json.dumps(groups))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("", None),
        ("size", "E-P2P-SIZE"),
        ("peer", "E-P2P-SEND"),
        ("missing", None),  # the whole stage leaves it out, which is consistent
        ("cycle", "E-DEADLOCK"),
    ],
)
def test_folded_and_expanded_have_the_same_findings(tmp_path: Path, wrong: str, error: str | None) -> None:
    inputs = Inputs(tmp_path)
    inputs.network = {"topology": ["Ring"] * 3, "npus_count": [2, 3, 2], "bandwidth": [9] * 3, "latency": [9] * 3}
    for key in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        inputs.system[f"{key}-implementation"] = ["ring"] * 3
    inputs.ranks = 0
    inputs.write()
    write_folded(tmp_path, wrong)
    groups = {int(key): tuple(value) for key, value in json.loads((tmp_path / "comm_groups.json").read_text()).items()}
    expand(tmp_path, tmp_path / "all", groups)
    files = [tmp_path / name for name in ("network.yml", "system.json", "memory.json", "comm_groups.json")]
    found = [
        {f.error_id for f in check_inputs(folder / "workload", files[0], files[1], files[2], files[3])}
        for folder in (tmp_path, tmp_path / "all")
    ]
    assert found[0] == found[1]
    assert error in found[0] if error else not found[0]


def test_folded_world(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.ranks = 0
    inputs.write()
    write_folded(tmp_path)
    assert "E-WORLD" in {finding.error_id for finding in inputs.check()}
    inputs.network = {"topology": ["Ring"] * 2, "npus_count": [6, 2], "bandwidth": [9] * 2, "latency": [9] * 2}
    inputs.write()
    write_folded(tmp_path)
    assert "E-WORLD-SHAPE" in {finding.error_id for finding in inputs.check()}
    (tmp_path / "ranks.json").write_text("{}")
    assert "E-RANKS-FORMAT" in {finding.error_id for finding in inputs.check()}


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = Inputs(tmp_path)
    flags = inputs.write()
    assert main(["check", *flags]) == 0
    assert capsys.readouterr().out == ""
    apart = [part for flag in flags for part in flag.split("=")]
    extra = ["--num-queues-per-dim=2", "--rendezvous-protocol=true", "--comm-scale", "1", "--logging-folder=log"]
    assert main(["check", *apart, *extra]) == 0
    inputs.system["endpoint-delay"] = 0
    inputs.network["topology"] = ["Ring", "switch"]
    flags = inputs.write()
    capsys.readouterr()
    assert main(["check", *flags]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error E-CONFIG-VALUE: ") and "did" not in lines[0]
    inputs.network["topology"] = ["Ring", "Switch"]
    flags = inputs.write()
    assert main(["check", *flags]) == 0
    assert capsys.readouterr().out.startswith("warning W-ENDPOINT-DELAY: ")
    assert main(["check", *flags, "--no-warnings"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "flag", ["--bogus=1", "--num-queues-per-dim=0", "--injection-scale=nan", "--rendezvous-protocol=2"]
)
def test_wrong_flags(tmp_path: Path, flag: str) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["check", *Inputs(tmp_path).write(), flag])
    assert exit_info.value.code == 2


def test_expand_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folded(tmp_path)
    assert main(["expand", str(tmp_path), str(tmp_path / "all")]) == 0
    assert "12 traces" in capsys.readouterr().out
    assert len(list((tmp_path / "all").glob("workload.*.et"))) == 12
    assert main(["expand", str(tmp_path / "nothing"), str(tmp_path / "all")]) == 2
    assert main(["expand", str(tmp_path), "/dev/null/x"]) == 2
    assert "E-WRITE" in capsys.readouterr().err


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_inputs_are_findings(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed, cut or repeated in any file: a list of findings, in finite time, never an exception."""
    inputs = Inputs(tmp_path)
    inputs.write()
    name = data.draw(st.sampled_from(sorted(path.name for path in tmp_path.iterdir())))
    content = bytearray((tmp_path / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
        if kind == "cut":
            del content[place : place + data.draw(st.integers(1, 40))]
        elif kind == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=6))
        elif kind == "repeat":
            content[place:place] = content[place : place + 30]
        elif place < len(content):
            content[place] = data.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(bytes(content))
    start = time.monotonic()
    for finding in inputs.check():
        assert str(finding).startswith(f"{finding.severity} {finding.error_id}: ") and "\n" not in str(finding)
    assert time.monotonic() - start < 5


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_strange_values_are_findings(tmp_path: Path, data: st.DataObject) -> None:
    """Any JSON value in any place of a configuration file."""
    strange = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=5,
    )
    inputs = Inputs(tmp_path)
    inputs.groups = {"1": [0, 1], "2": [2, 3]}
    file = data.draw(st.sampled_from(["network", "system", "memory", "groups"]))
    mapping = dict(getattr(inputs, file))
    mapping[data.draw(st.sampled_from([*mapping, "other", "x-scaleacross"]))] = data.draw(strange)
    setattr(inputs, file, mapping)
    inputs.write()
    for finding in inputs.check():
        assert "\n" not in str(finding) and len(str(finding)) < 1000
