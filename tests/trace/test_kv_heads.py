"""More tensor-parallel ranks than KV heads, as Megatron Core runs it: what it adds, and what it leaves alone."""

from __future__ import annotations

import pytest
from plan_cases import DENSE, H100, TRAINING, make
from scaleacross.model import layer_parameters
from scaleacross.model.activations import layer_activation
from scaleacross.plan.memory import shard_of
from scaleacross.trace.columns import ALL_GATHER, REDUCE_SCATTER
from scaleacross.trace.recipe import Kitchen
from scaleacross.trace.steps import COMPUTE, Recipe

FEW = DENSE.model_copy(update={"kv_heads": 2})
VALUES = {"tp": 4, "pp": 4, "sequence_parallel": True}
TOKENS, HEAD = 1024, 64


def recipes(values: dict[str, object]) -> tuple[Recipe, Recipe]:
    case = make(FEW, {**VALUES, **values})
    kitchen = Kitchen(FEW, case.parallelism, case.placement, shard_of(TRAINING, case.parallelism), H100, "bf16")
    return kitchen.forward(0), kitchen.backward(0, whole=True)


def test_projections_are_gathered_and_their_gradient_is_scattered() -> None:
    """8 query and 2 + 2 KV heads of 64, 2 bytes, 1024 tokens: the buffer whole; an all-gather is given one shard."""
    whole = 2 * TOKENS * HEAD * (8 + 2 + 2)
    sizes = []
    for recipe, name in zip(recipes({}), ("qkv.ag", "qkv.rs"), strict=True):
        [step] = [step for step in recipe.steps if step.name == name]
        sizes.append((step.comm_type, step.size, step.group))
    assert sizes == [(ALL_GATHER, whole // 4, "tp"), (REDUCE_SCATTER, whole, "tp")]
    few = make(FEW, {"tp": 2, "pp": 4})
    assert not any("qkv.ag" in name for trace in few.stage_traces for name in trace.names), "2 ranks, 2 KV heads"


def test_flops_and_parameters_are_as_without() -> None:
    many = make(
        DENSE.model_copy(update={"kv_heads": 2, "head_size": 64}), {"tp": 2, "pp": 4, "sequence_parallel": True}
    )
    kitchen = Kitchen(FEW, many.parallelism, many.placement, shard_of(TRAINING, many.parallelism), H100, "bf16")
    for ours, other in zip(recipes({}), (kitchen.forward(0), kitchen.backward(0, whole=True)), strict=True):
        flops = [sum(step.num_ops for step in recipe.steps if step.comm_type == COMPUTE) for recipe in (ours, other)]
        assert 2 * flops[0] == pytest.approx(flops[1], rel=1e-6)
    assert layer_parameters(FEW, 0, tp=4).tensor * 4 == layer_parameters(FEW, 0, tp=1).tensor


def test_every_rank_keeps_one_kv_head() -> None:
    """Against 4 KV heads on 4 ranks (one each, not split) the same; against a share of 2 heads, half a head more."""
    plan = make(FEW, VALUES).parallelism
    shard = shard_of(TRAINING, plan)
    split, one_each = (layer_activation(model, 0, shard).stored("none") for model in (FEW, DENSE))
    assert split == one_each
    assert FEW.rank_kv_width(4) == DENSE.rank_kv_width(4) == 2 * HEAD == FEW.kv_width // 2


def test_context_parallel_ranks_gather_that_head() -> None:
    forward, _ = recipes({"cp": 2, "pp": 2})
    names = [step.name for step in forward.steps]
    assert names.index("qkv.ag") < names.index("kv.ag")
    assert forward.steps[names.index("kv.ag")].size == 2 * TOKENS * 2 * HEAD // 2
