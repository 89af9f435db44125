"""Everything there is to say of a plan, as plain data: what ``--json`` prints and the text is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..plan.dims import GROUPS, Placement
from ..plan.layers import layer_ranges, spread_layers
from ..schedule import gantt_rows, replay
from ..study.plans import stage_memories
from ..trace.cookbook import Cookbook
from ..trace.timing import stage_delays, stage_durations
from .choose import Chosen
from .traffic import traffic_of

OF_EXPERTS = ("etp", "ep", "edata", "eshard", "ereplica")
RING_SHOWN = 4096  # members of a group's ring that --json lists


def facts_of(chosen: Chosen) -> dict[str, Any]:
    """The facts of a plan: what it is, its network dimensions, groups with their traffic, stages with their memory.

    Bytes are those one rank sends in an iteration, at the least that any algorithm needs: the busiest, and on average
    over all; a group's are those of all its members, the busiest group counted. Times of the schedule are an estimate
    with the network uncontended.
    """
    setting, plan = chosen.setting, chosen.parallelism
    model, training = setting.model, setting.training
    return {
        "study": chosen.study,
        "point_id": chosen.point.point_id,
        "plan_id": chosen.plan.plan_id,
        "chosen": chosen.how,
        "problem": str(chosen.plan.problem) if chosen.plan.problem else "",
        "values": dict(chosen.point.values),
        "model": {"name": model.name, "layers": model.layers, "parameters": model.parameters()},
        "training": asdict(training),
        "gpus": plan.world,
        "micro_batches": chosen.schedule.micro_batches,
        "parallelism": plan.as_dict(),
        "cluster": {
            "name": setting.cluster.name,
            "accelerator": setting.accelerator.name,
            "tiers": [
                {
                    "name": tier.name,
                    "size": tier.size,
                    "bandwidth": tier.bandwidth,
                    "latency": tier.latency,
                    "oversubscription": tier.oversubscription,
                }
                for tier in setting.cluster.tiers
            ],
            "cut": cut_of(chosen),
        },
        "dimensions": [
            {"index": index, **asdict(dim), "groups": list(dim.groups)}
            for index, dim in enumerate(chosen.plan.placement.dims)
        ],
        "groups": _groups(chosen),
        "stages": _stages(chosen),
        "memory_limit": setting.accelerator.usable_bytes,
        "schedule": _schedule(chosen),
    }


def cut_of(chosen: Chosen) -> str:
    """The slow cut: the outermost tier that the plan reaches."""
    dims = chosen.plan.placement.dims
    return dims[-1].tier if dims else chosen.setting.cluster.tiers[0].name


def _groups(chosen: Chosen) -> list[dict[str, Any]]:
    placement, cut = chosen.plan.placement, cut_of(chosen)
    traffic = traffic_of(chosen)
    result = []
    for kind, what in GROUPS.items():
        size = placement.size_of(kind)
        if size == 1 or (kind in OF_EXPERTS and chosen.setting.model.moe is None):
            continue
        moved = traffic.get(kind)
        members = placement.members(0, kind)
        result.append(
            {
                "group": kind,
                "what": what,
                "size": size,
                "count": placement.ranks // size,
                "tiers": list(placement.tiers_of(kind)),
                "crosses_cut": cut in placement.tiers_of(kind),
                "ring": members[:RING_SHOWN],
                "ring_crossings": _crossings(placement, members),
                "operations": moved.operations if moved else 0,
                "bytes_sent_per_rank": moved.rank_bytes if moved else 0.0,
                "bytes_sent_per_rank_mean": moved.mean_bytes if moved else 0.0,
                "bytes_moved_per_group": moved.group_bytes if moved else 0.0,
            }
        )
    return result


def _crossings(placement: Placement, members: Sequence[int]) -> dict[str, int]:
    """Tier -> how many of a ring's links cross between two of its units, the link that closes the ring included."""
    coordinates = [placement.coordinates(rank) for rank in members]
    found: dict[str, int] = {}
    for here, there in zip(coordinates, [*coordinates[1:], coordinates[0]], strict=True):
        outermost = max((dim for dim, (a, b) in enumerate(zip(here, there, strict=True)) if a != b), default=None)
        if outermost is not None:
            tier = placement.dims[outermost].tier
            found[tier] = found.get(tier, 0) + 1
    return found


def _stages(chosen: Chosen) -> list[dict[str, Any]]:
    setting, plan, schedule = chosen.setting, chosen.parallelism, chosen.schedule
    ranges = layer_ranges(spread_layers(setting.model.layers, plan))
    memories = stage_memories(setting, plan, schedule)
    table = chosen.plan.placement.rank_table()
    tiers = [name for name in table if name.endswith("_unit")]
    stages = []
    for stage, (positions, memory) in enumerate(zip(schedule.positions, memories, strict=True)):
        own = table["pp"] == stage
        stages.append(
            {
                "stage": stage,
                "ranks": table["rank"][own].tolist(),
                "units": {name.removesuffix("_unit"): sorted(set(table[name][own].tolist())) for name in tiers},
                "layers": [list(ranges[position]) for position in positions],
                "embedding": 0 in positions,
                "loss": schedule.depth - 1 in positions,
                "in_flight": schedule.peak_in_flight[stage],
                "memory": {**memory.parts(), "total": memory.total},
            }
        )
    return stages


def _schedule(chosen: Chosen) -> dict[str, Any]:
    times = durations(chosen)
    played = replay(chosen.schedule, **times)
    schedule = chosen.schedule
    return {
        "name": schedule.name,
        "stages": schedule.stages,
        "chunks": schedule.chunks,
        "micro_batches": schedule.micro_batches,
        "estimated_seconds": played.makespan * 1e-9,
        "bubble_over_ideal": played.bubble_over_ideal,
        "order": [[str(step) for step in row] for row in schedule.actions],
    }


def durations(chosen: Chosen) -> dict[str, Any]:
    """Nanoseconds of every virtual stage's passes and of messages, as ``replay`` takes them."""
    setting = chosen.setting
    cookbook = Cookbook(setting.model, setting.training, chosen.parallelism, chosen.plan.placement, setting.accelerator)
    tiers = setting.cluster.tiers
    f, b, w = stage_durations(cookbook, tiers)
    return {"f": f, "b": b, "w": w, "delay": stage_delays(cookbook, tiers)}


def bars(chosen: Chosen, times: Mapping[str, Any] | None = None) -> list[tuple[int, float, float, str, int, int]]:
    """(rank, start, end, kind, micro-batch, chunk) of every action, times in ns."""
    return [(*row,) for row in gantt_rows(chosen.schedule, **(times or durations(chosen)))]
