"""Certified search: the optimum of a study with a proof, from few simulations.

Every point gets a lower bound before it is simulated: first plans, on the best of all networks at once; what remains is
split network dimension by network dimension until single points are left, which are simulated, always the least bound
first. The search ends when no bound is below the best time that was simulated. What was never simulated is then slower
than the optimum, by a bound that tests hold against the simulator; nothing else is assumed.

Every baseline is found in the same search: a point matters as long as its bound is below the best so far of some goal
(the optimum, or a baseline that it matches).
"""

from __future__ import annotations

import heapq
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..errors import InvalidInput
from ..study.tables import Row, cell
from . import certify_worker
from .baselines import BEST_OF, PICKED_BY
from .replay import compile_replay
from .select import TIME
from .space import Space

CHUNK = 16  # plans a task of the first look
AHEAD = 2  # tasks a process has waiting
_TIE = 1e-9

Values = Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Node:
    """Points of one plan on some networks. ``exact``: its bound is that of :meth:`.bounds.Bounds.of_points`."""

    plan: int
    networks: tuple[int, ...]
    exact: bool = False


@dataclass
class Goal:
    """Something to find the best point of: what must hold of a point, and the best time so far.

    ``only``: (plan, network) pairs a cost model has picked, None where it has no say.
    """

    name: str
    fixed: Mapping[str, str] = field(default_factory=dict)
    only: frozenset[tuple[int, int]] | None = None
    best: float = float("inf")


