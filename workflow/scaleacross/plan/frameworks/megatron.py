"""A plan as the command line of Megatron-LM.

Flags, their defaults and the conditions below were read in release core_v0.19.0 (19 August 2026): ``training/
arguments.py``, ``training/config``, and in Megatron Core ``model_parallel_config.py``, ``transformer_config.py``,
``parallel_state.py`` and the pipeline layout.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ...model import Model, layer_parameters
from ..degrees import Parallelism, Training
from .launch import Launch, cannot, given, remarks
from .megatron_text import layout_text, pattern_text

NAME = "Megatron-LM"
VERSION = "Megatron-LM core_v0.19.0 (19 August 2026)"
#: Knobs of the simulation without a flag. ``bucket_layers`` has one where gradients are reduced during backward.
WITHOUT_FLAG = ("granularity", "flat_rings", "fixed_order", "tp_overlap", "bucket_layers")
DP_LAST, PP_LAST = ("tp", "cp", "pp", "dp"), ("tp", "cp", "dp", "pp")
DROPOUT = "0.1"
#: dp_sharding -> strategy of Megatron-FSDP.
STRATEGIES = {"zero2": "optim_grads", "fsdp-reshard": "optim_grads_params"}

Flag = tuple[str, ...]


def write(launch: Launch) -> str:
    """The launch line, a flag a line, with what is not a flag in comments.

    Raises:
        Infeasible: E-FRAMEWORK for the first thing Megatron-LM cannot express.
    """
    flags = list(_flags(launch))
    plan = launch.parallelism
    nodes = max(1, plan.world // launch.gpus_per_node)
    per_node = plan.world // nodes
    if nodes * per_node != plan.world:
        raise cannot(NAME, f"{plan.world} GPUs in nodes of {launch.gpus_per_node}", "give whole nodes")
    without = WITHOUT_FLAG if bucket_flag(plan) is None else WITHOUT_FLAG[:-1]
    serial = (plan.tp > 1 or plan.cp > 1) and plan.dp_sharding not in STRATEGIES
    prefix = "CUDA_DEVICE_MAX_CONNECTIONS=1 " if serial else ""
    lines = [f"# {VERSION}", *remarks(launch, without)]
    lines.append(f"{prefix}torchrun --nnodes {nodes} --nproc-per-node {per_node} pretrain_gpt.py")
    return " \\\n".join(["\n".join(lines), *("  " + " ".join(map(shlex.quote, flag)) for flag in flags)]) + "\n"


def bucket_elements(model: Model, plan: Parallelism) -> int:
    """Dense parameters of one layer on one rank, the largest layer's: a gradient bucket is a multiple of it."""
    return max(layer_parameters(model, layer, plan.tp, plan.ep, plan.etp).dense for layer in range(model.layers))


def bucket_flag(plan: Parallelism) -> str | None:
    """The flag for ``bucket_layers``; None without overlap, where Megatron-LM has one bucket, and under its FSDP."""
    return "--ddp-bucket-size" if plan.dp_overlap != "none" and plan.dp_sharding not in STRATEGIES else None


def _flags(launch: Launch) -> Iterator[Flag]:
    yield from _degrees(launch)
    yield from _pipeline(launch)
    yield from _data_parallel(launch)
    yield from _training(launch.training, launch.parallelism)
    yield from _kernels(launch.parallelism)
    yield from _model(launch.model, launch.training)
    yield from _experts(launch.model)


def _degrees(launch: Launch) -> Iterator[Flag]:
    plan = launch.parallelism
    yield "--tensor-model-parallel-size", str(plan.tp)
    yield "--pipeline-model-parallel-size", str(plan.pp)
    yield "--context-parallel-size", str(plan.cp)
    if plan.cp > 1:
        yield "--cp-comm-type", {"all-gather": "allgather", "ring": "p2p"}[plan.cp_method]
    if launch.model.moe:
        yield "--expert-model-parallel-size", str(plan.ep)
        yield "--expert-tensor-parallel-size", str(plan.etp)
    if plan.sequence_parallel:
        yield ("--sequence-parallel",)
    elif plan.scatter_gather:
        raise cannot(NAME, f"{given(plan, 'scatter_gather')}, which Megatron Core dropped", "use sequence_parallel")
    if plan.order == DP_LAST:
        _check_experts_with_dp_last(launch)
        yield ("--use-tp-pp-dp-mapping",)
    elif plan.order != PP_LAST:
        raise cannot(NAME, given(plan, "order"), f"use {', '.join(DP_LAST)} or {', '.join(PP_LAST)}")


