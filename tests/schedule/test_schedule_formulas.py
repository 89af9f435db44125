"""Bubbles and activation peaks without communication against the papers' formulas, exactly.

p stages, m micro-batches, v chunks; f, b, w the durations of a forward, an input gradient and a weight gradient of one
chunk. All durations are whole numbers, so floating point adds nothing and the comparisons are equalities.
"""

from __future__ import annotations

import pytest
from scaleacross.schedule import build, replay

DURATIONS = [(1, 1, 1), (1, 2, 0), (3, 5, 2), (4, 1, 3)]
STAGES = [2, 3, 4, 8]


@pytest.mark.parametrize("f, b, w", DURATIONS)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("p", [1, *STAGES])
def test_gpipe_and_1f1b_bubble(name: str, p: int, f: int, b: int, w: int) -> None:
    """(p - 1)(F + B), so (p - 1) / m of the ideal time: Huang et al. 2019; Narayanan et al. 2104.04473, section 2.2."""
    for m in (1, p, 2 * p, 5 * p + 1):
        times = replay(build(name, p, m), f, b, w)
        assert times.makespan - m * (f + b + w) == (p - 1) * (f + b + w)
        assert times.bubble_over_ideal == pytest.approx((p - 1) / m)
        assert times.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize("p", [1, *STAGES])
def test_gpipe_and_1f1b_peaks(p: int) -> None:
    """GPipe holds every micro-batch, 1F1B p - r of them on rank r: 2104.04473, section 2.2."""
    for m in (1, p, 3 * p):
        assert build("gpipe", p, m).peak_in_flight == (m,) * p
        assert build("1f1b", p, m).peak_in_flight == tuple(min(p - r, m) for r in range(p))


@pytest.mark.parametrize("f, b, w", DURATIONS)
@pytest.mark.parametrize("p", STAGES)
@pytest.mark.parametrize("v", [2, 3, 4])
def test_interleaved_bubble(p: int, v: int, f: int, b: int, w: int) -> None:
    """(p - 1)(F + B) of one chunk, so (p - 1) / (v m): 2104.04473, 2.2; for any N: Llama 3, 2407.21783, 3.3.2."""
    for m in (p, 2 * p, 6 * p):
        for contiguous in {p, m} | ({2 * p} if m >= 2 * p else set()):
            times = replay(build("interleaved", p, m, v, contiguous=contiguous), f, b, w)
            assert times.makespan - m * v * (f + b + w) == (p - 1) * (f + b + w)
            assert times.bubble_over_ideal == pytest.approx((p - 1) / (v * m))


@pytest.mark.parametrize("p", STAGES)
@pytest.mark.parametrize("v", [2, 3, 4])
def test_interleaved_peak(p: int, v: int) -> None:
    """p (1 + (p - 1) / (p v)) activations on the first rank: Korthikanti et al. 2205.05198, section 4.2.3."""
    m = 4 * p
    first = build("interleaved", p, m, v).peak_in_flight[0]
    assert first == p * v + p - 1
    assert first / v == pytest.approx(p * (1 + (p - 1) / (p * v)))
    deep_to_broad = [build("interleaved", p, m, v, contiguous=n).peak_in_flight[0] for n in (p, 2 * p, m)]
    assert deep_to_broad == [2 * (p - 1) + (v - 1) * n + 1 for n in (p, 2 * p, m)]


@pytest.mark.parametrize("f, b, w", [(1, 1, 1), (3, 5, 2), (4, 3, 3), (7, 2, 1)])
@pytest.mark.parametrize("p", [1, *STAGES])
def test_zb_h1(p: int, f: int, b: int, w: int) -> None:
    """Bubble (p - 1)(F + B - W), p activations on every rank: 2401.10241, table 1. Needs F >= W, B >= W, m >= p."""
    for m in (p, 2 * p, 5 * p + 1):
        schedule = build("zb-h1", p, m)
        assert replay(schedule, f, b, w).makespan - m * (f + b + w) == (p - 1) * (f + b - w)
        assert schedule.peak_in_flight == (p,) * p


@pytest.mark.parametrize("f, b, w", [(1, 1, 1), (3, 5, 2), (4, 3, 3), (5, 5, 4)])
@pytest.mark.parametrize("p", [1, *STAGES])
def test_zb_h2(p: int, f: int, b: int, w: int) -> None:
    """Bubble (p - 1)(F + B - 2W), 2p - 1 activations: 2401.10241, table 1. Needs F >= W, B >= W and m >= 2p - 1.

    The paper's cost is the longest time of one rank (``span``): the ranks start staggered by a forward.
    """
    for m in (2 * p - 1, 3 * p, 5 * p + 1):
        schedule = build("zb-h2", p, m)
        assert replay(schedule, f, b, w).span - m * (f + b + w) == (p - 1) * (f + b - 2 * w)
        assert schedule.peak_in_flight == (2 * p - 1,) * p


