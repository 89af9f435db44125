"""Jobs as the event loop runs them: stretches in a row, each with the resources that it may have to share.

A port that only one stream of a class ever uses (NVLink, where tensor parallelism alone is inside the node) is never
shared, because a stream does one thing at a time. A job that shares nothing is a wait: its rate is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .jobs import Flow, Job
from .resources import PORT, Resources, Use
from .streams import RESERVED, Streams
from .turns import Turn, plan_turns

Int64 = NDArray[np.int64]


@dataclass
class Laid:
    """Stretches of all jobs.

    Attributes:
        columns: of jobs, stretches and uses for :class:`.build.Tables`.
        means: for each job, ports (as members load them on average) and uplinks.
        alone: ns of each job that shares nothing.
        private: (job, level, PORT or UPLINK, ns) of transfers at the rate of what nobody shares.
        turns: of each job that takes turns.
    """

    columns: dict[str, NDArray[Any]]
    means: list[list[Use]]
    alone: list[float]
    private: list[tuple[int, int, int, float]]
    turns: dict[int, Turn]


class _Wait(NamedTuple):
    """A stretch as the loop runs it: ns, bytes, bytes per ns, the resource that sets that rate, what may be shared.

    ``turn``: it waits for its turn before it flows.
    """

    latency: float
    size: float
    limit: float
    tightest: int
    uses: list[Use]
    turn: bool = False


def lay(jobs: Sequence[Job], resources: Resources, streams: Streams) -> Laid:
    """Resolve uplinks, find what is shared, and put the stretches into columns."""
    above = [resources.uplink_uses(job.flow.rows) for job in jobs]
    uses = [merged([*job.flow.uses, *rows]) for job, rows in zip(jobs, above, strict=True)]
    means = [
        used if job.flow.means is job.flow.uses else merged([*job.flow.means, *rows])
        for job, rows, used in zip(jobs, above, uses, strict=True)
    ]
    shared = _shared(jobs, uses, resources)
    crowd: list[float] = []
    if streams.qos == RESERVED:
        shared, crowd = [False] * len(shared), _crowd(jobs, uses, resources)
    turns = plan_turns(jobs, uses, resources) if resources.fabric.turns else {}
    crowds = [number for number, turn in turns.items() if turn.replicas > 1]
    waits: list[list[_Wait]] = []
    alone: list[float] = []
    private: list[tuple[int, int, int, float]] = []
    for number, (job, used) in enumerate(zip(jobs, uses, strict=True)):
        flow = job.flow
        if number in turns:
            waits.append(_in_turn(flow, turns[number], shared))
            alone.append(flow.latency + turns[number].spread + turns[number].time)
            continue
        limit, tightest = _limit(flow, used, resources)
        alone.append(flow.latency + flow.size / limit)
        if crowd:
            limit, tightest = _reserved(flow, used, resources, crowd)
        kept = [use for use in used if shared[use[0]]]
        if kept and flow.size > 0:
            waits.append([_Wait(flow.latency, flow.size, limit, _pacer(flow, tightest, used, resources), kept)])
            continue
        waits.append([_Wait(flow.latency + flow.size / limit, 0.0, 1.0, -1, [])])
        if tightest >= 0:
            found = resources.found[tightest]
            private.append((number, found.level, found.kind, flow.size / limit))
        else:
            private += [(number, level, PORT, time) for level, time in flow.held.items()]
    for number in crowds:
        waits.append([_others(jobs[number].flow, turns[number], shared)])
    need = [*(len(job.sims) for job in jobs), *(0 for _ in crowds)]
    traffic = [*(streams.traffic(job.axis) for job in jobs), *(0 for _ in crowds)]
    columns = {**_columns(need, traffic, waits, resources), **_turn_columns(len(jobs), turns, crowds)}
    return Laid(columns, means, alone, private, turns)


def _in_turn(flow: Flow, turn: Turn, shared: Sequence[bool]) -> list[_Wait]:
    """Bytes go to those that send them, wait for the turn, cross, and are put together."""
    kept = [use for use in turn.uses if shared[use[0]]]
    crosses = _Wait(turn.spread / 2, flow.size, flow.size / turn.time, turn.tightest, kept, True)
    return [crosses, _Wait(flow.latency + turn.spread / 2, 0.0, 1.0, -1, [])]


def _others(flow: Flow, turn: Turn, shared: Sequence[bool]) -> _Wait:
    """The turns of the replicas that a job stands for beside the one it runs as."""
    return _in_turn(flow, turn, shared)[0]._replace(size=flow.size * (turn.replicas - 1))


def _turn_columns(jobs: int, turns: dict[int, Turn], crowds: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Of jobs, then of those that stand for the other replicas of ``crowds``."""
    nobody = Turn(-1, -1, 0, 0.0, 0.0, 0.0, (), -1, (-1, -1))
    theirs = [replace(nobody, before=turns[number].before) for number in crowds]
    own = [*(turns.get(number, nobody) for number in range(jobs)), *theirs]
    others = np.full(len(own), -1, np.int64)
    others[list(crowds)] = jobs + np.arange(len(crowds))
    return {
        "others": others,
        "former": np.array([turn.before for turn in own], np.int64),
        "latter": np.array([turn.after for turn in own], np.int64),
        "servers": np.array([turn.servers for turn in own], np.int64).reshape(-1, 2),
        "turn_time": np.array([(turn.time, turn.time * turn.replicas, turn.round) for turn in own]).reshape(-1, 3),
    }


