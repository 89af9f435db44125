"""What a search looks for: the optimum, and the best point of every baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..study.tables import cell
from .baselines import BEST_OF, PICKED_BY
from .space import Space


@dataclass
class Goal:
    """Something to find the best point of: what must hold of a point, and the best score so far.

    Attributes:
        digits: (stride, size, digits) of the plan numbers that match. networks: numbers that match.
        picks: whether a cost model picks; only: (plan, network) pairs it has picked, None where it has no say.
    """

    name: str
    digits: tuple[tuple[int, int, frozenset[int]], ...] = ()
    networks: frozenset[int] | None = None
    picks: bool = False
    only: frozenset[tuple[int, int]] | None = None
    best: float = float("inf")
    best_row: Mapping[str, Any] = field(default_factory=dict)

    def matching(self, plan: int, networks: Sequence[int]) -> list[int]:
        """Networks on which the points of a plan matter to this goal."""
        if any(plan // stride % size not in wanted for stride, size, wanted in self.digits):
            return []
        if self.networks is None and self.only is None:
            return list(networks)
        return [
            number
            for number in networks
            if (self.networks is None or number in self.networks) and (self.only is None or (plan, number) in self.only)
        ]

    def matters(self, plan: int, networks: Sequence[int]) -> bool:
        """Whether any of a plan's points matters."""
        return (not self.digits and self.networks is None and self.only is None) or bool(self.matching(plan, networks))


def goals_of(space: Space, baselines: Mapping[str, Mapping[str, Any]]) -> Iterator[Goal]:
    """The optimum and every baseline; ``best_of`` is found with its members."""
    yield Goal("optimum")
    for name, wanted in baselines.items():
        if BEST_OF in wanted:
            continue
        fixed = {key: cell(value) for key, value in wanted.items() if key != PICKED_BY}
        digits, stride = [], 1
        for key in reversed(space.plan_names):
            values = space.plan_lists[key]
            if key in fixed:
                digits.append(
                    (stride, len(values), frozenset(n for n, v in enumerate(values) if cell(v) == fixed[key]))
                )
            stride *= len(values)
        on_network = {key: value for key, value in fixed.items() if key not in space.plan_lists}
        networks = None
        if on_network:
            networks = frozenset(
                number
                for number, network in enumerate(space.networks)
                if all(cell(network.get(key)) == value for key, value in on_network.items())
            )
        yield Goal(name, tuple(digits), networks, PICKED_BY in wanted)
