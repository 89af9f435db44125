"""Certified search: the optimum of a study with a proof, from few simulations.

Constraints come first, for all combinations at once (:mod:`.screen`). Every plan they leave gets a floor
(:mod:`.floor`); the least one is then checked (rules, memory) and bounded on the best of all networks, with their
algorithms, and split network dimension by network dimension until single points are left, which are simulated: always
the least bound first. The search ends when no bound is below the best score that was simulated. What was never
simulated is then worse than the optimum, by a bound that tests hold against the simulator; nothing else is assumed.

Every baseline is found in the same search: a point matters as long as its bound is below the best so far of some goal
(the optimum, or a baseline that it matches). Which points are simulated before the best ones are known depends on how
many processes there are; the rows that are kept, the optimum and the least bound do not: a row is kept where its bound
is below the final best of a goal.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import Progress
from ..study.outcomes import requirements
from ..study.tables import Row, cell
from .batch import LASTING
from .certificate import Certificate
from .goals import Goal, goals_of
from .objective import OBJECTIVES, TIME
from .outcomes import with_outcomes
from .pool import Pool
from .screen import Screen
from .space import Space, split

CHUNK = 64  # plans a task of the first look
INFINITE = float("inf")
FAILED = frozenset({"timeout", "deadlock", "crash", "invalid"})
_TIE = 1e-9
FLOOR, LOOKED, EXACT = range(3)

Values = Mapping[str, Any]
Task = tuple[str, "Node"]  # method of the worker, what the node becomes


@dataclass(frozen=True, order=True)
class Node:
    """Points of one plan on some networks. ``stage``: what its bound is, of :meth:`.bounds.Bounds.floor`, ``of_plan``
    or ``of_points``."""

    bound: float
    plan: int
    networks: tuple[int, ...]
    stage: int = FLOOR


@dataclass(slots=True)
class Fate:
    """What became of a plan's points; ``bound``: the least of those that were not simulated."""

    points: int
    bound: float = INFINITE
    simulated: int = 0
    infeasible: int = 0
    reason: str = ""

    @property
    def status(self) -> str:
        """Of the row in the table of plans."""
        if self.infeasible == self.points:
            return "infeasible"
        if not self.simulated:
            return "pruned"
        return "simulated" if self.simulated + self.infeasible == self.points else "partly simulated"


@dataclass
class Stream:
    """Plans with a floor, the least first: arrays, and how far they have been taken."""

    floors: NDArray[np.float64]
    plans: NDArray[np.int64]
    masks: NDArray[np.int64]
    place: int = 0


@dataclass
class Found:
    """A search in one environment while it goes on."""

    environment: Values
    certificate: Certificate
    goals: list[Goal]
    screen: Screen
    stream: Stream
    fates: dict[int, Fate] = field(default_factory=dict)
    heap: list[Node] = field(default_factory=list)
    taken: list[Node] = field(default_factory=list)
    rows: list[tuple[Node, Row]] = field(default_factory=list)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    retried: set[Node] = field(default_factory=set)
    least: float = INFINITE


