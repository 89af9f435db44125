"""Operator, layer and block granularity of one plan take the same time; what fusing keeps and saves."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import CASES, CONFIG, H100, make_case
from scaleacross.astra.render import render_config
from scaleacross.cluster.spec import Cluster, load_cluster
from scaleacross.engine import load_config, load_workload, simulate
from scaleacross.errors import Infeasible
from scaleacross.model import Model, Moe, load_model
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.plan.placement import place
from scaleacross.plan.rules import micro_batches, validate
from scaleacross.schedule import build
from scaleacross.trace.columns import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from scaleacross.trace.context import Context
from scaleacross.trace.fuse import check_fused, fuse, segments
from scaleacross.trace.groups import GroupNames
from scaleacross.trace.plan_files import write_plan
from scaleacross.trace.scale import scale_down
from scaleacross.trace.steps import COMPUTE, Recipe, join

GRANULARITIES = ("layer", "operator", "block")
Times = dict[str, int]


@cache
def cluster(node: int, zone: int) -> Cluster:
    """Two sites of the big cluster with fewer GPUs; the same bandwidths and latencies."""
    big = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {})
    names = [tier.name for tier in big.tiers]
    return big.scaled(dict.fromkeys(names, 1) | {names[0]: node, names[1]: zone, names[-1]: 2})


def simulated(
    model: Model, training: Training, values: dict[str, Any], on: Cluster, network_model: str = "unaware"
) -> tuple[Times, Times]:
    """Iteration time in ns and nodes by granularity.

    Raises:
        Infeasible: where there is no such plan.
    """
    times: Times = {}
    nodes: Times = {}
    for granularity in GRANULARITIES:
        plan = parallelism_from({**values, "granularity": granularity}, on.gpus)
        validate(model, training, plan, on.gpus)
        placement = place(plan, on.tiers)
        schedule = build(plan.schedule, plan.pp, micro_batches(training, plan), plan.chunks)
        groups = GroupNames(placement, plan.flat_rings).comm_groups()
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            summary = write_plan(folder, model, training, plan, placement, schedule, H100)
            for name, text in render_config(placement.dims, on, H100, {}, training.precision, groups).items():
                (folder / name).write_text(text)
            config = load_config(
                network=folder / "network.yml", system=folder / "system.json", memory=folder / "memory.json"
            )
            outcome = simulate(load_workload(folder / "workload"), config, model=network_model)
        assert outcome.status == "ok", outcome.message
        times[granularity] = outcome.iteration_ns
        nodes[granularity] = sum(count["nodes"] for count in summary["counts"].values())
    return times, nodes


def assert_agree(times: Times) -> None:
    for granularity in ("operator", "block"):
        assert times[granularity] == pytest.approx(times["layer"], rel=0.01), granularity


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Dense and MoE, with and without shared experts, all layers or every second, from 2 to 30 GFLOPs a token."""
    moe = Moe(
        experts=8,
        top_k=draw(st.sampled_from([1, 2, 4])),
        ffn=draw(st.sampled_from([1024, 4096])),
        shared_experts=draw(st.integers(0, 1)),
        every=draw(st.integers(1, 2)),
        first_dense_layers=draw(st.sampled_from([0, 2])),
    )
    sizes = {"layers": 8, "heads": 32, "kv_heads": draw(st.sampled_from([8, 32])), "vocab": 32000}
    sizes |= {"hidden": draw(st.sampled_from([2048, 8192])), "ffn": draw(st.sampled_from([8192, 28672]))}
    return Model.model_validate({"name": "random", **sizes, "moe": draw(st.sampled_from([None, moe]))})


SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zbv", 2), ("v-half", 2)]
SCHEDULES += [("dualpipe", 1), ("dualpipe-v", 2)]


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Values of a plan: every axis, schedule shape, sharding and overlap."""
    schedule, chunks = draw(st.sampled_from(SCHEDULES))
    degrees = {"tp": draw(st.sampled_from([1, 2, 4])), "cp": draw(st.integers(1, 2)), "pp": 2}
    degrees |= {"ep": draw(st.sampled_from([1, 2, 4])), "etp": draw(st.integers(0, 1))}
    choices: dict[str, list[str]] = {
        "dp_sharding": ["ddp", "zero1", "zero2", "fsdp", "hsdp", "fsdp-reshard"],
        "dp_overlap": ["none", "backward", "prefetch"],
        "cp_method": ["all-gather", "ring"],
        "recompute": ["none", "selective", "full"],
    }
    flags = ("sequence_parallel", "p2p_overlap", "scatter_gather", "tp_overlap", "fixed_order")
    return {
        "schedule": schedule,
        "chunks": chunks,
        "micro_batch": draw(st.integers(1, 2)),
        "order": draw(st.permutations(["tp", "cp", "pp", "dp"])),
        **degrees,
        **{name: draw(st.sampled_from(values)) for name, values in choices.items()},
        **{name: draw(st.booleans()) for name in flags},
    }


@given(models(), plans(), st.sampled_from([2048, 8192]), st.sampled_from([16, 32, 64]))
@settings(max_examples=15, deadline=None)
def test_granularities_agree_without_contention(
    model: Model, values: dict[str, Any], sequence: int, batch: int
) -> None:
    if model.moe is None:
        values = values | {"ep": 1, "etp": 0}
    try:
        times, _ = simulated(model, Training(sequence, batch), values, cluster(4, 2))
    except Infeasible:
        assume(False)
    assert_agree(times)


@pytest.mark.parametrize("network_model", ["unaware", "scaleacross"])
@pytest.mark.parametrize(
    "values",
    [
        {"schedule": "interleaved", "chunks": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"},
        {"schedule": "zbv", "chunks": 2, "sequence_parallel": True, "tp_overlap": True},
        {"schedule": "1f1b", "dp_sharding": "zero1", "cp": 2, "sequence_parallel": True, "recompute": "full"},
    ],
)
def test_llama3_405b_scaled_down(values: dict[str, Any], network_model: str) -> None:
    big = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {})
    model = load_model(CONFIG / "models" / "llama3-405b.yaml")
    twin = scale_down(model, Training(8192, 2048), parallelism_from({"tp": 8, "pp": 16, **values}, big.gpus), big)
    plan = {name: value for name, value in twin.parallelism.as_dict().items() if name != "granularity"}
    times, _ = simulated(twin.model, twin.training, plan, twin.cluster, network_model)
    assert_agree(times)


@pytest.mark.parametrize("network_model", ["unaware", "scaleacross"])
@pytest.mark.parametrize(
    "name, values, batch",
    [
        ("megatron-18.4b", {"tp": 8, "micro_batch": 8, "recompute": "full", "scatter_gather": True}, 1024),
        ("gpt3-175b", {"tp": 8, "pp": 8, "sequence_parallel": True, "tp_overlap": True}, 64),
    ],
)
def test_megatron_on_selene(name: str, values: dict[str, Any], batch: int, network_model: str) -> None:
    """As in Megatron-LM's tables, in the network of that cluster."""
    model = load_model(CONFIG / "models" / f"{name}.yaml")
    selene = load_cluster(CONFIG / "clusters" / "selene.yaml.j2", {"nodes": 32})
    times, nodes = simulated(model, Training(2048, batch, "fp16"), values, selene, network_model)
    assert_agree(times)
    assert nodes["block"] < 0.7 * nodes["layer"] < nodes["operator"]


def test_block_is_refused_where_an_all_reduce_has_its_own_algorithm() -> None:
    placement = make_case("1f1b").placement
    same = {f"{kind}-implementation": ["ring"] * 4 for kind in ("all-reduce", "reduce-scatter", "all-gather")}
    check_fused(placement, same)
    tp = placement.dims_of("tp")[0]
    trees = ["doubleBinaryTree" if dim == tp else "ring" for dim in range(4)]
    with pytest.raises(Infeasible, match=r"E-GRANULARITY: .*all-reduce is doubleBinaryTree, the others ring"):
        check_fused(placement, same | {"all-reduce-implementation": trees})
    elsewhere = ["ring" if dim == tp else "doubleBinaryTree" for dim in range(4)]
    check_fused(placement, same | {"all-reduce-implementation": elsewhere})


# -- fusing ----------------------------------------------------------------------------------------------------------


def recipes(name: str) -> list[tuple[str, Recipe]]:
    """Parts of every unit and phase of a case."""
    case = make_case(name)
    context = Context(case.model, case.training, case.parallelism, case.placement, H100, case.schedule)
    units = [unit for position in context.positions for unit in position]
    return [part for unit in units for phase in ("F", "B", "BW", "W") for part in context.unit_parts(unit, phase)]


@pytest.mark.parametrize("name", sorted(CASES))
def test_segments_join_to_the_recipe(name: str) -> None:
    for _, recipe in recipes(name):
        parts = segments(recipe)
        whole = join(parts)
        assert [step._replace(after=tuple(sorted(step.after))) for step in whole.steps] == [
            step._replace(after=tuple(sorted(step.after))) for step in recipe.steps
        ]
        assert set(whole.ends) == set(recipe.ends)
        assert all(segments(part) == [part] for part in parts)


@pytest.mark.parametrize("name", sorted(CASES))
def test_fusing_keeps_work_bytes_and_what_others_run_beside(name: str) -> None:
    parts = recipes(name)
    sizes = {"tp": 2, "etp": 2}
    fused, plain = fuse(parts, sizes), join(Recipe(recipe.steps, recipe.ends) for _, recipe in parts)
    for field in ("num_ops", "size"):
        work = [sum(getattr(step, field) for step in r.steps if step.comm_type == COMPUTE) for r in (fused, plain)]
        assert work[0] == work[1]
    assert moved(fused, sizes) == moved(plain, sizes)
    assert len(fused.steps) < len(plain.steps)
    alone = all(step.comm_type == COMPUTE for step in plain.steps)
    assert len(fused.steps) == 1 if alone else fused.steps[0] == plain.steps[0]


def moved(recipe: Recipe, sizes: dict[str, int]) -> Counter[tuple[str, int, int]]:
    """How often each (group, kind, bytes) is communicated, all-reduces as their two halves."""
    found: Counter[tuple[str, int, int]] = Counter()
    for step in recipe.steps:
        halves = [(step.comm_type, step.size)]
        if step.comm_type == ALL_REDUCE and step.group in sizes and step.size % sizes[step.group] == 0:
            halves = [(REDUCE_SCATTER, step.size), (ALL_GATHER, step.size // sizes[step.group])]
        if step.comm_type != COMPUTE:
            found.update((step.group, kind, size) for kind, size in halves)
    return found
