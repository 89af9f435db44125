"""torchtitan's TOML read back as a plan, with torchtitan's own defaults for keys that are absent."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from typing import Any

from ...errors import InvalidInput, did_you_mean
from ...model import Model
from ..degrees import Training
from .launch import Launch, Reading, assumptions, canonical, plan_of, read_remarks
from .torchtitan import CP_METHODS, NAME, ORDER, SCHEDULES, WITHOUT_KEY, check, modules
from .torchtitan_models import FLAVORS

#: Keys read, with the defaults of torchtitan v0.2.2.
PARALLELISM: dict[str, Any] = {
    "data_parallel_replicate_degree": 1,
    "data_parallel_shard_degree": -1,
    "fsdp_reshard_after_forward": "default",
    "tensor_parallel_degree": 1,
    "disable_loss_parallel": False,
    "enable_async_tensor_parallel": False,
    "pipeline_parallel_degree": 1,
    "module_fqns_per_model_part": None,
    "pipeline_parallel_first_stage_less_layers": 1,
    "pipeline_parallel_last_stage_less_layers": 1,
    "pipeline_parallel_layers_per_stage": None,
    "pipeline_parallel_schedule": "1F1B",
    "pipeline_parallel_schedule_csv": "",
    "pipeline_parallel_microbatch_size": 1,
    "pipeline_parallel_expert_parallel_overlap": True,
    "context_parallel_degree": 1,
    "context_parallel_load_balancer": "headtail",
    "context_parallel_rotate_method": "allgather",
    "expert_parallel_degree": 1,
    "expert_tensor_parallel_degree": 1,
    "expert_parallel_comm_backend": "standard",
}
TRAINING: dict[str, Any] = {
    "local_batch_size": 8,
    "global_batch_size": -1,
    "seq_len": 2048,
    "mixed_precision_param": "bfloat16",
    "mixed_precision_reduce": "float32",
    "dtype": "float32",
    "enable_cpu_offload": False,
}
#: Keys whose other values change the plan in a way ours cannot say.
FIXED = {
    "enable_async_tensor_parallel": (False, "overlaps tensor-parallel collectives with their GEMMs"),
    "pipeline_parallel_schedule_csv": ("", "reads a schedule from a file"),
    "context_parallel_load_balancer": ("headtail", "balances context parallelism in another way"),
    "dtype": ("float32", "keeps optimizer states in 16 bit"),
    "enable_cpu_offload": (False, "moves states to the host"),
}
SINGLE = ("1F1B", "GPipe")  # schedules of one virtual stage a rank


def read(text: str, gpus: int | None = None) -> Reading:
    """The launch of a TOML file.

    Raises:
        InvalidInput: E-FLAG for an unknown key of the sections read, a file that is no TOML, a model torchtitan v0.2.2
            does not ship; E-FRAMEWORK for a setting that no plan of ours has, and where the number of GPUs is not said.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("E-FLAG", f"the file is no TOML: {error}", "mend the line") from None
    parallel = _section(content, "parallelism", PARALLELISM)
    training = _section(content, "training", TRAINING, whole=False)
    for key, (value, does) in FIXED.items():
        given = {**training, **parallel}[key]
        if given != value:
            raise InvalidInput(
                "E-FRAMEWORK", f"{key} = {given!r} {does}: no plan of ours has that", f"make it {value!r}"
            )
    model = _model(content, text)
    dp, gpus = _data_parallel(parallel, gpus)
    values = {**_degrees(parallel, model, dp), **_pipeline(parallel, training, model, dp)}
    values.update(_sharding(parallel, values), **read_remarks(text, WITHOUT_KEY)[1])
    values["recompute"] = _recompute(content)
    batch = training["global_batch_size"]
    launch = Launch(
        model,
        Training(
            sequence_length=training["seq_len"],
            global_batch=batch if batch > 0 else training["local_batch_size"] * dp,
            precision=_precision(content, training),
            optimizer=_optimizer(content),
            **assumptions(text),
        ),
        plan_of(values, gpus),
        min(8, gpus),
    )
    launch = canonical(launch)
    check(launch)
    return Reading(launch, tuple(_notes(content)))


