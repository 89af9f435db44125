"""Placement: groups partition the ranks, stages follow a Gray order, shares are counted from the stage boundaries."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.errors import Infeasible
from scaleacross.plan.degrees import AXES, Parallelism, parallelism_from
from scaleacross.plan.gray import gray_digits, gray_number, pipeline_shares
from scaleacross.plan.placement import GROUPS, Placement, place, rank_map_csv


class Level(NamedTuple):
    name: str
    size: int


META = [Level("node", 8), Level("zone", 256), Level("building", 4), Level("campus", 2)]


@st.composite
def placed(draw: st.DrawFn) -> tuple[Parallelism, Placement]:
    """A plan with groups of every kind, on tiers that its axes fill in whole factors."""
    order = draw(st.permutations(AXES))
    factors = [draw(st.lists(st.sampled_from([2, 3, 4]), max_size=2)) for _ in order]
    degrees = {axis: math.prod(parts) for axis, parts in zip(order, factors, strict=True)}
    flat = [size for parts in factors for size in parts] or [2]
    if not any(factors):
        degrees["dp"] = 2
    cuts = sorted(draw(st.sets(st.integers(0, len(flat)), max_size=3)) | {0, len(flat)})
    tiers = [
        Level(f"tier{index}", math.prod(flat[low:high])) for index, (low, high) in enumerate(itertools.pairwise(cuts))
    ]
    divisors = [n for n in range(1, degrees["tp"] + 1) if degrees["tp"] % n == 0]
    etp = draw(st.sampled_from(divisors))
    spread = degrees["tp"] // etp * degrees["cp"] * degrees["dp"]
    ep = draw(st.sampled_from([n for n in range(1, spread + 1) if spread % n == 0]))
    shard = draw(st.sampled_from([n for n in range(1, degrees["dp"] + 1) if degrees["dp"] % n == 0]))
    plan = Parallelism(**degrees, etp=etp, ep=ep, order=tuple(order), dp_sharding="hsdp", dp_shard=shard)
    return plan, place(plan, tiers)


@given(placed())
@settings(max_examples=150, deadline=None)
def test_groups_partition_the_ranks_on_every_axis(case: tuple[Parallelism, Placement]) -> None:
    plan, placement = case
    for group in GROUPS:
        table = placement.groups(group)
        assert sorted(table.ravel().tolist()) == list(range(plan.world))
        rank = int(table[-1, -1])
        assert set(placement.members(rank, group)) == set(table[-1].tolist())
    wanted = {axis: plan.degree(axis) for axis in (*AXES, "ep", "etp")}
    assert {group: placement.size_of(group) for group in wanted} == wanted
    assert placement.size_of("shard") == plan.dp_shard * plan.cp == plan.shard_ranks
    assert placement.size_of("data") == placement.size_of("shard") * placement.size_of("replica") == plan.data_ranks
    assert placement.size_of("edata") == plan.expert_data_ranks
    assert placement.size_of("eshard") * placement.size_of("ereplica") == plan.expert_data_ranks


@given(placed())
@settings(max_examples=100, deadline=None)
def test_every_dimension_is_one_tier_and_one_axis(case: tuple[Parallelism, Placement]) -> None:
    plan, placement = case
    assert placement.ranks == plan.world
    assert all(dim.size > 1 and dim.axis in AXES for dim in placement.dims)
    tiers = [dim.tier for dim in placement.dims]
    assert tiers == sorted(tiers), "tiers from the inside out"


@given(placed(), st.data())
@settings(max_examples=100, deadline=None)
def test_ranks_and_indices_are_two_ways_to_say_the_same(
    case: tuple[Parallelism, Placement], data: st.DataObject
) -> None:
    _, placement = case
    rank = data.draw(st.integers(0, placement.ranks - 1))
    indices = {axis: placement.axis_index(rank, axis) for axis in AXES}
    assert placement.rank_of(**indices) == rank
    assert placement.rank_at(placement.coordinates(rank)) == rank
    table = placement.rank_table()
    assert {axis: int(table[axis][rank]) for axis in AXES} == indices
    members = placement.members(rank, "dp")
    assert members.index(rank) == indices["dp"]
    assert [placement.stage(member) for member in placement.members(rank, "pp")] == list(range(placement.size_of("pp")))


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_stages_follow_a_gray_order(sizes: list[int]) -> None:
    count = math.prod(sizes)
    codes = [gray_digits(number, sizes) for number in range(count)]
    assert len(set(codes)) == count
    assert [gray_number(code, sizes) for code in codes] == list(range(count))
    pairs = list(itertools.pairwise(codes))
    if sizes[-1] % 2 == 0 or len(sizes) == 1:
        pairs.append((codes[-1], codes[0]))
    assert all(sum(a != b for a, b in zip(one, other, strict=True)) == 1 for one, other in pairs)


def test_pipeline_peers_differ_in_one_dimension() -> None:
    plan = parallelism_from({"tp": 8, "pp": 32, "order": ["tp", "cp", "dp", "pp"], "chunks": 2}, 16384)
    placement = place(plan, META)
    ranks = [placement.stage_rank(5, stage) for stage in range(32)]
    for one, other in zip(ranks, ranks[1:] + ranks[:1], strict=True):
        changed = [a != b for a, b in zip(placement.coordinates(one), placement.coordinates(other), strict=True)]
        assert sum(changed) == 1


def test_the_default_study_on_its_cluster() -> None:
    placement = place(parallelism_from({"tp": 8, "pp": 16}, 16384), META)
    assert placement.shape == (8, 16, 16, 4, 2)
    assert [dim.axis for dim in placement.dims] == ["tp", "pp", "dp", "dp", "dp"]
    assert placement.tiers_of("dp") == ("zone", "building", "campus")
    assert placement.involved("tp") == (True, False, False, False, False)
    assert placement.unit_of(8191, "campus") == 0 and placement.unit_of(8192, "building") == 1


@pytest.mark.parametrize(
    ("sizes", "wraps", "shares"),
    [
        ([16], False, [1.0]),  # one stage a unit: all of it sends on
        ([2, 2], False, [1.0, 1 / 2]),  # stages 1 and 2 cross the outer dimension, of 2 stages a unit
        ([2, 2], True, [1.0, 1.0]),  # and 3 and 0 wrap around
        ([8, 2], False, [1.0, 1 / 8]),
        ([8, 2], True, [1.0, 2 / 8]),
        ([8, 4], False, [1.0, 2 / 8]),  # an inner unit has a neighbour on both sides
        ([2, 4, 2], False, [1.0, 1.0, 1 / 8]),
    ],
)
def test_shares_count_the_stages_at_a_boundary(sizes: list[int], wraps: bool, shares: list[float]) -> None:
    assert pipeline_shares(sizes, wraps) == pytest.approx(shares)


def test_only_looped_chunks_wrap_around() -> None:
    values = {"tp": 8, "pp": 16, "order": ["tp", "cp", "dp", "pp"]}
    last = [
        place(parallelism_from({**values, **more}, 16384), META).dims[-1].share
        for more in ({}, {"chunks": 2, "schedule": "interleaved"}, {"chunks": 2, "schedule": "zbv"})
    ]
    assert last == [1 / 8, 2 / 8, 1 / 8]


def test_experts_and_shards_split_dimensions() -> None:
    plan = parallelism_from({"tp": 8, "cp": 2, "pp": 16, "ep": 8, "dp_sharding": "hsdp"}, 16384)
    placement = place(plan, META)
    assert [(dim.size, dim.axis, "ep" in dim.groups) for dim in placement.dims] == [
        (8, "tp", False),
        (2, "cp", True),
        (16, "pp", False),
        (4, "dp", True),
        (2, "dp", False),
        (4, "dp", False),
        (2, "dp", False),
    ]
    assert placement.tiers_of("shard") == ("zone", "building") and placement.tiers_of("replica") == ("campus",)


def test_experts_take_tensor_ranks_that_expert_tensor_parallelism_leaves() -> None:
    placement = place(parallelism_from({"tp": 8, "etp": 2, "ep": 8, "pp": 8}, 16384), META)
    assert placement.size_of("etp") == 2 and placement.size_of("ep") == 8
    assert [placement.dims[index].axis for index in placement.dims_of("ep")] == ["tp", "dp"]


@pytest.mark.parametrize(
    ("values", "error_id", "words"),
    [
        ({"tp": 8, "pp": 3, "dp": 682}, "E-WORLD", "tp 8 x cp 1 (default) x pp 3 x dp 682 = 16368, not 16384 GPUs"),
        ({"tp": 8, "pp": 16, "dp_sharding": "hsdp", "dp_shard": 48}, "E-HSDP", "dp_shard 48 does not divide dp = 128"),
        ({"tp": 8, "pp": 16, "ep": 48}, "E-EP", "ep 48 does not divide tp x cp x dp / etp = 128"),
        (
            {"tp": 8, "pp": 64, "order": ["tp", "cp", "dp", "pp"], "dp_sharding": "hsdp"},
            "E-HSDP",
            "dp 32 is all in tier 'zone'",
        ),
    ],
)
def test_impossible_placements_say_why(values: dict[str, object], error_id: str, words: str) -> None:
    with pytest.raises(Infeasible) as caught:
        place(parallelism_from(values, 16384), META)
    assert caught.value.error_id == error_id and words in caught.value.clash


def test_a_tier_that_cannot_be_filled_in_whole_factors_is_refused() -> None:
    tiers = [Level("node", 8), Level("zone", 384), Level("building", 8)]
    plan = parallelism_from({"tp": 8, "pp": 256}, 8 * 384 * 8)
    with pytest.raises(Infeasible, match=r"E-PLACE: .*pp has 256 ranks to place where 384 of 384 units of tier 'zone'"):
        place(plan, tiers)


def test_the_rank_map_has_a_line_a_rank() -> None:
    placement = place(Parallelism(tp=2, pp=2, dp=3), [Level("node", 4), Level("zone", 3)])
    lines = rank_map_csv(placement).splitlines()
    assert lines[0] == "rank,node_unit,zone_unit,tp,cp,pp,dp,ep" and len(lines) == 13
    assert lines[8] == "7,1,0,1,0,1,1,0"


def test_groups_of_sixteen_thousand_ranks_are_quick_arrays() -> None:
    placement = place(parallelism_from({"tp": 8, "pp": 16}, 16384), META)
    table = placement.groups("data")
    assert table.shape == (128, 128) and np.unique(table).size == 16384
