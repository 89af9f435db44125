"""Interplay from few known points, the others simulated when asked for, equals interplay from all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scaleacross.errors import Infeasible, LimitReached
from scaleacross.search import ondemand
from scaleacross.search.explain import knobs
from scaleacross.search.interplay import interplay_rows
from scaleacross.search.ondemand import OnDemand, turned_back
from scaleacross.search.select import Rules
from scaleacross.search.whatif import Bench
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import Study
from scaleacross.study.tables import cell

ROOT = Path(__file__).resolve().parents[2]
MODEL = "{name: tiny, layers: 8, hidden: 4096, heads: 32, kv_heads: 8, ffn: 16384, vocab: 32000}"
CLUSTER = """
name: tiny-2dc
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GB/s, latency: 2 us}
  - {name: campus, size: 4, bandwidth: 12 GB/s, latency: 150 us, oversubscription: "{{ oversubscription }}"}
"""
STUDY: dict[str, Any] = {
    "name": "tiny",
    "model": "tiny",
    "cluster": "tiny-2dc",
    "training": {"sequence_length": 2048, "global_batch": 64},
    "fixed": {"tp": 2, "dp_overlap": "backward", "dp_sharding": "fsdp"},
    "dimensions": {
        "order": [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"]],
        "pp": [1, 2, 4],
        "schedule": ["1f1b", "interleaved"],
        "chunks": [1, 2],
        "collective": ["ring", "direct"],
    },
    "environment": {"oversubscription": ["1:4", "1:1"]},
    "constraints": ["(schedule == 'interleaved') == (chunks == 2)", "pp > 1 or chunks == 1"],
    "baselines": {"production": {"order": ["tp", "cp", "pp", "dp"], "pp": 4, "schedule": "interleaved"}},
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name, text in {"config/models/tiny.yaml": MODEL, "config/clusters/tiny-2dc.yaml.j2": CLUSTER}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "config/accelerators").symlink_to(ROOT / "config/accelerators")
    return Bench(Study.model_validate(STUDY), tmp_path / "traces", root=tmp_path)


def table(bench: Bench) -> list[dict[str, Any]]:
    """Every point of the headline environment."""
    rows = []
    for point in enumerate_points(bench.designer.study):
        own = {name: cell(value) for name, value in point.values.items()}
        if own["oversubscription"] != "1:4":
            continue
        try:
            bench.designer.check_constraints(point.values)
            time = bench.seconds(point.values)
        except Infeasible:
            continue
        if time < float("inf"):
            rows.append({**own, "point_id": point.point_id, "status": "ok", "iteration_time_s": time})
    return rows


RULES = Rules(
    {"oversubscription": ["1:4"]},
    {"production": {name: cell(value) for name, value in STUDY["baselines"]["production"].items()}},
)


def test_from_two_known_points_as_from_all(bench: Bench) -> None:
    rows = table(bench)
    complete = interplay_rows(rows, RULES, list(STUDY["dimensions"]))
    first, joint = complete[1]["point_id"], complete[0]["point_id"]
    known = [row for row in rows if row["point_id"] in (first, joint)]
    before = bench.simulations
    found = interplay_rows(
        known, RULES, list(STUDY["dimensions"]), on_demand=lambda environment: OnDemand(bench, environment, known)
    )
    assert [row["method"] for row in found] == [row["method"] for row in complete]
    for ours, exact in zip(found, complete, strict=True):
        assert ours.get("loss_pct") == pytest.approx(exact.get("loss_pct"), abs=1e-6), ours["method"]
        for name in ("pair", "dimensions"):
            assert ours.get(f"{name}_gain_pct") == pytest.approx(exact.get(f"{name}_gain_pct"), abs=1e-6)
    assert any(row.get("loss_pct") for row in complete), "nothing is lost anywhere: the study tests nothing"
    assert 0 < bench.simulations - before <= len(rows)


def test_knobs_of_an_incomplete_table_cost_what_they_cost_in_a_complete_one(bench: Bench) -> None:
    rows = table(bench)
    winner = min(rows, key=lambda row: (row["iteration_time_s"], row["point_id"]))
    against = next(row for row in rows if all(row[k] == v for k, v in RULES.baselines["production"].items()))
    known = [winner, against]
    turned = turned_back(OnDemand(bench, {"oversubscription": "1:4"}, known), winner, against)
    names = list(STUDY["dimensions"])
    exact, found = knobs(winner, rows, against, names), knobs(winner, known, against, names, False, turned=turned)
    compared = [name for name in found if found[name]["alone"]]
    assert compared
    for name in compared:
        assert found[name]["costs_pct"] == pytest.approx(exact[name]["costs_pct"], abs=1e-6)
        assert exact[name]["alone"] and not found[name]["at_most"]


def test_a_subspace_too_large_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ondemand, "MOST", 3)
    rows = table(bench)[:1]
    space = OnDemand(bench, {"oversubscription": "1:4"}, rows)
    assert space.free(rows[0], ["pp"])["iteration_time_s"] <= rows[0]["iteration_time_s"]
    with pytest.raises(LimitReached, match="E-SUBSPACE"):
        space.free(rows[0], ["pp", "order"])
