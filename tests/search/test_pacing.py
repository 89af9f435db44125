"""The law of pacing, on rows made up: a better network is never slower than a worse one, and nothing else changes."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from scaleacross.cli.main import main
from scaleacross.search.pacing import NOTICED, paced
from scaleacross.study.tables import read_csv, write_csv

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


def test_the_table_takes_a_run_that_meets_what_the_study_requires(tmp_path: Path) -> None:
    """Two plans on two networks: each is quicker on the worse one, where one of them misses a requirement."""
    points, rows = [], []
    for plan in ("a", "b"):
        for number, time, exposed in ((0, 2.0, 0.05), (1, 1.9, 0.2 if plan == "a" else 0.06)):
            ids = {"plan_id": plan, "config_id": f"{plan}{number}"}
            points.append({"point_id": f"p{plan}{number}", "status": "feasible", "gpus": 8, "pp": 1, **ids})
            network = {"rest": "x", "numbers": [1.0, 1.0, 1.0 + number]}
            measured = {"status": "ok", "reason": "", "iteration_time_s": time, "exposed_dp_s": exposed}
            rows.append({**ids, **measured, "network": network, "tokens_per_s": 1.0})
    study = {"study": {"require": ["exposed_dp_s <= 0.1"]}, "tiers": ["node"], "dimension_columns": ["pp"], "key": "k"}
    write_csv(tmp_path / "points.csv", points, list(points[0]))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "study.json").write_text(json.dumps(study))
    files = [str(tmp_path / name) for name in ("rows.jsonl", "points.csv", "study.json", "results.csv", "made.yaml")]
    words = ["aggregate", files[0], "--points", files[1], "--study", files[2], "--output", files[3]]
    assert main([*words, "--provenance", files[4]]) == 0
    table = {row["point_id"]: row for row in read_csv(tmp_path / "results.csv", ["iteration_time_s", "unpaced_time_s"])}
    assert [table[f"p{name}"]["status"] for name in ("a0", "a1", "b0", "b1")] == ["ok", "rejected", "ok", "ok"]
    assert [table[f"p{name}"]["iteration_time_s"] for name in ("a0", "a1", "b0", "b1")] == [2.0, 1.9, 1.9, 1.9]
    assert (table["pb0"]["config_id"], table["pb0"]["unpaced_time_s"], table["pa0"]["config_id"]) == ("b1", 2.0, "a0")
