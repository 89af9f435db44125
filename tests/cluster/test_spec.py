"""Cluster files: the presets, scalars that plain YAML gets wrong, sources, and one clear error for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.cluster import Cluster, load_cluster, parse_oversubscription, template_variables
from scaleacross.errors import InvalidInput

CLUSTERS = Path(__file__).parents[2] / "config" / "clusters"
PRESETS = sorted(path.name for path in CLUSTERS.glob("*.yaml.j2"))

MINIMAL = """
name: mini
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - name: zone
    size: 2
    bandwidth: 400 Gbps
    latency: 35 us
    oversubscription: 1:7
    source: {bandwidth: a data sheet, latency: "assumption: a guess"}
"""


def cluster_of(folder: Path, text: str, **values: Any) -> Cluster:
    path = folder / "mini.yaml.j2"
    path.write_text(text)
    return load_cluster(path, values)


def error_of(folder: Path, text: str, **values: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        cluster_of(folder, text, **values)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_default_cluster_has_the_published_network() -> None:
    cluster = load_cluster(CLUSTERS / "meta-2dc-16k.yaml.j2")
    assert cluster.gpus == 16_384
    assert [(tier.name, tier.size) for tier in cluster.tiers] == [
        ("node", 8),
        ("zone", 256),
        ("building", 4),
        ("campus", 2),
    ]
    assert [tier.oversubscription for tier in cluster.tiers] == [1, 1, 2.8, 2.8]
    in_rack = 5e-6
    assert [tier.latency / in_rack for tier in cluster.tiers[1:]] == pytest.approx([7, 15, 30])
    measured = (46e9, 48e9)  # what collectives reach of a 400 Gb/s NIC, NVIDIA/nccl-tests issue 290
    assert all(measured[0] <= tier.bandwidth <= measured[1] for tier in cluster.tiers[1:])
    assert all(tier.bandwidth == pytest.approx(362e9) for tier in cluster.tiers[:1])


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_and_says_where_each_number_comes_from(preset: str) -> None:
    cluster = load_cluster(CLUSTERS / preset)
    assert cluster.name == preset.removesuffix(".yaml.j2")
    assert not [str(note) for note in cluster.sources() if "no source stated" in note.text]
    for tier in cluster.tiers:
        fields = {note.field for note in tier.notes}
        assert "size" in fields and ("bandwidth" in fields or "pairs" in fields)
    outward = [tier.latency for tier in cluster.tiers]
    assert outward == sorted(outward)


@pytest.mark.parametrize(
    ("preset", "values", "tier", "expected"),
    [
        ("meta-2dc-16k", {"oversubscription": "1:7"}, "building", {"oversubscription": 7.0}),
        ("meta-2dc-16k", {"uplink_latency": "5 ms"}, "campus", {"latency": 5e-3}),
        ("llama3-24k", {"pod_racks": 128}, "pod", {"size": 128}),
        ("llama3-24k", {}, "building", {"oversubscription": 7.0}),
        ("meta-5dc", {"buildings": 4}, "campus", {"size": 4}),
        ("bag-regions", {}, "region", {"oversubscription": 4.5}),
        ("metro", {"distance": "10 km"}, "region", {"latency": 0.2e-3}),
        ("metro", {"distance": "100 km"}, "region", {"latency": 0.65e-3}),
        ("long-haul-1000km", {}, "region", {"latency": 5.15e-3, "oversubscription": 10.0}),
    ],
)
def test_a_point_s_values_reach_the_tiers(
    preset: str, values: dict[str, Any], tier: str, expected: dict[str, float]
) -> None:
    path = CLUSTERS / f"{preset}.yaml.j2"
    loaded = load_cluster(path, values).tier(tier)
    assert {name: getattr(loaded, name) for name in expected} == pytest.approx(expected)
    assert set(values) <= template_variables(path)


def test_a_swept_number_is_shown_as_an_assumption() -> None:
    path = CLUSTERS / "meta-2dc-16k.yaml.j2"

    def assumed(**values: Any) -> set[tuple[str, str]]:
        return {(note.tier, note.field) for note in load_cluster(path, values).assumptions()}

    assert ("campus", "oversubscription") not in assumed()
    assert ("campus", "oversubscription") in assumed(oversubscription="1:1")
    assert ("zone", "bandwidth") not in assumed() and ("zone", "latency") in assumed()


def test_yaml_1_1_does_not_turn_ratios_into_base_sixty_numbers(tmp_path: Path) -> None:
    assert cluster_of(tmp_path, MINIMAL).tier("zone").oversubscription == 7
    assert cluster_of(tmp_path, MINIMAL.replace("1:7", "1:2.8")).tier("zone").oversubscription == 2.8


def test_sources_are_kept_and_a_number_without_one_is_an_assumption(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, MINIMAL)
    texts = {(note.tier, note.field): note.text for note in cluster.sources()}
    assert texts["zone", "bandwidth"] == "a data sheet"
    assert texts["node", "latency"] == "assumption: no source stated"
    assert ("zone", "bandwidth") not in {(note.tier, note.field) for note in cluster.assumptions()}
    assert {note.value for note in cluster.sources()} >= {"400 Gbps", "1:7", "35 us", "h100-sxm"}


def test_distance_adds_five_microseconds_a_kilometre(tmp_path: Path) -> None:
    text = MINIMAL.replace("latency: 35 us", "distance: 20 km").replace('latency: "assumption: a guess"', "size: x")
    assert cluster_of(tmp_path, text).tier("zone").latency == pytest.approx(100e-6)


@pytest.mark.parametrize(
    ("old", "new", "error_id", "says"),
    [
        ("oversubscription: 1:7", "oversubscripton: 1:7", "E-KEY", ["tiers.1.oversubscripton", "'oversubscription'?"]),
        ("accelerator:", "acelerator:", "E-KEY", ["'acelerator'", "did you mean 'accelerator'?"]),
        ("    bandwidth: 400 Gbps\n", "", "E-KEY", ["'tiers.1.bandwidth' is missing"]),
        ("400 Gbps", "1e9", "E-VALUE", ["tiers.1.bandwidth", "1000000000.0 has no unit"]),
        ("400 Gbps", "no", "E-VALUE", ["tiers.1.bandwidth", "'no'"]),
        ("400 Gbps", "true", "E-VALUE", ["tiers.1.bandwidth", "True has no unit"]),
        ("400 Gbps", "400 us", "E-VALUE", ["tiers.1.bandwidth", "400 Gbps or 50 GB/s"]),
        ("400 Gbps", "-1 GB/s", "E-VALUE", ["tiers.1.bandwidth", "greater than 0"]),
        ("400 Gbps", ".inf GB/s", "E-VALUE", ["tiers.1.bandwidth"]),
        ("400 Gbps", "1e12 GB/s", "E-VALUE", ["tiers.1.bandwidth", "more than 1e+15 byte/second"]),
        ("400 Gbps", "1,5 GB/s", "E-VALUE", ["tiers.1.bandwidth", "no comma"]),
        ("400 Gbps", "100 bps", "E-VALUE", ["tiers.zone", "leaves a GPU 1.79 B/s", "10000 B/s or more"]),
        ("1:7", "1:9999999999", "E-VALUE", ["tiers.zone", "leaves a GPU"]),
        ("1:7", '"1:1e9"', "E-VALUE", ["tiers.1.oversubscription", 'write "1:1e+09"']),
        ("latency: 35 us", "latency: 1e12 us", "E-VALUE", ["tiers.1.latency", "more than 100 second"]),
        ("latency: 35 us", "distance: 1e12 km", "E-VALUE", ["more than 1e+09 meter"]),
        ("latency: 35 us", "latency: -1 us", "E-VALUE", ["tiers.1.latency"]),
        ("    latency: 35 us\n", "", "E-VALUE", ["tiers.1", "neither latency nor distance"]),
        ("1:7", "7:1", "E-VALUE", ["tiers.1.oversubscription", "7:1", "1:7"]),
        ("1:7", "1:0", "E-VALUE", ["tiers.1.oversubscription"]),
        ("size: 2", "size: 2.5", "E-VALUE", ["tiers.1.size", "2.5"]),
        ("size: 2", "size: no", "E-VALUE", ["tiers.1.size", "'no'"]),
        ("size: 2", "size: true", "E-VALUE", ["tiers.1.size", "True"]),
        ("name: zone", "name: node", "E-VALUE", ["'node' is there twice"]),
        (
            "source: {bandwidth: a data sheet,",
            "source: {bandwith: a data sheet,",
            "E-KEY",
            ["did you mean 'bandwidth'?"],
        ),
        ("    size: 2\n", "    size: 2\n    size: 4\n", "E-YAML", ["line 8", "'size' is there twice"]),
        ("    size: 2\n", "    size: [2\n", "E-YAML", ["line "]),
    ],
)
def test_a_mistake_is_one_clear_error(tmp_path: Path, old: str, new: str, error_id: str, says: list[str]) -> None:
    assert MINIMAL.count(old) == 1
    error = error_of(tmp_path, MINIMAL.replace(old, new))
    assert error.error_id == error_id
    for words in ("mini.yaml.j2", *says):
        assert words in str(error)


def test_an_undefined_variable_names_file_line_and_the_closest_value(tmp_path: Path) -> None:
    error = error_of(tmp_path, MINIMAL.replace("35 us", "{{ uplink_latncy }}"), uplink_latency="75 us")
    assert error.error_id == "E-UNDEFINED"
    for words in ("mini.yaml.j2, line 9", "'uplink_latncy'", "did you mean 'uplink_latency'?"):
        assert words in str(error)


def test_a_missing_cluster_names_its_neighbour() -> None:
    with pytest.raises(InvalidInput, match=r"E-FILE: .*did you mean 'meta-2dc-16k\.yaml\.j2'"):
        load_cluster(CLUSTERS / "meta-2dc-16.yaml.j2")
    with pytest.raises(InvalidInput, match=r"E-FILE: .*there is no folder"):
        load_cluster(CLUSTERS / "nowhere" / "a.yaml.j2")


def test_scaled_changes_sizes_only() -> None:
    cluster = load_cluster(CLUSTERS / "meta-2dc-16k.yaml.j2")
    small = cluster.scaled({"zone": 4})
    assert small.gpus == 8 * 4 * 4 * 2
    assert small == cluster.scaled([8, 4, 4, 2])
    assert [tier.bandwidth for tier in small.tiers] == [tier.bandwidth for tier in cluster.tiers]
    assert ("zone", "size") in {(note.tier, note.field) for note in small.assumptions()}
    assert cluster.scaled({}) == cluster


@pytest.mark.parametrize(
    ("sizes", "error_id"), [({"zoen": 4}, "E-TIER"), ([8, 4, 2], "E-TIER"), ({"zone": 0}, "E-SIZE")]
)
def test_scaled_refuses_what_the_cluster_has_not(sizes: Any, error_id: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_cluster(CLUSTERS / "meta-2dc-16k.yaml.j2").scaled(sizes)
    assert caught.value.error_id == error_id


@given(st.integers(10, 1000))
def test_an_oversubscription_is_written_in_one_way(tenths: int) -> None:
    ratio = tenths / 10
    for written in (f"1:{ratio}", f" 1 : {ratio} "):
        assert parse_oversubscription(written) == ratio
    for written in (ratio + 0.1, f"{ratio + 0.1}", f"{ratio + 0.1}:1"):
        with pytest.raises(InvalidInput, match=rf'write "1:{ratio + 0.1:g}"'):
            parse_oversubscription(written)


@pytest.mark.parametrize("written", ["", "a", "0:1", "1:-2", 0.99, True, None, "1:2:3", "-3", "nan"])
def test_what_is_no_oversubscription_is_refused(written: Any) -> None:
    with pytest.raises(InvalidInput, match="E-OVERSUBSCRIPTION"):
        parse_oversubscription(written)
