"""What a study says of results: objective, requirements on outcomes, fronts; and the prices a point's cost needs.

An *outcome* is a numeric column of ``results.csv``. The data dictionary (``report.columns``) describes them all; this
module names those that a study may use, and a test holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..cluster import Cluster
from ..cluster.cost import Rates, missing_prices
from ..errors import InvalidInput, did_you_mean
from .expressions import Expression, parse_expression
from .schema import Study
from .tables import Row

#: Outcomes that exist only where the cluster file has prices.
COST = ("usd_per_hour", "usd_per_iteration", "tokens_per_usd")
#: Outcomes of which more is better; of all others, less.
MORE_IS_BETTER = frozenset({"tokens_per_s", "tflops_per_gpu", "mfu", "tokens_per_usd"})
#: What the iteration time is made of.
PARTS = (
    "compute_s",
    "exposed_tp_s",
    "exposed_cp_s",
    "exposed_ep_s",
    "exposed_pp_s",
    "exposed_dp_s",
    "exposed_other_s",
    "idle_s",
)
#: Time, speed, cost and memory of a point.
MEASURED = (
    "iteration_time_s",
    "tokens_per_s",
    "tflops_per_gpu",
    "mfu",
    "gpus",
    "usd_per_hour",
    "usd_per_iteration",
    "tokens_per_usd",
    "energy_kwh_per_iteration",
    "memory_gib",
)
#: Outcomes that can be traded against one another.
TRADED = (*MEASURED, *PARTS)
#: Further outcomes that a requirement may read.
ALSO_REQUIRED = ("memory_limit_gib", "memory_stage", "bound_ratio")
#: In a front: traffic across the outermost tier, whatever the cluster calls it.
CUT = "cut"
#: Columns of ``points.csv`` from which the cost of a point follows once it was simulated.
RATE_COLUMNS = ("gpus", "usd_per_hour", "power_kw", "egress_usd_per_gb")

_OBJECTIVES = {"iteration_time": "iteration_time_s", "tokens_per_usd": "tokens_per_usd"}


def objective_column(study: Study) -> str:
    """Column of ``results.csv`` that a study's objective is about."""
    return _OBJECTIVES[study.objective]


def traffic_columns(tiers: Sequence[str], kind: str = "sent") -> list[str]:
    """Columns of every tier's traffic, inner to outer: ``sent`` by a GPU on it, or ``cut``, through a unit of it."""
    return [f"{kind}_{tier.replace('-', '_')}_gb" for tier in tiers]


def all_traffic(tiers: Sequence[str]) -> list[str]:
    """Columns of traffic of both kinds."""
    return [*traffic_columns(tiers), *traffic_columns(tiers, "cut")]


def requirements(texts: Iterable[str], tiers: Sequence[str]) -> list[Expression]:
    """The checked expressions of ``require``.

    Raises:
        InvalidInput: E-REQUIRE for a name that is no outcome (did you mean), a construct that expressions do not have.
    """
    known = [*TRADED, *ALSO_REQUIRED, *all_traffic(tiers), *(f"busy_{tier.replace('-', '_')}" for tier in tiers)]
    found = []
    for number, text in enumerate(texts):
        try:
            found.append(parse_expression(text, known))
        except InvalidInput as error:
            fix = f"{error.fix} (require reads columns of results.csv; constraints read the study's own keys)"
            raise InvalidInput("E-REQUIRE", f"require.{number}: {error.clash}", fix) from None
    return found


def fronts(study: Study, tiers: Sequence[str]) -> list[list[str]]:
    """The columns of every Pareto front of a study: those it names, else its objective against memory and cut traffic.

    Where the objective is about cost, it is also traded against time.

    Raises:
        InvalidInput: E-PARETO for a column that cannot be traded (did you mean), or one that is there twice.
    """
    first, outermost = objective_column(study), traffic_columns(tiers, "cut")[-1]
    if study.pareto is None:
        time = [] if first == "iteration_time_s" else [[first, "iteration_time_s"]]
        return [*time, [first, "memory_gib"], [first, outermost]]
    known = [*TRADED, CUT, *all_traffic(tiers)]
    found = []
    for number, front in enumerate(study.pareto):
        for name in front:
            if name not in known:
                clash = f"pareto.{number}: {name!r} is no column of results.csv that can be traded"
                raise InvalidInput("E-PARETO", clash, did_you_mean(name, known))
        columns = [outermost if name == CUT else name for name in front]
        if len(columns) < 2 or len(set(columns)) < len(columns):
            clash = f"pareto.{number}: {front} does not name two or more different columns"
            raise InvalidInput("E-PARETO", clash, "write for example [iteration_time_s, memory_gib]")
        found.append(columns)
    return found


