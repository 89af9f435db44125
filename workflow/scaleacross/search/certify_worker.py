"""What the processes of a certified search do: bound plans, bound points, simulate points. One call a task.

A process keeps its designs, skeletons, configurations and loaded traces, so the search sends all tasks of a plan to the
same one.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..astra.dimensions import simulated_tiers
from ..astra.render import write_config
from ..cluster.cost import rates_of
from ..errors import Infeasible
from ..files import canonical_json, package_digest, short_hash
from ..study.design import Designer
from ..study.outcomes import rate_columns
from ..study.plans import TRAINING_KEYS, Setting, parallelism_of, read_plan
from ..study.schema import Study
from ..study.tables import Row
from ..study.traces import write_traces
from ..trace.cookbook import Cookbook
from .batch import LASTING, SIMULATOR_CODE
from .bounds import Bounds
from .evaluate import Evaluator, Pair
from .objective import OBJECTIVES
from .sailor import PairSpeed, sailor_seconds
from .space import Space

Values = Mapping[str, Any]
KEPT_PLANS = 512  # plans and configurations that a process remembers


@dataclass
class Worker:
    """One process' state. Plans and networks go by their numbers in the study's space.

    Attributes:
        settings: of a batch (simulator, network model, limits).
        known: provenance -> result of points that an earlier search has simulated.
    """

    study: Study
    root: Path
    traces: Path
    configs: Path
    settings: Mapping[str, Any]
    astra_sim: Path | None
    known: Mapping[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.designer = Designer(self.study, self.root, kept=KEPT_PLANS)
        self.space = Space(self.designer)
        self.bounds = Bounds(self.designer)
        self.objective = OBJECTIVES[self.study.objective]
        self._evaluator: Evaluator | None = None
        self._simulated: dict[tuple[str, str], Row] = {}
        self._settings: dict[object, list[Setting]] = {}
        self.code = package_digest(*SIMULATOR_CODE[str(self.settings["simulator"])])

    def floors(self, environment: Values, plans: Sequence[int]) -> list[float | str]:
        """The floor of every plan, as a score, or why it cannot exist."""
        found: list[float | str] = []
        everything = range(len(self.space.networks))
        for number in plans:
            plan = self.space.plan(number)
            settings = self._distinct(environment, plan, everything)
            try:
                seconds = self.bounds.floor(self.space.values(environment, plan, self.space.networks[0]), settings)
                found.append(self._score(seconds, settings))
            except Infeasible as error:
                found.append(str(error))
        return found

    def look(self, environment: Values, plan: int, networks: Sequence[int]) -> float | str:
        """A bound, as a score, for a plan on the best of some networks, or why it cannot exist."""
        values = self.space.plan(plan)
        try:
            seconds = self.bounds.of_plan(self._points(environment, values, networks))
        except Infeasible as error:
            return str(error)
        return self._score(seconds, self._distinct(environment, values, networks))

    def bound(self, environment: Values, plan: int, networks: Sequence[int]) -> float | str:
        """A bound, as a score, for a plan on some networks with their algorithms, or why none of these can exist."""
        values = self.space.plan(plan)
        try:
            seconds = self.bounds.of_points(self._points(environment, values, networks))
        except Infeasible as error:
            return str(error)
        return self._score(seconds, self._distinct(environment, values, networks))

    def _points(self, environment: Values, plan: Values, networks: Sequence[int]) -> list[Values]:
        return [self.space.values(environment, plan, self.space.networks[number]) for number in networks]

    def _distinct(self, environment: Values, plan: Values, networks: Sequence[int]) -> list[Setting]:
        """One setting for every cluster among some networks."""
        relevant = self.designer.cluster_variables | TRAINING_KEYS
        key = canonical_json([environment, {name: value for name, value in plan.items() if name in relevant}])
        key += str(networks) if len(networks) < len(self.space.networks) else ""
        if key not in self._settings:
            found = [self.designer.setting(values) for values in self._points(environment, plan, networks)]
            self._settings[key] = list({id(setting.cluster): setting for setting in found}.values())
        return self._settings[key]

    def _score(self, seconds: float, settings: Sequence[Setting]) -> float:
        """The least score of a time on any of some clusters."""
        if self.objective.is_time:
            return seconds
        return min(
            self.objective.score_of(seconds, item.training.tokens, rates_of(item.cluster, item.accelerator), {})
            for item in settings
        )

    def estimates(self, environment: Values, number: int, networks: Sequence[int]) -> list[float]:
        """Sailor's estimate of a plan on some networks; infinite where the point cannot exist."""
        found: dict[tuple[PairSpeed, ...], float] = {}
        result = []
        for values in self._points(environment, self.space.plan(number), networks):
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

    def simulate(self, environment: Values, plan: int, network: int) -> Row:
        """The row of a point as the exhaustive flow writes it."""
        point = self.space.point(environment, self.space.plan(plan), self.space.networks[network])
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
        if self._simulated.get(key, {}).get("status") not in LASTING:
            self._simulated[key] = self.known.get(pair.provenance) or self.evaluator(pair)
        return {**row, "result": self._simulated[key]}

    @property
    def evaluator(self) -> Evaluator:
        """The door to the simulator, opened when first needed."""
        if self._evaluator is None:
            scratch = Path(tempfile.mkdtemp(prefix="scaleacross-search-"))
            self._evaluator = Evaluator(self.settings, self.astra_sim, scratch)
        return self._evaluator


_worker: list[Worker] = []


def start(*arguments: Any) -> None:
    """Make the process' worker. The search itself answers an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _worker[:] = [Worker(*arguments)]


def call(method: str, *arguments: Any) -> Any:
    """Run one task."""
    return getattr(_worker[0], method)(*arguments)
