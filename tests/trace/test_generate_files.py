"""A written plan: complete, atomic, the same bytes again, readable by the rest of the package, free of findings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from plan_cases import CASES, H100, Made, make_case
from scaleacross.errors import InvalidInput
from scaleacross.plan.degrees import parallelism_from
from scaleacross.trace.chakra_io import read_trace
from scaleacross.trace.columns import RECV, SEND
from scaleacross.trace.expand import expand
from scaleacross.trace.plan_files import write_plan
from scaleacross.trace.ranks import RankMap
from scaleacross.validate import check_inputs

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def write(case: Made, folder: Path) -> dict[str, object]:
    return write_plan(folder, case.model, case.training, case.parallelism, case.placement, case.schedule, H100)


def write_configuration(case: Made, folder: Path) -> None:
    """The simplest configuration with the plan's dimensions."""
    dims = len(case.placement.dims)
    network = {
        "topology": ["Switch"] * dims,
        "npus_count": list(case.placement.shape),
        "bandwidth": [50.0] * dims,
        "latency": [1000.0] * dims,
    }
    system = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        **{f"{kind}-implementation": ["ring"] * dims for kind in COLLECTIVES},
        "collective-optimization": "localBWAware",
        "local-mem-bw": 3350,
        "peak-perf": 989,
        "roofline-enabled": 1,
    }
    (folder / "network.yml").write_text(yaml.safe_dump(network))
    (folder / "system.json").write_text(json.dumps(system))


@pytest.mark.parametrize("name", sorted(CASES))
def test_no_check_finds_anything(tmp_path: Path, name: str) -> None:
    case = make_case(name)
    write(case, tmp_path)
    write_configuration(case, tmp_path)
    groups = tmp_path / "comm_groups.json"
    findings = check_inputs(
        tmp_path / "workload",
        tmp_path / "network.yml",
        tmp_path / "system.json",
        groups=groups if groups.exists() else None,
    )
    assert findings == []


def test_the_same_plan_has_the_same_bytes(tmp_path: Path) -> None:
    case = make_case("flat rings")
    for folder in ("one", "two"):
        write(case, tmp_path / folder)
    names = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert names == [
        "comm_groups.json",
        "rank_map.csv",
        "ranks.json",
        "summary.json",
        "workload.c0.et",
        "workload.c1.et",
    ]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_what_is_read_is_what_was_generated(tmp_path: Path) -> None:
    case = make_case("dualpipe")
    write(case, tmp_path)
    for name, trace in case.generated.traces.items():
        assert read_trace(tmp_path / name).nodes_equal(trace)
    ranks = RankMap.load(tmp_path)
    assert ranks.shape == case.placement.shape and len(ranks.classes) == case.parallelism.pp
    for stage, entry in enumerate(ranks.classes):
        members = ranks.members(stage).tolist()
        assert entry.representative in members
        assert [case.placement.stage(rank) for rank in members] == [stage] * len(members)


def test_an_older_plan_in_the_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    write(make_case("dualpipe"), tmp_path)
    (tmp_path / "comm_groups.json").write_text("{}")
    write(make_case("buckets"), tmp_path)
    assert sorted(file.name for file in tmp_path.glob("*.et")) == ["workload.c0.et", "workload.c1.et"]
    assert not (tmp_path / "comm_groups.json").exists()


def test_every_rank_has_its_own_peers_once_expanded(tmp_path: Path) -> None:
    case = make_case("across")
    write(case, tmp_path)
    assert expand(tmp_path, tmp_path / "all") == case.placement.ranks
    sent: set[tuple[int, int, int]] = set()
    received: set[tuple[int, int, int]] = set()
    for rank in range(case.placement.ranks):
        trace = read_trace(tmp_path / "all" / f"workload.{rank}.et")
        for kind, found in ((SEND, sent), (RECV, received)):
            rows = np.flatnonzero(trace.types == kind)
            ends = trace.comm_src[rows], trace.comm_dst[rows], trace.comm_tag[rows]
            found |= set(zip(*(column.tolist() for column in ends), strict=True))
            assert set((trace.comm_src if kind == SEND else trace.comm_dst)[rows].tolist()) <= {rank}
    assert sent == received
    stages = {(case.placement.stage(src), case.placement.stage(dst)) for src, dst, _ in sent}
    assert stages == {(0, 1), (1, 2), (2, 3), (1, 0), (2, 1), (3, 2)}


def test_the_summary_shows_the_plan(tmp_path: Path) -> None:
    case = make_case("experts")
    summary = write(case, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert parallelism_from(summary["parallelism"]) == case.parallelism  # type: ignore[arg-type]
    groups = summary["groups"]
    assert isinstance(groups, dict)
    assert {name: groups[name]["size"] for name in ("tp", "cp", "pp", "ep")} == {"tp": 2, "cp": 2, "pp": 2, "ep": 4}
    assert groups["tp"]["tiers"] == ["node"] and groups["tp"]["first"] == [0, 1]
    counts = case.generated.counts["workload.c0.et"]
    assert counts["nodes"] == len(case.stage_traces[0])
    assert set(counts["axes"]) == {"tp", "cp", "ep", "pp", "dp"}


def test_bytes_counted_follow_the_group_sizes() -> None:
    """Four reduce-scatters and gathers a layer and direction, (n - 1) / n of the buffer each, over 2 ranks: half."""
    case = make_case("1f1b")
    layers, micro, whole = 2, case.schedule.micro_batches, 1024 * 512 * 2
    embedding = 2
    expected = micro * (8 * layers + embedding) * whole / 2
    assert case.generated.counts["workload.c0.et"]["axes"]["tp"]["bytes_sent"] == expected


def test_an_unwritable_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="E-WRITE"):
        write(make_case("buckets"), tmp_path / "file" / "plan")
