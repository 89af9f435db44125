"""What is refused, with the equation and its values; registering a schedule from outside; broken schedules found."""

from __future__ import annotations

import sys
import types

import pytest
from scaleacross.errors import Deadlock, Infeasible, InvalidInput
from scaleacross.schedule import Schedule, action, build, looped_positions, names, parameters, register, replay


@pytest.mark.parametrize(
    "name, p, m, chunks, params, says",
    [
        ("interleaved", 1, 8, 2, {}, "stages > 1 (1)"),
        ("interleaved", 4, 8, 1, {}, "chunks >= 2 (1)"),
        ("interleaved", 4, 10, 2, {}, "micro_batches % stages == 0 (10 % 4 = 2)"),
        ("interleaved", 4, 8, 2, {"contiguous": 3}, "contiguous >= stages (3 >= 4)"),
        ("interleaved", 4, 8, 2, {"contiguous": 12}, "contiguous <= micro_batches (12 <= 8)"),
        ("interleaved", 4, 12, 2, {"contiguous": 5}, "(12 % 5 = 2, stages 4)"),
        ("gpipe", 4, 8, 2, {}, "chunks == 1 (2)"),
        ("1f1b", 4, 8, 2, {}, "chunks == 1 (2)"),
        ("zb-h1", 4, 8, 2, {}, "chunks == 1 (2)"),
        ("zb-2p", 4, 8, 2, {}, "chunks == 1 (2)"),
        ("zb-h2", 4, 6, 1, {}, "micro_batches >= 2 * stages - 1 (6 >= 7)"),
        ("zbv", 4, 8, 1, {}, "chunks == 2 (1)"),
        ("v-half", 4, 8, 3, {}, "chunks == 2 (3)"),
        ("v-min", 1, 8, 2, {}, "stages > 1 (1)"),
        ("dualpipe", 3, 8, 1, {}, "even stages (3 % 2 = 1)"),
        ("dualpipe", 4, 9, 1, {}, "even micro_batches (9 % 2 = 1)"),
        ("dualpipe", 4, 6, 1, {}, "micro_batches >= 2 * stages (6 >= 8)"),
        ("dualpipe", 4, 8, 2, {}, "chunks == 1 (2)"),
        ("dualpipe-v", 4, 7, 2, {}, "micro_batches >= 2 * stages (7 >= 8)"),
        ("dualpipe-v", 4, 8, 1, {}, "chunks == 2 (1)"),
        ("latency-aware", 4, 8, 3, {"in_flight": 2}, "in_flight >= chunks (2 >= 3)"),
        ("latency-aware", 4, 8, 3, {"chunk_layout": "v"}, "chunks == 2 for chunk_layout v (3)"),
    ],
)
def test_infeasible_with_the_values(
    name: str, p: int, m: int, chunks: int, params: dict[str, object], says: str
) -> None:
    with pytest.raises(Infeasible) as caught:
        build(name, p, m, chunks, **params)
    assert caught.value.error_id == "E-SCHEDULE"
    assert f"{name} needs" in caught.value.clash
    assert says in caught.value.clash
    assert caught.value.fix