@pytest.mark.parametrize("p", STAGES)
def test_zb_1p_and_2p(p: int) -> None:
    """F = B = W: a third of 1F1B's bubble at its memory, none at twice its memory: 2401.10241, section 3, table 1."""
    for m in (2 * p, 4 * p):
        one, two = build("zb-1p", p, m), build("zb-2p", p, m)
        assert replay(one, 1, 1, 1).span - 3 * m == p - 1
        assert max(one.peak_in_flight) <= p
        assert replay(two, 1, 1, 1).span_bubble_fraction == 0
        assert max(two.peak_in_flight) <= 2 * p


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_zbv(p: int) -> None:
    """F = B = W, m >= 2p: no bubble, p activations of a rank's layers on every rank: 2401.10241 (ZB-V), 2405.15362."""
    for m in (2 * p, 3 * p + 1):
        schedule = build("zbv", p, m, 2)
        times = replay(schedule, 1, 1, 1)
        assert times.span_bubble_fraction == 0
        assert times.makespan == 6 * m + p - 1  # the stagger of the first and the last rank
        assert schedule.peak_in_flight == (2 * p,) * p


@pytest.mark.parametrize("p", [3, 4, 5, 6, 8, 12])
def test_zbv_that_never_fills(p: int) -> None:
    """Bubbles of the authors' own scheduler (zbv, run for p up to 16) for fewer micro-batches than ranks, F = B = W."""
    one_short, two = (replay(build("zbv", p, m, 2), 1, 1, 1) for m in (p - 1, 2))
    assert (one_short.span - 6 * (p - 1), one_short.makespan - 6 * (p - 1)) == (p, p + 1)
    assert p == 3 or two.makespan - 12 == 4 * p - 9


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_v_half(p: int) -> None:
    """Memory floor((p + 2) / 2) activations of a rank's layers, the authors' bound for 2405.15362, met exactly.

    Bubble: the paper's half of 1F1B's is an upper bound for F = B = W; the authors' own scheduler (zbv_greedy, run for
    p up to 12) needs 3(p - 1) chunk passes less 1 for odd p, less 4 for even p, and so does this one (less for p = 2).
    """
    for m in (2 * p, 3 * p + 1):
        schedule = build("v-half", p, m, 2)
        bubble = replay(schedule, 1, 1, 1).makespan - 6 * m
        assert bubble <= 3 * (p - 1)
        assert p == 2 or bubble == 3 * (p - 1) - (1 if p % 2 else 4)
        assert max(schedule.peak_in_flight) == 2 * ((p + 2) // 2)


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_v_min(p: int) -> None:
    """Memory floor((p + 4) / 3) activations of a rank's layers, the authors' bound for 2405.15362, met exactly.

    Bubble: two thirds of 1F1B's is an upper bound for F = B = W; the authors' scheduler needs 4(p - 1) chunk passes
    less 1, or less 3 where 3 divides p (run for p up to 12), and so does this one (less for p = 2).
    """
    for m in (2 * p, 3 * p + 1):
        schedule = build("v-min", p, m, 2)
        bubble = replay(schedule, 1, 1, 1).makespan - 6 * m
        assert bubble <= 4 * (p - 1)
        assert p == 2 or bubble == 4 * (p - 1) - (1 if p % 3 else 3)
        assert max(schedule.peak_in_flight) == 2 * ((p + 4) // 3)


PAIRS = [(1, 1, 1, 3), (1, 1, 1, 2), (3, 3, 2, 8), (3, 3, 2, 7), (4, 4, 1, 12)]


@pytest.mark.parametrize("f, b, w, pair", PAIRS)
@pytest.mark.parametrize("p", [2, 4, 6, 8])
def test_dualpipe(p: int, f: int, b: int, w: int, pair: int) -> None:
    """Bubble (p/2 - 1)(F&B + B - 3W) with B whole, p + 1 activations, parameters twice: deepseek-ai/DualPipe, README.

    Exact for input gradients as long as forwards (B = F + W) and W <= F, on the ranks at the turn; on every rank where
    overlapping gains nothing (F&B = F + B).
    """
    for m in (2 * p, 3 * p, 3 * p + 2):
        schedule = build("dualpipe", p, m)
        times = replay(schedule, f, b, w, overlapped=pair)
        idle = [times.makespan - busy for busy in times.busy]
        formula = (p / 2 - 1) * (pair + (b + w) - 3 * w)
        assert idle[p // 2 - 1] == idle[p // 2] == formula
        assert pair != f + b + w or idle == [formula] * p
        assert schedule.peak_in_flight == (p + 1,) * p
        assert schedule.weight_copies == 2


@pytest.mark.parametrize("f, b, w, pair", PAIRS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_dualpipe_v(p: int, f: int, b: int, w: int, pair: int) -> None:
    """DualPipe's formulas with PP = 2p virtual stages on p ranks: deepseek-ai/DualPipe, README. Conditions as above."""
    for m in (2 * p, 3 * p + 1):
        schedule = build("dualpipe-v", p, m, 2)
        times = replay(schedule, f, b, w, overlapped=pair)
        idle = [times.makespan - busy for busy in times.busy]
        formula = (p - 1) * (pair + (b + w) - 3 * w)
        assert idle[-1] == formula
        assert pair != f + b + w or idle == [formula] * p
        assert schedule.peak_in_flight == (2 * p + 1,) * p
        assert schedule.weight_copies == 1