def _check_experts_with_dp_last(launch: Launch) -> None:
    """With dp outermost, Megatron Core wants as many ranks to hold an expert as hold the dense parameters of one tp
    and cp rank, since dense and expert groups must have the same pipeline ranks."""
    plan = launch.parallelism
    if launch.model.moe and plan.pp > 1 and plan.etp * plan.ep != plan.tp * plan.cp:
        values = f"etp {plan.etp} x ep {plan.ep} = {plan.etp * plan.ep} and tp {plan.tp} x cp {plan.cp} = "
        what = f"order {', '.join(plan.order)} with {values}{plan.tp * plan.cp} unequal"
        raise cannot(NAME, what, f"make them equal, or use order {', '.join(PP_LAST)}")


def _pipeline(launch: Launch) -> Iterator[Flag]:
    plan = launch.parallelism
    interleaved = plan.schedule == "interleaved"
    if not interleaved and plan.schedule != "1f1b":
        raise cannot(NAME, given(plan, "schedule"), "use 1f1b or interleaved")
    if plan.chunks > 1 and not interleaved:
        raise cannot(NAME, f"chunks {plan.chunks} with schedule {plan.schedule}", "use interleaved")
    if plan.layout is not None:
        yield "--pipeline-model-parallel-layout", layout_text(plan.layout, launch.model.mtp_modules)
    elif interleaved:
        yield "--num-virtual-stages-per-pipeline-rank", str(plan.chunks)
    if plan.layout is None and launch.model.layers % plan.virtual_stages:
        yield ("--account-for-embedding-in-pipeline-split",)
        yield ("--account-for-loss-in-pipeline-split",)
    for name, value in plan.schedule_parameters:
        if name != "contiguous":
            raise cannot(NAME, f"the schedule's parameter {name} {value}", "leave it out")
        if value is not None:
            yield "--microbatch-group-size-per-virtual-pipeline-stage", str(value)
    yield from _messages(plan, interleaved)


def _messages(plan: Parallelism, interleaved: bool) -> Iterator[Flag]:
    if interleaved and not plan.p2p_overlap:
        if plan.pp <= 2:
            what = f"interleaved without overlapped messages on pp {plan.pp}, which needs pp > 2"
            raise cannot(NAME, what, "make p2p_overlap true, or raise pp")
        yield ("--no-overlap-p2p-communication",)
    if not interleaved and plan.pp > 1 and plan.p2p_overlap:
        what = f"{given(plan, 'p2p_overlap')} with schedule {plan.schedule}: it overlaps messages only when interleaved"
        raise cannot(NAME, what, "make p2p_overlap false, which simulates what it does, or use interleaved")


def _data_parallel(launch: Launch) -> Iterator[Flag]:
    plan = launch.parallelism
    every_micro_batch = plan.dp_sharding == "fsdp-reshard" and launch.micro_batches > 1
    if plan.dp_sharding in ("fsdp", "hsdp") or every_micro_batch:
        raise cannot(NAME, f"{given(plan, 'dp_sharding')}: {_REASONS[plan.dp_sharding]}", _SHARDING_FIX)
    if plan.dp_sharding != "ddp":
        yield ("--use-distributed-optimizer",)
    if plan.dp_sharding in STRATEGIES:
        yield ("--use-megatron-fsdp",)
        yield "--data-parallel-sharding-strategy", STRATEGIES[plan.dp_sharding]
        yield "--ckpt-format", "fsdp_dtensor"
    if plan.dp_overlap != "none":
        yield ("--overlap-grad-reduce",)
    if plan.dp_overlap == "prefetch":
        yield ("--overlap-param-gather",)
    flag = bucket_flag(plan)
    if flag:
        yield flag, str(plan.bucket_layers * bucket_elements(launch.model, plan))


_REASONS = {
    "fsdp": "no sharding of its shards parameters, gathers them once a step and keeps them",
    "hsdp": "no sharding of its shards parameters, gathers them once a step and keeps them",
    "fsdp-reshard": "its FSDP reduces gradients after every micro-batch, this plan once a step",
}
_SHARDING_FIX = "use zero1 with dp_overlap prefetch, which moves the same bytes and holds the same memory as fsdp"


