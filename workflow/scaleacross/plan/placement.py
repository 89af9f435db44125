"""Where the axes of a plan lie on the tiers of a cluster: the rank map and every group as whole network dimensions.

A *network dimension* is one axis' share of one tier: a node of 8 GPUs is ``tp 8``; a zone of 256 nodes may be ``pp 16``
then ``dp 16``. Ranks are numbered by mixed radix, dimension 0 fastest. Because every axis occupies whole dimensions, a
collective along an axis is named by the dimensions involved, and the cut between buildings is a dimension of its own.

Groups that take part of an axis (experts, HSDP shards) are whole dimensions too: a dimension is split in [part][rest].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import Infeasible
from .degrees import Parallelism
from .dims import GROUPS, NetworkDim, Placement, rank_map_csv
from .gray import pipeline_shares

__all__ = ["GROUPS", "NetworkDim", "Placement", "place", "rank_map_csv", "resolve_dp_shard", "world_error"]

# Schedules whose chunks run down the ranks and back, or hold two copies: the last rank never sends to the first.
SCHEDULES_WITHOUT_WRAP = frozenset({"zbv", "v-half", "v-min", "dualpipe", "dualpipe-v"})


class TierLike(Protocol):
    """What placement needs to know of a tier: its name and how many units of the tier below it has."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


def place(parallelism: Parallelism, tiers: Sequence[TierLike], wraps: bool | None = None) -> Placement:
    """Lay the axes of a plan on the tiers of a cluster, both from the inside out.

    Args:
        parallelism: degrees and ``order``.
        tiers: inner to outer; ``size`` is in units of the tier below.
        wraps: whether the last pipeline rank sends to the first; by default where chunks > 1 unless the schedule is
            V-shaped.

    Raises:
        Infeasible: E-WORLD where the degrees don't fill the cluster, E-PLACE where an axis neither fits what is left of
            a tier nor fills it in whole factors, E-EP / E-ETP / E-HSDP where a group does not divide its axes.
    """
    gpus = math.prod(tier.size for tier in tiers)
    if parallelism.world != gpus:
        raise world_error(parallelism, gpus)
    dims = _split(_lay_out(parallelism, tiers), parallelism)
    if wraps is None:
        wraps = parallelism.chunks > 1 and parallelism.schedule not in SCHEDULES_WITHOUT_WRAP
    shares = pipeline_shares([dim.size for dim in dims if dim.axis == "pp"], wraps)
    remaining = iter(shares)
    return Placement(tuple(replace(dim, share=next(remaining)) if dim.axis == "pp" else dim for dim in dims))


def world_error(parallelism: Parallelism, gpus: int) -> Infeasible:
    """The error for degrees that don't multiply to the number of GPUs, with the equation."""
    inner = parallelism.tp * parallelism.cp * parallelism.pp
    if "dp" in parallelism.defaulted and gpus % inner:
        rest = gpus % inner
        equation = f"GPUs {gpus} % ({parallelism.describe('tp', 'cp', 'pp')}) = {rest}"
        fix = f"choose tp x cp x pp dividing {gpus}"
        return Infeasible("E-WORLD", equation, fix, min(rest, inner - rest) / inner)
    equation = f"{parallelism.describe('tp', 'cp', 'pp', 'dp')} = {parallelism.world}, not {gpus} GPUs"
    shortfall = abs(parallelism.world - gpus) / gpus
    fix = f"make dp {gpus // inner}" if gpus % inner == 0 else f"choose tp x cp x pp dividing {gpus}"
    return Infeasible("E-WORLD", equation, fix, shortfall)


