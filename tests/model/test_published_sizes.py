"""Parameter counts against the published ones, every shipped model."""

from pathlib import Path

import pytest
from scaleacross.model import load_model

MODELS = Path(__file__).parents[2] / "config" / "models"

# name: (total, active, half of the last published digit, all in 1e9 parameters; source)
PUBLISHED = {
    "llama3-8b": (8.03, None, 0.005, "model card: 8.03 B parameters"),
    "llama3-70b": (70.6, None, 0.05, "model card: 70.6 B parameters"),
    "llama3-405b": (405.0, None, 0.5, "arXiv 2407.21783"),
    "gpt3-175b": (175.0, None, 0.5, "arXiv 2005.14165, table 2.1"),
    "megascale-175b": (175.0, None, 0.5, "arXiv 2402.15627, table 1"),
    "megatron-1.7b": (1.7, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-3.6b": (3.6, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-7.5b": (7.5, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-18.4b": (18.4, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-39.1b": (39.1, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-76.1b": (76.1, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-145.6b": (145.6, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-310.1b": (310.1, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-529.6b": (529.6, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-1008b": (1008.0, None, 0.05, "arXiv 2104.04473, table 1"),
    "megatron-22b": (22.0, None, 0.5, "arXiv 2205.05198, table 3"),
    "mt-nlg-530b": (530.0, None, 0.5, "arXiv 2201.11990"),
    "mixtral-8x7b": (46.7, 12.9, 0.05, "Mistral AI, announcement of Mixtral 8x7B"),
    "deepseek-v3": (671.0, 37.0, 0.5, "arXiv 2412.19437"),
    "llama4-maverick": (400.0, 17.0, 0.5, "Meta AI, Llama 4 announcement"),
    "qwen3-235b-a22b": (235.0, 22.0, 0.5, "arXiv 2505.09388, table 2"),
}


def test_every_shipped_model_has_a_published_size() -> None:
    assert {file.stem for file in MODELS.glob("*.yaml")} == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_within_half_a_percent_of_the_published_number(name: str) -> None:
    """0.5 %, or what rounding of the published number leaves open where that is more (``1.7 B``)."""
    total, active, rounding, _ = PUBLISHED[name]
    model = load_model(MODELS / f"{name}.yaml")
    assert model.parameters() / 1e9 == pytest.approx(total, abs=max(0.005 * total, rounding))
    if active is not None:
        assert model.active_parameters() / 1e9 == pytest.approx(active, abs=max(0.005 * active, 0.6))


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen3-235b-a22b", 235_093_634_560),
    ],
)
def test_parameters_equal_those_of_the_published_weights(name: str, exact: int) -> None:
    """Elements of the published checkpoints."""
    assert load_model(MODELS / f"{name}.yaml").parameters() == exact


def test_deepseek_v3_with_its_prediction_module_is_685_billion() -> None:
    """671 B and 14 B: the module's 11.5 B and its own copies of embedding and head (DeepSeek-V3, README)."""
    model = load_model(MODELS / "deepseek-v3.yaml")
    with_copies = model.mtp_parameters() + 2 * model.vocab * model.hidden
    assert model.mtp_parameters() / 1e9 == pytest.approx(11.5, abs=0.15)
    assert (model.parameters() + with_copies) / 1e9 == pytest.approx(685, abs=0.6)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.startswith(("megatron", "gpt3", "mt-nlg"))])
def test_gpt_parameters_follow_the_published_formula(name: str) -> None:
    """12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)) (arXiv 2104.04473, equation 2), and the final norm's 2 h."""
    model = load_model(MODELS / f"{name}.yaml")
    layers, hidden = model.layers, model.hidden
    formula = 12 * layers * hidden**2 + 13 * layers * hidden + (model.vocab + model.max_positions) * hidden
    assert model.parameters() == formula + 2 * hidden
