"""What an outcome says besides cycles: breakdown, bytes, bounds; folding; the compiled kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import GOLDEN, NAMES, Drawn, draws, golden, golden_options
from hypothesis import HealthCheck, given, settings
from scaleacross.engine import simulate
from scaleacross.engine.fold import fold
from scaleacross.engine.outcome import breakdown
from scaleacross.engine.simulate import population_of

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@given(draws())
@SETTINGS
def test_the_breakdown_sums_to_the_iteration(case: Drawn) -> None:
    outcome = simulate(case.workload(), case.config, queues_per_dim=case.queues)
    if outcome.status == "ok":
        assert sum(outcome.breakdown.values()) == pytest.approx(outcome.iteration_ns)
        assert min(outcome.breakdown.values()) >= 0
        assert len(outcome.bytes_per_dim) == case.config.network.dimensions


@given(draws())
@SETTINGS
def test_bytes_by_formula_equal_bytes_of_messages(case: Drawn) -> None:
    """Composed: from the plans. Chunk-wise: what the messages carried (without the rendezvous requests)."""
    plain, detailed = (
        simulate(case.workload(), case.config, queues_per_dim=case.queues, detail=detail)
        for detail in ("composed", "chunks")
    )
    if plain.status == detailed.status == "ok":
        assert plain.bytes_per_dim == pytest.approx(detailed.bytes_per_dim)


def test_breakdown_by_hand() -> None:
    """One rank: compute 0-10, tp 5-20, dp 15-30, nothing to 40."""
    owner, start, end = np.zeros(3, np.int64), np.array([0, 5, 15]), np.array([10, 20, 30])
    found = breakdown(owner, np.array([-1, 0, 4]), start, end, np.ones(1), 40)
    assert (found["compute"], found["exposed_tp"], found["exposed_dp"], found["idle"]) == (10, 10, 10, 10)


@pytest.mark.parametrize(
    ("name", "below"), [("1d_switch8_direct_all_reduce", True), ("1d_switch8_ring_all_reduce", False)]
)
def test_bound_ratio_finds_free_bandwidth(name: str, below: bool) -> None:
    """``direct`` sends seven messages over one port at once."""
    assert (simulate(*golden(name)).bound_ratio < 1) == below


@pytest.mark.parametrize("name", NAMES[::7])
def test_folding_keeps_every_rank_s_cycles(name: str) -> None:
    workload, config = golden(name)
    population = population_of(workload, config)
    names = workload.files
    assert len(fold(population, config, names).true_of) <= len(population.true_of)
    options = golden_options(name)
    folded, whole = (simulate(workload, config, detail=detail, **options) for detail in ("composed", "chunks"))
    assert np.array_equal(folded.finish_cycles, whole.finish_cycles)


def test_equal_ranks_fold_to_one() -> None:
    workload, config = golden("transformer8_2d")
    assert len(fold(population_of(workload, config), config, workload.files).true_of) == 1


def test_folding_tells_ranks_apart_by_their_partners() -> None:
    workload, config = golden("pp4tp4_2d")
    assert len(fold(population_of(workload, config), config, workload.files).true_of) == 4


@pytest.mark.slow
def test_the_compiled_kernel_equals_the_interpreted_one() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from scaleacross.engine.kernel.jit import compile_kernel; compile_kernel()\n"
        "from test_engine_golden import completed, differences\n"
        "for model, detail in (('unaware', 'composed'), ('unaware', 'chunks'), ('aware', 'auto')):\n"
        "    bad = [name for name in completed(model) if differences(name, model, detail)[1] != 0]\n"
        "    assert bad == [], bad\n"
    )
    here = str(Path(__file__).parent)
    assert GOLDEN.is_dir()
    subprocess.run([sys.executable, "-c", script, here], check=True)
