"""latency-aware, zb-1p and zb-2p: never slower than what they replace, within the limits, optimal where proven."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scaleacross.errors import Deadlock, Infeasible, InvalidInput, LimitReached
from scaleacross.schedule import (
    Action,
    Schedule,
    action,
    build,
    looped_positions,
    makespan_lower_bound,
    replay,
    v_positions,
)
from schedule_cases import delays, durations


def cut(stages: int, seconds: float) -> list[list[float]]:
    """A delay only between the two halves of the ranks: two data centres."""
    half = stages // 2
    return [[seconds if (a < half) != (b < half) else 0.0 for b in range(stages)] for a in range(stages)]


@given(st.integers(2, 5), st.integers(1, 10), st.data())
@settings(max_examples=50, deadline=None)
def test_not_slower_than_the_known_schedules_at_the_same_memory(p: int, m: int, data: st.DataObject) -> None:
    f, b, w = (data.draw(durations(p)) for _ in "fbw")
    delay = data.draw(delays(p))
    for split, rivals in ((True, ["1f1b", "zb-h1"]), (False, ["1f1b"])):
        mine = replay(build("latency-aware", p, m, f=f, b=b, w=w, delay=delay, split=split), f, b, w, delay)
        for rival in rivals:
            assert mine.makespan <= replay(build(rival, p, m), f, b, w, delay).makespan
    for name, rival in (("zb-1p", "zb-h1"), ("zb-2p", "zb-h2")):
        if rival == "zb-h1" or m >= 2 * p - 1:
            mine = replay(build(name, p, m, f=f, b=b, w=w, delay=delay), f, b, w, delay)
            assert mine.span <= replay(build(rival, p, m), f, b, w, delay).span


@given(st.integers(1, 5), st.integers(1, 10), st.integers(1, 3), st.booleans(), st.data())
def test_limits_are_kept(p: int, m: int, chunks: int, split: bool, data: st.DataObject) -> None:
    limits = data.draw(st.lists(st.integers(chunks, 3 * p), min_size=p, max_size=p).filter(bool))
    schedule = build("latency-aware", p, m, chunks, delay=data.draw(delays(p)), in_flight=limits, split=split)
    assert all(peak <= limit for peak, limit in zip(schedule.peak_in_flight, limits, strict=True))
    assert schedule.splits_backward == split


def test_memory_hides_the_delay_of_a_cut() -> None:
    """8 stages in two sites, unit passes, 4 units across the cut: more activations hide it, and 1F1B cannot use them.

    With d the delay and at most L activations, rank 0's steady state takes max(3, round trip / L) a micro-batch; the
    round trip is 2 d + 2 p - 1 + the W, so L = 2 p = 16 is enough to leave only the fill.
    """
    p, m, d = 8, 32, 4
    across = cut(p, d)
    times = [
        replay(build("latency-aware", p, m, delay=across, in_flight=limit), 1, 1, 1, across).makespan
        for limit in (p, 12, 2 * p)
    ]
    plain = replay(build("1f1b", p, m), 1, 1, 1, across).makespan
    assert times == sorted(times, reverse=True)
    assert times[0] < plain / 1.3
    assert times[-1] == makespan_lower_bound(build("zb-h1", p, m), 1, 1, 1, across) == 3 * m + p - 1 + d


def test_one_rank_and_one_micro_batch() -> None:
    assert replay(build("latency-aware", 1, 3), 1, 1, 1).makespan == 9
    assert replay(build("latency-aware", 3, 1, delay=2), 1, 2, 1, 2).makespan == 3 + 3 * 2 + 4 * 2 + 1
    assert replay(build("zb-2p", 1, 1), 1, 1, 1).makespan == 3


def test_same_input_same_schedule() -> None:
    one, two = (build("latency-aware", 4, 9, 2, delay=cut(4, 3), chunk_layout="v") for _ in range(2))
    assert one == two


# ---- optimal ---------------------------------------------------------------------------------------------------------


def orders(m: int, split: bool) -> Iterator[tuple[Action, ...]]:
    """Every order of one rank that keeps F before B before W of a micro-batch; micro-batches first in, first out."""
    kinds = "FBW" if split else "FB"
    for order in set(permutations(kinds * m)):
        counts = dict.fromkeys(kinds, 0)
        row = []
        for kind in order:
            row.append(action(kind, counts[kind], whole=kind != "B" or not split))
            counts[kind] += 1
            if any(counts[later] > counts[earlier] for earlier, later in pairwise(kinds)):
                break
        else:
            yield tuple(row)


def best_by_trying_all(p: int, m: int, limit: int, split: bool, f: float, b: float, w: float, delay: float) -> float:
    best = float("inf")
    for rows in product(list(orders(m, split)), repeat=p):
        schedule = Schedule("test-any", p, m, 1, rows, looped_positions(p, 1))
        if max(schedule.peak_in_flight) <= limit:
            try:
                best = min(best, replay(schedule, f, b, w, delay).makespan)
            except Deadlock:
                continue
    return best


@pytest.mark.parametrize(
    "p, m, limit, split, f, b, w, delay",
    [
        (2, 2, 2, True, 1, 2, 1, 0),
        (2, 2, 1, True, 2, 3, 1, 1),
        (2, 3, 2, False, 1, 2, 1, 3),
        (2, 3, 3, False, 3, 1, 2, 2),
        (3, 3, 2, False, 2, 1, 1, 1),
        (2, 3, 2, True, 2, 3, 2, 2),
    ],
)
def test_optimal_is_the_best_of_all_orders(
    p: int, m: int, limit: int, split: bool, f: float, b: float, w: float, delay: float
) -> None:
    pytest.importorskip("highspy")
    schedule = build("latency-aware", p, m, f=f, b=b, w=w, delay=delay, in_flight=limit, split=split, solver="optimal")
    assert max(schedule.peak_in_flight) <= limit
    assert replay(schedule, f, b, w, delay).makespan == pytest.approx(
        best_by_trying_all(p, m, limit, split, f, b, w, delay), abs=1e-6
    )


def chunked_orders(m: int, chunks: int) -> Iterator[tuple[Action, ...]]:
    """Every order of one rank with whole backwards: forwards by chunk, then backwards, micro-batches first in first."""
    chain = [("F", chunk) for chunk in range(chunks)] + [("B", chunk) for chunk in reversed(range(chunks))]

    def extend(done: tuple[int, ...], row: tuple[Action, ...]) -> Iterator[tuple[Action, ...]]:
        if all(count == len(chain) for count in done):
            yield row
        for micro_batch, count in enumerate(done):
            if count < len(chain) and (micro_batch == 0 or done[micro_batch - 1] > count):
                kind, chunk = chain[count]
                after = (*done[:micro_batch], count + 1, *done[micro_batch + 1 :])
                yield from extend(after, (*row, action(kind, micro_batch, chunk)))

    yield from extend((0,) * m, ())


@pytest.mark.parametrize("layout, positions", [("looped", looped_positions(3, 2)), ("v", v_positions(3))])
@pytest.mark.parametrize("limit, delay", [(2, 1), (3, 0), (4, 3)])
def test_optimal_with_chunks_is_the_best_of_all_orders(
    layout: str, positions: tuple[tuple[int, ...], ...], limit: int, delay: int
) -> None:
    pytest.importorskip("highspy")
    f, b, w = [3, 1, 2, 1, 1, 2], [2, 2, 1, 3, 1, 1], 1
    best = float("inf")
    for rows in product(list(chunked_orders(2, 2)), repeat=3):
        schedule = Schedule("test-any", 3, 2, 2, rows, positions)
        if max(schedule.peak_in_flight) <= limit:
            try:
                best = min(best, replay(schedule, f, b, w, delay).makespan)
            except Deadlock:
                continue
    options = {"f": f, "b": b, "w": w, "delay": delay, "in_flight": limit, "split": False, "chunk_layout": layout}
    found = build("latency-aware", 3, 2, 2, solver="optimal", **options)
    assert max(found.peak_in_flight) <= limit
    assert replay(found, f, b, w, delay).makespan == pytest.approx(best, abs=1e-6)


@given(st.integers(2, 3), st.integers(2, 3), st.sampled_from([(1, ""), (2, "looped"), (2, "v")]), st.data())
@settings(max_examples=15, deadline=None)
def test_bound_optimal_greedy_and_fixed_schedules_in_this_order(
    p: int, m: int, shape: tuple[int, str], data: st.DataObject
) -> None:
    """Under the same memory limit, with delays: the fixed schedules are those that keep it."""
    pytest.importorskip("highspy")
    chunks, layout = shape
    f, b, w = (data.draw(durations(p * chunks)) for _ in "fbw")
    delay = data.draw(delays(p))
    limit = data.draw(st.integers(chunks, p * chunks + 1))
    split = data.draw(st.booleans())
    options: dict[str, Any] = {"f": f, "b": b, "w": w, "delay": delay, "in_flight": limit, "split": split}
    options |= {"chunk_layout": layout} if layout else {}
    greedy = build("latency-aware", p, m, chunks, **options)
    try:
        best = build("latency-aware", p, m, chunks, solver="optimal", time_limit=3, **options)
    except LimitReached:
        assume(False)
    assert max(best.peak_in_flight) <= limit
    times = [replay(schedule, f, b, w, delay).makespan for schedule in (best, greedy)]
    assert makespan_lower_bound(best, f, b, w, delay) <= times[0] <= times[1]
    whole, apart = {"": (["1f1b"], ["zb-h1", "zb-h2"]), "looped": (["interleaved"], []), "v": ([], V_SHAPED)}[layout]
    for name in (*whole, *(apart if split else ())):
        try:
            fixed = build(name, p, m, chunks)
        except Infeasible:
            continue
        if max(fixed.peak_in_flight) <= limit:
            assert times[1] <= replay(fixed, f, b, w, delay).makespan


V_SHAPED = ["zbv", "v-half", "v-min"]


def test_optimal_beats_greedy_somewhere() -> None:
    """4 stages, 6 micro-batches, a cut of 2: the greedy needs 31.6, the proven optimum is 30.2."""
    pytest.importorskip("highspy")
    options = {"f": 1, "b": 1.2, "w": 0.8, "delay": cut(4, 2), "in_flight": 4}
    greedy, best = (
        replay(build("latency-aware", 4, 6, solver=solver, **options), 1, 1.2, 0.8, cut(4, 2)).makespan
        for solver in ("greedy", "optimal")
    )
    assert best == pytest.approx(30.2)
    assert best < greedy


def test_no_proof_in_time_says_the_best_and_the_bound() -> None:
    pytest.importorskip("highspy")
    with pytest.raises(LimitReached, match=r"no proof in 0\.01 s: best makespan .*, bound .* open orders"):
        build("latency-aware", 6, 12, delay=3, solver="optimal", time_limit=0.01)


def test_missing_highspy_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(InvalidInput, match=r"E-SOLVER: .*scaleacross\[solver\].*greedy"):
        build("latency-aware", 2, 4, delay=3, solver="optimal")


def test_the_solver_leaves_standard_output_alone() -> None:
    pytest.importorskip("highspy")
    code = """
from scaleacross.schedule import build
build('latency-aware', 2, 4, delay=3, solver='optimal')
print('{}')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "{}\n"
