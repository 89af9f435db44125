"""Scaled-down twins: the same dimensions, tiers and work, few enough ranks for the real simulator; timing estimates."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_cases import CONFIG, DENSE, H100, execute, make
from scaleacross.cluster.spec import Cluster, load_cluster
from scaleacross.errors import Infeasible
from scaleacross.model import Model, load_model
from scaleacross.plan.degrees import Training, parallelism_from
from scaleacross.plan.placement import place
from scaleacross.plan.rules import micro_batches, validate
from scaleacross.schedule import build, parameters
from scaleacross.trace.cookbook import Cookbook
from scaleacross.trace.scale import LARGEST, SMALLEST, Twin, scale_down, shrink
from scaleacross.trace.timing import stage_delays, stage_durations, timed

CLUSTER = load_cluster(CONFIG / "clusters" / "meta-2dc-16k.yaml.j2", {})
LLAMA = load_model(CONFIG / "models" / "llama3-405b.yaml")
MIXTRAL = load_model(CONFIG / "models" / "mixtral-8x7b.yaml")
BATCH = Training(8192, 2048)

PLANS: dict[str, tuple[Model, Training, dict[str, Any]]] = {
    "production": (LLAMA, BATCH, {"tp": 8, "pp": 16, "schedule": "interleaved", "chunks": 2, "dp_sharding": "fsdp"}),
    "pipeline across": (LLAMA, BATCH, {"tp": 8, "pp": 32, "order": ["tp", "cp", "dp", "pp"], "dp_sharding": "zero1"}),
    "hsdp": (LLAMA, BATCH, {"tp": 8, "pp": 16, "schedule": "zbv", "chunks": 2, "dp_sharding": "hsdp"}),
    "dualpipe": (LLAMA, Training(8192, 8192), {"tp": 8, "pp": 16, "cp": 2, "schedule": "dualpipe"}),
    "experts": (MIXTRAL, Training(4096, 4096), {"tp": 2, "etp": 1, "ep": 8, "pp": 4, "micro_batch": 1}),
}


def scaled(name: str) -> tuple[Twin, list[int]]:
    model, training, values = PLANS[name]
    plan = parallelism_from(values, CLUSTER.gpus)
    validate(model, training, plan, CLUSTER.gpus)
    before = place(plan, CLUSTER.tiers)
    return scale_down(model, training, plan, CLUSTER), [dim.size for dim in before.dims]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_twin_keeps_every_dimension_and_tier(name: str) -> None:
    model, training, values = PLANS[name]
    plan = parallelism_from(values, CLUSTER.gpus)
    twin, _ = scaled(name)
    validate(twin.model, twin.training, twin.parallelism, twin.cluster.gpus)
    before = place(plan, CLUSTER.tiers)
    after = place(twin.parallelism, twin.cluster.tiers)
    assert SMALLEST <= twin.cluster.gpus == after.ranks <= LARGEST
    assert [(dim.tier, dim.axis, dim.groups) for dim in after.dims] == [
        (dim.tier, dim.axis, dim.groups) for dim in before.dims
    ]
    assert all(small.size <= large.size for small, large in zip(after.dims, before.dims, strict=True))
    kept = ("schedule", "chunks", "dp_sharding", "dp_overlap", "micro_batch", "order", "sequence_parallel")
    assert all(getattr(twin.parallelism, knob) == getattr(plan, knob) for knob in kept)
    layers, full = twin.model.layers / twin.parallelism.virtual_stages, model.layers / plan.virtual_stages
    assert layers == pytest.approx(full, rel=0.15), "a virtual stage holds as many layers"
    ratio = micro_batches(twin.training, twin.parallelism) / twin.parallelism.pp
    assert ratio == pytest.approx(micro_batches(training, plan) / plan.pp, rel=0.5)


@pytest.mark.parametrize("name", ["production", "hsdp"])
def test_a_twin_runs(name: str) -> None:
    twin, _ = scaled(name)
    sizes = [tier for tier in twin.cluster.tiers if tier.size > 1]
    values = {key: value for key, value in twin.parallelism.as_dict().items() if key != "etp"}
    execute(make(twin.model, values, twin.training, sizes))  # type: ignore[arg-type]


@given(st.lists(st.integers(2, 40), min_size=1, max_size=6))
def test_shrinking_keeps_two_in_each_dimension(sizes: list[int]) -> None:
    small = shrink(sizes)
    assert all(2 <= new <= old for new, old in zip(small, sizes, strict=True))
    assert math.prod(small) >= min(SMALLEST, math.prod(sizes))
    assert math.prod(small) <= LARGEST or all(size == 2 for size in small)


def test_a_small_plan_stays_as_it_is() -> None:
    cluster = CLUSTER.scaled([8, 4, 1, 1])
    plan = parallelism_from({"tp": 8, "pp": 2}, cluster.gpus)
    model = DENSE
    twin = scale_down(model, Training(1024, 16), plan, cluster)
    assert twin.cluster.gpus == 32 and twin.parallelism.with_values(layout=None) == plan
    assert twin.training == Training(1024, 16) and twin.model.layers == model.layers


def test_too_many_dimensions_cannot_be_small() -> None:
    tiers = tuple(CLUSTER.tiers[0].__class__(f"t{index}", 2, 1e9, 1e-6) for index in range(9))
    cluster = Cluster("deep", "h100-sxm", tiers)
    with pytest.raises(Infeasible, match=r"E-SCALE: the plan's 9 network dimensions make 512 GPUs"):
        scale_down(DENSE, Training(1024, 512), parallelism_from({"dp": 512}), cluster)


# -- times for schedules made for them --------------------------------------------------------------------------------


def cookbook(**values: Any) -> Cookbook:
    plan = parallelism_from({"tp": 8, "pp": 16, "order": ["tp", "cp", "dp", "pp"], **values}, CLUSTER.gpus)
    return Cookbook(LLAMA, BATCH, plan, place(plan, CLUSTER.tiers), H100)


def test_delays_are_the_crossed_tiers() -> None:
    """33.6 MB at 47 GB/s and 75 us to the next zone; 150 us across the campus, where one stage of eight sends."""
    book = cookbook()
    delays = stage_delays(book, CLUSTER.tiers)
    transfer = 8192 * 16384 * 2 / 8 / 47e9 * 1e9
    placement = book.placement
    assert delays[0][0] == 0 and delays[3][4] == delays[4][3]
    rank = placement.rank_of(pp=7)
    other = placement.stage_rank(rank, 8)
    assert placement.unit_of(rank, "building") != placement.unit_of(other, "building")
    assert delays[7][8] == pytest.approx(150e3 + transfer, rel=1e-6)


def test_durations_follow_the_layers() -> None:
    forward, backward, weight = stage_durations(cookbook(), CLUSTER.tiers)
    assert len(forward) == 16 and forward[1] == forward[8] > forward[0]
    assert backward[1] > forward[1] and weight[1] > 0


def test_a_schedule_gets_what_it_takes_and_was_not_given() -> None:
    assert timed(cookbook(), CLUSTER.tiers).schedule_parameters == ()
    book = cookbook(schedule="latency-aware", schedule_parameters={"split": False})
    plan = timed(book, CLUSTER.tiers)
    given = dict(plan.schedule_parameters)
    assert given["split"] is False and {"f", "b", "w", "delay"} <= set(given) <= set(parameters("latency-aware"))
    schedule = build(plan.schedule, 16, micro_batches(BATCH, plan), 1, **given)
    assert schedule.stages == 16
    assert timed(Cookbook(LLAMA, BATCH, plan, book.placement, H100), CLUSTER.tiers) == plan
