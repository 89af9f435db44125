"""From a point's values to a plan: degrees, placement, schedule and memory checked, and the plan as plain data.

The plain form holds everything a trace depends on, so that the step that writes traces reads one file, and the hash of
that form is the plan's id. It holds no number of the network, so plans are shared by every network design (but for
schedules that are made for given delays).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..cluster import Accelerator, Cluster
from ..cluster.accelerator import accelerator_from, plain_accelerator
from ..errors import Infeasible
from ..model import Model, training_flops
from ..plan.degrees import BY_SPEED, Parallelism, Training, parallelism_from
from ..plan.dims import NetworkDim, Placement
from ..plan.layers import layer_ranges, spread_layers
from ..plan.memory import Chunk, MemoryBreakdown, stage_memory
from ..plan.placement import place, world_error
from ..plan.rules import micro_batches, validate, without_idle
from ..plan.sites import check_sites, tightest
from ..schedule import Schedule, build, parameters
from ..trace.cookbook import Cookbook
from ..trace.groups import GroupNames
from ..trace.timing import timed
from ..units import GIB
from .balance import balanced_layout
from .points import make_id

PARALLELISM_KEYS = frozenset(item.name for item in fields(Parallelism)) - {"defaulted", "schedule_parameters"}
TRAINING_KEYS = frozenset(item.name for item in fields(Training))
KEPT_SHAPES, KEPT_SCHEDULES = 4096, 32  # of schedules, in a process


@dataclass(frozen=True)
class Setting:
    """What a point's plan is made for: model, training, cluster and its accelerator."""

    model: Model
    training: Training
    cluster: Cluster
    accelerator: Accelerator


@dataclass(frozen=True)
class Memory:
    """Memory of the heaviest stage against what a GPU has, bytes."""

    heaviest: MemoryBreakdown
    limit: float

    def columns(self) -> dict[str, Any]:
        """Its columns in the results table."""
        return {
            "memory_gib": round(self.heaviest.total / GIB, 4),
            "memory_stage": self.heaviest.stage,
            "memory_limit_gib": round(self.limit / GIB, 4),
        }


class ScheduleShape(NamedTuple):
    """Of a schedule: ``[rank][chunk]`` -> position, ``[rank]`` -> what it holds at its peaks, virtual stages."""

    positions: tuple[tuple[int, ...], ...]
    most_held: tuple[np.ndarray, ...]
    depth: int


@dataclass(frozen=True)
class Plan:
    """A checked plan: its id, plain form, placement, the work of a step, and its memory (which may not fit).

    ``groups`` are the communicators of ``comm_groups.json``, None where every group is whole network dimensions.
    """

    plan_id: str
    content: Mapping[str, Any]
    placement: Placement
    groups: Mapping[str, Sequence[int]] | None
    work: Mapping[str, Any]
    memory: Memory
    problem: Infeasible | None


def parallelism_of(values: Mapping[str, Any], gpus: int) -> Parallelism:
    """The parallelism among a point's values; ``dp`` follows from the GPUs where it is not given.

    Parameters that belong to the chosen schedule are handed to it; those of other schedules have no effect here.

    Raises:
        Infeasible: E-WORLD where tp * cp * pp does not divide the GPUs, or the degrees do not multiply to them.
        InvalidInput: E-CHOICE, E-DEGREE, E-ORDER, E-SCHEDULE for a value that no plan can have.
    """
    own = {name: value for name, value in values.items() if name in PARALLELISM_KEYS}
    schedule = str(own.get("schedule", Parallelism.schedule))
    # A name that both have is the plan's.
    names = [name for name in parameters(schedule) if name in values and name not in PARALLELISM_KEYS]
    own["schedule_parameters"] = {name: values[name] for name in names}
    parallelism = parallelism_from(own, gpus)
    if parallelism.world != gpus:
        raise world_error(parallelism, gpus)
    return parallelism


def derived_names(setting: Setting, parallelism: Parallelism) -> dict[str, Any]:
    """Values of the names that constraints may use besides the study's own.

    Raises:
        Infeasible: E-BATCH where the micro-batches are not whole.
    """
    model, training = setting.model, setting.training
    return {
        "gpus": setting.cluster.gpus,
        "dp": parallelism.dp,
        "micro_batches": micro_batches(training, parallelism),
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "vocabulary": model.vocab,
        **asdict(training),
    }


