"""A study's ``collective`` as what ASTRA-sim runs: a native algorithm a dimension, or the reason why there is none.

ASTRA-sim carries out a collective over whole dimensions one after the other: reduce-scatter from the innermost
outwards, all-reduce in the outermost, all-gather back (``localBWAware``). So *every* choice here is hierarchical across
a cut, and the choice is what happens within each dimension. Its own algorithms are ring, direct, halving-doubling and a
double binary tree (all-reduce, powers of two). The others are lowered to one of these where the messages have the same
sizes over the same hops:

* ``halving-doubling-farthest``: the native order (all-gather far to near, reduce-scatter near to far, and the outermost
  dimension first in an all-gather).
* ``halving-doubling-nearest``: within one dimension the same sizes in the same number of steps; over several it is not
  ASTRA-sim's order.
* ``pat``: for powers of two the sizes and distances of halving-doubling, far ones first; partners lie d on instead of
  d across, which costs the same. Tests run both on the binary. NCCL has it between nodes only: the innermost tier takes
  a ring.
* ``hierarchical``: a ring within tiers, log steps across the outermost one.
* ``flat-ring``: one ring over all members in the order of their sites: communicators, so it is the plan's to make.

Traces as algorithms (:mod:`.custom`) name ranks and bytes: ASTRA-sim takes one for all collectives of a type, so they
serve a group and a size, not a training step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import Infeasible, InvalidInput, did_you_mean
from .schedules import across_dimensions

DEFAULT_ALGORITHM = "ring"
# Names that one dimension can take, and ASTRA-sim's for them.
NATIVE = {
    "ring": "ring",
    "direct": "direct",
    "halving-doubling": "halvingDoubling",
    "halving-doubling-farthest": "halvingDoubling",
    "halving-doubling-nearest": "halvingDoubling",
    "pat": "halvingDoubling",
    "double-binary-tree": "doubleBinaryTree",
}
WHOLE = ("hierarchical", "flat-ring")  # choices for a collective as a whole
ALGORITHMS = (*NATIVE, *WHOLE)


class DimLike(Protocol):
    """A dimension as rendering knows it (:class:`scaleacross.astra.dimensions.AstraDim`)."""

    @property
    def size(self) -> int: ...
    @property
    def tier(self) -> str: ...
    @property
    def axis(self) -> str: ...


@dataclass(frozen=True)
class Implementations:
    """ASTRA-sim's algorithm of each collective type, one entry a dimension: always exactly as many as dimensions."""

    all_reduce: tuple[str, ...]
    all_gather: tuple[str, ...]
    reduce_scatter: tuple[str, ...]
    all_to_all: tuple[str, ...]


def implementations(
    collective: str | Mapping[str, str],
    all_to_all: str,
    optimization: str,
    dims: Sequence[DimLike],
    tiers: Sequence[str],
    communicators: bool = False,
) -> Implementations:
    """The algorithm of every collective on every dimension.

    Pipeline dimensions carry sends and receives only and get ``ring``. All-to-all has its own setting: it has no
    halving-doubling, and ASTRA-sim's ring form sends each block through every rank in between.

    Args:
        collective: an algorithm, or tier -> algorithm, also as the text ``"node:direct campus:pat"``; tiers not named
            take that of ``*``, else ring.
        all_to_all: ASTRA-sim's name for it.
        optimization: ``localBWAware`` (hierarchical) or ``baseline`` (an all-reduce in each dimension).
        dims: dimensions, innermost first.
        tiers: names of the cluster's tiers, inner to outer.
        communicators: whether some axis runs over communicator groups, which ASTRA-sim always carries out as a ring.

    Raises:
        InvalidInput: E-COLLECTIVE for an algorithm or a tier that does not exist.
        Infeasible: E-HALVING for halving-doubling on a dimension that is no power of two; E-COLLECTIVE for an algorithm
            that ASTRA-sim cannot be made to run here, with the reason.
    """
    whole = collective if isinstance(collective, str) and collective in WHOLE else ""
    if whole == "flat-ring" and not communicators:
        raise _infeasible(
            "flat-ring is a ring over communicators, and the plan has none", "add flat_rings: [dp] or another axis"
        )
    if whole == "hierarchical":
        _check_hierarchical(optimization, communicators)
        chosen = _hierarchical(dims, tiers)
    elif whole:
        chosen = ["ring"] * len(dims)
    else:
        by_tier = _per_tier(collective, tiers)
        chosen = [DEFAULT_ALGORITHM if dim.axis == "pp" else by_tier[dim.tier] for dim in dims]
    chosen = [_in_dimension(name, number, dims, tiers) for number, name in enumerate(chosen)]
    reduce = [_tree_or_ring(name, number, dims) for number, name in enumerate(chosen)]
    rest = tuple(NATIVE["ring" if name == "double-binary-tree" else name] for name in chosen)
    return Implementations(tuple(NATIVE[name] for name in reduce), rest, rest, (all_to_all,) * len(rest))


