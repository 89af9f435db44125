"""Sites with accelerators of their own: what their stages and replicas compute, hold, and how layers are balanced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scaleacross.astra.render import render_config, write_config
from scaleacross.cluster import accelerator_of, load_cluster
from scaleacross.engine import load_config, load_workload, simulate
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.model import Model
from scaleacross.plan.degrees import Training
from scaleacross.plan.layers import apportion
from scaleacross.study.plans import Plan, Setting, make_plan, parallelism_of, read_plan
from scaleacross.study.traces import write_traces
from scaleacross.trace.columns import COMP
from scaleacross.trace.expand import expand

CONFIG = Path(__file__).parents[2] / "config"
MODEL = Model(name="dense", layers=24, hidden=4096, heads=32, kv_heads=8, ffn=16384, vocab=32000)
TRAINING = Training(2048, 32)
CLUSTER = """
name: mixed
accelerator: h100-sxm
mixed_accelerators: HOW
sites:
  - {name: east}
  - {name: west, accelerator: WEST}
tiers:
  - {name: node, size: 4, bandwidth: 362 GB/s, latency: 3 us}
  - {name: zone, size: 4, bandwidth: 47 GB/s, latency: 35 us}
  - {name: wan, size: 2, bandwidth: 47 GB/s, latency: 1 ms, oversubscription: "1:4"}
"""
ACROSS: dict[str, dict[str, Any]] = {
    "pp": {"tp": 4, "pp": 4, "order": ["tp", "cp", "dp", "pp"]},
    "dp": {"tp": 4, "pp": 2, "order": ["tp", "cp", "pp", "dp"]},
    "fsdp": {"tp": 4, "pp": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"},
    "flat dp inside": {"tp": 4, "pp": 4, "order": ["tp", "cp", "dp", "pp"], "flat_rings": ["dp"]},
    "v-shaped pp": {"tp": 4, "pp": 4, "schedule": "zbv", "chunks": 2, "order": ["tp", "cp", "dp", "pp"]},
}


def setting(folder: Path, west: str, how: str = "by-site") -> Setting:
    path = folder / f"{west}-{how}.yaml.j2"
    path.write_text(CLUSTER.replace("HOW", how).replace("WEST", west))
    cluster = load_cluster(path)
    return Setting(MODEL, TRAINING, cluster, accelerator_of(cluster, CONFIG / "accelerators"))


def planned(case: Setting, values: dict[str, Any]) -> Plan:
    return make_plan(case, parallelism_of(values, case.cluster.gpus))


def simulated(
    folder: Path, case: Setting, plan: Plan, model: str, every: bool = False, sites: tuple[int, ...] = ()
) -> Any:
    """The outcome; ``every``: of every rank's trace; ``sites``: units of each, written into the network file."""
    files = render_config(plan.placement.dims, case.cluster, case.accelerator, {}, groups=plan.groups)
    if sites:
        files["network.yml"] = files["network.yml"].replace("  dims:", f"  sites: {list(sites)}\n  dims:", 1)
    write_config(folder / "config", files)
    write_traces(folder / "traces", plan.content)
    where = folder / "traces"
    if every:
        groups = None if plan.groups is None else {int(name): list(ranks) for name, ranks in plan.groups.items()}
        expand(folder / "traces", folder / "every", groups)
        where = folder / "every"
    own = folder / "config"
    listed = own / "comm_groups.json"
    config = load_config(
        own / "network.yml", own / "system.json", own / "memory.json", listed if listed.is_file() else None
    )
    outcome = simulate(load_workload(where / "workload"), config, model=model)
    assert outcome.status == "ok", outcome.message
    return outcome


@pytest.mark.parametrize("name", ACROSS)
@pytest.mark.parametrize("model", ["scaleacross", "unaware"])
def test_folded_sites_are_the_simulation_of_every_rank(tmp_path: Path, name: str, model: str) -> None:
    case = setting(tmp_path, "a100-80gb-sxm")
    plan = planned(case, ACROSS[name])
    folded, every = (simulated(tmp_path / str(e), case, plan, model, e) for e in (False, True))
    assert folded.finish_cycles == pytest.approx(every.finish_cycles, abs=2)


