"""``scaleacross sim``: flags, output, exit codes, files, bad input."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from cases import GOLDEN, expected
from scaleacross.cli.main import main
from scaleacross.trace.chakra_io import write_trace
from scaleacross.trace.columns import TraceBuilder

LINE = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (-?\d+) cycles\.$")


def flags(folder: Path, *more: str, joined: bool = True) -> list[str]:
    """The reference's flags for a case's folder."""
    found = ["sim"]
    names = {"workload": "workload", "network": "network.yml", "system": "system.json", "remote-memory": "memory.json"}
    for name, file in names.items():
        flag = f"--{name}-configuration"
        found += [f"{flag}={folder / file}"] if joined else [flag, str(folder / file)]
    if (folder / "comm_groups.json").exists():
        found.append(f"--comm-group-configuration={folder / 'comm_groups.json'}")
    return [*found, *more]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A case that may be spoilt."""
    folder = tmp_path / "case"
    shutil.copytree(GOLDEN / "p2p_exchange_ring4", folder)
    return folder


@pytest.mark.parametrize("joined", [True, False])
def test_prints_the_reference_s_lines_in_order_of_finishing(capsys: pytest.CaptureFixture[str], joined: bool) -> None:
    assert main(flags(GOLDEN / "pp4tp4_2d", "--logging-folder=unused", joined=joined)) == 0
    rows = [LINE.search(line) for line in capsys.readouterr().out.splitlines()]
    found = {int(m[1]): (int(m[2]), int(m[3])) for m in rows if m}
    wanted = expected("pp4tp4_2d")["unaware"]
    assert [found[rank][0] for rank in range(16)] == wanted["finish_cycles"]
    assert [found[rank][1] for rank in range(16)] == wanted["exposed_cycles"]
    cycles = [int(m[2]) for m in rows if m]
    assert cycles == sorted(cycles)


def test_json_and_timeline(tmp_path: Path) -> None:
    files = (f"--json={tmp_path / 'o.json'}", "--timeline", str(tmp_path / "t.json"))
    assert main(flags(GOLDEN / "transformer8_2d", *files)) == 0
    result = json.loads((tmp_path / "o.json").read_text())
    assert [tier["sent_bytes"] for tier in result["tiers"]] == result["bytes_per_dim"]
    assert (result["status"], result["network_model"]) == ("ok", "unaware")
    assert result["finish_cycles"] == expected("transformer8_2d")["unaware"]["finish_cycles"]
    assert sum(result["breakdown_ns"].values()) == pytest.approx(result["iteration_ns"])
    assert result["bound_ratio"] < 1  # four chunks share a link for free in the congestion-unaware model
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert max(end for spans in lanes.values() for _, end in spans) == pytest.approx(result["iteration_ns"] / 1000)
    for spans in lanes.values():
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(sorted(spans)))


def test_the_aware_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags(GOLDEN / "p2p_incast_ring4", "--network-model=aware")) == 0
    found = {int(m[1]): int(m[2]) for line in capsys.readouterr().out.splitlines() if (m := LINE.search(line))}
    assert [found[rank] for rank in range(4)] == expected("p2p_incast_ring4")["aware"]["finish_cycles"]


@pytest.mark.parametrize("flag", ["--num-queues=2", "--workload", "--nonsense"])
def test_unknown_flags_are_errors(flag: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(flags(GOLDEN / "p2p_exchange_ring4", flag))
    assert stopped.value.code == 2


def test_a_deadlock_is_named_and_has_its_exit_code(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        builder = TraceBuilder(rank)
        builder.compute("c", 1, 1, duration_micros=1)
        if rank == 1:
            builder.recv("orphan", 0, 4096, 7)
        write_trace(ring / f"workload.{rank}.et", builder.build())
    assert main(flags(ring, "--no-check", f"--json={ring / 'o.json'}")) == 3
    printed = capsys.readouterr()
    assert "E-DEADLOCK" in printed.err
    assert "node 1 'orphan' waits for 4096 bytes with tag 7 from rank 0" in printed.err
    assert len(printed.out.splitlines()) == 3
    result = json.loads((ring / "o.json").read_text())
    assert result["status"] == "deadlock"
    assert [cycles is None for cycles in result["finish_cycles"]] == [False, True, False, False]
    assert main(flags(ring)) == 2  # named by the checks before a run


def test_collectives_that_do_not_match_deadlock(ring: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(4):
        builder = TraceBuilder(rank)
        builder.collective("x", 0, 1 << 20 if rank else 1 << 19)
        write_trace(ring / f"workload.{rank}.et", builder.build())
    assert main(flags(ring, "--no-check")) == 3
    assert "differ" in capsys.readouterr().err


def test_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "case"
    shutil.copytree(GOLDEN / "1d_ring64_ring_ar", folder)
    assert main(flags(folder, "--network-model=aware", "--time-limit=0.001")) == 4
    assert "E-TIME-LIMIT" in capsys.readouterr().err


SPOILED = {
    "cyclic": lambda b: b.depend(0, [1]),
    "unknown dependency": lambda b: b.depend(0, [99]),
    "self": lambda b: b.send("self", 0, 100, 1),
    "no bytes": lambda b: b.send("empty", 1, 0, 1),
    "beyond": lambda b: b.send("far", 99, 100, 1),
    "type": lambda b: b.collective("reduce", 1, 4096),
    "no group": lambda b: b.collective("g", 0, 4096, pg=12),
    "huge": lambda b: b.collective("h", 2, 3),
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kind", SPOILED)
def test_bad_traces_end_with_an_id_and_an_exit_code(
    ring: Path, capsys: pytest.CaptureFixture[str], kind: str, check: bool
) -> None:
    builder = TraceBuilder(0)
    first = builder.compute("a", 10, 10, duration_micros=1)
    builder.compute("b", 10, 10, [first], duration_micros=1)
    SPOILED[kind](builder)
    write_trace(ring / "workload.0.et", builder.build())
    code = main(flags(ring, *(() if check else ("--no-check",))))
    printed = capsys.readouterr().err
    assert code in (2, 3)
    assert "E-" in printed
    assert "Traceback" not in printed


def test_a_trace_cut_short_or_missing(ring: Path) -> None:
    whole = (ring / "workload.2.et").read_bytes()
    (ring / "workload.2.et").write_bytes(whole[:-3])
    assert main(flags(ring, "--no-check")) == 2
    (ring / "workload.2.et").unlink()
    assert main(flags(ring, "--no-check")) == 2


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("network.yml", "npus_count: [ 4 ]", "npus_count: [ 8 ]"),
        ("network.yml", "Ring", "ring"),
        ("network.yml", "latency", "latencies"),
        ("system.json", '"ring"', '"rings"'),
        ("system.json", "endpoint-delay", "endpoint-delays"),
        ("system.json", "{", ""),
        ("memory.json", "NO_MEMORY_EXPANSION", "NONE"),
    ],
)
def test_bad_configuration(ring: Path, file: str, old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ring / file).read_text()
    assert old in text
    (ring / file).write_text(text.replace(old, new, 1))
    assert main(flags(ring)) == 2
    assert "E-" in capsys.readouterr().err


def test_a_memory_limit_ends_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("scaleacross.engine.workload.prepare", exhausted)
    assert main(flags(GOLDEN / "comp_duration")) == 4
    assert "E-MEMORY-LIMIT" in capsys.readouterr().err
