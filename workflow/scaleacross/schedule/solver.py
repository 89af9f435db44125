"""The optimal order of a pipeline by mixed-integer programming: HiGHS, from the package highspy, an extra.

Start times are continuous, and for every two actions of a rank whose order is open a binary says which comes first.
Equal micro-batches may be numbered in the order they run, so F, B and W of a chunk are first in, first out without
loss. The activation limit L is then linear: of one chunk the F of micro-batch i starts after micro-batch i - L, which
held its slot, is released; with more chunks the forwards before an F outnumber the releases before it by less than L,
both counted by the binaries. A known schedule gives the first solution, and its makespan the big-M of each pair.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

from ..errors import InvalidInput, LimitReached
from .actions import Action, Kind, Schedule, freeze
from .bounds import makespan_lower_bound
from .listing import Problem
from .replay import Replay, replay

_TOLERANCE = 1e-6

Node = tuple[int, Kind, int, int]  # (rank, kind, chunk, micro-batch)


def solve(incumbent: Schedule, problem: Problem, time_limit: float) -> Schedule:
    """The schedule of least makespan, proven; the incumbent itself if nothing is faster.

    Raises:
        InvalidInput: E-SOLVER if highspy is not installed.
        LimitReached: E-SOLVER if no proof comes within ``time_limit`` seconds, with the best found and the bound.
    """
    known = replay(incumbent, problem.f, problem.b, problem.w, problem.delay)
    least = makespan_lower_bound(incumbent, problem.f, problem.b, problem.w, problem.delay)
    if known.makespan <= least * (1 + _TOLERANCE):
        return incumbent
    graph = _Graph.of(problem, known.makespan)
    starts = _optimize(graph, _starts_of(known), least, time_limit)
    grain = known.makespan * _TOLERANCE
    ordered: list[list[Action]] = []
    for rank, row in enumerate(incumbent.actions):
        # Of actions that start together (some take no time) first the one that the other may wait for.
        timed: list[tuple[int, int, int, Action]] = []
        for step in row:
            node = rank, step.kind, step.chunk, step.micro_batch
            timed.append((round(starts[node] / grain), step.micro_batch, _depth_in_chain(problem, node), step))
        ordered.append([entry[3] for entry in sorted(timed, key=lambda entry: entry[:3])])
    found = replace(incumbent, actions=freeze(ordered))
    better = replay(found, problem.f, problem.b, problem.w, problem.delay).makespan < known.makespan
    return found if better else incumbent


@dataclass
class _Graph:
    """Actions, their durations, the gaps that always hold and the windows they leave; pairs whose order is open."""

    problem: Problem
    length: dict[Node, float] = field(default_factory=dict)
    gaps: dict[tuple[Node, Node], float] = field(default_factory=dict)
    earliest: dict[Node, float] = field(default_factory=dict)
    latest: dict[Node, float] = field(default_factory=dict)
    open: list[tuple[Node, Node]] = field(default_factory=list)

    @classmethod
    def of(cls, problem: Problem, makespan: float) -> _Graph:
        graph = cls(problem)
        for node, length in _nodes(problem):
            graph.length[node] = length
        graph.gaps = dict(_dependencies(problem, graph.length))
        pairs = list(_pairs(problem))
        settled = -1
        while settled != len(graph.gaps):
            settled = len(graph.gaps)
            graph._windows(makespan * (1 + _TOLERANCE))
            pairs = [pair for pair in pairs if not graph._settle(*pair)]
        graph.open = pairs
        return graph

    def _windows(self, makespan: float) -> None:
        """Longest paths from the start and to the end."""
        self.earliest = dict.fromkeys(self.length, 0.0)
        self.latest = {node: makespan - length for node, length in self.length.items()}
        changed = True
        while changed:
            changed = False
            for (first, second), gap in self.gaps.items():
                if self.earliest[first] + gap > self.earliest[second] + 1e-12:
                    self.earliest[second], changed = self.earliest[first] + gap, True
                if self.latest[second] - gap < self.latest[first] - 1e-12:
                    self.latest[first], changed = self.latest[second] - gap, True

    def comes_before(self, one: Node, other: Node) -> bool:
        """Whether of two actions of a rank, not open, this one comes first; ``other`` is a forward."""
        upstream = _depth_in_chain(self.problem, one) <= _depth_in_chain(self.problem, other)
        return (one, other) in self.gaps or (one[1] == "F" and upstream and one[3] <= other[3])

    def _settle(self, one: Node, other: Node) -> bool:
        """True if the windows leave one order of the two; it becomes a gap."""
        for first, second in ((one, other), (other, one)):
            if self.earliest[second] + self.length[second] > self.latest[first]:
                self.gaps.setdefault((first, second), self.length[first])
                return True
        return False


def _nodes(problem: Problem) -> Iterator[tuple[Node, float]]:
    for rank, row in enumerate(problem.positions):
        for chunk, place in enumerate(row):
            for m in range(problem.micro_batches):
                yield (rank, "F", chunk, m), problem.f[place]
                yield (rank, "B", chunk, m), problem.b[place] + (0.0 if problem.split else problem.w[place])
                if problem.split:
                    yield (rank, "W", chunk, m), problem.w[place]


def _dependencies(problem: Problem, length: dict[Node, float]) -> Iterator[tuple[tuple[Node, Node], float]]:
    """((first, second), least time from start to start) that hold in every schedule."""
    releasing: Kind = "W" if problem.split else "B"
    owners = {place: (rank, chunk) for rank, row in enumerate(problem.positions) for chunk, place in enumerate(row)}
    for node, took in length.items():
        rank, kind, chunk, m = node
        place = problem.positions[rank][chunk]
        if m + 1 < problem.micro_batches:
            yield (node, (rank, kind, chunk, m + 1)), took
        if kind == "F" and place + 1 == problem.depth:
            yield (node, (rank, "B", chunk, m)), took
        elif kind != "W" and (after := place + (1 if kind == "F" else -1)) >= 0:
            other, its = owners[after]
            yield (node, (other, kind, its, m)), took + (problem.delay[rank][other] if other != rank else 0.0)
        if kind == "B" and problem.split:
            yield (node, (rank, "W", chunk, m)), took
        follower = m + problem.limits[rank]
        if kind == releasing and follower < problem.micro_batches:
            yield (node, (rank, "F", chunk, follower)), took


def _depth_in_chain(problem: Problem, node: Node) -> int:
    """Where an action lies among those of its micro-batch: forwards, backwards, weight gradients."""
    rank, kind, chunk, _ = node
    place = problem.positions[rank][chunk]
    return {"F": place, "B": 2 * problem.depth - 1 - place, "W": 3 * problem.depth - 1 - place}[kind]


def _pairs(problem: Problem) -> Iterator[tuple[Node, Node]]:
    """Pairs on one rank that nothing orders.

    Where one kind of action waits for another of the same micro-batch, a later micro-batch of the first and an earlier
    one of the second; elsewhere (a weight gradient and what it does not belong to) any two.
    """
    kinds: tuple[Kind, ...] = ("F", "B", "W") if problem.split else ("F", "B")
    count = range(problem.micro_batches)
    for rank, row in enumerate(problem.positions):
        heads: list[Node] = [(rank, kind, chunk, 0) for kind in kinds for chunk in range(len(row))]
        heads.sort(key=lambda node: _depth_in_chain(problem, node))
        for first, second in combinations(heads, 2):
            waits = first[1] != "W" and (second[1] != "W" or first[1] == "F" or row[first[2]] >= row[second[2]])
            for one, other in product(count, count):
                if one > other or not waits:
                    yield (*first[:3], one), (*second[:3], other)


def _starts_of(times: Replay) -> dict[Node, float]:
    return {
        (rank, step.kind, step.chunk, step.micro_batch): start
        for rank, row in enumerate(times.ranks)
        for step, start, _ in row
    }


def _optimize(graph: _Graph, known: dict[Node, float], least: float, time_limit: float) -> dict[Node, float]:
    """Start times of a schedule proven to be of least makespan."""
    try:
        import highspy
    except ImportError as error:
        fix = "install the extra: pip install 'scaleacross[solver]', or use solver greedy"
        raise InvalidInput("E-SOLVER", f"solver optimal needs highspy ({error})", fix) from None
    with _stdout_as_stderr():  # HiGHS greets on standard output when made, before it can be told not to
        model: Any = highspy.Highs()
    model.silent()
    for option, value in (("threads", 1), ("time_limit", time_limit), ("mip_rel_gap", _TOLERANCE)):
        model.setOptionValue(option, value)
    start = {node: model.addVariable(lb=graph.earliest[node], ub=graph.latest[node]) for node in graph.length}
    order = [model.addBinary() for _ in graph.open]
    makespan = model.addVariable(lb=least)
    for (first, second), gap in graph.gaps.items():
        model.addConstr(start[second] - start[first] >= gap)
    for node, length in graph.length.items():
        model.addConstr(makespan - start[node] >= length)
    for (one, other), one_first in zip(graph.open, order, strict=True):
        _either_or(model, graph, start, one, other, one_first)
    _limit_activations(model, graph, dict(zip(graph.open, order, strict=True)))
    hint = highspy.HighsSolution()
    ends = [known[node] + length for node, length in graph.length.items()]
    firsts = [float(known[one] < known[other]) for one, other in graph.open]
    hint.col_value = [*(known[node] for node in graph.length), *firsts, max(ends)]
    model.setSolution(hint)
    model.minimize(makespan)
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        info = model.getInfo()
        raise LimitReached(
            "E-SOLVER",
            f"no proof in {time_limit:g} s: best makespan {info.objective_function_value:g}, "
            f"bound {info.mip_dual_bound:g}, {len(order)} open orders",
            "raise time_limit, take fewer stages or micro-batches, or use solver greedy",
        )
    return {node: model.val(variable) for node, variable in start.items()}


@contextlib.contextmanager
def _stdout_as_stderr() -> Iterator[None]:
    """Send what native code prints on standard output to standard error: a command's output stays its own."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _either_or(model: Any, graph: _Graph, start: dict[Node, Any], one: Node, other: Node, one_first: Any) -> None:
    """``one`` ends before ``other`` starts if the binary is 1, the other way round if it is 0."""
    slack = graph.latest[one] + graph.length[one] - graph.earliest[other]
    model.addConstr(start[other] - start[one] - slack * one_first >= graph.length[one] - slack)
    slack = graph.latest[other] + graph.length[other] - graph.earliest[one]
    model.addConstr(start[one] - start[other] + slack * one_first >= graph.length[other])


def _limit_activations(model: Any, graph: _Graph, order: dict[tuple[Node, Node], Any]) -> None:
    """With several chunks: at each F, itself and the forwards before it, less the releases before it, fit the limit."""
    problem = graph.problem
    releasing = "W" if problem.split else "B"
    for rank, limit in enumerate(problem.limits):
        own = [node for node in graph.length if node[0] == rank]
        starting, ending = ([node for node in own if node[1] == kind] for kind in ("F", releasing))
        if len(problem.positions[rank]) == 1 or len(starting) <= limit:
            continue
        for node in starting:
            held: Any = 1
            for sign, others in ((1, starting), (-1, ending)):
                for other in others:
                    if (other, node) in order:
                        held = held + sign * order[other, node]
                    elif (node, other) in order:
                        held = held + sign * (1 - order[node, other])
                    elif other != node and graph.comes_before(other, node):
                        held = held + sign
            if not isinstance(held, int):
                model.addConstr(held <= limit)
