"""Why a simulation did not end: who waits, and for what."""

from __future__ import annotations

import numpy as np

from ..trace.columns import COMM_TYPES
from .assemble import Assembly
from .kernel import layout as L
from .program import Program

SHOWN = 8


def explain(assembly: Assembly, status: str, time_limit: float | None) -> str:
    """One line a waiting rank, the first few."""
    if status == "timeout":
        return f"E-TIME-LIMIT: not finished after {time_limit} s; raise --time-limit"
    machine, population = assembly.machine, assembly.population
    left = machine.ranks(L.R_LEFT)
    start, end = machine.nodes(L.W_START), machine.nodes(L.W_END)
    stuck = np.flatnonzero(left > 0).tolist()
    weights = population.weights()
    ranks = int(sum(weights[sim] for sim in stuck))
    lines = [f"E-DEADLOCK: {ranks} of {len(population.sim_of)} ranks never finish"]
    for sim in stuck[:SHOWN]:
        program = population.programs[int(population.program[sim])]
        span = slice(int(machine.first_node[sim]), int(machine.first_node[sim + 1]))
        running = np.flatnonzero((start[span] >= 0) & (end[span] < 0)).tolist()
        what = [_describe(assembly, sim, program, row) for row in running[:4]]
        if not running:
            what = [_blocked(program, np.flatnonzero(start[span] < 0).tolist())]
        rank = int(population.true_of[sim])
        others = f" (and {weights[sim] - 1} like it)" if weights[sim] > 1 else ""
        lines.append(f"  rank {rank}{others}: {int(left[sim])} nodes left; " + "; ".join(what))
    if len(stuck) > SHOWN:
        lines.append(f"  ... and {len(stuck) - SHOWN} more")
    return "\n".join(lines)


def _name(program: Program, row: int) -> str:
    at = int(program.order[row])
    return f"node {int(program.trace.ids[at])} {program.trace.names[at]!r}"


def _describe(assembly: Assembly, sim: int, program: Program, row: int) -> str:
    trace, at = program.trace, int(program.order[row])
    text = _name(program, row)
    kind = int(program.kind[row])
    size, tag = int(trace.comm_size[at]), int(trace.comm_tag[at])
    if kind == L.RECEIVE:
        return f"{text} waits for {size} bytes with tag {tag} from rank {int(trace.comm_src[at])}"
    if kind == L.SEND:
        return f"{text} sends {size} bytes with tag {tag} to rank {int(trace.comm_dst[at])}"
    if kind != L.COLLECTIVE:
        return f"{text} runs"
    call = program.calls[int(program.call[row])]
    orbit = assembly.orbit_at[assembly.call_of[(sim, int(program.call[row]))][1]]
    absent = _absent(assembly, orbit.sims, sim, row)
    where = f"group {call.group}" if call.group else f"dimensions {list(orbit.who.dims)}"
    reason = f"for ranks {absent}" if absent else "though its members are in one: their types, sizes or counts differ"
    return f"{text} ({COMM_TYPES[call.comm_type]} of {call.size} bytes, {where}) waits {reason}"


def _absent(assembly: Assembly, sims: tuple[int, ...], sim: int, row: int) -> str:
    """Members that run no collective of this communicator."""
    machine, population = assembly.machine, assembly.population
    start, end = machine.nodes(L.W_START), machine.nodes(L.W_END)
    mine = assembly.call_of[(sim, int(population.programs[int(population.program[sim])].call[row]))][1]
    absent = []
    for other in sims:
        program = population.programs[int(population.program[other])]
        span = slice(int(machine.first_node[other]), int(machine.first_node[other + 1]))
        running = np.flatnonzero((start[span] >= 0) & (end[span] < 0) & (program.call >= 0))
        if not any(assembly.call_of[(other, int(program.call[r]))][1] == mine for r in running.tolist()):
            absent.append(int(population.true_of[other]))
    return ", ".join(map(str, absent[:SHOWN])) + (" ..." if len(absent) > SHOWN else "")


def _blocked(program: Program, rows: list[int]) -> str:
    """Nothing runs: what is left waits for itself, or for a node that ended without waking it."""
    names = ", ".join(_name(program, row) for row in rows[:3])
    return f"nothing runs, and {names} wait(s) for a dependency that never ends (a cycle, or only an invalid node)"