def check_outcomes(study: Study, cluster: Cluster) -> None:
    """Refuse what a study says of outcomes that no result can have.

    Raises:
        InvalidInput: E-REQUIRE, E-PARETO as above; E-PRICE as :func:`check_prices`.
    """
    tiers = [tier.name for tier in cluster.tiers]
    requirements(study.require, tiers)
    fronts(study, tiers)
    check_prices(study, cluster)


def check_prices(study: Study, cluster: Cluster) -> None:
    """Refuse a cluster that lacks a price which the study's objective, fronts or requirements need.

    Raises:
        InvalidInput: E-PRICE with the key of the study, the cluster file and what it lacks.
    """
    missing = missing_prices(cluster)
    reader = next(_readers_of_cost(study, [tier.name for tier in cluster.tiers]), None) if missing else None
    if reader is not None:
        raise InvalidInput(
            "E-PRICE",
            f"{reader} needs the cost of an hour, and config/clusters/{study.cluster}.yaml.j2 has no "
            + ", no ".join(missing),
            "write for example price: 2 usd/hour (of a GPU) into it, with its source",
        )


def _readers_of_cost(study: Study, tiers: Sequence[str]) -> Iterator[str]:
    """Keys of the study that read an outcome which exists only with prices."""
    if objective_column(study) in COST:
        yield f"objective: {study.objective}"
    for number, expression in enumerate(requirements(study.require, tiers)):
        if expression.names & set(COST):
            yield f"require.{number}"
    for number, front in enumerate(study.pareto or []):
        if set(front) & set(COST):
            yield f"pareto.{number}"


def rate_columns(rates: Rates) -> dict[str, Any]:
    """The rates of a point's cluster as cells of ``points.csv``; empty where there is no price or power."""
    egress = {tier.replace("-", "_"): price * 1e9 for tier, price in rates.egress.items()}
    return {
        "gpus": rates.gpus,
        "usd_per_hour": rates.usd_per_hour,
        "power_kw": None if rates.watts is None else rates.watts / 1e3,
        "egress_usd_per_gb": json.dumps(egress) if egress else None,
    }


def rates_from(row: Row) -> Rates:
    """The rates of a row of ``points.csv``, read back; tiers are named as in columns (``_`` for ``-``)."""
    hourly, power, egress = (row.get(name) or None for name in RATE_COLUMNS[1:])
    return Rates(
        gpus=int(float(row["gpus"])),
        usd_per_hour=None if hourly is None else float(hourly),
        watts=None if power is None else float(power) * 1e3,
        egress={tier: price / 1e9 for tier, price in json.loads(egress).items()} if egress else {},
    )


def judged(row: Row, wanted: Sequence[Expression]) -> Mapping[str, str]:
    """``status`` and ``reason`` of a simulated row that misses a requirement, else nothing.

    Raises:
        InvalidInput: E-EXPRESSION for one whose operands clash.
    """
    for expression in wanted:
        unknown = sorted(name for name in expression.names if row.get(name) in (None, ""))
        if unknown:
            clash = f"{expression.text} cannot be judged: the simulator tells no {', '.join(unknown)}"
            return {"status": "rejected", "reason": f"E-REQUIRE: {clash}"}
        values = {name: float(row[name]) for name in expression.names}
        if not expression.evaluate(values):
            used = ", ".join(f"{name} = {values[name]:g}" for name in sorted(values))
            clash = f"{expression.text} is not met by {used}"
            return {"status": "rejected", "reason": f"E-REQUIRE: {clash}; the study requires it"}
    return {}
