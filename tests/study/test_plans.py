"""Plans that differ only in a knob that they do not read are one plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scaleacross.cluster import accelerator_of, load_cluster
from scaleacross.model import load_model
from scaleacross.plan.degrees import Training
from scaleacross.study.plans import Setting, make_plan, parallelism_of

CONFIG = Path(__file__).parents[2] / "config"
CLUSTER = """
name: small
accelerator: h100-sxm
tiers:
  - {name: node, size: 8, bandwidth: 362 GB/s, latency: 3 us}
  - {name: zone, size: 8, bandwidth: 47 GB/s, latency: 35 us}
"""
SMALL: dict[str, Any] = {"tp": 4, "pp": 4}
EXPERTS: dict[str, Any] = {"tp": 8, "pp": 2, "ep": 4, "etp": 8}


def plan_id(folder: Path, model: str, values: dict[str, Any]) -> str:
    path = folder / "small.yaml.j2"
    path.write_text(CLUSTER)
    cluster = load_cluster(path)
    accelerator = accelerator_of(cluster, CONFIG / "accelerators")
    case = Setting(load_model(CONFIG / "models" / f"{model}.yaml"), Training(2048, 64), cluster, accelerator)
    return make_plan(case, parallelism_of(values, cluster.gpus)).plan_id


@pytest.mark.parametrize(
    ("model", "idle", "other", "read"),
    [
        ("llama3-8b", SMALL, {"cp_method": "ring"}, {"cp": 2}),
        ("mixtral-8x7b", EXPERTS, {"etp": 2}, {}),
        ("llama3-8b", {**SMALL, "sequence_parallel": True}, {"scatter_gather": True}, {"sequence_parallel": False}),
        ("llama3-8b", {"tp": 1, "pp": 4}, {"scatter_gather": True}, {"tp": 2, "sequence_parallel": False}),
        ("llama3-8b", {"tp": 4, "pp": 1, "sequence_parallel": False}, {"scatter_gather": True}, {"pp": 2}),
    ],
    ids=["cp_method", "etp", "sequence parallel", "one tensor rank", "one stage"],
)
def test_a_knob_that_a_plan_does_not_read_makes_no_other_plan(
    tmp_path: Path, model: str, idle: dict[str, Any], other: dict[str, Any], read: dict[str, Any]
) -> None:
    """And one that it reads does: the same change where ``read`` is so."""
    assert plan_id(tmp_path, model, {**idle, **read}) != plan_id(tmp_path, model, {**idle, **read, **other})
    if model == "mixtral-8x7b":
        model, idle, other = "llama3-8b", SMALL, {"etp": 1}
    assert plan_id(tmp_path, model, idle) == plan_id(tmp_path, model, {**idle, **other})
