"""Model files: what is refused, and with which words."""

from pathlib import Path

import pytest
from drawn_models import MODELS, models, shipped
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.errors import InvalidInput
from scaleacross.model import Model, embedding_parameters, head_parameters, layer_parameters, load_model

GOOD = {"name": "m", "layers": 2, "hidden": 64, "heads": 8, "ffn": 128, "vocab": 100}


def write(folder: Path, **values: object) -> Path:
    path = folder / "m.yaml"
    path.write_text("\n".join(f"{key}: {value}" for key, value in {**GOOD, **values}.items()))
    return path


def test_heads_give_key_value_heads_and_their_size(tmp_path: Path) -> None:
    model = load_model(write(tmp_path))
    assert (model.kv_heads, model.head_size) == (8, 8)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"layerz": 3}, "did you mean 'layers'?"),
        ({"moe": "{experts: 8, topk: 2, ffn: 8, top_k: 2}"}, "did you mean 'top_k'?"),
        ({"kv_heads": 3}, "heads 8 is not a multiple of kv_heads 3"),
        ({"layers": 0}, "layers"),
        ({"positions": "learned"}, "max_positions"),
        ({"moe": "{experts: 2, top_k: 4, ffn: 8}"}, "top_k 4 > experts 2"),
        ({"moe": "{experts: 2, top_k: 1, ffn: 8, first_dense_layers: 9}"}, "first_dense_layers 9 > layers 2"),
        ({"mlp": "relu"}, "mlp"),
    ],
)
def test_bad_files_are_refused_with_the_reason(tmp_path: Path, values: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match="E-MODEL") as error:
        load_model(write(tmp_path, **values))
    assert said in str(error.value)


def test_a_missing_model_suggests_a_near_one() -> None:
    with pytest.raises(InvalidInput, match=r"did you mean 'llama3-405b'\?"):
        load_model(MODELS / "llama-3-405b.yaml")


def test_what_is_not_yaml_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("a: [1")
    with pytest.raises(InvalidInput, match="not YAML"):
        load_model(path)
    path.write_text("- 1")
    with pytest.raises(InvalidInput, match="not a mapping"):
        load_model(path)


def test_expert_layers_are_where_the_published_models_have_them() -> None:
    deepseek, maverick = shipped("deepseek-v3"), shipped("llama4-maverick")
    assert [deepseek.is_moe(layer) for layer in (0, 2, 3, 60, 61)] == [False, False, True, True, True]
    assert [maverick.is_moe(layer) for layer in range(4)] == [False, True, False, True]
    assert not any(shipped("llama3-8b").is_moe(layer) for layer in range(32))


@settings(max_examples=60, deadline=None)
@given(models(), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_shares_of_all_ranks_sum_to_the_parameters(model: Model, tp: int, ep: int, etp: int) -> None:
    """Tensor-sharded parameters over tp, routed experts over ep x etp, the rest on every rank."""
    for layer in range(model.layers + model.mtp_modules):
        share, whole = layer_parameters(model, layer, tp, ep, etp), layer_parameters(model, layer)
        assert share.tensor * tp == whole.tensor
        assert share.expert * ep * etp == whole.expert
        assert share.replicated == whole.replicated


@settings(max_examples=30, deadline=None)
@given(models())
def test_layers_embedding_and_head_make_the_model(model: Model) -> None:
    layers = sum(layer_parameters(model, layer).total for layer in range(model.layers))
    assert model.parameters() == layers + embedding_parameters(model).total + head_parameters(model).total
    assert model.active_parameters() <= model.parameters()
