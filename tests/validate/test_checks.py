"""Each check finds what it is for, names it, and leaves good inputs alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from make_inputs import Inputs, ordinary
from scaleacross.trace.chakra_io import read_trace, write_trace
from scaleacross.trace.columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, TraceBuilder


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path)


def test_good_inputs_have_no_finding(inputs: Inputs) -> None:
    inputs.write()
    assert inputs.check() == []


@pytest.mark.parametrize(
    ("file", "key", "value", "error"),
    [
        ("network", "topology", ["ring", "Switch"], "E-CONFIG-VALUE"),
        ("network", "topology", "Ring", "E-CONFIG-TYPE"),
        ("network", "topology", [], "E-CONFIG-TYPE"),
        ("network", "npus_count", [2, 1], "E-CONFIG-VALUE"),
        ("network", "npus_count", [2, -2], "E-CONFIG-VALUE"),
        ("network", "npus_count", [2, 2.5], "E-CONFIG-VALUE"),
        ("network", "npus_count", [2, 10**9], "E-NETWORK-SIZE"),
        ("network", "npus_count", [4, 2], "E-WORLD-TRACES"),
        ("network", "npus_count", [4], "E-NETWORK-LENGTHS"),
        ("network", "bandwidth", [100, 0], "E-CONFIG-VALUE"),
        ("network", "bandwidth", [100, float("inf")], "E-CONFIG-VALUE"),
        ("network", "bandwidth", [100, float("nan")], "E-CONFIG-VALUE"),
        ("network", "bandwidth", [100, "fast"], "E-CONFIG-VALUE"),
        ("network", "bandwidth", [100, True], "E-CONFIG-VALUE"),
        ("network", "latency", [-1, 0], "E-CONFIG-VALUE"),
        ("network", "latency", None, "E-CONFIG-MISSING"),
        ("network", "bandwith", [1, 1], "E-CONFIG-KEY"),
        ("network", "x-scaleacross", 3, "E-CONFIG-TYPE"),
        ("system", "prefered-dataset-splits", 4, "E-CONFIG-KEY"),
        ("system", "preferred-dataset-splits", None, "E-CONFIG-MISSING"),
        ("system", "preferred-dataset-splits", 0, "E-CONFIG-VALUE"),
        ("system", "preferred-dataset-splits", "4", "E-CONFIG-VALUE"),
        ("system", "active-chunks-per-dimension", 0, "E-CONFIG-VALUE"),
        ("system", "endpoint-delay", -1, "E-CONFIG-VALUE"),
        ("system", "endpoint-delay", 0, "W-ENDPOINT-DELAY"),
        ("system", "scheduling-policy", "lifo", "E-CONFIG-VALUE"),
        ("system", "scheduling-policy", ["LIFO"], "E-CONFIG-VALUE"),
        ("system", "collective-optimization", None, "E-CONFIG-MISSING"),
        ("system", "local-mem-bw", None, "E-CONFIG-MISSING"),
        ("system", "local-mem-bw", 0, "E-CONFIG-VALUE"),
        ("system", "peak-perf", None, "E-CONFIG-MISSING"),
        ("system", "roofline-enabled", False, "E-CONFIG-TYPE"),
        ("system", "roofline-enabled", 0, "W-COMPUTE-FREE"),
        ("system", "replay-only", 1, "W-REPLAY"),
        ("system", "track-local-mem", 1, "E-TRACK-MEMORY"),
        ("system", "inter-dimension-scheduling", "themis", "W-SYSTEM-IGNORED"),
        ("system", "all-reduce-implementation", ["ring"], "E-IMPLEMENTATION-SHORT"),
        ("system", "all-reduce-implementation", ["ring"] * 3, "E-IMPLEMENTATION-LONG"),
        ("system", "all-gather-implementation", ["ring"] * 3, "E-IMPLEMENTATION-LONG"),
        ("system", "all-reduce-implementation", None, "E-IMPLEMENTATION-MISSING"),
        ("system", "all-reduce-implementation", ["rings", "ring"], "E-CONFIG-VALUE"),
        ("system", "all-reduce-implementation", ["direct0", "ring"], "E-CONFIG-VALUE"),
        ("system", "all-reduce-implementation", ["oneRing"], None),
        ("system", "all-gather-implementation", None, None),
        ("system", "all-reduce-implementation-custom", ["no/such"], "E-CUSTOM-FILE"),
        ("system", "all-reduce-implementation-custom", "no", "E-CONFIG-TYPE"),
        ("system", "per-node-custom-implementation", "no", "E-CONFIG-FILE"),
        ("memory", "memory-type", "none", "E-CONFIG-VALUE"),
        ("memory", "memory-type", "MEMORY_POOL", "E-CONFIG-MISSING"),
        ("memory", "remote-mem-bw", -1, "E-CONFIG-VALUE"),
        ("memory", "latency", 5, "E-CONFIG-KEY"),
    ],
)
def test_configuration(inputs: Inputs, file: str, key: str, value: Any, error: str | None) -> None:
    mapping = getattr(inputs, file)
    if value is None:
        del mapping[key]
    else:
        mapping[key] = value
    ids = inputs.ids()
    assert error in ids if error else not ids


def test_every_problem_is_listed(inputs: Inputs) -> None:
    inputs.network["typo"] = inputs.system["typo"] = inputs.memory["typo"] = 1
    inputs.groups = {"0": [0, 1], "x": [1], "2": [2, 2], "3": "all"}
    inputs.write()
    (inputs.folder / "workload.2.et").write_bytes(b"\x09")
    found = sorted(finding.error_id for finding in inputs.check())
    groups = ["E-GROUP-ID", "E-GROUP-ID", "E-GROUP-TWICE", "E-GROUP-TYPE"]
    assert found == sorted(["E-CONFIG-KEY"] * 3 + groups + ["E-TRACE-CUT"])


@pytest.mark.parametrize("content", ["", "[]", "{", "nul", '{"a": 1, "a": 2}', '{"1": NaN}', "\x00", "[" * 10**5])
@pytest.mark.parametrize("name", ["network.yml", "system.json", "memory.json", "comm_groups.json"])
def test_broken_configuration_files(inputs: Inputs, name: str, content: str) -> None:
    inputs.write()
    (inputs.folder / name).write_text(content)
    assert {finding.error_id for finding in inputs.check() if finding.severity == "error"} & {
        "E-CONFIG-SYNTAX",
        "E-CONFIG-MISSING",
        "E-CONFIG-KEY",
        "E-GROUP-TYPE",
    }


def test_files_that_are_not_files(inputs: Inputs) -> None:
    for name in ("network.yml", "system.json", "memory.json", "comm_groups.json", "workload.1.et"):
        (inputs.folder / name).mkdir()
    assert sorted(finding.error_id for finding in inputs.check()) == ["E-CONFIG-FILE"] * 4 + ["E-WORLD-TRACES"]


def test_more_traces_than_npus(inputs: Inputs) -> None:
    inputs.ranks, inputs.groups = 6, None
    inputs.program = busy
    assert [finding.error_id for finding in inputs.errors()] == ["E-WORLD"]


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        ({"1": [0, 1], "2": [2, 3], "3": [0]}, "W-GROUP-SIZE"),
        ({"1": [0], "2": [2, 3]}, "E-GROUP-SIZE"),
        ({"1": [1, 0], "2": [2, 3]}, "W-GROUP-ORDER"),
        ({"1": [0, 1, 4], "2": [2, 3]}, "E-GROUP-MEMBER"),
        ({"1": [0, 1, 2], "2": [2, 3]}, "E-GROUP-SEQUENCE"),
        ({"1": [0, 2], "2": [1, 3]}, "E-GROUP-CALLER"),
        ({"1": [0, 1]}, "E-GROUP-MISSING"),
        (None, "E-GROUP-MISSING"),
        ({"1": [0, 1], "2": [2, True]}, "E-GROUP-TYPE"),
        ({"1": [0, 1], "2": [2, 10**30]}, "E-GROUP-TYPE"),
        ({"1": [0, -1], "2": [2, 3]}, "E-GROUP-TYPE"),
        ({"-1": [0, 1], "2": [2, 3]}, "E-GROUP-ID"),
    ],
)
def test_groups(inputs: Inputs, groups: Any, error: str) -> None:
    inputs.groups = groups
    assert error in inputs.ids()


def test_path_with_empty_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "not_empty"
    folder.mkdir()
    assert Inputs(folder).ids() == {"W-GROUPS-PATH"}


def busy(builder: TraceBuilder, _rank: int) -> None:
    """One compute node."""
    builder.compute("F", 10**6, 10**6)


def alone(kind: int, group: Callable[[int], int | str] = lambda _: "") -> Any:
    """One collective."""

    def program(builder: TraceBuilder, rank: int) -> None:
        builder.collective("x", kind, 1 << 20, pg=group(rank))

    return program


def only(build: Any) -> Any:
    """The ordinary program, and on rank 1 what ``build`` adds."""

    def program(builder: TraceBuilder, rank: int) -> None:
        ordinary(builder, rank)
        if rank == 1:
            build(builder)

    return program


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda b: b.compute("c", 0, 5), "E-ROOFLINE-OPS", "rank 1 node 5 'c'"),
        (lambda b: b.compute("c", -1, 5), "E-ROOFLINE-OPS", "rank 1 node 5 'c'"),
        (lambda b: b.compute("c", 5, 0), "E-ROOFLINE-BYTES", "rank 1 node 5 'c'"),
        (lambda b: b.compute("c", 5, 5, duration_micros=2**60), "E-DURATION", "us"),
        (lambda b: b.compute("c", 1, 1), "W-ROOFLINE-ZERO", "rank 1 node 5 'c'"),
        (lambda b: b.compute("c", 5, 5, cpu=True), "W-STATISTICS", "rank 1 node 5 'c'"),
        (lambda b: b.compute("c", 10**6, 10**6, deps=[9]), "E-DEP-MISSING", "data dependency on node 9"),
        (lambda b: b.compute("c", 10**6, 10**6, ctrl=[9]), "E-DEP-MISSING", "control dependency on node 9"),
        (lambda b: b.depend(2, deps=[2]), "E-DEP-SELF", "rank 1 node 2 'pp.s'"),
        (lambda b: b.depend(0, ctrl=[3]), "E-DEP-CYCLE", "0 -> 3 -> 1 -> 0"),
        (lambda b: b.memory("m", 5, store=False), "E-MEMORY", "NO_MEMORY_EXPANSION"),
        (lambda b: b.collective("b", BROADCAST, 2**30), "W-BROADCAST", "rank 1 node 5 'b'"),
        (lambda b: b.collective("b", 3, 8), "E-COMM-TYPE", "GATHER"),
        (lambda b: b.collective("b", 77, 8), "E-COMM-TYPE", "comm_type 77"),
        (lambda b: b.collective("b", -1, 8), "E-COMM-TYPE", "without comm_type"),
        (lambda b: b.collective("b", ALL_GATHER, 0), "E-COMM-SIZE", "0 bytes"),
        (lambda b: b.collective("b", ALL_GATHER, -1), "E-COMM-SIZE", "without comm_size"),
        (lambda b: b.collective("b", ALL_GATHER, 2**60), "E-COMM-SIZE", str(2**60)),
        (lambda b: b.collective("b", ALL_REDUCE, 8, involved=[True]), "E-INVOLVED", "1 entries"),
        (lambda b: b.collective("b", ALL_REDUCE, 8, involved=[False] * 2), "E-INVOLVED", "no dimension"),
        (lambda b: b.collective("b", ALL_REDUCE, 8, pg="dp"), "E-GROUP-NAME", "dp"),
        (lambda b: b.collective("b", ALL_REDUCE, 8, pg=2), "E-GROUP-CALLER", "rank 1 calls group 2"),
        (lambda b: b.collective("b", ALL_REDUCE, 8, pg=7), "E-GROUP-MISSING", "group 7"),
        (lambda b: b.collective("b", ALL_REDUCE, 9), "E-GROUP-SEQUENCE", "rank 0 issues nothing more, rank 1 issues"),
        (lambda b: b.send("s", 1, 8, 3), "E-PEER-SELF", "rank 1 node 5 's'"),
        (lambda b: b.send("s", 4, 8, 3), "E-PEER", "world of 4 (4)"),
        (lambda b: b.send("s", -1, 8, 3), "E-PEER", "without comm_dst"),
        (lambda b: b.send("s", 2, 8, -1), "E-TAG", "rank 1 node 5 's'"),
        (lambda b: b.send("s", 2, 8, 2**31), "E-TAG", "2^31"),
        (lambda b: b.send("s", 2, 0, 3), "E-COMM-SIZE", "0 bytes"),
        (lambda b: b.send("s", 2, 8, 3), "E-P2P-RECEIVE", "rank 1 node 5 's' sends 8 bytes with tag 3 to rank 2"),
        (lambda b: b.recv("r", 2, 8, 3), "E-P2P-SEND", "rank 1 node 5 'r' waits for 8 bytes with tag 3 from rank 2"),
        (lambda b: b.send("s", 2, 4096, 7), "W-TAG-REPEATED", "tag 7"),
        (lambda b: b.send("s", 2, 4096, 5 * 10**8 + 7), "W-TAG", "modulo"),
    ],
)
def test_nodes(inputs: Inputs, build: Any, error: str, words: str) -> None:
    inputs.program = only(build)
    inputs.write()
    found = {finding.error_id: finding for finding in inputs.check()}
    assert error in found
    assert words in str(found[error])


def test_message_of_another_size_or_tag(inputs: Inputs) -> None:
    def program(builder: TraceBuilder, rank: int, size: int = 9, tag: int = 7) -> None:
        if rank == 0:
            builder.compute("F", 10**6, 10**6)
            builder.send("s", 1, size, tag, deps=[0])
        elif rank == 1:
            builder.recv("r", 0, 8, 7)
        else:
            builder.compute("F", 10**6, 10**6)

    inputs.program = program
    (finding,) = inputs.errors()
    assert finding.error_id == "E-P2P-SIZE"
    assert "rank 0 node 1 's' sends 9 bytes with tag 7 to rank 1, whose node 0 'r' receives 8 bytes" in finding.clash
    inputs.program = lambda builder, rank: program(builder, rank, 8, 6)
    (finding,) = inputs.errors()
    assert finding.error_id == "E-P2P-TAG" and "tag 6" in finding.clash and "tag 7" in finding.clash


def test_idle_rank_and_node_kinds(inputs: Inputs) -> None:
    inputs.program = lambda builder, rank: busy(builder, rank) if rank != 2 else None
    assert [finding.error_id for finding in inputs.errors()] == ["E-TRACE-NODES"]
    inputs.program = ordinary
    inputs.write()
    trace = read_trace(inputs.folder / "workload.3.et")
    trace.types[0] = 0
    trace.ids[2] = 1
    trace.is_cpu_op[1] = 1
    write_trace(inputs.folder / "workload.3.et", trace)
    ids = {finding.error_id for finding in inputs.check()}
    assert {"E-NODE-TYPE", "E-NODE-TWICE", "E-COMM-CPU", "E-DEP-MISSING"} <= ids


def test_trace_that_names_another_rank(inputs: Inputs) -> None:
    inputs.write()
    data = (inputs.folder / "workload.0.et").read_bytes()
    (inputs.folder / "workload.1.et").write_bytes(data)
    ids = {finding.error_id for finding in inputs.check()}
    assert {"E-PEER-OWN", "E-PEER-SELF", "E-P2P-SEND", "E-P2P-RECEIVE"} <= ids


@pytest.mark.parametrize(
    ("kind", "names", "npus", "error"),
    [
        (ALL_REDUCE, ["halvingDoubling"], 6, "E-ALGORITHM"),
        (ALL_REDUCE, ["halvingDoubling"], 8, None),
        (ALL_REDUCE, ["oneHalvingDoubling"], 6, "E-ALGORITHM"),
        (ALL_TO_ALL, ["halvingDoubling"], 8, "E-ALGORITHM"),
        (ALL_REDUCE, ["doubleBinaryTree"], 6, "E-ALGORITHM"),
        (ALL_REDUCE, ["doubleBinaryTree"], 8, None),
        (ALL_GATHER, ["doubleBinaryTree"], 8, "W-ALGORITHM"),
        (REDUCE_SCATTER, ["direct3"], 7, None),
    ],
)
def test_algorithms(inputs: Inputs, kind: int, names: list[str], npus: int, error: str | None) -> None:
    inputs.network = {"topology": ["Switch"], "npus_count": [npus], "bandwidth": [50], "latency": [500]}
    inputs.ranks, inputs.groups = npus, None
    for key in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        inputs.system[f"{key}-implementation"] = names
    inputs.program = alone(kind)
    assert inputs.ids() == ({error} if error else set())


def test_group_algorithms(inputs: Inputs) -> None:
    inputs.network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    inputs.ranks = 8
    inputs.groups = {"1": [0, 1, 2], "2": [3, 4, 5, 6, 7]}
    inputs.program = alone(ALL_REDUCE, lambda rank: 1 + (rank > 2))
    for name, error in (("halvingDoubling", "E-ALGORITHM"), ("doubleBinaryTree", "E-ALGORITHM"), ("ring", None)):
        inputs.system["all-reduce-implementation"] = [name]
        for other in ("all-gather", "reduce-scatter", "all-to-all"):
            inputs.system[f"{other}-implementation"] = ["ring"]
        assert inputs.ids() == ({error} if error else set())


def test_splits(inputs: Inputs) -> None:
    inputs.system |= {"preferred-dataset-splits": 8, "active-chunks-per-dimension": 2}
    inputs.groups = None
    sizes = {ALL_GATHER: 7, ALL_REDUCE: 31, REDUCE_SCATTER: 1001, ALL_TO_ALL: 800}

    def program(builder: TraceBuilder, _rank: int) -> None:
        for kind, size in sizes.items():
            builder.collective(f"k{kind}", kind, size)

    inputs.program = program
    inputs.write()
    found = {finding.error_id: finding.clash for finding in inputs.check()}
    assert set(found) == {"E-SPLITS", "W-SPLITS-RAISED", "W-SPLITS-REST", "W-ACTIVE-CHUNKS"}
    assert "comm_size 7" in found["E-SPLITS"] and "comm_size 31" in found["W-SPLITS-RAISED"]
    assert "comm_size 1001" in found["W-SPLITS-REST"]


def test_compute_that_takes_years(inputs: Inputs) -> None:
    inputs.system["peak-perf"] = 0.1
    inputs.program = lambda builder, _: builder.depend(builder.compute("F", 2**62, 10**6))
    (finding,) = inputs.errors()
    assert finding.error_id == "E-DURATION"


def test_aware_model(inputs: Inputs) -> None:
    inputs.model = "aware"
    assert inputs.ids() == {"E-AWARE-DIMENSIONS"}


def test_many_nodes_with_one_problem_are_one_finding(inputs: Inputs) -> None:
    def program(builder: TraceBuilder, _rank: int) -> None:
        for _ in range(100):
            builder.compute("F", 0, 10**6)

    inputs.program = program
    (finding,) = inputs.errors()
    assert finding.error_id == "E-ROOFLINE-OPS" and "node 0, 1, 2, 3" in finding.clash and "96 more" in finding.clash


def test_numbers_as_text_in_yaml(inputs: Inputs) -> None:
    inputs.write()
    (inputs.folder / "network.yml").write_text(
        "topology: [Ring, Switch]\nnpus_count: [2, 2]\nbandwidth: [1e2, 5e1]\nlatency: [0, 5e2]\n"
    )
    assert inputs.check() == []


def test_extension_is_accepted(inputs: Inputs) -> None:
    inputs.network["x-scaleacross"] = {"tiers": []}
    inputs.system["x-scaleacross"] = {"streams": 2}
    assert inputs.ids() == set()
    json.dumps(inputs.network)