@pytest.mark.parametrize("name", ["pp", "dp"])
def test_a_mixed_cluster_lies_between_its_types(tmp_path: Path, name: str) -> None:
    times = {}
    for west, how in (("h100-sxm", "by-site"), ("a100-80gb-sxm", "by-site"), ("a100-80gb-sxm", "slowest")):
        case = setting(tmp_path, west, how)
        times[west, how] = simulated(tmp_path / west / how, case, planned(case, ACROSS[name]), "scaleacross").time_ns
    fast, mixed, slow = times.values()
    assert fast < mixed <= slow * (1 + 1e-6)


def test_stages_compute_as_fast_as_their_site_and_replicas_too(tmp_path: Path) -> None:
    mixed, alone = setting(tmp_path, "a100-80gb-sxm"), setting(tmp_path, "a100-80gb-sxm", "slowest")
    fast = mixed.accelerator.memory_bandwidth
    for name, west in (("pp", [2, 3]), ("dp", [1, 3])):
        seconds = []
        for case in (mixed, alone):
            folder = tmp_path / name / case.cluster.mixed_accelerators
            write_traces(folder, planned(case, ACROSS[name]).content)
            work = load_workload(folder / "workload")
            bandwidth = case.accelerator.memory_bandwidth
            traces = [program.trace for program in work.programs]
            seconds.append([t.tensor_size[t.types == COMP] / bandwidth for t in traces])
        assert len(seconds[0]) == 4 and alone.accelerator.memory_bandwidth < fast
        stages = [k * len(seconds[1]) // 4 for k in west]
        for k, stage in zip(west, stages, strict=True):
            assert np.allclose(seconds[0][k], seconds[1][stage], rtol=1e-6)


def test_layers_are_balanced_by_speed(tmp_path: Path) -> None:
    case = setting(tmp_path, "a100-80gb-sxm")
    times = {}
    for layout in (None, "by-speed"):
        values = {**ACROSS["pp"], **({"layout": layout} if layout else {})}
        plan = planned(case, values)
        chosen = read_plan(plan.content)[2].layout
        times[layout] = simulated(tmp_path / str(layout), case, plan, "scaleacross").time_ns
    assert chosen is not None and sum(chosen) == 24 and chosen[0] == chosen[1] > chosen[2] == chosen[3] > 0
    assert times["by-speed"] < times[None]


def test_largest_remainders() -> None:
    assert apportion(10, [1, 1, 1, 1]) == (3, 3, 2, 2) and apportion(7, [3, 1]) == (5, 2)
    assert sum(apportion(126, [2.1, 1, 1, 0.7])) == 126 and apportion(5, [100, 100, 1]) == (2, 2, 1)


def test_memory_names_the_stage_and_the_site(tmp_path: Path) -> None:
    case = replace(setting(tmp_path, "a100-40gb-sxm"), training=Training(8192, 128))
    plan = planned(case, {**ACROSS["pp"], "tp": 1, "micro_batch": 4})
    assert isinstance(plan.problem, Infeasible) and plan.problem.error_id == "E-MEMORY"
    assert "stage 2 on site west needs" in plan.problem.clash and "a100-40gb-sxm" in plan.problem.clash
    assert plan.memory.limit < case.accelerator.usable_bytes


def test_types_that_no_file_says_how_to_use(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"E-MIXED.*east h100-sxm, west a100-80gb-sxm.*by-site"):
        setting(tmp_path, "a100-80gb-sxm", "refuse")
    with pytest.raises(Infeasible, match=r"E-MIXED.*latency-aware"):
        planned(setting(tmp_path, "a100-80gb-sxm"), {**ACROSS["pp"], "schedule": "latency-aware"})
    with pytest.raises(Infeasible, match=r"E-MIXED.*flat_rings dp with dp over sites"):
        planned(setting(tmp_path, "a100-80gb-sxm"), {**ACROSS["dp"], "flat_rings": ["dp"]})
