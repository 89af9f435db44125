"""Alone on the network, an operation takes what alpha-beta arithmetic and the exact engine say."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fluid_cases import A2A, AG, AR, MIB, RS, byte_rate, one_collective, plain, run, sends
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.engine import simulate
from scaleacross.engine.settings import Options
from scaleacross.errors import InvalidInput

SIZE = 64 * MIB


def closed_form(algorithm: str, kind: int, n: int, alpha: float, beta: float) -> float:
    """Thakur et al. (2005): steps times latency plus bytes through the busiest port; ``beta`` ns a byte."""
    whole = SIZE * n if kind == AG else SIZE
    moved = {AR: 2, AG: 1, RS: 1, A2A: 1}[kind] * whole * (n - 1) / n
    rounds = 2 if kind == AR else 1
    steps = {"ring": n - 1, "direct": 1, "direct1": n - 1, "halvingDoubling": math.log2(n)}[algorithm]
    return rounds * steps * alpha + moved * beta


@pytest.mark.parametrize("kind", [AR, AG, RS])
@pytest.mark.parametrize("n", [2, 4, 8, 64])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct1", "halvingDoubling"])
def test_collectives_on_a_switch_are_alpha_beta(algorithm: str, n: int, kind: int) -> None:
    config = plain([n], bandwidth=50, latency=5000, algorithm=algorithm)
    found = run(one_collective(n, kind, SIZE), config).time_ns
    assert found == pytest.approx(closed_form(algorithm, kind, n, 2 * 5000, 1 / byte_rate(50)), rel=0.01)


@pytest.mark.parametrize("n", [4, 8, 64])
def test_an_all_to_all_sends_each_block_once(n: int) -> None:
    for algorithm in ("direct", "direct1"):
        config = plain([n], bandwidth=50, latency=5000, algorithm=algorithm)
        found = run(one_collective(n, A2A, SIZE), config).time_ns
        assert found == pytest.approx(closed_form(algorithm, A2A, n, 2 * 5000, 1 / byte_rate(50)), rel=0.01)


@pytest.mark.parametrize("window", ["", "1", "2", "3", "7"])
def test_parallel_messages_of_direct_share_the_port(window: str) -> None:
    """The unaware backend makes them free (engine.md: 7.2 us against 34.2 us); here the port's bytes are the bound."""
    config = plain([8], bandwidth=50, latency=5000, algorithm=f"direct{window}")
    work = one_collective(8, AR, SIZE)
    port = 2 * SIZE * 7 / 8 / byte_rate(50)
    waits = 2 * -(-7 // int(window or 7)) * 2 * 5000
    assert run(work, config).time_ns == pytest.approx(port + waits, rel=1e-3)
    if not window:
        assert simulate(work, config).iteration_ns < port / 3


def test_links_of_other_topologies() -> None:
    """Fully connected: a port a peer, direct uses all at once, a ring one. Ring: links carry what passes."""
    beta = 1 / byte_rate(50)
    block = SIZE / 8
    full = plain([8], bandwidth=50, latency=0, topology="FullyConnected", algorithm="direct")
    assert run(one_collective(8, RS, SIZE), full).time_ns == pytest.approx(block * beta, rel=1e-3)
    one = plain([8], bandwidth=50, latency=0, topology="FullyConnected", algorithm="direct2")
    assert run(one_collective(8, RS, SIZE), one).time_ns == pytest.approx(7 / 2 * block * beta, rel=1e-3)
    ring = plain([8], bandwidth=50, latency=0, topology="FullyConnected", algorithm="ring")
    assert run(one_collective(8, RS, SIZE), ring).time_ns == pytest.approx(7 * block * beta, rel=1e-3)
    many = plain([40], bandwidth=50, latency=0, topology="FullyConnected", algorithm="direct")
    assert run(one_collective(40, RS, SIZE), many).time_ns == pytest.approx(SIZE / 40 * beta, rel=1e-3)
    # on a ring of 8, messages 1, 2, 3, 4 places forward load each forward link with 1 + 2 + 3 + 4 blocks
    links = plain([8], bandwidth=50, latency=0, topology="Ring", algorithm="direct")
    assert run(one_collective(8, RS, SIZE), links).time_ns == pytest.approx(10 * block * beta, rel=1e-3)


SIZES = st.sampled_from([1 * MIB, 3_000_000, 17 * MIB])


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=3),
    kind=st.sampled_from([AR, AG, RS, A2A]),
    size=SIZES,
    algorithm=st.sampled_from(["ring", "direct1"]),
    topology=st.sampled_from(["Switch", "FullyConnected", "Ring"]),
    optimization=st.sampled_from(["localBWAware", "baseline"]),
    memory=st.sampled_from([100.0, 1e9]),
)
def test_one_collective_alone_equals_the_exact_engine(
    shape: list[int], kind: int, size: int, algorithm: str, topology: str, optimization: str, memory: float
) -> None:
    """Chunk by chunk in the exact engine, no parallel messages: the same time to a nanosecond a step."""
    if topology == "Ring" and algorithm != "ring":
        topology = "Switch"  # several hops: links are free in the exact engine
    if algorithm != "ring":
        memory = 1e9  # the exact engine leaves out some reductions, as the reference does
    config = plain(
        shape, 50, 700, topology, algorithm, collective_optimization=optimization, local_mem_bandwidth=memory
    )
    work = one_collective(math.prod(shape), kind, size)
    exact = simulate(work, config)
    assert exact.status == "ok", exact.message
    found = run(work, config)
    steps = 8 * sum(size * size for size in shape)
    assert found.time_ns == pytest.approx(exact.iteration_ns, abs=2 * steps, rel=1e-6)
    assert found.bytes_per_dim == pytest.approx(exact.bytes_per_dim, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(n=st.sampled_from([2, 4, 8, 16]), kind=st.sampled_from([AR, AG, RS]), size=SIZES)
def test_halving_doubling_alone_equals_the_exact_engine(n: int, kind: int, size: int) -> None:
    config = plain([n], 50, 700, "Switch", "halvingDoubling")
    work = one_collective(n, kind, size)
    assert run(work, config).time_ns == pytest.approx(simulate(work, config).iteration_ns, abs=20 * n, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct1", "halvingDoubling"])
def test_reductions_pass_local_memory_three_times_a_block(algorithm: str) -> None:
    work = one_collective(8, RS, 8 * MIB)
    fast = run(work, plain([8], algorithm=algorithm)).time_ns
    slow = run(work, plain([8], algorithm=algorithm, local_mem_bandwidth=100.0)).time_ns
    assert slow - fast == pytest.approx(7 * 3 * MIB / 100, rel=1e-3)


def test_a_message_takes_latency_and_bytes() -> None:
    config = plain([4, 2], [50, 5], [700, 9000])
    assert run(sends(8, [(0, 3, MIB)]), config).time_ns == pytest.approx(2 * 700 + MIB / byte_rate(50), rel=1e-9)
    assert run(sends(8, [(0, 4, MIB)]), config).time_ns == pytest.approx(2 * 9000 + MIB / byte_rate(5), rel=1e-9)
    # ranks 0 and 7 differ in both dimensions: each is paid for
    both = run(sends(8, [(0, 7, MIB)]), config)
    assert both.time_ns == pytest.approx(2 * 9700 + MIB / byte_rate(5), rel=1e-9)
    assert both.bytes_per_dim == [0, MIB / 8]


@pytest.mark.parametrize(("splits", "active"), [(4, 1), (4, 4), (64, 64)])
def test_chunks_hide_latency_but_never_bandwidth(splits: int, active: int) -> None:
    """The unaware backend makes 10.5 ms of a 671 ms all-reduce with 64 chunks, below what the link needs."""
    whole = plain([2, 8], [100, 50], [700, 100_000])
    cut = dataclasses.replace(
        whole,
        system=dataclasses.replace(whole.system, preferred_dataset_splits=splits, active_chunks_per_dimension=active),
    )
    work = one_collective(16, AR, SIZE)
    slow, fast = run(work, whole), run(work, cut)
    wire = 2 * (SIZE / 2) * 7 / 8 / byte_rate(50)  # the second dimension's port
    assert fast.time_ns >= wire
    assert fast.bound_ratio >= 1
    if active > 1:
        assert fast.time_ns < slow.time_ns


def test_what_cannot_be_simulated_says_so() -> None:
    work = one_collective(6, AR, MIB)
    with pytest.raises(InvalidInput, match="E-HALVING: halvingDoubling on 6 ranks"):
        run(work, plain([6], algorithm="halvingDoubling"))
    with pytest.raises(InvalidInput, match="E-WORLD: 6 ranks in the traces, 8 NPUs"):
        run(work, plain([8]))
    custom = plain([6])
    custom = dataclasses.replace(custom, system=dataclasses.replace(custom.system, custom={AR: "x"}))
    with pytest.raises(InvalidInput, match="E-FLUID-CUSTOM"):
        run(work, custom)
    bus = dataclasses.replace(custom, system=dataclasses.replace(custom.system, custom={}, model_shared_bus=True))
    with pytest.raises(InvalidInput, match="E-FLUID-BUS"):
        run(work, bus)
    with pytest.raises(InvalidInput, match="E-FLUID-RENDEZVOUS"):
        run(work, plain([6]), options=Options(rendezvous=True))
