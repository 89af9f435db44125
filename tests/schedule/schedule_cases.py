"""Every schedule with counts it exists for, as hypothesis strategies; and a slow, obvious replay to compare with."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from scaleacross.schedule import Action, Schedule, build

# A test checks that this is every registered name.
NAMES: tuple[str, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv", "v-half", "v-min")
NAMES += ("dualpipe", "dualpipe-v", "zb-1p", "zb-2p", "latency-aware")
whole_numbers = st.integers(1, 9)


@st.composite
def schedules(draw: DrawFn, names: tuple[str, ...] = NAMES) -> Schedule:
    """A schedule of any family, up to 6 stages, some 14 micro-batches and 4 chunks."""
    name = draw(st.sampled_from(names))
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    if name == "interleaved":
        p = max(p, 2)
        n = p * draw(st.integers(1, 2)) + draw(st.integers(0, 1))
        m = n * draw(st.integers(1, 3)) + (draw(st.sampled_from([0, p])) if n > p else 0)
        return build(name, p, m, draw(st.integers(2, 4)), contiguous=n)
    if name in ("zbv", "v-half", "v-min"):
        return build(name, max(p, 2), m, 2)
    if name == "zb-h2":
        return build(name, p, m + 2 * p - 2)
    if name == "dualpipe":
        return build(name, 2 * (p // 2 + 1), 4 * (p // 2 + 1) + 2 * (m // 2))
    if name == "dualpipe-v":
        return build(name, p, m + 2 * p - 1, 2)
    if name == "latency-aware":
        return draw(latency_aware(p, m))
    return build(name, p, m)


@st.composite
def latency_aware(draw: DrawFn, p: int, m: int) -> Schedule:
    chunks = draw(st.integers(1, 3))
    layout = draw(st.sampled_from(["looped", "v"])) if chunks == 2 else "looped"
    limits = draw(st.lists(st.integers(chunks, 2 * p * chunks + 1), min_size=p, max_size=p))
    f, b, w = (draw(durations(p * chunks)) for _ in "fbw")
    split, delay = draw(st.booleans()), draw(delays(p))
    return build(
        "latency-aware", p, m, chunks, f=f, b=b, w=w, delay=delay, in_flight=limits, split=split, chunk_layout=layout
    )


def durations(depth: int) -> SearchStrategy[list[int]]:
    """One whole number a virtual stage."""
    return st.lists(whole_numbers, min_size=depth, max_size=depth)


def delays(stages: int) -> SearchStrategy[list[list[int]]]:
    """Whole numbers between any two ranks, not symmetric."""
    row = st.lists(st.integers(0, 20), min_size=stages, max_size=stages)
    return st.lists(row, min_size=stages, max_size=stages)


def inputs(schedule: Schedule, rank: int, step: Action) -> tuple[int, tuple[str, int, int]] | None:
    """(rank, key) of the action whose result this one needs, straight from the definition of a pipeline."""
    position = schedule.virtual_stage(rank, step.chunk)
    if step.kind == "W":
        return rank, ("B", step.micro_batch, step.chunk)
    if step.kind == "F" and position == 0:
        return None
    if step.kind == "B" and position == schedule.depth - 1:
        return rank, ("F", step.micro_batch, step.chunk)
    neighbour, chunk = schedule.owner(position + (1 if step.kind == "B" else -1), step.micro_batch)
    return neighbour, (step.kind, step.micro_batch, chunk)


def groups(row: tuple[Action, ...]) -> list[list[int]]:
    """Indices of a rank's actions, those that run together in one group."""
    out: list[list[int]] = [[]]
    for index, step in enumerate(row):
        out[-1].append(index)
        if not step.overlaps_next:
            out.append([])
    return out[:-1]
