"""The optimal order of a one-chunk pipeline by mixed-integer programming: HiGHS, from the package highspy, an extra.

Start times are continuous, and for every two actions of a rank whose order is open a binary says which comes first.
Equal micro-batches may be numbered in the order they run, so F, B and W are first in, first out without loss; then the
activation limit L is linear: the F of micro-batch i starts after micro-batch i - L, which held its slot, is released. A
known schedule gives the first solution, and its makespan the big-M of each pair.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidInput, LimitReached
from .actions import Action, Kind, Schedule, freeze
from .bounds import makespan_lower_bound
from .listing import Problem
from .replay import Replay, replay

_TOLERANCE = 1e-6

Node = tuple[int, Kind, int]  # (rank, kind, micro-batch)


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
    ordered: list[list[Action]] = []
    for rank, row in enumerate(incumbent.actions):
        timed = [(starts[rank, step.kind, step.micro_batch], step.kind, step.micro_batch, step) for step in row]
        ordered.append([entry[3] for entry in sorted(timed, key=lambda entry: entry[:3])])
    found = Schedule(incumbent.name, incumbent.stages, incumbent.micro_batches, 1, freeze(ordered), incumbent.positions)
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

    def _settle(self, one: Node, other: Node) -> bool:
        """True if the windows leave one order of the two; it becomes a gap."""
        for first, second in ((one, other), (other, one)):
            if self.earliest[second] + self.length[second] > self.latest[first]:
                self.gaps.setdefault((first, second), self.length[first])
                return True
        return False


def _nodes(problem: Problem) -> Iterator[tuple[Node, float]]:
    for rank in range(problem.stages):
        for m in range(problem.micro_batches):
            yield (rank, "F", m), problem.f[rank]
            yield (rank, "B", m), problem.b[rank] + (0.0 if problem.split else problem.w[rank])
            if problem.split:
                yield (rank, "W", m), problem.w[rank]


def _dependencies(problem: Problem, length: dict[Node, float]) -> Iterator[tuple[tuple[Node, Node], float]]:
    """((first, second), least time from start to start) that hold in every schedule."""
    releasing: Kind = "W" if problem.split else "B"
    for rank, kind, m in length:
        node, delay = (rank, kind, m), problem.delay[rank]
        if m + 1 < problem.micro_batches:
            yield (node, (rank, kind, m + 1)), length[node]
        if kind == "F" and rank + 1 < problem.stages:
            yield (node, (rank + 1, "F", m)), length[node] + delay[rank + 1]
        elif kind == "F":
            yield (node, (rank, "B", m)), length[node]
        elif kind == "B" and rank > 0:
            yield (node, (rank - 1, "B", m)), length[node] + delay[rank - 1]
        if kind == "B" and problem.split:
            yield (node, (rank, "W", m)), length[node]
        follower = m + problem.limits[rank]
        if kind == releasing and follower < problem.micro_batches:
            yield (node, (rank, "F", follower)), length[node]


def _pairs(problem: Problem) -> Iterator[tuple[Node, Node]]:
    """Pairs on one rank that nothing orders: a kind of a later micro-batch, a later kind of an earlier micro-batch."""
    kinds: tuple[tuple[Kind, Kind], ...] = (("F", "B"), ("F", "W"), ("B", "W")) if problem.split else (("F", "B"),)
    for rank in range(problem.stages):
        for ahead, behind in kinds:
            for later in range(problem.micro_batches):
                for earlier in range(later):
                    yield (rank, ahead, later), (rank, behind, earlier)


def _starts_of(times: Replay) -> dict[Node, float]:
    return {
        (rank, step.kind, step.micro_batch): start for rank, row in enumerate(times.ranks) for step, start, _ in row
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
