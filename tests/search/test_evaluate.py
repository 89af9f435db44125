"""What a row says of a simulated point: measures from the time, the bound, and an error's status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scaleacross.engine import TierUse
from scaleacross.errors import Deadlock, Infeasible, InvalidInput, LimitReached
from scaleacross.search.evaluate import Evaluator, Pair, Simulated, judge_bound, measures, tier_columns

WORK = {"gpus": 16, "tokens": 4096, "model_flops": 3.2e15, "peak_flops": 1e15}
PAIR = Pair("plan", "config", "w", "c", json.dumps(WORK), "hash")
SETTINGS = {"simulator": "embedded", "network_model": "unaware", "time_limit_s": 1.0}


def test_measures() -> None:
    row = measures(Simulated(2.0, {"idle_s": 0.5}), WORK)
    assert row == {"iteration_time_s": 2.0, "tokens_per_s": 2048.0, "tflops_per_gpu": 100.0, "mfu": 0.1, "idle_s": 0.5}


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_invalid(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="E-RESULT"):
        measures(Simulated(seconds, {}), WORK)


RATIOS = [(None, "ok"), (1.5, "ok"), (1.0, "ok"), (0.9995, "ok"), (0.998, "unphysical"), (0.1, "unphysical")]


@pytest.mark.parametrize(("ratio", "status"), RATIOS)
def test_faster_than_its_links_is_unphysical(ratio: float | None, status: str) -> None:
    row = judge_bound(Simulated(1.0, {} if ratio is None else {"bound_ratio": ratio}))
    assert row["status"] == status and bool(row["reason"]) is (status == "unphysical")


TIERS = (
    TierUse("node", 1e9, 16e9, 1e9, 0.2, 0.3),
    TierUse("zone-1", 2e9, 40e9, 5e9, 0.1, 0.4, 0.2, 0.7),
)


def test_what_a_row_says_of_tiers() -> None:
    assert tier_columns(TIERS, compute=0.65) == {
        "sent_node_gb": 1.0,
        "cut_node_gb": 1.0,
        "busy_node": 0.3,
        "sent_zone_1_gb": 2.0,
        "cut_zone_1_gb": 5.0,
        "busy_zone_1": 0.7,
        "bottleneck": "zone-1 uplinks",
    }
    assert tier_columns(TIERS, compute=0.7)["bottleneck"] == "compute"


def test_what_a_model_cannot_tell_is_left_out() -> None:
    nan = float("nan")
    assert tier_columns([TierUse("node", 1e9, nan, nan, nan, nan)], compute=0.5) == {"sent_node_gb": 1.0}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Deadlock("E-DEADLOCK", "rank 3 waits"), "deadlock"),
        (LimitReached("E-TIME", "60 s"), "timeout"),
        (InvalidInput("E-X", "bad"), "invalid"),
        (Infeasible("E-X", "bad"), "invalid"),
        (MemoryError(), "crash"),
        (ZeroDivisionError("division by zero"), "crash"),
        (OSError("disk full"), "crash"),
    ],
)
def test_every_error_becomes_a_row(error: BaseException, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(SETTINGS, None, Path())

    def fail(_: Pair) -> Any:
        raise error

    monkeypatch.setattr(evaluator.simulator, "run", fail)
    row = evaluator(PAIR)
    assert row["status"] == status and row["reason"].startswith("E-")
    assert (row["plan_id"], row["config_id"], row["provenance"]) == ("plan", "config", "hash")
    assert row["simulate_wall_s"] >= 0


def test_missing_traces_are_an_invalid_row(tmp_path: Path) -> None:
    pair = Pair("plan", "config", str(tmp_path / "workload"), str(tmp_path), json.dumps(WORK), "hash")
    row = Evaluator(SETTINGS, None, tmp_path)(pair)
    assert row["status"] == "invalid" and row["reason"].startswith("E-")
