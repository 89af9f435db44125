"""Generated plans in the embedded simulator: folded and expanded take the same cycles, granularities agree."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from plan_cases import CASES, CONFIG, H100, Made, make, make_case
from scaleacross.astra.binary import find_binary
from scaleacross.astra.runner import run_astra_sim
from scaleacross.cluster.spec import load_cluster
from scaleacross.engine import Config, load_config, load_workload, simulate
from scaleacross.model import load_model
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.trace.expand import expand
from scaleacross.trace.plan_files import write_plan
from scaleacross.trace.scale import scale_down
from test_generate_files import write_configuration


def written(case: Made, folder: Path) -> Config:
    """The plan's folder, a folder ``all`` with every rank's trace, and the configuration both run under."""
    write_plan(folder, case.model, case.training, case.parallelism, case.placement, case.schedule, H100)
    groups = case.generated.comm_groups
    expand(folder, folder / "all", {int(key): members for key, members in (groups or {}).items()})
    write_configuration(case, folder)
    (folder / "memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    return load_config(
        network=folder / "network.yml",
        system=folder / "system.json",
        memory=folder / "memory.json",
        groups=folder / "comm_groups.json" if groups else None,
    )


@pytest.mark.parametrize("name", sorted(CASES))
def test_folded_and_expanded_plans_take_the_same_cycles(tmp_path: Path, name: str) -> None:
    case = make_case(name)
    config = written(case, tmp_path)
    folded = simulate(load_workload(tmp_path / "workload"), config, model="unaware")
    expanded = simulate(load_workload(tmp_path / "all" / "workload"), config, model="unaware")
    assert (folded.status, expanded.status) == ("ok", "ok"), folded.message
    assert len(folded.finish_cycles) == case.placement.ranks
    assert folded.finish_cycles.tolist() == expanded.finish_cycles.tolist()
    assert folded.exposed_cycles.tolist() == expanded.exposed_cycles.tolist()


@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "interleaved", "chunks": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"},
        {"schedule": "1f1b", "dp_sharding": "zero1"},
    ],
)
def test_granularities_agree_within_one_percent(tmp_path: Path, values: dict[str, Any]) -> None:
    """Llama 3 405B scaled down, two ranks or more in every dimension, without contention."""
    cluster = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {})
    model = load_model(CONFIG / "models" / "llama3-405b.yaml")
    times: dict[str, float] = {}
    for granularity in ("layer", "operator", "block"):
        plan = parallelism_from({"tp": 8, "pp": 16, **values, "granularity": granularity}, cluster.gpus)
        twin = scale_down(model, Training(8192, 2048), plan, cluster)
        case = make(twin.model, twin.parallelism.as_dict(), twin.training, twin.cluster.tiers)  # type: ignore[arg-type]
        folder = tmp_path / granularity
        config = written(case, folder)
        times[granularity] = simulate(load_workload(folder / "workload"), config, model="unaware").iteration_ns
    assert times["operator"] == pytest.approx(times["layer"], rel=0.01)
    assert times["block"] == pytest.approx(times["layer"], rel=0.01)


@pytest.mark.slow
@pytest.mark.skipif("ASTRA_SIM" not in os.environ, reason="the ASTRA-sim binary is not here ($ASTRA_SIM)")
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_real_simulator_agrees_to_the_cycle(tmp_path: Path, name: str) -> None:
    case = make_case(name)
    config = written(case, tmp_path)
    embedded = simulate(load_workload(tmp_path / "workload"), config, model="unaware")
    binary = find_binary()
    real = run_astra_sim(binary, tmp_path / "all" / "workload", tmp_path)
    assert real.status == "ok", real.message
    assert real.finish_cycles.tolist() == embedded.finish_cycles.tolist()
