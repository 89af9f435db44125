"""The thresholds of a designed study's headline optimum, on all cores: which numbers to vary, against which designs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

from ..cluster import Cluster
from ..study.schema import Study
from ..study.tables import Row, cell
from .objective import ITERATION_TIME
from .select import TIME, best, contenders, environments, rules_of
from .thresholds import NOISE, REACH, TIE, Candidate, Race, along, end_of, less_memory, more_memory
from .whatif import AllBetter, Bench, Quantity, quantities

_state: list[tuple[Bench, Sequence[Candidate], Candidate, Sequence[str]]] = []


def thresholds(
    content: Mapping[str, Any],
    rows: Sequence[Row],
    traces: Path,
    cores: int,
    certificate: Mapping[str, Any] | None,
    root: Path = Path(),
) -> dict[str, Any]:
    """What would change the choice in the headline environment, as plain data.

    Args:
        content: ``design/study.json``. rows: of ``results.csv``. traces: folder of the study's traces.
        certificate: of a certified search, None where every point was simulated.

    Returns:
        ``looked_at`` in words, ``model_noise_pct``; ``network``: an entry a number and direction where another design
        wins, the nearest first; ``unchanged``: the others; ``memory``: ``less`` and ``more``; ``note`` alone where
        there is nothing to find.
    """
    study = Study.model_validate(content["study"])
    if not study.thresholds:
        return {"note": "thresholds were not looked for (thresholds: false)"}
    rules = rules_of(content["study"])
    environment = next(environments(rules))
    ranked = contenders(rows, rules, environment)
    first = best(ranked, rules.objective)
    if first is None:
        return {"note": "no winner"}
    if study.require:
        return {"note": "thresholds are not looked for in a study that requires something of outcomes"}
    if rules.objective is not ITERATION_TIME:
        return {"note": f"thresholds are of the iteration time, the study's objective is {rules.objective.name}"}
    dimensions = [name for name in content["dimension_columns"] if name not in rules.environment]
    known = {name: {cell(value): value for value in values} for name, values in study.swept.items()}
    winner, others = _candidate(first, known), [_candidate(row, known) for row in _distinct(ranked, first)]
    others = [other for other in others if float(other.row.get("compute_s") or 0.0) < winner.seconds]
    misses = list(_misses(rows, environment, known)) if certificate is None else []
    bench = (study, traces, float(content["run_settings"]["time_limit_s"]), root)
    arguments = (bench, others, winner, dimensions)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max(1, cores), context, initializer=_start, initargs=arguments) as pool:
        floors = list(pool.map(_floor, range(len(others)), chunksize=4))
        cluster = pool.submit(_cluster).result()
        turns = [(tier.name, better, floors) for tier in cluster.tiers for better in (False, True)]
        more = pool.submit(_more, misses) if misses else None
        done = list(pool.map(_turn, turns))
        found = [entry for entries, _ in done for entry in entries]
        memory: dict[str, Any] = {"less": less_memory(first, ranked, dimensions)}
        memory["more"] = more.result()[0] if more is not None else {}
        simulations = sum(count for _, count in done) + (0 if more is None else more.result()[1])
    changed = sorted((entry for entry in found if "wins" in entry), key=_distance)
    result: dict[str, Any] = {
        "winner": first["point_id"],
        "looked_at": _words(len(others), certificate),
        "tie_pct": 100 * TIE,
        "model_noise_pct": round(100 * NOISE, 6),
        "simulations": simulations,
        "network": [_with_proof(entry, certificate) for entry in changed],
        "unchanged": [entry for entry in found if "wins" not in entry],
        "memory": memory,
    }
    if certificate is not None:
        memory["more"] = {"looked_at": 0, "note": "a certified search keeps no design that lacks memory"}
    return result


def _words(others: int, certificate: Mapping[str, Any] | None) -> str:
    designs = (
        f"the winner against {others} other designs of the headline environment"
        if certificate is None
        else f"the winner against {others} other designs that the search simulated in the headline environment; those "
        "it ruled out were ruled out on the network as it is (certified: the threshold holds against them too)"
    )
    return (
        f"one number at a time, within {REACH:g} times of what it is, on the embedded engine: {designs}; times are "
        "taken to be monotone in the network, and a winner that still wins at the end of the reach to win up to there"
    )


def _with_proof(entry: dict[str, Any], certificate: Mapping[str, Any] | None) -> dict[str, Any]:
    """Whether a threshold holds against points that a search never simulated.

    On a worse network they are at least as slow as their bound on the network as it is.
    """
    if certificate is None:
        return entry
    least = certificate["environments"][0].get("least_bound_s")
    quantity = Quantity(entry["tier"], entry["quantity"])
    worse = not quantity.better(entry["wins"]["factor"])
    return {**entry, "certified": least is None or (worse and entry["wins"]["winner_time_s"] <= least)}


def _distance(entry: Mapping[str, Any]) -> float:
    return abs(log(entry["wins"]["factor"]))


def _candidate(row: Row, known: Mapping[str, Mapping[str, Any]]) -> Candidate:
    return Candidate({name: values[str(row[name])] for name, values in known.items()}, row)


def _distinct(ranked: Sequence[Row], winner: Row) -> Iterator[Row]:
    """The others, fastest first; one of those that are the same plan on the same configuration."""
    seen = {(winner["plan_id"], winner["config_id"])}
    for row in sorted(ranked, key=lambda row: (row[TIME], row["point_id"])):
        key = (row["plan_id"], row["config_id"])
        if key not in seen:
            seen.add(key)
            yield row


def _misses(
    rows: Sequence[Row], environment: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[Candidate]:
    """Points that only lack memory."""
    for row in rows:
        here = all(row.get(name) == value for name, value in environment.items())
        if here and row["status"] == "infeasible" and str(row["reason"]).startswith("E-MEMORY"):
            yield _candidate(row, known)


# -- in the processes --------------------------------------------------------------------------------------------------


def _start(
    bench: tuple[Study, Path, float, Path], others: Sequence[Candidate], winner: Candidate, dimensions: Sequence[str]
) -> None:
    _state[:] = [(Bench(*bench), others, winner, dimensions)]
    multiprocessing.util.Finalize(None, _state[0][0].close, exitpriority=10)


def _cluster() -> Cluster:
    bench, _, winner, _ = _state[0]
    return bench.designer.setting(winner.values).cluster


def _floor(number: int) -> float:
    bench, others, _, _ = _state[0]
    return bench.bound(others[number].values, AllBetter(REACH))


def _turn(turn: tuple[str, bool, Sequence[float]]) -> tuple[list[dict[str, Any]], int]:
    """Every number of one tier, for the better or for the worse, and the simulations it took."""
    tier, better, floors = turn
    bench, others, winner, dimensions = _state[0]
    cluster = _cluster()
    before = bench.simulations
    able: Sequence[Candidate] = others
    if better:
        able = list(_able(tier, floors, winner.seconds / (1 + TIE)))
    entries = []
    for quantity in quantities(cluster):
        end = end_of(quantity, cluster, (quantity.name == "bandwidth") == better)
        if quantity.tier == tier and end is not None:
            race = Race(bench, winner, able, quantity, end)
            entries.append(along(race, cluster, dimensions))
    return entries, bench.simulations - before


def _able(tier: str, floors: Sequence[float], limit: float) -> Iterator[Candidate]:
    """The designs that may get below a time when a tier gets better, with what they cannot get below."""
    bench, others, _, _ = _state[0]
    change = AllBetter(REACH, tier)
    for other, floor in zip(others, floors, strict=True):
        if floor < limit and bench.bound(other.values, change) < limit:
            time = bench.seconds(other.values, change)
            if time < limit:
                yield replace(other, floor=time)


def _more(misses: Sequence[Candidate]) -> tuple[dict[str, Any], int]:
    bench, _, winner, dimensions = _state[0]
    before = bench.simulations
    return more_memory(bench, winner, misses, dimensions), bench.simulations - before