@dataclass
class Certificate:
    """What a search has done in one environment.

    Attributes:
        points: of the environment; infeasible: of them, found so when their plan was checked (all its networks).
        plans, plans_infeasible: combinations of what changes plans. bounds: computed, of plans, groups and points.
        simulated: points (each pair of plan and configuration once); pruned: points never simulated.
        optimum_s; least_bound_s: of anything that was not simulated, None where nothing was left; gap: how far, as a
            share, the optimum could be above the true one, 0 when the search ended by itself.
        seconds: wall time.
    """

    environment: Values
    points: int = 0
    infeasible: int = 0
    plans: int = 0
    plans_infeasible: int = 0
    bounds: int = 0
    simulated: int = 0
    pruned: int = 0
    optimum_s: float | None = None
    least_bound_s: float | None = None
    gap: float = 0.0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``certificate.yaml``."""
        return {**vars(self), "environment": dict(self.environment), "seconds": round(self.seconds, 1)}


class Pool:
    """Processes by number; all tasks of a plan go to the same one."""

    def __init__(self, cores: int, arguments: Sequence[Any]) -> None:
        compile_replay()  # once, before the processes fork
        self.arguments = tuple(arguments)
        self.members = [self._start() for _ in range(cores)]

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(1, context, initializer=certify_worker.start, initargs=self.arguments)

    def submit(self, number: int, function: Any, *arguments: Any) -> Future[Any]:
        """A task for the process of a plan; one that has died is started anew."""
        place = number % len(self.members)
        try:
            return self.members[place].submit(function, *arguments)
        except BrokenExecutor:
            self.members[place] = self._start()
            return self.members[place].submit(function, *arguments)

    def close(self) -> None:
        """End all processes."""
        for member in self.members:
            member.shutdown(wait=False, cancel_futures=True)


class Search:
    """A certified search of a study.

    Args:
        space: of the study. pool: processes that were started with the same study. baselines: of the study.
    """

    def __init__(self, space: Space, pool: Pool, baselines: Mapping[str, Mapping[str, Any]]) -> None:
        self.space, self.pool, self.baselines = space, pool, baselines
        self.plans = list(space.plans())
        self.rows: list[Row] = []
        study = space.designer.study
        self.counted = ("ok", "unphysical") if study.allow_unphysical else ("ok",)
        if study.network_model == "aware" or (study.network_model == "unaware" and study.allow_unphysical):
            model = f"network_model {study.network_model}" + (", allow_unphysical" if study.allow_unphysical else "")
            raise InvalidInput("E-CERTIFIED", f"{model} has no bounds", "use scaleacross, or search: exhaustive")

    def run(self) -> list[Certificate]:
        """Search every environment; ``rows`` then holds what was simulated."""
        return [self._environment(environment) for environment in self.space.environments()]

    # -- one environment -----------------------------------------------------------------------------------------------

    def _environment(self, environment: Values) -> Certificate:
        begun, before = time.monotonic(), len(self.rows)
        certificate = Certificate({name: cell(value) for name, value in environment.items()})
        certificate.points, certificate.plans = self.space.points_an_environment, len(self.plans)
        heap = self._roots(environment, certificate)
        feasible = sum(len(node.networks) for _, _, node in heap)
        certificate.infeasible = certificate.points - feasible
        goals = self._goals(environment, heap)
        left = self._explore(environment, heap, goals, certificate)
        certificate.pruned = feasible - (len(self.rows) - before)
        optimum = goals[0].best
        certificate.optimum_s = optimum if optimum < float("inf") else None
        certificate.least_bound_s = left if left < float("inf") else None
        certificate.gap = max(0.0, optimum / left - 1) if certificate.optimum_s and left < optimum else 0.0
        certificate.seconds = time.monotonic() - begun
        return certificate

    def _roots(self, environment: Values, certificate: Certificate) -> list[tuple[float, int, Node]]:
        """A node for every plan that can exist, as a heap."""
        numbers = iter(range(len(self.plans)))
        chunks = iter(lambda: list(islice(numbers, CHUNK)), [])
        heap: list[tuple[float, int, Node]] = []

        def task(place: int) -> tuple[Future[Any], list[int]] | None:
            mine = next(chunks, None)
            if mine is None:
                return None
            plans = [self.plans[number] for number in mine]
            return self.pool.submit(place, certify_worker.root_bounds, environment, plans), mine

        running: dict[Future[Any], tuple[int, list[int]]] = {}
        for place in range(len(self.pool.members) * AHEAD):
            if (made := task(place)) is not None:
                running[made[0]] = (place, made[1])
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                place, mine = running.pop(future)
                for number, (bound, networks, _) in zip(mine, future.result(), strict=True):
                    if networks:
                        certificate.bounds += 1
                        heap.append((bound, number, Node(number, tuple(networks))))
                    else:
                        certificate.plans_infeasible += 1
                if (made := task(place)) is not None:
                    running[made[0]] = (place, made[1])
        heapq.heapify(heap)
        return heap

    def _goals(self, environment: Values, heap: list[tuple[float, int, Node]]) -> list[Goal]:
        goals = [Goal("optimum")]
        for name, wanted in self.baselines.items():
            if BEST_OF in wanted:
                continue  # found with its members
            goal = Goal(name, {key: cell(value) for key, value in wanted.items() if key != PICKED_BY})
            if PICKED_BY in wanted:
                goal.only = self._picked(environment, goal, heap)
            goals.append(goal)
        return goals

    def _picked(
        self, environment: Values, goal: Goal, heap: list[tuple[float, int, Node]]
    ) -> frozenset[tuple[int, int]]:
        """The points a cost model likes best among those that match."""
        tasks = []
        for _, _, node in heap:
            networks = self._matching(goal, node)
            if networks:
                future = self.pool.submit(
                    node.plan, certify_worker.call, "estimates", environment, self.plans[node.plan], networks
                )
                tasks.append((node.plan, networks, future))
        costs = {
            (plan, network): cost
            for plan, networks, future in tasks
            for network, cost in zip(networks, future.result(), strict=True)
        }
        least = min(costs.values(), default=float("inf"))
        return frozenset(pair for pair, cost in costs.items() if cost <= least * (1 + _TIE) and cost < float("inf"))

    def _matching(self, goal: Goal, node: Node) -> list[int]:
        """Networks of a node on which its points matter to a goal."""
        plan = self.plans[node.plan]
        if any(cell(plan[key]) != value for key, value in goal.fixed.items() if key in plan):
            return []
        on_network = {key: value for key, value in goal.fixed.items() if key not in plan}
        return [
            number
            for number in node.networks
            if (goal.only is None or (node.plan, number) in goal.only)
            and all(cell(self.space.networks[number].get(key)) == value for key, value in on_network.items())
        ]

    def _limit(self, node: Node, goals: Sequence[Goal]) -> float:
        """Bounds below this matter to some goal."""
        return max((goal.best for goal in goals if self._matching(goal, node)), default=0.0)

    def _explore(
        self, environment: Values, heap: list[tuple[float, int, Node]], goals: list[Goal], certificate: Certificate
    ) -> float:
        """Take nodes off the heap until none matters; the least bound of what was not simulated."""
        running: dict[Future[Any], Node] = {}
        seen: set[tuple[str, str]] = set()
        least, room = float("inf"), len(self.pool.members) * AHEAD
        while heap or running:
            while heap and len(running) < room:
                bound, _, node = heapq.heappop(heap)
                if bound >= self._limit(node, goals):
                    least = min(least, bound)
                    continue
                running.update(self._tasks(environment, node))
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                node = running.pop(future)
                if len(node.networks) == 1 and node.exact:
                    self._enter(self._result(future, environment, node), node, goals, seen, certificate)
                    continue
                certificate.bounds += 1
                bound = future.result()
                if bound < float("inf"):
                    heapq.heappush(heap, (bound, node.plan, Node(node.plan, node.networks, True)))
        return least

    def _tasks(self, environment: Values, node: Node) -> Iterator[tuple[Future[Any], Node]]:
        """What to do with a node: simulate a single point, else bound its parts."""
        plan = self.plans[node.plan]
        if len(node.networks) == 1 and node.exact:
            arguments = ("simulate", environment, plan, node.networks[0])
            yield self.pool.submit(node.plan, certify_worker.call, *arguments), node
            return
        for part in [node.networks] if not node.exact else split(self.space, node.networks):
            future = self.pool.submit(node.plan, certify_worker.call, "bound", environment, plan, part)
            yield future, Node(node.plan, part)

    def _result(self, future: Future[Any], environment: Values, node: Node) -> Row:
        try:
            return dict(future.result())
        except BrokenExecutor:
            point = self.space.point(environment, self.plans[node.plan], self.space.networks[node.networks[0]])
            lost = {"status": "crash", "reason": "E-PROCESS: the simulating process ended"}
            return {"point_id": point.point_id, **point.values, "result": lost}

    def _enter(
        self, row: Row, node: Node, goals: list[Goal], seen: set[tuple[str, str]], certificate: Certificate
    ) -> None:
        self.rows.append(row)
        result = row.get("result") or {}
        key = (str(row.get("plan_id")), str(row.get("config_id")))
        certificate.simulated += key not in seen
        seen.add(key)
        if result.get("status") in self.counted and result.get(TIME) is not None:
            for goal in goals:
                if self._matching(goal, node):
                    goal.best = min(goal.best, result[TIME])


def split(space: Space, networks: Sequence[int]) -> list[tuple[int, ...]]:
    """Parts of some networks, by the first dimension in which they differ."""
    for name in space.network_names:
        parts: dict[str, list[int]] = {}
        for number in networks:
            parts.setdefault(cell(space.networks[number][name]), []).append(number)
        if len(parts) > 1:
            return [tuple(part) for part in parts.values()]
    return [tuple(networks)]
