"""Memory of one rank of a pipeline stage, in bytes: states, activations in flight, buffers.

Sources: mixed-precision state sizes and ZeRO stages, Rajbhandari et al. (arXiv 1910.02054); fully sharded data
parallelism and its prefetched units, Zhao et al. (arXiv 2304.11277); activations, Korthikanti et al. (arXiv
2205.05198), sections 4 and 5; expert parameters sharded over their own data-parallel group, Megatron Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cluster.accelerator import Accelerator
from ..errors import Infeasible
from ..model import Model, Parameters, Shard, embedding_parameters, head_parameters, layer_parameters
from ..model.activations import (
    embedding_activation,
    layer_activation,
    loss_activation,
    module_activation,
)
from ..units import GIB
from .degrees import Parallelism, Training
from .rules import micro_batches

STATE_BYTES = {"adam": 12, "sgd": 8}  # FP32 master weights and Adam's two moments (SGD: one)
GATHERED_UNITS = 2  # layers whose gathered weights are held at once under FSDP (its limit of gathers in flight)


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes that a rank of one stage holds at its peak.

    Attributes:
        stage: Position in the pipeline.
        weights, gradients, optimizer: States of the parameters, as sharded.
        activations: Stored for the backward passes of the micro-batches in flight, what is recomputed at a time, and
            the loss's logits.
        buffers: Of communication: pipeline messages, gathered sequences, keys and values.
    """

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """Sum of all parts, bytes."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Each part by name, biggest first, bytes."""
        names = ("weights", "gradients", "optimizer", "activations", "buffers")
        return dict(sorted(((name, getattr(self, name)) for name in names), key=lambda part: -part[1]))


def shard_of(training: Training, parallelism: Parallelism) -> Shard:
    """How one micro-batch of a layer is divided under a plan."""
    return Shard(
        micro_batch=parallelism.micro_batch,
        sequence=training.sequence_length,
        tp=parallelism.tp,
        cp=parallelism.cp,
        ep=parallelism.ep,
        etp=parallelism.etp,
        sequence_parallel=parallelism.sequence_parallel,
        bytes_per_element=training.element_bytes,
        attention=parallelism.attention,  # type: ignore[arg-type]  # one of ATTENTIONS, checked by Parallelism
        gradient_bytes=parallelism.gradient_bytes,
        fused_accumulation=parallelism.fused_accumulation,
        expert_imbalance=training.expert_imbalance,
        document_length=training.document_length,
        attention_imbalance=training.attention_imbalance,
    )


@dataclass(frozen=True)
class Chunk:
    """A virtual stage of a rank: the numbers of its layers, and whether the token table or the loss is with them."""

    layers: Sequence[int]
    embedding: bool = False
    head: bool = False


def stage_memory(
    model: Model,
    training: Training,
    parallelism: Parallelism,
    chunks: Sequence[Chunk],
    held: np.ndarray,
    stage: int,
) -> MemoryBreakdown:
    """Peak memory of a rank of one pipeline stage.

    Args:
        chunks: What the rank holds, of every copy of the model. Multi-token-prediction modules are with the loss, as is
            the copy of the token table that they read where the rank has no other.
        held: The schedule's ``most_held`` of the rank: shape (moments, 2 * chunks + 2).
        stage: Position in the pipeline.
    """
    shard = shard_of(training, parallelism)
    modules = range(model.layers, model.layers + model.mtp_modules)
    of_layers = [
        layer_parameters(model, layer, parallelism.tp, parallelism.ep, parallelism.etp)
        for chunk in chunks
        for layer in (*chunk.layers, *(modules if chunk.head else ()))
    ]
    weights, gradients, optimizer = _states(
        _sum(of_layers).plus(_ends(model, chunks, parallelism.tp)),
        max(of_layers, key=lambda parameters: parameters.total, default=Parameters()),
        training,
        parallelism,
    )
    activations = _activations(model, shard, parallelism.recompute, chunks, held)
    return MemoryBreakdown(stage, weights, gradients, optimizer, activations, _buffers(model, shard, parallelism))


def check_memory(stages: Sequence[MemoryBreakdown], accelerator: Accelerator) -> MemoryBreakdown:
    """The heaviest stage.

    Raises:
        Infeasible: E-MEMORY when it does not fit: by how much, on which stage, and what is biggest there.
            ``shortfall`` is the excess over the limit.
    """
    heaviest = max(stages, key=lambda stage: stage.total)
    limit = accelerator.usable_bytes
    if heaviest.total > limit:
        biggest = ", ".join(f"{name} {size / GIB:.1f}" for name, size in list(heaviest.parts().items())[:3])
        raise Infeasible(
            "E-MEMORY",
            f"stage {heaviest.stage} needs {heaviest.total / GIB:.1f} GiB, {(heaviest.total - limit) / GIB:.1f} more "
            f"than the {limit / GIB:.1f} GiB of {accelerator.name} (biggest: {biggest})",
            "raise tp, pp or cp (ep too where there are experts), shard or recompute more, or lower micro_batch",
            shortfall=heaviest.total / limit - 1.0,
        )
    return heaviest


