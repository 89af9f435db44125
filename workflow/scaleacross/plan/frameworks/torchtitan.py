"""A plan as torchtitan's TOML.

Sections, keys and the conditions below were read in release v0.2.2 (20 February 2026): ``config/job_config.py``,
``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py`` and the models' ``infra``; what its schedules do
in PyTorch's ``distributed/pipelining/schedules.py``. Later releases configure runs in Python, not in TOML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..layers import layer_ranges, spread_layers
from .launch import Launch, cannot, given, remarks
from .torchtitan_models import FLAVORS, find

NAME = "torchtitan"
VERSION = "torchtitan v0.2.2 (20 February 2026)"
WITHOUT_KEY = ("granularity", "flat_rings", "fixed_order", "fused_accumulation", "tp_overlap")
ORDER = ("tp", "cp", "dp", "pp")
SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zbv": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
BLOCKING = ("1f1b",)  # schedules of PyTorch that wait for each message before they compute on
ACTIVE_STAGES = 3  # virtual stages whose parameters PyTorch's pipeline keeps gathered
CP_METHODS = {"all-gather": "allgather", "ring": "alltoall"}

Section = dict[str, Any]


def write(launch: Launch) -> str:
    """The TOML file, with what is not a setting in comments.

    Raises:
        Infeasible: E-FRAMEWORK for the first thing torchtitan cannot express.
    """
    check(launch)
    plan = launch.parallelism
    found, nearest = find(launch.model)
    if found is None:
        raise cannot(NAME, f"the model {launch.model.name}: it ships none of its shape ({nearest})", "use one it ships")
    sections = {
        "model": {"name": found[0], "flavor": found[1], **_converters(launch)},
        "optimizer": {"name": "AdamW"},
        "training": _training(launch),
        "parallelism": _parallelism(launch),
        "activation_checkpoint": {"mode": plan.recompute},
    }
    lines = [f"# {VERSION}", f"# NGPU={plan.world}", *remarks(launch, WITHOUT_KEY)]
    for name, section in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    return "\n".join(lines) + "\n"


def check(launch: Launch) -> None:
    """Raise E-FRAMEWORK for the first thing of a launch that torchtitan cannot express."""
    for what, fix in _problems(launch):
        raise cannot(NAME, what, fix)


def _problems(launch: Launch) -> Iterator[tuple[str, str]]:
    """(what, fix) of everything that has no setting."""
    plan, training = launch.parallelism, launch.training
    axes = [axis for axis in plan.order if plan.degree(axis) > 1]
    if axes != [axis for axis in ORDER if axis in axes]:
        yield given(plan, "order"), f"use order {', '.join(ORDER)}, the only one of its device mesh"
    if plan.tp > 1 and not plan.sequence_parallel:
        yield f"{given(plan, 'sequence_parallel')} with tp {plan.tp}", "make sequence_parallel true"
    if launch.model.splits_kv_heads(plan.tp):
        yield f"tp {plan.tp} with {launch.model.kv_heads} KV heads, which it splits over tp", "lower tp"
    if training.precision == "fp16":
        yield "precision fp16", "use bf16"
    if training.optimizer != "adam":
        yield f"optimizer {training.optimizer}", "use adam"
    fixed = {"gradient_bytes": 4, "attention": "flash", "bucket_layers": 1, "scatter_gather": False}
    for name, value in fixed.items():
        if getattr(plan, name) != value:
            yield given(plan, name), f"make {name} {str(value).lower()}"
    if plan.recompute == "selective":
        yield f"{given(plan, 'recompute')} of the attention core alone", "use recompute none or full"
    yield from _pipeline_problems(launch)
    yield from _sharding_problems(launch)
    yield from _model_problems(launch)


def _pipeline_problems(launch: Launch) -> Iterator[tuple[str, str]]:
    plan, count = launch.parallelism, launch.micro_batches
    if plan.schedule not in SCHEDULES or (plan.pp == 1 and plan.schedule != "1f1b"):
        yield f"{given(plan, 'schedule')} with pp {plan.pp}", f"use one of {', '.join(SCHEDULES)}"
        return
    for name, value in plan.schedule_parameters:
        yield f"the schedule's parameter {name} {value}", "leave it out"
    if plan.pp == 1:
        return
    overlaps = plan.schedule not in BLOCKING
    if plan.p2p_overlap != overlaps:
        does = "overlaps messages" if overlaps else "waits for each message"
        fix = f"make p2p_overlap {str(overlaps).lower()}"
        yield f"{given(plan, 'p2p_overlap')} with {plan.schedule}, which {does} there", fix
    least = {"1f1b": plan.pp, "dualpipe-v": 2 * plan.pp}.get(plan.schedule, 1)
    if count < least:
        yield f"{plan.schedule} with {count} micro-batches, fewer than {least}", "lower micro_batch or dp"


def _sharding_problems(launch: Launch) -> Iterator[tuple[str, str]]:
    plan, count = launch.parallelism, launch.micro_batches
    if plan.data_ranks == 1:
        if launch.training.precision != "fp32" and plan.world > 1:
            yield "mixed precision without data parallelism on several GPUs", "raise dp, or use precision fp32"
        return
    if plan.dp_sharding not in ("ddp", "fsdp", "fsdp-reshard", "hsdp"):
        yield f"{given(plan, 'dp_sharding')}: it shards parameters or nothing", "use fsdp or hsdp"
        return
    if plan.shard_group == 1:
        yield f"{given(plan, 'dp_sharding')} in groups of one rank", "use ddp"
    overlap = "backward" if plan.dp_sharding == "ddp" else "prefetch"
    if plan.dp_overlap != overlap:
        yield given(plan, "dp_overlap"), f"make dp_overlap {overlap}"
    if plan.dp_sharding == "ddp" and plan.world != plan.dp:
        yield f"{given(plan, 'dp_sharding')} with tp {plan.tp}, cp {plan.cp}, pp {plan.pp}", "use fsdp"
    if plan.pp == 1 and count > 1:
        what = f"one reduction of gradients for {count} micro-batches without a pipeline: it reduces after each"
        yield what, "raise micro_batch, dp or pp"
    if plan.pp > 1 and plan.dp_sharding == "fsdp-reshard":
        yield f"{given(plan, 'dp_sharding')} with a pipeline, which gathers less often", "use fsdp"
    if plan.pp > 1 and plan.chunks > ACTIVE_STAGES:
        what = f"gathered parameters of {plan.chunks} chunks: its pipeline keeps those of {ACTIVE_STAGES}"
        yield what, f"use at most {ACTIVE_STAGES} chunks"


def _model_problems(launch: Launch) -> Iterator[tuple[str, str]]:
    plan, model = launch.parallelism, launch.model
    if model.moe and plan.etp not in ((plan.tp,) if plan.ep == 1 else (1, plan.tp)):
        yield f"{given(plan, 'etp')} with tp {plan.tp} and ep {plan.ep}", "make etp equal to tp, or 1 with ep > 1"
    found, _ = find(model)
    if found is None:
        return
    shipped = FLAVORS[found]
    if plan.cp > 1 and shipped.flex:
        yield f"cp {plan.cp} with {' '.join(found)}, whose attention it runs without context parallelism", "make cp 1"
    if plan.pp > 1 and not shipped.pipelined:
        yield f"pp {plan.pp} with {' '.join(found)}, which it has no pipeline for", "make pp 1"


def _converters(launch: Launch) -> Section:
    return {"converters": ["float8"]} if launch.training.precision == "fp8" else {}


def _training(launch: Launch) -> Section:
    plan, training = launch.parallelism, launch.training
    local = training.global_batch // plan.dp if plan.pp > 1 else plan.micro_batch
    return {
        "seq_len": training.sequence_length,
        "local_batch_size": local,
        "global_batch_size": training.global_batch,
        "mixed_precision_param": "float32" if training.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
    }


def _parallelism(launch: Launch) -> Section:
    plan = launch.parallelism
    replicas = {"ddp": plan.dp, "hsdp": plan.dp // (plan.dp_shard or plan.dp)}.get(plan.dp_sharding, 1)
    section: Section = {
        "data_parallel_replicate_degree": replicas,
        "data_parallel_shard_degree": plan.dp // replicas,
        "fsdp_reshard_after_forward": "always" if plan.dp_sharding == "fsdp-reshard" else "never",
        "tensor_parallel_degree": plan.tp,
        "context_parallel_degree": plan.cp,
        "pipeline_parallel_degree": plan.pp,
    }
    if plan.cp > 1:
        section["context_parallel_rotate_method"] = CP_METHODS[plan.cp_method]
    if launch.model.moe:
        section["expert_parallel_degree"] = plan.ep
        section["expert_tensor_parallel_degree"] = plan.etp if plan.ep > 1 else 1
    if plan.pp > 1:
        section["pipeline_parallel_schedule"] = SCHEDULES[plan.schedule]
        section["pipeline_parallel_microbatch_size"] = plan.micro_batch
        section.update(_layers(launch))
    return section


def _layers(launch: Launch) -> Section:
    """How layers are spread: evenly, evenly with embedding and loss counted as layers, or module by module."""
    plan, layers = launch.parallelism, launch.model.layers
    counts = spread_layers(layers, plan)
    if plan.layout is not None:
        return {"module_fqns_per_model_part": modules(counts)}
    less = 0 if layers % plan.virtual_stages == 0 else 1
    return {
        "pipeline_parallel_layers_per_stage": (layers + 2 * less) // plan.virtual_stages,
        "pipeline_parallel_first_stage_less_layers": less,
        "pipeline_parallel_last_stage_less_layers": less,
    }


def modules(counts: tuple[int, ...]) -> list[list[str]]:
    """Names of the modules of every virtual stage."""
    parts = [[f"layers.{layer}" for layer in layers] for layers in layer_ranges(counts)]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts
