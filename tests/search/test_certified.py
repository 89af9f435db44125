"""Bounds never exceed what is simulated, and a certified search finds what simulating everything finds."""

from __future__ import annotations

import pickle
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from certified_space import VALUES, Inline, drawn, everything, make_project, study, worker
from scaleacross.errors import Infeasible
from scaleacross.schedule import names as schedule_names
from scaleacross.search.bounds import Bounds
from scaleacross.search.certificate import Certificate
from scaleacross.search.certified import Search
from scaleacross.search.pieces import serial_end
from scaleacross.search.select import TIME, baseline_row, best, contenders, rules_of
from scaleacross.search.space import Space, split
from scaleacross.study.design import Designer
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import Study
from scaleacross.study.tables import cell


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


def one_plan(random_: random.Random, model: str, schedule: str) -> Study:
    """A study of one plan, dense or with experts."""
    dimensions = {name: [random_.choice(values)] for name, values in VALUES.items()}
    dimensions["schedule"] = [schedule]
    more: dict[str, Any] = {"network_model": model}
    if model == "unaware" and random_.random() < 0.3:
        more["allow_unphysical"] = True
    if random_.random() < 0.5:
        more["model"] = random_.choice(["tiny-moe", "tiny-deep"])
        more["fixed"] = {"ep": random_.choice([2, 4, 8]), "etp": random_.choice([0, 1])}
        dimensions["granularity"] = [random_.choice(["layer", "operator"])]
    return study(dimensions, **more)


def no_bound_is_above(made: Study, root: Path, work: Path) -> bool:
    """Check all bounds of a study's one point against its simulation; False where it cannot exist or does not count."""
    only = worker(made, root, work)
    (environment,) = only.space.environments()
    (floor,) = only.floors(environment, [0])
    whole, exact = only.look(environment, 0, [0]), only.bound(environment, 0, [0])
    if isinstance(floor, str) or isinstance(whole, str) or isinstance(exact, str):
        return False
    result = only.simulate(environment, 0, 0)["result"]
    if result["status"] == "unphysical" and not made.allow_unphysical:
        return False
    assert result["status"] in ("ok", "unphysical"), result["reason"]
    values = only.space.values(environment, only.space.plan(0), only.space.networks[0])
    told = (values, floor, whole, exact, result[TIME])
    assert min(floor, whole) > 0 and max(floor, whole, exact) <= result[TIME], told
    assert whole <= exact * (1 + 1e-9), told
    return True


