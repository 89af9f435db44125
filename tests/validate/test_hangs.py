"""What hangs is found before the run, for certain: compared with a slow simulation of slots and dependencies."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_inputs import NETWORK, SYSTEM, Inputs
from scaleacross.astra.collectives import Implementation
from scaleacross.astra.config_files import NetworkFile, SystemFile
from scaleacross.trace.columns import ALL_REDUCE, COLL, COMP, RECV, SEND, Trace, TraceBuilder
from scaleacross.trace.ranks import RankMap
from scaleacross.trace.workload import Workload
from scaleacross.validate import Finding, check_loaded

RING = (Implementation("ring"),)


def check(traces: list[Trace], groups: dict[int, tuple[int, ...]]) -> list[Finding]:
    network = NetworkFile(("Ring",), (len(traces),), (50.0,), (500.0,))
    system = SystemFile(dict.fromkeys((0, 2, 6, 7), RING), local_mem_bandwidth=100.0)
    workload = Workload(Path("w"), RankMap.unfolded(len(traces)), tuple(traces))
    return [finding for finding in check_loaded(workload, network, system, None, groups) if finding.severity == "error"]


def finishes(traces: list[Trace], groups: dict[int, tuple[int, ...]], seed: int) -> bool:
    """Play the traces with random durations: one communication slot a rank, lowest ready id first."""
    draw = random.Random(seed)
    count = len(traces)
    done: list[set[int]] = [set() for _ in range(count)]
    running: list[dict[int, tuple[str, tuple[int, int]]]] = [{} for _ in range(count)]
    order: dict[tuple[int, int], int] = {}
    arrived: dict[tuple[int, int, int], int] = {}
    taken: dict[tuple[int, int, int], int] = {}
    gathered: dict[tuple[int, int], set[int]] = {}

    def issue(rank: int) -> None:
        trace = traces[rank]
        for row in range(len(trace)):
            if row in done[rank] or row in running[rank]:
                continue
            deps = trace.data_deps[trace.data_ptr[row] : trace.data_ptr[row + 1]].tolist()
            slot = {COLL: "comm", SEND: "comm", COMP: "comp"}.get(int(trace.types[row]), f"free{row}")
            if not set(deps) <= done[rank] or any(used == slot for used, _ in running[rank].values()):
                continue
            key = (0, 0)
            if trace.types[row] == COLL:
                group = int(trace.pg_names[trace.pg[row]] or 0)
                order[rank, group] = order.get((rank, group), 0) + 1
                key = (group, order[rank, group])
                gathered.setdefault((group, order[rank, group]), set()).add(rank)
            running[rank][row] = (slot, key)

    def can_finish(rank: int, row: int) -> bool:
        trace = traces[rank]
        if trace.types[row] == COLL:
            group, number = running[rank][row][1]
            return gathered[group, number] >= set(groups.get(group, range(count)))
        if trace.types[row] == RECV:
            channel = (int(trace.comm_src[row]), rank, int(trace.comm_tag[row]))
            return arrived.get(channel, 0) > taken.get(channel, 0)
        return True

    while True:
        for rank in range(count):
            issue(rank)
        ready = [(rank, row) for rank in range(count) for row in running[rank] if can_finish(rank, row)]
        if not ready:
            return all(len(done[rank]) == len(traces[rank]) for rank in range(count))
        rank, row = draw.choice(ready)
        trace = traces[rank]
        if trace.types[row] in (SEND, RECV):
            table = arrived if trace.types[row] == SEND else taken
            key = (int(trace.comm_src[row]), int(trace.comm_dst[row]), int(trace.comm_tag[row]))
            table[key] = table.get(key, 0) + 1
        del running[rank][row]
        done[rank].add(row)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Trace], dict[int, tuple[int, ...]]]:
    """Random graphs of three ranks that send, receive, compute and reduce in pairs, each operation with its partner."""
    groups: dict[int, tuple[int, ...]] = {1: (0, 1), 2: (1, 2), 3: (0, 2)}
    operations: list[list[tuple[str, int]]] = [[], [], []]
    for index in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            group = draw(st.sampled_from(sorted(groups)))
            for rank in groups[group]:
                operations[rank].append(("reduce", group))
        else:
            source, target = draw(st.permutations([0, 1, 2]))[:2]
            operations[source].append(("send", 10 * index + target))
            operations[target].append(("recv", 10 * index + source))
    traces = []
    for rank in range(3):
        builder = TraceBuilder(rank)
        builder.compute("F", 10**6, 10**6, duration_micros=1)
        chained = draw(st.booleans())
        for kind, value in draw(st.permutations(operations[rank])):
            last = len(builder) - 1
            deps = [last] if chained else draw(st.lists(st.integers(0, last), max_size=2, unique=True))
            if kind == "reduce":
                builder.collective("r", ALL_REDUCE, 64, deps=deps, pg=value)
            elif kind == "send":
                builder.send("s", value % 10, 64, value // 10, deps=deps)
            else:
                builder.recv("v", value % 10, 64, value // 10, deps=deps)
        traces.append(builder.build())
    return traces, groups


@settings(max_examples=300, deadline=None)
@given(programs(), st.integers(0, 99))
def test_what_is_called_a_deadlock_never_finishes(
    case: tuple[list[Trace], dict[int, tuple[int, ...]]], seed: int
) -> None:
    traces, groups = case
    errors = check(traces, groups)
    assert {error.error_id for error in errors} <= {"E-DEADLOCK"}
    if errors:
        assert not finishes(traces, groups, seed)


@settings(max_examples=300, deadline=None)
@given(programs(), st.integers(0, 99))
def test_chains_that_hang_are_all_found(case: tuple[list[Trace], dict[int, tuple[int, ...]]], seed: int) -> None:
    traces, groups = case
    chains = [np.array_equal(trace.data_deps, np.arange(len(trace) - 1)) for trace in traces]
    if all(chains) and all(np.all(np.diff(trace.data_ptr)[1:] == 1) for trace in traces):  # no timing
        assert bool(check(traces, groups)) != finishes(traces, groups, seed)


def two_groups(reverse: bool, chained: bool) -> list[Trace]:
    traces = []
    for rank in range(2):
        builder = TraceBuilder(rank)
        for place, group in enumerate((2, 1) if reverse and rank else (1, 2)):
            builder.collective(f"g{group}", ALL_REDUCE, 64, pg=group, deps=[place - 1] if chained and place else [])
        traces.append(builder.build())
    return traces


@pytest.mark.parametrize("chained", [True, False])
def test_reversed_groups_name_both_ranks_and_nodes(chained: bool) -> None:
    groups: dict[int, tuple[int, ...]] = {1: (0, 1), 2: (1, 0)}
    assert check(two_groups(False, chained), groups) == []
    (error,) = check(two_groups(True, chained), groups)
    assert error.error_id == "E-DEADLOCK"
    for words in ("rank 0 collective 1 'g2'", "rank 1 collective 1 'g1'", "(64 bytes)"):
        assert words in error.clash


def test_receive_before_send_on_both_sides() -> None:
    traces = []
    for rank in range(2):
        builder = TraceBuilder(rank)
        got = builder.recv("r", 1 - rank, 8, 1)
        builder.send("s", 1 - rank, 8, 1, deps=[got])
        traces.append(builder.build())
    (error,) = check(traces, {})
    assert error.error_id == "E-DEADLOCK" and "receives from" in error.clash and "depends on" in error.clash


@pytest.mark.parametrize(("chained", "severity"), [(True, "error"), (False, "error")])
def test_one_group_in_another_order(tmp_path: Path, chained: bool, severity: str) -> None:
    inputs = Inputs(tmp_path)

    def program(builder: TraceBuilder, rank: int) -> None:
        for place, size in enumerate((64, 128) if rank != 1 else (128, 64)):
            builder.collective("x", ALL_REDUCE, size, deps=[place - 1] if chained and place else [])

    inputs.program = program
    inputs.write()
    (finding,) = inputs.check()
    assert (finding.error_id, finding.severity) == ("E-GROUP-DISORDER", severity)
    assert "rank 0 issues ALL_REDUCE of 64 bytes (node 0 'x'), rank 1 issues ALL_REDUCE of 128 bytes" in finding.clash


def test_order_that_depends_on_timing_is_a_warning(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)

    def program(builder: TraceBuilder, rank: int) -> None:
        first, second = builder.compute("a", 10**9, 10**6), builder.compute("b", 10**9, 10**6)
        sizes = (64, 128) if rank != 1 else (128, 64)
        builder.collective("x", ALL_REDUCE, sizes[0], deps=[first])
        builder.collective("y", ALL_REDUCE, sizes[1], deps=[second])

    inputs.program = program
    assert inputs.ids() == {"W-GROUP-DISORDER"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.integers(0, 3), st.booleans())
def test_dimensions_make_communicators(tmp_path: Path, rank_apart: int, inner: bool) -> None:
    """One rank leaves out a collective over one dimension: exactly its slice is named."""
    inputs = Inputs(tmp_path)

    def program(builder: TraceBuilder, rank: int) -> None:
        builder.compute("F", 10**9, 10**6)
        if rank != rank_apart:
            builder.collective("x", ALL_REDUCE, 64, involved=[inner, not inner])

    inputs.program = program
    (error,) = inputs.errors()
    partner = rank_apart ^ (1 if inner else 2)
    assert error.error_id == "E-GROUP-SEQUENCE" and f"dimensions [{0 if inner else 1}]" in error.clash
    assert (
        f"rank {rank_apart} issues nothing more" in error.clash and f"rank {partner} issues ALL_REDUCE" in error.clash
    )
    assert NETWORK["npus_count"] == [2, 2] and SYSTEM
