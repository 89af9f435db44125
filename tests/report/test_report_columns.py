"""The data dictionary is complete and agrees with what the flow writes."""

import pytest
from scaleacross.cli.columns import result_columns
from scaleacross.report.columns import (
    BREAKDOWN,
    IDENTITY,
    MEASURES,
    SPEEDUPS,
    TIER_COLUMNS,
    describe,
    dictionary,
    dictionary_markdown,
    dimension_columns,
    missing_columns,
    tier_of,
)

SUFFIXES = {
    "_s": "s",
    "_gib": "GiB",
    "_gb": "GB",
    "_pct": "%",
    "_per_s": "tokens/s",
    "tflops_per_gpu": "TFLOP/s",
    "usd_per_hour": "USD/h",
    "usd_per_iteration": "USD",
    "tokens_per_usd": "tokens/USD",
    "_kwh_per_iteration": "kWh",
}


@pytest.mark.parametrize("column", [*dictionary(), *SPEEDUPS], ids=lambda column: column.name)
def test_a_unit_is_in_the_name_and_everything_has_a_meaning(column):
    assert len(column.meaning) > 10
    longest = max((end for end in SUFFIXES if column.name.endswith(end)), key=len, default="")
    assert column.unit == SUFFIXES.get(longest, "")


def test_names_are_distinct():
    names = [column.name for column in dictionary()]
    assert len(set(names)) == len(names)


def test_the_flow_writes_exactly_the_dictionary_and_the_dimensions():
    dimensions, tiers = ["oversubscription", "tp", "pp", "order"], ["node", "zone", "campus"]
    columns = result_columns(dimensions, tiers)
    assert dimension_columns(columns) == dimensions
    assert missing_columns(columns) == []
    for kind in ("sent", "cut", "busy"):
        assert [tier_of(name, kind) for name in columns if tier_of(name, kind)] == tiers
    known = {column.name for column in (*IDENTITY, *MEASURES)}
    assert set(columns) == known | set(dimensions) | {c.name.format(tier) for tier in tiers for c in TIER_COLUMNS}
    assert len(columns) == len(set(columns))


def test_missing_columns_are_named():
    assert missing_columns(["point_id", "tp"])[:2] == ["status", "reason"]


def test_tiers_with_underscores_are_traffic_columns_and_dimensions_are_not():
    assert describe("sent_building_2_gb").unit == "GB"
    assert describe("uplink_latency") is None
    assert describe("sent_gb") is None
    assert tier_of("cut_building_2_gb", "cut") == "building_2" and tier_of("cut_building_2_gb") is None
    assert "into the building_2 tier over what it can carry" in describe("busy_building_2").meaning
    assert describe("busy_") is None and describe("cut_zone") is None


def test_the_parts_of_the_time_are_those_of_the_engines_axes():
    axes = ["tp", "cp", "ep", "pp", "dp", "other"]
    assert [column.name for column in BREAKDOWN] == ["compute_s", *(f"exposed_{axis}_s" for axis in axes), "idle_s"]


def test_the_markdown_has_a_row_for_every_column():
    text = dictionary_markdown()
    for column in (*dictionary(), *SPEEDUPS):
        assert f"| `{column.name}` | {column.unit or '-'} | {column.meaning} |" in text
