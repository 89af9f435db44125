"""The rules a plan must keep before anything is built: Megatron-LM's eight and the ones users trip over beside them.

Each broken rule is one ``Infeasible`` with the equation, its values, which of them nobody gave, and how near it is.
Rules of placement (tiers) and of pipeline schedules are raised where those are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Infeasible
from ..model import Model
from .degrees import Parallelism, Training
from .layers import spread_layers
from .placement import world_error


def validate(model: Model, training: Training, parallelism: Parallelism, gpus: int) -> None:
    """Raise the first rule that a plan breaks on ``gpus`` GPUs.

    Raises:
        Infeasible: see ``problems``.
    """
    for problem in problems(model, training, parallelism, gpus):
        raise problem


def problems(model: Model, training: Training, parallelism: Parallelism, gpus: int) -> Iterator[Infeasible]:
    """Every rule that a plan breaks, one error each: E-WORLD, E-HSDP, E-IMBALANCE, E-SP, E-INTERLEAVED, E-HEADS,
    E-KV-HEADS, E-FFN, E-EXPERTS, E-EP, E-ETP, E-MOE-SP, E-SEQUENCE, E-BATCH, E-LAYERS, E-LAYOUT."""
    if parallelism.world != gpus:
        yield world_error(parallelism, gpus)
    yield from _idle_knobs(model, training, parallelism)
    yield from _tensor_rules(model, parallelism)
    yield from _sequence_rules(model, training, parallelism)
    yield from _expert_rules(model, parallelism, gpus)
    yield from _batch_rules(training, parallelism)
    yield from _stage_rules(model, training, parallelism)


def without_idle(model: Model, parallelism: Parallelism) -> Parallelism:
    """The plan with the knobs that it reads nowhere at their defaults, so that a sweep makes it once: ``cp_method``
    without context parallelism, ``etp`` without experts, ``scatter_gather`` with sequence parallelism or without tensor
    or pipeline parallelism."""
    idle: dict[str, Any] = {}
    if parallelism.cp == 1:
        idle["cp_method"] = Parallelism.cp_method
    if model.moe is None:
        idle["etp"] = parallelism.tp
    if parallelism.sequence_parallel or 1 in (parallelism.tp, parallelism.pp):
        idle["scatter_gather"] = False
    return parallelism.with_values(**idle)


def micro_batches(training: Training, parallelism: Parallelism) -> int:
    """Micro-batches a step of one data-parallel replica: global_batch / (dp * micro_batch).

    Raises:
        Infeasible: E-BATCH where that is not whole.
    """
    for problem in _batch_rules(training, parallelism):
        raise problem
    return training.global_batch // (parallelism.dp * parallelism.micro_batch)


def _idle_knobs(model: Model, training: Training, parallelism: Parallelism) -> Iterator[Infeasible]:
    """Knobs that this plan would not read: a sweep over them would be the same plan many times."""
    if parallelism.dp_shard and parallelism.dp_sharding != "hsdp":
        sharding = f"dp_sharding {parallelism.dp_sharding}{parallelism.mark('dp_sharding')}"
        clash = f"dp_shard {parallelism.dp_shard} with {sharding}, which has no shard groups"
        yield Infeasible("E-HSDP", clash, "make dp_sharding hsdp, or leave dp_shard out", 0.5)
    if model.moe is None and training.expert_imbalance != 1:
        clash = f"expert_imbalance {training.expert_imbalance:g} with {model.name}, which has no experts"
        yield Infeasible("E-IMBALANCE", clash, "leave expert_imbalance out", 0.5)


def _tensor_rules(model: Model, parallelism: Parallelism) -> Iterator[Infeasible]:
    if parallelism.sequence_parallel and parallelism.tp == 1:
        clash = f"sequence_parallel is true with tp 1{parallelism.mark('tp')}"
        yield Infeasible("E-SP", clash, "raise tp, or drop sequence_parallel", 0.5)
    yield from _divides("E-HEADS", "heads", model.heads, parallelism, "tp")
    if model.mla is None and model.kv_heads != model.heads:
        yield from _kv_head_rules(model, parallelism)
    yield from _divides("E-FFN", "ffn", model.ffn, parallelism, "tp")
    if model.moe and model.moe.shared_width:
        yield from _divides("E-FFN", "shared expert ffn", model.moe.shared_width, parallelism, "tp")


def _sequence_rules(model: Model, training: Training, parallelism: Parallelism) -> Iterator[Infeasible]:
    length = training.sequence_length
    if model.positions == "learned" and length > model.max_positions:
        clash = f"sequence_length {length} > max_positions {model.max_positions} of {model.name}"
        fix = "shorten sequence_length, or give the model a longer table of positions"
        yield Infeasible("E-SEQUENCE", clash, fix, min(1.0, length / model.max_positions - 1))
    if parallelism.cp > 1:
        yield from _divides("E-SEQUENCE", "sequence_length", length, parallelism, "cp", times=2)
    if parallelism.sequence_parallel and length % (parallelism.cp * parallelism.tp):
        yield _indivisible("E-SEQUENCE", "sequence_length", length, parallelism, ("cp", "tp"))


def _kv_head_rules(model: Model, parallelism: Parallelism) -> Iterator[Infeasible]:
    """As Megatron Core: tp divides the KV heads or is a multiple of them, and their projections divide by tp."""
    if not model.splits_kv_heads(parallelism.tp):
        yield from _divides("E-KV-HEADS", "kv_heads", model.kv_heads, parallelism, "tp")
        return
    rest = parallelism.tp % model.kv_heads
    if rest:
        clash = f"tp {parallelism.tp}{parallelism.mark('tp')} % (kv_heads {model.kv_heads}) = {rest}"
        fix = "choose tp so that it divides kv_heads or is a multiple"
        yield Infeasible("E-KV-HEADS", clash, fix, min(rest, model.kv_heads - rest) / model.kv_heads)
    yield from _divides("E-KV-HEADS", "width of keys and values", model.kv_width, parallelism, "tp")


def _expert_rules(model: Model, parallelism: Parallelism, gpus: int) -> Iterator[Infeasible]:
    if model.moe is None:
        if parallelism.ep > 1:
            yield Infeasible("E-EXPERTS", f"ep {parallelism.ep} with {model.name}, which has no experts", "make ep 1")
        return
    yield from _divides("E-EXPERTS", "experts", model.moe.experts, parallelism, "ep")
    yield from _divides("E-FFN", "expert ffn", model.moe.ffn, parallelism, "etp")
    if gpus % (parallelism.etp * parallelism.ep * parallelism.pp):
        yield _indivisible("E-EP", "GPUs", gpus, parallelism, ("etp", "ep", "pp"))
    elif parallelism.tp % parallelism.etp:
        yield _indivisible("E-ETP", "tp", parallelism.tp, parallelism, ("etp",))
    if parallelism.tp > 1 and not parallelism.sequence_parallel:
        clash = f"experts with tp {parallelism.tp} and sequence_parallel false{parallelism.mark('sequence_parallel')}"
        yield Infeasible("E-MOE-SP", clash, "make sequence_parallel true, or tp 1", 0.5)


def _batch_rules(training: Training, parallelism: Parallelism) -> Iterator[Infeasible]:
    if training.global_batch % (parallelism.dp * parallelism.micro_batch):
        yield _indivisible("E-BATCH", "global_batch", training.global_batch, parallelism, ("dp", "micro_batch"))


def _stage_rules(model: Model, training: Training, parallelism: Parallelism) -> Iterator[Infeasible]:
    if parallelism.schedule == "interleaved":
        yield from _interleaving_rules(training, parallelism)
    try:
        spread_layers(model.layers, parallelism)
    except Infeasible as problem:
        yield problem


def _interleaving_rules(training: Training, parallelism: Parallelism) -> Iterator[Infeasible]:
    if parallelism.pp == 1:
        clash = f"schedule interleaved with pp 1{parallelism.mark('pp')}"
        yield Infeasible("E-INTERLEAVED", clash, "raise pp, or use 1f1b", 0.5)
        return
    if parallelism.chunks == 1:
        clash = f"schedule interleaved with chunks 1{parallelism.mark('chunks')}"
        yield Infeasible("E-INTERLEAVED", clash, "make chunks 2 or more, or use 1f1b", 0.5)
    batch = parallelism.dp * parallelism.micro_batch
    count, rest = divmod(training.global_batch, batch)
    if rest == 0 and count % parallelism.pp and not parallelism.schedule_parameters:
        equation = f"global_batch {training.global_batch} / ({parallelism.describe('dp', 'micro_batch')}) = {count}"
        stages = f"pp {parallelism.pp}{parallelism.mark('pp')}"
        clash = f"schedule interleaved: micro-batches {equation}, not a multiple of {stages}"
        low = count % parallelism.pp
        shortfall = min(low, parallelism.pp - low) / parallelism.pp
        yield Infeasible("E-INTERLEAVED", clash, "choose micro_batch or dp so that it is, or use 1f1b", shortfall)


def _divides(
    error_id: str, name: str, value: int, parallelism: Parallelism, by: str, times: int = 1
) -> Iterator[Infeasible]:
    if value % (times * parallelism.degree(by)):
        yield _indivisible(error_id, name, value, parallelism, (by,), times)


def _indivisible(
    error_id: str, name: str, value: int, parallelism: Parallelism, by: tuple[str, ...], times: int = 1
) -> Infeasible:
    divisor = times
    for part in by:
        divisor *= parallelism.degree(part)
    factor = f"{times} x " if times > 1 else ""
    rest = value % divisor
    return Infeasible(
        error_id,
        f"{name} {value} % ({factor}{parallelism.describe(*by)}) = {rest}",
        _divisor_fix(name, value, by, times),
        min(rest, divisor - rest) / divisor,
    )


def _divisor_fix(name: str, value: int, by: tuple[str, ...], times: int) -> str:
    """What would divide: the divisors themselves where one knob decides and they are few."""
    product = " x ".join([*([str(times)] if times > 1 else []), *by])
    if len(by) > 1 or times > 1:
        return f"choose {' or '.join(by)} so that {product} divides {name} {value}"
    divisors = [str(divisor) for divisor in range(1, value + 1) if value % divisor == 0] if value <= 1024 else []
    listed = f": {', '.join(divisors)}" if 0 < len(divisors) <= 12 else ""
    return f"choose {product} among the divisors of {name} {value}{listed}"