@pytest.mark.parametrize("model", ["scaleacross", "unaware"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_no_bound_is_above_the_simulated_time(seed: int, model: str, root: Path, tmp_path: Path) -> None:
    random_ = random.Random(f"{seed}{model}")
    checked = 0
    for _ in range(400):
        if checked == 6:
            break
        checked += no_bound_is_above(one_plan(random_, model, random_.choice(VALUES["schedule"])), root, tmp_path)
    assert checked == 6


@pytest.mark.slow
@pytest.mark.parametrize("schedule", schedule_names())
def test_bounds_hold_for_every_schedule(schedule: str, root: Path, tmp_path: Path) -> None:
    random_ = random.Random(schedule)
    made = (one_plan(random_, "scaleacross", schedule) for _ in range(1500))
    assert sum(1 for _ in islice((True for one in made if no_bound_is_above(one, root, tmp_path)), 4)) == 4


@pytest.mark.parametrize("order", [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"]])
@pytest.mark.parametrize("oversubscription", ["1:1", "1:8"])
def test_bounds_hold_where_a_tier_joins_nothing(
    order: list[str], oversubscription: str, root: Path, tmp_path: Path
) -> None:
    """One zone a building: no network dimension lies on the buildings' tier, but traffic crosses its uplinks."""
    dimensions: dict[str, list[Any]] = {
        "order": [order], "tp": [2], "pp": [2], "dp_sharding": ["fsdp"], "dp_overlap": ["prefetch"],
    }  # fmt: skip
    environment = {"oversubscription": [oversubscription]}
    assert no_bound_is_above(study(dimensions, cluster="tiny-one", environment=environment), root, tmp_path)


SPACES, QUICK = 24, 2


@pytest.mark.parametrize(
    "seed", [seed if seed < QUICK else pytest.param(seed, marks=pytest.mark.slow) for seed in range(SPACES)]
)
def test_the_certified_optimum_is_the_exhaustive_one(seed: int, root: Path, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    while True:
        made = study(
            drawn(random_, 24),
            environment={"oversubscription": ["1:4", "1:16"]},
            network_model="unaware" if seed % 5 == 4 else "scaleacross",
        )
        only = worker(made, root, tmp_path)
        rows = everything(made, only)
        if len([row for row in rows if row["status"] == "ok"]) >= 6:
            break
    fixed = random_.choice(rows)
    name = random_.choice(list(made.dimensions))
    kept = next(value for value in made.dimensions[name] if cell(value) == fixed[name])
    made = made.model_copy(update={"baselines": {"one": {name: kept}, "picked": {"picked_by": "sailor"}}})
    search = Search(only.space, Inline(only, 1 + seed), made.baselines)  # type: ignore[arg-type]
    certificates = search.run()
    found = [{**row, **row.get("result", {}), **{key: cell(row[key]) for key in made.swept}} for row in search.rows]
    rules = rules_of(made.model_dump(mode="json"))
    for certificate in certificates:
        all_, few = (contenders(table, rules, certificate.environment) for table in (rows, found))
        wanted, got = best(all_), best(few)
        assert (wanted and wanted["point_id"]) == (got and got["point_id"])
        if wanted is not None:
            assert certificate.optimum_s == wanted[TIME]
            base, same = baseline_row(all_, rules, "one"), baseline_row(few, rules, "one")
            assert (base and base["point_id"]) == (same and same["point_id"])
        _consistent(certificate, rows)


def _consistent(certificate: Certificate, rows: list[dict[str, Any]]) -> None:
    assert certificate.gap == 0
    assert certificate.simulated + certificate.pruned + certificate.infeasible <= certificate.points + 1e-9
    if certificate.least_bound_s is not None and certificate.optimum_s is not None:
        assert certificate.least_bound_s >= certificate.optimum_s
    assert len(rows) >= certificate.simulated


def test_an_exhaustive_table_is_not_needed_for_most_points(root: Path, tmp_path: Path) -> None:
    """A space with one clearly good corner: most of it is never simulated."""
    dimensions: dict[str, list[Any]] = {
        "tp": [1, 2, 4], "pp": [1, 2, 4], "micro_batch": [1, 2, 4], "dp_sharding": ["zero1", "zero2"],
        "recompute": ["none", "full"], "uplink_latency": ["75 us", "1 ms"],
    }  # fmt: skip
    made = study(dimensions)
    only = worker(made, root, tmp_path)
    search = Search(only.space, Inline(only), {})  # type: ignore[arg-type]
    (certificate,) = search.run()
    assert certificate.points == 216
    assert certificate.simulated <= 0.1 * certificate.points


def test_ids_are_those_of_the_exhaustive_enumeration(root: Path) -> None:
    made = study(drawn(random.Random(3), 24))
    space = Space(Designer(made, root))
    environment = next(space.environments())
    ids = {
        space.point(environment, space.plan(plan), network).point_id
        for plan in range(space.plan_count)
        for network in space.networks
    }
    assert ids == {point.point_id for point in enumerate_points(made)}


def test_networks_are_split_by_their_first_dimension(root: Path) -> None:
    made = study({"pp": [1, 2], "collective": ["ring", "direct"], "uplink_latency": ["75 us", "1 ms"]})
    space = Space(Designer(made, root))
    assert space.network_names == ("collective", "uplink_latency")
    assert split(space, (0, 1, 2, 3)) == [(0, 1), (2, 3)]
    assert split(space, (0, 1)) == [(0,), (1,)]


def test_errors_come_from_other_processes_as_they_are() -> None:
    error = pickle.loads(pickle.dumps(Infeasible("E-X", "a clash", "a fix", 0.25)))
    assert (str(error), error.shortfall, type(error)) == ("E-X: a clash; a fix", 0.25, Infeasible)


def test_a_layout_goes_to_the_plan_not_to_its_schedule(root: Path) -> None:
    dimensions: dict[str, list[Any]] = {"pp": [2], "schedule": ["latency-aware"], "layout": [[5, 3]]}
    bounds = Bounds(Designer(study(dimensions), root))
    _, plan = bounds.plan(next(iter(enumerate_points(bounds.designer.study))).values)
    assert plan.content["parallelism"]["layout"] == [5, 3]


def test_jobs_on_one_machine() -> None:
    assert serial_end([]) == 0
    assert serial_end([(0, 2), (5, 1), (1, 2)]) == 6
    assert serial_end([(0, 2), (1, 2)]) == 4


def test_bounds_need_no_simulation(root: Path) -> None:
    made = study({"pp": [2], "tp": [4]})
    bounds = Bounds(Designer(made, root))
    values = next(iter(enumerate_points(made))).values
    assert 0 < bounds.of_plan([values]) <= bounds.of_points([values])
