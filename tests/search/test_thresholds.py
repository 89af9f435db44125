"""Thresholds against brute force: every design simulated at, before and beyond each threshold that was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scaleacross.report.change import memory_sentences, nearest
from scaleacross.search.sensitivity import thresholds
from scaleacross.search.thresholds import NOISE, TIE, Candidate, less_memory
from scaleacross.search.whatif import AllBetter, Bench, Quantity, Times, quantities, unchanged
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
  - {name: zone, size: 2, bandwidth: 50 GB/s, latency: 35 us}
  - {name: campus, size: 2, bandwidth: 50 GB/s, latency: 150 us, oversubscription: "1:4"}
"""
DIMENSIONS: dict[str, list[Any]] = {
    "order": [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"]],
    "tp": [1, 2, 4],
    "pp": [1, 2],
    "collective": ["ring", "direct"],
}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Rows, Bench]]:
    root = tmp_path_factory.mktemp("project")
    for name, text in {"config/models/tiny.yaml": MODEL, "config/clusters/tiny-2dc.yaml.j2": CLUSTER}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "config/accelerators").symlink_to(ROOT / "config/accelerators")
    study = Study.model_validate(
        {
            "name": "tiny",
            "model": "tiny",
            "cluster": "tiny-2dc",
            "training": {"sequence_length": 2048, "global_batch": 64},
            "fixed": {"schedule": "1f1b", "dp_overlap": "backward", "dp_sharding": "fsdp"},
            "dimensions": DIMENSIONS,
        }
    )
    bench, rows = Bench(study, root / "traces", root=root), []
    for point in enumerate_points(study):
        plan = bench.plan(point.values, unchanged)[1]
        own = {name: cell(value) for name, value in point.values.items()}
        ids = {"point_id": point.point_id, "plan_id": plan.plan_id, "config_id": str(own), "status": "ok", "reason": ""}
        rows.append({**own, **ids, **plan.memory.columns(), "iteration_time_s": bench.seconds(point.values)})
    winner = min(rows, key=lambda row: row["iteration_time_s"])
    for row in rows:  # half of the designs, the fastest of them too, are said to lack memory
        if row["tp"] == "1" and row is not winner:
            row.update(status="infeasible", reason="E-MEMORY: too little", memory_gib=100.0, memory_limit_gib=76.0)
    content = {
        "study": study.model_dump(mode="json"),
        "dimension_columns": list(study.swept),
        "run_settings": {"time_limit_s": 60.0},
    }
    yield thresholds(content, rows, root / "traces", 2, None, root), rows, bench
    bench.close()


def times(bench: Bench, rows: Rows, quantity: Quantity, factor: float) -> tuple[float, float, str]:
    """Time of the winner of the table, and the least of the others with its id, all simulated."""
    ok = sorted((row for row in rows if row["status"] == "ok"), key=lambda row: row["iteration_time_s"])
    values = {point.point_id: point.values for point in enumerate_points(bench.designer.study)}
    change = Times(quantity, factor)
    others = [(bench.seconds(values[row["point_id"]], change), row["point_id"]) for row in ok[1:]]
    return bench.seconds(values[ok[0]["point_id"]], change), *min(others)


