"""A certified search whatever happens to it: failing points, no time, an interrupt, another objective, more cores."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from certified_space import Inline, drawn, make_project, study, worker
from scaleacross.errors import Infeasible
from scaleacross.search.certificate import plans_table
from scaleacross.search.certified import Search
from scaleacross.search.certify_worker import Worker
from scaleacross.search.screen import Screen
from scaleacross.search.search_study import _keep, _read_known
from scaleacross.search.select import TIME
from scaleacross.search.why import screened
from scaleacross.study.schema import Study

DIMENSIONS: dict[str, list[Any]] = {
    "tp": [1, 2, 4], "pp": [1, 2, 4], "micro_batch": [1, 2], "dp_sharding": ["zero1", "zero2"],
    "collective": ["ring", "direct"], "uplink_latency": ["75 us", "1 ms"],
}  # fmt: skip
CONSTRAINTS = [
    "tp * pp <= 8",
    "collective == 'ring' or tp > 1",
    "micro_batches >= pp",
    "uplink_latency != '1 ms' or pp < 4",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


def search(only: Worker, ahead: int = 2, seconds: float = float("inf"), keep: Any = None) -> tuple[Search, Any]:
    made = Search(only.space, Inline(only, ahead), only.study.baselines, seconds, keep)  # type: ignore[arg-type]
    (certificate,) = made.run()
    return made, certificate


@pytest.mark.parametrize("seed", range(4))
def test_the_screen_is_what_constraints_say_of_every_point(seed: int, root: Path) -> None:
    random_ = random.Random(seed)
    made = study(DIMENSIONS, constraints=random_.sample(CONSTRAINTS, 3))
    only = worker(made, root, root)
    space, (environment,) = only.space, only.space.environments()
    screen = Screen(space, environment)
    left = {
        (int(number), network)
        for numbers, masks in screen.blocks()
        for number, mask in zip(numbers, masks, strict=True)
        for network in range(len(space.networks))
        if screen.masks[mask][network]
    }
    wanted = set()
    for number in range(space.plan_count):
        for place, network in enumerate(space.networks):
            values = space.values(environment, space.plan(number), network)
            try:
                only.designer.check_constraints(values)
                screen._degrees(values)
            except Infeasible:
                continue
            wanted.add((number, place))
    assert left == wanted
    assert sum(entry.points for entry in screen.excluded.values()) == space.points_an_environment - len(wanted)


def test_rows_do_not_depend_on_how_many_tasks_run_at_once(root: Path, tmp_path: Path) -> None:
    made = study(drawn(random.Random(11), 24))
    found = [search(worker(made, root, tmp_path), ahead) for ahead in (1, 3, 16)]
    first, certificate = found[0]
    assert certificate.gap == 0 and first.rows
    for other, told in found[1:]:
        assert sorted(row["point_id"] for row in other.rows) == sorted(row["point_id"] for row in first.rows)
        assert (told.optimum_s, told.least_bound_s) == (certificate.optimum_s, certificate.least_bound_s)


class Failing(Worker):
    """Its points of one degree fail, as if they took no time."""

    def simulate(self, environment: Mapping[str, Any], plan: int, network: int) -> dict[str, Any]:
        row = super().simulate(environment, plan, network)
        if row["tp"] == self.failing:
            row["result"] = {**row["result"], "status": "timeout", "reason": "E-TIMEOUT: test", TIME: 1e-6}
        return row

    failing = 0


def test_failing_points_never_win_and_count_in_the_gap(root: Path, tmp_path: Path) -> None:
    made = study(DIMENSIONS)
    whole, certificate = search(worker(made, root, tmp_path))
    best = min((row for row in whole.rows if row["result"]["status"] == "ok"), key=lambda row: row["result"][TIME])
    failing = worker(made, root, tmp_path)
    failing.__class__ = Failing
    failing.failing = best["tp"]  # type: ignore[attr-defined]
    other, told = search(failing)
    assert told.failed > 0 and told.optimum_s > certificate.optimum_s
    assert (told.gap or 0) > 0 and told.least_bound_s <= certificate.optimum_s
    assert any(row["result"]["status"] == "timeout" for row in other.rows)


class Once(Worker):
    """The first simulation of every point is lost."""

    def simulate(self, environment: Mapping[str, Any], plan: int, network: int) -> dict[str, Any]:
        row = super().simulate(environment, plan, network)
        seen: set[str] = self.__dict__.setdefault("seen", set())
        if row["point_id"] not in seen:
            seen.add(row["point_id"])
            row["result"] = {**row["result"], "status": "timeout", "reason": "E-TIMEOUT: test"}
        return row


def test_a_point_that_was_lost_is_tried_again(root: Path, tmp_path: Path) -> None:
    once = worker(study(DIMENSIONS), root, tmp_path)
    once.__class__ = Once
    (_, told), (_, wanted) = search(once), search(worker(study(DIMENSIONS), root, tmp_path))
    assert (told.failed, told.gap, told.optimum_s) == (0, 0.0, wanted.optimum_s)


def test_without_time_the_gap_is_told(root: Path, tmp_path: Path) -> None:
    made, certificate = search(worker(study(DIMENSIONS), root, tmp_path), seconds=0.0)
    assert certificate.ended == "time limit" and certificate.optimum_s is None and certificate.least_bound_s > 0
    assert made.rows == [] and certificate.pruned + certificate.infeasible == certificate.points


class Interrupted(Inline):
    """Stops after a number of simulations."""

    left = 1

    def submit(self, plan: int, method: str, *arguments: Any) -> Any:
        self.left -= method == "simulate"
        if self.left < 0:
            raise KeyboardInterrupt
        return super().submit(plan, method, *arguments)


def test_an_interrupted_search_goes_on_where_it_stopped(root: Path, tmp_path: Path) -> None:
    made, file = study(DIMENSIONS), tmp_path / "known.jsonl"
    only = worker(made, root, tmp_path)
    with file.open("a") as stream, pytest.raises(KeyboardInterrupt):
        Search(only.space, Interrupted(only, 1), {}, keep=lambda row: _keep(stream, row)).run()  # type: ignore[arg-type]
    with file.open("a") as stream:
        stream.write('{"provenance": "cut')
    known = _read_known(file)
    assert len(known) == 1
    again = worker(made, root, tmp_path)
    again.known, calls = known, []
    simulate = again.evaluator
    again._evaluator = lambda pair: calls.append(pair.provenance) or simulate(pair)  # type: ignore[assignment,func-returns-value]
    resumed, certificate = search(again)
    assert not set(calls) & set(known)
    fresh, wanted = search(worker(made, root, tmp_path))
    assert certificate.optimum_s == wanted.optimum_s
    assert [row["point_id"] for row in resumed.rows] == [row["point_id"] for row in fresh.rows]


def test_every_plan_that_constraints_leave_has_a_row(root: Path, tmp_path: Path) -> None:
    made, certificate = search(worker(study(DIMENSIONS, constraints=CONSTRAINTS), root, tmp_path))
    fates = list(made.fates())
    assert len(fates) == certificate.plans_left and [plan for _, plan, _ in fates] == sorted({p for _, p, _ in fates})
    assert sum(fate.points for _, _, fate in fates) == certificate.points - certificate.excluded
    assert sum(fate.simulated for _, _, fate in fates) >= certificate.simulated > 0
    assert all(fate.bound >= certificate.optimum_s for _, _, fate in fates if fate.status == "pruned")
    table = [[plan, fate.status, fate.reason, fate.points, fate.simulated, fate.bound] for _, plan, fate in fates]
    assert plans_table(table, ["plan"]) == plans_table(table, ["plan"])


def test_why_counts_every_point(root: Path) -> None:
    made = study(DIMENSIONS, constraints=CONSTRAINTS)
    head, *lines = screened(made, root).splitlines()
    left, points = (int(word) for word in head.split(": ")[1].replace("of ", "").split()[:2])
    assert left + sum(int(line.split(" x ")[0]) for line in lines) == points == 144


def test_the_cheapest_design_is_found(root: Path, tmp_path: Path) -> None:
    file = root / "config/clusters/tiny-2dc.yaml.j2"
    text = file.read_text()
    file.write_text(text.replace("accelerator:", "price: {{ price | default('2 usd/hour') }}\naccelerator:"))
    try:
        made: Study = study({**DIMENSIONS, "price": ["2 usd/hour", "3 usd/hour"]}, objective="tokens_per_usd")
        found, certificate = search(worker(made, root, tmp_path))
        same, timed = search(worker(study(DIMENSIONS), root, tmp_path))
    finally:
        file.write_text(text)
    assert certificate.objective == "tokens_per_usd" and certificate.gap == 0
    assert certificate.optimum_s == timed.optimum_s and same.rows
    cost = 1e6 * 32 * 2 * certificate.optimum_s / 3600 / (64 * 1024)
    assert certificate.optimum == pytest.approx(cost)
    assert json.dumps(certificate.as_dict())
    assert found.rows
