"""How long virtual stages and their messages take, for schedules that are made for given times (``latency-aware``).

An estimate for choosing an order, not a simulation: compute blocks at their roofline time, collectives at the
bandwidth of their outermost tier plus one latency, messages at latency plus bytes over the bandwidth that
oversubscription leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..plan.degrees import Parallelism
from ..plan.gray import gray_digits
from ..schedule import parameters
from .columns import ALL_GATHER, ALL_REDUCE
from .context import COMPUTE
from .cookbook import Cookbook
from .steps import Step
from .units import Unit


class TierSpeed(Protocol):
    """What timing needs to know of a tier."""

    @property
    def name(self) -> str: ...

    @property
    def bandwidth(self) -> float: ...

    @property
    def latency(self) -> float: ...

    @property
    def oversubscription(self) -> float: ...


def timed(cookbook: Cookbook, tiers: Sequence[TierSpeed]) -> Parallelism:
    """The plan with durations and delays handed to its schedule, where that takes them and they were not given.

    Times are whole nanoseconds, so that equal estimates give equal plans.
    """
    parallelism = cookbook.parallelism
    given = dict(parallelism.schedule_parameters)
    known = parameters(parallelism.schedule)
    estimates: dict[str, object] = dict(zip("fbw", stage_durations(cookbook, tiers), strict=True))
    estimates["delay"] = stage_delays(cookbook, tiers)
    missing = {name: value for name, value in estimates.items() if name in known and name not in given}
    if not missing:
        return parallelism
    return parallelism.with_values(schedule_parameters=tuple(sorted({**given, **missing}.items())))


def stage_durations(cookbook: Cookbook, tiers: Sequence[TierSpeed]) -> tuple[tuple[int, ...], ...]:
    """Nanoseconds of a forward, an input gradient and a weight gradient through every virtual stage: (f, b, w)."""
    return tuple(
        tuple(
            round(
                1e9 * sum(_step_seconds(cookbook, tiers, step) for unit in units for step in _steps(cookbook, unit, p))
            )
            for units in cookbook.positions
        )
        for p in ("F", "B", "W")
    )


def stage_delays(cookbook: Cookbook, tiers: Sequence[TierSpeed]) -> tuple[tuple[int, ...], ...]:
    """Nanoseconds of a message between two pipeline ranks, ``[from][to]``."""
    placement, by_name = cookbook.placement, {tier.name: tier for tier in tiers}
    dims = [placement.dims[index] for index in placement.dims_of("pp")]
    sizes = [dim.size for dim in dims]
    digits = [gray_digits(stage, sizes) for stage in range(cookbook.parallelism.pp)]
    shard = cookbook.kitchen.shard
    size = shard.residual_tokens * cookbook.model.hidden * shard.bytes_per_element

    def delay(here: tuple[int, ...], there: tuple[int, ...]) -> int:
        crossed = [dim for dim, one, other in zip(dims, here, there, strict=True) if one != other]
        if not crossed:
            return 0
        latency = max(by_name[dim.tier].latency for dim in crossed)
        slowest = min(
            by_name[dim.tier].bandwidth / max(1.0, by_name[dim.tier].oversubscription * dim.share) for dim in crossed
        )
        return round(1e9 * (latency + size / slowest))

    return tuple(tuple(delay(here, there) for there in digits) for here in digits)


def _steps(cookbook: Cookbook, unit: Unit, phase: str) -> tuple[Step, ...]:
    return cookbook.unit_recipe(unit, phase).steps


def _step_seconds(cookbook: Cookbook, tiers: Sequence[TierSpeed], step: Step) -> float:
    if step.comm_type == COMPUTE:
        accelerator = cookbook.accelerator
        peak = accelerator.peak(cookbook.training.precision)
        return max(step.num_ops / peak, step.size / accelerator.memory_bandwidth)
    ranks = cookbook.placement.size_of(step.group)
    outermost = cookbook.placement.tiers_of(step.group)[-1]
    tier = next(tier for tier in tiers if tier.name == outermost)
    share = float(ranks - 1) if step.comm_type == ALL_GATHER else (ranks - 1) / ranks
    passes = 2 if step.comm_type == ALL_REDUCE else 1
    return passes * share * step.size * tier.oversubscription / tier.bandwidth + tier.latency
