"""Bounds never exceed what is simulated, and a certified search finds what simulating everything finds."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from scaleacross.errors import Infeasible
from scaleacross.schedule import names as schedule_names
from scaleacross.search.bounds import Bounds
from scaleacross.search.certified import Certificate, Search, split
from scaleacross.search.certify_worker import Worker
from scaleacross.search.pieces import serial_end
from scaleacross.search.select import TIME, baseline_row, best, contenders, rules_of
from scaleacross.search.space import Space
from scaleacross.study.design import Designer
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import Study
from scaleacross.study.tables import cell

ROOT = Path(__file__).resolve().parents[2]
MODEL = "{name: tiny, layers: 8, hidden: 1024, heads: 16, kv_heads: 8, ffn: 4096, vocab: 32000}"
MOE = (
    "{name: tiny-moe, layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 2048, vocab: 8000, "
    "moe: {experts: 8, top_k: 2, ffn: 512}}"
)
DEEP = (
    "{name: tiny-deep, layers: 4, hidden: 512, heads: 8, ffn: 2048, vocab: 8000, mtp_modules: 1, "
    "mla: {query_rank: 128, kv_rank: 64, nope_size: 32, rope_size: 16, value_size: 32}, "
    "moe: {experts: 16, top_k: 4, ffn: 256, shared_experts: 1, first_dense_layers: 1, router_bias: true}}"
)
CLUSTER = """
name: tiny-2dc
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: zone, size: 2, bandwidth: 400 Gbps, latency: {{ zone_latency | default("35 us") }}}
  - name: campus
    size: 4
    bandwidth: {{ uplink_bandwidth | default("400 Gbps") }}
    latency: {{ uplink_latency | default("150 us") }}
    oversubscription: "{{ oversubscription }}"
"""
VALUES: dict[str, list[Any]] = {
    "order": [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"], ["tp", "pp", "cp", "dp"]],
    "tp": [1, 2, 4],
    "cp": [1, 2],
    "pp": [1, 2, 4],
    "dp_sharding": ["ddp", "zero1", "zero2", "fsdp", "fsdp-reshard", "hsdp"],
    "dp_overlap": ["none", "backward", "prefetch"],
    "schedule": ["gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipe", "dualpipe-v", "latency-aware"],
    "chunks": [1, 2],
    "micro_batch": [1, 2],
    "recompute": ["none", "selective", "full"],
    "granularity": ["layer", "operator", "block"],
    "bucket_layers": [1, 2],
    "p2p_overlap": [True, False],
    "cp_method": ["all-gather", "ring"],
    "collective": ["ring", "direct", "halving-doubling", "node:direct"],
    "chunk_splits": [1, 4],
    "active_chunks": [1, 2],
    "zone_latency": ["5 us", "35 us"],
    "uplink_bandwidth": ["100 Gbps", "400 Gbps"],
    "uplink_latency": ["75 us", "1 ms"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in {
        "config/models/tiny.yaml": MODEL,
        "config/models/tiny-moe.yaml": MOE,
        "config/models/tiny-deep.yaml": DEEP,
        "config/clusters/tiny-2dc.yaml.j2": CLUSTER,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "config/accelerators").symlink_to(ROOT / "config/accelerators")
    return folder


def study(dimensions: dict[str, list[Any]], **more: Any) -> Study:
    content = {
        "name": "tiny",
        "model": "tiny",
        "cluster": "tiny-2dc",
        "training": {"sequence_length": 1024, "global_batch": 64},
        "dimensions": dimensions,
        "environment": {"oversubscription": ["1:4"]},
        "network_model": "scaleacross",
        "search": "certified",
        **more,
    }
    return Study.model_validate(content)


def worker(made: Study, root: Path, work: Path) -> Worker:
    settings = {"simulator": "embedded", "network_model": made.network_model, "time_limit_s": 60.0}
    return Worker(made, root, work / "traces", work / "configs", settings, None)


class Inline:
    """A pool without processes; ``ahead`` tasks go out before the first comes back."""

    def __init__(self, only: Worker, ahead: int = 2) -> None:
        self.only, self.room = only, ahead

    def submit(self, plan: int, method: str, *arguments: Any) -> Future[Any]:
        del plan
        self.room -= 1
        future: Future[Any] = Future()
        future.set_result(getattr(self.only, method)(*arguments))
        return future

    def done(self, future: Future[Any]) -> None:
        del future
        self.room += 1


def drawn(random_: random.Random, most: int, names: list[str] | None = None) -> dict[str, list[Any]]:
    """A few values of every dimension, ``most`` points at most."""
    dimensions = {name: [random_.choice(VALUES[name])] for name in VALUES}
    points = 1
    for name in random_.sample(names or list(VALUES), len(names or VALUES)):
        count = random_.randint(2, len(VALUES[name]))
        if points * count <= most:
            dimensions[name] = random_.sample(VALUES[name], count)
            points *= count
    return dimensions


def everything(made: Study, only: Worker) -> list[dict[str, Any]]:
    """Rows of all points, as the exhaustive flow has them."""
    space, rows = only.space, []
    for environment in space.environments():
        for plan in range(space.plan_count):
            for number, network in enumerate(space.networks):
                try:
                    only.designer.check_constraints(space.values(environment, space.plan(plan), network))
                    row = only.simulate(environment, plan, number)
                except Infeasible:
                    continue
                if "result" in row:
                    cells = {name: cell(value) for name, value in row.items() if name in made.swept}
                    rows.append({**row, **row["result"], **cells})
    return rows


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
