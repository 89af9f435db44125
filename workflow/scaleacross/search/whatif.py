"""Design points on a cluster that differs in one number: a tier's bandwidth, latency or oversubscription.

The embedded engine on the same inputs as the flow's, with that number changed after the cluster file was rendered. A
plan whose schedule is made for given delays is made anew for the changed ones.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..astra.dimensions import astra_dimensions, simulated_tiers
from ..astra.render import render_config
from ..cluster import Cluster, Tier
from ..errors import Infeasible, ScaleAcrossError
from ..study.design import Designer
from ..study.plans import Plan, Setting, parallelism_of
from ..study.schema import Study
from ..study.traces import write_traces
from .bounds import MODELS, Bounds, config_from
from .evaluate import BOUND_TOLERANCE, Workloads
from .relax import Relaxed, Skeleton
from .speeds import Exact, Ideal, Unaware

if TYPE_CHECKING:
    from ..engine import Workload
    from ..engine.settings import Config

NEVER = float("inf")
Values = Mapping[str, Any]
Change = Callable[[Cluster], Cluster]


@dataclass(frozen=True)
class Quantity:
    """A number of a cluster: ``name`` (bandwidth, latency, oversubscription) of a ``tier``."""

    tier: str
    name: str

    def value(self, cluster: Cluster) -> float:
        """Bytes/s, seconds or the ratio."""
        return float(getattr(cluster.tier(self.tier), self.name))

    def text(self, cluster: Cluster) -> str:
        """The number with its unit."""
        value = self.value(cluster)
        if self.name == "bandwidth":
            return f"{value / 1e9:.4g} GB/s"
        return f"{value * 1e6:.4g} us" if self.name == "latency" else f"1:{value:.4g}"

    def better(self, factor: float) -> bool:
        """Whether a factor makes the network better."""
        return (factor > 1) == (self.name == "bandwidth")


@dataclass(frozen=True)
class Times:
    """A cluster with one number times a factor; an oversubscription below 1:1 is 1:1."""

    quantity: Quantity
    factor: float

    def __call__(self, cluster: Cluster) -> Cluster:
        tiers = [_changed(tier, self.quantity.name, self.factor) if tier.name == self.quantity.tier else tier
                 for tier in cluster.tiers]  # fmt: skip
        return replace(cluster, tiers=tuple(tiers))


@dataclass(frozen=True)
class AllBetter:
    """A cluster ``reach`` times better in every number of a tier, or of all tiers: no single change beats it."""

    reach: float
    tier: str = ""

    def __call__(self, cluster: Cluster) -> Cluster:
        return replace(cluster, tiers=tuple(self._better(tier) for tier in cluster.tiers))

    def _better(self, tier: Tier) -> Tier:
        if self.tier not in ("", tier.name):
            return tier
        tier = _changed(_changed(tier, "bandwidth", self.reach), "latency", 1 / self.reach)
        return _changed(tier, "oversubscription", 1 / self.reach)


def unchanged(cluster: Cluster) -> Cluster:
    """The cluster as it is."""
    return cluster


def _changed(tier: Tier, name: str, factor: float) -> Tier:
    wanted = getattr(tier, name) * factor
    return replace(tier, **{name: max(1.0, wanted) if name == "oversubscription" else wanted})


def quantities(cluster: Cluster) -> list[Quantity]:
    """Every tier's bandwidth and latency, and the oversubscription of all but the innermost."""
    names = ("bandwidth", "latency", "oversubscription")
    return [
        Quantity(tier.name, name)
        for index, tier in enumerate(cluster.tiers)
        for name in names
        if (name != "oversubscription" or index) and getattr(tier, name) > 0
    ]


class Bench:
    """Simulates and bounds points of a study on changed networks; what points share is made once.

    Args:
        traces: folder of the study's traces, used where a plan's are there.
        limit: wall seconds a simulation may take.
    """

    def __init__(self, study: Study, traces: Path, limit: float = 60.0, root: Path = Path()) -> None:
        self.designer, self.traces, self.limit = Designer(study, root), traces, limit
        self.model, self.unphysical = study.network_model, study.allow_unphysical
        self.bounds = Bounds(self.designer)
        self.scratch = Path(tempfile.mkdtemp(prefix="scaleacross-whatif-"))
        self.simulations = 0
        self._skeletons: dict[str, Skeleton] = {}
        self._written: dict[str, str] = {}  # plans whose traces are there -> where
        self._workloads = Workloads()
        self._configs: dict[tuple[str, Change], Config] = {}

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def seconds(self, values: Values, change: Change = unchanged) -> float:
        """Simulated iteration time; infinite where the point does not end or may not count."""
        from ..engine import simulate

        try:
            setting, plan = self.plan(values, change)
            config = self._config(setting, plan, values, change)
            self.simulations += 1
            found = simulate(self._workload(plan), config, model=self.model, time_limit=self.limit)
        except ScaleAcrossError:
            return NEVER
        real = self.unphysical or found.bound_ratio is None or found.bound_ratio >= 1.0 - BOUND_TOLERANCE
        return found.iteration_ns * 1e-9 if found.status == "ok" and real else NEVER

    def bound(self, values: Values, change: Change = unchanged) -> float:
        """A lower bound of :meth:`seconds`; 0 under a network model that has none."""
        if self.model not in MODELS:
            return 0.0
        try:
            setting, plan = self.plan(values, change)
            if plan.plan_id not in self._skeletons:
                self._skeletons[plan.plan_id] = self.bounds.skeleton(plan)
            if self.model == "unaware":
                columns = astra_dimensions(plan.placement.dims, setting.cluster)
                return Relaxed(self._skeletons[plan.plan_id], Unaware(plan.placement, columns)).seconds()
            ideal = Ideal(plan.placement, simulated_tiers(setting.cluster))
            speeds = Exact(ideal, self._config(setting, plan, values, change))
            return Relaxed(self._skeletons[plan.plan_id], speeds).seconds()
        except Infeasible:
            return NEVER

    def plan(self, values: Values, change: Change = unchanged) -> tuple[Setting, Plan]:
        """The plan on the changed cluster, whether or not it fits in memory."""
        setting = self.designer.setting(values)
        setting = replace(setting, cluster=change(setting.cluster))
        return setting, self.designer.plan(setting, parallelism_of(values, setting.cluster.gpus))

    def _config(self, setting: Setting, plan: Plan, values: Values, change: Change) -> Config:
        key = (self.designer.config_key(setting, plan, values), change)
        if key not in self._configs:
            dims, precision = plan.placement.dims, setting.training.precision
            files = render_config(dims, setting.cluster, setting.accelerator, values, precision, plan.groups)
            self._configs[key] = config_from(files)
        return self._configs[key]

    def _workload(self, plan: Plan) -> Workload:
        if plan.plan_id not in self._written:
            own = self.traces / plan.plan_id
            folder = own if (own / "plan.json").is_file() else self.scratch / plan.plan_id
            write_traces(folder, plan.content)
            self._written[plan.plan_id] = str(folder / "workload")
        return self._workloads(self._written[plan.plan_id])
