"""The engine against a slow, obvious event-by-event simulator, on random small inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import NAMES, Drawn, draws, expected, golden, golden_options, program
from hypothesis import HealthCheck, assume, given, settings
from oracle import Oracle
from scaleacross.astra.collectives import Implementation
from scaleacross.astra.config_files import MemoryFile, NetworkFile, SystemFile
from scaleacross.engine import Config, simulate

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
WITHOUT = ("sharedbus", "mem", "track")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(WITHOUT) and "_64" not in name][::3])
def test_the_oracle_itself_is_exact(name: str) -> None:
    workload, config = golden(name)
    options = golden_options(name)
    traces = [workload.programs[k].trace for k in workload.program.tolist()]
    for model in ("unaware", "aware"):
        if "finish_cycles" not in expected(name)[model]:
            continue
        oracle = Oracle(
            traces,
            config,
            model == "aware",
            options["queues_per_dim"],
            options["injection_scale"],
            options["rendezvous"],
        )
        assert oracle.run() == expected(name)[model]["finish_cycles"]


def compare(case: Drawn, model: str, detail: str) -> None:
    oracle = Oracle(case.traces, case.config, model == "aware", case.queues, rendezvous=case.rendezvous)
    finish = oracle.run()
    outcome = simulate(case.workload(), case.config, model, case.queues, rendezvous=case.rendezvous, detail=detail)
    assert outcome.status == ("ok" if min(finish) >= 0 else "deadlock"), outcome.message
    if len(outcome.finish_cycles):
        done = [k for k, cycles in enumerate(finish) if cycles >= 0]
        assert outcome.finish_cycles[done].tolist() == [finish[k] for k in done]


@given(draws())
@SETTINGS
def test_chunkwise_engine_equals_the_oracle(case: Drawn) -> None:
    compare(case, "unaware", "chunks")


@given(draws(groups=False))
@SETTINGS
def test_chunkwise_engine_equals_the_oracle_with_trees_and_halving(case: Drawn) -> None:
    compare(case, "unaware", "chunks")


@given(draws())
@SETTINGS
def test_aware_engine_equals_the_oracle(case: Drawn) -> None:
    assume(case.config.network.dimensions == 1)
    compare(case, "aware", "chunks")


@given(draws(skewed=False))
@SETTINGS
def test_composed_and_folded_engine_equals_the_oracle(case: Drawn) -> None:
    compare(case, "unaware", "composed")


@given(draws())
@SETTINGS
def test_composed_engine_equals_the_oracle_with_skewed_starts(case: Drawn) -> None:
    compare(case, "unaware", "composed")


@given(draws())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_two_runs_are_equal(case: Drawn) -> None:
    first, second = (simulate(case.workload(), case.config, queues_per_dim=case.queues) for _ in range(2))
    assert np.array_equal(first.finish_cycles, second.finish_cycles)
    assert (first.breakdown, first.bytes_per_dim, first.events) == (
        second.breakdown,
        second.bytes_per_dim,
        second.events,
    )


@pytest.mark.parametrize("topology", ["Ring", "Switch"])
@pytest.mark.parametrize("first", [1024, 4096])
def test_ranks_that_arrive_early_under_rendezvous(topology: str, first: int) -> None:
    """A message makes two of four ranks late for an all-reduce: composed from parts it would be off."""
    ring = Implementation("ring")
    system = SystemFile(implementations=dict.fromkeys((0, 2, 6, 7), (ring, ring)), local_mem_bandwidth=10.0)
    config = Config(NetworkFile((topology,) * 2, (2, 2), (1.0, 1.0), (500.5, 500.5)), system, MemoryFile(), {})
    steps: list[tuple[Any, ...]] = [("pair", first, 1, 0), ("world", 0, 1024, (True, True), 0)]
    case = Drawn([program(rank, 4, steps, 0, True, {}) for rank in range(4)], config, 1, True)
    for detail in ("auto", "composed", "chunks"):
        compare(case, "unaware", detail)
