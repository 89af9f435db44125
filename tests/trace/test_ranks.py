"""Folded workloads: classes partition the ranks, translation is a group action, expansion gives every rank its file."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.errors import InvalidInput
from scaleacross.trace.chakra_io import read_trace, write_trace
from scaleacross.trace.columns import ALL_REDUCE, TraceBuilder
from scaleacross.trace.expand import expand
from scaleacross.trace.ranks import RankClass, RankMap, ranges
from scaleacross.trace.workload import inspect_workload, open_workload


@st.composite
def rank_maps(draw: st.DrawFn) -> RankMap:
    """Classes from a split of the coordinates of some dimensions into lists."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    choices: list[list[tuple[int, ...] | None]] = []
    for size in shape:
        cut = draw(st.integers(0, size - 1))
        parts = [tuple(range(cut)), tuple(range(cut, size))]
        choices.append([None] if draw(st.booleans()) else [part for part in parts if part])
    classes = []
    for index, coordinates in enumerate(itertools.product(*choices)):
        picked = [draw(st.sampled_from(range(n) if c is None else c)) for n, c in zip(shape, coordinates, strict=True)]
        rank = sum(c * math.prod(shape[:dim]) for dim, c in enumerate(picked))
        classes.append(RankClass(f"workload.c{index}.et", rank, coordinates))
    return RankMap(shape, tuple(classes))


@given(rank_maps())
def test_classes_partition_and_survive_json(ranks: RankMap) -> None:
    members = np.concatenate([ranks.members(index) for index in range(len(ranks.classes))])
    assert sorted(members.tolist()) == list(range(ranks.ranks))
    assert all(ranks.classes[k].representative in ranks.members(k) for k in range(len(ranks.classes)))
    assert RankMap.from_json(json.loads(json.dumps(ranks.to_json()))) == ranks


@given(rank_maps(), st.data())
def test_translation(ranks: RankMap, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(ranks.classes) - 1))
    entry, peers = ranks.classes[index], np.arange(ranks.ranks)
    free = [values is None for values in entry.coordinates]
    assert np.array_equal(ranks.translate(index, entry.representative, peers), peers)
    member = data.draw(st.sampled_from(ranks.members(index).tolist()))
    images = ranks.translate(index, member, peers)
    assert len(set(images.tolist())) == ranks.ranks  # one to one
    distance = ranks.coordinates(member) - ranks.coordinates(entry.representative)
    wanted = (ranks.coordinates(peers) + np.where(free, distance, 0)) % ranks.shape
    assert np.array_equal(ranks.coordinates(images), wanted)


def test_unfolded_map() -> None:
    ranks = RankMap.unfolded(5, "w")
    assert ranks.members(3).tolist() == [3] and ranks.classes[3].file == "w.3.et" and not ranks.folded
    assert ranks.class_of.tolist() == [0, 1, 2, 3, 4]
    assert ranks.translate(3, 3, 1) == 1


GOOD: dict[str, Any] = {
    "format": "scaleacross-ranks/1",
    "shape": [2, 2],
    "classes": [
        {"file": "workload.c0.et", "representative": 0, "coordinates": [None, [0]]},
        {"file": "workload.c1.et", "representative": 2, "coordinates": [None, [1]]},
    ],
    "group_families": [["1", "2"]],
}


def change(path: list[Any], value: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(GOOD))
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (["format"], "scaleacross-ranks/2", "E-RANKS-FORMAT"),
        (["format"], None, "E-RANKS-FORMAT"),
        (["classe"], [], "E-RANKS-KEY.*did you mean 'classes'"),
        (["classes", 0, "rank"], 1, "E-RANKS-KEY"),
        (["shape"], [], "E-RANKS-SHAPE"),
        (["shape"], [2, 0], "E-RANKS-SHAPE"),
        (["shape"], [2, -1], "E-RANKS-SHAPE"),
        (["shape"], "4", "E-RANKS-SHAPE"),
        (["shape"], [2, 10**30], "E-RANKS-SHAPE"),
        (["shape"], [2, 3], "E-RANKS-PARTITION.*4-5 are in no class"),
        (["classes"], [], "E-RANKS-CLASS"),
        (["classes"], 7, "E-RANKS-CLASS"),
        (["classes", 0], "x", "E-RANKS-CLASS"),
        (["classes", 0, "file"], "../other.et", "E-RANKS-CLASS"),
        (["classes", 0, "file"], None, "E-RANKS-CLASS"),
        (["classes", 0, "representative"], 4, "E-RANKS-CLASS"),
        (["classes", 0, "representative"], True, "E-RANKS-CLASS"),
        (["classes", 0, "representative"], 2, "E-RANKS-CLASS.*coordinate 1 in dimension 1"),
        (["classes", 0, "coordinates"], [None], "E-RANKS-CLASS"),
        (["classes", 0, "coordinates"], [None, [0, 0]], "E-RANKS-CLASS"),
        (["classes", 0, "coordinates"], [None, [2]], "E-RANKS-CLASS"),
        (["classes", 0, "coordinates"], [None, []], "E-RANKS-CLASS"),
        (["classes", 0, "coordinates"], [None, None], "E-RANKS-PARTITION.*2-3 are in several"),
        (["classes", 0, "coordinates"], [[0], [0]], "E-RANKS-PARTITION.*ranks 1 are in no class"),
        (["group_families"], [["1"], ["1"]], "E-RANKS-FAMILY"),
        (["group_families"], [["0"]], "E-RANKS-FAMILY"),
        (["group_families"], [["x"]], "E-RANKS-FAMILY"),
        (["group_families"], ["12"], "E-RANKS-FAMILY"),
        (["group_families"], [[]], "E-RANKS-FAMILY"),
    ],
)
def test_wrong_ranks_file(tmp_path: Path, path: list[Any], value: Any, error: str) -> None:
    (tmp_path / "ranks.json").write_text(json.dumps(change(path, value)))
    with pytest.raises(InvalidInput, match=error):
        RankMap.load(tmp_path)


