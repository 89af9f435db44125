"""The runner against fake binaries, one for each way a run can end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scaleacross.astra.binary import binary_digest, find_binary
from scaleacross.astra.runner import AstraResult, RunOptions, run_astra_sim
from scaleacross.errors import InvalidInput

LINE = (
    'print(f"[2026-03-01 00:00:00.000] [workload] [info] sys[{r}] finished, {100 + r} cycles, '
    'exposed communication {r} cycles.")\n'
)
ALL_LINES = f"for r in range(4): {LINE}"
HEAP = 'sys.stdout.flush(); sys.stderr.write("free(): double free detected in tcache 2\\n"); sys.stderr.flush()\n'
ABORT = "sys.stdout.flush(); os.abort()\n"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "network.yml").write_text(
        "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    )
    for name in ("system.json", "memory.json"):
        (folder / name).write_text("{}")
    for rank in range(4):
        (folder / f"workload.{rank}.et").write_bytes(b"")
    return folder


def add_groups(case: Path, groups: int = 2) -> None:
    members = [f'"{i + 1}": [{2 * i}, {2 * i + 1}]' for i in range(groups)]
    (case / "comm_groups.json").write_text("{" + ", ".join(members) + "}")


def run(case: Path, body: str, time_limit: float | None = 20.0, options: RunOptions | None = None) -> AstraResult:
    binary = case.parent / "fake-binary"
    binary.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}")
    binary.chmod(0o755)
    return run_astra_sim(binary, case / "workload", case, time_limit, options)


def test_every_rank_s_line_and_exit_0_is_ok(case: Path) -> None:
    result = run(case, f"for r in (2, 0, 3, 1): {LINE}")
    assert (result.status, result.message, result.warnings) == ("ok", "", ())
    assert result.finish_cycles.tolist() == [100, 101, 102, 103] and result.exposed_cycles.tolist() == [0, 1, 2, 3]
    assert result.iteration_ns == 103 and result.wall_seconds > 0


def test_lines_without_a_logger_s_prefix_or_run_together_are_read(case: Path) -> None:
    body = 'print("xsys[0] finished, 5 cycles, exposed communication -1 cycles.sys[1] finished, 6 cycles, exposed '
    body += 'communication 6 cycles.", end=""); print("\\xff\\x00")\n'
    body += 'for r in (2, 3): print(f"sys[{r}] finished, 7 cycles, exposed communication 0 cycles.")\n'
    result = run(case, body)
    assert result.status == "ok" and result.finish_cycles.tolist() == [5, 6, 7, 7]
    assert result.exposed_cycles.tolist() == [-1, 6, 0, 0]


def test_exit_0_without_every_rank_is_a_deadlock(case: Path) -> None:
    stuck = 'print("[t] [HardwareResource] [critical] !!!Hardware Resource sys.id=2 has unreleased nodes!!!")\n'
    result = run(case, f"for r in (0, 1, 3): {LINE}{stuck}")
    assert result.status == "deadlock" and result.message.startswith("E-DEADLOCK: exit code 0, but 1 of 4 ranks")
    assert "(2)" in result.message and "sys.id=2 has unreleased nodes" in result.message
    assert result.finish_cycles.tolist() == [100, 101, -1, 103]


@pytest.mark.parametrize("body", ["pass", 'print("usage: true [ignored command line arguments]")'])
def test_a_program_that_is_not_astra_sim_is_neither_a_deadlock_nor_a_time_of_zero(case: Path, body: str) -> None:
    result = run(case, body)
    assert result.status == "crash" and result.iteration_ns == -1
    assert result.message.startswith("E-ASTRA-OUTPUT: exit code 0, but it printed no line of any rank; is this the")


def test_a_log_without_any_rank_s_line_is_a_deadlock(case: Path) -> None:
    result = run(
        case, 'print("[t] [HardwareResource] [critical] !!!Hardware Resource sys.id=0 has unreleased nodes!!!")'
    )
    assert result.status == "deadlock" and "4 of 4 ranks" in result.message and result.iteration_ns == -1


def test_a_critical_line_spoils_a_complete_run(case: Path) -> None:
    result = run(case, f'{ALL_LINES}print("[t] [system] [critical] something is wrong")\n')
    assert result.status == "invalid" and result.message.endswith("something is wrong")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('print("[t] [workload] [critical] workload file: x does not exist"); sys.exit(1)', "x does not exist"),
        (
            'sys.stderr.write("[Error] (network) Topology name ring not supported\\n"); sys.exit(255)',
            "ring not supported",
        ),
        ("sys.exit(3)", "printed no error"),
    ],
)
def test_a_refusal_ends_with_the_true_error(case: Path, body: str, says: str) -> None:
    result = run(case, body)
    assert result.status == "invalid" and result.message.startswith("E-ASTRA-REFUSED: exit code ")
    assert result.message.endswith(says)


def test_an_abort_is_a_crash_with_its_assertion_last(case: Path) -> None:
    body = (
        f"for r in (0, 1): {LINE}sys.stdout.flush(); sys.stderr.write('noise\\nbinary: Assertion `a > b` failed.\\n')\n"
    )
    result = run(case, f"{body}sys.stderr.flush()\n{ABORT}")
    assert result.status == "crash" and "SIGABRT with 2 of 4 ranks finished" in result.message
    assert result.message.endswith("Assertion `a > b` failed.")


@pytest.mark.parametrize("ending", [ABORT, "sys.stdout.flush(); os._exit(134)\n"])
def test_a_double_free_at_teardown_with_several_groups_counts_with_a_warning(case: Path, ending: str) -> None:
    add_groups(case)
    result = run(case, f"{ALL_LINES}{HEAP}{ending}")
    assert (
        result.status == "ok" and len(result.warnings) == 1 and "SIGABRT while freeing 2 groups" in result.warnings[0]
    )


def test_a_silent_segmentation_fault_at_teardown_with_several_groups_counts_too(case: Path) -> None:
    add_groups(case)
    result = run(case, f"{ALL_LINES}sys.stdout.flush(); os._exit(139)\n")
    assert result.status == "ok" and "SIGSEGV" in result.warnings[0]


@pytest.mark.parametrize(
    ("groups", "body"),
    [
        (0, f"{ALL_LINES}{HEAP}{ABORT}"),
        (1, f"{ALL_LINES}{HEAP}{ABORT}"),
        (2, f"for r in (0, 1, 2): {LINE}{HEAP}{ABORT}"),
        (2, f"{ALL_LINES}sys.stderr.write('Assertion `x` failed\\n'); sys.stderr.flush()\n{ABORT}"),
        (2, f'{ALL_LINES}print("[t] [x] [critical] bad")\n{HEAP}{ABORT}'),
        (2, f"{ALL_LINES}sys.stderr.write('bad\\n'); sys.stderr.flush(); sys.stdout.flush(); os._exit(139)"),
    ],
    ids=["no groups", "one group", "a rank short", "an assertion", "a critical line", "a fault that says something"],
)
def test_the_teardown_exception_is_narrow(case: Path, groups: int, body: str) -> None:
    if groups:
        add_groups(case, groups)
    result = run(case, body)
    assert result.status == "crash" and not result.warnings


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (ALL_LINES.replace("{100 + r}", "{2**63}"), "infinite work"),
        (ALL_LINES.replace("{100 + r}", "0"), "0 cycles"),
        (f"for r in range(5): {LINE}", "rank 4 finished, but the network has 4 NPUs"),
        (ALL_LINES + ALL_LINES.replace("100", "200"), "finished twice"),
    ],
)
def test_results_that_cannot_be_true_are_invalid(case: Path, body: str, says: str) -> None:
    result = run(case, body)
    assert result.status == "invalid" and says in result.message


def test_a_hanging_binary_is_killed_at_the_limit_with_what_it_had(case: Path) -> None:
    started = time.monotonic()
    result = run(case, f"for r in (0, 1): {LINE}sys.stdout.flush(); time.sleep(60)", time_limit=1.0)
    assert time.monotonic() - started < 10
    assert result.status == "timeout" and result.message == "E-TIME-LIMIT: killed after 1 s; 2 of 4 ranks had finished"
    assert result.finish_cycles.tolist() == [100, 101, -1, -1]


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().split(")")[-1].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize(("parent", "status"), [("time.sleep(60)", "timeout"), ("pass", "ok")])
def test_no_child_of_the_binary_lives_on(case: Path, parent: str, status: str) -> None:
    pid_file = case.parent / "pid"
    body = f"{ALL_LINES}sys.stdout.flush()\nchild = os.fork()\nif not child:\n    time.sleep(60)\n    os._exit(0)\n"
    body += f"open({str(pid_file)!r}, 'w').write(str(child))\n{parent}"
    result = run(case, body, time_limit=2.0)
    assert result.status == status
    deadline = time.monotonic() + 5
    while alive(int(pid_file.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(int(pid_file.read_text()))


def test_an_interrupt_kills_the_binary_too(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scaleacross.astra import runner

    seen: list[int] = []

    def interrupted(pid: int, _: float | None) -> bool:
        seen.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_wait_for_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(case, "time.sleep(60)")
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_it_runs_in_a_scratch_folder_that_goes_away(case: Path, tmp_path: Path) -> None:
    note = tmp_path / "cwd"
    before = sorted(path.name for path in case.iterdir())
    body = f"open('log', 'w').close(); open({str(note)!r}, 'w').write(os.getcwd())\n{ALL_LINES}"
    assert run(case, body).status == "ok"
    assert not Path(note.read_text()).exists() and sorted(path.name for path in case.iterdir()) == before


def test_flags_and_limits_reach_the_binary(case: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    add_groups(case)
    body = f"import resource\nopen({str(note)!r}, 'w').write('\\n'.join(sys.argv[1:] + "
    body += (
        "[str(resource.getrlimit(kind)[0]) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)]))\n" + ALL_LINES
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, hard))  # fewer than 4 traces and what else is open
    try:
        assert run(case, body, 20.0, RunOptions(queues_per_dim=2, injection_scale=0.5, rendezvous=True)).status == "ok"
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    *flags, files, cpu = note.read_text().splitlines()
    assert int(files) >= 4 + 64 and int(cpu) == 50
    assert flags == [
        f"--workload-configuration={case / 'workload'}",
        f"--network-configuration={case / 'network.yml'}",
        f"--system-configuration={case / 'system.json'}",
        f"--remote-memory-configuration={case / 'memory.json'}",
        f"--comm-group-configuration={case / 'comm_groups.json'}",
        "--num-queues-per-dim=2",
        "--injection-scale=0.5",
        "--rendezvous-protocol=true",
    ]


def test_too_few_open_files_is_said_before_the_run(case: Path) -> None:
    program = (
        "import resource, sys\nfrom scaleacross.astra.runner import run_astra_sim\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "result = run_astra_sim('/bin/true', sys.argv[1] + '/workload', sys.argv[1])\n"
        "print(result.status, result.message)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(case)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("invalid E-OPEN-FILES: 4 ranks need 68 open files, this user may have 60")


def test_traces_must_be_those_of_the_network_s_ranks(case: Path) -> None:
    (case / "workload.1.et").unlink()
    result = run(case, ALL_LINES)
    assert (
        result.status == "invalid" and "E-WORLD: 4 NPUs" in result.message and "no trace for ranks 1;" in result.message
    )
    for rank in (1, 4, 5):
        (case / f"workload.{rank}.et").write_bytes(b"")
    assert "a trace but no NPU for ranks 4, 5" in run(case, ALL_LINES).message


def test_folded_traces_and_missing_files_are_named(case: Path) -> None:
    for rank in range(4):
        (case / f"workload.{rank}.et").unlink()
    (case / "ranks.json").write_text("{}")
    assert "E-FOLDED" in run(case, ALL_LINES).message
    assert "E-WORLD" in run_astra_sim("/bin/true", case / "nowhere" / "workload", case).message
    (case / "network.yml").unlink()
    result = run(case, ALL_LINES)
    assert result.status == "invalid" and "network.yml" in result.message and not len(result.finish_cycles)


def test_the_binary_is_found_in_the_configuration_then_the_environment(tmp_path: Path) -> None:
    binary = tmp_path / "AstraSim_Analytical_Congestion_Unaware"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho\n")
    other.chmod(0o755)
    assert find_binary(str(other), {"ASTRA_SIM": str(binary)}) == other.resolve()
    assert find_binary(None, {"ASTRA_SIM": str(binary)}) == binary.resolve()
    assert find_binary("", {"ASTRA_SIM": str(tmp_path)}) == binary.resolve()
    assert len(binary_digest(binary)) == 12 and binary_digest(binary) != binary_digest(other)


@pytest.mark.parametrize(
    ("configured", "environment", "says"),
    [
        (None, {}, ["ASTRA_SIM is not set", "simulator: embedded"]),
        ("/nowhere/astra", {"ASTRA_SIM": "/bin/sh"}, ["/nowhere/astra", "configuration", "does not exist"]),
        (None, {"ASTRA_SIM": "/nowhere/astra"}, ["/nowhere/astra", "$ASTRA_SIM"]),
    ],
)
def test_a_missing_binary_is_one_error(configured: str | None, environment: dict[str, str], says: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_binary(configured, environment)
    assert caught.value.error_id == "E-ASTRA-BINARY"
    for words in says:
        assert words in str(caught.value)


def test_a_file_that_is_not_executable_is_no_binary(tmp_path: Path) -> None:
    (tmp_path / "astra").write_text("")
    with pytest.raises(InvalidInput, match=r"E-ASTRA-BINARY: .*not executable; chmod"):
        find_binary(str(tmp_path / "astra"), {})
