"""FLOPs: laws that hold for every model and plan, and published formulas."""

from itertools import chain

import pytest
from drawn_models import models, shipped
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.model import (
    Model,
    Operator,
    Shard,
    backward_input,
    backward_weight,
    forward_flops,
    head_operators,
    layer_operators,
    linear_training_flops,
    mtp_operators,
    training_flops,
)

DEGREES = st.sampled_from([1, 2, 4, 8])


def all_operators(model: Model, shard: Shard) -> list[Operator]:
    layers = [layer_operators(model, layer, shard) for layer in range(model.layers)]
    modules = [mtp_operators(model, module, shard) for module in range(model.mtp_modules)]
    return [*chain.from_iterable(layers), *chain.from_iterable(modules), *head_operators(model, shard)]


def flops(operators: list[Operator]) -> int:
    return sum(operator.flops for operator in operators)


def backward(operators: list[Operator]) -> list[Operator]:
    return [gradient for each in operators for gradient in (*backward_input(each), *backward_weight(each))]


@settings(max_examples=60, deadline=None)
@given(
    models(), DEGREES, DEGREES, DEGREES, st.sampled_from([1, 2]), st.sampled_from(["flash", "unfused"]), st.booleans()
)
def test_flops_of_all_ranks_do_not_depend_on_the_degrees(
    model: Model, tp: int, cp: int, ep: int, etp: int, attention: str, sequence_parallel: bool
) -> None:
    """Every rank of a tp x cp group does an equal share, forward and backward, and the shares sum to the whole."""
    whole = Shard(2, 512, attention=attention)
    part = Shard(2, 512, tp, cp, ep, etp, sequence_parallel, attention=attention)
    assert flops(all_operators(model, part)) * tp * cp == flops(all_operators(model, whole))
    assert flops(backward(all_operators(model, part))) * tp * cp == flops(backward(all_operators(model, whole)))


@pytest.mark.parametrize(
    ("name", "tp", "cp", "ep", "etp"),
    [
        ("llama3-405b", 8, 16, 1, 1),
        ("gpt3-175b", 8, 1, 1, 1),
        ("mixtral-8x7b", 4, 2, 8, 4),
        ("deepseek-v3", 1, 1, 64, 1),
        ("llama4-maverick", 8, 1, 16, 8),
        ("qwen3-235b-a22b", 4, 2, 32, 1),
    ],
)
def test_flops_of_shipped_models_do_not_depend_on_the_degrees(name: str, tp: int, cp: int, ep: int, etp: int) -> None:
    model = shipped(name)
    part, whole = Shard(1, 8192, tp, cp, ep, etp), Shard(1, 8192)
    for layer in {0, model.layers // 2, model.layers - 1}:
        ours, reference = list(layer_operators(model, layer, part)), list(layer_operators(model, layer, whole))
        assert flops(ours) * tp * cp == flops(reference)
        assert flops(backward(ours)) * tp * cp == flops(backward(reference))


@settings(max_examples=40, deadline=None)
@given(models())
def test_backward_is_twice_forward_and_flash_two_and_a_half_times(model: Model) -> None:
    for operator in all_operators(model, Shard(1, 256)):
        ratio = 2.5 if operator.kind == "attention" else 2
        assert flops(backward([operator])) == ratio * operator.flops


@settings(max_examples=40, deadline=None)
@given(models(), st.integers(1, 8))
def test_training_flops_are_three_forwards_and_linear_in_tokens(model: Model, sequences: int) -> None:
    one = training_flops(model, 512, 512)
    assert one == 3 * forward_flops(model, 512)
    assert training_flops(model, 512 * sequences, 512) == sequences * one


@settings(max_examples=20, deadline=None)
@given(models())
def test_the_causal_convention_halves_attention_alone(model: Model) -> None:
    both = training_flops(model, 256, 256, "full"), training_flops(model, 256, 256, "causal")
    attention = sum(o.flops for o in all_operators(model, Shard(1, 256)) if o.kind == "attention")
    assert both[0] - both[1] == 3 * attention


@pytest.mark.parametrize("name", ["megatron-22b", "gpt3-175b", "megatron-529.6b", "megatron-1008b"])
def test_model_flops_equal_korthikanti_appendix_a(name: str) -> None:
    """72 B s l h^2 (1 + s / (6 h) + V / (12 l h))."""
    model, batch, sequence = shipped(name), 64, 2048
    layers, hidden = model.layers, model.hidden
    expected = 72 * batch * sequence * layers * hidden**2
    expected = expected * (1 + sequence / (6 * hidden) + model.vocab / (12 * layers * hidden))
    assert training_flops(model, batch * sequence, sequence) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(models(), st.sampled_from([32, 64, 128]), st.sampled_from(["full", "causal"]))
def test_masked_documents_cost_what_sequences_of_their_length_cost(model: Model, length: int, convention: str) -> None:
    packed = training_flops(model, 512, 256, convention, document_length=length)  # type: ignore[arg-type]
    assert packed == training_flops(model, 512, length, convention)  # type: ignore[arg-type]


def test_llama3_attention_adds_what_the_module_says() -> None:
    """The output matrix is in both, the input embedding only in 6 N D."""
    model, tokens = shipped("llama3-405b"), 16 * 2**20
    embedding = 6 * model.vocab * model.hidden * tokens
    linear = linear_training_flops(model, tokens)
    full, causal = (training_flops(model, tokens, 8192, each) + embedding for each in ("full", "causal"))
    assert full / linear == pytest.approx(1.083, abs=5e-4)
    assert causal / linear == pytest.approx(1.042, abs=5e-4)


def test_unfused_attention_computes_the_full_square() -> None:
    model = shipped("gpt3-175b")
    fused = sum(o.flops for o in layer_operators(model, 0, Shard(1, 2048)) if o.kind == "attention")
    unfused = [o for o in layer_operators(model, 0, Shard(1, 2048, attention="unfused")) if o.selective]
    assert sum(o.flops for o in unfused) == 2 * fused == 4 * 2048**2 * model.hidden
    masked = layer_operators(model, 0, Shard(1, 2048, attention="unfused", document_length=512))
    assert masked == layer_operators(model, 0, Shard(1, 2048, attention="unfused")), "a mask saves it nothing"


def test_busier_attention_is_dearer_and_nothing_else_is() -> None:
    model = shipped("llama3-8b")
    even, busy = (
        layer_operators(model, 0, Shard(1, 8192, cp=2, document_length=2048, attention_imbalance=x)) for x in (1.0, 1.5)
    )
    for before, after in zip(even, busy, strict=True):
        assert after.flops == (1.5 if before.kind == "attention" else 1.0) * before.flops


def test_busier_experts_compute_more_and_only_they() -> None:
    model = shipped("mixtral-8x7b")
    even, busy = (layer_operators(model, 0, Shard(1, 4096, ep=8, expert_imbalance=x)) for x in (1.0, 1.5))
    for before, after in zip(even, busy, strict=True):
        factor = 1.5 if before.name.startswith("expert") else 1.0
        assert after.flops == factor * before.flops


def test_long_sequences_pay_local_attention_by_the_chunk() -> None:
    model = shipped("llama4-maverick")
    local, everywhere = (
        next(o.flops for o in layer_operators(model, layer, Shard(1, 32768)) if o.kind == "attention")
        for layer in (0, 3)
    )
    assert everywhere == 4 * local
