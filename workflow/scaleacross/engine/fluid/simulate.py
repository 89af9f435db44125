"""The ``scaleacross`` network model: simulation with contention."""

from __future__ import annotations

import time

from ..settings import Config, Options
from ..workload import Workload
from . import layout as L
from .build import Built, build
from .loop import PAUSED, run
from .machine import Machine, make_machine
from .outcome import FluidOutcome, read_outcome

BUDGET = 20_000  # events between two looks at the clock


def simulate_fluid(
    workload: Workload,
    config: Config,
    options: Options | None = None,
    time_limit: float | None = None,
    timeline: bool = False,
) -> FluidOutcome:
    """Simulate a workload, folded or not, on a network whose ports and uplinks are shared.

    Streams run their operators in the order of the trace. Where they cannot, because a rank's order contradicts another
    rank's (which no timing mends), every free stream takes what is ready instead, as ASTRA-sim does.

    Args:
        workload, config: as loaded; ``x-scaleacross`` of ``network.yml`` gives the tiers, that of ``system.json`` the
            streams.
        options: queues per dimension and injection scale, as on the command line of ASTRA-sim.
        time_limit: seconds of wall time.
        timeline: keep the timeline and the critical path.

    Raises:
        InvalidInput: E-WORLD, E-NETWORK-EXT, E-SYSTEM-EXT, E-HALVING, E-FLUID-CUSTOM, E-FLUID-MEMORY, E-FLUID-BUS,
            E-FLUID-RENDEZVOUS, E-TIME-RANGE, and what is wrong with traces, groups and algorithms.
    """
    built = build(workload, config, options or Options())
    begun = time.monotonic()
    machine, status = _run(built, built.in_line, begun, time_limit)
    if status == "deadlock" and built.in_line:
        machine, status = _run(built, False, begun, time_limit)
    outcome = read_outcome(built, machine, status, timeline)
    if status == "timeout":
        outcome.message = f"E-TIME-LIMIT: not finished after {time_limit} s; raise the time limit"
    return outcome


def _run(built: Built, in_line: bool, begun: float, time_limit: float | None) -> tuple[Machine, str]:
    """Run to the end: ok, deadlock or timeout (``time_limit`` seconds after ``begun``)."""
    machine = make_machine(built.tables, built.rows.waits, in_line, built.rows.images)
    events = BUDGET if time_limit is not None else 1 << 60
    while time_limit is None or time.monotonic() - begun <= time_limit:
        if run(machine.m, machine.f, events) != PAUSED:
            return machine, "deadlock" if machine.m[L.G_LEFT] > 0 else "ok"
    return machine, "timeout"
