"""Lower bounds of points: of a plan on the best of several networks, and of one point. Never above the simulated time.

Every plan has a floor (:mod:`.floor`). What floors leave gets the relaxed iteration (:mod:`.relax`), with ideal speeds
for a plan on all networks, then with the engine's own times of each collective alone (``scaleacross``). ``unaware``:
only points that are ok count (a link that is free for many messages has no bound). Where they count too, and in
``aware``, the bounds are those of compute and order alone.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..astra.dimensions import SimulatedTier, astra_dimensions, simulated_tiers
from ..astra.render import write_config
from ..engine import load_config
from ..engine.fluid.blocks import lanes
from ..engine.settings import Config
from ..errors import Infeasible
from ..plan.placement import Placement, place
from ..plan.rules import micro_batches, validate
from ..schedule import Schedule
from ..study.design import Designer
from ..study.plans import Plan, Setting, build_schedule, is_made_for_times, parallelism_of, read_plan
from ..trace.context import Context
from ..trace.generate import resolved
from .floor import Floors, Subject
from .order import Order
from .relax import Relaxed, Skeleton, order_of
from .speeds import FREE, Exact, Ideal, Speeds, Unaware

KEPT = 64  # skeletons and orders kept in memory; points of one plan come one after the other
KEPT_SPEEDS = 2048  # networks with their collectives' times
MANY_DIMS = 3  # network dimensions that a tier may have, where Rings are compared with other topologies
MODELS = ("scaleacross", "unaware")  # with bounds of what the network takes


@dataclass(frozen=True)
class BestOf:
    """The least of several networks' speeds, one collective at a time: a bound for each of them."""

    members: Sequence[Speeds]
    _known: dict[tuple[int, int, str], float] = field(default_factory=dict, compare=False)

    def collective(self, comm_type: int, size: int, group: str) -> float:
        """Least over the members."""
        key = (comm_type, size, group)
        if key not in self._known:
            self._known[key] = min(member.collective(*key) for member in self.members)
        return self._known[key]

    def message(self, size: int, here: int, there: int) -> float:
        """Least over the members."""
        return min(member.message(size, here, there) for member in self.members)

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[int, float]:
        """Least over the members; nothing where one of them has no bound."""
        found = [member.uplink_seconds(comm_type, size, group) for member in self.members]
        return {unit: min(item[unit] for item in found) for unit in found[0] if all(unit in item for item in found)}


def best_tiers(clusters: Iterable[Sequence[SimulatedTier]]) -> list[SimulatedTier]:
    """Tiers as good as the best of several clusters of the same sizes, in every number apart."""
    result = []
    for tiers in zip(*clusters, strict=True):
        port = max(tier.bandwidth for tier in tiers)
        uplink = max(tier.bandwidth / tier.oversubscription for tier in tiers)
        latency = min(tier.latency for tier in tiers)
        widest = max(tiers, key=lambda tier: lanes(tier.topology, tier.size, MANY_DIMS))
        result.append(replace(widest, bandwidth=port, latency=latency, oversubscription=max(1.0, port / uplink)))
    return result