def _training(training: Training, plan: Parallelism) -> Iterator[Flag]:
    yield "--micro-batch-size", str(plan.micro_batch)
    yield "--global-batch-size", str(training.global_batch)
    yield "--seq-length", str(training.sequence_length)
    yield "--optimizer", training.optimizer
    precision = training.precision
    if precision in ("bf16", "fp8"):
        yield ("--bf16",)
    if precision == "fp16":
        yield ("--fp16",)
    if precision == "fp8":
        yield "--fp8-format", "hybrid"
    if precision == "fp32":
        if plan.gradient_bytes != 4:
            raise cannot(NAME, f"{given(plan, 'gradient_bytes')} with precision fp32", "make gradient_bytes 4")
    elif plan.gradient_bytes == 4:
        yield ("--accumulate-allreduce-grads-in-fp32",)
    elif precision != "fp16":
        yield ("--grad-reduce-in-bf16",)


def _kernels(plan: Parallelism) -> Iterator[Flag]:
    if plan.recompute != "none":
        yield "--recompute-granularity", plan.recompute
    if plan.recompute == "full":
        yield "--recompute-method", "uniform"
        yield "--recompute-num-layers", "1"
    if plan.recompute == "selective":
        yield "--recompute-modules", "core_attn"
    yield "--attention-backend", {"flash": "auto", "flash2": "flash", "unfused": "unfused"}[plan.attention]
    if plan.attention == "flash2":
        yield "--flash-attention-version", "2"
    if not plan.fused_accumulation:
        yield ("--no-gradient-accumulation-fusion",)


def _model(model: Model, training: Training) -> Iterator[Flag]:
    if model.attention_chunk is not None:
        what = f"attention in chunks of {model.attention_chunk} tokens ({model.name})"
        raise cannot(NAME, what, "leave out attention_chunk: attention over the whole sequence costs more")
    yield "--num-layers", str(model.layers)
    yield "--hidden-size", str(model.hidden)
    yield "--ffn-hidden-size", str(model.ffn)
    yield "--num-attention-heads", str(model.heads)
    if model.mla:
        yield ("--multi-latent-attention",)
        yield "--q-lora-rank", str(model.mla.query_rank)
        yield "--kv-lora-rank", str(model.mla.kv_rank)
        yield "--qk-head-dim", str(model.mla.nope_size)
        yield "--qk-pos-emb-head-dim", str(model.mla.rope_size)
        yield "--v-head-dim", str(model.mla.value_size)
    else:
        yield "--kv-channels", str(model.head_size)
        if model.kv_heads != model.heads:
            yield ("--group-query-attention",)
            yield "--num-query-groups", str(model.kv_heads)
    yield from _positions(model, training)
    yield "--vocab-size", str(model.vocab)
    yield "--make-vocab-size-divisible-by", "1"
    yield "--normalization", {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}[model.norm]
    switches = {
        "--swiglu": model.mlp == "swiglu",
        "--disable-bias-linear": not model.bias,
        "--add-qkv-bias": model.qkv_bias,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--qk-layernorm": model.qk_norm,
    }
    yield from ((flag,) for flag, wanted in switches.items() if wanted)
    for flag in ("--attention-dropout", "--hidden-dropout"):
        yield flag, DROPOUT if model.dropout else "0.0"


def _positions(model: Model, training: Training) -> Iterator[Flag]:
    length = training.sequence_length
    if model.positions == "learned":
        if model.max_positions < length:
            what = f"{model.max_positions} learned positions ({model.name}) with sequence_length {length}"
            raise cannot(NAME, what, f"lower sequence_length to {model.max_positions}")
        if model.mtp_modules:
            raise cannot(NAME, f"prediction modules ({model.name}) with learned positions", "use rope")
    yield "--position-embedding-type", {"rope": "rope", "learned": "learned_absolute"}[model.positions]
    yield "--max-position-embeddings", str(model.max_positions or length)


def _experts(model: Model) -> Iterator[Flag]:
    if model.mtp_modules:
        yield "--mtp-num-layers", str(model.mtp_modules)
    moe = model.moe
    if moe is None:
        return
    yield "--num-experts", str(moe.experts)
    yield "--moe-router-topk", str(moe.top_k)
    yield "--moe-ffn-hidden-size", str(moe.ffn)
    pattern = [model.is_moe(layer) for layer in range(model.layers)]
    if not all(pattern):
        yield "--moe-layer-freq", pattern_text(pattern)
    if moe.shared_width:
        yield "--moe-shared-expert-intermediate-size", str(moe.shared_width)
    if moe.router_bias:
        yield "--moe-router-score-function", "sigmoid"
        yield ("--moe-router-enable-expert-bias",)
    yield "--moe-token-dispatcher-type", "alltoall"
    yield ("--moe-grouped-gemm",)
