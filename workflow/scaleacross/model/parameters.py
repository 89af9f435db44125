"""Parameter counts, of the whole model and of one rank's share.

Three buckets, because they are sharded over different groups of ranks (Megatron Core, MoE guide): tensor-sharded
parameters (divided by ``tp``), parameters replicated in the tensor-parallel group (norms, router, latent
down-projections), and routed experts (divided by ``ep`` and ``etp``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .spec import Model


class Parameters(NamedTuple):
    """Parameters one rank holds, in elements, by the group they are sharded over."""

    tensor: int = 0
    replicated: int = 0
    expert: int = 0

    @property
    def dense(self) -> int:
        """Everything but routed experts: what data parallelism over ``dp x cp`` ranks reduces."""
        return self.tensor + self.replicated

    @property
    def total(self) -> int:
        """All of them."""
        return self.tensor + self.replicated + self.expert

    def plus(self, other: Parameters) -> Parameters:
        """Sum, bucket by bucket (``+`` of tuples would concatenate)."""
        return Parameters(self.tensor + other.tensor, self.replicated + other.replicated, self.expert + other.expert)


def attention_parameters(model: Model, tp: int = 1) -> Parameters:
    """Projections, biases and norms of one layer's attention, its input norm included, on one of ``tp`` ranks."""
    norm = _norm(model, model.hidden) + (2 * _norm(model, model.head_size) if model.qk_norm else 0)
    output = model.heads * model.value_size * model.hidden
    output_bias = model.hidden if model.bias else 0
    if model.mla is None:
        queries_keys_values = model.query_width + model.kv_width
        biases = queries_keys_values if model.bias or model.qkv_bias else 0
        sharded = model.hidden * queries_keys_values + biases + output
        return Parameters(_share(sharded, tp), norm + output_bias)
    mla = model.mla
    down = model.hidden * (mla.query_rank + mla.kv_rank + mla.rope_size)
    up = mla.query_rank * model.query_width + mla.kv_rank * model.heads * (mla.nope_size + mla.value_size)
    latent_norms = _norm(model, mla.query_rank) + _norm(model, mla.kv_rank)
    return Parameters(_share(up + output, tp), norm + down + latent_norms + output_bias)


def mlp_parameters(model: Model, tp: int = 1) -> Parameters:
    """The dense MLP of one layer and its norm, on one of ``tp`` ranks."""
    sharded = _mlp_matrices(model, model.ffn) + (_up_width(model, model.ffn) if model.bias else 0)
    return Parameters(_share(sharded, tp), _norm(model, model.hidden) + (model.hidden if model.bias else 0))


def moe_parameters(model: Model, tp: int = 1, ep: int = 1, etp: int = 1) -> Parameters:
    """Router, shared and routed experts of one MoE layer and its norm, on one rank."""
    if model.moe is None:
        return Parameters()
    moe = model.moe
    router = model.hidden * moe.experts + (moe.experts if moe.router_bias else 0)
    shared = _mlp_matrices(model, moe.shared_width)
    routed = moe.experts * _mlp_matrices(model, moe.ffn)
    return Parameters(_share(shared, tp), _norm(model, model.hidden) + router, _share(routed, ep * etp))


def layer_parameters(model: Model, layer: int, tp: int = 1, ep: int = 1, etp: int = 1) -> Parameters:
    """Parameters of layer ``layer`` held by one rank. ``layer >= model.layers`` is a prediction module."""
    feed_forward = moe_parameters(model, tp, ep, etp) if model.is_moe(layer) else mlp_parameters(model, tp)
    held = attention_parameters(model, tp).plus(feed_forward)
    if layer >= model.layers:  # DeepSeek-V3 (arXiv 2412.19437), 2.2: two input norms, a 2h x h projection, a final norm
        held = held.plus(Parameters(0, 2 * model.hidden * model.hidden + 3 * _norm(model, model.hidden)))
    return held


def embedding_parameters(model: Model, tp: int = 1) -> Parameters:
    """Token table (divided by rows over ``tp``) and position table (replicated)."""
    positions = model.max_positions * model.hidden if model.positions == "learned" else 0
    return Parameters(_share(model.vocab * model.hidden, tp), positions)


def head_parameters(model: Model, tp: int = 1) -> Parameters:
    """Final norm and output matrix, also where it is tied: a last stage apart from the first holds its own copy."""
    return Parameters(_share(model.vocab * model.hidden, tp), _norm(model, model.hidden))


def model_parameters(model: Model) -> int:
    """Total parameters, prediction modules apart; a tied output matrix counts once."""
    layers = sum(layer_parameters(model, layer).total for layer in range(model.layers))
    tied = model.vocab * model.hidden if model.tied_embeddings else 0
    return layers + embedding_parameters(model).total + head_parameters(model).total - tied


def model_active_parameters(model: Model) -> int:
    """Parameters one token passes through (``top_k`` of the routed experts), embedding and head included."""
    total = model_parameters(model)
    if model.moe is None:
        return total
    idle = (model.moe.experts - model.moe.top_k) * _mlp_matrices(model, model.moe.ffn)
    return total - idle * sum(model.is_moe(layer) for layer in range(model.layers))


def mtp_parameters(model: Model) -> int:
    """Parameters of all multi-token-prediction modules; embedding and output matrix are the model's."""
    return sum(layer_parameters(model, model.layers + module).total for module in range(model.mtp_modules))


def _norm(model: Model, width: int) -> int:
    return width * (2 if model.norm == "layernorm" else 1)


def _up_width(model: Model, ffn: int) -> int:
    return ffn * (2 if model.mlp == "swiglu" else 1)


def _mlp_matrices(model: Model, ffn: int) -> int:
    return model.hidden * (_up_width(model, ffn) + ffn)


def _share(elements: int, ranks: int) -> int:
    return -(-elements // ranks)
