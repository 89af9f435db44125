"""Tensor-parallel reductions under weight gradients: the same work, never slower, and hidden where there is time."""

from __future__ import annotations

import pytest
from plan_cases import DENSE, H100, TRAINING, make
from scaleacross.plan.memory import shard_of
from scaleacross.trace.columns import COLL, COMP
from scaleacross.trace.recipe import Kitchen
from scaleacross.trace.steps import COMPUTE


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_overlap_changes_no_flops_and_no_bytes(recompute: str, sequence_parallel: bool) -> None:
    values = {"tp": 2, "pp": 4, "recompute": recompute, "sequence_parallel": sequence_parallel}
    plain, overlapped = (make(DENSE, {**values, "tp_overlap": on}).generated for on in (False, True))
    for name, trace in plain.traces.items():
        other = overlapped.traces[name]
        assert trace.num_ops[trace.types == COMP].sum() == pytest.approx(other.num_ops[other.types == COMP].sum())
        assert trace.comm_size[trace.types == COLL].sum() == other.comm_size[other.types == COLL].sum()


def test_weight_gradients_do_not_wait_for_the_reduction() -> None:
    case = make(DENSE, {"tp": 2, "pp": 4, "tp_overlap": True})
    kitchen = Kitchen(DENSE, case.parallelism, case.placement, shard_of(TRAINING, case.parallelism), H100, "bf16")
    steps = kitchen.backward(0, whole=True).steps
    names = [step.name for step in steps]
    for region in ("mlp", "attention"):
        reduction, weights, entry = (names.index(f"{region}.{part}") for part in ("rs", "wgrad", "entry"))
        assert steps[weights].comm_type == COMPUTE
        assert reduction not in steps[weights].after
        assert set(steps[entry].after) == {reduction, weights}
    assert "mlp.wgrad" not in [step.name for step in kitchen.backward(0, whole=False).steps], "none to hide it under"
