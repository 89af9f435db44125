"""Lower bounds of points: of a plan on the best of several networks, and of one point. Never above the simulated time.

``scaleacross``: the relaxed iteration (:mod:`.relax`) with ideal speeds for a first look at a plan, with the engine's
own times of each collective alone for what remains. ``unaware``: only points that are ok count (a link that is free for
many messages has no bound), so a study that lets unphysical points win cannot be certified under it.
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
from ..engine.settings import Config
from ..errors import Infeasible
from ..plan.placement import Placement, place
from ..study.design import Designer
from ..study.plans import Plan, Setting, build_schedule, is_made_for_times, parallelism_of, read_plan
from ..trace.context import Context
from ..trace.cookbook import Cookbook
from ..trace.generate import resolved
from .relax import Relaxed, Skeleton
from .speeds import Exact, Ideal, Speeds, Unaware

KEPT = 64  # skeletons kept in memory; points of one plan come one after the other
MODELS = ("scaleacross", "unaware")


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

    def uplink_seconds(self, comm_type: int, size: int, group: str) -> Mapping[str, float]:
        """Least over the members; nothing where one of them has no bound."""
        found = [member.uplink_seconds(comm_type, size, group) for member in self.members]
        return {tier: min(item[tier] for item in found) for tier in found[0] if all(tier in item for item in found)}


def best_tiers(clusters: Iterable[Sequence[SimulatedTier]]) -> list[SimulatedTier]:
    """Tiers as good as the best of several clusters of the same shape, in every number apart."""
    result = []
    for tiers in zip(*clusters, strict=True):
        port = max(tier.bandwidth for tier in tiers)
        uplink = max(tier.bandwidth / tier.oversubscription for tier in tiers)
        latency = min(tier.latency for tier in tiers)
        result.append(replace(tiers[0], bandwidth=port, latency=latency, oversubscription=max(1.0, port / uplink)))
    return result


class Bounds:
    """Makes bounds for points of a study; what points share is made once."""

    def __init__(self, designer: Designer) -> None:
        self.designer = designer
        self.model = designer.study.network_model
        self._skeletons: OrderedDict[str, Skeleton] = OrderedDict()
        self._speeds: dict[tuple[str, str], Speeds] = {}
        self._configs: dict[str, Config] = {}
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

    def of_plan(self, points: Sequence[Mapping[str, Any]]) -> float:
        """A bound, in seconds, for points that differ in their network alone, whatever their collective algorithms.

        Raises:
            Infeasible: where their plan cannot exist.
        """
        settings = [self.designer.setting(values) for values in points]
        parallelism = parallelism_of(points[0], settings[0].cluster.gpus)
        if is_made_for_times(parallelism):  # the order of actions depends on the network
            return self._of_any_order(points[0], settings)
        _, plan = self.plan(points[0])
        if self.model == "unaware":
            unaware = [
                Unaware(plan.placement, astra_dimensions(plan.placement.dims, s.cluster)) for s in _distinct(settings)
            ]
            return Relaxed(self.skeleton(plan), BestOf(unaware)).seconds()
        return Relaxed(self.skeleton(plan), self._ideal(plan.placement, settings)).seconds()

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
            return self._of_any_order(points[0], [self.designer.setting(values) for values in points])
        speeds = found[0] if len(found) == 1 else BestOf(found)
        return Relaxed(self.skeleton(next(iter(plans.values()))), speeds).seconds()

    def skeleton(self, plan: Plan) -> Skeleton:
        """The order of a plan's actions."""
        if plan.plan_id not in self._skeletons:
            model, training, parallelism, placement, accelerator = read_plan(plan.content)
            schedule = build_schedule(training, parallelism)
            context = Context(model, training, resolved(parallelism, placement), placement, accelerator, schedule)
            self._skeletons[plan.plan_id] = Skeleton(context)
            if len(self._skeletons) > KEPT:
                self._skeletons.popitem(last=False)
        self._skeletons.move_to_end(plan.plan_id)
        return self._skeletons[plan.plan_id]

    def speeds(self, setting: Setting, plan: Plan, values: Mapping[str, Any]) -> Speeds:
        """Speeds of a point's own network.

        Raises:
            Infeasible: where its configuration cannot exist.
        """
        config_id, files = self.designer.config(setting, plan, values)
        groups = str([dim.groups for dim in plan.placement.dims])
        if (config_id, groups) not in self._speeds:
            if self.model == "unaware":
                made: Speeds = Unaware(plan.placement, astra_dimensions(plan.placement.dims, setting.cluster))
            else:
                if config_id not in self._configs:
                    self._configs[config_id] = config_from(files)
                made = Exact(Ideal(plan.placement, simulated_tiers(setting.cluster)), self._configs[config_id])
            self._speeds[config_id, groups] = made
        return self._speeds[config_id, groups]

    def _ideal(self, placement: Placement, settings: Sequence[Setting]) -> Ideal:
        distinct = _distinct(settings)
        key = tuple(id(setting.cluster) for setting in distinct)  # clusters are kept by the designer
        if key not in self._tiers:
            self._tiers[key] = best_tiers([simulated_tiers(setting.cluster) for setting in distinct])
        return Ideal(placement, self._tiers[key])

    def _of_any_order(self, values: Mapping[str, Any], settings: Sequence[Setting]) -> float:
        """A bound for every order of a plan's actions: the work of the busiest rank."""
        setting = settings[0]
        parallelism = parallelism_of(values, setting.cluster.gpus)
        count = setting.training.global_batch // (parallelism.dp * parallelism.micro_batch)
        placement = place(parallelism, setting.cluster.tiers)
        book = Cookbook(setting.model, setting.training, parallelism, placement, setting.accelerator)
        peak, bandwidth = book.accelerator.peak(setting.training.precision), book.accelerator.memory_bandwidth
        work = [0.0] * parallelism.pp
        for position, units in enumerate(book.positions):
            for unit in units:
                for phase in ("F", "B", "W"):
                    for step in book.unit_recipe(unit, phase).steps:
                        if step.num_ops:
                            memory = 0.0 if parallelism.granularity == "block" else step.size / bandwidth
                            work[position % parallelism.pp] += max(step.num_ops / peak, memory)
        # The mean over the ranks bounds the busiest wherever a schedule puts the chunks.
        return count * sum(work) / parallelism.pp * (1 - 1e-4)


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


def _distinct(settings: Sequence[Setting]) -> list[Setting]:
    """One setting a cluster."""
    return list({id(setting.cluster): setting for setting in settings}.values())
