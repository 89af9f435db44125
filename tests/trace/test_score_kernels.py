"""Unfused attention against a public measurement of it, at head sizes that the rate was not taken from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.model import Shard, attention_operators, backward_input, load_model
from scaleacross.trace.compute import operator_seconds

CONFIG = Path(__file__).parents[2] / "config"
A100 = load_accelerator(CONFIG / "accelerators/a100-80gb-sxm.yaml")
SCORES = 64 * 16 * 1024 * 1024


@pytest.mark.parametrize(("size", "milliseconds"), [(32, 12.237), (64, 13.076), (128, 14.548)])
def test_plain_attention_backward_on_an_a100(size: int, milliseconds: float) -> None:
    """xformers pull request 587, column "vanilla": the rate is that of head size 32; the others follow."""
    model = load_model(CONFIG / "models/megatron-22b.yaml").model_copy(
        update={"heads": 16, "kv_heads": 16, "head_size": size, "hidden": 16 * size, "dropout": False}
    )
    shard = Shard(64, 1024, sequence_parallel=False, attention="unfused")
    core = [item for item in attention_operators(model, 0, shard) if item.name in ("scores", "softmax", "context")]
    backward = [step for item in core for step in backward_input(item)]
    # PyTorch's own softmax reads whole matrices, Megatron-LM's only what is not masked.
    backward = [replace(step, bytes=6 * SCORES) if step.name == "softmax.dgrad" else step for step in backward]
    predicted = sum(operator_seconds(step, A100) for step in backward)
    assert predicted * 1e3 == pytest.approx(milliseconds, rel=0.1)
