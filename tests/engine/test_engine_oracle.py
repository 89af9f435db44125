"""The engine against a slow, obvious event-by-event simulator, on random small inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import NAMES, Drawn, draws, expected, golden, golden_options, program
from hypothesis import HealthCheck, assume, given, settings
from oracle import Oracle
from scaleacross.astra.collectives import Implementation
from scaleacross.astra.config_files import MemoryFile, NetworkFile, SystemFile
from scaleacross.engine import Config, simulate
from scaleacross.engine.workload import prepare
from scaleacross.trace.ranks import RankClass, RankMap
from scaleacross.trace.workload import Workload as Source

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


RING = Implementation("ring")
SYSTEM = SystemFile(implementations=dict.fromkeys((0, 2, 6, 7), (RING, RING)), local_mem_bandwidth=10.0)
WORLD: tuple[Any, ...] = ("world", 0, 1024, (True, True), 0)


def four(topology: str) -> Config:
    return Config(NetworkFile((topology,) * 2, (2, 2), (1.0, 1.0), (500.5, 500.5)), SYSTEM, MemoryFile(), {})


@pytest.mark.parametrize("topology", ["Ring", "Switch"])
@pytest.mark.parametrize(
    ("before", "late"), [([("pair", 1024, 1, 0)], 0), ([("pair", 4096, 1, 0)], 0), ([], 11), ([], 40)]
)
def test_ranks_that_arrive_early_under_rendezvous(topology: str, before: list[tuple[Any, ...]], late: int) -> None:
    """A message, or compute, makes two of four ranks late for an all-reduce: composed from parts it would be off."""
    traces = [program(rank, 4, [*before, WORLD], late if rank < 2 else 0, True, {}) for rank in range(4)]
    for detail in ("auto", "composed", "chunks"):
        compare(Drawn(traces, four(topology), 1, True), "unaware", detail)


@pytest.mark.parametrize("late", [0, 11])
def test_a_folded_workload_under_rendezvous_is_exact_or_refused(late: int, tmp_path: Path) -> None:
    traces = [program(rank, 4, [WORLD], late if rank < 2 else 0, True, {}) for rank in range(4)]
    classes = (RankClass("a.et", 0, (None, (0,))), RankClass("b.et", 2, (None, (1,))))
    folded = prepare(Source(tmp_path, RankMap((2, 2), classes), (traces[0], traces[2])))
    found = simulate(folded, four("Ring"), rendezvous=True)
    if late:
        assert found.status == "invalid" and found.message.startswith("E-FOLDED: a collective whose ranks arrive at")
    else:
        assert found.finish_cycles.tolist() == Oracle(traces, four("Ring"), False, 1, rendezvous=True).run()
