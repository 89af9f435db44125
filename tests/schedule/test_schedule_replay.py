"""Replay of small schedules worked out by hand, overlapped pairs, Gantt rows, documentation, speed."""

from __future__ import annotations

import doctest
import time
from itertools import pairwise

import pytest
import scaleacross.schedule
import scaleacross.schedule.registry
from scaleacross.errors import InvalidInput
from scaleacross.schedule import Schedule, action, build, gantt_rows, looped_positions, replay, v_positions


def test_1f1b_by_hand() -> None:
    """2 stages, 2 micro-batches, f 1, whole b 2, delay 3 there and 1 back."""
    times = replay(build("1f1b", 2, 2), 1, 1, 1, [[0, 3], [1, 0]])
    first, second = times.ranks
    assert [(str(step), start, end) for step, start, end in first] == [
        ("F0.0", 0, 1),
        ("F1.0", 1, 2),
        ("B0.0", 8, 10),
        ("B1.0", 11, 13),
    ]
    assert [(str(step), start, end) for step, start, end in second] == [
        ("F0.0", 4, 5),
        ("B0.0", 5, 7),
        ("F1.0", 7, 8),
        ("B1.0", 8, 10),
    ]
    assert times.makespan == times.span == 13
    assert times.busy == (6, 6)
    assert times.bubble_fraction == pytest.approx(1 - 12 / 26)


def test_durations_by_position_and_no_delay_within_a_rank() -> None:
    """V shape on 2 ranks: the turn from chunk 0 to chunk 1 of rank 1 costs no delay."""
    row = [action(kind, 0, chunk) for kind, chunk in (("F", 0), ("F", 1), ("B", 1), ("B", 0))]
    schedule = Schedule("test-v", 2, 1, 2, (tuple(row),) * 2, v_positions(2))
    times = replay(schedule, [1, 2, 3, 4], [1, 1, 1, 1], [0, 1, 2, 3], delay=10)
    assert times.ranks[1][1][1:] == (13, 16)
    assert times.ranks[0][1][1:] == (26, 30)
    assert times.makespan == 30 + 4 + 10 + 3 + 2 + 10 + 1


def test_an_overlapped_pair_runs_together() -> None:
    """The pair waits for both inputs, takes its own duration, ends at once; by default it gains nothing."""
    row = (action("F", 0), action("F", 1, overlaps_next=True), action("B", 0), action("B", 1))
    schedule = Schedule("test-pair", 1, 2, 1, (row,), looped_positions(1, 1))
    assert replay(schedule, 1, 2, 1).makespan == 8
    times = replay(schedule, 1, 2, 1, overlapped=2.5)
    assert [(start, end) for _, start, end in times.ranks[0]] == [(0, 1), (1, 3.5), (1, 3.5), (3.5, 6.5)]
    assert times.busy == (6.5,)
    bars = [bar for bar in gantt_rows(schedule, 1, 2, 1, overlapped=2.5) if bar.start == 1]
    assert [(bar.kind, bar.micro_batch) for bar in bars] == [("F", 1), ("B", 0)]


def test_only_the_forwards_of_dualpipe_overlap() -> None:
    for name, chunks in (("dualpipe", 1), ("dualpipe-v", 2)):
        for row in build(name, 4, 12, chunks).actions:
            for step, following in pairwise(row):
                if step.overlaps_next:
                    assert (step.kind, following.kind, following.whole) == ("F", "B", True)
                    assert step.chunk != following.chunk
            assert not row[-1].overlaps_next


def test_dualpipe_runs_half_of_the_micro_batches_each_way() -> None:
    schedule = build("dualpipe", 4, 8)
    assert [schedule.owner(0, m) for m in (0, 3, 4, 7)] == [(0, 0), (0, 0), (3, 1), (3, 1)]
    assert schedule.positions == ((0, 3), (1, 2), (2, 1), (3, 0))


def test_neighbours_along_the_model() -> None:
    """previous and next say where an action's input comes from and its output goes, None at either end."""
    schedule = build("interleaved", 2, 4, 2)
    assert schedule.previous(0, action("F", 0, 0)) is None
    assert schedule.previous(0, action("F", 0, 1)) == (1, 0)
    assert schedule.next(1, action("F", 0, 0)) == (0, 1)
    assert schedule.next(1, action("F", 0, 1)) is None


@pytest.mark.parametrize("bad", [{"f": -1}, {"b": [1, 2]}, {"w": float("inf")}, {"delay": float("nan")}])
def test_bad_durations_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="E-REPLAY"):
        replay(build("1f1b", 4, 4), **({"f": 1, "b": 1, "w": 1} | bad))  # type: ignore[arg-type]


def test_examples_in_the_documentation_run() -> None:
    for module in (scaleacross.schedule, scaleacross.schedule.registry):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed


def test_large_schedules_are_quick() -> None:
    """64 stages, 512 micro-batches, 4 chunks (262,144 actions): about a second; the limit allows for a busy machine."""
    began = time.process_time()
    schedule = build("interleaved", 64, 512, 4)
    built = time.process_time()
    times = replay(schedule, 1, 1, 1, 0.25)
    replayed = time.process_time()
    assert times.makespan > 3 * 4 * 512
    assert built - began < 3
    assert replayed - built < 3
