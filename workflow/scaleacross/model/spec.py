"""What a transformer is made of: one frozen specification, read from ``config/models/<name>.yaml``.

Sizes are numbers of elements; nothing here depends on how the model is split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from ..errors import InvalidInput, did_you_mean


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Mla(_Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and values.

    ``rope_size`` elements of every query and key head carry the position; the key's are shared by all heads.
    """

    query_rank: PositiveInt
    kv_rank: PositiveInt
    nope_size: PositiveInt
    rope_size: PositiveInt
    value_size: PositiveInt


class Moe(_Spec):
    """A mixture of experts in place of the MLP of some layers.

    Layers below ``first_dense_layers`` are dense; after them the last of every ``every`` layers is an MoE layer.
    """

    experts: PositiveInt
    top_k: PositiveInt
    ffn: PositiveInt
    shared_experts: int = 0
    shared_ffn: PositiveInt | None = None
    first_dense_layers: int = 0
    every: PositiveInt = 1
    router_bias: bool = False

    @model_validator(mode="after")
    def _routable(self) -> Moe:
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} > experts {self.experts}")
        return self

    @property
    def shared_width(self) -> int:
        """Inner width of all shared experts together, elements."""
        return self.shared_experts * (self.shared_ffn or self.ffn)


class Model(_Spec):
    """A decoder-only transformer: dense or MoE, with multi-head, grouped-query or latent attention.

    Attributes:
        layers: Transformer layers (multi-token-prediction modules not counted).
        hidden: Width of the residual stream.
        heads, kv_heads, head_size: Query heads, key/value heads, elements a head (ignored under ``mla``).
        ffn: Inner width of the dense MLP.
        vocab: Rows of the embedding table.
        mlp: ``swiglu`` (three matrices) or ``gelu`` (two).
        bias: Linear layers have biases; ``qkv_bias`` only those of queries, keys and values.
        positions: ``rope``, or ``learned`` with a table of ``max_positions`` rows.
        dropout: Dropout after attention, MLP and softmax (its masks are stored).
        qk_norm: A norm over each query and key head.
        attention_chunk: Local attention within chunks of this many tokens, except in every ``global_every``-th layer.
        mtp_modules: Multi-token-prediction modules trained with the model (DeepSeek-V3).
    """

    name: str
    source: str = ""
    layers: PositiveInt
    hidden: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_size: PositiveInt
    ffn: PositiveInt
    vocab: PositiveInt
    mlp: Literal["swiglu", "gelu"] = "swiglu"
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    bias: bool = False
    qkv_bias: bool = False
    positions: Literal["rope", "learned"] = "rope"
    max_positions: int = 0
    tied_embeddings: bool = False
    dropout: bool = False
    qk_norm: bool = False
    mla: Mla | None = None
    moe: Moe | None = None
    attention_chunk: PositiveInt | None = None
    global_every: PositiveInt = 1
    mtp_modules: int = 0

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        if isinstance(values, dict):
            values = dict(values)
            values.setdefault("kv_heads", values.get("heads"))
            if "head_size" not in values and isinstance(values.get("heads"), int) and values["heads"] > 0:
                values["head_size"] = int(values.get("hidden", 0)) // values["heads"]
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.positions == "learned" and self.max_positions < 1:
            raise ValueError("positions: learned needs max_positions")
        if self.moe and self.moe.first_dense_layers > self.layers:
            raise ValueError(f"moe.first_dense_layers {self.moe.first_dense_layers} > layers {self.layers}")
        return self

    @property
    def query_width(self) -> int:
        """Elements of all queries of a token."""
        return self.heads * self.qk_size

    @property
    def qk_size(self) -> int:
        """Elements of one query (or key) head."""
        return self.mla.nope_size + self.mla.rope_size if self.mla else self.head_size

    @property
    def value_size(self) -> int:
        """Elements of one value head."""
        return self.mla.value_size if self.mla else self.head_size

    @property
    def kv_width(self) -> int:
        """Elements of keys *and* values of a token as attention reads them (all heads under MLA)."""
        return (self.heads if self.mla else self.kv_heads) * (self.qk_size + self.value_size)

    def splits_kv_heads(self, tp: int) -> bool:
        """Whether ``tp`` ranks are more than there are KV heads, so that several hold the same one."""
        return self.mla is None and tp > self.kv_heads

    def rank_kv_width(self, tp: int) -> int:
        """``kv_width`` of one of ``tp`` ranks: its share, but one head at least (Megatron Core, attention.py)."""
        return self.kv_width // (self.kv_heads if self.splits_kv_heads(tp) else tp)

    def is_moe(self, layer: int) -> bool:
        """Whether layer ``layer`` (0-based; ``layers`` and up are prediction modules) routes to experts."""
        if self.moe is None or layer < self.moe.first_dense_layers:
            return False
        return (min(layer, self.layers - 1) - self.moe.first_dense_layers) % self.moe.every == self.moe.every - 1

    def attention_span(self, layer: int, sequence: int) -> int:
        """Keys the last query of a sequence sees in ``layer``: the sequence, or the chunk of a local layer."""
        local = self.attention_chunk is not None and (layer + 1) % self.global_every != 0
        return min(sequence, self.attention_chunk) if local and self.attention_chunk else sequence

    @property
    def table_at_both_ends(self) -> bool:
        """Whether the token table is read where the loss is too: as output matrix, or by prediction modules."""
        return self.tied_embeddings or self.mtp_modules > 0

    def parameters(self) -> int:
        """All parameters, prediction modules apart (they are not in published totals): see ``mtp_parameters``."""
        from .parameters import model_parameters

        return model_parameters(self)

    def active_parameters(self) -> int:
        """Parameters a token passes through: experts not chosen by the router left out."""
        from .parameters import model_active_parameters

        return model_active_parameters(self)

    def mtp_parameters(self) -> int:
        """Parameters of the multi-token-prediction modules, embedding and head shared with the model."""
        from .parameters import mtp_parameters

        return mtp_parameters(self)


def load_model(path: Path | str) -> Model:
    """Read and check a model file.

    Raises:
        InvalidInput: E-MODEL when the file is missing, is not YAML, or has unknown, missing or clashing keys.
    """
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        known = [file.stem for file in path.parent.glob("*.yaml")]
        raise InvalidInput("E-MODEL", f"cannot read model {path}", did_you_mean(path.stem, known)) from error
    except yaml.YAMLError as error:
        raise InvalidInput("E-MODEL", f"{path} is not YAML ({error})") from error
    if not isinstance(raw, dict):
        raise InvalidInput("E-MODEL", f"{path} is not a mapping", "see config/models for examples")
    try:
        return Model.model_validate(raw)
    except ValidationError as error:
        raise InvalidInput("E-MODEL", f"{path}: {_explain(error)}", _fix(error)) from error


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    return f"{where}: {message}" if where else message


def _fix(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] != "extra_forbidden":
        return "mend the model file"
    owner: Any = {"moe": Moe, "mla": Mla}.get(str(first["loc"][0]) if len(first["loc"]) > 1 else "", Model)
    return did_you_mean(str(first["loc"][-1]), owner.model_fields)
