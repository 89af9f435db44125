"""Laws of fronts and objectives on drawn rows, and what the files say of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.cluster.cost import Rates
from scaleacross.report.columns import PARETO
from scaleacross.search.objective import ITERATION_TIME, TOKENS_PER_USD, Objective
from scaleacross.search.pareto import FIRST, LAST, alternatives, front, losses, pareto_rows
from scaleacross.search.select import Rules, baseline_row, best, contenders, speedups
from scaleacross.study.outcomes import MORE_IS_BETTER

Row = dict[str, Any]
TOKENS = 1e6
FRONTS = [["iteration_time_s", "memory_gib"], ["tokens_per_usd", "cut_campus_gb"], ["mfu", "gpus", "memory_gib"]]
SMALL = st.integers(1, 5)  # few values, so that ties happen


def priced(row: Row, price: float, egress: float = 0.0) -> Row:
    """A row with the cost that its time, GPUs and traffic have."""
    rates = Rates(row["gpus"], price * row["gpus"], None, {"campus": egress})
    usd = rates.cost(row["iteration_time_s"], {"campus": row["cut_campus_gb"] * 1e9})
    assert usd is not None
    return {**row, "usd_per_iteration": usd, "tokens_per_usd": TOKENS / usd}


@st.composite
def tables(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SMALL) -> list[Row]:
    """Rows of one environment, all of them ok."""
    numbers = draw(st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, sizes), min_size=1, max_size=25))
    return [
        priced(
            {
                "point_id": f"p{n:02}", "status": "ok", "iteration_time_s": float(time), "memory_gib": float(memory),
                "cut_campus_gb": float(cut), "mfu": mfu / 10, "gpus": 8 * gpus, "schedule": "ab"[n % 2],
            },
            price=2.0,
        )
        for n, (time, memory, cut, mfu, gpus) in enumerate(numbers)
    ]  # fmt: skip


def beats(one: Row, other: Row, columns: list[str]) -> bool:
    """As good in everything and better in something, by the definition."""
    pairs = [(one[name], other[name]) if name in MORE_IS_BETTER else (other[name], one[name]) for name in columns]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


@given(tables(), st.sampled_from(FRONTS))
def test_a_front_is_mutually_unbeaten_and_covers_every_row(rows: list[Row], columns: list[str]) -> None:
    found = front(rows, columns)
    assert not any(beats(one, other, columns) for one in rows for other in found)
    for row in rows:
        same = [one for one in found if all(one[name] == row[name] for name in columns)]
        assert same or any(beats(one, row, columns) for one in found)
        assert len(same) <= 1
    keys = [losses(row, columns) for row in found]
    assert keys == sorted(keys)  # type: ignore[type-var]


@given(tables(), st.sampled_from([ITERATION_TIME, TOKENS_PER_USD]))
def test_the_winner_is_on_the_fronts_of_its_objective(rows: list[Row], objective: Objective) -> None:
    winner = best(rows, objective)
    for other in ("memory_gib", "cut_campus_gb"):
        found = front(rows, [objective.column, other], objective)
        assert objective.score(found[0]) == objective.score(winner)  # type: ignore[arg-type]
    assert winner in front(rows, [objective.column, "iteration_time_s", "memory_gib"], objective)


@given(tables(), st.floats(0.01, 100))
def test_the_choice_does_not_depend_on_the_scale_of_prices(rows: list[Row], scale: float) -> None:
    one, other = best(rows, TOKENS_PER_USD), best([priced(row, 2.0 * scale) for row in rows], TOKENS_PER_USD)
    assert one is not None and other is not None
    assert other["tokens_per_usd"] == pytest.approx(one["tokens_per_usd"] / scale)


@given(tables(sizes=st.just(2)))
def test_equal_prices_and_sizes_make_the_cheapest_the_fastest(rows: list[Row]) -> None:
    assert best(rows, TOKENS_PER_USD) == best(rows, ITERATION_TIME)


def test_priced_traffic_can_turn_the_choice() -> None:
    fast = {"point_id": "fast", "iteration_time_s": 1.0, "gpus": 8, "cut_campus_gb": 50.0}
    frugal = {"point_id": "frugal", "iteration_time_s": 1.2, "gpus": 8, "cut_campus_gb": 1.0}
    for egress, wanted in ((0.0, "fast"), (2e-11, "frugal")):
        assert best([priced(fast, 2.0, egress), priced(frugal, 2.0, egress)], TOKENS_PER_USD)["point_id"] == wanted  # type: ignore[index]


@given(
    st.sampled_from([ITERATION_TIME, TOKENS_PER_USD]),
    st.floats(0.1, 100), st.floats(0, 10), st.floats(0, 1e12), st.floats(0.1, 1e5), st.floats(0, 1e-10),
)  # fmt: skip
def test_a_bound_of_the_time_bounds_the_score(
    objective: Objective, bound: float, more: float, sent: float, price: float, egress: float
) -> None:
    rates = Rates(64, price, None, {"wan": egress})
    exact = objective.score_of(bound + more, TOKENS, rates, {"wan": sent})
    assert objective.score_of(bound, TOKENS, rates, {}) <= exact
    usd = rates.cost(bound + more, {"wan": sent})
    assert usd is not None
    row = {"iteration_time_s": bound + more, "tokens_per_usd": TOKENS / usd}
    assert objective.score(row) == pytest.approx(exact)
    assert objective.value(objective.score(row)) == pytest.approx(row[objective.column])


def test_a_row_without_a_price_is_no_contender_by_cost() -> None:
    row = {"point_id": "a", "status": "ok", "iteration_time_s": 1.0, "tokens_per_usd": None}
    assert contenders([row], Rules(), {}) == [row]
    assert contenders([row], Rules(objective=TOKENS_PER_USD), {}) == []
    assert TOKENS_PER_USD.score_of(1.0, TOKENS, Rates(8), {}) == float("inf")


def test_baselines_and_gains_follow_the_objective() -> None:
    big = priced({"point_id": "big", "iteration_time_s": 1.0, "gpus": 32, "cut_campus_gb": 0.0}, 2.0)
    small = priced({"point_id": "small", "iteration_time_s": 3.0, "gpus": 8, "cut_campus_gb": 0.0}, 2.0)
    slow = priced({"point_id": "slow", "iteration_time_s": 5.0, "gpus": 8, "cut_campus_gb": 0.0}, 2.0)
    rows = [{**row, "status": "ok", "schedule": name} for row, name in ((big, "x"), (small, "y"), (slow, "x"))]
    baselines = {"production": {"schedule": "x"}}
    by_time, by_cost = Rules(baselines=baselines), Rules(baselines=baselines, objective=TOKENS_PER_USD)
    assert baseline_row(rows, by_cost, "production")["point_id"] == "big"  # type: ignore[index]
    (time,), (cost,) = speedups(rows, by_time), speedups(rows, by_cost)
    assert (time["best_point_id"], cost["best_point_id"]) == ("big", "small")
    assert time["gain_pct"] == time["speedup_pct"] == 0.0
    # 32 GPUs for 1 s against 8 GPUs for 3 s: a third more tokens a dollar, at a third of the speed
    assert cost["gain_pct"] == pytest.approx(100 / 3) and cost["speedup_pct"] == pytest.approx(-200 / 3)
    assert cost["best_tokens_per_usd"] == pytest.approx(cost["baseline_tokens_per_usd"] * 4 / 3)


def alternative_rows() -> list[Row]:
    return [
        {"point_id": point, "status": "ok", "iteration_time_s": time, "memory_gib": memory, "pp": pp}
        for point, time, memory, pp in (
            ("best", 10.0, 70.0, "8"), ("close", 10.05, 60.0, "16"), ("lean", 10.09, 55.0, "32"),
            ("near", 10.4, 40.0, "48"), ("half", 12.0, 34.0, "64"), ("least", 20.0, 20.0, "128"),
        )
    ]  # fmt: skip


def test_alternatives_are_within_a_limit_or_half() -> None:
    rows = alternative_rows()
    fronts = [["iteration_time_s", "memory_gib"]]
    close, near, half = alternatives(rows[0], rows, ITERATION_TIME, fronts, ["pp"])
    assert [item["point_id"] for item in (close, near, half)] == ["lean", "near", "half"]
    assert close["costs_pct"] == pytest.approx(0.9) and half["costs_pct"] == pytest.approx(20.0)
    assert close["changed"] == {"pp": {"from": "8", "to": "32"}}
    assert half["summary"] == "20.00 % slower, memory_gib 34 instead of 70 (pp 8 -> 64)"
    assert [item["point_id"] for item in alternatives(rows[0], rows[:3], ITERATION_TIME, fronts, ["pp"])] == ["lean"]
    assert alternatives(rows[0], rows, ITERATION_TIME, [["mfu", "memory_gib"]], ["pp"]) == []


def test_the_table_says_whether_it_is_exact() -> None:
    rows = [*alternative_rows(), {"point_id": "x", "status": "rejected", "iteration_time_s": 1.0, "memory_gib": 1.0}]
    for exact in (True, False):
        table = list(pareto_rows(rows, Rules(), [["iteration_time_s", "memory_gib"]], ["pp"], exact))
        assert [row["point_id"] for row in table] == ["best", "close", "lean", "near", "half", "least"]
        assert {row["exact"] for row in table} == {exact}
    assert [*FIRST, *LAST] == [column.name for column in PARETO]
