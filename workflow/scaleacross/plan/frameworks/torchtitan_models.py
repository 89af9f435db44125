"""The models that torchtitan v0.2.2 ships, by (name, flavor): it takes a model's shape by name, not by numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...model import Model


class Flavor(NamedTuple):
    """A model torchtitan ships. ``flex``: FlexAttention, which its context parallelism does not support;
    ``pipelined``: its pipeline parallelism supports the model."""

    model: Model
    flex: bool = False
    pipelined: bool = True


def _model(**shape: Any) -> Model:
    return Model.model_validate({"name": "shipped", **shape})


_LLAMA3: dict[str, Any] = {"kv_heads": 8, "vocab": 128256}
_LLAMA4: dict[str, Any] = {
    "layers": 48,
    "hidden": 5120,
    "heads": 40,
    "kv_heads": 8,
    "ffn": 16384,
    "vocab": 202048,
    "moe": {"experts": 128, "top_k": 1, "ffn": 8192, "shared_experts": 1, "every": 2},
}

FLAVORS: dict[tuple[str, str], Flavor] = {
    ("llama3", "8B"): Flavor(_model(layers=32, hidden=4096, heads=32, ffn=14336, **_LLAMA3)),
    ("llama3", "70B"): Flavor(_model(layers=80, hidden=8192, heads=64, ffn=28672, **_LLAMA3)),
    ("llama3", "405B"): Flavor(_model(layers=126, hidden=16384, heads=128, ffn=53248, **_LLAMA3)),
    ("llama4", "17bx128e"): Flavor(_model(**_LLAMA4)),
    ("llama4", "17bx128e_irope"): Flavor(_model(**_LLAMA4, attention_chunk=8192, global_every=4), flex=True),
    ("deepseek_v3", "671B"): Flavor(
        _model(
            layers=61,
            hidden=7168,
            heads=128,
            ffn=18432,
            vocab=129280,
            mla={"query_rank": 1536, "kv_rank": 512, "nope_size": 128, "rope_size": 64, "value_size": 128},
            moe={
                "experts": 256,
                "top_k": 8,
                "ffn": 2048,
                "shared_experts": 1,
                "first_dense_layers": 3,
                "router_bias": True,
            },
        ),
        flex=True,
    ),
    ("qwen3", "235B-A22B"): Flavor(
        _model(
            layers=94,
            hidden=4096,
            heads=64,
            kv_heads=4,
            head_size=128,
            ffn=12288,
            vocab=151936,
            qk_norm=True,
            moe={"experts": 128, "top_k": 8, "ffn": 1536},
        ),
        pipelined=False,
    ),
}


def shape(model: Model) -> dict[str, Any]:
    """Everything of a model but its name and source."""
    return model.model_dump(exclude={"name", "source"})


def find(model: Model) -> tuple[tuple[str, str] | None, str]:
    """(name, flavor) of the shipped model of this shape; where there is none, also what the nearest one differs in."""
    wanted = shape(model)
    nearest: tuple[int, str] = (len(wanted) + 1, "")
    for (name, flavor), shipped in FLAVORS.items():
        own = shape(shipped.model)
        differing = [key for key, value in wanted.items() if own[key] != value]
        if not differing:
            return (name, flavor), ""
        if len(differing) < nearest[0]:
            key = differing[0]
            nearest = (len(differing), f"nearest is {name} {flavor} with {key} {own[key]}, not {wanted[key]}")
    return None, nearest[1]
