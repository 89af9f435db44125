"""What would change the choice: the nearest bandwidth, latency, oversubscription or memory where another design wins.

One number of the cluster is varied at a time, within ``REACH`` times of what it is; at each value the fastest design is
found as a certified search finds it, by bounds first. Times are taken to be monotone in the network: on a worse one no
design is faster than it was, on a better one none is slower (docs/network-model.md measures the exceptions, few of
them above ``NOISE``). So a design that is slower on the network as it is than the winner on the worst one is never
simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cluster import Cluster
from ..study.tables import Row
from .select import TIME
from .whatif import NEVER, Bench, Change, Quantity, Times

REACH = 8.0  # times a number is made larger or smaller
FINE = 1.1  # ratio of the values between which a threshold is known
TIE = 1e-3  # designs this close are taken as equal
NOISE = 0.005  # a worse network gained more in 13 of 5,200 pairs of random studies (docs/network-model.md)
MEMORY_REACH = 4.0
MEMORY_POINTS = 48  # designs that need more memory, looked at least need first


@dataclass(frozen=True)
class Candidate:
    """A design of the environment: its point's ``values`` and ``row``; ``floor``: no network within reach is below."""

    values: Mapping[str, Any]
    row: Row
    floor: float = 0.0

    @property
    def seconds(self) -> float:
        """Its time on the network as it is."""
        return float(self.row.get("unpaced_time_s") or self.row[TIME])


@dataclass
class Race:
    """The winner against others while one number of the cluster changes, in one direction.

    Attributes:
        end: the factor at the end of the reach.
    """

    bench: Bench
    winner: Candidate
    others: Sequence[Candidate]
    quantity: Quantity
    end: float
    _known: dict[tuple[int, float], float] = field(default_factory=dict)
    _bounds: dict[tuple[int, float], float] = field(default_factory=dict)

    def own(self, factor: float) -> float:
        """Time of the winner."""
        return self._seconds(-1, self.winner, factor)

    def best(self, factor: float, below: float) -> tuple[int, float] | None:
        """The fastest of the others at a factor, its number and time, where that is below a time."""
        heap = [(self._floor(number, factor), 0, number) for number in range(len(self.others))]
        heapq.heapify(heap)
        while heap:
            least, stage, number = heapq.heappop(heap)
            if least >= below:
                return None
            if stage == 2:
                return number, least
            value = self._bound(number, factor) if stage == 0 else self._seconds(number, self.others[number], factor)
            heapq.heappush(heap, (max(least, value) if stage == 0 else value, stage + 1, number))
        return None

    def can_change(self, margin: float) -> bool:
        """Whether any other design may win somewhere within reach, by the bounds alone."""
        end = self.end
        limit = (self.winner.seconds if self.quantity.better(end) else self.own(end)) / (1 + margin)
        return any(
            self._floor(number, end) < limit and self._bound(number, end) < limit for number in range(len(self.others))
        )

    def crossing(self, margin: float) -> tuple[float, float, int] | None:
        """Where another design starts to win by more than ``margin`` (of its time); None where none does at the end.

        Returns:
            The factor up to which the winner was seen to hold, the one at which it was beaten, and by whom.
        """
        by = self._beaten(self.end, margin) if self.can_change(margin) else None
        holds, beaten = 1.0, self.end
        while by is not None:
            while max(holds, beaten) / min(holds, beaten) > FINE:
                middle = (holds * beaten) ** 0.5
                if self._seconds(by, self.others[by], middle) < self._limit(middle, margin):
                    beaten = middle
                else:
                    holds = middle
            earlier = self._beaten(holds, margin) if holds != 1.0 else None
            if earlier is None:
                return holds, beaten, by
            holds, beaten, by = 1.0, holds, earlier
        return None

    def _beaten(self, factor: float, margin: float) -> int | None:
        found = self.best(factor, self._limit(factor, margin))
        return None if found is None else found[0]

    def _limit(self, factor: float, margin: float) -> float:
        """What a design must be below to win by more than a margin."""
        return self.own(factor) / (1 + margin)

    def _seconds(self, number: int, candidate: Candidate, factor: float) -> float:
        if factor == 1.0:
            return candidate.seconds
        if (number, factor) not in self._known:
            self._known[number, factor] = self.bench.seconds(candidate.values, self._change(factor))
        return self._known[number, factor]

    def _bound(self, number: int, factor: float) -> float:
        if (number, factor) not in self._bounds:
            self._bounds[number, factor] = self.bench.bound(self.others[number].values, self._change(factor))
        return self._bounds[number, factor]

    def _floor(self, number: int, factor: float) -> float:
        """From the times and bounds that are known of networks at least as good."""
        better = self.quantity.better(factor)
        known = [
            time
            for times in (self._known, self._bounds)
            for (other, at), time in times.items()
            if other == number and time < NEVER and (at == factor or (abs(at - 1) > abs(factor - 1)) == better)
        ]
        return max([self.others[number].floor if better else self.others[number].seconds, *known])

    def _change(self, factor: float) -> Change:
        return Times(self.quantity, factor)


