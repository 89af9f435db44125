"""What the processes of a certified search do: bound plans, bound points, simulate points. One call a task.

A process keeps its designs, skeletons, configurations and loaded traces, so the search sends all tasks of a plan to the
same one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..astra.dimensions import simulated_tiers
from ..astra.render import write_config
from ..cluster.cost import rates_of
from ..errors import Infeasible
from ..files import package_digest, short_hash
from ..study.design import Designer
from ..study.outcomes import rate_columns
from ..study.plans import parallelism_of, read_plan
from ..study.schema import Study
from ..study.tables import Row
from ..study.traces import write_traces
from ..trace.cookbook import Cookbook
from .batch import SIMULATOR_CODE
from .bounds import Bounds
from .evaluate import Evaluator, Pair
from .sailor import PairSpeed, sailor_seconds
from .space import Space

Values = Mapping[str, Any]


@dataclass
class Worker:
    """One process' state. ``settings`` are those of a batch (simulator, network model, limits)."""

    study: Study
    root: Path
    traces: Path
    configs: Path
    settings: Mapping[str, Any]
    astra_sim: Path | None

    def __post_init__(self) -> None:
        self.designer = Designer(self.study, self.root)
        self.space = Space(self.designer)
        self.bounds = Bounds(self.designer)
        self._evaluator: Evaluator | None = None
        self._known: dict[tuple[str, str], Row] = {}
        self.code = package_digest(*SIMULATOR_CODE[str(self.settings["simulator"])])

    def root_bound(self, environment: Values, plan: Values) -> tuple[float, list[int], str]:
        """A bound for a plan on all networks, the numbers of those that constraints leave, or why it cannot exist."""
        networks, reason = self._allowed(environment, plan)
        if not networks:
            return 0.0, [], reason
        points = [self.space.values(environment, plan, self.space.networks[number]) for number in networks]
        try:
            return self.bounds.of_plan(points), networks, ""
        except Infeasible as error:
            return 0.0, [], str(error)

    def _allowed(self, environment: Values, plan: Values) -> tuple[list[int], str]:
        """Numbers of the networks on which the study's constraints allow a plan, and why not on others."""
        names, everything = set(self.space.network_names), range(len(self.space.networks))
        constraints = (*self.designer.own_constraints, *self.designer.constraints)
        asked = everything if any(item.names & names for item in constraints) else range(1)
        networks, reason = [], ""
        for number in asked:
            try:
                self.designer.check_constraints(self.space.values(environment, plan, self.space.networks[number]))
                networks.append(number)
            except Infeasible as error:
                reason = str(error)
        return (list(everything) if networks and len(asked) == 1 else networks), reason

    def bound(self, environment: Values, plan: Values, networks: Sequence[int]) -> float:
        """A bound for a plan on some networks; infinite where none of these points can exist."""
        points = [self.space.values(environment, plan, self.space.networks[number]) for number in networks]
        try:
            return self.bounds.of_points(points)
        except Infeasible:
            return float("inf")

    def estimates(self, environment: Values, plan: Values, networks: Sequence[int]) -> list[float]:
        """Sailor's estimate of a plan on some networks; infinite where the point cannot exist."""
        found: dict[tuple[PairSpeed, ...], float] = {}
        result = []
        for number in networks:
            values = self.space.values(environment, plan, self.space.networks[number])
            try:
                setting, made = self.bounds.plan(values)
            except Infeasible:
                result.append(float("inf"))
                continue
            tiers = simulated_tiers(setting.cluster)
            speeds = tuple(PairSpeed(tier.name, tier.bandwidth, tier.latency) for tier in tiers)
            if speeds not in found:
                model, training, parallelism, placement, accelerator = read_plan(made.content)
                book = Cookbook(model, training, parallelism, placement, accelerator)
                found[speeds] = sailor_seconds(book, speeds)
            result.append(found[speeds])
        return result

    def simulate(self, environment: Values, plan: Values, network: int) -> Row:
        """The row of a point as the exhaustive flow writes it."""
        point = self.space.point(environment, plan, self.space.networks[network])
        row: Row = {"point_id": point.point_id, "status": "feasible", "reason": "", **point.values}
        setting = self.designer.setting(point.values)
        row["dp"] = parallelism_of(point.values, setting.cluster.gpus).dp
        row.update(rate_columns(rates_of(setting.cluster, setting.accelerator)))
        try:
            setting, made = self.bounds.plan(point.values)
            config_id, files = self.designer.config(setting, made, point.values)
        except Infeasible as error:
            return {**row, "status": "infeasible", "reason": str(error)}
        row.update(plan_id=made.plan_id, config_id=config_id, **made.memory.columns())
        record = write_traces(self.traces / made.plan_id, made.content)
        write_config(self.configs / config_id, files)
        basis = [record.digest, config_id, self.settings["simulator"], self.settings["network_model"]]
        basis += [self.settings.get("binary_digest"), self.code, made.work]
        pair = Pair(
            plan_id=made.plan_id,
            config_id=config_id,
            workload=str(self.traces / made.plan_id / "workload"),
            config=str(self.configs / config_id),
            work=json.dumps(made.work, sort_keys=True),
            provenance=short_hash(basis, 16),
        )
        key = (made.plan_id, config_id)
        if key not in self._known:
            self._known[key] = self.evaluator(pair)
        return {**row, "result": self._known[key]}

    @property
    def evaluator(self) -> Evaluator:
        """The door to the simulator, opened when first needed."""
        if self._evaluator is None:
            scratch = Path(tempfile.mkdtemp(prefix="scaleacross-search-"))
            self._evaluator = Evaluator(self.settings, self.astra_sim, scratch)
        return self._evaluator


_worker: list[Worker] = []


def start(*arguments: Any) -> None:
    """Make the process' worker."""
    _worker[:] = [Worker(*arguments)]


def call(method: str, *arguments: Any) -> Any:
    """Run one task."""
    return getattr(_worker[0], method)(*arguments)


def root_bounds(environment: Values, plans: Sequence[Values]) -> list[tuple[float, list[int], str]]:
    """The first look at many plans."""
    return [_worker[0].root_bound(environment, plan) for plan in plans]