def _section(content: Mapping[str, Any], name: str, defaults: Mapping[str, Any], whole: bool = True) -> dict[str, Any]:
    own = content.get(name, {})
    for key, value in own.items():
        if key not in defaults:
            if whole:
                raise InvalidInput(
                    "E-FLAG", f"[{name}] has no key {key!r} in {NAME} v0.2.2", did_you_mean(key, defaults)
                )
            continue
        default = defaults[key]
        if default is not None and type(value) is not type(default):
            clash = f"[{name}] {key} = {value!r}"
            raise InvalidInput("E-FLAG", clash, f"give a value of type {type(default).__name__}")
    return {**defaults, **{key: value for key, value in own.items() if key in defaults}}


def _model(content: Mapping[str, Any], text: str) -> Model:
    section = content.get("model", {})
    key = (str(section.get("name", "llama3")), str(section.get("flavor", "debugmodel")))
    if key not in FLAVORS:
        known = [" ".join(flavor) for flavor in FLAVORS]
        raise InvalidInput(
            "E-FLAG", f"model {' '.join(key)} is none we know the shape of", did_you_mean(" ".join(key), known)
        )
    name = read_remarks(text, ())[0] or "-".join(key).lower()
    return FLAVORS[key].model.model_copy(update={"name": name})


def _data_parallel(parallel: dict[str, Any], gpus: int | None) -> tuple[int, int]:
    """(dp, GPUs); writes the shard degree that -1 stands for into ``parallel``."""
    replicas, shards = parallel["data_parallel_replicate_degree"], parallel["data_parallel_shard_degree"]
    inner = replicas * math.prod(parallel[f"{axis}_parallel_degree"] for axis in ("tensor", "context", "pipeline"))
    if inner < 1 or shards == 0 or shards < -1:
        raise InvalidInput("E-DEGREE", f"degrees {inner} and data_parallel_shard_degree {shards}", "use 1 or more")
    if shards == -1:
        if gpus is None:
            clash = "the number of GPUs is not said: data_parallel_shard_degree is -1"
            raise InvalidInput("E-FRAMEWORK", clash, "say how many GPUs there are")
        if gpus % inner:
            clash = f"{gpus} GPUs % (replicate x tp x cp x pp = {inner}) = {gpus % inner}"
            raise InvalidInput("E-WORLD", clash, "choose degrees that divide the GPUs")
        shards = parallel["data_parallel_shard_degree"] = gpus // inner
    if gpus is not None and gpus != inner * shards:
        clash = f"replicate {replicas} x shard {shards} x tp x cp x pp = {inner * shards}, not {gpus} GPUs"
        raise InvalidInput("E-WORLD", clash, "make them agree")
    return replicas * shards, inner * shards


def _degrees(parallel: Mapping[str, Any], model: Model, dp: int) -> dict[str, Any]:
    tp, ep = parallel["tensor_parallel_degree"], parallel["expert_parallel_degree"]
    methods = {theirs: ours for ours, theirs in CP_METHODS.items()}
    return {
        "tp": tp,
        "cp": parallel["context_parallel_degree"],
        "pp": parallel["pipeline_parallel_degree"],
        "dp": dp,
        "ep": ep if model.moe else 1,
        # Expert-tensor parallelism has no effect at ep 1: experts are then split as everything else.
        "etp": parallel["expert_tensor_parallel_degree"] if model.moe and ep > 1 else tp,
        "order": ORDER,
        "sequence_parallel": tp > 1,
        "cp_method": _choice("context_parallel_rotate_method", parallel, methods),
    }


def _pipeline(parallel: Mapping[str, Any], training: Mapping[str, Any], model: Model, dp: int) -> dict[str, Any]:
    pp, local, batch = parallel["pipeline_parallel_degree"], training["local_batch_size"], training["global_batch_size"]
    if pp == 1:
        return {"micro_batch": local}
    if batch > 0 and batch != local * dp:
        clash = f"global_batch_size {batch} with local_batch_size {local} x dp {dp}: the pipeline fills more than once"
        raise InvalidInput("E-FRAMEWORK", f"{clash} a step, which no plan of ours has", "make them equal")
    theirs = parallel["pipeline_parallel_schedule"]
    schedule = _choice("pipeline_parallel_schedule", parallel, {value: key for key, value in SCHEDULES.items()})
    chunks, layout = _virtual_stages(parallel, model, 1 if theirs in SINGLE else 2)
    return {
        "micro_batch": parallel["pipeline_parallel_microbatch_size"],
        "schedule": schedule,
        "chunks": chunks,
        "layout": layout,
        "p2p_overlap": schedule != "1f1b",
    }


