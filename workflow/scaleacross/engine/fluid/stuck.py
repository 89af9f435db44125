"""Who waits for what when nothing happens any more."""

from __future__ import annotations

import numpy as np

from . import layout as L
from .build import Built
from .machine import Machine
from .prepared import COLLECTIVE, RECEIVE

SHOWN = 8  # ranks


def stuck_message(built: Built, machine: Machine) -> str:
    """The ranks that did not finish, what each of the first few has begun, and what that waits for."""
    left = np.flatnonzero(machine.whole("sim", L.ROWS_LEFT))
    ranks = np.flatnonzero(np.isin(built.resources.sim_of, left))
    start, end = machine.real("row", L.START), machine.real("row", L.END)
    lines = [f"E-DEADLOCK: {len(ranks)} of {built.fabric.npus} ranks never finish"]
    for sim in left[:SHOWN].tolist():
        own = slice(int(built.rows.first_row[sim]), int(built.rows.first_row[sim + 1]))
        rows = np.arange(own.start, own.stop)[(start[own] >= 0) & (end[own] < 0)]
        waiting = [_waits_for(built, machine, sim, row) for row in rows.tolist()] or [
            _blocked(built, machine, sim, own)
        ]
        lines.append(f"  rank {int(built.rows.true_of[sim])}: " + ", ".join(waiting[:3]))
    if len(left) > SHOWN:
        lines.append(f"  ... and {len(left) - SHOWN} more")
    return "\n".join(lines)


def _node(built: Built, sim: int, row: int) -> str:
    program = built.programs[sim]
    at = int(program.order[row - int(built.rows.first_row[sim])])
    return f"node {int(program.trace.ids[at])} ({program.trace.names[at]})"


def _waits_for(built: Built, machine: Machine, sim: int, row: int) -> str:
    tables, program = machine.tables, built.programs[sim]
    trace, at = program.trace, int(program.order[row - int(built.rows.first_row[sim])])
    if tables.kind[row] == RECEIVE:
        source, tag = int(trace.comm_src[at]), int(trace.comm_tag[at])
        return f"{_node(built, sim, row)} waits for a message of rank {source} with tag {tag}"
    if tables.kind[row] == COLLECTIVE:
        job = machine.at["job"] + int(tables.job[row]) * L.JOB_SIZE
        first = int(machine.m[job + L.MEMBERS])
        called = machine.m[first : first + int(machine.m[job + L.ARRIVED])]
        here = set(((machine.m[called + L.SIM] - machine.at["sim"]) // L.SIM_SIZE).tolist())
        missing = [int(built.rows.true_of[k]) for k in built.jobs[int(tables.job[row])].sims if k not in here]
        shown = ", ".join(map(str, missing[:6])) + (" ..." if len(missing) > 6 else "")
        return f"{_node(built, sim, row)} waits for rank {shown} to join the same collective"
    return f"{_node(built, sim, row)} is under way"


def _blocked(built: Built, machine: Machine, sim: int, own: slice) -> str:
    waits, end = machine.whole("row", L.WAITS)[own], machine.real("row", L.END)[own]
    row = own.start + int(np.flatnonzero(end < 0)[0])
    return f"{_node(built, sim, row)} waits for {int(waits[row - own.start])} nodes that never end (a cycle)"
