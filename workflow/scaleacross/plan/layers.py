"""Which layers every virtual stage holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..errors import Infeasible
from .degrees import BY_SPEED, Parallelism


def spread_layers(layers: int, parallelism: Parallelism) -> tuple[int, ...]:
    """Number of layers of every virtual stage (position), embedding to loss; their sum is ``layers``.

    An explicit ``layout`` is taken as it is. Otherwise layers are spread evenly over pp * chunks; where they don't
    divide, the embedding and the loss each count as a layer: the first and the last virtual stage then hold one layer
    less, as in Llama 3 405B (126 layers, arXiv 2407.21783, section 3.3.2). ``BY_SPEED`` is spread as if all sites were
    as fast until the plan is made.

    Raises:
        Infeasible: E-LAYERS where neither divides, E-LAYOUT where a given layout doesn't fit.
    """
    stages = parallelism.virtual_stages
    if parallelism.layout == BY_SPEED:
        return apportion(layers, [1.0] * stages)
    if parallelism.layout is not None:
        return _given_layout(layers, parallelism, parallelism.layout)
    if layers % stages == 0:
        return (layers // stages,) * stages
    each, rest = divmod(layers + 2, stages)
    if rest == 0 and stages > 1:
        return (each - 1, *(each,) * (stages - 2), each - 1)
    over = f"pp {parallelism.pp}{parallelism.mark('pp')} x chunks {parallelism.chunks}{parallelism.mark('chunks')}"
    near = min(layers % stages, stages - layers % stages, rest or stages, stages - rest)
    raise Infeasible(
        "E-LAYERS",
        f"layers {layers} % ({over}) = {layers % stages}, and with embedding and loss counted as layers "
        f"{layers + 2} % {stages} = {rest}",
        "choose pp x chunks that divide, or list the layers of every virtual stage, embedding to loss: "
        f"layout: [{_example(layers, stages)}]",
        near / stages,
    )


def _example(layers: int, stages: int) -> str:
    """A layout that would do, the longer stages first; cut in the middle where it is long."""
    each, more = divmod(layers, stages)
    counts = [str(each + (stage < more)) for stage in range(stages)]
    return ", ".join(counts if stages <= 8 else [*counts[:3], "...", counts[-1]])


def _given_layout(layers: int, parallelism: Parallelism, layout: tuple[int, ...]) -> tuple[int, ...]:
    if len(layout) != parallelism.virtual_stages:
        stages = (
            f"pp {parallelism.pp}{parallelism.mark('pp')} x chunks {parallelism.chunks}{parallelism.mark('chunks')}"
        )
        clash = f"layout has {len(layout)} entries for {stages}"
        raise Infeasible("E-LAYOUT", f"{clash} = {parallelism.virtual_stages}", "give one entry a virtual stage")
    if min(layout) < 0:
        clash = f"layout {', '.join(map(str, layout))} gives a virtual stage {min(layout)} layers"
        raise Infeasible("E-LAYOUT", clash, "give 0 or more a virtual stage")
    if sum(layout) != layers:
        clash = f"layout {'+'.join(map(str, layout))} = {sum(layout)}, not {layers} layers"
        raise Infeasible("E-LAYOUT", clash, "make the entries add up", abs(sum(layout) - layers) / layers)
    return layout


def apportion(layers: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers in proportion to ``speeds`` that add up to ``layers``: largest remainder, earlier ones first.

    None is 0 where there are enough: the one that would be busiest for its speed gives one up.
    """
    quotas = [layers * speed / sum(speeds) for speed in speeds]
    counts = [int(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda k: (counts[k] - quotas[k], k))
    for k in order[: layers - sum(counts)]:
        counts[k] += 1
    while layers >= len(counts) and 0 in counts:
        busiest = max(range(len(counts)), key=lambda k: counts[k] / speeds[k] if counts[k] > 1 else 0.0)
        counts[busiest] -= 1
        counts[counts.index(0)] += 1
    return tuple(counts)


def layer_ranges(counts: tuple[int, ...]) -> tuple[range, ...]:
    """The layers' numbers of every virtual stage."""
    ends = tuple(accumulate(counts))
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))
