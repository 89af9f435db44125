"""Sites of different size: pipeline stages in proportion, all GPUs at work, and only what leaves a site pays for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scaleacross.cluster import accelerator_of, load_cluster
from scaleacross.errors import Infeasible
from scaleacross.study.plans import Setting
from test_mixed_sites import CONFIG, MODEL, TRAINING, planned, simulated

SITES = "sites:\n  - {name: east, size: 3}\n  - {name: west, size: 1, accelerator: WEST}\n"
CLUSTER = """
name: unequal
accelerator: h100-sxm
mixed_accelerators: by-site
UNEQUAL
tiers:
  - {name: node, size: 4, bandwidth: 362 GB/s, latency: 3 us}
  - {name: zone, size: 4, bandwidth: 47 GB/s, latency: 35 us}
  - {name: region, size: REGION, bandwidth: 47 GB/s, latency: 75 us, oversubscription: "1:2"}
  - {name: wan, size: WAN, bandwidth: 47 GB/s, latency: 3 ms, oversubscription: "1:8"}
"""
VALUES: dict[str, Any] = {"tp": 4, "pp": 4, "order": ["tp", "cp", "dp", "pp"]}


def setting(folder: Path, sites: bool = True, region: int = 3, wan: int = 2, west: str = "h100-sxm") -> Setting:
    path = folder / f"{sites}-{region}-{wan}-{west}.yaml.j2"
    unequal = "unequal_sites: by-size\n" + SITES.replace("WEST", west) if sites else ""
    text = CLUSTER.replace("UNEQUAL", unequal).replace("REGION", str(region)).replace("WAN", str(wan))
    path.write_text(text)
    cluster = load_cluster(path)
    return Setting(MODEL, TRAINING, cluster, accelerator_of(cluster, CONFIG / "accelerators"))


@pytest.mark.parametrize("west", ["h100-sxm", "a100-80gb-sxm"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pp": 8, "tp": 2},
        {"pp": 8, "chunks": 2, "schedule": "interleaved", "tp": 2, "layout": "by-speed"},
        {"dp_sharding": "fsdp"},
    ],
)
def test_every_rank_says_the_same(tmp_path: Path, more: dict[str, Any], west: str) -> None:
    case = setting(tmp_path, west=west)
    assert (case.cluster.gpus, case.cluster.idle_gpus, case.cluster.site_sizes) == (64, 0, (3, 1))
    plan = planned(case, {**VALUES, **more})
    folded, every = (simulated(tmp_path / str(e), case, plan, "scaleacross", e) for e in (False, True))
    assert folded.finish_cycles == pytest.approx(every.finish_cycles, abs=2)
    assert folded.bound_ratio >= 1


def test_only_what_leaves_a_site_pays_for_it(tmp_path: Path) -> None:
    """Between four zones of one region and four regions of a zone each; nearer the former, with one cut of three."""
    cases = {
        "one site": setting(tmp_path, sites=False, region=4, wan=1),
        "unequal": setting(tmp_path),
        "four sites": setting(tmp_path, sites=False, region=1, wan=4),
    }
    runs = {
        name: simulated(tmp_path / name, case, planned(case, VALUES), "scaleacross") for name, case in cases.items()
    }
    one, unequal, four = (run.time_ns for run in runs.values())
    assert one < unequal < four and unequal - one < (four - unequal)
    cut = {name: next(tier.cut_bytes for tier in run.tiers if tier.name == "wan") for name, run in runs.items()}
    messages = 2 * 32 // 4 * 16 * 2048 * MODEL.hidden * 2 // 4  # there and back, micro-batches, ranks, bytes of each
    assert cut["unequal"] == messages and cut["four sites"] == 3 * messages


@pytest.mark.parametrize("more", [{}, {"pp": 8, "tp": 2}])
def test_two_equal_sites_are_the_regular_tiers(tmp_path: Path, more: dict[str, Any]) -> None:
    """Four zones as two sites of two, against a region tier of two zones under a wan of two regions."""
    regular, flat = setting(tmp_path, False, 2, 2), setting(tmp_path, False, 4, 1)
    values = {**VALUES, **more}
    whole = simulated(tmp_path / "regular", regular, planned(regular, values), "scaleacross")
    listed = simulated(tmp_path / "sites", flat, planned(flat, values), "scaleacross", sites=(2, 2))
    assert listed.time_ns == pytest.approx(whole.time_ns, rel=1e-9)
    assert [tier.cut_bytes for tier in listed.tiers] == pytest.approx([tier.cut_bytes for tier in whole.tiers])
    assert [tier.sent_bytes for tier in listed.tiers] == pytest.approx([tier.sent_bytes for tier in whole.tiers])


def test_collectives_across_unequal_sites_are_refused(tmp_path: Path) -> None:
    case = setting(tmp_path)
    plan = planned(case, {"tp": 4, "pp": 4, "order": ["tp", "cp", "pp", "dp"]})
    with pytest.raises(Infeasible, match=r"E-SITES: dp over regions of sites of different size \(east 3, west 1\)"):
        simulated(tmp_path, case, plan, "scaleacross")
    with pytest.raises(Infeasible, match=r"E-SITES.*latency-aware"):
        planned(case, {**VALUES, "schedule": "latency-aware"})
