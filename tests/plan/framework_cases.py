"""Feasible launches of every kind that a framework can or cannot express, drawn for property tests."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from scaleacross.errors import Infeasible
from scaleacross.model import Mla, Model, Moe
from scaleacross.plan.degrees import AXES, Parallelism, Training
from scaleacross.plan.frameworks import Launch
from scaleacross.plan.frameworks.torchtitan_models import FLAVORS
from scaleacross.plan.layers import spread_layers
from scaleacross.plan.rules import problems
from scaleacross.schedule import build

POWERS = st.sampled_from([1, 2, 4])


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Dense and MoE, grouped-query and latent attention, of every switch."""
    heads = draw(st.sampled_from([8, 16]))
    mla = Mla(query_rank=64, kv_rank=32, nope_size=16, rope_size=8, value_size=16) if draw(st.booleans()) else None
    learned = draw(st.booleans())
    values: dict[str, Any] = {
        "name": draw(st.sampled_from(["a-model", "b"])),
        "source": "a paper",
        "layers": draw(st.sampled_from([6, 8, 14, 16, 24])),
        "hidden": 256,
        "heads": heads,
        "kv_heads": draw(st.sampled_from([4, 8])),
        "head_size": draw(st.sampled_from([16, 32, 64])),
        "ffn": draw(st.sampled_from([512, 768])),
        "vocab": draw(st.sampled_from([1000, 1001, 4096])),
        "mlp": draw(st.sampled_from(["swiglu", "gelu"])),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])),
        "positions": "learned" if learned else "rope",
        "max_positions": draw(st.sampled_from([1024, 4096])) if learned else 0,
        "mla": mla,
        "mtp_modules": 0 if learned else draw(st.integers(0, 2)),
        **{name: draw(st.booleans()) for name in ("bias", "qkv_bias", "tied_embeddings", "dropout", "qk_norm")},
    }
    if draw(st.booleans()):
        values["moe"] = Moe(
            experts=8,
            top_k=draw(st.integers(1, 4)),
            ffn=128,
            shared_experts=draw(st.integers(0, 2)),
            shared_ffn=draw(st.sampled_from([None, 64])),
            first_dense_layers=draw(st.integers(0, 3)),
            every=draw(st.integers(1, 3)),
            router_bias=draw(st.booleans()),
        )
    return Model.model_validate(values)


@st.composite
def layouts(draw: st.DrawFn, model: Model, stages: int) -> tuple[int, ...] | None:
    """Layers of every virtual stage: left to the plan, or any that add up."""
    if draw(st.booleans()):
        return None
    cuts = sorted(draw(st.lists(st.integers(0, model.layers), min_size=stages - 1, max_size=stages - 1)))
    ends = [0, *cuts, model.layers]
    return tuple(high - low for low, high in itertools.pairwise(ends))