def _check_hierarchical(optimization: str, communicators: bool) -> None:
    if communicators:
        clash = "hierarchical collectives work over whole dimensions, and an axis of the plan runs over communicators"
        raise _infeasible(f"{clash}, which ASTRA-sim carries out as one ring", "leave flat_rings out")
    if optimization == "baseline":
        clash = "collective_optimization baseline all-reduces the whole buffer in every dimension"
        raise _infeasible(f"{clash}, which is not hierarchical", "use localBWAware")


def _hierarchical(dims: Sequence[DimLike], tiers: Sequence[str]) -> list[str]:
    chosen = []
    for dim in dims:
        across = across_dimensions([dim.size], "ring")[0] if dim.tier == tiers[-1] and dim.axis != "pp" else "ring"
        chosen.append(across)
    return chosen


def _in_dimension(name: str, number: int, dims: Sequence[DimLike], tiers: Sequence[str]) -> str:
    """The algorithm that a dimension takes, or why it cannot."""
    dim = dims[number]
    if name == "pat" and dim.tier == tiers[0]:
        return "ring"
    power = not dim.size & (dim.size - 1)
    if name.startswith("halving-doubling") and not power:
        raise _halving_error(name, number, dim)
    if name == "pat" and not power:
        where = f"dimension {number} ({dim.tier}, {dim.axis}) of {dim.size} NPUs"
        raise _infeasible(
            f"pat on {where}: off powers of two it is none of ASTRA-sim's own algorithms, and a trace as the algorithm "
            "would have to hold for every size",
            f"choose ring or direct for tier {dim.tier}, or degrees that leave {_nearest_power(dim.size)} there",
            _gap(dim.size),
        )
    if name == "halving-doubling-nearest":
        kin = [other for other in dims if _family(other) == _family(dim)]
        if len(kin) > 1:
            over = ", ".join(f"{other.tier} {other.size}" for other in kin)
            raise _infeasible(
                f"halving-doubling-nearest over the dimensions {over} of {dim.axis}: ASTRA-sim gathers the outermost "
                "dimension first",
                "use halving-doubling-farthest, which sends less across the cut anyway",
            )
    return name


def _tree_or_ring(name: str, number: int, dims: Sequence[DimLike]) -> str:
    """A tree all-reduces; only the outermost dimension of a group is all-reduced, the others are scattered first."""
    if name != "double-binary-tree":
        return name
    dim = dims[number]
    if any(_family(other) == _family(dim) for other in dims[number + 1 :]):
        return "ring"
    if dim.size & (dim.size - 1):
        clash = f"double-binary-tree on dimension {number} ({dim.tier}, {dim.axis}) of {dim.size} NPUs"
        fix = f"choose ring or direct for tier {dim.tier}, or degrees that leave {_nearest_power(dim.size)} there"
        raise _infeasible(f"{clash}: ASTRA-sim's tree needs a power of two", fix, _gap(dim.size))
    return name


def _family(dim: DimLike) -> str:
    """Axes whose dimensions one group may span: context and data parallel ranks hold the same parameters."""
    return {"cp": "data", "dp": "data"}.get(dim.axis, dim.axis)


def _per_tier(collective: str | Mapping[str, str], tiers: Sequence[str]) -> dict[str, str]:
    if isinstance(collective, str) and ":" not in collective:
        choice: Mapping[str, str] = {"*": collective}
    elif isinstance(collective, str):
        parts = [part.partition(":") for part in collective.replace(",", " ").split()]
        choice = {tier: algorithm for tier, _, algorithm in parts}
    else:
        choice = collective
    for tier, algorithm in choice.items():
        if tier != "*" and tier not in tiers:
            raise InvalidInput(
                "E-COLLECTIVE", f"collective {collective!r}: no tier '{tier}'", did_you_mean(tier, tiers)
            )
        if algorithm in WHOLE:
            clash = f"collective {collective!r}: {algorithm} is for a collective as a whole, not for a tier"
            raise InvalidInput("E-COLLECTIVE", clash, f"write collective: {algorithm}")
        if algorithm not in NATIVE:
            fix = did_you_mean(algorithm, ALGORITHMS if len(choice) == 1 and "*" in choice else NATIVE)
            raise InvalidInput("E-COLLECTIVE", f"collective {collective!r}: no algorithm '{algorithm}'", fix)
    default = choice.get("*", DEFAULT_ALGORITHM)
    return {tier: choice.get(tier, default) for tier in tiers}


def _nearest_power(size: int) -> int:
    return int(2 ** round(math.log2(size)))


def _gap(size: int) -> float:
    return abs(size - _nearest_power(size)) / size


def _halving_error(name: str, number: int, dim: DimLike) -> Infeasible:
    clash = f"{name} on dimension {number} ({dim.tier}, {dim.axis}) of {dim.size} NPUs, no power of two"
    fix = f"choose ring or direct for tier {dim.tier}, or degrees that leave {_nearest_power(dim.size)} there"
    return Infeasible("E-HALVING", clash, fix, _gap(dim.size))


def _infeasible(clash: str, fix: str, shortfall: float = 1.0) -> Infeasible:
    return Infeasible("E-COLLECTIVE", clash, fix, shortfall)
