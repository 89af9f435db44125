"""A plan as folded Chakra traces: one trace a pipeline stage, and who runs which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cluster.accelerator import Accelerator
from ..errors import InvalidInput
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..plan.placement import Placement
from ..plan.rules import micro_batches
from ..plan.sites import site_coordinates, stage_sites
from ..schedule import Schedule
from .columns import ALL_GATHER, ALL_REDUCE, AXES, COLL, SEND, Trace
from .context import Context
from .stage import StageWriter

RANKS_FORMAT = "scaleacross-ranks/1"


@dataclass(frozen=True)
class Generated:
    """A generated plan; unpacks as (traces, ranks, comm_groups).

    Attributes:
        traces: file name -> trace of a class of ranks.
        ranks: content of ranks.json: which ranks run which trace.
        comm_groups: content of comm_groups.json, or None where no communicator is needed.
        counts: nodes and bytes: see ``count``.
        parallelism: the plan with every default resolved.
    """

    traces: dict[str, Trace]
    ranks: dict[str, Any]
    comm_groups: dict[str, list[int]] | None
    counts: dict[str, Any]
    parallelism: Parallelism

    def __iter__(self) -> Iterator[Any]:
        return iter((self.traces, self.ranks, self.comm_groups))


def generate(
    model: Model,
    training: Training,
    parallelism: Parallelism,
    placement: Placement,
    schedule: Schedule,
    accelerator: Accelerator,
) -> Generated:
    """Write every stage's trace.

    Raises:
        InvalidInput: E-PLAN where placement or schedule were made for other degrees.
        Infeasible: E-BATCH, E-LAYERS or E-LAYOUT from the plan's rules.
    """
    _check(training, parallelism, placement, schedule)
    parallelism = resolved(parallelism, placement)
    context = Context(model, training, parallelism, placement, accelerator, schedule)
    classes = _classes(parallelism, placement, accelerator)
    contexts = {own.name: replace(context, accelerator=own) for own, _, _ in classes}
    traces = {}
    for number, (own, stage, site) in enumerate(classes):
        trace = StageWriter(contexts[own.name], stage, site).write()
        traces[f"workload.c{number}.et"] = _on(trace, own, accelerator)
    ranks = {
        "format": RANKS_FORMAT,
        "shape": list(placement.shape),
        "classes": [
            _rank_class(placement, stage, site, name) for name, (_, stage, site) in zip(traces, classes, strict=True)
        ],
        "group_families": context.names.families(),
    }
    counts = {name: count(trace, placement, context) for name, trace in traces.items()}
    return Generated(traces, ranks, context.names.comm_groups(), counts, parallelism)


def resolved(parallelism: Parallelism, placement: Placement) -> Parallelism:
    """The plan with the hsdp shard group that the placement chose."""
    if parallelism.dp_sharding != "hsdp":
        return parallelism
    return parallelism.with_values(dp_shard=placement.size_of("shard") // parallelism.cp)


def count(trace: Trace, placement: Placement, context: Context) -> dict[str, Any]:
    """Nodes of a trace, FLOPs, and for each axis the collectives or messages and the bytes one rank sends in them.

    Bytes are the least any algorithm sends: (n - 1) shards for an all-gather, (n - 1) / n of the buffer for a
    reduce-scatter or an all-to-all, twice that for an all-reduce, the message for a send.
    """
    axes: dict[str, dict[str, float]] = {}
    labels = np.array([trace.axis(row) for row in range(len(trace))])
    factors = _factors(trace, placement, context)
    moved = np.where((trace.types == COLL) | (trace.types == SEND), trace.comm_size * factors, 0.0)
    for axis in AXES:
        own = (labels == axis) & (moved > 0)
        if own.any():
            axes[axis] = {"nodes": int(own.sum()), "bytes_sent": float(moved[own].sum())}
    ops = trace.num_ops[trace.num_ops > 0]
    return {"nodes": len(trace), "num_ops": int(ops.sum()), "axes": axes}


def _factors(trace: Trace, placement: Placement, context: Context) -> np.ndarray:
    """Bytes sent over ``comm_size`` for every row."""
    sizes = np.array([1 if dims is None else _product(placement, dims) for dims in trace.involved_sets])
    groups = context.names.comm_groups() or {}
    by_group = np.array([len(groups[name]) if name else 0 for name in trace.pg_names])
    ranks = np.where(trace.pg > 0, by_group[trace.pg], sizes[trace.involved]).astype(float)
    factors = (ranks - 1) / ranks
    factors = np.where(trace.comm_type == ALL_GATHER, ranks - 1, factors)
    factors = np.where(trace.comm_type == ALL_REDUCE, 2 * factors, factors)
    return np.where(trace.types == SEND, 1.0, factors)


def _product(placement: Placement, dims: tuple[bool, ...]) -> int:
    return int(np.prod([size for size, used in zip(placement.shape, dims, strict=True) if used]))


def _classes(
    parallelism: Parallelism, placement: Placement, accelerator: Accelerator
) -> list[tuple[Accelerator, int, dict[int, int]]]:
    """The ranks that no plan can tell apart: a stage, and its part on a site where its sites compute differently."""
    found: list[tuple[Accelerator, int, dict[int, int]]] = []
    for stage in range(parallelism.pp):
        sites = stage_sites(placement, stage) if accelerator.by_site else ()
        types = {accelerator.by_site[site].accelerator.name: accelerator.by_site[site].accelerator for site in sites}
        if len(types) <= 1:
            found.append((next(iter(types.values()), replace(accelerator, by_site=())), stage, {}))
        else:
            found += [
                (accelerator.by_site[site].accelerator, stage, site_coordinates(placement, site)) for site in sites
            ]
    return found


def _on(trace: Trace, own: Accelerator, reference: Accelerator) -> Trace:
    """A trace for a simulator whose roofline is the reference's: blocks take the seconds that they take on their own.

    A block's bytes are those that take its seconds at its accelerator's bandwidth (``trace.compute``).
    """
    if own.memory_bandwidth == reference.memory_bandwidth:
        return trace
    scaled = np.ceil(trace.tensor_size * (reference.memory_bandwidth / own.memory_bandwidth)).astype(np.int64)
    return replace(trace, tensor_size=np.where(trace.tensor_size > 0, scaled, trace.tensor_size))


def _rank_class(placement: Placement, stage: int, site: dict[int, int], name: str) -> dict[str, Any]:
    fixed = {**site, **placement.stage_coordinates(stage)}
    coordinates = [[fixed[dim]] if dim in fixed else None for dim in range(len(placement.dims))]
    representative = placement.rank_at([fixed.get(dim, 0) for dim in range(len(placement.dims))])
    return {"file": name, "representative": representative, "coordinates": coordinates}


def _check(training: Training, parallelism: Parallelism, placement: Placement, schedule: Schedule) -> None:
    count_of = micro_batches(training, parallelism)
    pairs = (
        ("ranks", parallelism.world, placement.ranks),
        ("stages", parallelism.pp, schedule.stages),
        ("chunks", parallelism.chunks, schedule.chunks),
        ("micro-batches", count_of, schedule.micro_batches),
    )
    for what, wanted, given in pairs:
        if wanted != given:
            clash = f"the plan has {wanted} {what}, its placement or schedule {given}"
            raise InvalidInput("E-PLAN", clash, "make placement and schedule from the same plan")
