"""The ``scaleacross`` network model: simulation with contention."""

from __future__ import annotations

import time

from ..settings import Config, Options
from ..workload import Workload
from . import layout as L
from .build import build
from .loop import PAUSED, run
from .machine import make_machine
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
    machine = make_machine(built.tables, built.waits)
    begun = time.monotonic()
    status = "ok"
    while run(machine.m, machine.f, BUDGET if time_limit is not None else 1 << 60) == PAUSED:
        if time_limit is not None and time.monotonic() - begun > time_limit:
            status = "timeout"
            break
    if status == "ok" and machine.m[L.G_LEFT] > 0:
        status = "deadlock"
    outcome = read_outcome(built, machine, status, timeline)
    if status == "timeout":
        outcome.message = f"E-TIME-LIMIT: not finished after {time_limit} s; raise the time limit"
    return outcome
