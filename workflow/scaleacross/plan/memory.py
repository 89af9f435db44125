"""Memory of one rank of a pipeline stage, in bytes: states, activations in flight, buffers.

Sources: mixed-precision state sizes and ZeRO stages, Rajbhandari et al. (arXiv 1910.02054); fully sharded data
parallelism and its prefetched units, Zhao et al. (arXiv 2304.11277); activations, Korthikanti et al. (arXiv
2205.05198), sections 4 and 5; expert parameters sharded over their own data-parallel group, Megatron Core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..cluster.accelerator import Accelerator
from ..errors import Infeasible
from ..model import Model, Parameters, Shard, embedding_parameters, head_parameters, layer_parameters
from ..model.activations import head_activation, layer_activation
from ..units import GIB

WEIGHT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}  # FP8 training keeps BF16 weights
GRADIENT_BYTES = 4
OPTIMIZER_BYTES = {"adam": 12, "sgd": 8}  # FP32 master weights and Adam's two moments (SGD: one)
PREFETCHED_UNITS = 2  # fully sharded: layers whose gathered weights are held at once (the rate limiter's 2)


class ParallelismLike(Protocol):
    """What memory needs to know of ``plan.Parallelism``."""

    @property
    def tp(self) -> int: ...
    @property
    def cp(self) -> int: ...
    @property
    def pp(self) -> int: ...
    @property
    def ep(self) -> int: ...
    @property
    def etp(self) -> int: ...
    @property
    def dp(self) -> int: ...
    @property
    def micro_batch(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def dp_sharding(self) -> str: ...
    @property
    def sequence_parallel(self) -> bool: ...
    @property
    def recompute(self) -> str: ...


class TrainingLike(Protocol):
    """What memory needs to know of ``plan.Training``."""

    @property
    def sequence_length(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def optimizer(self) -> str: ...


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes a rank of one stage holds at its peak."""

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """Sum of all parts, bytes."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers

    def parts(self) -> dict[str, float]:
        """Each part by name, biggest first."""
        names = ("weights", "gradients", "optimizer", "activations", "buffers")
        return dict(sorted(((name, getattr(self, name)) for name in names), key=lambda part: -part[1]))


def shard_of(training: TrainingLike, parallelism: ParallelismLike) -> Shard:
    """The shard of one micro-batch under a plan."""
    return Shard(
        micro_batch=parallelism.micro_batch,
        sequence=training.sequence_length,
        tp=parallelism.tp,
        cp=parallelism.cp,
        ep=parallelism.ep,
        etp=parallelism.etp,
        sequence_parallel=parallelism.sequence_parallel and parallelism.tp > 1,
        bytes_per_element=WEIGHT_BYTES[training.precision],
        attention=getattr(parallelism, "attention", "flash"),
    )


def stage_memory(
    model: Model,
    training: TrainingLike,
    parallelism: ParallelismLike,
    stage_layers: Sequence[int],
    in_flight: float,
    stage: int,
    embedding: bool | None = None,
    head: bool | None = None,
) -> MemoryBreakdown:
    """Peak memory of a rank of one pipeline stage.

    Args:
        stage_layers: Numbers of the layers the stage holds, over all its chunks.
        in_flight: Activations held at the peak, in (micro-batch, chunk) pairs: the schedule's ``peak_in_flight``.
        stage: Position in the pipeline.
        embedding, head: Whether the stage holds the token table or the loss; by default the first and last do
            (schedules that fold back, as ZBV, hold both on stage 0).
    """
    embedding = stage == 0 if embedding is None else embedding
    head = stage == parallelism.pp - 1 if head is None else head
    shard = shard_of(training, parallelism)
    held = _held_parameters(model, parallelism, stage_layers, embedding, head)
    largest = max(
        (layer_parameters(model, layer, parallelism.tp, parallelism.ep, parallelism.etp) for layer in stage_layers),
        key=lambda parameters: parameters.total,
        default=Parameters(),
    )
    weights, gradients, optimizer = _states(held, largest, training, parallelism)
    layers = [layer_activation(model, layer, shard) for layer in stage_layers]
    mode = parallelism.recompute
    stored = sum(layer.stored(mode) for layer in layers) / max(1, parallelism.chunks) * in_flight
    working = max((layer.stored("none") for layer in layers), default=0.0) if mode == "full" else 0.0
    if mode == "selective":
        working = max((layer.stored("none") - layer.stored("selective") for layer in layers), default=0.0)
    loss = head_activation(model, shard) if head else 0.0
    buffers = _buffers(model, shard, parallelism)
    return MemoryBreakdown(stage, weights, gradients, optimizer, stored + working + loss, buffers)


def check_memory(stages: Sequence[MemoryBreakdown], accelerator: Accelerator) -> MemoryBreakdown:
    """The heaviest stage.

    Raises:
        Infeasible: E-MEMORY when it does not fit: by how much, on which stage, and what is biggest there.
    """
    heaviest = max(stages, key=lambda stage: stage.total)
    limit = accelerator.memory_bytes - accelerator.reserved_bytes
    if heaviest.total > limit:
        biggest = ", ".join(f"{name} {value / GIB:.1f}" for name, value in list(heaviest.parts().items())[:3])
        raise Infeasible(
            "E-MEMORY",
            f"stage {heaviest.stage} needs {heaviest.total / GIB:.1f} GiB, {(heaviest.total - limit) / GIB:.1f} GiB "
            f"more than the {limit / GIB:.1f} GiB of {accelerator.name} ({biggest} GiB)",
            "raise tp, pp or dp_sharding, lower micro_batch, or recompute",
            shortfall=heaviest.total / limit - 1.0,
        )
    return heaviest


def _held_parameters(
    model: Model, parallelism: ParallelismLike, stage_layers: Sequence[int], embedding: bool, head: bool
) -> Parameters:
    held = Parameters()
    for layer in stage_layers:
        held = held.plus(layer_parameters(model, layer, parallelism.tp, parallelism.ep, parallelism.etp))
    if embedding:
        held = held.plus(embedding_parameters(model, parallelism.tp))
    if head and not (model.tied_embeddings and embedding):
        held = held.plus(head_parameters(model, parallelism.tp))
    return held


def _states(
    held: Parameters, largest: Parameters, training: TrainingLike, parallelism: ParallelismLike
) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states, each bucket sharded over its own data-parallel group."""
    groups = _shard_groups(parallelism)
    whole = float(held.total)
    divided = held.dense / groups[0] + held.expert / groups[1]
    unit = min(float(PREFETCHED_UNITS * largest.total), whole)
    sharding = parallelism.dp_sharding
    fully = sharding in ("fsdp", "hsdp")
    weights = divided + unit if fully else whole
    gradients = divided + unit / PREFETCHED_UNITS if fully else divided if sharding == "zero2" else whole
    optimizer = whole if sharding in ("ddp", "none") else divided
    return (
        weights * WEIGHT_BYTES[training.precision],
        gradients * GRADIENT_BYTES,
        optimizer * OPTIMIZER_BYTES[training.optimizer],
    )


def _shard_groups(parallelism: ParallelismLike) -> tuple[int, int]:
    """Ranks a dense and an expert parameter's states are divided over."""
    dense = parallelism.dp * parallelism.cp
    expert = max(1, dense * parallelism.tp // (parallelism.ep * parallelism.etp))
    if parallelism.dp_sharding == "hsdp":
        group = int(getattr(parallelism, "shard_group", 0) or 0) or dense
        return min(group, dense), max(1, min(group * parallelism.tp // (parallelism.ep * parallelism.etp), expert))
    return dense, expert


def _buffers(model: Model, shard: Shard, parallelism: ParallelismLike) -> float:
    """Pipeline messages (one each way, received and sent), the gathered sequence of tensor parallelism, and keys and
    values gathered by context parallelism."""
    element = shard.bytes_per_element
    message = element * shard.residual_tokens * model.hidden
    pipeline = 4 * message if parallelism.pp > 1 else 0
    gathered = element * shard.tokens * model.hidden if shard.sequence_parallel and shard.tp > 1 else 0
    keys_values = 2 * element * shard.micro_batch * shard.sequence * model.kv_width // shard.tp if shard.cp > 1 else 0
    return float(pipeline + gathered + keys_values)