def test_every_threshold_is_where_brute_force_finds_it(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    result, rows, bench = found
    assert result["network"], "a study without any threshold tests nothing"
    for entry in result["network"]:
        quantity = Quantity(entry["tier"], entry["quantity"])
        factor = entry["wins"]["factor"]
        own, other, _ = times(bench, rows, quantity, factor)
        assert own / other - 1 > TIE - 1e-4, entry
        for closer in (factor**0.3, factor**0.6, factor**0.85):  # nearer, no design wins by more than the model's noise
            own, other, _ = times(bench, rows, quantity, closer)
            assert own / other - 1 < NOISE, entry
        if "wins_clearly" in entry:
            own, other, _ = times(bench, rows, quantity, entry["wins_clearly"]["factor"])
            assert own / other - 1 > NOISE - 1e-4, entry
            assert abs(entry["wins_clearly"]["factor"] - 1) >= abs(factor - 1)


def test_at_the_end_of_the_reach_it_is_the_fastest_of_all(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    result, rows, bench = found
    for entry in result["network"]:
        own, other, who = times(bench, rows, Quantity(entry["tier"], entry["quantity"]), entry["at_end"]["factor"])
        assert entry["at_end"]["margin_pct"] == pytest.approx(100 * (own / other - 1), abs=0.01)
        assert who == entry["at_end"]["point_id"] or own / other - 1 < TIE


def test_what_is_told_to_change_nothing_changes_nothing(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    result, rows, bench = found
    cluster = bench.designer.setting(next(enumerate_points(bench.designer.study)).values).cluster
    for entry in result["unchanged"]:
        quantity = Quantity(entry["tier"], entry["quantity"])
        for factor in (8.0, 1 / 8):
            if quantity.text(Times(quantity, factor)(cluster)) == entry["until"]:
                own, other, _ = times(bench, rows, quantity, factor)
                assert own / other - 1 <= TIE, entry


def test_memory(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    result, rows, _ = found
    misses = [row for row in rows if row["status"] == "infeasible"]
    winner = min((row for row in rows if row["status"] == "ok"), key=lambda row: row["iteration_time_s"])
    faster = [row for row in misses if row["iteration_time_s"] * (1 + TIE) < winner["iteration_time_s"]]
    assert bool(faster) == ("wins" in result["memory"]["more"])
    less = result["memory"]["less"]
    assert less["needs_gib"] == winner["memory_gib"]
    fitting = [r for r in rows if r["status"] == "ok" and r["memory_gib"] < winner["memory_gib"]]
    if fitting:
        assert less["below_that"]["point_id"] == min(fitting, key=lambda row: row["iteration_time_s"])["point_id"]


def test_less_memory_where_nothing_needs_less() -> None:
    row = {"point_id": "a", "memory_gib": 10.0, "memory_limit_gib": 76.0, "iteration_time_s": 1.0}
    assert less_memory(row, [row], []) == {"needs_gib": 10.0, "limit_gib": 76.0, "headroom_gib": 66.0}
    told = memory_sentences({"memory": {"less": less_memory(row, [row], []), "more": {}}})
    assert told == [
        "The design needs 10.0 GiB of 76.0 GiB, so 66.0 GiB are left; no other design that was simulated needs less."
    ]


def test_a_better_network_bounds_every_single_change(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    _, rows, bench = found
    values = {point.point_id: point.values for point in enumerate_points(bench.designer.study)}[rows[0]["point_id"]]
    floor, cluster = bench.bound(values, AllBetter(8.0)), bench.designer.setting(values).cluster
    for quantity in quantities(cluster):
        factor = 8.0 if quantity.name == "bandwidth" else 1 / 8
        assert floor <= bench.seconds(values, AllBetter(8.0, quantity.tier)) * (1 + 1e-9)
        assert floor <= bench.seconds(values, Times(quantity, factor)) * (1 + 1e-9)


def test_in_words(found: tuple[dict[str, Any], Rows, Bench]) -> None:
    result, _, _ = found
    text = nearest(result)
    first = result["network"][0]
    assert first["wins"]["value"] in text and first["tier"] in text and text.endswith(".")
    assert "GiB are left" in memory_sentences(result)[0]
    assert nearest({"network": []}).startswith("No change")
    assert nearest({"note": "no winner"}) == "no winner" and nearest({}) == ""


def test_a_study_can_do_without() -> None:
    study = {
        "name": "tiny",
        "model": "tiny",
        "cluster": "tiny-2dc",
        "training": {"sequence_length": 2048, "global_batch": 64},
        "dimensions": DIMENSIONS,
    }
    asked = [thresholds({"study": {**study, "thresholds": wanted}}, [], Path(), 1, None) for wanted in (True, False)]
    assert asked[0] == {"note": "no winner"} and nearest(asked[1]).endswith("(thresholds: false)")


def test_a_margin_belongs_to_the_design_that_has_it() -> None:
    wins = {"value": "130 GB/s", "factor": 0.36, "point_id": "a", "design": {"dp_sharding": "fsdp"}}
    end = {"value": "45 GB/s", "point_id": "b", "design": {"order": "tp-cp-pp-dp"}, "margin_pct": 1.77}
    item = {"tier": "node", "quantity": "bandwidth", "now": "362 GB/s", "wins": wins, "at_end": end}
    assert nearest({"network": [item]}).endswith("dp_sharding fsdp wins; order tp-cp-pp-dp by 1.8 % at 45 GB/s.")
    same = {**end, "point_id": "a", "design": wins["design"]}
    assert nearest({"network": [{**item, "at_end": same}]}).endswith("dp_sharding fsdp wins, by 1.8 % at 45 GB/s.")


def test_a_paced_row_races_with_its_own_time() -> None:
    """On changed networks designs are simulated as they are, so on the network as it is, too."""
    row: dict[str, Any] = {"iteration_time_s": 1.9, "unpaced_time_s": None}
    assert Candidate({}, row).seconds == 1.9
    assert Candidate({}, {**row, "unpaced_time_s": 2.0}).seconds == 2.0
