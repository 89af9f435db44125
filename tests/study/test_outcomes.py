"""Requirements, fronts and prices: what a study may say of outcomes, and how a row is judged by it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.cluster import Cluster, Site, Tier
from scaleacross.cluster.cost import Rates
from scaleacross.errors import InvalidInput
from scaleacross.report.columns import TIER_COLUMNS, dictionary
from scaleacross.search.outcomes import with_outcomes
from scaleacross.study.outcomes import (
    ALSO_REQUIRED,
    COST,
    MORE_IS_BETTER,
    RATE_COLUMNS,
    TRADED,
    all_traffic,
    check_outcomes,
    fronts,
    rate_columns,
    rates_from,
    requirements,
)
from scaleacross.study.schema import Study
from scaleacross.study.tables import cell

TIERS = ["node", "building", "campus"]
PLAIN = Cluster(
    "plain", "gpu", tuple(Tier(name, 2, 5e10, 1e-6, egress=2e-11 if name == "campus" else 0.0) for name in TIERS)
)
PRICED = replace(PLAIN, price=2.0)


def study(**more: Any) -> Study:
    base = {"name": "s", "model": "m", "cluster": "plain", "dimensions": {"pp": [1, 2]}}
    return Study.model_validate({**base, "training": {"sequence_length": 8, "global_batch": 8}, **more})


def test_outcomes_are_numeric_columns_of_the_data_dictionary() -> None:
    known = {column.name for column in dictionary() if column.numeric}
    assert {*TRADED, *ALSO_REQUIRED, *COST} <= known
    assert set(MORE_IS_BETTER) <= set(TRADED)
    assert known - {*TRADED, *ALSO_REQUIRED} == {
        "simulate_wall_s",
        "unpaced_time_s",
        *(column.name.format("<tier>") for column in TIER_COLUMNS),
    }
    assert {column.name.format("node") for column in TIER_COLUMNS if "_gb" in column.name} <= set(all_traffic(["node"]))


def test_default_fronts_are_the_objective_against_memory_and_the_cut() -> None:
    assert fronts(study(), TIERS) == [["iteration_time_s", "memory_gib"], ["iteration_time_s", "cut_campus_gb"]]
    assert fronts(study(objective="tokens_per_usd"), TIERS) == [
        ["tokens_per_usd", "iteration_time_s"],
        ["tokens_per_usd", "memory_gib"],
        ["tokens_per_usd", "cut_campus_gb"],
    ]
    named = study(pareto=[["tokens_per_s", "gpus", "cut"], ["mfu", "sent_node_gb"]])
    assert fronts(named, TIERS) == [["tokens_per_s", "gpus", "cut_campus_gb"], ["mfu", "sent_node_gb"]]
    assert fronts(study(pareto=[]), TIERS) == []


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("pareto", [["iteration_time_s", "memory_gb"]], r"E-PARETO: pareto.0: 'memory_gb'.*memory_gib"),
        ("pareto", [["mfu", "gpus"], ["mfu"]], r"E-PARETO: pareto.1.*two or more"),
        ("pareto", [["cut", "cut_campus_gb"]], r"E-PARETO: pareto.0.*different"),
        ("require", ["memory_gb <= 70"], r"E-REQUIRE: require.0.*'memory_gb'.*memory_gib.*constraints read"),
        ("require", ["mfu > 0.4", "sent_campsu_gb < 1"], r"E-REQUIRE: require.1.*'sent_campsu_gb'.*sent_campus_gb"),
        ("require", ["pp <= 8"], r"E-REQUIRE: require.0.*'pp'.*constraints read the study's own keys"),
        ("require", ["__import__('os')"], r"E-REQUIRE: require.0"),
        ("require", ["mfu >"], r"E-REQUIRE: require.0.*not an expression"),
    ],
)
def test_what_no_result_can_have_is_an_error(key: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput) as error:
        check_outcomes(study(**{key: value}), PRICED)
    assert re.search(told, str(error.value), re.DOTALL), error.value


def test_a_cost_without_a_price_names_the_file_and_what_it_lacks() -> None:
    check_outcomes(study(), PLAIN)
    for more, reader in (
        ({"objective": "tokens_per_usd"}, "objective: tokens_per_usd"),
        ({"require": ["mfu > 0", "usd_per_iteration <= 9"]}, "require.1"),
        ({"pareto": [["iteration_time_s", "tokens_per_usd"]]}, "pareto.0"),
    ):
        check_outcomes(study(**more), PRICED)
        with pytest.raises(InvalidInput, match=rf"E-PRICE: {reader} .*config/clusters/plain.yaml.j2 has no price;"):
            check_outcomes(study(**more), PLAIN)
    sites = (Site("east", 2, 2, "gpu", price=2.0), Site("west", 2, 2, "gpu"))
    with pytest.raises(InvalidInput, match="has no price of site west"):
        check_outcomes(study(objective="tokens_per_usd"), replace(PRICED, sites=sites))


def row(**more: Any) -> dict[str, Any]:
    """A joined row as ``aggregate`` sees it: design cells are text, results numbers."""
    rates = Rates(8, 16.0, 8 * 700.0, {"campus": 2e-11})
    cells = {name: cell(value) for name, value in rate_columns(rates).items()}
    base = {"status": "ok", "reason": "", "iteration_time_s": 9.0, "tokens_per_s": 100.0, "memory_gib": "70.5"}
    return {**base, "sent_node_gb": 5.0, "sent_campus_gb": 1.0, **cells, **more}


def test_cost_and_energy_of_a_row() -> None:
    found = with_outcomes(row(), [], TIERS)
    # 16 USD an hour for 9 s, and 1 GB of each of 8 GPUs at 2 cents
    assert found["usd_per_iteration"] == pytest.approx(16 * 9 / 3600 + 8 * 0.02)
    assert found["tokens_per_usd"] == pytest.approx(900 / found["usd_per_iteration"])
    assert found["energy_kwh_per_iteration"] == pytest.approx(8 * 0.7 * 9 / 3600)
    assert found["sent_building_gb"] == 0.0  # a tier that nothing uses


def test_unknown_traffic_leaves_the_cost_open_where_it_is_priced() -> None:
    silent = row(sent_node_gb=None, sent_campus_gb=None)
    assert "tokens_per_usd" not in with_outcomes(silent, [], TIERS)
    assert with_outcomes({**silent, "egress_usd_per_gb": ""}, [], TIERS)["usd_per_iteration"] == pytest.approx(0.04)
    assert "usd_per_iteration" not in with_outcomes(row(usd_per_hour=""), [], TIERS)
    failed = row(status="timeout", iteration_time_s=None)
    assert with_outcomes(failed, requirements(["mfu > 1"], TIERS), TIERS) == failed


def test_a_row_that_misses_a_requirement_is_rejected_with_its_values() -> None:
    wanted = requirements(["iteration_time_s <= 10", "memory_gib <= 70 or sent_building_gb > 0"], TIERS)
    found = with_outcomes(row(), wanted, TIERS)
    assert found["status"] == "rejected" and found["iteration_time_s"] == 9.0
    assert found["reason"].startswith(
        "E-REQUIRE: memory_gib <= 70 or sent_building_gb > 0 is not met by memory_gib = 70.5"
    )
    assert with_outcomes(row(memory_gib="69"), wanted, TIERS)["status"] == "ok"
    assert with_outcomes(row(status="unphysical"), wanted, TIERS)["status"] == "rejected"
    silent = with_outcomes(row(), requirements(["idle_s < 1"], TIERS), TIERS)
    assert silent["status"] == "rejected" and "tells no idle_s" in silent["reason"]


@given(
    st.integers(1, 10**6), st.none() | st.floats(0.01, 1e7), st.none() | st.floats(1, 1e9),
    st.dictionaries(st.sampled_from(["campus", "wide_area"]), st.floats(1e-13, 1e-9)),
)  # fmt: skip
def test_rates_survive_the_table(
    gpus: int, hourly: float | None, watts: float | None, egress: dict[str, float]
) -> None:
    rates = Rates(gpus, hourly, watts, egress)
    cells = {name: cell(value) for name, value in rate_columns(rates).items()}
    assert set(cells) == set(RATE_COLUMNS)
    found = rates_from(cells)
    assert (found.gpus, found.usd_per_hour) == (gpus, hourly)
    assert found.watts == (None if watts is None else pytest.approx(watts))
    assert found.egress == pytest.approx(egress)