class Bounds:
    """Makes bounds for points of a study; what points share is made once."""

    def __init__(self, designer: Designer) -> None:
        self.designer = designer
        self.model = designer.study.network_model
        # A link that is free for many messages has no bound, unless points that use one don't count.
        self.has_network_bounds = self.model == "scaleacross" or (
            self.model == "unaware" and not designer.study.allow_unphysical
        )
        self._floors = Floors()
        self._latest: tuple[object, Any] = (None, None)
        self._orders: OrderedDict[object, tuple[Order, Schedule]] = OrderedDict()
        self._skeletons: OrderedDict[str, Skeleton] = OrderedDict()
        self._speeds: OrderedDict[tuple[str, str], Speeds] = OrderedDict()
        self._tiers: dict[tuple[int, ...], list[SimulatedTier]] = {}

    def plan(self, values: Mapping[str, Any]) -> tuple[Setting, Plan]:
        """The plan of a point.

        Raises:
            Infeasible: where it cannot exist or does not fit in memory.
        """
        setting = self.designer.setting(values)
        plan = self.designer.plan(setting, parallelism_of(values, setting.cluster.gpus))
        if plan.problem is not None:
            raise plan.problem
        return setting, plan

    def floor(self, values: Mapping[str, Any], settings: Sequence[Setting]) -> float:
        """A first bound, in seconds, for a plan on networks with these settings, before anything is built.

        Raises:
            Infeasible: where a rule or the placement forbids the plan; whether it fits in memory is not looked at.
        """
        setting = settings[0]
        parallelism = parallelism_of(values, setting.cluster.gpus)
        key = (id(setting.cluster), setting.training, parallelism)
        if self._latest[0] != key:
            validate(setting.model, setting.training, parallelism, setting.cluster.gpus)
            self._latest = (key, place(parallelism, setting.cluster.tiers))
        placement = self._latest[1]
        subject = Subject(setting.model, setting.training, parallelism, placement, setting.accelerator)
        distinct = _distinct(settings)
        return self._floors.seconds(subject, self._best(placement, distinct), tuple(id(s.cluster) for s in distinct))

    def of_plan(self, points: Sequence[Mapping[str, Any]]) -> float:
        """A bound, in seconds, for points that differ in their network alone, whatever their collective algorithms.

        Raises:
            Infeasible: where their plan cannot exist.
        """
        settings = [self.designer.setting(values) for values in points]
        if is_made_for_times(parallelism_of(points[0], settings[0].cluster.gpus)):
            return self.floor(points[0], settings)  # the order of actions depends on the network
        _, plan = self.plan(points[0])
        return Relaxed(self.skeleton(plan), self._best(plan.placement, _distinct(settings))).seconds()

    def of_points(self, points: Sequence[Mapping[str, Any]]) -> float:
        """A bound for points that differ in their network alone; for a single one the tightest there is.

        Raises:
            Infeasible: where none of them can exist.
        """
        found: list[Speeds] = []
        plans: dict[str, Plan] = {}
        problem: Infeasible | None = None
        for values in points:
            try:
                setting, plan = self.plan(values)
                found.append(self.speeds(setting, plan, values))
                plans[plan.plan_id] = plan
            except Infeasible as error:
                problem = error
        if not found:
            assert problem is not None
            raise problem
        if len(plans) > 1:  # made for the times of different networks
            return self.floor(points[0], [self.designer.setting(values) for values in points])
        speeds = found[0] if len(found) == 1 else BestOf(found)
        return Relaxed(self.skeleton(next(iter(plans.values()))), speeds).seconds()

    def skeleton(self, plan: Plan) -> Skeleton:
        """The order of a plan's actions."""
        if plan.plan_id not in self._skeletons:
            model, training, parallelism, placement, accelerator = read_plan(plan.content)
            known = resolved(parallelism, placement)
            key = (
                parallelism.schedule, parallelism.pp, parallelism.chunks, micro_batches(training, parallelism),
                parallelism.schedule_parameters, known.dp_sharding in ("fsdp-reshard", "zero2") and known.dp_sharding,
            )  # fmt: skip
            if key not in self._orders:
                schedule = build_schedule(training, parallelism)
                context = Context(model, training, known, placement, accelerator, schedule)
                hull = replace(schedule, actions=((),) * schedule.stages)  # all that is needed beside the arrays
                _keep(self._orders, key, (order_of(context), hull), KEPT)
            order, hull = self._orders[key]
            context = Context(model, training, known, placement, accelerator, hull)
            _keep(self._skeletons, plan.plan_id, Skeleton(context, order), KEPT)
        self._skeletons.move_to_end(plan.plan_id)
        return self._skeletons[plan.plan_id]

    def speeds(self, setting: Setting, plan: Plan, values: Mapping[str, Any]) -> Speeds:
        """Speeds of a point's own network.

        Raises:
            Infeasible: where its configuration cannot exist.
        """
        config_id, files = self.designer.config(setting, plan, values)
        if not self.has_network_bounds:
            return FREE
        key = (config_id, str([dim.groups for dim in plan.placement.dims]))
        if key not in self._speeds:
            if self.model == "unaware":
                made: Speeds = Unaware(plan.placement, astra_dimensions(plan.placement.dims, setting.cluster))
            else:
                made = Exact(Ideal(plan.placement, simulated_tiers(setting.cluster)), config_from(files))
            _keep(self._speeds, key, made, KEPT_SPEEDS)
        return self._speeds[key]

    def _best(self, placement: Placement, distinct: Sequence[Setting]) -> Speeds:
        """Speeds as good as the best of some networks, whatever their collective algorithms."""
        if not self.has_network_bounds:
            return FREE
        if self.model == "unaware":
            return BestOf([Unaware(placement, astra_dimensions(placement.dims, item.cluster)) for item in distinct])
        key = tuple(id(setting.cluster) for setting in distinct)  # clusters are kept by the designer
        if key not in self._tiers:
            self._tiers[key] = best_tiers([simulated_tiers(setting.cluster) for setting in distinct])
        return Ideal(placement, self._tiers[key])


def config_from(files: Mapping[str, str]) -> Config:
    """The configuration that rendered files say."""
    with tempfile.TemporaryDirectory(prefix="scaleacross-bound-") as scratch:
        folder = Path(scratch)
        write_config(folder, files)
        groups = folder / "comm_groups.json"
        return load_config(
            network=folder / "network.yml",
            system=folder / "system.json",
            memory=folder / "memory.json",
            groups=groups if groups.is_file() else None,
        )


def _keep(store: OrderedDict[Any, Any], key: object, value: object, count: int) -> None:
    """Enter something into a store that forgets the oldest."""
    store[key] = value
    if len(store) > count:
        store.popitem(last=False)


def _distinct(settings: Sequence[Setting]) -> list[Setting]:
    """One setting a cluster."""
    return list({id(setting.cluster): setting for setting in settings}.values())
