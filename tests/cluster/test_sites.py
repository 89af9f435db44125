"""Sites that differ, accelerators that differ, links by pair, prices and power: used as the file says, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.cluster import Accelerator, Cluster, Site, Tier, accelerator_of, load_cluster
from scaleacross.cluster.cost import Rates, hourly_price, missing_prices, rates_of
from scaleacross.cluster.sites import Pair, best_ring
from scaleacross.errors import InvalidInput

CONFIG = Path(__file__).parents[2] / "config"

SITES = """
name: mini
accelerator: h100-sxm
price: 2 usd/hour
pue: 1.25
unequal_sites: smallest
sites:
  - {name: east, size: 6}
  - {name: west, size: 4, price: 3 usd/hour, power: 1 MW}
tiers:
  - {name: node, size: 8, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: zone, size: 6, bandwidth: 400 Gbps, latency: 35 us}
  - {name: region, size: 2, bandwidth: 400 Gbps, latency: 1 ms, egress: 0.02 usd/GB}
"""

PAIRS = """
name: mini
accelerator: h100-sxm
tiers:
  - {name: node, size: 8, bandwidth: 400 GiB/s, latency: 2 us}
  - name: wan
    size: 3
    latency: 1 ms
    pairs:
      as: slowest
      units: [a, b, c]
      bandwidth: {a/b: 10 Gbps, b/c: 4 Gbps, c/a: 8 Gbps}
      latency: {a/b: 2 ms, a/c: 5 ms, b/c: 1 ms}
