"""Rendering: the arithmetic of bandwidth and latency, the lists ASTRA-sim needs, and template bugs that are caught."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.astra.config_files import load_groups, load_memory, load_network, load_system
from scaleacross.astra.dimensions import HOPS, astra_dimensions, effective_bandwidth
from scaleacross.astra.render import config_digest, config_variables, render_config, write_config
from scaleacross.astra.settings import SETTING_NAMES
from scaleacross.cluster import Accelerator, Cluster, Tier, load_cluster
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.units import GIB

ROOT = Path(__file__).parents[2]
META = ROOT / "config" / "clusters" / "meta-2dc-16k.yaml.j2"
GPU = Accelerator("gpu", {"bf16": 989e12, "fp8": 1979e12}, 80 * GIB, 3350e9)


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str
    share: float = 1.0


PLACED = (
    Dim(8, "node", "tp"),
    Dim(16, "zone", "dp"),
    Dim(16, "zone", "pp", 0.5),
    Dim(4, "building", "dp"),
    Dim(2, "campus", "pp", 0.125),
)


def rendered(values: dict[str, Any] | None = None, **more: Any) -> dict[str, str]:
    values = values or {}
    arguments: dict[str, Any] = {"dims": PLACED, "cluster": load_cluster(META, values), "accelerator": GPU, **more}
    return render_config(values=values, **arguments)


def network(files: dict[str, str]) -> dict[str, Any]:
    return dict(yaml.safe_load(files["network.yml"]))


def test_the_network_of_the_default_cluster() -> None:
    content = network(rendered())
    assert content["topology"] == ["Switch"] * 5
    assert content["npus_count"] == [8, 16, 16, 4, 2]
    port = 47e9 / GIB
    # all of dp's traffic crosses the zones' uplinks; one of eight stages sends between the buildings, below 1:2.8
    assert content["bandwidth"] == pytest.approx([362e9 / GIB, port, port, port / 2.8, port], rel=1e-6)
    # one way 3.4, 35, 35, 75 and 150 us; a Switch charges two hops
    assert content["latency"] == pytest.approx([1700, 17_500, 17_500, 37_500, 75_000])


def test_what_astra_sim_cannot_say_stands_under_its_own_key() -> None:
    extension = network(rendered())["x-scaleacross"]
    assert [(dim["tier"], dim["axis"], dim["share"]) for dim in extension["dims"]] == [
        (dim.tier, dim.axis, dim.share) for dim in PLACED
    ]
    assert [dim["port"] for dim in extension["dims"][1:]] == pytest.approx([47e9 / GIB] * 4, rel=1e-6)
    assert [dim["one-way"] for dim in extension["dims"]] == [3400, 35_000, 35_000, 75_000, 150_000]
    assert [tier["oversubscription"] for tier in extension["tiers"]] == [1, 1, 2.8, 2.8]
    assert prod(tier["size"] for tier in extension["tiers"]) == 16_384


def test_the_system_file_has_the_accelerator_s_rates_and_the_documented_defaults() -> None:
    system = json.loads(rendered()["system.json"])
    assert system["local-mem-bw"] == 3350 and system["peak-perf"] == 989 and system["roofline-enabled"] == 1
    assert system["preferred-dataset-splits"] == 1 and system["active-chunks-per-dimension"] == 1
    assert system["endpoint-delay"] == 10 and system["scheduling-policy"] == "LIFO"
    assert system["collective-optimization"] == "localBWAware"
    assert json.loads(rendered(precision="fp8")["system.json"])["peak-perf"] == 1979
    with pytest.raises(InvalidInput, match="E-PRECISION"):
        rendered(precision="bf61")


def test_settings_of_the_point_reach_the_system_file() -> None:
    values = {"chunk_splits": 4, "active_chunks": 2, "endpoint_delay": "1 us", "scheduling_policy": "FIFO"}
    system = json.loads(rendered({**values, "collective_optimization": "baseline", "schedule": "1f1b"})["system.json"])
    assert system["preferred-dataset-splits"] == 4 and system["active-chunks-per-dimension"] == 2
    assert system["endpoint-delay"] == 1000 and system["scheduling-policy"] == "FIFO"
    assert system["collective-optimization"] == "baseline"


RING, DIRECT, HALVING = "ring", "direct", "halvingDoubling"


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        ("ring", [RING] * 5),
        ("direct", [DIRECT, DIRECT, RING, DIRECT, RING]),
        ("halving-doubling", [HALVING, HALVING, RING, HALVING, RING]),
        ({"node": "direct", "building": "halving-doubling"}, [DIRECT, RING, RING, HALVING, RING]),
        ("node:direct, building:halving-doubling", [DIRECT, RING, RING, HALVING, RING]),
        ("*:direct zone:ring", [DIRECT, RING, RING, DIRECT, RING]),
    ],
)
def test_collectives_are_chosen_per_dimension_and_pipeline_dimensions_carry_none(
    collective: Any, expected: list[str]
) -> None:
    system = json.loads(rendered({"collective": collective})["system.json"])
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        assert system[f"{kind}-implementation"] == expected
    assert system["all-to-all-implementation"] == ["direct1"] * 5


def test_all_to_all_has_its_own_setting() -> None:
    system = json.loads(rendered({"all_to_all": "direct4"})["system.json"])
    assert system["all-to-all-implementation"] == ["direct4"] * 5


@pytest.mark.parametrize(
    ("values", "error_id", "says"),
    [
        ({"collective": "rign"}, "E-COLLECTIVE", "did you mean 'ring'?"),
        ({"collective": {"nod": "ring"}}, "E-COLLECTIVE", "did you mean 'node'?"),
        ({"collective": "node:tree"}, "E-COLLECTIVE", "'tree'"),
        ({"collective": 3}, "E-VALUE", "collective"),
        ({"all_to_all": "halving-doubling"}, "E-VALUE", "all_to_all"),
        ({"chunk_splits": 0}, "E-VALUE", "chunk_splits"),
        ({"chunk_splits": True}, "E-VALUE", "chunk_splits"),
        ({"endpoint_delay": 10}, "E-VALUE", "10 has no unit"),
        ({"endpoint_delay": "0 ns"}, "E-VALUE", "endpoint_delay"),
        ({"scheduling_policy": "lifo"}, "E-VALUE", "scheduling_policy"),
        ({"dims": 3}, "E-NAME", "'dims'"),
    ],
)
def test_an_impossible_value_is_one_clear_error(values: dict[str, Any], error_id: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(values)
    assert caught.value.error_id == error_id and says in str(caught.value)


def test_halving_doubling_off_powers_of_two_is_infeasible_with_values() -> None:
    cluster = load_cluster(META).scaled({"zone": 6, "building": 1, "campus": 1})
    with pytest.raises(Infeasible, match=r"E-HALVING: .*dimension 1 \(zone, dp\) of 6 NPUs") as caught:
        rendered({"collective": "halving-doubling"}, cluster=cluster, dims=(Dim(8, "node", "tp"), Dim(6, "zone", "dp")))
    assert 0 < caught.value.shortfall <= 0.5
    files = rendered(
        {"collective": "halving-doubling"}, cluster=cluster, dims=(Dim(8, "node", "tp"), Dim(6, "zone", "pp"))
    )
    assert json.loads(files["system.json"])["all-reduce-implementation"] == [HALVING, RING]


@pytest.mark.parametrize(
    ("dims", "says"),
    [
        (PLACED[:-1], "tier campus"),
        ((Dim(4, "node", "tp"), *PLACED[1:]), "tier node (4)"),
        ((PLACED[1], PLACED[0], *PLACED[2:]), "inner to outer"),
        ((*PLACED[:-1], Dim(2, "campsu", "pp")), "did you mean 'campus'?"),
        ((*PLACED, Dim(1, "campus", "dp")), "size 1"),
        ((*PLACED[:-1], Dim(2, "campus", "pp", 0.0)), "share 0.0"),
        ((*PLACED[:-1], Dim(2, "campus", "pp", 1.5)), "share 1.5"),
    ],
)
def test_dimensions_must_fill_the_cluster(dims: tuple[Dim, ...], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(dims=dims)
    assert caught.value.error_id in ("E-DIMS", "E-TIER") and says in str(caught.value)


ratios, shares = st.floats(1, 100), st.floats(0.001, 1)


@given(st.floats(1e6, 1e12), ratios, ratios, shares, shares)
def test_bandwidth_laws(port: float, ratio: float, ratio2: float, share: float, share2: float) -> None:
    got = effective_bandwidth(port, ratio, share)
    assert 0 < got <= port
    # the senders together never pass the uplink, and use all of it once their ports could fill it
    uplink = port / ratio
    assert got * share <= uplink * (1 + 1e-9)
    if share * port >= uplink:
        assert got * share == pytest.approx(uplink)
    else:
        assert got == port
    assert effective_bandwidth(port, max(ratio, ratio2), share) <= got
    assert effective_bandwidth(port, ratio, max(share, share2)) <= got
    assert effective_bandwidth(port, 1.0, 1.0) == port


@given(st.lists(st.tuples(st.integers(2, 64), st.floats(1, 20)), min_size=1, max_size=5), st.sampled_from(sorted(HOPS)))
def test_a_tier_pays_the_largest_ratio_on_the_way_up_and_one_way_latency_whatever_the_topology(
    tiers: list[tuple[int, float]], topology: Any
) -> None:
    cluster = Cluster(
        "c",
        "gpu",
        tuple(Tier(f"t{i}", size, 50e9, 1e-6 * (i + 1), ratio, topology) for i, (size, ratio) in enumerate(tiers)),
    )
    columns = astra_dimensions([Dim(tier.size, tier.name, "dp") for tier in cluster.tiers], cluster)
    for index, column in enumerate(columns):
        largest = max(ratio for _, ratio in tiers[: index + 1])
        assert column.bandwidth == pytest.approx(50e9 / largest / GIB, rel=1e-5)
        assert column.latency * HOPS[topology] == pytest.approx(1000 * (index + 1))


def test_a_dimension_only_a_cluster_file_knows_changes_the_network() -> None:
    slow, fast = (network(rendered({"uplink_latency": text})) for text in ("5 ms", "75 us"))
    assert slow["latency"][-1] == 2_500_000 and fast["latency"][-1] == 37_500
    assert slow["latency"][:-1] == fast["latency"][:-1]


def with_templates(folder: Path, name: str, old: str, new: str) -> Path:
    shutil.copytree(ROOT / "templates", folder, dirs_exist_ok=True)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    return folder


def test_a_dimension_that_only_a_template_knows(tmp_path: Path) -> None:
    templates = with_templates(
        tmp_path, "system.json.j2", '"roofline-enabled"', '"trace-enabled": {{ traced }},\n  "roofline-enabled"'
    )
    files = rendered({"traced": 1}, templates=templates)
    assert json.loads(files["system.json"])["trace-enabled"] == 1
    assert config_variables(templates) == {"traced", *SETTING_NAMES}
    assert config_variables() == SETTING_NAMES
    with pytest.raises(InvalidInput, match=r"E-UNDEFINED: .*system\.json\.j2, line 14: variable 'traced'.*'trace'"):
        rendered({"trace": 1}, templates=templates)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("network.yml.j2", 'attribute="size"', 'attribute="share"', "npus_count is rendered as"),
        ("network.yml.j2", 'attribute="latency"', 'attribute="one_way"', "latency is rendered as"),
        ("network.yml.j2", 'attribute="bandwidth"', 'attribute="port"', "bandwidth is rendered as"),
        ("network.yml.j2", '{{ dims | map(attribute="latency") | join(", ") }}', "{{ dims[0].latency }}", "latency"),
        ("network.yml.j2", "latency:  ", "latencies:  ", "latency is rendered as None"),
        ("network.yml.j2", 'attribute="topology") | join', 'attribute="topology") | map("lower") | join', "topology"),
        ("system.json.j2", "implementations.all_gather", "implementations.all_gather[:1]", "all-gather-implementation"),
        ("system.json.j2", "implementations.all_to_all", '(["halvingDoubling"] * 5)', "halvingDoubling on 8 NPUs"),
        ("system.json.j2", "| gb_per_s", "| gib_per_s", "local-mem-bw is rendered as"),
        ("system.json.j2", "peak_flops | tflops", "peak_flops", "peak-perf is rendered as"),
        ("system.json.j2", '"roofline-enabled": 1\n', '"roofline-enabled": 1,\n', "no JSON"),
        ("system.json.j2", '"roofline-enabled": 1', '"roofline-enabled": true', "roofline-enabled"),
        ("memory.json.j2", "{", "[", "no JSON"),
        ("network.yml.j2", "topology:   [", "topology:   ", "network.yml.j2"),
    ],
)
def test_a_template_bug_is_an_error_not_another_simulation(
    tmp_path: Path, name: str, old: str, new: str, says: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(templates=with_templates(tmp_path, name, old, new))
    assert caught.value.error_id == "E-TEMPLATE" and says in str(caught.value) and "\n" not in str(caught.value)


def test_a_mistyped_key_that_astra_sim_would_ignore_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    templates = with_templates(tmp_path / "t", "system.json.j2", '"endpoint-delay"', '"endpoint-dealy"')
    with pytest.raises(InvalidInput, match=r"E-TEMPLATE: .*endpoint-dealy.*did you mean 'endpoint-delay'") as caught:
        write_config(tmp_path / "config", rendered(templates=templates))
    assert not (tmp_path / "config").exists()
    assert "scaleacross-config-" not in str(caught.value)


def test_written_files_are_accepted_by_the_strict_readers(tmp_path: Path) -> None:
    write_config(tmp_path, rendered(groups={"1": [0, 1], "2": [2, 3]}))
    assert load_network(tmp_path / "network.yml").npus == 16_384
    assert load_system(tmp_path / "system.json").roofline_enabled
    assert load_memory(tmp_path / "memory.json").kind == "NO_MEMORY_EXPANSION"
    assert load_groups(tmp_path / "comm_groups.json") == {1: (0, 1), 2: (2, 3)}


def test_an_equal_file_keeps_its_time_and_stale_groups_go(tmp_path: Path) -> None:
    write_config(tmp_path, rendered(groups={"1": [0, 1]}))
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    time.sleep(0.01)
    write_config(tmp_path, rendered({"chunk_splits": 2}))
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert set(before) - set(after) == {"comm_groups.json"}
    assert {name for name in after if after[name] != before[name]} == {"system.json"}


def test_the_digest_sees_content_not_layout() -> None:
    files = rendered()
    shifted = {name: text.replace("# ", "#   ").replace(": ", ":  ") for name, text in files.items()}
    assert shifted != files
    assert config_digest(shifted) == config_digest(files) != config_digest(rendered({"chunk_splits": 2}))
    assert config_digest(files) == config_digest(rendered({"schedule": "1f1b"}))


def test_a_thousand_configurations_take_seconds() -> None:
    started = time.perf_counter()
    for index in range(100):
        rendered({"oversubscription": f"1:{1 + index / 100}"})
    assert time.perf_counter() - started < 2.0  # 0.25 s on an idle core of 2024
