"""The optimum carries its settings for other frameworks, or why they cannot express it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from scaleacross.cli.select import _dumper
from scaleacross.plan.frameworks import canonical, read
from scaleacross.planview.choose import Chosen, choose
from scaleacross.search.optimum import optimum
from scaleacross.search.select import Rules
from scaleacross.study.design import Designer
from scaleacross.study.schema import load_study


def case(*words: str) -> Chosen:
    study = load_study("tiny")
    return choose(study, Designer(study), words)


def entry_of(chosen: Chosen, folder: Path) -> dict[str, Any]:
    """The optimum's entry where this plan is the only point."""
    plan = chosen.plan.plan_id
    (folder / plan).mkdir(parents=True)
    (folder / plan / "plan.json").write_text(json.dumps({"record": {}, "plan": chosen.plan.content}))
    row = {
        "point_id": "p",
        "status": "ok",
        "iteration_time_s": 1.0,
        "plan_id": plan,
        "config_id": "c",
        "simulator": "embedded",
        "network_model": "scaleacross",
    }
    content = optimum([row], Rules(), [], folder, folder, gpus_per_node=4)
    text = yaml.dump(content, Dumper=_dumper(), sort_keys=False, width=120)
    assert yaml.safe_load(text) == content and "\\n" not in text, "texts of several lines stay legible"
    return dict(content["environments"][0])


def test_the_optimum_carries_flags_that_read_back(project: Path) -> None:
    chosen = case("etp=2", "dp_sharding=zero1", "schedule=interleaved")
    frameworks = entry_of(chosen, project / "traces")["frameworks"]
    launch = read("megatron-lm", frameworks["megatron-lm"]).launch
    assert launch.parallelism == canonical(chosen.launch).parallelism
    assert launch.gpus_per_node == 4
    assert frameworks["torchtitan"].startswith("E-FRAMEWORK: torchtitan cannot express order tp, cp, pp, dp")


def test_what_no_framework_expresses_is_said_for_each(project: Path) -> None:
    frameworks = entry_of(case("dp_sharding=hsdp", "etp=2"), project / "traces")["frameworks"]
    assert all(text.startswith("E-FRAMEWORK") for text in frameworks.values())


def test_without_a_plan_beside_the_traces_nothing_is_said(tmp_path: Path) -> None:
    row = {
        "point_id": "p",
        "status": "ok",
        "iteration_time_s": 1.0,
        "plan_id": "x",
        "config_id": "c",
        "simulator": "embedded",
        "network_model": "scaleacross",
    }
    assert "frameworks" not in optimum([row], Rules(), [], tmp_path, tmp_path)["environments"][0]
