"""The decision on made-up rows: who may win, against whom, in which environment."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.search.optimum import optimum
from scaleacross.search.select import Rules, best, contenders, environments, rules_of, speedups

RULES = Rules(
    environment={"oversubscription": ["1:2.8", "1:7"]},
    baselines={
        "production": {"schedule": "interleaved", "order": "tp-cp-pp-dp"},
        "simple": {"schedule": "1f1b"},
        "published": {"best_of": ["production", "simple"]},
    },
)


def row(point: str, time: float | None, status: str = "ok", **values: Any) -> dict[str, Any]:
    return {
        "point_id": point, "status": status, "oversubscription": "1:2.8", "schedule": "interleaved",
        "order": "tp-cp-pp-dp", "iteration_time_s": time, "memory_gib": 60.0, "plan_id": f"plan-{point}",
        "config_id": "c", "compute_s": time, "simulator": "embedded", "network_model": "scaleacross", **values,
    }  # fmt: skip


ROWS = [
    row("a", 6.0),
    row("b", 5.0, order="tp-cp-dp-pp"),
    row("c", 5.5, schedule="1f1b"),
    row("d", 1.0, "unphysical"),
    row("e", 0.5, "crash"),
    row("f", None, "infeasible"),
    row("g", 9.0, oversubscription="1:7"),
]


def test_speedups_in_every_environment() -> None:
    table = {(item["oversubscription"], item["baseline"]): item for item in speedups(ROWS, RULES)}
    assert len(table) == 6
    production = table["1:2.8", "production"]
    assert (production["best_point_id"], production["baseline_point_id"]) == ("b", "a")
    assert production["speedup_pct"] == pytest.approx(20.0)
    assert table["1:2.8", "simple"]["speedup_pct"] == pytest.approx(10.0)
    assert table["1:2.8", "published"]["baseline_point_id"] == "c"
    assert table["1:7", "production"]["speedup_pct"] == 0.0
    assert "baseline_point_id" not in table["1:7", "simple"]


def test_unphysical_wins_only_where_the_study_says_so() -> None:
    loose = Rules(RULES.environment, RULES.baselines, allow_unphysical=True)
    assert best(contenders(ROWS, RULES, {"oversubscription": "1:2.8"}))["point_id"] == "b"  # type: ignore[index]
    assert best(contenders(ROWS, loose, {"oversubscription": "1:2.8"}))["point_id"] == "d"  # type: ignore[index]


def test_equal_times_go_to_less_memory_then_to_the_id() -> None:
    rows = [row("z", 1.0), row("y", 1.0, memory_gib=50.0), row("x", 1.0, memory_gib=50.0)]
    assert best(rows)["point_id"] == "x"  # type: ignore[index]
    assert best([]) is None


def test_no_environment_is_one_environment() -> None:
    assert list(environments(Rules())) == [{}]


def test_rules_of_a_study() -> None:
    rules = rules_of({"environment": {"latency": [1, 2]}, "baselines": {"p": {"order": ["tp", "dp"], "sp": True}}})
    assert rules == Rules({"latency": ["1", "2"]}, {"p": {"order": "tp-dp", "sp": "true"}}, False)


def test_optimum_says_why() -> None:
    result = optimum(ROWS, RULES, ["schedule", "order"], Path("results/s/traces"), Path("astra_configs/s"))
    headline, other = result["environments"]
    assert headline["point_id"] == "b"
    assert headline["traces"] == "results/s/traces/plan-b"
    assert headline["network_model"] == "scaleacross" and headline["command"].endswith("--network-model=scaleacross")
    assert headline["why"]["changed"] == {"order": {"from": "tp-cp-pp-dp", "to": "tp-cp-dp-pp"}}
    assert headline["why"]["seconds_saved"] == {"compute": 1.0}
    assert headline["speedup_pct"] == {"production": 20.0, "simple": 10.0, "published": 10.0}
    assert other["point_id"] == "g" and "production is the best design" in other["why"]["summary"]


def test_optimum_of_nothing() -> None:
    result = optimum([], RULES, ["schedule"], Path("t"), Path("c"))
    assert [entry["point_id"] for entry in result["environments"]] == [None, None]


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=12), st.floats(0.5, 2.0))
def test_a_speedup_is_never_negative_and_free_of_scale(times: list[float], scale: float) -> None:
    rows = [row(f"p{i}", time) for i, time in enumerate(times)]
    scaled = [{**item, "iteration_time_s": item["iteration_time_s"] * scale} for item in rows]
    rules = Rules(baselines={"first": {"order": "tp-cp-pp-dp"}})
    before, after = speedups(rows, rules)[0], speedups(scaled, rules)[0]
    assert before["speedup_pct"] >= 0
    assert before["best_time_s"] == min(times)
    assert after["speedup_pct"] == pytest.approx(before["speedup_pct"], abs=1e-6)
