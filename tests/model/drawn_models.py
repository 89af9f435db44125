"""Small and shipped models that several tests use."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from scaleacross.model import Mla, Model, Moe, load_model

MODELS = Path(__file__).parents[2] / "config" / "models"


def shipped(name: str) -> Model:
    return load_model(MODELS / f"{name}.yaml")


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Dense, MoE, latent-attention and chunked-attention models whose sizes every power of two up to 8 divides."""
    heads = 8 * draw(st.integers(1, 4))
    values: dict[str, Any] = {
        "name": "drawn",
        "layers": draw(st.integers(1, 4)),
        "hidden": 64 * draw(st.integers(1, 4)),
        "heads": heads,
        "kv_heads": draw(st.sampled_from([8, heads])),
        "head_size": draw(st.sampled_from([16, 32])),
        "ffn": 64 * draw(st.integers(1, 4)),
        "vocab": 512,
        "mlp": draw(st.sampled_from(["swiglu", "gelu"])),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])),
        "bias": draw(st.booleans()),
        "dropout": draw(st.booleans()),
        "qk_norm": draw(st.booleans()),
        "attention_chunk": draw(st.sampled_from([None, 64])),
    }
    if draw(st.booleans()):
        values["moe"] = Moe(experts=16, top_k=draw(st.integers(1, 4)), ffn=32, shared_experts=draw(st.integers(0, 1)))
    if draw(st.booleans()):
        values["mla"] = Mla(query_rank=32, kv_rank=16, nope_size=16, rope_size=8, value_size=16)
        values["mtp_modules"] = 1
    return Model.model_validate(values)
