"""Bytes in a result row equal those of the plan's own traffic table, for any plan of a study."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from scaleacross.astra.render import write_config
from scaleacross.errors import Infeasible
from scaleacross.planview.choose import make
from scaleacross.planview.traffic import traffic_of
from scaleacross.search.evaluate import Embedded, Pair
from scaleacross.study.design import Designer
from scaleacross.study.schema import load_study
from scaleacross.study.traces import write_traces

ROOT = Path(__file__).parents[2]
SETTINGS = {"simulator": "embedded", "time_limit_s": 60.0}
KNOBS: dict[str, list[Any]] = {
    "order": [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"], ["tp", "pp", "cp", "dp"]],
    "tp": [4, 8],
    "cp": [1, 2],
    "pp": [2, 4, 8],
    "schedule": ["1f1b", "interleaved", "zb-h1"],
    "chunks": [1, 2],
    "micro_batch": [1, 2],
    "dp_sharding": ["zero1", "fsdp"],
    "dp_overlap": ["none", "prefetch"],
    "recompute": ["none", "full"],
    "collective": ["ring", "direct"],
}


def drawn(count: int) -> list[dict[str, Any]]:
    """So many combinations of knobs, always the same ones."""
    choose = random.Random(5)
    return [{name: choose.choice(values) for name, values in KNOBS.items()} for _ in range(count)]


@pytest.mark.parametrize("model", ["scaleacross", "unaware"])
def test_bytes_of_a_row_are_those_of_the_plan(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = load_study("llama3-405b-2dc", ["model=llama3-8b", "training.global_batch=4096"])
    designer = Designer(study, Path())
    compared = 0
    for number, knobs in enumerate(drawn(30)):
        values = {**study.fixed, "oversubscription": "1:2.8", **knobs}
        try:
            chosen = make(study, designer, values, "")
        except Infeasible:
            continue
        folder = tmp_path / f"{model}{number}"
        write_traces(folder / "traces", chosen.plan.content)
        write_config(folder / "config", designer.config(chosen.setting, chosen.plan, values)[1])
        work = json.dumps(chosen.plan.work)
        pair = Pair("plan", "config", str(folder / "traces/workload"), str(folder / "config"), work, "hash")
        row = Embedded({**SETTINGS, "network_model": model}, tmp_path).run(pair).columns
        sent = sum(value for name, value in row.items() if name.startswith("sent_"))
        assert sent * 1e9 == pytest.approx(sum(own.mean_bytes for own in traffic_of(chosen).values()), rel=1e-3), knobs
        compared += 1
        if compared == 6:
            return
    raise AssertionError(f"only {compared} of the drawn plans exist")
