"""What joint optimization is worth, on tables whose interaction is known."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.search.interplay import GROUPS, group_of, interplay_rows, sentence
from scaleacross.search.select import Rules

RULES = Rules(baselines={"production": {"pp": "1", "schedule": "a", "collective": "r"}})
KEYS = ["pp", "schedule", "collective"]


def table(times: dict[tuple[str, str, str], float]) -> list[dict[str, Any]]:
    return [
        {"point_id": "".join(key), "status": "ok", "iteration_time_s": time, **dict(zip(KEYS, key, strict=True))}
        for key, time in times.items()
    ]


def test_groups() -> None:
    assert [group_of(name) for name in ("order", "micro_batch", "transport", "anything")] == [
        "placement", "schedule", "network", "network",
    ]  # fmt: skip


def test_an_interaction_is_found_and_named() -> None:
    """Placement 2 pays only with schedule b, and either alone costs: every order from production stays there."""
    times = dict.fromkeys(product("12", "ab", "rs"), 10.0)
    times |= {("2", "a", "r"): 12.0, ("2", "a", "s"): 12.0, ("1", "b", "r"): 11.0, ("1", "b", "s"): 11.0}
    times |= {("2", "b", "r"): 8.0, ("2", "b", "s"): 8.0}
    rows = interplay_rows(table(times), RULES, KEYS)
    assert rows[0]["method"] == "joint" and rows[0]["point_id"] == "2br" and rows[0]["loss_pct"] == 0
    orders = [row for row in rows if row["method"] == "sequential"]
    assert len(orders) == 6
    assert all(row["loss_pct"] == pytest.approx(25.0) for row in orders)
    assert all(row["pair"] == "placement x schedule" and row["dimensions"] == "pp x schedule" for row in orders)
    assert all(row["pair_gain_pct"] == pytest.approx(25.0) for row in orders)
    assert "loses 25.00 %" in sentence(rows, {}) and "pp x schedule" in sentence(rows, {})


def test_without_interaction_every_order_finds_the_optimum() -> None:
    times = {(p, s, c): 10.0 - int(p) - (s == "b") - (c == "s") for p, s, c in product("12", "ab", "rs")}
    rows = interplay_rows(table(times), RULES, KEYS)
    assert all(row["loss_pct"] == pytest.approx(0) for row in rows if row["method"] in ("sequential", "joint"))
    together = next(row for row in rows if row["method"].startswith("each group alone"))
    assert together["point_id"] == "2bs" and "pair" not in together
    assert "finds the joint optimum" in sentence(rows, {})


def test_a_choice_that_a_later_one_made_wrong_is_named() -> None:
    """Network s is best under schedule a, r under b: chosen before the schedule, it is wrong by 12.5 % at the end."""
    times = {("1", "a", "r"): 10.0, ("1", "a", "s"): 9.8, ("1", "b", "r"): 8.0, ("1", "b", "s"): 9.0}
    rows = interplay_rows(table(times), RULES, KEYS)
    wrong = next(row for row in rows if row["order"] == "network, schedule, placement")
    assert wrong["point_id"] == "1bs" and wrong["pair"] == "network x schedule"
    assert wrong["dimensions"] == "collective x schedule"
    assert wrong["dimensions_gain_pct"] == pytest.approx(12.5), "and under schedule a nothing is to be gained by r"
    right = next(row for row in rows if row["order"] == "schedule, network, placement")
    assert right["point_id"] == "1br" and "pair" not in right


def test_choices_that_exclude_each_other_have_no_point() -> None:
    times = {("1", "a", "r"): 10.0, ("2", "a", "r"): 9.0, ("1", "b", "r"): 9.0}
    rows = interplay_rows(table(times), RULES, KEYS)
    assert next(row for row in rows if row["method"].startswith("each"))["order"] == "no ok point"


def test_without_a_baseline_there_is_nothing_to_start_from() -> None:
    assert interplay_rows(table({("1", "a", "r"): 1.0}), Rules(), KEYS) == []


@given(st.lists(st.floats(1, 100), min_size=12, max_size=12))
def test_no_method_beats_the_joint_optimum_and_all_start_no_worse_than_production(times: list[float]) -> None:
    rows = interplay_rows(table(dict(zip(product("123", "ab", "rs"), times, strict=True))), RULES, KEYS)
    start = next(row for row in rows if row["method"].startswith("none"))["iteration_time_s"]
    for row in rows:
        if row.get("point_id"):
            assert row["loss_pct"] >= 0
        if row["method"] in ("sequential", "one group alone"):
            assert row["iteration_time_s"] <= start
    assert {row["order"] for row in rows if row["method"] == "one group alone"} == set(GROUPS)