def _limit(flow: Flow, uses: Sequence[Use], resources: Resources) -> tuple[float, int]:
    """Rate of a flow that has its resources to itself, and the resource that sets it (-1: its phases do)."""
    found = resources.found
    rates = [(found[r].capacity / load, r) for r, load in uses if found[r].sharing]
    return min([(flow.limit, -1), *rates])


def _pacer(flow: Flow, tightest: int, uses: Sequence[Use], resources: Resources) -> int:
    """The resource that sets the pace of a flow which shares nothing: one of the level that holds it for longest."""
    if tightest >= 0 or not flow.held:
        return tightest
    level = max(flow.held, key=lambda k: flow.held[k])
    own = [r for r, _ in uses if resources.found[r].level == level and resources.found[r].kind == PORT]
    return own[0] if own else -1


def _reserved(flow: Flow, uses: Sequence[Use], resources: Resources, crowd: Sequence[float]) -> tuple[float, int]:
    """Rate of a flow, and the resource that sets it, while all streams that ever use its resources send.

    No other resource is left out here, even if another one limits fair shares first: so no port or uplink that gets
    slower can make this rate higher. Progressive filling never gives a flow less, since nobody in front of it has more.
    """
    return min([(flow.limit, -1), *((resources.found[r].capacity / crowd[r], r) for r, _ in uses)])


def _crowd(jobs: Sequence[Job], uses: Sequence[Sequence[Use]], resources: Resources) -> list[float]:
    """Load of each resource, for a byte that rates count, when every stream of every class sends what loads it most.

    A stream of a class runs one job at a time. Uplinks are loaded class by class, or by a group's ring as a whole.
    """
    most: list[dict[tuple[object, ...], float]] = [{} for _ in resources.found]
    for job, used in zip(jobs, uses, strict=True):
        now: dict[tuple[int, tuple[object, ...]], float] = {}
        loads = [
            (r, _whose(job, resources.found[r].owner), load) for r, load in used if resources.found[r].kind == PORT
        ]
        for lane, (k, row), factor in job.flow.rows:
            owner = _whose(job, row)
            loads += [(r, owner, load) for r, load in resources.uplink_uses([(lane, (k, row), factor)])]
        for r, owner, load in loads:
            now[r, owner] = now.get((r, owner), 0.0) + load
        for (r, owner), load in now.items():
            most[r][owner] = max(most[r].get(owner, 0.0), load)
    return [sum(own.values()) for own in most]


def _whose(job: Job, sim: int) -> tuple[object, ...]:
    """The stream that loads a port or uplink: of a member's class, or of all that take part."""
    return ("class", sim, job.stream) if job.call is not None and sim in job.sims else ("job", job.sims, job.stream)


def _shared(jobs: Sequence[Job], uses: Sequence[Sequence[Use]], resources: Resources) -> list[bool]:
    """Whether each resource can be a bottleneck that different streams use at the same time."""
    streams: list[set[tuple[object, ...]]] = [set() for _ in resources.found]
    for job, used in zip(jobs, uses, strict=True):
        for r, _ in used:
            resource = resources.found[r]
            mine = resource.kind == PORT and job.call is not None and resource.owner in job.sims
            streams[r].add(("axis", job.stream) if mine else ("job", job.sims, job.stream))
    return [resource.sharing and len(own) > 1 for resource, own in zip(resources.found, streams, strict=True)]


def _columns(
    need: Sequence[int], traffic: Sequence[int], waits: Sequence[Sequence[_Wait]], resources: Resources
) -> dict[str, NDArray[Any]]:
    stretches = [len(own) for own in waits]
    every = [wait for own in waits for wait in own]
    return {
        "first": pointers(stretches)[:-1],
        "stretches": np.array(stretches, np.int64),
        "need": np.array(need, np.int64),
        "traffic": np.array(traffic, np.int64),
        "member_ptr": pointers(need),
        "latency": np.array([wait.latency for wait in every], np.float64),
        "size": np.array([wait.size for wait in every], np.float64),
        "limit": np.array([wait.limit for wait in every], np.float64),
        "tightest": np.array([wait.tightest for wait in every], np.int64),
        "turn": np.array([wait.turn for wait in every], np.int64),
        "use_ptr": pointers([len(wait.uses) for wait in every]),
        "use_resource": np.array([r for wait in every for r, _ in wait.uses], np.int64),
        "use_load": np.array([load for wait in every for _, load in wait.uses], np.float64),
        "capacity": np.array([resource.capacity for resource in resources.found], np.float64),
    }


def merged(uses: Sequence[Use]) -> list[Use]:
    """Uses with one entry a resource."""
    total: dict[int, float] = {}
    for resource, load in uses:
        total[resource] = total.get(resource, 0.0) + load
    return list(total.items())


def pointers(counts: Sequence[int] | Int64) -> Int64:
    """Where each of so many lists of these lengths begins, and the end."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(np.asarray(counts, np.int64), out=found[1:])
    return found
