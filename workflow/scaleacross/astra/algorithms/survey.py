"""Every algorithm for one collective of one group: what it puts on the cuts, and as what ASTRA-sim runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import Infeasible, InvalidInput
from .cut import CutReport, analyse, reordered
from .lowering import implementations
from .traffic import NAMES

MOST_MEMBERS = 4096
IN_TURN = "ring, units in turn"  # what a ring is in the worst order of its list


@dataclass(frozen=True)
class Choice:
    """One algorithm.

    Attributes:
        algorithm: name; ``ring`` goes through unit after unit, :data:`IN_TURN` changes the unit at every step.
        report: what it sends; None where it does not exist for these members.
        lowered: ``native: <algorithm of each dimension>``, ``groups`` (communicators, which ASTRA-sim carries out as a
            ring in list order) or ``trace`` (a custom collective, :mod:`.custom`); the reason where there is no report.
    """

    algorithm: str
    report: CutReport | None
    lowered: str


@dataclass(frozen=True)
class _Dim:
    size: int
    tier: str
    axis: str = "dp"


def survey(members: Mapping[str, int], collective: str, size: float) -> list[Choice]:
    """All algorithms for a group with ``members[tier]`` members, or units of the tier before, in a unit of each tier.

    Args:
        members: tiers from the inside out.
        collective: ``all-reduce``, ``all-gather``, ``reduce-scatter`` or ``all-to-all``.
        size: bytes of the whole buffer, as :func:`analyse`.

    Raises:
        InvalidInput: E-COLLECTIVE for an unknown collective, fewer than 2 members or more than 4,096.
    """
    sizes = list(members.values())
    count = math.prod(sizes)
    if min(sizes, default=0) < 1 or not 2 <= count <= MOST_MEMBERS:
        clash = f"a group of {' x '.join(map(str, sizes)) or 'no'} members"
        raise InvalidInput("E-COLLECTIVE", clash, f"give 2 to {MOST_MEMBERS:,} in all, 1 or more a tier")
    position = np.arange(count, dtype=np.int64)
    units = {tier: position // math.prod(sizes[:k]) for k, tier in enumerate(members)}
    found = [_choice(name, members, collective, size, units) for name in NAMES]
    if sum(n > 1 for n in sizes) > 1:
        in_turn = position.reshape(sizes[::-1]).T.ravel()  # the outermost unit changes first
        turning = _choice("ring", members, collective, size, reordered(units, in_turn))
        found.insert(1, Choice(IN_TURN, turning.report, turning.lowered))
    return found


def _choice(
    name: str, members: Mapping[str, int], collective: str, size: float, units: Mapping[str, NDArray[np.int64]]
) -> Choice:
    try:
        report = analyse(name, collective, size, list(members.values()), units)
    except Infeasible as error:
        return Choice(name, None, f"{error.clash}; {error.fix}")
    return Choice(name, report, _lowered(name, members, collective))


def _lowered(name: str, members: Mapping[str, int], collective: str) -> str:
    """Over several dimensions only what ASTRA-sim does one dimension after the other is native."""
    dims = [_Dim(size, tier) for tier, size in members.items() if size > 1]
    if len(dims) == 1 or name in ("hierarchical", "halving-doubling-farthest"):
        try:
            chosen = implementations(name, "direct", "localBWAware", dims, ("", *members))
            return "native: " + " ".join(getattr(chosen, collective.replace("-", "_")))
        except Infeasible:
            return "trace"
    return "groups" if name == "ring" else "trace"