@pytest.mark.parametrize(
    "name, counts, params, says",
    [
        ("1f1n", (4, 8), {}, "did you mean '1f1b'?"),
        ("1f1b", (0, 8), {}, "stages is 0"),
        ("1f1b", (4, 0), {}, "micro_batches is 0"),
        ("1f1b", (4, 2.0), {}, "micro_batches is 2.0"),
        ("1f1b", (True, 2), {}, "stages is True"),
        ("1f1b", (4, 8), {"contiguous": 4}, "it takes none"),
        ("interleaved", (4, 8, 2), {"contigous": 4}, "did you mean 'contiguous'?"),
        ("interleaved", (4, 8, 2), {"contiguous": "4"}, "contiguous is '4'"),
        ("latency-aware", (4, 8), {"in_flight": 4.5}, "in_flight is 4.5"),
        ("latency-aware", (4, 8), {"in_flight": [4, 4, 0, 4]}, "in_flight is 0"),
        ("latency-aware", (4, 8), {"chunk_layout": "u"}, "chunk_layout is 'u'"),
        ("latency-aware", (4, 8), {"solver": "optimum"}, "did you mean 'optimal'?"),
        ("latency-aware", (4, 8), {"in_flight": [4, 4]}, "2 limits for 4 stages"),
        ("latency-aware", (4, 8), {"f": [1, 2]}, "f has 2 durations"),
        ("latency-aware", (4, 8), {"f": float("nan")}, "f has 4 durations"),
        ("latency-aware", (4, 8), {"delay": -1}, "delay is not 4 x 4"),
        ("latency-aware", (4, 8), {"delay": [[0, 1], [1, 0]]}, "delay is not 4 x 4"),
    ],
)
def test_invalid_input(name: str, counts: tuple[int, ...], params: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(name, *counts, **params)
    assert not isinstance(caught.value, Infeasible)
    assert says in str(caught.value)


def test_the_closest_miss_has_the_smaller_shortfall() -> None:
    def shortfall(m: int) -> float:
        with pytest.raises(Infeasible) as caught:
            build("interleaved", 8, m, 2)
        return caught.value.shortfall

    assert 0 < shortfall(15) < shortfall(9) < 1


def test_parameters_and_defaults_are_known() -> None:
    assert parameters("1f1b") == {}
    assert parameters("interleaved") == {"contiguous": None}
    assert parameters("latency-aware")["solver"] == "greedy"


OUTSIDE = """
from scaleacross.schedule import Schedule, action, looped_positions, register

@register("test-one-at-a-time")
def one_at_a_time(stages, micro_batches, chunks, pause=False):
    row = tuple(action(kind, m) for m in range(micro_batches) for kind in "FB")
    return Schedule("test-one-at-a-time", stages, micro_batches, 1, (row,) * stages, looped_positions(stages, 1))
"""


def test_a_schedule_from_outside_the_package() -> None:
    """One decorated function in a user's own module; loading the module twice is fine."""
    module = types.ModuleType("users_schedules")
    sys.modules[module.__name__] = module
    for _ in range(2):
        exec(compile(OUTSIDE, "users_schedules.py", "exec"), module.__dict__)
    assert "test-one-at-a-time" in names()
    assert parameters("test-one-at-a-time") == {"pause": False}
    times = replay(build("test-one-at-a-time", 3, 4), 1, 2, 1)
    assert times.makespan == 4 * 3 * (1 + 3)
    with pytest.raises(InvalidInput, match=r"already users_schedules\.one_at_a_time"):
        register("test-one-at-a-time")(lambda p, m, v: build("1f1b", p, m, v))


def test_a_schedule_that_leaves_work_out_is_refused() -> None:
    def hole(stages: int, micro_batches: int, chunks: int, fault: str = "") -> Schedule:
        row = [action(kind, m) for kind in ("F", "B") for m in range(micro_batches)]
        if fault == "missing":
            row.pop()
        if fault == "doubled":
            row.append(row[-1])
        if fault == "no W":
            row[-1] = action("B", micro_batches - 1, whole=False)
        if fault == "W too":
            row.append(action("W", 0))
        if fault == "foreign":
            row.append(action("F", micro_batches))
        positions = looped_positions(stages, 1)
        return Schedule("test-hole", stages, micro_batches, chunks, (tuple(row),) * stages, positions)

    register("test-hole")(hole)
    assert build("test-hole", 2, 3).micro_batches == 3
    for fault, says in {
        "missing": "misses B of micro-batch 2",
        "doubled": "7 actions for 6",
        "no W": "misses W of micro-batch 2",
        "W too": "unexpected W of micro-batch 0",
        "foreign": "unexpected F of micro-batch 3",
    }.items():
        with pytest.raises(InvalidInput, match=says) as caught:
            build("test-hole", 2, 3, fault=fault)
        assert caught.value.error_id == "E-SCHEDULE-INCOMPLETE"


def test_a_deadlock_names_the_rank_and_the_action() -> None:
    """Two ranks wait for each other: rank 1 wants both forwards first, rank 0 sends the second after a backward."""
    eager = tuple(action(kind, m) for m in range(2) for kind in ("F", "B"))
    late = tuple(action(kind, m) for kind in ("F", "B") for m in range(2))
    schedule = Schedule("test-stuck", 2, 2, 1, (eager, late), looped_positions(2, 1))
    with pytest.raises(Deadlock, match=r"rank 0 never starts B0\.0, action 1 of 4") as caught:
        replay(schedule, 1, 1, 1)
    assert caught.value.error_id == "E-SCHEDULE-DEADLOCK"
