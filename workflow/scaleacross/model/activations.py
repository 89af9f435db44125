"""What the forward pass stores for the backward pass, tensor by tensor, for one rank's shard of one micro-batch.

The list is Korthikanti et al.'s (arXiv 2205.05198, section 4.1) written for any layer. For a GPT layer of hidden size
h, sequence s, micro-batch b, a heads and tensor-parallel degree t it sums to ``sbh (10 + 24/t + 5as/(ht))`` bytes, with
sequence parallelism ``sbh/t (34 + 5as/h)``, with selective recomputation besides ``34 sbh/t`` (their table 2).

With flash attention the score matrix is never stored; the output and one FP32 number a row and head are. Selective
recomputation then drops what is cheap to compute again: the norms' outputs, the MLP activation's output and what latent
attention projects up (Megatron Core's fine-grained selective recomputation; DeepSeek-V3, arXiv 2412.19437, 3.2.3).

Where the weight gradient is a pass of its own, it needs input and output gradient of every product with weights, be
they recomputed: ``32 sbh`` bytes of a GPT layer (Zero Bubble, arXiv 2401.10241, table 1). Assumption: under sequence
parallelism they wait divided and are gathered again (the authors' code does so with inputs; the output gradients of
row-parallel products it keeps gathered).
"""

from __future__ import annotations

from dataclasses import dataclass

from .operators import Shard
from .spec import Model


@dataclass(frozen=True, slots=True)
class Activation:
    """Bytes one rank stores of one block or layer: ``kept`` in any mode but full recomputation, ``selective`` what
    selective recomputation drops besides, ``checkpoint`` all that full recomputation keeps (the layer's input);
    ``weight`` what the weight gradients need after the input gradient."""

    kept: float
    selective: float = 0.0
    checkpoint: float = 0.0
    weight: float = 0.0

    def stored(self, recompute: str) -> float:
        """Bytes stored under ``none``, ``selective`` or ``full`` recomputation."""
        return {"none": self.kept + self.selective, "selective": self.kept, "full": self.checkpoint}[recompute]

    def left(self, recompute: str) -> float:
        """Bytes from an input gradient to a weight gradient that comes later: what was stored, of which the input
        gradient is taken to free nothing, or what the weight gradient needs, if that is more (recomputation)."""
        return max(self.stored(recompute), self.weight)

    def plus(self, other: Activation) -> Activation:
        """Sum, field by field."""
        return Activation(
            self.kept + other.kept,
            self.selective + other.selective,
            self.checkpoint + other.checkpoint,
            self.weight + other.weight,
        )


def layer_activation(model: Model, layer: int, shard: Shard) -> Activation:
    """Bytes stored by layer ``layer``."""
    feed_forward = _moe(model, shard) if model.is_moe(layer) else _mlp(model, shard, shard.tokens, model.ffn)
    residual = shard.residual_tokens * model.hidden * shard.bytes_per_element
    inputs = 2 * residual  # of the two norms
    masks = 2 * shard.residual_tokens * model.hidden if model.dropout else 0
    both = _attention(model, layer, shard).plus(feed_forward)
    return Activation(both.kept + inputs + masks, both.selective, float(residual), both.weight)


def embedding_activation(model: Model, shard: Shard) -> float:
    """Bytes stored of the embedding for each micro-batch: the mask of its dropout."""
    return float(shard.residual_tokens * model.hidden if model.dropout else 0)


def module_activation(model: Model, module: int, shard: Shard) -> Activation:
    """Bytes stored by multi-token-prediction module ``module``: its layer, its embedding, and the joined norms of that
    and of the residual stream, which enter the projection (its rows are divided by ``tp`` in any mode)."""
    row = shard.bytes_per_element * (shard.tokens // shard.tp) * model.hidden
    return layer_activation(model, model.layers + module, shard).plus(Activation(3 * row, 0.0, 3 * row, 3 * row))


@dataclass(frozen=True, slots=True)
class LossActivation:
    """Bytes of the loss (and of those of prediction modules): ``working`` once, while it is computed; ``forward`` of
    every micro-batch from its forward to its backward; ``weight`` of every one from there to its weight gradient."""

    working: float
    forward: float
    weight: float


def loss_activation(model: Model, shard: Shard) -> LossActivation:
    """What losses hold: logits in the compute precision (working), in FP32 with their gradient in place (Megatron-LM's
    vocabulary-parallel cross-entropy) until the backward pass, that gradient in the compute precision until the weight
    gradient; and norm input and output throughout."""
    element, losses = shard.bytes_per_element, 1 + model.mtp_modules
    logits = shard.tokens * model.vocab / shard.tp
    norm = 2 * element * shard.residual_tokens * model.hidden
    return LossActivation(logits * element, losses * (4 * logits + norm), losses * (element * logits + norm))


def _attention(model: Model, layer: int, shard: Shard) -> Activation:
    element, tokens, tp = shard.bytes_per_element, shard.tokens, shard.tp
    inputs = element * shard.residual_tokens * model.hidden
    heads_out = model.heads * model.value_size
    latent = (model.mla.query_rank + model.mla.kv_rank + model.mla.rope_size) * 2 if model.mla else 0
    projected = element * tokens * (model.query_width / tp + model.rank_kv_width(tp))
    kept = element * tokens / tp * (heads_out + latent)  # latents before and after their norms, divided by tokens
    weight = 2 * inputs + projected + kept  # the output's gradient is as large as the input
    if shard.fused:
        kept += 4 * tokens * model.heads / tp
        if model.mla:
            return Activation(kept, inputs + projected, weight=weight)
        return Activation(kept + projected, inputs, weight=weight)
    kept += inputs + projected
    span = model.attention_span(layer, shard.sequence)
    scores = tokens * span * model.heads / tp
    softmax = element * scores
    dropped = (element + 1) * scores if model.dropout else 0
    return Activation(kept, softmax + dropped, weight=weight)


def _mlp(model: Model, shard: Shard, tokens: float, ffn: int) -> Activation:
    element = shard.bytes_per_element
    up = 2 * ffn if model.mlp == "swiglu" else ffn
    inputs = element * shard.residual_tokens * model.hidden
    projected, activated = element * tokens * up / shard.tp, element * tokens * ffn / shard.tp
    weight = 2 * inputs + projected + activated
    if shard.fused:
        return Activation(projected, inputs + activated, weight=weight)
    return Activation(inputs + projected + activated, weight=weight)


def _moe(model: Model, shard: Shard) -> Activation:
    """Router input and probabilities, permuted rows, and the experts' own (probabilities are applied between their two
    products, so that the rows sent back need not be kept)."""
    assert model.moe is not None
    moe, element = model.moe, shard.bytes_per_element
    routed = shard.tokens // shard.tp
    rows = routed * moe.top_k * shard.etp * shard.expert_imbalance
    up = 2 if model.mlp == "swiglu" else 1
    widths = rows * moe.ffn / shard.etp + shard.tokens * moe.shared_width / shard.tp
    kept = element * (rows * model.hidden + up * widths) + 4 * routed * moe.experts
    cheap = element * (shard.residual_tokens * model.hidden + widths)
    shared = shard.residual_tokens * model.hidden if moe.shared_width else 0
    weight = kept + cheap + element * (rows * model.hidden + shared)  # gradients of what the experts send back
    return Activation(kept, cheap, weight=weight) if shard.fused else Activation(kept + cheap, weight=weight)