def folded(folder: Path) -> dict[int, tuple[int, ...]]:
    """Shape 2 x 3 x 2: a pipeline of two stages over the last dimension, groups along dimension 0 and dimension 1."""
    groups: dict[int, tuple[int, ...]] = {}
    classes, families = [], []
    for stage in range(2):
        base = 6 * stage
        rows = {1 + 10 * stage + y: (base + 2 * y, base + 2 * y + 1) for y in range(3)}
        columns = {5 + 10 * stage + x: tuple(base + x + 2 * y for y in range(3)) for x in range(2)}
        groups |= rows | columns
        families += [tuple(rows), tuple(columns)]
        builder = TraceBuilder(rank=base)
        first = builder.compute("F", 10, 10)
        deps = [first]
        if stage == 1:
            deps = [builder.recv("pp.r", 0, 64, 9, deps=[first])]
        builder.collective("tp.ar", ALL_REDUCE, 96, deps=deps, pg=1 + 10 * stage)
        last = builder.collective("dp.ar", ALL_REDUCE, 48, deps=deps, pg=5 + 10 * stage)
        if stage == 0:
            builder.send("pp.s", 6, 64, 9, deps=[last])
        write_trace(folder / f"workload.c{stage}.et", builder.build())
        classes.append(RankClass(f"workload.c{stage}.et", base, (None, None, (stage,))))
    ranks = RankMap((2, 3, 2), tuple(classes), tuple(families))
    (folder / "ranks.json").write_text(json.dumps(ranks.to_json()))
    return groups


def test_expand(tmp_path: Path) -> None:
    groups = folded(tmp_path)
    assert expand(tmp_path, tmp_path / "all", groups) == 12
    workload = open_workload(tmp_path / "all" / "workload")
    assert workload.ranks.ranks == 12 and not workload.folded
    for rank in range(12):
        trace = read_trace(tmp_path / "all" / f"workload.{rank}.et")
        row = trace.names.index("pp.s" if rank < 6 else "pp.r")
        pair = (int(trace.comm_src[row]), int(trace.comm_dst[row]))
        assert pair == ((rank, rank + 6) if rank < 6 else (rank - 6, rank))
        used = {int(trace.pg_names[index]) for index in trace.pg.tolist() if index}
        assert len(used) == 2 and all(rank in groups[group] for group in used)
    assert (tmp_path / "all" / "workload.6.et").read_bytes() == (tmp_path / "workload.c1.et").read_bytes()


def test_expand_problems(tmp_path: Path) -> None:
    groups = folded(tmp_path)
    with pytest.raises(InvalidInput, match="E-EXPAND-GROUP"):
        expand(tmp_path, tmp_path / "all")
    with pytest.raises(InvalidInput, match=r"E-EXPAND-GROUP.*rank 4-5 of class 0"):
        expand(tmp_path, tmp_path / "all", groups | {3: (0, 1)})
    expand(tmp_path, tmp_path / "all", groups)
    with pytest.raises(InvalidInput, match="E-EXPAND-FOLDED"):
        expand(tmp_path / "all", tmp_path / "more")
    (tmp_path / "all" / "workload.12.et").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"E-EXPAND-STALE.*rank 12"):
        expand(tmp_path, tmp_path / "all", groups)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="E-WRITE"):
        expand(tmp_path, tmp_path / "file", groups)
    (tmp_path / "workload.c1.et").unlink()
    with pytest.raises(InvalidInput, match="E-TRACE-FILE"):
        expand(tmp_path, tmp_path / "all", groups)


def test_workload_lists_every_missing_rank(tmp_path: Path) -> None:
    for rank in (0, 2, 5):
        builder = TraceBuilder(rank)
        builder.compute("F", 1, 1)
        write_trace(tmp_path / f"w.{rank}.et", builder.build())
    workload, problems = inspect_workload(tmp_path / "w", 5)
    assert workload is None
    assert "rank 1, 3-4" in problems[0].clash and problems[0].error_id == "E-WORLD-TRACES"
    assert "rank 5" in problems[1].clash and problems[1].error_id == "E-WORLD"
    with pytest.raises(InvalidInput, match=r"rank 1, 3-4"):
        open_workload(tmp_path / "w")
    for prefix in ("nothing", "no/folder"):
        with pytest.raises(InvalidInput, match="E-WORLD-TRACES"):
            open_workload(tmp_path / prefix)
    (tmp_path / "v.999999999.et").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="E-WORLD-TRACES"):
        open_workload(tmp_path / "v")


@given(st.sets(st.integers(0, 40)))
def test_ranges(numbers: set[int]) -> None:
    text = ranges(sorted(numbers), shown_at_most=50)
    found: set[int] = set()
    for part in text.split(", ") if numbers else []:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers
    assert ranges(range(0, 40, 2), 3) == "0, 2, 4 and 17 more"
