"""Laws every schedule obeys, over families and counts; replay against the definition of a pipeline."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.schedule import Replay, Schedule, gantt_rows, makespan_lower_bound, names, replay
from schedule_cases import NAMES, delays, durations, groups, inputs, schedules


def test_the_cases_cover_every_schedule() -> None:
    assert set(NAMES) == {name for name in names() if not name.startswith("test-")}


@given(schedules())
def test_every_forward_backward_and_weight_gradient_once(schedule: Schedule) -> None:
    for rank, row in enumerate(schedule.actions):
        parts = Counter((part, step.micro_batch, step.chunk) for step in row for part in step.parts)
        mine = [
            (m, chunk)
            for m in range(schedule.micro_batches)
            for position in range(schedule.depth)
            for owner, chunk in [schedule.owner(position, m)]
            if owner == rank
        ]
        assert parts == Counter((part, m, chunk) for part in "FBW" for m, chunk in mine)
        assert len(mine) == schedule.micro_batches * schedule.chunks


@given(schedules())
def test_chunks_tile_the_model(schedule: Schedule) -> None:
    """Each copy of the model has every position once; owner and virtual_stage are inverse."""
    every = [position for row in schedule.positions for position in row]
    assert Counter(every) == Counter(list(range(schedule.depth)) * schedule.weight_copies)
    for position in range(schedule.depth):
        for m in (0, schedule.micro_batches - 1):
            rank, chunk = schedule.owner(position, m)
            assert schedule.virtual_stage(rank, chunk) == position


@given(schedules(), st.data())
def test_replay_keeps_every_rule(schedule: Schedule, data: st.DataObject) -> None:
    """No deadlock whatever the durations and delays; inputs come first, one thing at a time, no needless wait."""
    f, b, w = (data.draw(durations(schedule.depth)) for _ in "fbw")
    delay = data.draw(delays(schedule.stages))
    times = replay(schedule, f, b, w, delay)
    end = {(r, step.key): stop for r, row in enumerate(times.ranks) for step, _, stop in row}
    for rank, row in enumerate(times.ranks):
        free = 0.0
        for group in groups(schedule.actions[rank]):
            arrivals = [free]
            length = 0
            for index in group:
                step = row[index][0]
                position = schedule.virtual_stage(rank, step.chunk)
                length += sum({"F": f, "B": b, "W": w}[part][position] for part in step.parts)
                source = inputs(schedule, rank, step)
                if source is not None:
                    arrivals.append(end[source] + (delay[source[0]][rank] if source[0] != rank else 0))
            start = max(arrivals)
            assert [row[index][1:] for index in group] == [(start, start + length)] * len(group)
            free = start + length


@given(schedules(), st.data())
def test_peak_in_flight_is_what_a_replay_counts(schedule: Schedule, data: st.DataObject) -> None:
    """Sweep the replay's times: +1 when a forward starts, -1 when its weight gradient has ended."""
    times = replay(schedule, *(data.draw(durations(schedule.depth)) for _ in "fbw"), data.draw(delays(schedule.stages)))
    for rank, row in enumerate(times.ranks):
        changes = [(start, 1, 1) for step, start, _ in row if step.kind == "F"]
        changes += [(stop, 0, -1) for step, _, stop in row if "W" in step.parts]
        held = peak = 0
        for _, _, change in sorted(changes):
            held += change
            peak = max(peak, held)
        assert (held, peak) == (0, schedule.peak_in_flight[rank])
        assert schedule.peak_until_backward[rank] <= peak


@given(schedules(), st.data())
def test_makespan_is_at_least_the_bound_and_the_critical_work(schedule: Schedule, data: st.DataObject) -> None:
    f, b, w = (data.draw(durations(schedule.depth)) for _ in "fbw")
    delay = data.draw(delays(schedule.stages))
    times = replay(schedule, f, b, w, delay)
    assert times.makespan >= makespan_lower_bound(schedule, f, b, w, delay)
    assert makespan_lower_bound(schedule, f, b, w, delay) >= max(times.busy)
    assert max(times.busy) <= times.span <= times.makespan
    assert 0 <= times.bubble_fraction < 1


@given(schedules(), st.data())
def test_more_delay_or_longer_work_never_ends_earlier(schedule: Schedule, data: st.DataObject) -> None:
    """Times of a fixed order are maxima of sums: no action starts earlier when anything grows (no Graham anomaly)."""
    f, b, w = (data.draw(durations(schedule.depth)) for _ in "fbw")
    delay, more = data.draw(delays(schedule.stages)), data.draw(delays(schedule.stages))
    grown = [[x + y for x, y in zip(row, extra, strict=True)] for row, extra in zip(delay, more, strict=True)]
    before = replay(schedule, f, b, w, delay)
    for after in (replay(schedule, f, b, w, grown), replay(schedule, [x + 1 for x in f], b, [2 * x for x in w], delay)):
        assert all(
            x <= y for one, two in zip(before.starts, after.starts, strict=True) for x, y in zip(one, two, strict=True)
        )


@given(schedules(), st.integers(0, 9))
@settings(max_examples=30)
def test_gantt_rows_are_the_replay(schedule: Schedule, delay: int) -> None:
    times: Replay = replay(schedule, 2, 3, 1, delay)
    rows = gantt_rows(schedule, 2, 3, 1, delay)
    assert len(rows) == sum(map(len, schedule.actions))
    assert max(row.end for row in rows) == times.makespan
    assert all(row.end > row.start >= 0 for row in rows)
    apart = [row for row in rows if row.kind == "F"]
    assert len(apart) == schedule.micro_batches * schedule.depth
