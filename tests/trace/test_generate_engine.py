"""Generated plans in the embedded simulator: folded and expanded take the same cycles."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from plan_cases import CASES, H100, Made, make_case
from scaleacross.astra.binary import find_binary
from scaleacross.astra.runner import run_astra_sim
from scaleacross.engine import Config, load_config, load_workload, simulate
from scaleacross.trace.expand import expand
from scaleacross.trace.plan_files import write_plan
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
