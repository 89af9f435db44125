"""What knobs bought and what binds, on rows whose answer is known."""

from typing import Any

import pytest
from scaleacross.search.explain import knobs, uses


def row(point: str, time: float, pp: str, schedule: str) -> dict[str, Any]:
    return {"point_id": point, "iteration_time_s": time, "pp": pp, "schedule": schedule, "tp": "8"}


ROWS = [
    row("best", 1.0, "4", "zbv"),
    row("pp-back", 1.2, "2", "zbv"),
    row("next", 1.1, "8", "zbv"),
    row("base", 2.0, "2", "1f1b"),
]


def test_a_knob_goes_back_to_the_baseline_alone_where_that_point_is_ok() -> None:
    found = knobs(ROWS[0], ROWS, ROWS[3], ["pp", "schedule", "tp"])
    assert list(found) == ["schedule", "pp"]  # most costly first; tp does not vary
    assert found["pp"]["costs_pct"] == pytest.approx(20.0) and found["pp"]["alone"]
    assert found["schedule"]["point_id"] == "base" and not found["schedule"]["alone"]


def test_without_a_baseline_the_next_best_value_counts() -> None:
    assert knobs(ROWS[0], ROWS, None, ["pp"])["pp"]["instead"] == "8"


def test_of_an_incomplete_table_a_cost_is_an_upper_limit() -> None:
    found = knobs(ROWS[0], ROWS, ROWS[3], ["pp", "schedule"], complete=False)
    assert found["schedule"]["at_most"] and not found["pp"]["at_most"]  # pp: exactly the point that was asked for
    assert not any(entry["at_most"] for entry in knobs(ROWS[0], ROWS, ROWS[3], ["pp", "schedule"]).values())


def test_what_binds() -> None:
    busy = {"busy_node": 0.1, "busy_campus": 0.8, "busy_zone": None, "bottleneck": "campus uplinks"}
    winner = {"iteration_time_s": 1.0, "compute_s": 0.5, "memory_gib": 76.0, "memory_limit_gib": 80.0, **busy}
    found = uses(winner)
    assert found["share"] == {"compute": 0.5, "node": 0.1, "campus": 0.8}
    assert found["binds"] == "campus uplinks and memory" and found["memory"] == 0.95
    assert uses({**winner, "memory_gib": 40.0})["binds"] == "campus uplinks"
    assert uses({"iteration_time_s": 1.0}) == {"share": {}}