def _sum(parts: Sequence[Parameters]) -> Parameters:
    total = Parameters()
    for part in parts:
        total = total.plus(part)
    return total


def _states(
    held: Parameters, largest: Parameters, training: Training, parallelism: Parallelism
) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states in bytes, each bucket divided over its own data-parallel group.

    ``ddp`` divides nothing, the others the optimizer. ``fsdp`` and ``hsdp`` keep the gathered weights for the whole
    step (as Llama 3), ``fsdp-reshard`` those of two. Gradients are divided only where they are reduced after each
    micro-batch (``zero2``, or a step of one): reduced once a step, they accumulate whole until the last backward.
    """
    dense, expert = parallelism.shard_ranks, _expert_shard_ranks(parallelism)
    whole, divided = float(held.total), held.dense / dense + held.expert / expert
    sharding = parallelism.dp_sharding
    weights = gradients = whole
    if sharding == "fsdp-reshard":
        weights = min(whole, divided + GATHERED_UNITS * largest.total)
    if sharding == "zero2" or (sharding not in ("ddp", "zero1") and micro_batches(training, parallelism) == 1):
        gradients = min(whole, divided + parallelism.bucket_layers * largest.total)
    return (
        weights * training.element_bytes,
        gradients * parallelism.gradient_bytes,
        (whole if sharding == "ddp" else divided) * STATE_BYTES[training.optimizer],
    )


def _expert_shard_ranks(parallelism: Parallelism) -> int:
    """Ranks over which the states of one expert are divided: those of the dense ones that hold the same experts."""
    if parallelism.dp_sharding == "ddp":
        return 1
    same = parallelism.shard_ranks * parallelism.tp // (parallelism.etp * parallelism.ep)
    return max(1, min(same, parallelism.expert_data_ranks))


def _ends(model: Model, chunks: Sequence[Chunk], tp: int) -> Parameters:
    """Embedding and output matrix that a rank holds; the token table once, where both ends need it."""
    embedding, head = (any(getattr(chunk, end) for chunk in chunks) for end in ("embedding", "head"))
    held, table = Parameters(), embedding_parameters(model, tp)
    if embedding:
        held = held.plus(table)
    if head:
        held = held.plus(head_parameters(model, tp))
        copies = int(model.table_at_both_ends and not model.tied_embeddings) - int(
            model.table_at_both_ends and embedding
        )
        held = held.plus(Parameters(copies * table.tensor))
    return held


def _activations(model: Model, shard: Shard, recompute: str, chunks: Sequence[Chunk], held: np.ndarray) -> float:
    """Bytes at the worst moment: each chunk's activations as often as they are held then, those of the loss, and of one
    layer what is being recomputed.

    Assumption: a backward that leaves its weight gradient to later recomputes layer by layer, and keeps for it what
    that needs of all the chunk's layers (``Activation.left``); nothing is recomputed twice, as in the authors' Zero
    Bubble code. Beside what waits, one layer is held whole.
    """
    loss = loss_activation(model, shard) if any(chunk.head for chunk in chunks) else None
    own, count, working, passing = np.zeros(2 * len(chunks) + 2), len(chunks), 0.0, 0.0
    for index, chunk in enumerate(chunks):
        layers = [layer_activation(model, layer, shard) for layer in chunk.layers]
        if chunk.head:
            layers += [module_activation(model, module, shard) for module in range(model.mtp_modules)]
        ends = embedding_activation(model, shard) if chunk.embedding else 0.0
        ends += loss.weight if loss and chunk.head else 0.0
        own[index] = sum(layer.stored(recompute) for layer in layers) + ends
        own[count + index] = sum(layer.left(recompute) for layer in layers) + ends
        working = max([working, *(layer.stored("none") - layer.stored(recompute) for layer in layers)])
        passing = max([passing, *(layer.stored("none") - layer.left(recompute) for layer in layers)])
    own[-2] = loss.forward - loss.weight if loss else 0.0
    again = np.maximum(held[:, -1] * working, held[:, count:-2].any(axis=1) * passing)
    return float((held @ own + again).max(initial=0.0)) + (loss.working if loss else 0.0)


def _buffers(model: Model, shard: Shard, parallelism: Parallelism) -> float:
    """Pipeline messages (sent and received, each way), the sequence that tensor parallelism gathers, or where it splits
    KV heads the projections, and the keys and values that context parallelism gathers."""
    element = shard.bytes_per_element
    messages = 4 * element * shard.residual_tokens * model.hidden if parallelism.pp > 1 else 0
    width = model.hidden if shard.sequence_parallel and shard.tp > 1 else 0
    if model.splits_kv_heads(shard.tp):
        width = max(width, model.query_width + model.kv_width)
    keys_values = element * shard.micro_batch * shard.sequence * model.rank_kv_width(shard.tp) if shard.cp > 1 else 0
    return float(messages + element * shard.tokens * width + keys_values)
