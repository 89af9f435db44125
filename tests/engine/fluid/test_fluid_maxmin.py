"""Max-min fair rates: against their definition, a textbook twin, and SimGrid."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_flows import INF, Flow, loop_ends, loop_rates, naive_ends, naive_rates

SYSTEM_PYTHON = "/usr/bin/python3"

loads = st.sampled_from([1.0, 1.0, 0.5, 2.0, 8.0, 128.0])
limits = st.sampled_from([INF, INF, 3.0, 20.0])
delays = st.sampled_from([0.0, 0.0, 1.0, 7.5])


@st.composite
def networks(draw: st.DrawFn, plain: bool = False) -> tuple[list[float], list[Flow]]:
    resources = draw(st.integers(1, 7))
    capacities = draw(st.lists(st.floats(1, 100), min_size=resources, max_size=resources))
    flows = []
    for _ in range(draw(st.integers(1, 9))):
        chosen = draw(st.sets(st.integers(0, resources - 1), min_size=1, max_size=4))
        uses = tuple((r, 1.0 if plain else draw(loads)) for r in sorted(chosen))
        size = draw(st.floats(1, 1000))
        flows.append(Flow(size, uses) if plain else Flow(size, uses, draw(limits), draw(delays)))
    return capacities, flows


@settings(max_examples=200, deadline=None)
@given(networks())
def test_rates_fulfil_the_definition(network: tuple[list[float], list[Flow]]) -> None:
    """Feasible, and every flow is at its limit or on a full resource where no other has a higher rate."""
    capacities, flows = network
    flows = [Flow(flow.size, flow.uses, flow.limit) for flow in flows]
    rates = loop_rates(capacities, flows)
    used = np.zeros(len(capacities))
    for rate, flow in zip(rates, flows, strict=True):
        for r, load in flow.uses:
            used[r] += rate * load
    assert (used <= np.array(capacities) * (1 + 1e-9)).all()
    for k, flow in enumerate(flows):
        highest = [
            max(rates[j] for j, other in enumerate(flows) if r in dict(other.uses))
            for r, _ in flow.uses
            if used[r] >= capacities[r] * (1 - 1e-9)
        ]
        assert rates[k] == pytest.approx(flow.limit) or any(rates[k] >= top * (1 - 1e-9) for top in highest)


@settings(max_examples=150, deadline=None)
@given(networks())
def test_rates_and_ends_equal_the_naive_twin(network: tuple[list[float], list[Flow]]) -> None:
    """The loop solves only what is connected to a change; the twin solves everything at every step."""
    capacities, flows = network
    at_once = [Flow(flow.size, flow.uses, flow.limit) for flow in flows]
    assert loop_rates(capacities, at_once) == pytest.approx(naive_rates(capacities, at_once), rel=1e-9)
    assert loop_ends(capacities, flows) == pytest.approx(naive_ends(capacities, flows), rel=1e-6)


def test_hand_checked_rates() -> None:
    """Three flows over links of 10 and 4: the short ones take what the long one's bottleneck leaves."""
    flows = [Flow(1, ((0, 1.0), (1, 1.0))), Flow(1, ((0, 1.0),)), Flow(1, ((1, 1.0),))]
    assert loop_rates([10, 4], flows) == pytest.approx([2, 8, 2])
    assert loop_rates([10, 4], [*flows, Flow(1, ((0, 1.0),), limit=1.0)]) == pytest.approx([2, 7, 2, 1])
    # 8 members of one class below an uplink of 16, beside a flow of 1 member: 9 equal shares of 16 / 9
    crowd = [Flow(1, ((0, 8.0),)), Flow(1, ((0, 1.0),))]
    assert loop_rates([16], crowd) == pytest.approx([16 / 9, 16 / 9])


SIMGRID = Path(__file__).with_name("simgrid_flows.py")


def has_simgrid() -> str:
    """Empty if SimGrid can be used, else why not."""
    try:
        done = subprocess.run([SYSTEM_PYTHON, "-c", "import simgrid"], capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


REASON = has_simgrid()


@pytest.mark.skipif(bool(REASON), reason=f"needs Debian's python3-simgrid: {REASON}")
def test_rates_and_ends_equal_simgrid() -> None:
    """Random networks of shared links; SimGrid's solver shares each link max-min. Within 0.1 %."""
    random = np.random.default_rng(7)
    cases = []
    for _ in range(25):
        resources, count = int(random.integers(2, 9)), int(random.integers(2, 13))
        capacities = random.uniform(1, 100, resources).tolist()
        flows = []
        for _ in range(count):
            chosen = random.choice(resources, int(random.integers(1, min(5, resources + 1))), replace=False)
            flows.append(Flow(float(random.integers(50, 1000)), tuple((int(r), 1.0) for r in chosen)))
        cases.append((capacities, flows))
    content = [
        {"capacities": caps, "flows": [[flow.size, [r for r, _ in flow.uses]] for flow in flows]}
        for caps, flows in cases
    ]
    done = subprocess.run(
        [SYSTEM_PYTHON, str(SIMGRID)],
        input=json.dumps(content),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    for (capacities, flows), ends in zip(cases, json.loads(done.stdout), strict=True):
        assert loop_ends(capacities, flows) == pytest.approx(ends, rel=1e-3)
