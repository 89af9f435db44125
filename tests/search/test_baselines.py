"""Baselines: the best of others, a plan that another cost model picks, and what their texts say."""

from typing import Any

import pytest
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.plan.placement import place
from scaleacross.search.baselines import DEFINITIONS, baseline_notes, cost_column, described, picked
from scaleacross.search.sailor import PairSpeed, sailor_seconds
from scaleacross.search.select import baseline_row, rules_of, speedups
from scaleacross.trace.cookbook import Cookbook
from scaleacross.trace.timing import stage_delays, stage_durations

STUDY = {
    "baselines": {
        "sailor": {"picked_by": "sailor", "schedule": "1f1b"},
        "crosspipe": {"order": ["dp", "pp"]},
        "state-of-the-art": {"best_of": ["sailor", "crosspipe"]},
    }
}


def row(point: str, time: float, estimate: float | None, **values: Any) -> dict[str, Any]:
    base = {"point_id": point, "status": "ok", "iteration_time_s": time, "schedule": "1f1b", "order": "pp-dp"}
    return {**base, cost_column("sailor"): estimate, **values}


ROWS = [
    row("fast", 1.0, 9.0),
    row("liked", 3.0, 2.0),
    row("liked-too", 2.5, 2.0),
    row("other-schedule", 0.5, 1.0, schedule="zbv"),
    row("across", 2.0, 5.0, order="dp-pp"),
    row("unknown", 0.7, None),
]


def test_a_cost_model_picks_and_our_simulator_judges() -> None:
    rules = rules_of(STUDY)
    chosen = baseline_row(ROWS, rules, "sailor")
    assert chosen is not None and chosen["point_id"] == "liked-too"  # of what it cannot tell apart, the faster
    art = baseline_row(ROWS, rules, "state-of-the-art")
    assert art is not None and art["point_id"] == "across"
    gains = {item["baseline"]: item["speedup_pct"] for item in speedups(ROWS, rules)}
    assert gains == {"sailor": 400.0, "crosspipe": 300.0, "state-of-the-art": 300.0}


def test_without_estimates_nothing_is_picked() -> None:
    assert picked([row("a", 1.0, None)], "sailor") == []


def test_every_known_baseline_has_a_source_and_the_report_gets_it() -> None:
    assert all(known.source and known.says for known in DEFINITIONS.values())
    names = ["production", "atlas", "mine"]
    assumed, sources = list(baseline_notes(names, True)), list(baseline_notes(names, False))
    assert {note["subject"] for note in assumed} == {"baseline production", "baseline atlas"}
    assert any(note["text"].startswith("left out: temporal sharing") for note in assumed)
    assert len(sources) == 2
    entries = described({"atlas": {"pp": 4}, "mine": {"pp": 2}})
    assert entries["mine"] == {"definition": {"pp": 2}}
    assert entries["atlas"]["left_out"]


def tiers(bandwidth: float, latency: float) -> list[PairSpeed]:
    return [PairSpeed("node", 4e11, 2e-6), PairSpeed("campus", bandwidth, latency)]


def cookbook(order: list[str]) -> Cookbook:
    from scaleacross.cluster import load_accelerator
    from scaleacross.model import load_model

    class Tier:
        def __init__(self, name: str, size: int) -> None:
            self.name, self.size = name, size

    plan = parallelism_from({"pp": 2, "order": order, "micro_batch": 1}, gpus=8)
    accelerator = load_accelerator("config/accelerators/h100-sxm.yaml")
    model = load_model("config/models/llama3-8b.yaml")
    placement = place(plan, [Tier("node", 4), Tier("campus", 2)])
    return Cookbook(model, Training(8192, 32), plan, placement, accelerator)


def test_sailors_formula() -> None:
    """Checked by hand from the parts: 8 micro-batches through 2 stages, gradients over 4 ranks in 500 MB buckets."""
    book, speeds = cookbook(["tp", "cp", "dp", "pp"]), tiers(5e10, 1e-4)
    stages = [sum(times) * 1e-9 for times in zip(*stage_durations(book, speeds), strict=True)]
    send = stage_delays(book, speeds)[0][1] * 1e-9
    held = max(sum(unit.dense for unit in units) for units in book.positions) * 4
    rest = held - 500e6 * (held // 500e6)
    buckets = [500e6] * int(held // 500e6) + [rest]
    sync = sum(2 * 3 * (2e-6 + size / 4 / 4e11) for size in buckets)
    expected = 7 * max(stages[0] + send, stages[1]) + send + sum(stages) + sync
    assert sailor_seconds(book, speeds) == pytest.approx(expected, rel=1e-12)


def test_sailor_sees_a_slow_cut() -> None:
    across, beside = cookbook(["tp", "cp", "dp", "pp"]), cookbook(["tp", "cp", "pp", "dp"])
    slow, fast = tiers(1e8, 1e-3), tiers(4e11, 2e-6)
    assert sailor_seconds(beside, slow) > sailor_seconds(beside, fast)
    assert sailor_seconds(across, slow) < sailor_seconds(beside, slow)
