"""Cycle parity with the reference on every golden case: 0 ns of difference on every rank."""

from __future__ import annotations

from typing import Any

import pytest
from cases import NAMES, expected, golden, golden_options
from scaleacross.engine import simulate


def differences(name: str, model: str, detail: str) -> tuple[int, int, str]:
    """Ranks, largest difference of finish and exposed cycles, status."""
    workload, config = golden(name)
    outcome = simulate(workload, config, model, detail=detail, **golden_options(name))
    wanted = expected(name)[model]
    if outcome.status != "ok":
        return expected(name)["npus"], -1, outcome.message
    pairs = [
        *zip(outcome.finish_cycles.tolist(), wanted["finish_cycles"], strict=True),
        *zip(outcome.exposed_cycles.tolist(), wanted["exposed_cycles"], strict=True),
    ]
    return expected(name)["npus"], max(abs(a - b) for a, b in pairs), "ok"


def completed(model: str) -> list[str]:
    """Cases that the reference completes."""
    return [name for name in NAMES if "finish_cycles" in expected(name)[model]]


@pytest.mark.parametrize(
    ("model", "detail", "count"),
    [("unaware", "auto", 155), ("unaware", "composed", 155), ("unaware", "chunks", 155), ("aware", "auto", 109)],
)
def test_every_golden_case_is_exact(model: str, detail: str, count: int, record_property: Any) -> None:
    names = completed(model)
    assert len(names) == count
    rows = {name: differences(name, model, detail) for name in names}
    lines = [f"{name:45} {npus:4} NPUs  {worst:6} ns  {status}" for name, (npus, worst, status) in rows.items()]
    table = f"{model}, {detail}: {len(rows)} cases\n" + "\n".join(lines)
    print(table)
    record_property("table", table)
    assert {name: row for name, row in rows.items() if row[1] != 0} == {}


def test_the_aware_model_refuses_several_dimensions() -> None:
    workload, config = golden("2d_baseline_ar")
    outcome = simulate(workload, config, "aware")
    assert outcome.status == "invalid"
    assert outcome.message.startswith("E-MODEL")
