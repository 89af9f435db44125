"""Bytes that each group of a plan moves in an iteration, counted in the plan's own traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..plan.dims import GROUPS
from ..trace.columns import ALL_GATHER, ALL_REDUCE, COLL, SEND, Trace
from ..trace.generate import generate
from ..trace.groups import axis_of
from .choose import Chosen


@dataclass(frozen=True)
class Traffic:
    """One kind of group in an iteration: of the busiest rank, operations and bytes sent; of the average rank and of the
    busiest group, bytes.

    Bytes are the least that any algorithm sends: an all-gather's (n - 1) shards, (n - 1) / n of the buffer for a
    reduce-scatter or an all-to-all, twice that for an all-reduce, the message for a send.
    """

    operations: int
    rank_bytes: float
    mean_bytes: float
    group_bytes: float


def traffic_of(chosen: Chosen) -> dict[str, Traffic]:
    """Kind of group -> its traffic. Kinds whose groups are the same ranks count once, under the first of ``GROUPS``."""
    setting, placement = chosen.setting, chosen.plan.placement
    made = generate(
        setting.model, setting.training, chosen.parallelism, placement, chosen.schedule, setting.accelerator
    )
    groups = made.comm_groups or {}
    per_stage: list[dict[str, list[float]]] = []
    for stage, trace in enumerate(made.traces.values()):
        totals: dict[str, list[float]] = {}
        rank = placement.rank_of(pp=stage)
        for kind, ranks, comm_type, size in _operations(chosen, trace, rank, groups):
            own = totals.setdefault(kind, [0, 0.0])
            own[0] += 1
            own[1] += size * _factor(comm_type, ranks)
        per_stage.append(totals)
    return {kind: _summed(kind, per_stage, placement.size_of(kind)) for kind in GROUPS if _has(kind, per_stage)}


def _operations(
    chosen: Chosen, trace: Trace, rank: int, groups: dict[str, list[int]]
) -> Iterator[tuple[str, int, int, int]]:
    """(kind of group, its ranks, collective type or -1, size) of every send and collective of a trace."""
    placement = chosen.plan.placement
    known: dict[tuple[str, tuple[bool, ...] | None, str], str] = {}
    rows = zip(
        trace.types.tolist(),
        trace.comm_type.tolist(),
        trace.comm_size.tolist(),
        trace.involved.tolist(),
        trace.pg.tolist(),
        strict=True,
    )
    for row, (node, comm_type, size, involved, group) in enumerate(rows):
        axis = trace.axis(row)
        if node == SEND:
            yield "pp" if axis == "pp" else "other", 2, -1, size
        if node != COLL:
            continue
        key = (axis, trace.involved_sets[involved], trace.pg_names[group])
        if key not in known:
            members = sorted(groups[key[2]]) if key[2] else None
            known[key] = next(
                kind
                for kind in GROUPS
                if axis_of(kind) == axis
                and (
                    placement.involved(kind) == key[1]
                    if members is None
                    else sorted(placement.members(rank, kind)) == members
                )
            )
        kind = known[key]
        yield kind, placement.size_of(kind), comm_type, size


def _factor(comm_type: int, ranks: int) -> float:
    if comm_type == -1:
        return 1.0
    if comm_type == ALL_GATHER:
        return ranks - 1
    return (2 if comm_type == ALL_REDUCE else 1) * (ranks - 1) / ranks


def _has(kind: str, per_stage: list[dict[str, list[float]]]) -> bool:
    return any(kind in totals for totals in per_stage)


def _summed(kind: str, per_stage: list[dict[str, list[float]]], size: int) -> Traffic:
    """A pipeline group has a rank of every stage; another group has its ranks on one stage."""
    own = [totals.get(kind, [0, 0.0]) for totals in per_stage]
    busiest = max(own, key=lambda total: total[1])
    every = sum(total[1] for total in own)
    group = every if kind == "pp" else busiest[1] * size
    return Traffic(int(busiest[0]), busiest[1], every / len(own), group)