def _lay_out(parallelism: Parallelism, tiers: Sequence[TierLike]) -> list[NetworkDim]:
    """One dimension for each (tier, axis), filling tiers from the inside out with the axes in order."""
    left = [(axis, parallelism.degree(axis)) for axis in parallelism.order]
    dims: list[NetworkDim] = []
    for tier in tiers:
        room = tier.size
        while room > 1 and left:
            axis, degree = left.pop(0)
            part = math.gcd(room, degree)
            if part not in (room, degree):
                raise _place_error(parallelism, tier, axis, degree, room)
            if part > 1:
                dims.append(NetworkDim(part, tier.name, axis))
            room //= part
            if degree > part:
                left.insert(0, (axis, degree // part))
    return dims


def _place_error(parallelism: Parallelism, tier: TierLike, axis: str, degree: int, room: int) -> Infeasible:
    low, high = sorted((degree, room))
    rest = high % low
    return Infeasible(
        "E-PLACE",
        f"order {', '.join(parallelism.order)}: {axis} has {degree} ranks to place where {room} of {tier.size} units "
        f"of tier '{tier.name}' are free, and neither divides the other",
        f"choose {axis}{parallelism.mark(axis)} or the order so that tiers fill in whole factors",
        min(rest, low - rest) / low,
    )


def _split(dims: list[NetworkDim], parallelism: Parallelism) -> list[NetworkDim]:
    """Name the groups of every dimension, splitting those that a group takes only part of."""
    dims = [replace(dim, groups=(dim.axis, "data") if dim.axis in ("cp", "dp") else (dim.axis,)) for dim in dims]
    dims = _carve(dims, parallelism, "etp", parallelism.etp, ("tp",))
    if parallelism.ep > 1:
        dims = _carve(dims, parallelism, "ep", parallelism.ep, ("tp", "cp", "dp"), without="etp")
    if parallelism.dp_sharding == "hsdp":
        dims = _carve(dims, parallelism, "shard", resolve_dp_shard(dims, parallelism), ("dp",))
    return [_finish(dim, parallelism) for dim in dims]


def _finish(dim: NetworkDim, parallelism: Parallelism) -> NetworkDim:
    groups = list(dim.groups)
    sharded = parallelism.dp_sharding != "ddp"
    replicated = parallelism.dp_sharding == "hsdp" and dim.axis == "dp" and "shard" not in groups
    if "data" in groups and sharded and not replicated and "shard" not in groups:
        groups.append("shard")
    if replicated:
        groups.append("replica")
    if dim.axis != "pp" and "ep" not in groups and "etp" not in groups:
        groups.append("edata")
        if sharded:
            groups.append("ereplica" if replicated else "eshard")
    return replace(dim, groups=tuple(sorted(groups, key=list(GROUPS).index)))


def _carve(
    dims: list[NetworkDim], parallelism: Parallelism, group: str, degree: int, axes: Iterable[str], without: str = ""
) -> list[NetworkDim]:
    """Mark the innermost ``degree`` ranks of the given axes (in that order) as a group, splitting dimensions."""
    marked: dict[int, int] = {}
    left = degree
    for axis in axes:
        for index, dim in enumerate(dims):
            if dim.axis == axis and (not without or without not in dim.groups) and left > 1:
                part = math.gcd(left, dim.size)
                if part > 1:
                    marked[index] = part
                    left //= part
    if left > 1:
        raise _carve_error(dims, parallelism, group, degree, axes, without)
    result: list[NetworkDim] = []
    for index, dim in enumerate(dims):
        part = marked.get(index, 1)
        if part > 1:
            result.append(replace(dim, size=part, groups=(*dim.groups, group)))
        if dim.size > part:
            result.append(replace(dim, size=dim.size // part))
    return result


def _carve_error(
    dims: Sequence[NetworkDim], parallelism: Parallelism, group: str, degree: int, axes: Iterable[str], without: str
) -> Infeasible:
    names = tuple(axes)
    ranks = math.prod(dim.size for dim in dims if dim.axis in names and (not without or without not in dim.groups))
    knob = {"shard": "dp_shard"}.get(group, group)
    over = f"{' x '.join(names)}" + (f" / {without}" if without else "")
    return Infeasible(
        {"shard": "E-HSDP"}.get(group, f"E-{group.upper()}"),
        f"{knob} {degree}{parallelism.mark(knob)} does not divide {over} = {ranks}",
        f"choose {knob} among the divisors of {ranks}",
        min(1.0, (degree - ranks) / ranks if degree > ranks else (ranks % degree) / degree),
    )


def resolve_dp_shard(dims: Sequence[NetworkDim], parallelism: Parallelism) -> int:
    """``dp_shard`` as given, else the dp ranks below the outermost tier that dp reaches.

    Raises:
        Infeasible: E-HSDP where dp lies in one tier (hsdp would be fsdp) and no shard size is given.
    """
    if parallelism.dp_shard:
        return parallelism.dp_shard
    own = [dim for dim in dims if dim.axis == "dp"]
    inner = math.prod(dim.size for dim in own if dim.tier != own[-1].tier)
    if inner == 1:
        where = f"all in tier '{own[-1].tier}'" if own else "1"
        raise Infeasible(
            "E-HSDP",
            f"dp {parallelism.dp} is {where}, so hsdp has no tier to replicate across",
            "give dp_shard, or use fsdp",
        )
    return inner