def _virtual_stages(parallel: Mapping[str, Any], model: Model, usual: int) -> tuple[int, tuple[int, ...] | None]:
    """(chunks, layout): the layout where our plans don't spread layers that way by themselves."""
    pp = parallel["pipeline_parallel_degree"]
    parts = parallel["module_fqns_per_model_part"]
    if parts is not None:
        counts = tuple(sum(module.startswith("layers.") for module in part) for part in parts)
        if len(parts) % pp or parts != modules(counts):
            clash = f"module_fqns_per_model_part: {len(parts)} parts for pp {pp}"
            raise InvalidInput("E-FRAMEWORK", clash, "give every module once, in order, in a multiple of pp parts")
        return len(parts) // pp, counts
    first, last = (parallel[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last"))
    each = parallel["pipeline_parallel_layers_per_stage"]
    weighed = model.layers + first + last
    stages = pp * usual if each is None else -(-weighed // each)
    if stages % pp:
        raise InvalidInput("E-LAYERS", f"{stages} virtual stages % pp {pp} = {stages % pp}", "change layers_per_stage")
    base, extra = divmod(weighed, stages)
    counts_list = [base + (stage < extra) for stage in range(stages)]
    counts_list[0] -= first
    counts_list[-1] -= last
    if min(counts_list) < 0 or max(first, last) > base:
        raise InvalidInput("E-LAYERS", f"{weighed} weighed layers leave a stage without room", "lower *_less_layers")
    alike = extra == 0 and (first, last) == ((0, 0) if model.layers % stages == 0 else (1, 1))
    return stages // pp, None if alike else tuple(counts_list)


def _sharding(parallel: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    replicas, shards = parallel["data_parallel_replicate_degree"], parallel["data_parallel_shard_degree"]
    if shards == 1 and replicas > 1 and values["cp"] == 1:
        return {"dp_sharding": "ddp", "dp_overlap": "backward"}
    if replicas > 1:
        return {"dp_sharding": "hsdp", "dp_shard": shards, "dp_overlap": "prefetch"}
    policies = {"always": True, "never": False, "default": values["pp"] == 1}
    reshard = _choice("fsdp_reshard_after_forward", parallel, policies)
    return {"dp_sharding": "fsdp-reshard" if reshard else "fsdp", "dp_overlap": "prefetch"}


def _recompute(content: Mapping[str, Any]) -> str:
    mode = content.get("activation_checkpoint", {}).get("mode", "selective")
    if mode not in ("none", "full"):
        clash = f"activation_checkpoint.mode {mode!r} recomputes every other layer or operator"
        raise InvalidInput("E-FRAMEWORK", f"{clash}: no plan of ours has that", "use none or full")
    return str(mode)


def _precision(content: Mapping[str, Any], training: Mapping[str, Any]) -> str:
    if "float8" in content.get("model", {}).get("converters", []):
        return "fp8"
    return _choice("mixed_precision_param", training, {"bfloat16": "bf16", "float32": "fp32"})


def _optimizer(content: Mapping[str, Any]) -> str:
    name = content.get("optimizer", {}).get("name", "AdamW")
    if name not in ("Adam", "AdamW"):
        raise InvalidInput("E-FRAMEWORK", f"optimizer {name}: no plan of ours has it", "use AdamW")
    return "adam"


def _notes(content: Mapping[str, Any]) -> list[str]:
    read_too = {"model", "training", "parallelism", "activation_checkpoint", "optimizer"}
    over = sorted(set(content) - read_too)
    return [f"no part of the plan, passed over: {', '.join(f'[{name}]' for name in over)}"] if over else []


def _choice(key: str, section: Mapping[str, Any], words: Mapping[str, Any]) -> Any:
    value = section[key]
    if value not in words:
        raise InvalidInput("E-FRAMEWORK", f"{key} = {value!r}: no plan of ours has it", f"use {' or '.join(words)}")
    return words[value]