"""


def cluster_of(folder: Path, text: str) -> Cluster:
    path = folder / "mini.yaml.j2"
    path.write_text(text)
    return load_cluster(path)


def test_unequal_sites_are_used_as_far_as_the_smallest_goes(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, SITES)
    assert [tier.size for tier in cluster.tiers] == [8, 4, 2]
    assert (cluster.gpus, cluster.idle_gpus) == (64, 16)
    assert [(site.name, site.size, site.used) for site in cluster.sites] == [("east", 6, 4), ("west", 4, 4)]
    notes = {note.field: note.value for note in cluster.notes}
    assert notes["site_west"] == "size 4, price 3, power 1e+06" and notes["price"] == "2 usd/hour"
    assert notes["idle_gpus"] == "16" and "idle_gpus" in {note.field for note in cluster.assumptions()}


def test_sites_that_are_equal_need_no_leave(tmp_path: Path) -> None:
    text = SITES.replace("unequal_sites: smallest\n", "").replace("size: 4,", "size: 6,")
    assert cluster_of(tmp_path, text).idle_gpus == 0


@pytest.mark.parametrize(
    ("text", "old", "new", "error_id", "says"),
    [
        (SITES, "unequal_sites: smallest\n", "", "E-SITES", ["east 6, west 4", "unequal_sites: smallest to use 4"]),
        (SITES, "  - {name: east, size: 6}\n", "", "E-SITES", ["1 sites (west)", "has 2 units"]),
        (SITES, "name: east", "name: west", "E-SITES", ["west, west"]),
        (SITES, "size: 6}", "sizes: 6}", "E-KEY", ["sites.0.sizes", "'size'?"]),
        (SITES, "2 usd/hour", "2", "E-VALUE", ["price", "no unit"]),
        (SITES, "0.02 usd/GB", "0.02 usd", "E-VALUE", ["tiers.2.egress"]),
        (SITES, "pue: 1.25", "pue: 0.5", "E-VALUE", ["pue"]),
        (PAIRS, "      as: slowest\n", "", "E-PAIRS", ["b/c to a/b differ 2.5x", "as: slowest"]),
        (PAIRS, "c/a: 8 Gbps", "c/d: 8 Gbps", "E-VALUE", ["'c/d' is no pair"]),
        (PAIRS, ", c/a: 8 Gbps", "", "E-VALUE", ["missing a/c"]),
        (PAIRS, "units: [a, b, c]", "units: [a, b, c, a]", "E-VALUE", ["twice"]),
        (PAIRS, "size: 3", "size: 4", "E-VALUE", ["3 units, the tier 4"]),
        (PAIRS, "size: 3\n", "size: 3\n    bandwidth: 4 Gbps\n", "E-VALUE", ["exclude each other"]),
    ],
)
def test_what_is_not_modelled_is_an_error_that_says_so(
    tmp_path: Path, text: str, old: str, new: str, error_id: str, says: list[str]
) -> None:
    assert text.count(old) == 1
    with pytest.raises(InvalidInput) as caught:
        cluster_of(tmp_path, text.replace(old, new))
    assert caught.value.error_id == error_id and "\n" not in str(caught.value)
    for words in says:
        assert words in str(caught.value)


def test_links_by_pair_are_taken_as_the_slowest_and_the_longest(tmp_path: Path) -> None:
    wan = cluster_of(tmp_path, PAIRS).tier("wan")
    assert wan.bandwidth == pytest.approx(4e9 / 8) and wan.latency == pytest.approx(6e-3)
    assert [(pair.first, pair.second, pair.bandwidth) for pair in wan.pairs] == [
        ("a", "b", pytest.approx(10e9 / 8)),
        ("a", "c", pytest.approx(8e9 / 8)),
        ("b", "c", pytest.approx(4e9 / 8)),
    ]
    assert all(wan.bandwidth <= pair.bandwidth for pair in wan.pairs)


def test_halos_s_matrix() -> None:
    wan = load_cluster(CONFIG / "clusters/halos-4-regions.yaml.j2").tier("wan")
    assert wan.bandwidth * 8 / 1e9 == pytest.approx(0.117)
    ring, rate = best_ring(wan.pairs)
    assert rate * 8 / 1e9 == pytest.approx(0.127) and set(ring) == {"r0", "r1", "r2", "r3"}


@given(st.integers(3, 6), st.randoms())
def test_the_best_ring_is_never_slower_than_the_slowest_pair_nor_faster_than_a_unit_s_second_link(
    units: int, random: Any
) -> None:
    pairs = [Pair(str(a), str(b), random.uniform(1, 10)) for a in range(units) for b in range(a + 1, units)]
    ring, rate = best_ring(pairs)
    assert sorted(ring) == sorted(str(u) for u in range(units))
    links = {unit: sorted(p.bandwidth for p in pairs if str(unit) in (p.first, p.second)) for unit in range(units)}
    assert min(p.bandwidth for p in pairs) <= rate <= min(own[-2] for own in links.values())


def accelerator(folder: Path, name: str, flops: float, memory: float, power: float = 700) -> None:
    (folder / f"{name}.yaml").write_text(
        f"name: {name}\npeak_flops: {{bf16: {flops} TFLOPS}}\nmemory: {memory} GiB\nmemory_bandwidth: 3 TB/s\n"
        f"power: {power} W\n"
    )


TIERS = (Tier("node", 8, 4e11, 2e-6), Tier("zone", 4, 50e9, 35e-6), Tier("region", 2, 50e9, 1e-3, egress=2e-11))


def two_sites(first: str, second: str, **more: Any) -> Cluster:
    sites = (Site("east", 4, 4, first, 2.0), Site("west", 4, 4, second, 3.0, more.pop("power", 0.0)))
    return Cluster("c", first, TIERS, sites=sites, **more)


def test_mixed_accelerators_run_at_the_pace_of_the_slowest_where_there_is_one(tmp_path: Path) -> None:
    accelerator(tmp_path, "old", 300, 80)
    accelerator(tmp_path, "new", 900, 80)
    accelerator(tmp_path, "small", 900, 40)
    assert accelerator_of(two_sites("new", "new"), tmp_path).name == "new"
    for order in (("old", "new"), ("new", "old")):
        assert accelerator_of(two_sites(*order, mixed_accelerators="slowest"), tmp_path).name == "old"
    with pytest.raises(InvalidInput, match=r"E-MIXED.*east new, west old.*mixed_accelerators: slowest"):
        accelerator_of(two_sites("new", "old"), tmp_path)
    with pytest.raises(InvalidInput, match=r"E-MIXED.*none of old, small is the slowest"):
        accelerator_of(two_sites("old", "small", mixed_accelerators="slowest"), tmp_path)
    with pytest.raises(InvalidInput, match=r"E-ACCELERATOR.*'new'"):
        accelerator_of(two_sites("new", "neww"), tmp_path)


def test_a_site_s_power_must_carry_its_gpus(tmp_path: Path) -> None:
    accelerator(tmp_path, "new", 900, 80, 700)
    need = 32 * 700 * 1.25
    assert accelerator_of(two_sites("new", "new", power=need, pue=1.25), tmp_path).name == "new"
    with pytest.raises(InvalidInput, match=r"E-POWER.*site west may draw 0.027 MW.*need 0.028 MW"):
        accelerator_of(two_sites("new", "new", power=27e3, pue=1.25), tmp_path)


def test_dollars_and_joules_of_a_step() -> None:
    plain = Cluster("c", "new", TIERS, price=2.0, pue=1.25)
    assert hourly_price(plain) == 128
    assert hourly_price(replace(plain, price=0.0)) is None
    sites = two_sites("new", "new")
    assert hourly_price(sites) == 32 * 2 + 32 * 3
    assert hourly_price(replace(sites, sites=(sites.sites[0], replace(sites.sites[1], price=0.0)))) is None
    assert missing_prices(sites) == [] and missing_prices(replace(plain, price=0.0)) == ["price"]
    assert missing_prices(replace(sites, sites=(replace(sites.sites[0], price=0.0), sites.sites[1]))) == [
        f"price of site {sites.sites[0].name}"
    ]
    gpu = Accelerator("new", {"bf16": 9e14}, 8e10, 3e12, power=700)
    rates = rates_of(plain, gpu)
    # ten seconds of 64 GPUs, and 1 GB a GPU over a link of 2 cents a GB
    assert rates.cost(10.0, {"region": 1e9, "zone": 5e9}) == pytest.approx(128 * 10 / 3600 + 64 * 0.02)
    assert rates.energy(10.0) == pytest.approx(64 * 700 * 1.25 * 10)
    # 64 boards of 0.7 kW at a PUE of 1.25 and 10 cents a kWh
    priced = rates_of(replace(plain, energy_price=0.1 / 3.6e6), gpu)
    assert priced.usd_per_hour == pytest.approx(128 + 64 * 0.7 * 1.25 * 0.1)
    assert rates_of(replace(plain, price=0.0), gpu).cost(10.0, {}) is None
    assert rates_of(plain, replace(gpu, power=0.0)).energy(10.0) is None


@given(
    seconds=st.floats(0.1, 1e3),
    more=st.floats(0, 1e3),
    sent=st.floats(0, 1e12),
    extra=st.floats(0, 1e12),
    price=st.floats(0.01, 1e6),
)
def test_a_bound_of_time_and_bytes_bounds_the_cost(
    seconds: float, more: float, sent: float, extra: float, price: float
) -> None:
    rates = Rates(64, price, None, {"region": 2e-11})
    low, high = rates.cost(seconds, {"region": sent}), rates.cost(seconds + more, {"region": sent + extra})
    assert low is not None and high is not None and low <= high


@pytest.mark.parametrize("preset", sorted(path.name for path in (CONFIG / "clusters").glob("*.yaml.j2")))
def test_every_preset_names_accelerators_that_are_there(preset: str) -> None:
    cluster = load_cluster(CONFIG / "clusters" / preset)
    assert accelerator_of(cluster, CONFIG / "accelerators").name == cluster.accelerator
