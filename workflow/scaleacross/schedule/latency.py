"""Schedules made for given durations, delays between ranks and an activation limit: `latency-aware`, `zb-1p`, `zb-2p`.

After CrossPipe (Chen et al., arXiv 2507.00217): where a pipeline crosses data centres, the order of actions should know
the delay of the cut and use the memory there is; an optimal order by a solver for small instances, a greedy one
otherwise. The greedy here is our own: list scheduling under several policies beside the known schedules that fit the
limit, each replayed, the fastest kept. So it is never slower than any of those. Being greedy it has anomalies: a
slightly longer delay now and then gives a slightly faster schedule (up to 1 % seen); the replay of one fixed schedule
never does that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from ..errors import Infeasible, InvalidInput, did_you_mean
from .actions import Action, Schedule, action, freeze, looped_positions, v_positions
from .classic import interleaved, one_chunk, one_forward_one_backward, warmup_then_alternate
from .listing import POLICIES, Problem, greedy
from .registry import check_count, register, require
from .replay import Delays, Durations, as_delay_rows, as_durations, replay
from .vshape import v_half, v_min, zbv
from .zero_bubble import split_row, zb_h1, zb_h2

Objective = Literal["makespan", "span"]


@register("latency-aware")
def latency_aware(
    stages: int,
    micro_batches: int,
    chunks: int,
    f: Durations = 1.0,
    b: Durations = 1.0,
    w: Durations = 1.0,
    delay: Delays = 0.0,
    in_flight: int | Sequence[int] | None = None,
    split: bool = True,
    chunk_layout: Literal["looped", "v"] = "looped",
    solver: Literal["greedy", "optimal"] = "greedy",
    objective: Objective = "makespan",
    time_limit: float = 10.0,
) -> Schedule:
    """The fastest order found for these durations, delays and limits (after CrossPipe, arXiv 2507.00217).

    Args:
        f, b, w, delay: as for ``replay``, all in one unit; only their ratios matter.
        in_flight: most chunk activations a rank may hold, one number or one a rank. Default stages * chunks, the memory
        of
            1F1B's first rank. More of it hides more delay: a rank stays busy across a round trip of
            2 delay + the downstream passes with that time / (f + b + w) micro-batches in flight.
        split: run weight gradients apart from the input gradients (Zero Bubble), which lets gradients leave earlier.
        chunk_layout: where the chunks of a rank lie: looped as interleaved 1F1B, or in V shape (2 chunks).
        solver: ``greedy``, or ``optimal``: a mixed-integer program by HiGHS (the package highspy) that proves its
        result;
            one chunk and small instances only.
        objective: ``makespan``, or ``span`` (ranks need not start together, see ``Replay.span``).
        time_limit: seconds the solver may take.

    Raises:
        Infeasible: in_flight below chunks, or chunk_layout v without 2 chunks.
        InvalidInput: E-SCHEDULE for an unknown option; E-SOLVER if highspy is missing.
        LimitReached: E-SOLVER if optimality isn't proven in time.
    """
    name = "latency-aware"
    _one_of("chunk_layout", chunk_layout, ("looped", "v"))
    _one_of("solver", solver, ("greedy", "optimal"))
    _one_of("objective", objective, ("makespan", "span"))
    in_v = chunk_layout == "v"
    require(not in_v or chunks == 2, name, f"chunks == 2 for chunk_layout v ({chunks})", "set chunks to 2")
    limits = _limits(name, stages, chunks, in_flight)
    depth = stages * chunks
    problem = Problem(
        micro_batches=micro_batches,
        positions=v_positions(stages) if in_v else looped_positions(stages, chunks),
        f=as_durations("f", f, depth),
        b=as_durations("b", b, depth),
        w=as_durations("w", w, depth),
        delay=as_delay_rows(delay, stages),
        limits=limits,
        split=split,
    )
    if solver == "greedy":
        return best_of(name, problem, objective)
    from .solver import solve

    require(objective == "makespan", name, f"objective makespan for solver optimal ({objective})", "use solver greedy")
    return solve(best_of(name, problem, objective), problem, time_limit)


@register("zb-1p")
def zb_1p(
    stages: int,
    micro_batches: int,
    chunks: int,
    f: Durations = 1.0,
    b: Durations = 1.0,
    w: Durations = 1.0,
    delay: Delays = 0.0,
) -> Schedule:
    """Zero Bubble's automatic schedule at 1F1B's memory, p activations (arXiv 2401.10241, section 3).

    Durations and delay as for ``latency-aware``; made for the least ``Replay.span``. Never longer than ZB-H1.

    Raises:
        Infeasible: chunks != 1.
    """
    one_chunk("zb-1p", chunks)
    return _zero_bubble("zb-1p", stages, micro_batches, f, b, w, delay, stages)


@register("zb-2p")
def zb_2p(
    stages: int,
    micro_batches: int,
    chunks: int,
    f: Durations = 1.0,
    b: Durations = 1.0,
    w: Durations = 1.0,
    delay: Delays = 0.0,
) -> Schedule:
    """Zero Bubble's automatic schedule at twice 1F1B's memory, 2 p activations (arXiv 2401.10241, section 3).

    No bubble for F = B = W and 2 p - 1 micro-batches or more; never longer than ZB-H2. Durations and delay as for
    ``latency-aware``; made for the least ``Replay.span``.

    Raises:
        Infeasible: chunks != 1.
    """
    one_chunk("zb-2p", chunks)
    return _zero_bubble("zb-2p", stages, micro_batches, f, b, w, delay, 2 * stages)


def _zero_bubble(
    name: str, stages: int, micro_batches: int, f: Durations, b: Durations, w: Durations, delay: Delays, limit: int
) -> Schedule:
    problem = Problem(
        micro_batches=micro_batches,
        positions=looped_positions(stages, 1),
        f=as_durations("f", f, stages),
        b=as_durations("b", b, stages),
        w=as_durations("w", w, stages),
        delay=as_delay_rows(delay, stages),
        limits=(limit,) * stages,
        split=True,
    )
    return best_of(name, problem, "span")


def best_of(name: str, problem: Problem, objective: Objective) -> Schedule:
    """The fastest of every candidate that keeps the limits; ties go to the earlier one, so it is deterministic."""
    best: tuple[float, float, Schedule] | None = None
    for candidate in _candidates(name, problem):
        if any(peak > limit for peak, limit in zip(candidate.peak_in_flight, problem.limits, strict=True)):
            continue
        times = replay(candidate, problem.f, problem.b, problem.w, problem.delay)
        first, second = (times.makespan, times.span) if objective == "makespan" else (times.span, times.makespan)
        if best is None or (first, second) < best[:2]:
            best = first, second, candidate
    assert best is not None, "list scheduling keeps the limits by construction"
    return best[2]


def _candidates(name: str, problem: Problem) -> Iterator[Schedule]:
    def of(rows: Sequence[Sequence[Action]]) -> Schedule:
        chunks = len(problem.positions[0])
        return Schedule(name, problem.stages, problem.micro_batches, chunks, freeze(rows), problem.positions)

    yield from (of(rows) for rows in _known_orders(problem))
    if len(problem.positions[0]) == 1:
        yield of(round_trip_1f1b(problem))
    yield from (of(greedy(problem, policy)) for policy in POLICIES)


def _known_orders(problem: Problem) -> Iterator[Sequence[Sequence[Action]]]:
    """Orders of the published schedules with this layout, those that exist for these counts."""
    stages, chunks = problem.stages, len(problem.positions[0])
    whole, split = [], []
    if chunks == 1:
        whole, split = [one_forward_one_backward], [zb_h1, zb_h2]
    elif problem.positions == looped_positions(stages, chunks):
        whole = [interleaved]
    else:
        split = [zbv, v_half, v_min]
    for builder in (*whole, *(split if problem.split else ())):
        try:
            rows = builder(stages, problem.micro_batches, chunks).actions
        except Infeasible:
            continue
        yield rows if builder in split or not problem.split else [_split_apart(row) for row in rows]


def _split_apart(row: Sequence[Action]) -> list[Action]:
    """A whole B as B and W in a row: the same work, but the gradient leaves before the W."""
    out: list[Action] = []
    for step in row:
        if step.kind == "B" and step.whole:
            out += (replace(step, whole=False), action("W", step.micro_batch, step.chunk))
        else:
            out.append(step)
    return out


def round_trip_1f1b(problem: Problem) -> list[list[Action]]:
    """1F1B whose warm-up covers each rank's round trip to the loss and back, as far as the limits let it.

    A rank is kept busy by ceil(round trip / (f + b + w)) micro-batches in flight, the round trip from the start of a
    forward here to the end of its backward here; 1F1B's p - r is that number without delays and with equal stages. No
    rank warms up with more than the rank before it, which would wait for it.
    """
    rows: list[list[Action]] = []
    order = [(m, 0) for m in range(problem.micro_batches)]
    warmup = problem.micro_batches
    for needed, limit in zip(_round_trips(problem), problem.limits, strict=True):
        warmup = min(warmup, needed, limit)
        if problem.split:
            rows.append(split_row(problem.micro_batches, warmup, limit - warmup))
        else:
            rows.append(warmup_then_alternate(order, order, warmup - 1))
    return rows


def _round_trips(problem: Problem) -> list[int]:
    """By rank: micro-batches in flight that span its round trip to the loss and back, at least 1."""
    counts: list[int] = []
    trip = 0.0
    for rank in reversed(range(problem.stages)):
        f, b, w = problem.f[rank], problem.b[rank], problem.w[rank]
        if rank + 1 < problem.stages:
            trip += problem.delay[rank][rank + 1] + problem.delay[rank + 1][rank]
        trip += f + b + (0.0 if problem.split else w)
        counts.append(max(1, math.ceil(trip / (f + b + w) - 1e-9)) if f + b + w > 0 else 1)
    return counts[::-1]


def _limits(name: str, stages: int, chunks: int, in_flight: int | Sequence[int] | None) -> tuple[int, ...]:
    if in_flight is None:
        in_flight = stages * chunks
    limits = tuple(in_flight) if isinstance(in_flight, Sequence) else (in_flight,) * stages
    for limit in limits:
        check_count("in_flight", limit)
    if len(limits) != stages:
        raise InvalidInput("E-SCHEDULE", f"in_flight has {len(limits)} limits for {stages} stages", "give one a rank")
    least = min(limits)
    rule = f"in_flight >= chunks ({least} >= {chunks})"
    require(least >= chunks, name, rule, "raise in_flight", 1 - least / chunks)
    return limits


def _one_of(label: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput("E-SCHEDULE", f"{label} is {value!r}", did_you_mean(str(value), known))
