"""The law of pacing, on rows made up: a better network is never slower than a worse one, and nothing else changes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scaleacross.search.pacing import NOTICED, paced

NUMBERS = st.tuples(*(st.sampled_from([1.0, 2.0, 3.0]) for _ in range(3)))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "plan_id": st.sampled_from(["a", "b"]),
            "status": st.sampled_from(["ok", "ok", "ok", "unphysical"]),
            "iteration_time_s": st.floats(1.0, 1.01),
            "network": st.fixed_dictionaries({"rest": st.sampled_from(["x", "y"]), "numbers": NUMBERS}),
        }
    ),
    max_size=8,
)


def named(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["plan_id"], str(k)): {**row, "config_id": str(k)} for k, row in enumerate(rows)}


def comparable(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the network of ``one`` is nowhere better, all else equal."""
    alike = one["plan_id"] == other["plan_id"] and one["network"]["rest"] == other["network"]["rest"]
    pairs = zip(one["network"]["numbers"], other["network"]["numbers"], strict=True)
    return alike and one["status"] == other["status"] == "ok" and all(mine >= theirs for mine, theirs in pairs)


@given(ROWS)
def test_a_better_network_is_never_slower(drawn: list[dict[str, Any]]) -> None:
    rows = named(drawn)
    after = paced(rows)
    assert after.keys() == rows.keys()
    for one, other in combinations(rows, 2):
        for worse, better in ((one, other), (other, one)):
            if comparable(rows[worse], rows[better]):
                best = after[better]["iteration_time_s"]
                assert best <= after[worse]["iteration_time_s"] * (1 + 2 * NOTICED)
    for pair, row in after.items():
        own = rows[pair]["iteration_time_s"]
        if row is not rows[pair]:  # another run of the same plan, on a network that it can be paced like
            assert row["unpaced_time_s"] == own > row["iteration_time_s"]
            source = rows[pair[0], row["config_id"]]
            assert comparable(source, rows[pair])
            assert row == {**source, "unpaced_time_s": own}


def test_what_does_not_compare_stays() -> None:
    """Other plans, other settings, other simulators (which say nothing of a network), points that failed."""
    row = {"plan_id": "a", "status": "ok", "iteration_time_s": 2.0, "network": {"rest": "x", "numbers": (1.0, 1.0)}}
    fast = {**row, "iteration_time_s": 1.0, "network": {"rest": "x", "numbers": (1.0, 2.0)}}
    others = [
        {**fast, "plan_id": "b"},
        {**fast, "network": {"rest": "y", "numbers": (1.0, 2.0)}},
        {**fast, "network": {"rest": "x", "numbers": (0.9, 2.0)}},
        {**fast, "network": None},
        {**fast, "status": "unphysical"},
    ]
    rows = named([row, *others])
    assert paced(rows) == rows
    small = named([row, {**fast, "iteration_time_s": 1.999}])
    assert paced(small) == small
    assert paced(named([row, fast]))["a", "0"]["config_id"] == "1"
