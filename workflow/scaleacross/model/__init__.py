"""Transformer architectures: parameters, FLOPs, bytes and activations per operator. Knows no cluster and no plan."""

from .blocks import (
    attention_operators,
    embedding_operators,
    head_operators,
    layer_operators,
    mlp_operators,
    moe_operators,
    mtp_operators,
    optimizer_operators,
)
from .flops import forward_flops, linear_training_flops, training_flops
from .operators import Operator, Shard, backward_input, backward_weight, recomputed
from .parameters import Parameters, embedding_parameters, head_parameters, layer_parameters
from .spec import Mla, Model, Moe, load_model

__all__ = [
    "Mla",
    "Model",
    "Moe",
    "Operator",
    "Parameters",
    "Shard",
    "attention_operators",
    "backward_input",
    "backward_weight",
    "embedding_operators",
    "embedding_parameters",
    "forward_flops",
    "head_operators",
    "head_parameters",
    "layer_operators",
    "layer_parameters",
    "linear_training_flops",
    "load_model",
    "mlp_operators",
    "moe_operators",
    "mtp_operators",
    "optimizer_operators",
    "recomputed",
    "training_flops",
]
