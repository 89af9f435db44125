"""Collective algorithms: they do what they are for, their counts add up, and nothing beats the bounds."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scaleacross.astra.algorithms.cut import analyse, cut_bound, reordered, ring_crossings, site_order
from scaleacross.astra.algorithms.schedules import (
    COLLECTIVES,
    GATHERS,
    MessageSchedule,
    make_schedule,
    tree_depths,
    tree_parents,
)
from scaleacross.astra.algorithms.traffic import NAMES, traffic
from scaleacross.errors import Infeasible, InvalidInput

FLAT = tuple(GATHERS)


def run(schedule: MessageSchedule) -> list[list[set[int]]]:
    """Who has whose contribution to each block in the end: [position][block] -> contributors.

    A position sends what it held before the step; a sum of the same contribution twice is an error.
    """
    n, parts = schedule.members, schedule.parts
    if schedule.collective == "all-gather":
        held = [[{b} if b == r else set() for b in range(parts)] for r in range(n)]
    elif schedule.collective == "all-to-all":
        held = [[{r} if b // n == r else set() for b in range(parts)] for r in range(n)]
    else:
        held = [[{r} for _ in range(parts)] for r in range(n)]
    for step in schedule.steps:
        carried = [(m, {b: frozenset(held[m.source][b]) for b in m.blocks}) for m in step]
        for message, blocks in carried:
            for b, contributors in blocks.items():
                assert contributors, "a block is sent before it is there"
                if message.adds:
                    assert not held[message.target][b] & contributors, "a contribution is summed twice"
                    held[message.target][b] |= contributors
                else:
                    held[message.target][b] = set(contributors)
    return held


def check(schedule: MessageSchedule) -> None:
    n, held = schedule.members, run(schedule)
    everybody = set(range(n))
    for r in range(n):
        for b in range(schedule.parts):
            if schedule.collective == "all-gather":
                assert held[r][b] == {b}
            elif schedule.collective == "all-reduce" or (schedule.collective == "reduce-scatter" and b == r):
                assert held[r][b] == everybody
            elif schedule.collective == "all-to-all" and b % n == r:
                assert held[r][b] == {b // n}


sizes_of = st.lists(st.sampled_from([2, 3, 4, 5, 8]), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= 40)
aggregations = st.sampled_from([0, 1, 2, 3])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(COLLECTIVES), sizes_of, aggregations)
def test_every_algorithm_does_what_it_is_for_and_its_counts_are_the_closed_forms(
    algorithm: str, collective: str, sizes: list[int], aggregation: int
) -> None:
    try:
        schedule = make_schedule(algorithm, collective, sizes, aggregation)
    except Infeasible as error:
        with pytest.raises(Infeasible) as again:
            traffic(algorithm, collective, sizes, aggregation)
        assert (again.value.error_id, again.value.clash) == (error.error_id, error.clash)
        return
    check(schedule)
    counted = traffic(algorithm, collective, sizes, aggregation)
    messages: Counter[tuple[int, int]] = Counter()
    blocks: Counter[tuple[int, int]] = Counter()
    for step in schedule.steps:
        for m in step:
            messages[m.source, m.target] += 1
            blocks[m.source, m.target] += len(m.blocks)
    closed_messages: Counter[tuple[int, int]] = Counter()
    closed_blocks: Counter[tuple[int, int]] = Counter()
    for s, t, m_, b in zip(
        *(column.tolist() for column in (counted.source, counted.target, counted.messages, counted.blocks)), strict=True
    ):
        closed_messages[s, t] += m_
        closed_blocks[s, t] += b
    assert closed_messages == messages and closed_blocks == blocks
    assert (counted.members, counted.parts) == (schedule.members, schedule.parts)
    if algorithm != "pat" or not aggregation:
        assert counted.steps == len(schedule.steps)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(COLLECTIVES), sizes_of, st.integers(1, 4), st.randoms())
def test_bytes_are_conserved_and_never_below_the_bounds(
    algorithm: str, collective: str, sizes: list[int], sites: int, random: Any
) -> None:
    members = math.prod(sizes)
    try:
        flows = traffic(algorithm, collective, sizes)
    except Infeasible:
        assume(False)
    assert flows.sent().sum() == flows.received().sum()
    size = 1000.0 * members
    units = [random.randrange(sites) for _ in range(members)]
    report = analyse(algorithm, collective, size, sizes, {"site": units})
    passes = {"all-reduce": 2}.get(collective, 1)
    # every block goes to every other member once, and each sum comes back once
    assert report.sent_bytes == pytest.approx(passes * (members - 1) / members * size)
    assert report.busiest_bytes >= report.sent_bytes * (1 - 1e-12)
    assert report.cut_bytes["site"] >= report.bound_bytes["site"] * (1 - 1e-12)
    assert (report.crossings["site"] > 0) == (len(set(units)) > 1)


@pytest.mark.parametrize("algorithm", FLAT)
@pytest.mark.parametrize("members", [2, 4, 16, 64])
def test_steps_are_those_of_the_literature(algorithm: str, members: int) -> None:
    expected = {"ring": members - 1, "direct": 1}.get(algorithm, int(math.log2(members)))
    assert traffic(algorithm, "all-gather", [members]).steps == expected
    assert traffic(algorithm, "all-reduce", [members]).steps == 2 * expected


def test_pat_takes_any_number_of_members_in_logarithmic_steps_and_becomes_linear_with_a_small_buffer() -> None:
    """NCCL's PAT (arXiv 2506.20252): log2(n) steps in the aggregated regime, linear once the buffer is full."""
    for members in (3, 6, 24, 100, 1000):
        assert traffic("pat", "all-gather", [members]).steps == math.ceil(math.log2(members))
        assert traffic("pat", "all-gather", [members], aggregation=1).steps == members - 1
    schedule = make_schedule("pat", "all-gather", [16])
    assert [len(step[0].blocks) for step in schedule.steps] == [1, 2, 4, 8]  # far peers first, with little data
    assert [(m.target - m.source) % 16 for m in (step[0] for step in schedule.steps)] == [8, 4, 2, 1]


