"""The design step: every point becomes a (plan, configuration) pair, or an infeasible row with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..astra.render import config_digest, config_variables, render_config
from ..cluster import Accelerator, Cluster, accelerator_of, load_cluster, template_variables
from ..cluster.cost import rates_of
from ..errors import Infeasible, InvalidInput, did_you_mean
from ..files import canonical_json
from ..model import Model, load_model
from ..plan.degrees import Parallelism, training_from
from ..progress import Progress
from ..schedule import parameters
from ..trace.fuse import check_fused
from .expressions import Expression, parse_expression
from .idle import check_idle, check_turns, check_unequal
from .outcomes import RATE_COLUMNS, check_outcomes, check_prices, rate_columns
from .plans import (
    PARALLELISM_KEYS,
    TRAINING_KEYS,
    Plan,
    Setting,
    derived_names,
    is_made_for_times,
    make_plan,
    parallelism_of,
)
from .points import Point, count_points, enumerate_points
from .reasons import Miss, histogram
from .schema import DERIVED_NAMES, Study, TrainingSection


@dataclass
class Designed:
    """A designed study.

    Attributes:
        rows: one a point: ``point_id``, ``status`` (feasible or infeasible), ``reason``, values, ids, memory.
        plans: plan_id -> checked plan. configs: config_id -> file name -> text. pairs: plan_id -> its config_ids.
        cluster: of the first point.
    """

    study: Study
    cluster: Cluster
    accelerator: Accelerator
    model: Model
    rows: list[dict[str, Any]] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    pairs: dict[str, list[str]] = field(default_factory=dict)

    @property
    def dimension_columns(self) -> list[str]:
        """Columns of the points' values: the study's keys, and dp where it is derived."""
        names = list(self.study.swept)
        return names if "dp" in names else [*names, "dp"]


class Designer:
    """Designs points one by one; what points share (clusters, plans, rendered files) is made once.

    Args:
        study: to design. root: holds ``config``. kept: plans and configurations to remember, all of them by default.
    """

    def __init__(self, study: Study, root: Path = Path(), kept: int | None = None) -> None:
        self.study = study
        self.cluster_file = root / "config/clusters" / f"{study.cluster}.yaml.j2"
        self.accelerators = root / "config/accelerators"
        self.model = load_model(root / "config/models" / f"{study.model}.yaml")
        self.cluster_variables = template_variables(self.cluster_file)
        self.config_variables = config_variables()
        known = {*study.swept, *DERIVED_NAMES, *TrainingSection.model_fields}
        constraints = [parse_expression(text, known) for text in study.constraints]
        # Those that need only the point's own values are checked before anything is computed.
        self.own_constraints = [item for item in constraints if item.names <= study.swept.keys()]
        self.constraints = [item for item in constraints if item not in self.own_constraints]
        self.kept = kept
        self._settings: dict[str, Setting] = {}
        self._plans: dict[tuple[str, Parallelism], Plan | Infeasible] = {}
        self._configs: dict[str, tuple[str, dict[str, str]] | Infeasible] = {}
        self.check_names()
        check_turns(study)

    def check_names(self) -> None:
        """Refuse a key that nothing reads.

        Raises:
            InvalidInput: E-DIMENSION, which names the key and the closest that something does read.
        """
        own = {str(name) for schedule in self._schedules() for name in parameters(schedule)}
        known = {*PARALLELISM_KEYS, *TRAINING_KEYS, *self.config_variables, *self.cluster_variables, *own}
        for name in self.study.swept:
            if name not in known:
                raise InvalidInput(
                    "E-DIMENSION",
                    f"{name!r} changes no plan and no rendered file: no template uses it",
                    did_you_mean(name, known) + " or put {{ " + name + " }} into a template",
                )

    def check_idle(self) -> None:
        """Refuse a key that changed the cluster of no point designed so far; E-DIMENSION."""
        others = {*PARALLELISM_KEYS, *TRAINING_KEYS, *self.config_variables}
        names = [name for name in self.study.swept if name in self.cluster_variables and name not in others]
        check_idle(self.cluster_file, names, [json.loads(key) for key in self._settings])

    def _schedules(self) -> list[str]:
        return [str(name) for name in self.study.swept.get("schedule", [Parallelism.schedule])]

    def setting(self, values: Mapping[str, Any]) -> Setting:
        """Model, training, cluster and accelerator of a point.

        Raises:
            InvalidInput: whatever is wrong with the cluster file; E-PRICE where the study needs a price that it lacks.
        """
        relevant = self.cluster_variables | TRAINING_KEYS
        key = canonical_json({name: value for name, value in values.items() if name in relevant})
        if key not in self._settings:
            cluster = load_cluster(self.cluster_file, values)
            check_prices(self.study, cluster)
            training = {**self.study.training.model_dump(), **{k: v for k, v in values.items() if k in TRAINING_KEYS}}
            accelerator = accelerator_of(cluster, self.accelerators)
            check_unequal(self.study, cluster)
            if accelerator.by_site and self.study.search == "certified":
                clash = f"search certified with the mixed accelerators of {cluster.name}: its bounds know one type"
                raise InvalidInput("E-MIXED", clash, "use search: exhaustive, or mixed_accelerators: slowest")
            self._settings[key] = Setting(self.model, training_from(training), cluster, accelerator)
        return self._settings[key]

    def plan(self, setting: Setting, parallelism: Parallelism) -> Plan:
        """The checked plan; an infeasible one raises the same error each time without being tried again."""
        tiers: list[Any] = [(tier.name, tier.size) for tier in setting.cluster.tiers]
        if is_made_for_times(parallelism):
            tiers += [(tier.bandwidth, tier.latency, tier.oversubscription) for tier in setting.cluster.tiers]
        types = [setting.accelerator.name, *(site.accelerator.name for site in setting.accelerator.by_site)]
        key = (canonical_json([setting.training.__dict__, types, tiers]), parallelism)
        if key not in self._plans:
            self._forget(self._plans)
            try:
                self._plans[key] = make_plan(setting, parallelism)
            except Infeasible as error:
                self._plans[key] = error
        plan = self._plans[key]
        if isinstance(plan, Infeasible):
            raise plan
        return plan

    def config(self, setting: Setting, plan: Plan, values: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """Id and files of the configuration: the plan's network dimensions with the cluster's numbers.

        Raises:
            Infeasible: E-HALVING; InvalidInput: whatever is wrong with a template or a setting.
        """
        key = self.config_key(setting, plan, values)
        if key not in self._configs:
            self._forget(self._configs)
            try:
                files = render_config(
                    plan.placement.dims,
                    setting.cluster,
                    setting.accelerator,
                    values,
                    setting.training.precision,
                    plan.groups,
                )
                self._configs[key] = (f"{len(plan.placement.dims)}d-{config_digest(files)}", files)
            except Infeasible as error:
                self._configs[key] = error
        config = self._configs[key]
        if isinstance(config, Infeasible):
            raise config
        if plan.content["parallelism"]["granularity"] == "block":
            check_fused(plan.placement, json.loads(config[1]["system.json"]))
        return config

    def config_key(self, setting: Setting, plan: Plan, values: Mapping[str, Any]) -> str:
        """What a configuration is made from; the same for points that share one."""
        dims = [[dim.size, dim.tier, dim.axis, dim.share] for dim in plan.placement.dims]
        relevant = self.cluster_variables | self.config_variables
        used = {name: value for name, value in values.items() if name in relevant}
        flat = plan.content["parallelism"]["flat_rings"]
        return canonical_json([dims, used, setting.training.precision, flat])

    def _forget(self, store: dict[Any, Any]) -> None:
        """Make room for one more: the oldest goes."""
        if self.kept is not None and len(store) >= self.kept:
            store.pop(next(iter(store)))

    def check_constraints(self, values: Mapping[str, Any]) -> None:
        """Raise Infeasible E-CONSTRAINT where the study excludes a point of these values."""
        check(self.own_constraints, values)
        if self.constraints:
            setting = self.setting(values)
            parallelism = parallelism_of(values, setting.cluster.gpus)
            check(self.constraints, {**derived_names(setting, parallelism), **values})

    def row(self, point: Point, designed: Designed) -> tuple[dict[str, Any], Infeasible | None]:
        """The row of a point and, where it is infeasible, the reason; a feasible one is entered into ``designed``."""
        row: dict[str, Any] = {"point_id": point.point_id, "status": "feasible", "reason": "", **point.values}
        try:
            check(self.own_constraints, point.values)
            setting = self.setting(point.values)
            parallelism = parallelism_of(point.values, setting.cluster.gpus)
            row.update(dp=parallelism.dp, **rate_columns(rates_of(setting.cluster, setting.accelerator)))
            if self.constraints:
                check(self.constraints, {**derived_names(setting, parallelism), **point.values})
            plan = self.plan(setting, parallelism)
            row.update(plan_id=plan.plan_id, **plan.memory.columns())
            if plan.problem is not None:
                raise plan.problem
            config_id, files = self.config(setting, plan, point.values)
        except Infeasible as error:
            row.update(status="infeasible", reason=str(error), plan_id="", config_id="")
            return row, error
        row["config_id"] = config_id
        designed.plans[plan.plan_id] = plan
        designed.configs[config_id] = files
        pairs = designed.pairs.setdefault(plan.plan_id, [])
        if config_id not in pairs:
            pairs.append(config_id)
        return row, None


def check(constraints: Sequence[Expression], names: Mapping[str, Any]) -> None:
    for constraint in constraints:
        if not constraint.evaluate(names):
            used = ", ".join(f"{name} = {names[name]}" for name in sorted(constraint.names))
            raise Infeasible("E-CONSTRAINT", f"{constraint.text} is not met by {used}", "the study excludes it")


def design(study: Study, root: Path = Path()) -> Designed:
    """Design every point.

    Raises:
        InvalidInput: for anything wrong with the study, its model, cluster or templates; E-INFEASIBLE with a histogram
            of reasons when no point is feasible; E-DIMENSION for a dimension that changes nothing.
    """
    designer = Designer(study, root)
    first = designer.setting(next(enumerate_points(study)).values)
    check_outcomes(study, first.cluster)
    designed = Designed(study, first.cluster, first.accelerator, designer.model)
    misses: list[Miss] = []
    progress, total = Progress(f"design {study.name}"), count_points(study)
    for number, point in enumerate(enumerate_points(study)):
        if number % 256 == 0 and progress.is_due:
            progress.tell(f"{number:,} of {total:,} points checked, {number - len(misses):,} feasible")
        row, error = designer.row(point, designed)
        designed.rows.append(row)
        if error is not None:
            misses.append(Miss(point.point_id, error))
    if not designed.pairs:
        raise InvalidInput("E-INFEASIBLE", f"none of {len(designed.rows)} points is feasible:\n{histogram(misses)}")
    designer.check_idle()
    for name in inert_dimensions(study, designed.rows):
        raise InvalidInput(
            "E-DIMENSION",
            f"the values of {name!r} change no plan and no rendered file ({study.swept[name]} give the same points)",
            "use it in a template, or keep one value",
        )
    return designed


def inert_dimensions(study: Study, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Swept keys without effect: wherever two feasible points differ in that key alone, pair and prices are the same.

    A key whose values never occur in two otherwise equal feasible points is not judged.
    """
    swept = [name for name, values in study.swept.items() if len(values) > 1]
    feasible = [row for row in rows if row["status"] == "feasible"]
    for name in swept:
        others = [other for other in swept if other != name]
        compared, differs = False, False
        groups: dict[str, set[tuple[Any, ...]]] = {}
        counts: dict[str, int] = {}
        for row in feasible:
            key = canonical_json([row[other] for other in others])
            groups.setdefault(key, set()).add(tuple(row.get(name) for name in ("plan_id", "config_id", *RATE_COLUMNS)))
            counts[key] = counts.get(key, 0) + 1
        for key, pairs in groups.items():
            compared = compared or counts[key] > 1
            differs = differs or len(pairs) > 1
        if compared and not differs:
            yield name


def notes_of(designed: Designed, assumed: bool) -> Iterator[dict[str, str]]:
    """What the cluster's numbers rest on, for the report: assumptions, or sources."""
    for note in designed.cluster.sources():
        if note.is_assumption is assumed:
            subject = " ".join(part for part in (designed.cluster.name, note.tier, note.field) if part)
            yield {"subject": f"{subject} = {note.value}", "text": note.text}
