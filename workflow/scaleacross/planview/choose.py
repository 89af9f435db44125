"""Which plan of a study is meant: a point by its id, by some of its values, by a baseline's name, or the winner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import Infeasible, InvalidInput, did_you_mean
from ..plan.degrees import Parallelism, parallelism_from
from ..plan.frameworks import Launch
from ..schedule import Schedule, names, parameters
from ..schema import parse_yaml, read_yaml
from ..study.design import Designer
from ..study.plans import PARALLELISM_KEYS, TRAINING_KEYS, Plan, Setting, build_schedule, make_plan, parallelism_of
from ..study.points import Point, enumerate_points, make_id
from ..study.reasons import Miss, histogram
from ..study.schema import Study
from ..study.tables import same
from ..trace.generate import resolved

OPTIMUM = "optimum"
LIKELY = "production"
MOST_IDS = 10_000


@dataclass(frozen=True)
class Chosen:
    """A plan of a study, made.

    Attributes:
        how: why this one, in words.
        parallelism: with everything resolved that its placement decides.
    """

    study: str
    point: Point
    how: str
    setting: Setting
    plan: Plan
    parallelism: Parallelism
    schedule: Schedule

    @property
    def launch(self) -> Launch:
        """The plan as a framework would start it: nodes are the innermost tier."""
        setting = self.setting
        return Launch(setting.model, setting.training, self.parallelism, setting.cluster.tiers[0].size)


def choose(study: Study, designer: Designer, words: Sequence[str], results: Path | None = None) -> Chosen:
    """The plan that the words of a command line name.

    Without words: the winner where ``results`` has one, else the production baseline (the first baseline, where none
    has that name). One word: ``optimum``, a baseline or a point's id. ``key=value``: the first point with these values
    that is feasible; a value that the study does not sweep is put into the production baseline instead.

    Raises:
        InvalidInput: E-POINT where no point is meant, with the reasons of those that are infeasible; E-DIMENSION for a
            key that a plan does not have; E-RESULTS for an optimum that is not known yet.
        Infeasible: the reason why a point given by its id cannot exist.
    """
    pairs = [word for word in words if "=" in word]
    single = [word for word in words if "=" not in word]
    if len(single) > 1 or (single and pairs):
        raise InvalidInput("E-POINT", f"{' '.join(words)!r} names more than one point", "give an id, or key=value ...")
    if pairs:
        return _by_values(study, designer, pairs)
    if single and single[0] != OPTIMUM and single[0] not in study.baselines:
        return make(study, designer, _by_id(study, single[0]).values, "the point asked for")
    winner = None if single and single[0] != OPTIMUM else _winner(results)
    if winner is not None:
        return make(study, designer, _by_id(study, winner).values, "the optimum of the headline environment")
    if single == [OPTIMUM]:
        raise InvalidInput("E-RESULTS", f"{study.name} has no optimum yet", "run the study first: snakemake --cores N")
    return _by_baseline(study, designer, single[0] if single else None)


def make(study: Study, designer: Designer, values: Mapping[str, Any], how: str) -> Chosen:
    """The plan of any values, those of a study's points or not.

    Raises:
        Infeasible: the rule, placement or schedule condition that is broken. A plan that lacks memory is made.
    """
    setting = designer.setting(values)
    parallelism = parallelism_of(values, setting.cluster.gpus)
    plan = make_plan(setting, parallelism)
    point = Point(make_id(values, dict(values)), values)
    return chosen_of(study.name, point, how, setting, plan, parallelism.defaulted)


def chosen_of(study: str, point: Point, how: str, setting: Setting, plan: Plan, defaulted: frozenset[str]) -> Chosen:
    """A made plan with what its own plain form says of it, everything resolved."""
    parallelism = replace(parallelism_from(plan.content["parallelism"]), defaulted=defaulted)
    whole = resolved(parallelism, plan.placement)
    return Chosen(study, point, how, setting, plan, whole, build_schedule(setting.training, whole))


def baseline_values(study: Study, name: str | None = None) -> tuple[str, Mapping[str, Any]]:
    """(name, fixed values) of a baseline: the one named, else ``production``, else the first, else nothing at all."""
    plain = {key: dict(wanted) for key, wanted in study.baselines.items() if "best_of" not in wanted}
    if name is not None and name not in plain:
        members = study.baselines[name]["best_of"]
        raise InvalidInput("E-POINT", f"baseline {name!r} is the best of {members}", "name one of them")
    name = name or (LIKELY if LIKELY in plain else next(iter(plain), None))
    return (name, plain[name]) if name else ("", {})


def _by_id(study: Study, point_id: str) -> Point:
    for point in enumerate_points(study):
        if point.point_id == point_id:
            return point
    known = [*study.baselines, OPTIMUM, *(point.point_id for point in islice(enumerate_points(study), MOST_IDS))]
    hint = did_you_mean(point_id, known)
    words = hint if len(hint) < 200 else "see points.csv, or give key=value ..."
    raise InvalidInput("E-POINT", f"{study.name} has no point {point_id!r}", words)


def _winner(results: Path | None) -> str | None:
    if results is None or not (results / "optimum.yaml").is_file():
        return None
    environments = read_yaml(results / "optimum.yaml").get("environments") or [{}]
    return environments[0].get("point_id")


def _by_baseline(study: Study, designer: Designer, wanted: str | None) -> Chosen:
    name, fixed = baseline_values(study, wanted)
    what = f"the {name} baseline" if name else "the study's points"
    return _first(study, designer, _matching(study, fixed), what)


def _by_values(study: Study, designer: Designer, pairs: Sequence[str]) -> Chosen:
    swept, values = study.swept, _values(designer, pairs)
    free = {key: value for key, value in values.items() if not any(same(value, known) for known in swept.get(key, []))}
    fixed = {key: value for key, value in values.items() if key not in free}
    if not free:
        return _first(study, designer, _matching(study, fixed), " ".join(pairs))
    name, base = baseline_values(study)
    start = {**base, **fixed}
    changed = [Point(make_id(v, v), v) for v in ({**point.values, **free} for point in _matching(study, start))]
    own = " ".join(f"{key}={value}" for key, value in free.items())
    return _first(study, designer, changed, f"{own}, which the study does not sweep, and {name or 'its points'} else")


def _values(designer: Designer, pairs: Sequence[str]) -> dict[str, Any]:
    own = {str(key) for schedule in names() for key in parameters(schedule)}
    templates = {*designer.cluster_variables, *designer.config_variables}
    known = {*designer.study.swept, *PARALLELISM_KEYS, *TRAINING_KEYS, *own, *templates}
    values: dict[str, Any] = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        if key not in known:
            raise InvalidInput(
                "E-DIMENSION", f"{key!r} is no dimension and no knob of a plan", did_you_mean(key, known)
            )
        values[key] = parse_yaml(text, f"value of {key}")
    return values


def _matching(study: Study, fixed: Mapping[str, Any]) -> list[Point]:
    headline = {name: values[0] for name, values in study.environment.items()}
    wanted = {**headline, **fixed}
    points = enumerate_points(study)
    return [point for point in points if all(same(point.values[key], value) for key, value in wanted.items())]


def _first(study: Study, designer: Designer, points: Iterable[Point], what: str) -> Chosen:
    """The first point that exists and fits; of those that only lack memory the first, where none fits."""
    points = list(points)
    misses: list[Miss] = []
    short: Chosen | None = None
    for point in points:
        try:
            designer.check_constraints(point.values)
            chosen = make(study, designer, point.values, "")
        except Infeasible as error:
            misses.append(Miss(point.point_id, error))
            continue
        if chosen.plan.problem is None:
            return _named(chosen, what, len(points))
        short = short or _named(chosen, what, len(points))
    if short is not None:
        return short
    if not points:
        raise InvalidInput("E-POINT", f"{study.name} has no point with {what}", "see the study's dimensions")
    raise InvalidInput("E-POINT", f"{what}: none of {len(points)} points is feasible:\n{histogram(misses)}")


def _named(chosen: Chosen, what: str, count: int) -> Chosen:
    return replace(chosen, how=what if count == 1 else f"{what} (the first feasible of {count} points)")
