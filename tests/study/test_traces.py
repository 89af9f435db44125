"""The trace step when several processes want the same plan."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scaleacross.engine import load_workload
from scaleacross.study.design import Designer
from scaleacross.study.plans import parallelism_of
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import Study
from scaleacross.study.traces import write_traces
from scaleacross.trace import plan_files

ROOT = Path(__file__).resolve().parents[2]
STUDY = Study.model_validate(
    {
        "name": "tiny",
        "model": "llama3-8b",
        "cluster": "scale-across",
        "training": {"sequence_length": 8192, "global_batch": 32},
        "fixed": {"tp": 8, "pp": 2, "building_zones": 1, "zone_nodes": 1},
        "dimensions": {"dp_sharding": ["zero1"]},
    }
)


def test_a_plan_is_written_once_and_never_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    designer, values = Designer(STUDY, ROOT), next(iter(enumerate_points(STUDY))).values
    setting = designer.setting(values)
    plan = designer.plan(setting, parallelism_of(values, setting.cluster.gpus))
    both, calls, real = threading.Event(), [], plan_files.write_plan

    def slow(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            both.set()
        both.wait(0.5)  # the time for another to come in
        return real(*arguments)

    monkeypatch.setattr(plan_files, "write_plan", slow)
    with ThreadPoolExecutor(2) as pool:
        records = list(pool.map(lambda _: write_traces(tmp_path / "plan", plan.content), range(2)))
    assert len(calls) == 1
    assert sorted(record.kept for record in records) == [False, True]
    assert load_workload(tmp_path / "plan" / "workload") is not None