class Search:
    """A certified search of a study.

    Args:
        space: of the study. pool: processes that were started with the same study. baselines: of the study.
        seconds: for the whole search; what is known then is the result, with its gap.
        keep: called with every row as soon as it is there.

    Attributes:
        rows: what was simulated and matters.
    """

    def __init__(
        self,
        space: Space,
        pool: Pool,
        baselines: Mapping[str, Mapping[str, Any]],
        seconds: float = INFINITE,
        keep: Any = None,
    ) -> None:
        self.space, self.pool, self.baselines, self.keep = space, pool, baselines, keep
        self.end = time.monotonic() + seconds
        self.rows: list[Row] = []
        self._ended: list[Found] = []
        study = space.designer.study
        first = space.designer.setting({name: values[0] for name, values in space.swept.items()})
        self.tiers = [tier.name for tier in first.cluster.tiers]
        self.wanted = requirements(study.require, self.tiers)
        self.objective = OBJECTIVES[study.objective]
        self.counted = ("ok", "unphysical") if study.allow_unphysical else ("ok",)
        self.progress = Progress(f"search {study.name}")

    def run(self) -> list[Certificate]:
        """Search every environment; ``rows`` then holds what was simulated."""
        return [self._environment(environment) for environment in self.space.environments()]

    def _environment(self, environment: Values) -> Certificate:
        begun = time.monotonic()
        shown = {name: cell(value) for name, value in environment.items()}
        certificate = Certificate(shown, self.space.points_an_environment, plans=self.space.plan_count)
        certificate.objective = self.objective.name
        found = self._roots(environment, certificate)
        for goal in found.goals:
            if goal.picks:
                goal.only = self._picked(found, goal)
        self._explore(found)
        self._close(found)
        certificate.seconds = time.monotonic() - begun
        return certificate

    # -- plans and their floors ----------------------------------------------------------------------------------------

    def _roots(self, environment: Values, certificate: Certificate) -> Found:
        """Every plan that constraints leave, with its floor."""
        screen = Screen(self.space, environment)
        blocks = []
        for done, block in enumerate(screen.blocks(), start=1):
            blocks.append(block)
            if self.progress.is_due:
                left = sum(len(numbers) for numbers, _ in blocks)
                self.progress.tell(f"{done} blocks of {self.space.plan_count:,} plans screened, {left:,} left")
        plans, masks = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        certificate.excluded = sum(entry.points for entry in screen.excluded.values())
        certificate.infeasible, certificate.plans_left = certificate.excluded, len(plans)
        certificate.reasons = {text: entry.points for text, entry in screen.excluded.items()}
        nothing = Stream(np.zeros(len(plans)), plans, masks)
        found = Found(environment, certificate, list(goals_of(self.space, self.baselines)), screen, nothing)
        floors = self._floors(found, plans, masks)
        order = np.lexsort((plans, floors))
        order = order[np.isfinite(floors[order])]
        found.stream = Stream(floors[order], plans[order], masks[order])
        return found

    def _floors(self, found: Found, plans: NDArray[np.int64], masks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The floor of every plan, infinite for one that cannot exist."""
        sizes = [int(mask.sum()) for mask in found.screen.masks]
        floors = np.full(len(plans), INFINITE)
        starts = iter(range(0, len(plans), CHUNK))
        running: dict[Future[Any], int] = {}
        done_plans = 0
        while True:
            while self.pool.room > 0 and (start := next(starts, None)) is not None:
                mine = plans[start : start + CHUNK].tolist()
                running[self.pool.submit(-1 - start, "floors", found.environment, mine)] = start
            if not running:
                return floors
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                self.pool.done(future)
                start = running.pop(future)
                for offset, value in enumerate(future.result()):
                    if isinstance(value, str):
                        plan = int(plans[start + offset])
                        found.fates[plan] = Fate(sizes[masks[start + offset]])
                        self._infeasible(found, plan, value)
                    else:
                        floors[start + offset] = value
                done_plans += min(CHUNK, len(plans) - start)
            self.progress.tell(f"floors of {done_plans:,} of {len(plans):,} plans")

    @staticmethod
    def _infeasible(found: Found, plan: int, reason: str, points: int = 0) -> None:
        """Enter that a plan cannot exist, or ``points`` of it."""
        fate, certificate = found.fates[plan], found.certificate
        lost = points or fate.points
        fate.infeasible += lost
        fate.reason = sys.intern(reason)
        certificate.infeasible += lost
        certificate.plans_infeasible += fate.infeasible == fate.points
        key = reason.partition(":")[0]
        certificate.reasons[key] = certificate.reasons.get(key, 0) + lost

    def _picked(self, found: Found, goal: Goal) -> frozenset[tuple[int, int]]:
        """The points a cost model likes best among those that match."""
        matching = []
        for plan, mask in zip(found.stream.plans, found.stream.masks, strict=True):
            networks = goal.matching(int(plan), np.flatnonzero(found.screen.masks[mask]).tolist())
            if networks:
                matching.append((int(plan), networks))
        costs: dict[tuple[int, int], float] = {}
        waiting, running = iter(matching), {}
        while True:
            while self.pool.room > 0 and (one := next(waiting, None)) is not None:
                running[self.pool.submit(one[0], "estimates", found.environment, *one)] = one
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                self.pool.done(future)
                plan, networks = running.pop(future)
                costs.update({(plan, n): cost for n, cost in zip(networks, future.result(), strict=True)})
            self.progress.tell(f"{goal.name}: {len(costs):,} estimates for {len(matching):,} plans")
        least = min(costs.values(), default=INFINITE)
        return frozenset(pair for pair, cost in costs.items() if cost <= least * (1 + _TIE) and cost < INFINITE)

    # -- exploring -----------------------------------------------------------------------------------------------------

    def _explore(self, found: Found) -> None:
        """Take the least bound until none matters, or time is up."""
        running: dict[Future[Any], Task] = {}
        while True:
            late = time.monotonic() >= self.end
            while not late and self.pool.room > 0 and (node := self._next(found)) is not None:
                running.update(self._tasks(found, node))
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                self.pool.done(future)
                kind, node = running.pop(future)
                if kind == "simulate":
                    self._simulated(found, future, node)
                else:
                    self._bounded(found, future.result(), node)
            if self.progress.is_due:
                self._tell(found)
        left = self._next(found)
        if left is not None:
            found.certificate.ended = "time limit"
            heapq.heappush(found.heap, left)

    def _next(self, found: Found) -> Node | None:
        """The node with the least bound that matters; those before it are done with."""
        stream = found.stream
        while True:
            floor = stream.floors[stream.place] if stream.place < len(stream.plans) else INFINITE
            if found.heap and found.heap[0].bound <= floor:
                node = heapq.heappop(found.heap)
            elif floor < INFINITE:
                networks = np.flatnonzero(found.screen.masks[stream.masks[stream.place]]).tolist()
                node = Node(float(floor), int(stream.plans[stream.place]), tuple(networks))
                stream.place += 1
                found.fates[node.plan] = Fate(len(networks))
            else:
                return None
            if node.bound < self._limit(found, node):
                found.taken.append(node)
                return node
            self._leave(found, node)

    def _limit(self, found: Found, node: Node) -> float:
        """Bounds below this matter to some goal."""
        return max((goal.best for goal in found.goals if goal.matters(node.plan, node.networks)), default=0.0)

    @staticmethod
    def _leave(found: Found, node: Node) -> None:
        fate = found.fates[node.plan]
        fate.bound = min(fate.bound, node.bound)
        found.least = min(found.least, node.bound)

    def _tasks(self, found: Found, node: Node) -> Iterator[tuple[Future[Any], Task]]:
        """What to do with a node: simulate a single point, else bound it better, or its parts."""
        method, parts = ("look" if node.stage == FLOOR else "bound"), [node.networks]
        if node.stage == EXACT:
            method, parts = (
                ("simulate", parts) if len(node.networks) == 1 else ("bound", split(self.space, node.networks))
            )
        for part in parts:
            arguments = (found.environment, node.plan, part[0] if method == "simulate" else part)
            after = replace(node, networks=part, stage=min(EXACT, node.stage + 1))
            yield self.pool.submit(node.plan, method, *arguments), (method, after)

    def _bounded(self, found: Found, value: float | str, node: Node) -> None:
        found.certificate.bounds += 1
        if isinstance(value, str):
            self._infeasible(found, node.plan, value, len(node.networks))
        else:
            heapq.heappush(
                found.heap, replace(node, bound=max(node.bound, value))
            )  # a part is no better than the whole

    def _simulated(self, found: Found, future: Future[Any], node: Node) -> None:
        row, certificate = self._row(found, future, node), found.certificate
        result = row.get("result") or {}
        if result.get("status") in FAILED and result["status"] not in LASTING and node not in found.retried:
            found.retried.add(node)  # it may have been the machine: a first compilation, another process
            heapq.heappush(found.heap, node)
            return
        found.rows.append((node, row))
        found.fates[node.plan].simulated += 1
        key = (str(row.get("plan_id")), str(row.get("config_id")))
        certificate.simulated += key not in found.pairs
        found.pairs.add(key)
        if self.keep is not None:
            self.keep(row)
        if result.get("status") in FAILED:
            certificate.failed += 1
            found.least = min(found.least, node.bound)
        whole = {**row, **result}
        judged = with_outcomes(whole, self.wanted, self.tiers) if result.get(TIME) is not None else whole
        if judged.get("status") in self.counted and judged.get(TIME) is not None:
            score = self.objective.score(judged)
            for goal in found.goals:
                if score < goal.best and goal.matters(node.plan, node.networks):
                    goal.best, goal.best_row = score, judged

    def _row(self, found: Found, future: Future[Any], node: Node) -> Row:
        try:
            return dict(future.result())
        except BrokenExecutor:
            plan, network = self.space.plan(node.plan), self.space.networks[node.networks[0]]
            point = self.space.point(found.environment, plan, network)
            lost = {"status": "crash", "reason": "E-PROCESS: the simulating process ended"}
            return {"point_id": point.point_id, **point.values, "result": lost}

    def _tell(self, found: Found) -> None:
        certificate, best = found.certificate, found.goals[0].best
        stream = found.stream
        bounds = [*(node.bound for node in found.heap[:1]), *stream.floors[stream.place : stream.place + 1].tolist()]
        least = min(bounds, default=INFINITE)
        self.progress.tell(
            f"{stream.place:,} of {len(stream.plans):,} plans looked at, {certificate.bounds:,} bounds, "
            f"{certificate.simulated} simulated, best {best:.4f}, least bound {least:.4f} {self.objective.unit}"
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close(self, found: Found) -> None:
        """Account for what was not looked at, keep the rows that matter, and judge."""
        certificate, optimum = found.certificate, found.goals[0]
        for node in found.heap:
            self._leave(found, node)
        # Looked at only because the best was not known yet: their bounds count as if they had been left.
        found.least = min(
            [found.least, *(node.bound for node in found.taken if node.bound >= self._limit(found, node))]
        )
        rest = found.stream.floors[found.stream.place :]
        found.least = min(found.least, *rest[:1].tolist(), INFINITE)
        simulated = sum(fate.simulated for fate in found.fates.values())
        certificate.pruned = certificate.points - certificate.infeasible - simulated
        certificate.judge(optimum.best, float(optimum.best_row.get(TIME, INFINITE)), found.least)
        self.rows += [row for node, row in found.rows if node.bound < self._limit(found, node)]
        self._ended.append(found)

    def fates(self) -> Iterator[tuple[Values, int, Fate]]:
        """(environment, plan's number, what became of its points) of every plan that constraints leave, in order."""
        for found in self._ended:
            stream, known = found.stream, found.fates
            sizes = [int(mask.sum()) for mask in found.screen.masks]
            columns = (part[stream.place :].tolist() for part in (stream.plans, stream.floors, stream.masks))
            later = sorted(zip(*columns, strict=True))
            for plan, fate in heapq.merge(
                sorted(known.items(), key=lambda item: item[0]),
                ((plan, Fate(sizes[mask], floor)) for plan, floor, mask in later),
                key=lambda item: item[0],
            ):
                yield found.environment, plan, fate
