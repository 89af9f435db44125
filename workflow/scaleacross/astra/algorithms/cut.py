"""What a collective puts on each tier's cut: messages that cross it, bytes on the busiest unit's uplink, lower bounds.

The members' units come from a placement: ``units["campus"]`` numbers the building of each member, because a building's
uplink is what leads into the campus tier. Rings in another order are the same algorithm on members in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from .traffic import traffic

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class CutReport:
    """One algorithm on one group.

    Attributes:
        algorithm, collective: names. steps: rounds one after the other.
        sent_bytes: bytes a member sends, on average. busiest_bytes: what the busiest member sends.
        crossings: tier -> messages between different units below the tier.
        cut_bytes: tier -> bytes that leave the busiest such unit.
        bound_bytes: tier -> bytes that must leave or enter some unit whatever the algorithm, see :func:`cut_bound`.
        uplinks: tier -> pairs of members that meet on the busiest unit's uplink: flows that share it.
    """

    algorithm: str
    collective: str
    steps: int
    sent_bytes: float
    busiest_bytes: float
    crossings: Mapping[str, int]
    cut_bytes: Mapping[str, float]
    bound_bytes: Mapping[str, float]
    uplinks: Mapping[str, int]


def analyse(
    algorithm: str,
    collective: str,
    size: float,
    sizes: Sequence[int],
    units: Mapping[str, Sequence[int] | Int64],
    aggregation: int = 0,
    inner: str = "ring",
) -> CutReport:
    """Steps, bytes and crossings of a collective.

    Args:
        algorithm, collective, sizes, aggregation, inner: as :func:`make_schedule`.
        size: bytes of the whole buffer (all-gather: of what everybody has in the end; all-to-all: of what one sends).
        units: tier -> number of each member's unit below that tier; members in the order of their positions.

    Raises:
        InvalidInput: E-COLLECTIVE for an unknown name or units of another length; Infeasible as :func:`make_schedule`.
    """
    flows = traffic(algorithm, collective, sizes, aggregation, inner)
    block = size / flows.members if collective == "all-to-all" else size / flows.parts
    crossings, cut, bound, uplinks = {}, {}, {}, {}
    for tier, numbers in units.items():
        of = np.asarray(numbers, np.int64)
        if len(of) != flows.members:
            clash = f"units of tier {tier} are given for {len(of)} members of {flows.members}"
            raise InvalidInput("E-COLLECTIVE", clash, "give the unit of every member")
        crosses = of[flows.source] != of[flows.target]
        leaving = np.bincount(of[flows.source[crosses]], flows.blocks[crosses], int(of.max()) + 1)
        flowing = np.bincount(of[flows.source[crosses]], minlength=int(of.max()) + 1)
        crossings[tier] = int(flows.messages[crosses].sum())
        cut[tier] = float(leaving.max()) * block
        uplinks[tier] = int(flowing.max())
        bound[tier] = max(cut_bound(collective, flows.members, int(count)) for count in np.bincount(of) if count) * (
            size / flows.members
        )
    sent = flows.sent()
    return CutReport(
        algorithm,
        collective,
        flows.steps,
        float(sent.mean()) * block,
        float(sent.max()) * block,
        crossings,
        cut,
        bound,
        uplinks,
    )


def cut_bound(collective: str, members: int, inside: int) -> int:
    """Blocks (of ``members`` equal ones) that must leave a unit holding ``inside`` of the members.

    All-gather: its members' own blocks. Reduce-scatter: a partial sum for every block owned outside. All-reduce: a
    partial sum of every block, for the others need them all. All-to-all: a block for each pair (of the sender's
    ``members`` blocks).
    """
    outside = members - inside
    if outside == 0:
        return 0
    return {
        "all-gather": inside,
        "reduce-scatter": outside,
        "all-reduce": members,
        "all-to-all": inside * outside,
    }[collective]


def ring_crossings(units: Sequence[int] | Int64) -> int:
    """Neighbours of a ring in different units: two for two sites in site order, up to all of them when shuffled."""
    of = np.asarray(units, np.int64)
    return int((of != np.roll(of, -1)).sum())


def site_order(units: Mapping[str, Sequence[int] | Int64]) -> Int64:
    """Positions sorted by unit, the outermost tier (the last one) first.

    A ring in this order crosses each cut as seldom as it can: once in and once out of every unit.
    """
    keys = [np.asarray(numbers, np.int64) for numbers in units.values()]
    return np.lexsort(keys).astype(np.int64)


def reordered(units: Mapping[str, Sequence[int] | Int64], order: Sequence[int] | Int64) -> dict[str, Int64]:
    """The units of members in another ring order."""
    return {tier: np.asarray(numbers, np.int64)[np.asarray(order, np.int64)] for tier, numbers in units.items()}