def test_the_cut_between_two_sites_by_algorithm() -> None:
    """Sixteen members, eight a site, blocks of one byte: the all-gather's bound is eight bytes a direction."""
    units = {"campus": [r // 8 for r in range(16)]}
    cut = {name: analyse(name, "all-gather", 16.0, [8, 2], units).cut_bytes["campus"] for name in NAMES[:-1]}
    assert cut == {
        "ring": 15,  # one edge each way, all blocks but one
        "direct": 64,  # every block to every member beyond
        "halving-doubling-nearest": 64,  # the last and largest step crosses
        "halving-doubling-farthest": 8,  # the first and smallest one
        "pat": 32,
        "hierarchical": 8,
    }
    assert cut_bound("all-gather", 16, 8) == 8
    reduce = {name: analyse(name, "all-reduce", 16.0, [8, 2], units) for name in NAMES}
    assert reduce["hierarchical"].cut_bytes["campus"] == reduce["hierarchical"].bound_bytes["campus"] == 16
    assert reduce["ring"].cut_bytes["campus"] == 30
    assert reduce["ring"].uplinks["campus"] == 2  # one edge of the scatter, one of the gather
    assert reduce["double-binary-tree"].cut_bytes["campus"] < 64


def test_farthest_first_sends_least_over_an_oversubscribed_cut_as_measured() -> None:
    """NCCLX (arXiv 2510.20171): farthest-first recursive doubling was the best order on an oversubscribed network."""
    for members in (16, 64, 256):
        units = {"zone": [r // 4 for r in range(members)], "campus": [r // (members // 2) for r in range(members)]}
        far, near = (
            analyse(f"halving-doubling-{order}", "all-gather", 1.0 * members, [members], units)
            for order in ("farthest", "nearest")
        )
        assert far.cut_bytes["campus"] == far.bound_bytes["campus"] < near.cut_bytes["campus"]
        assert far.sent_bytes == near.sent_bytes and far.steps == near.steps


@given(st.lists(st.integers(0, 3), min_size=2, max_size=24), st.randoms())
def test_a_ring_in_the_order_of_its_sites_crosses_each_cut_least(units: list[int], random: Any) -> None:
    order = list(range(len(units)))
    random.shuffle(order)
    zones = [2 * unit + random.randrange(2) for unit in units]
    tiers = {"zone": zones, "campus": units}
    by_site = reordered(tiers, site_order(tiers))
    for tier, numbers in by_site.items():
        least = len(set(tiers[tier]))
        assert ring_crossings(numbers) == (least if least > 1 else 0)
        assert ring_crossings(reordered(tiers, order)[tier]) >= ring_crossings(numbers)
    sizes = [len(units)]
    shuffled = analyse("ring", "all-reduce", 1e6, sizes, reordered(tiers, order))
    sorted_ = analyse("ring", "all-reduce", 1e6, sizes, by_site)
    for tier in tiers:
        assert sorted_.crossings[tier] <= shuffled.crossings[tier]
        assert sorted_.sent_bytes == shuffled.sent_bytes


@given(st.integers(2, 200))
def test_a_double_binary_tree_is_two_spanning_trees_with_disjoint_insides(members: int) -> None:
    inside = []
    for parents in tree_parents(members):
        assert sum(parent < 0 for parent in parents) == 1
        assert max(tree_depths(parents)) <= math.ceil(math.log2(members)) + 1
        children = Counter(parent for parent in parents if parent >= 0)
        assert max(children.values()) <= 2
        inside.append(set(children))
    if members > 2:
        assert len(inside[0] & inside[1]) <= 1  # the roots apart, who is inside one is a leaf of the other


def test_groups_of_thousands_are_counted_in_no_time() -> None:
    members = 2048
    units = {"zone": np.arange(members) // 128, "campus": np.arange(members) // 1024}
    for algorithm in ("ring", "pat", "halving-doubling-farthest", "double-binary-tree", "hierarchical"):
        report = analyse(algorithm, "all-reduce", 1e9, [128, 8, 2], units)
        assert report.sent_bytes == pytest.approx(2e9 * (members - 1) / members)


@pytest.mark.parametrize(
    ("algorithm", "collective", "sizes", "error", "says"),
    [
        ("rign", "all-reduce", [4], InvalidInput, "did you mean 'ring'?"),
        ("ring", "all-reduced", [4], InvalidInput, "did you mean 'all-reduce'?"),
        ("ring", "all-to-all", [4], Infeasible, "use direct"),
        ("double-binary-tree", "all-gather", [4], Infeasible, "all-reduce only"),
        ("halving-doubling-nearest", "all-gather", [6], Infeasible, "no power of two"),
    ],
)
def test_what_does_not_exist_is_refused(
    algorithm: str, collective: str, sizes: list[int], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match="E-"):
        make_schedule(algorithm, collective, sizes)
    with pytest.raises(error, match=says.replace("?", r"\?")):
        traffic(algorithm, collective, sizes)


def test_units_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="3 members of 4"):
        analyse("ring", "all-reduce", 1.0, [4], {"site": [0, 0, 1]})
