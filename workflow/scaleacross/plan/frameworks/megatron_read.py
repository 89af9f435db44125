"""Megatron-LM's command line read back as a plan, with Megatron-LM's own defaults for flags that are absent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from ...errors import Infeasible, InvalidInput
from ...model import Mla, Model, Moe
from ..degrees import Parallelism, Training
from .launch import Launch, Reading, assumptions, canonical, canonical_experts, plan_of, read_remarks
from .megatron import DP_LAST, NAME, PP_LAST, STRATEGIES, WITHOUT_FLAG, bucket_elements, bucket_flag
from .megatron_args import Flags
from .megatron_text import read_layout, read_pattern

DEFAULT_BUCKET, BUCKET_A_RANK = 40_000_000, 1_000_000  # Megatron Core: max(40 M, 1 M x data-parallel ranks) parameters


def read(text: str, gpus: int | None = None) -> Reading:
    """The launch of a command line or of a launch script.

    Raises:
        InvalidInput: E-FLAG for a flag that is misspelt, lacks its value or is missing; E-FRAMEWORK for one that no
            plan of ours has, and where the number of GPUs is not said; E-WORLD where tp, cp and pp don't divide them;
            E-LAYERS, E-LAYOUT for layers that don't divide; E-MODEL for flags that make no model.
    """
    flags = Flags(text)
    name, knobs = read_remarks(text, WITHOUT_FLAG)
    nodes, per_node = flags.launcher.get("--nnodes"), flags.launcher.get("--nproc-per-node")
    if gpus is None:
        if per_node is None:
            clash = "the number of GPUs is not said: no --nproc-per-node"
            raise InvalidInput("E-FRAMEWORK", clash, "keep the torchrun line, or say how many GPUs there are")
        gpus = (nodes or 1) * per_node
    try:
        model, layout = _model(flags, name or "from-flags")
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(map(str, detail["loc"]))
        raise InvalidInput("E-MODEL", f"the flags make no model: {where} {detail['msg']}", "mend its flags") from None
    plan = _plan(flags, model, gpus, layout, knobs)
    training = replace(_training(flags, plan), **assumptions(text))
    plan, notes = _bucket(flags, model, plan)
    _check_micro_batches(Launch(model, training, plan))
    if flags.passed_over:
        notes.append("no part of the plan, passed over: " + " ".join(flags.passed_over))
    return Reading(canonical(Launch(model, training, plan, per_node or min(8, gpus))), tuple(notes))


def _plan(flags: Flags, model: Model, gpus: int, layout: tuple[int, ...] | None, knobs: dict[str, Any]) -> Parallelism:
    tp, pp = flags.number("--tensor-model-parallel-size", 1), flags.number("--pipeline-model-parallel-size", 1)
    cp = flags.number("--context-parallel-size", 1)
    inner = tp * cp * pp
    if inner == 0 or gpus % inner:
        clash = f"{gpus} GPUs % (tp {tp} x cp {cp} x pp {pp}) = {gpus % inner if inner else 'undefined'}"
        raise Infeasible("E-WORLD", clash, "choose degrees that divide the GPUs")
    chunks, layout = _virtual_stages(flags, model, pp, layout)
    interleaved = chunks > 1
    values: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": gpus // inner,
        "ep": flags.number("--expert-model-parallel-size", 1),
        "etp": flags.number("--expert-tensor-parallel-size", tp),
        "order": DP_LAST if "--use-tp-pp-dp-mapping" in flags else PP_LAST,
        "micro_batch": flags.number("--micro-batch-size"),
        "chunks": chunks,
        "schedule": "interleaved" if interleaved else "1f1b",
        "layout": layout,
        # Megatron-LM turns sequence parallelism off by itself where tp is 1.
        "sequence_parallel": "--sequence-parallel" in flags and tp > 1,
        "cp_method": flags.word("--cp-comm-type", {"allgather": "all-gather", "p2p": "ring"}, "p2p"),
        "p2p_overlap": interleaved and "--no-overlap-p2p-communication" not in flags,
        "recompute": _recompute(flags),
        "attention": _attention(flags),
        "fused_accumulation": "--no-gradient-accumulation-fusion" not in flags,
        "gradient_bytes": _gradient_bytes(flags),
        **_sharding(flags),
        **knobs,
    }
    group = flags.optional("--microbatch-group-size-per-virtual-pipeline-stage")
    if group is not None and interleaved:
        values["schedule_parameters"] = {"contiguous": group}
    return plan_of(values, gpus)


def _virtual_stages(
    flags: Flags, model: Model, pp: int, layout: tuple[int, ...] | None
) -> tuple[int, tuple[int, ...] | None]:
    """(chunks, layout): the layout where it is not the one that our plans spread layers by themselves in."""
    if layout is not None:
        if len(layout) % pp:
            raise InvalidInput("E-FLAG", f"the layout has {len(layout)} stages for pp {pp}", "give a multiple")
        return len(layout) // pp, layout
    counted = model.layers
    ends = ["--account-for-embedding-in-pipeline-split" in flags, "--account-for-loss-in-pipeline-split" in flags]
    counted += sum(ends)
    each = flags.optional("--num-layers-per-virtual-pipeline-stage")
    chunks = flags.number("--num-virtual-stages-per-pipeline-rank", 1)
    first, last = (flags.optional(f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if each is not None:
        if each == 0 or counted % (pp * each):
            clash = f"layers {counted} % (pp {pp} x {each} layers a virtual stage) = {counted % max(1, pp * each)}"
            raise InvalidInput("E-LAYERS", clash, "choose --num-layers-per-virtual-pipeline-stage that divides")
        chunks = counted // (pp * each)
    if first is not None or last is not None:
        return chunks, _uneven(model.layers, pp, chunks, first, last)
    if counted % (pp * chunks):
        clash = f"layers {counted} % (pp {pp} x chunks {chunks}) = {counted % (pp * chunks)}"
        raise InvalidInput("E-LAYERS", clash, "choose a division without remainder, or give a layout")
    counts = [counted // (pp * chunks)] * (pp * chunks)
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    spread_alike = ends in ([False, False], [True, True]) or pp * chunks == 1
    return chunks, None if spread_alike else tuple(counts)


def _uneven(layers: int, pp: int, chunks: int, first: int | None, last: int | None) -> tuple[int, ...]:
    """Layers of every virtual stage where the first or last rank holds another number of them."""
    ends = [count for count in (first, last) if count is not None]
    middle, left = pp - len(ends), layers - sum(ends)
    if left < 0 or (middle and left % middle) or (not middle and left):
        clash = f"layers {layers} - {' - '.join(map(str, ends))} = {left} for {middle} other ranks"
        raise InvalidInput("E-LAYERS", clash, "choose --decoder-first/last-pipeline-num-layers that leave a multiple")
    ranks = [left // middle if middle else 0] * pp
    ranks[0] = first if first is not None else ranks[0]
    ranks[-1] = last if last is not None else ranks[-1]
    if any(count % chunks for count in ranks):
        raise InvalidInput("E-LAYERS", f"{ranks} layers a rank are not multiples of {chunks} chunks", "change them")
    return tuple(ranks[position % pp] // chunks for position in range(pp * chunks))


def _sharding(flags: Flags) -> dict[str, Any]:
    overlap = "backward" if "--overlap-grad-reduce" in flags else "none"
    if "--overlap-param-gather" in flags:
        if overlap == "none":
            raise InvalidInput("E-FLAG", "--overlap-param-gather without --overlap-grad-reduce", "add it")
        overlap = "prefetch"
    instances = flags.number("--num-distributed-optimizer-instances", 1)
    if instances != 1:
        clash = f"--num-distributed-optimizer-instances {instances}: optimizer states sharded inside, whole across"
        raise InvalidInput("E-FRAMEWORK", f"{clash} instances; no plan of ours has that", "make it 1")
    sharding = "zero1" if "--use-distributed-optimizer" in flags else "ddp"
    if "--use-megatron-fsdp" in flags:
        words = {"no_shard": "ddp", "optim": "zero1", **{theirs: ours for ours, theirs in STRATEGIES.items()}}
        sharding = flags.word("--data-parallel-sharding-strategy", words, "optim_grads_params")
    return {"dp_sharding": sharding, "dp_overlap": overlap}


def _check_micro_batches(launch: Launch) -> None:
    if launch.parallelism.dp_sharding == "fsdp-reshard" and launch.micro_batches > 1:
        clash = f"{NAME}'s FSDP reduces gradients after each of {launch.micro_batches} micro-batches"
        raise InvalidInput("E-FRAMEWORK", f"{clash}; fsdp-reshard reduces once a step", "use optim_grads (zero2)")


def _bucket(flags: Flags, model: Model, plan: Parallelism) -> tuple[Parallelism, list[str]]:
    """The plan with its gradient buckets in whole layers, and what was rounded."""
    if bucket_flag(plan) is None:
        return plan, []
    size = flags.number("--ddp-bucket-size", max(DEFAULT_BUCKET, BUCKET_A_RANK * plan.data_ranks))
    layer = bucket_elements(model, plan)
    layers = min(model.layers, max(1, round(size / layer)))
    notes = []
    if size != layers * layer:
        words = f"--ddp-bucket-size {size}" + ("" if "--ddp-bucket-size" in flags else " (default)")
        notes.append(f"{words} is {size / layer:.2f} layers of {layer} parameters a rank: taken as {layers}")
    return plan.with_values(bucket_layers=layers), notes


def _training(flags: Flags, plan: Parallelism) -> Training:
    return Training(
        sequence_length=flags.number("--seq-length"),
        global_batch=flags.number("--global-batch-size", plan.micro_batch * plan.dp),
        precision=_precision(flags),
        optimizer=flags.word("--optimizer", {"adam": "adam", "sgd": "sgd"}, "adam"),
    )


def _precision(flags: Flags) -> str:
    if "--bf16" in flags and "--fp16" in flags:
        raise InvalidInput("E-FLAG", "--bf16 and --fp16 exclude each other", "keep one")
    if "--fp8-format" in flags:
        if "--bf16" not in flags:
            raise InvalidInput("E-FRAMEWORK", "--fp8-format without --bf16: no plan of ours has that", "add --bf16")
        return "fp8"
    return "bf16" if "--bf16" in flags else "fp16" if "--fp16" in flags else "fp32"


def _gradient_bytes(flags: Flags) -> int:
    precision = _precision(flags)
    if precision in ("bf16", "fp8"):
        return 2 if "--grad-reduce-in-bf16" in flags else 4
    return 2 if precision == "fp16" and "--accumulate-allreduce-grads-in-fp32" not in flags else 4


def _recompute(flags: Flags) -> str:
    granularity = "selective" if "--recompute-activations" in flags else flags.values.get("--recompute-granularity")
    if granularity is None:
        return "none"
    if granularity == "selective":
        return flags.word("--recompute-modules", {"core_attn": "selective"}, "core_attn")
    method, layers = flags.values.get("--recompute-method"), flags.number("--recompute-num-layers", 1)
    if granularity != "full" or method != "uniform" or layers != 1:
        clash = f"recomputation {granularity}, method {method}, {layers} layers: no plan of ours has that"
        raise InvalidInput("E-FRAMEWORK", clash, "use full with --recompute-method uniform --recompute-num-layers 1")
    return "full"


def _attention(flags: Flags) -> str:
    words = {"auto": "flash", "fused": "flash", "flash": "flash", "unfused": "unfused", "local": "unfused"}
    backend = flags.word("--attention-backend", words, "auto")
    return "flash2" if backend == "flash" and flags.number("--flash-attention-version", 3) == 2 else backend


def _model(flags: Flags, name: str) -> tuple[Model, tuple[int, ...] | None]:
    """The model's shape, and the pipeline layout where one is given (it counts the prediction modules)."""
    layers, hidden = flags.number("--num-layers"), flags.number("--hidden-size")
    heads = flags.number("--num-attention-heads")
    swiglu = "--swiglu" in flags
    layout, modules = None, flags.number("--mtp-num-layers", 0)
    if "--pipeline-model-parallel-layout" in flags:
        layout, found = read_layout(flags.values["--pipeline-model-parallel-layout"])
        if found != modules or sum(layout) != layers:
            clash = (
                f"the layout has {sum(layout)} layers and {found} prediction modules, the model {layers} and {modules}"
            )
            raise InvalidInput("E-LAYOUT", clash, "make them agree")
    learned = flags.word("--position-embedding-type", {"rope": "", "learned_absolute": "learned"}, "learned_absolute")
    learned = "" if "--use-rotary-position-embeddings" in flags else learned
    default_ffn = int(8 * hidden / 3 / 64) * 64 if swiglu else 4 * hidden
    values: dict[str, Any] = {
        "name": name,
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": flags.number("--num-query-groups", 1) if "--group-query-attention" in flags else heads,
        "head_size": flags.number("--kv-channels", hidden // heads if heads else 0),
        "ffn": flags.number("--ffn-hidden-size", default_ffn),
        "vocab": _vocabulary(flags),
        "mlp": "swiglu" if swiglu else "gelu",
        "norm": flags.word("--normalization", {"RMSNorm": "rmsnorm", "LayerNorm": "layernorm"}, "LayerNorm"),
        "bias": "--disable-bias-linear" not in flags and "--no-add-bias-linear" not in flags,
        "qkv_bias": "--add-qkv-bias" in flags,
        "positions": learned or "rope",
        "max_positions": flags.number("--max-position-embeddings") if learned else 0,
        "tied_embeddings": "--untie-embeddings-and-output-weights" not in flags,
        "dropout": _dropout(flags),
        "qk_norm": "--qk-layernorm" in flags,
        "mla": _latent(flags),
        "moe": _experts(flags, layers),
        "mtp_modules": modules,
    }
    return Model.model_validate(values), layout


def _vocabulary(flags: Flags) -> int:
    """Rows of the token table: as padded. Rows that only make it divide by tp are not counted, as in our models."""
    if "--padded-vocab-size" in flags:
        return flags.number("--padded-vocab-size")
    multiple = flags.number("--make-vocab-size-divisible-by", 128)
    if multiple == 1:
        return flags.number("--vocab-size")
    multiple *= flags.number("--tensor-model-parallel-size", 1)
    return -(-flags.number("--vocab-size") // multiple) * multiple


def _dropout(flags: Flags) -> bool:
    rates = [flags.real(f"--{place}-dropout", 0.1) for place in ("attention", "hidden")]
    if (rates[0] > 0) != (rates[1] > 0):
        clash = f"--attention-dropout {rates[0]} and --hidden-dropout {rates[1]}: our models have both or neither"
        raise InvalidInput("E-FRAMEWORK", clash, "make both 0, or neither")
    return rates[0] > 0


def _latent(flags: Flags) -> Mla | None:
    if "--multi-latent-attention" not in flags:
        return None
    return Mla(
        query_rank=flags.number("--q-lora-rank"),
        kv_rank=flags.number("--kv-lora-rank", 32),
        nope_size=flags.number("--qk-head-dim", 128),
        rope_size=flags.number("--qk-pos-emb-head-dim", 64),
        value_size=flags.number("--v-head-dim", 128),
    )


def _experts(flags: Flags, layers: int) -> Moe | None:
    if "--num-experts" not in flags:
        return None
    width = flags.number("--moe-shared-expert-intermediate-size", 0)
    moe = Moe(
        experts=flags.number("--num-experts"),
        top_k=flags.number("--moe-router-topk", 2),
        ffn=flags.number("--moe-ffn-hidden-size", flags.number("--ffn-hidden-size", 0)),
        shared_experts=1 if width else 0,
        shared_ffn=width or None,
        router_bias="--moe-router-enable-expert-bias" in flags,
    )
    return canonical_experts(moe, read_pattern(flags.values.get("--moe-layer-freq", "1"), layers))
