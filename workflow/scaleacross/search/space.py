"""The points of a study as plans times networks, by number: a plan is checked once, whatever it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from ..cluster import Cluster
from ..schedule import parameters
from ..study.design import Designer
from ..study.plans import PARALLELISM_KEYS, TRAINING_KEYS
from ..study.points import Point, make_id
from ..study.tables import cell

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """The space of a study. ``designer`` knows its templates and constraints."""

    designer: Designer

    @property
    def swept(self) -> dict[str, list[Any]]:
        """Every key with its values, in the study's order."""
        return dict(self.designer.study.swept)

    @cached_property
    def network_names(self) -> tuple[str, ...]:
        """Dimensions that change the network alone: no plan, and no cluster's size or accelerator."""
        study = self.designer.study
        own = {str(name) for schedule in study.swept.get("schedule", ["1f1b"]) for name in parameters(str(schedule))}
        planned = PARALLELISM_KEYS | TRAINING_KEYS | own
        return tuple(name for name in study.dimensions if name not in planned and not self._reshapes(name))

    @cached_property
    def plan_names(self) -> tuple[str, ...]:
        """All other dimensions; fixed keys among them."""
        known = {*self.network_names, *self.designer.study.environment}
        return tuple(name for name in self.swept if name not in known)

    def environments(self) -> Iterator[dict[str, Any]]:
        """Every environment, the headline first."""
        return _combinations(self.designer.study.environment)

    @cached_property
    def plan_lists(self) -> dict[str, list[Any]]:
        """What changes plans, with its values."""
        return {name: self.swept[name] for name in self.plan_names}

    @cached_property
    def plan_count(self) -> int:
        """Combinations of what changes plans."""
        return prod(map(len, self.plan_lists.values()))

    def plan(self, number: int) -> dict[str, Any]:
        """A combination of what changes plans by its number, the last dimension fastest."""
        values: dict[str, Any] = {}
        for name in reversed(self.plan_names):
            number, digit = divmod(number, len(self.plan_lists[name]))
            values[name] = self.plan_lists[name][digit]
        return {name: values[name] for name in self.plan_names}

    @cached_property
    def networks(self) -> tuple[dict[str, Any], ...]:
        """Every combination of what changes the network alone."""
        return tuple(_combinations({name: self.swept[name] for name in self.network_names}))

    @property
    def points_an_environment(self) -> int:
        """Points of one environment, infeasible ones included."""
        return self.plan_count * len(self.networks)

    def values(self, environment: Values, plan: Values, network: Values) -> dict[str, Any]:
        """A point's values in the study's order."""
        joined = {**environment, **plan, **network}
        return {name: joined[name] for name in self.swept}

    def point(self, environment: Values, plan: Values, network: Values) -> Point:
        """A point with its id, the same as the exhaustive enumeration gives it."""
        values = self.values(environment, plan, network)
        return Point(make_id(values, values), values)

    def _reshapes(self, name: str) -> bool:
        first = {key: values[0] for key, values in self.swept.items()}
        shapes = {_shape(self.designer.setting({**first, name: value}).cluster) for value in self.swept[name]}
        return len(shapes) > 1


def split(space: Space, networks: Sequence[int]) -> list[tuple[int, ...]]:
    """Parts of some networks, by the first dimension in which they differ."""
    for name in space.network_names:
        parts: dict[str, list[int]] = {}
        for number in networks:
            parts.setdefault(cell(space.networks[number][name]), []).append(number)
        if len(parts) > 1:
            return [tuple(part) for part in parts.values()]
    return [tuple(networks)]


def _shape(cluster: Cluster) -> tuple[object, ...]:
    return cluster.accelerator, tuple((tier.name, tier.size) for tier in cluster.tiers)


def _combinations(lists: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for combination in product(*lists.values()):
        yield dict(zip(lists, combination, strict=True))