@st.composite
def launches(draw: st.DrawFn, of_models: st.SearchStrategy[Model], own: dict[str, Any]) -> Launch:
    """A feasible launch; ``own`` maps knobs to strategies that replace the usual ones."""
    model = draw(of_models)
    degrees = {axis: draw(own.get(axis, POWERS)) for axis in AXES}
    chunks = draw(st.sampled_from([1, 1, 2, 3]))
    ranks = degrees["tp"] * degrees["cp"] * degrees["dp"]
    knobs: dict[str, Any] = {
        "order": st.permutations(AXES).map(tuple),
        "etp": st.sampled_from([0, 1]),
        "ep": st.sampled_from([1, 2, 4]) if model.moe else st.just(1),
        "micro_batch": st.sampled_from([1, 2]),
        "schedule": st.just("interleaved" if chunks > 1 else "1f1b"),
        "dp_sharding": st.sampled_from(["ddp", "zero1", "zero2", "fsdp", "fsdp-reshard", "hsdp"]),
        "dp_shard": st.sampled_from([n for n in (1, 2, 4) if degrees["dp"] % n == 0]),
        "dp_overlap": st.sampled_from(["none", "backward", "prefetch"]),
        "bucket_layers": st.integers(1, 3),
        "gradient_bytes": st.sampled_from([2, 4]),
        "sequence_parallel": st.booleans(),
        "cp_method": st.sampled_from(["all-gather", "ring"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "p2p_overlap": st.booleans(),
        "scatter_gather": st.booleans(),
        "attention": st.sampled_from(["flash", "flash2", "unfused"]),
        "fused_accumulation": st.booleans(),
        "tp_overlap": st.booleans(),
        "flat_rings": st.sampled_from([(), ("dp",), ("dp", "ep")]),
        "fixed_order": st.booleans(),
        "granularity": st.sampled_from(["operator", "layer", "block"]),
        "layout": layouts(model, degrees["pp"] * chunks),
        **{name: strategy for name, strategy in own.items() if name not in AXES},
    }
    values = {name: draw(strategy) for name, strategy in knobs.items()}
    rounds = draw(st.sampled_from([1, 2, 3]))
    if chunks > 1 and draw(st.booleans()):
        values["schedule_parameters"] = (("contiguous", degrees["pp"] * draw(st.sampled_from([1, rounds]))),)
    plan = Parallelism(**degrees, chunks=chunks, **values)
    training = Training(
        sequence_length=draw(st.sampled_from([512, 1024])),
        global_batch=plan.dp * plan.micro_batch * rounds * max(plan.pp, 1),
        precision=draw(own.get("precision", st.sampled_from(["bf16", "fp16", "fp8", "fp32"]))),
        optimizer=draw(own.get("optimizer", st.sampled_from(["adam", "sgd"]))),
        expert_imbalance=draw(st.sampled_from([1.0, 1.25])),
        document_length=draw(st.sampled_from([0.0, 300.5])),
        attention_imbalance=draw(st.sampled_from([1.0, 1.4])),
    )
    launch = Launch(model, training, plan, draw(st.sampled_from([n for n in (1, 2, 4) if plan.world % n == 0])))
    assume(ranks % (plan.etp * plan.ep) == 0 and feasible(launch))
    return launch


def feasible(launch: Launch) -> bool:
    """Whether a plan keeps the rules and its schedule exists."""
    plan = launch.parallelism
    if next(problems(launch.model, launch.training, plan, plan.world), None) is not None:
        return False
    try:
        spread_layers(launch.model.layers, plan)
        build(plan.schedule, plan.pp, launch.micro_batches, plan.chunks, **dict(plan.schedule_parameters))
    except Infeasible:
        return False
    return True


#: Knobs for which Megatron-LM has a flag at most draws; the rest stays as drawn, so that errors are met too.
MEGATRON: dict[str, Any] = {
    "order": st.sampled_from([("tp", "cp", "pp", "dp"), ("tp", "cp", "dp", "pp"), ("pp", "tp", "cp", "dp")]),
    "dp_sharding": st.sampled_from(["ddp", "zero1", "zero1", "zero2", "fsdp-reshard", "hsdp"]),
    "scatter_gather": st.just(False),
}
TORCHTITAN: dict[str, Any] = {
    "order": st.sampled_from([("tp", "cp", "dp", "pp"), ("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp")]),
    "dp_sharding": st.sampled_from(["ddp", "fsdp", "fsdp", "fsdp-reshard", "hsdp"]),
    "dp_overlap": st.just("prefetch"),
    "sequence_parallel": st.just(True),
    "bucket_layers": st.just(1),
    "gradient_bytes": st.just(4),
    "attention": st.just("flash"),
    "recompute": st.sampled_from(["none", "full"]),
    "precision": st.sampled_from(["bf16", "bf16", "fp8", "fp32"]),
    "optimizer": st.just("adam"),
}


@st.composite
def torchtitan_launches(draw: st.DrawFn) -> Launch:
    """Launches near those torchtitan can express: its schedules, its models, tp as its sequence parallelism wants."""
    schedule, chunks = draw(
        st.sampled_from([("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zbv", 2), ("dualpipe-v", 2)])
    )
    model = draw(st.sampled_from([flavor.model for flavor in FLAVORS.values()])).model_copy(update={"name": "shipped"})
    tp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    own = {**TORCHTITAN, "sequence_parallel": st.just(tp > 1)}
    drawn = {name: draw(strategy) for name, strategy in own.items() if name not in ("precision", "optimizer")}
    cp, dp = draw(st.sampled_from([1, 2])), draw(POWERS)
    shards = [n for n in (1, 2, 4) if dp % n == 0]
    plan = Parallelism(
        tp=tp,
        cp=cp,
        pp=pp,
        dp=dp,
        ep=draw(st.sampled_from([1, 2, 4])) if model.moe else 1,
        etp=draw(st.sampled_from([0, 1])),
        chunks=chunks if pp > 1 else 1,
        schedule=schedule if pp > 1 else "1f1b",
        p2p_overlap=schedule != "1f1b" if draw(st.integers(0, 4)) else draw(st.booleans()),
        micro_batch=draw(st.sampled_from([1, 2])),
        cp_method=draw(st.sampled_from(["all-gather", "ring"])),
        fused_accumulation=draw(st.booleans()),
        dp_shard=draw(st.sampled_from(shards)),
        layout=draw(layouts(model, pp * (chunks if pp > 1 else 1))) if draw(st.booleans()) else None,
        **drawn,
    )
    rounds = draw(st.sampled_from([1, 2])) * (2 * pp if pp > 1 else 1)
    training = Training(
        1024, plan.dp * plan.micro_batch * rounds, draw(own["precision"]), "adam", draw(st.sampled_from([1.0, 1.25]))
    )
    launch = Launch(model, training, plan, math.gcd(8, plan.world))
    assume(plan.tp * plan.cp * plan.dp % (plan.etp * plan.ep) == 0 and feasible(launch))
    return launch
