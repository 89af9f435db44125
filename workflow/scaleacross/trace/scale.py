"""The same plan on 64 to 256 GPUs: every axis, every tier crossing and the work of a virtual stage kept.

A full plan has a file a class; the real simulator needs one a rank. A scaled-down twin is small enough to run there,
made by the same code from shrunk degrees, and exercises the same dimensions in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..cluster.spec import Cluster
from ..errors import Infeasible
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..plan.dims import NetworkDim, Placement
from ..plan.layers import spread_layers
from ..plan.placement import place
from ..plan.rules import micro_batches
from ..schedule import build

SMALLEST, LARGEST = 64, 256
USUAL = 128  # fewer leave a pipeline of two stages, which hides what its schedule does


@dataclass(frozen=True)
class Twin:
    """A scaled-down plan with everything it was scaled with; ``layers`` fewer where the pipeline is shorter."""

    model: Model
    training: Training
    parallelism: Parallelism
    cluster: Cluster


def scale_down(model: Model, training: Training, parallelism: Parallelism, cluster: Cluster) -> Twin:
    """Shrink a plan to about 128 GPUs, at which every network dimension still has two ranks.

    The layers of every virtual stage and the sequence stay; the micro-batches shrink with the pipeline, to the nearest
    count that the schedule allows. A plan of fewer GPUs comes back as it is.

    Raises:
        Infeasible: E-SCALE where two ranks in every dimension already make more than 256 GPUs, or no micro-batch
            count is legal; whatever ``place`` raises for the plan itself.
    """
    placement = place(parallelism, cluster.tiers)
    sizes = shrink([dim.size for dim in placement.dims])
    if math.prod(sizes) > LARGEST:
        clash = f"the plan's {len(sizes)} network dimensions make {math.prod(sizes)} GPUs at two ranks each"
        raise Infeasible("E-SCALE", clash, f"scale a plan of at most {int(math.log2(LARGEST))} dimensions")
    small = Placement(tuple(replace(dim, size=size) for dim, size in zip(placement.dims, sizes, strict=True)))
    degrees = {axis: small.size_of(axis) for axis in ("tp", "cp", "pp", "dp", "etp", "ep")}
    if parallelism.dp_sharding == "hsdp":
        degrees["dp_shard"] = small.size_of("shard") // degrees["cp"]
    layout = _shorter_layout(spread_layers(model.layers, parallelism), degrees["pp"] * parallelism.chunks)
    shrunk = parallelism.with_values(**degrees, layout=layout)
    shrunk = _with_shorter_runs(shrunk, degrees["pp"] / parallelism.pp)
    before = micro_batches(training, parallelism)
    count = _legal_micro_batches(shrunk, before * degrees["pp"] / parallelism.pp)
    batch = count * shrunk.dp * shrunk.micro_batch
    return Twin(
        _shorter_model(model, sum(layout)),
        replace(training, global_batch=batch),
        shrunk,
        cluster.scaled(_tier_sizes(small.dims, cluster)),
    )


def shrink(sizes: Sequence[int], smallest: int = USUAL) -> list[int]:
    """Divide the largest size by its smallest prime factor while the product stays at ``smallest``.

    A prime becomes the least number that keeps the product there, 2 at least.
    """
    sizes = list(sizes)
    while True:
        product = math.prod(sizes)
        for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
            others = product // sizes[index]
            smaller = _smaller(sizes[index], -(-smallest // others))
            if smaller < sizes[index] and others * smaller >= smallest:
                sizes[index] = smaller
                break
        else:
            break
    return shrink(sizes, SMALLEST) if math.prod(sizes) > LARGEST and smallest > SMALLEST else sizes


def _smaller(size: int, least: int) -> int:
    factor = next((prime for prime in range(2, math.isqrt(size) + 1) if size % prime == 0), size)
    return max(2, least) if factor == size else size // factor


def _shorter_layout(counts: Sequence[int], stages: int) -> tuple[int, ...]:
    """Layers of fewer virtual stages: the first and the last keep theirs, those between are picked evenly."""
    if stages == 1:
        return (max(counts),)
    last = len(counts) - 1
    return tuple(counts[round(position * last / (stages - 1))] for position in range(stages))


def _shorter_model(model: Model, layers: int) -> Model:
    changes: dict[str, object] = {"layers": layers}
    if model.moe is not None:
        changes["moe"] = model.moe.model_copy(
            update={"first_dense_layers": min(model.moe.first_dense_layers, max(0, layers - model.moe.every))}
        )
    return model.model_copy(update=changes)


def _with_shorter_runs(parallelism: Parallelism, ratio: float) -> Parallelism:
    """Scale ``contiguous`` (interleaved: micro-batches in a row); times made for the full plan are dropped."""
    kept: list[tuple[str, object]] = []
    for name, value in parallelism.schedule_parameters:
        if name == "contiguous" and isinstance(value, int):
            kept.append((name, max(parallelism.pp, round(value * ratio))))
        elif not isinstance(value, tuple):
            kept.append((name, value))
    return parallelism.with_values(schedule_parameters=tuple(kept))


def _legal_micro_batches(parallelism: Parallelism, wanted: float) -> int:
    """The count nearest to ``wanted`` at which the schedule exists."""
    first = max(1, round(wanted))
    problem: Infeasible | None = None
    for distance in range(max(first, 4 * parallelism.pp) + 1):
        for count in (first + distance, first - distance):
            if count < 1:
                continue
            try:
                build(
                    parallelism.schedule,
                    parallelism.pp,
                    count,
                    parallelism.chunks,
                    **dict(parallelism.schedule_parameters),
                )
                return count
            except Infeasible as error:
                problem = problem or error
    assert problem is not None
    raise Infeasible("E-SCALE", f"no micro-batch count near {first} is legal ({problem})", "scale another plan")


def _tier_sizes(dims: Sequence[NetworkDim], cluster: Cluster) -> dict[str, int]:
    sizes = {tier.name: 1 for tier in cluster.tiers}
    for dim in dims:
        sizes[dim.tier] *= dim.size
    return sizes
