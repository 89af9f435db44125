"""Memory of one rank of a pipeline stage, in bytes: states, activations in flight, buffers.

Sources: mixed-precision state sizes and ZeRO stages, Rajbhandari et al. (arXiv 1910.02054); fully sharded data
parallelism and its prefetched units, Zhao et al. (arXiv 2304.11277); activations, Korthikanti et al. (arXiv
2205.05198), sections 4 and 5; expert parameters sharded over their own data-parallel group, Megatron Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster.accelerator import Accelerator
from ..errors import Infeasible
from ..model import Model, Parameters, Shard, embedding_parameters, head_parameters, layer_parameters
from ..model.activations import Activation, embedding_activation, head_activation, layer_activation
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


def stage_memory(
    model: Model,
    training: Training,
    parallelism: Parallelism,
    stage_layers: Sequence[int],
    in_flight: float,
    stage: int,
    embedding: bool | None = None,
    head: bool | None = None,
    chunks: int | None = None,
) -> MemoryBreakdown:
    """Peak memory of a rank of one pipeline stage.

    Args:
        stage_layers: Numbers of the layers the stage holds, over all its chunks (``model.layers`` and up stand for
            multi-token-prediction modules).
        in_flight: Activations held at the peak, in (micro-batch, chunk) pairs: the schedule's ``peak_in_flight``.
        stage: Position in the pipeline.
        embedding, head: Whether the stage holds the token table or the loss; by default the first and last do
            (schedules that fold back, as ZBV, hold both on stage 0).
        chunks: Parts that ``stage_layers`` are split into; by default the plan's (twice that under DualPipe).
    """
    embedding = stage == 0 if embedding is None else embedding
    head = stage == parallelism.pp - 1 if head is None else head
    shard = shard_of(training, parallelism)
    of_layers = [
        layer_parameters(model, layer, parallelism.tp, parallelism.ep, parallelism.etp) for layer in stage_layers
    ]
    held = _sum(of_layers)
    if embedding:
        held = held.plus(embedding_parameters(model, parallelism.tp))
    if head and not (model.tied_embeddings and embedding):
        held = held.plus(head_parameters(model, parallelism.tp))
    largest = max(of_layers, key=lambda parameters: parameters.total, default=Parameters())
    weights, gradients, optimizer = _states(held, largest, training, parallelism)
    activations = [layer_activation(model, layer, shard) for layer in stage_layers]
    rounds = in_flight / (chunks or parallelism.chunks)
    stored = _stored(activations, parallelism.recompute, rounds)
    stored += embedding_activation(model, shard) * rounds if embedding else 0.0
    stored += head_activation(model, shard) if head else 0.0
    return MemoryBreakdown(stage, weights, gradients, optimizer, stored, _buffers(model, shard, parallelism))


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


def _stored(layers: Sequence[Activation], recompute: str, rounds: float) -> float:
    """Bytes of the layers' activations, ``rounds`` times, and of the one layer that is being recomputed."""
    working = max((layer.stored("none") - layer.stored(recompute) for layer in layers), default=0.0)
    return sum(layer.stored(recompute) for layer in layers) * rounds + working


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
