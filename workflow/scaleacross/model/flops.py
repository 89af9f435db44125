"""Model FLOPs of a training step, for MFU. Recomputation never counts here (that is HFU).

Two conventions for causal attention, because published numbers differ:

* ``full`` counts the whole score matrix, as Megatron-LM's formula does (Narayanan et al., arXiv 2104.04473, appendix;
  Korthikanti et al., arXiv 2205.05198, appendix A; PaLM, arXiv 2204.02311, appendix B). **Results columns
  (``mfu``, ``tflops_per_gpu``) use it.**
* ``causal`` counts the half that a causal model needs.

``linear_training_flops`` is 6 N D, without attention. For Llama 3 405B attention adds to it 8.3 % (``full``) or 4.2 %
(``causal``) at a sequence of 8,192, and 133 % or 67 % at 131,072. Llama 3 (arXiv 2407.21783, table 4) gives TFLOP/s
and BF16 MFU (400 and 41 %; 400 / 989 is 40.4 %) without its formula; its row of 131,072 tokens (380 TFLOP/s) is only
possible if attention is counted, so that table is compared with ``causal``. The optimizer's, norms' and activations'
FLOPs are in no convention.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from .blocks import head_operators, layer_operators, mtp_operators
from .operators import Shard
from .spec import Model

Convention = Literal["full", "causal"]


@lru_cache(maxsize=256)
def forward_flops(model: Model, sequence: int, convention: Convention = "full", document_length: float = 0.0) -> int:
    """Matrix FLOPs of the forward pass of one sequence: layers, prediction modules and logits (the embedding is a
    look-up). Where attention is masked between documents of ``document_length`` tokens, both conventions count the
    squares within documents."""
    shard = Shard(micro_batch=1, sequence=sequence, document_length=document_length)
    operators = list(head_operators(model, shard))
    for layer in range(model.layers):
        operators += layer_operators(model, layer, shard)
    for module in range(model.mtp_modules):
        operators += mtp_operators(model, module, shard)
    square = 2 if convention == "full" else 1
    return sum(operator.flops * (square if operator.kind == "attention" else 1) for operator in operators)


def training_flops(
    model: Model, tokens: int, sequence: int, convention: Convention = "full", document_length: float = 0.0
) -> int:
    """FLOPs of one step over ``tokens`` tokens in sequences of ``sequence``: three times the forward pass."""
    return 3 * forward_flops(model, sequence, convention, document_length) * tokens // sequence


def linear_training_flops(model: Model, tokens: int) -> int:
    """6 N D with N the active parameters, the input embedding included as published 6 N D counts do."""
    return 6 * model.active_parameters() * tokens