def end_of(quantity: Quantity, cluster: Cluster, up: bool) -> float | None:
    """The factor at the end of the reach in one direction, None where there is nowhere to go (1:1)."""
    reach = REACH
    if quantity.name == "oversubscription" and not up:
        reach = min(reach, quantity.value(cluster))
    if reach < FINE:
        return None
    return reach if up else 1 / reach


def along(race: Race, cluster: Cluster, dimensions: Sequence[str]) -> dict[str, Any]:
    """One direction of one number, as plain data.

    Returns:
        ``tier``, ``quantity``, ``now``, ``until`` (the end of the reach); where another design wins: ``wins`` (from
        ``value`` on, ``factor``; the winner was seen to hold at ``holds``), ``wins_clearly`` (by more than NOISE) and
        ``at_end``, each with ``point_id``, ``design`` (what differs from the winner) and ``margin_pct``.
    """
    quantity, end = race.quantity, race.end
    result: dict[str, Any] = {
        "tier": quantity.tier,
        "quantity": quantity.name,
        "now": quantity.text(cluster),
        "until": quantity.text(Times(quantity, end)(cluster)),
    }
    first = race.crossing(TIE)
    clear = race.crossing(NOISE) if first is not None else None
    for name, found in (("wins", first), ("wins_clearly", clear)):
        if found is not None:
            holds, at, number = found
            held = quantity.text(Times(quantity, holds)(cluster))
            result[name] = {**_who(race, cluster, at, number, dimensions), "holds": held}
    last = race.best(end, race.own(end)) if first is not None else None
    if last is not None:
        result["at_end"] = _who(race, cluster, end, last[0], dimensions)
    return result


def _who(race: Race, cluster: Cluster, factor: float, number: int, dimensions: Sequence[str]) -> dict[str, Any]:
    other, own = race.others[number], race.own(factor)
    time = race._seconds(number, other, factor)
    return {
        "value": race.quantity.text(Times(race.quantity, factor)(cluster)),
        "factor": round(factor, 4),
        "winner_time_s": round(own, 9),
        "point_id": other.row["point_id"],
        "design": differences(race.winner.row, other.row, dimensions),
        "margin_pct": round(100 * (own / time - 1), 4),
    }


def differences(winner: Row, other: Row, dimensions: Sequence[str]) -> dict[str, str]:
    """What a design has instead of the winner's values."""
    return {name: other[name] for name in dimensions if other.get(name) != winner.get(name)}


def less_memory(winner: Row, ranked: Sequence[Row], dimensions: Sequence[str]) -> dict[str, Any]:
    """How far the memory of a GPU can shrink before the winner no longer fits, and what wins then."""
    need, limit = float(winner["memory_gib"]), float(winner["memory_limit_gib"])
    result: dict[str, Any] = {"needs_gib": need, "limit_gib": limit, "headroom_gib": round(limit - need, 4)}
    smaller = [row for row in ranked if float(row["memory_gib"]) < need]
    if smaller:
        other = min(smaller, key=lambda row: (row[TIME], row["point_id"]))
        slower = round(100 * (other[TIME] / winner[TIME] - 1), 4)
        result["below_that"] = {
            "point_id": other["point_id"],
            "design": differences(winner, other, dimensions),
            "needs_gib": float(other["memory_gib"]),
            "slower_pct": slower,
        }
    return result


def more_memory(
    bench: Bench, winner: Candidate, misses: Sequence[Candidate], dimensions: Sequence[str]
) -> dict[str, Any]:
    """The design that would win with the least additional memory a GPU.

    Args:
        misses: designs that only lack memory.

    Returns:
        ``wins`` and ``wins_clearly`` where there are any; ``looked_at``: how many designs, up to ``until_gib``.
    """
    limit = float(winner.row["memory_limit_gib"])
    within = [miss for miss in misses if float(miss.row["memory_gib"]) <= MEMORY_REACH * limit]
    ordered = sorted(within, key=lambda miss: (float(miss.row["memory_gib"]), miss.row["point_id"]))[:MEMORY_POINTS]
    result: dict[str, Any] = {}
    seen = 0
    for miss in ordered:
        seen += 1
        if bench.bound(miss.values) >= winner.seconds:
            continue
        time = bench.seconds(miss.values)
        for name, margin in (("wins", TIE), ("wins_clearly", NOISE)):
            if name not in result and time * (1 + margin) < winner.seconds:
                result[name] = {
                    "point_id": miss.row["point_id"],
                    "design": differences(winner.row, miss.row, dimensions),
                    "needs_gib": float(miss.row["memory_gib"]),
                    "more_gib": round(float(miss.row["memory_gib"]) - limit, 4),
                    "margin_pct": round(100 * (winner.seconds / time - 1), 4),
                }
        if "wins_clearly" in result:
            break
    whole = seen < MEMORY_POINTS or len(within) == seen
    until = MEMORY_REACH * limit if whole else float(ordered[-1].row["memory_gib"])
    return {**result, "looked_at": seen, "until_gib": round(until, 4)}