def make_plan(setting: Setting, parallelism: Parallelism) -> Plan:
    """Check and place a plan. One that only lacks memory comes back with its ``problem``, so that its need is known.

    Raises:
        Infeasible: the first rule, placement or schedule condition that is broken.
    """
    validate(setting.model, setting.training, parallelism, setting.cluster.gpus)
    parallelism = without_idle(setting.model, parallelism)
    placement = place(parallelism, setting.cluster.tiers)
    check_sites(parallelism, placement, setting.accelerator)
    if parallelism.layout == BY_SPEED:
        positions = build_schedule(setting.training, parallelism).positions
        layout = balanced_layout(
            setting.model, setting.training, parallelism, placement, setting.accelerator, positions
        )
        parallelism = parallelism.with_values(layout=layout)
    if is_made_for_times(parallelism):
        if setting.cluster.site_sizes:
            clash = f"schedule {parallelism.schedule} is made for delays between like sites; these differ in size"
            raise Infeasible("E-SITES", clash, "choose another schedule, or unequal_sites: smallest")
        if setting.accelerator.by_site:
            clash = f"schedule {parallelism.schedule} is made for the times of one accelerator; sites have several"
            raise Infeasible("E-MIXED", clash, "choose another schedule, or mixed_accelerators: slowest")
        book = Cookbook(setting.model, setting.training, parallelism, placement, setting.accelerator)
        parallelism = timed(book, setting.cluster.tiers)
    stages = stage_memories(setting, parallelism, schedule_shape(setting.training, parallelism))
    accelerator = setting.accelerator
    heaviest, limit, problem = tightest(stages, placement, accelerator)
    memory = Memory(heaviest, limit)
    content = plan_content(setting, parallelism, placement)
    tokens = setting.training.tokens
    work = {
        "gpus": setting.cluster.gpus,
        "tokens": tokens,
        "model_flops": training_flops(
            setting.model, tokens, setting.training.sequence_length, document_length=setting.training.document_length
        ),
        "peak_flops": accelerator.mean_peak(setting.training.precision),
    }
    groups = GroupNames(placement, parallelism.flat_rings).comm_groups()
    return Plan(make_id(parallelism.as_dict(), content), content, placement, groups, work, memory, problem)


def is_made_for_times(parallelism: Parallelism) -> bool:
    """Whether the plan's schedule depends on durations and delays, and so on the network it will run on."""
    return "delay" in parameters(parallelism.schedule)


def build_schedule(training: Training, parallelism: Parallelism) -> Schedule:
    """The plan's pipeline schedule; the latest ones are kept, as checks, bounds and traces of a plan all need it.

    Raises:
        Infeasible: the schedule's own rule with its values, and which of those nobody gave.
    """
    try:
        count = micro_batches(training, parallelism)
        own = parallelism.schedule_parameters
        return _built(parallelism.schedule, parallelism.pp, count, parallelism.chunks, own)
    except Infeasible as error:
        names = ("pp", "chunks", "micro_batch", "dp")
        given = [f"{name} {parallelism.degree(name)}{parallelism.mark(name)}" for name in names]
        marked = [text for text in given if text.endswith(")")]
        if error.error_id != "E-SCHEDULE" or not marked:
            raise
        raise Infeasible(
            error.error_id, f"{error.clash} with {', '.join(marked)}", error.fix, error.shortfall
        ) from None


@lru_cache(maxsize=KEPT_SCHEDULES)
def _built(name: str, stages: int, count: int, chunks: int, own: tuple[tuple[str, Any], ...]) -> Schedule:
    return build(name, stages=stages, micro_batches=count, chunks=chunks, **dict(own))


def schedule_shape(training: Training, parallelism: Parallelism) -> ScheduleShape:
    """What memory has to know of the plan's schedule; plans with the same schedule share it.

    Raises:
        Infeasible: as ``build_schedule``.
    """
    own = ("schedule", "pp", "chunks", "schedule_parameters")
    key = (*(getattr(parallelism, name) for name in own), micro_batches(training, parallelism))
    if key not in _shapes:
        schedule = build_schedule(training, parallelism)
        if len(_shapes) >= KEPT_SHAPES:
            _shapes.pop(next(iter(_shapes)))
        _shapes[key] = ScheduleShape(schedule.positions, schedule.most_held, schedule.depth)
    return _shapes[key]


_shapes: dict[tuple[Any, ...], ScheduleShape] = {}


def stage_memories(
    setting: Setting, parallelism: Parallelism, schedule: Schedule | ScheduleShape
) -> list[MemoryBreakdown]:
    """Memory of a rank of every pipeline stage at its peak."""
    ranges = layer_ranges(spread_layers(setting.model.layers, parallelism))
    last = schedule.depth - 1
    chunks = [Chunk(layers, position == 0, position == last) for position, layers in enumerate(ranges)]
    return [
        stage_memory(
            setting.model, setting.training, parallelism, [chunks[position] for position in positions], held, stage
        )
        for stage, (positions, held) in enumerate(zip(schedule.positions, schedule.most_held, strict=True))
    ]


def plan_content(setting: Setting, parallelism: Parallelism, placement: Placement) -> dict[str, Any]:
    """Everything a trace depends on, as plain data (``read_plan`` is the inverse)."""
    return {
        "model": setting.model.model_dump(mode="json", exclude={"source"}),
        "training": asdict(setting.training),
        "parallelism": parallelism.as_dict(),
        "dims": [asdict(dim) for dim in placement.dims],
        "accelerator": plain_accelerator(setting.accelerator),
    }


def read_plan(content: Mapping[str, Any]) -> tuple[Model, Training, Parallelism, Placement, Accelerator]:
    """The parts of a plan from its plain form."""
    dims = tuple(NetworkDim(**{**dim, "groups": tuple(dim["groups"])}) for dim in content["dims"])
    return (
        Model.model_validate(content["model"]),
        Training(**content["training"]),
        parallelism_from(content["parallelism"]),
        Placement(dims),
        accelerator_from(content["accelerator"]),
    )
