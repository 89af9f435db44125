"""Temporal sharing of the wide area: one replica's transfer at a time has it all, in turn over the replicas.

ATLAS (arXiv 2411.14458) gives the whole bandwidth between sites to one pipeline's transfer after the other instead of
sharing it among the D data-parallel replicas. All of them send A bytes a rank at the same moment; if fair shares move
a rank's bytes at ``r``, a turn moves one replica's at ``D r``: the first arrives after A / (D r), the last after A / r,
as when all share. Where a rank's own port is slower than that, a replica spreads its bytes over the ports of ``m``
replicas' ranks, ``m = ceil(D r / port)``, which costs moving (m - 1) / m of them inside the site before and after
(:func:`scaleacross.cluster.sharing.turn_arrivals`). These moves are time, not load on the ports.

*Discipline.* Turns go round strictly: a round is one transfer of every replica, in their order, and a round begins
when its first transfer is ready and the round before has ended. Then replica k is never more than k turns behind the
first, at every transfer, however the traffic comes: let ``t`` be when the first starts a round. Until then replica k
is at most k turns late by induction, and what depends on all replicas (a gradient reduction) is not late at all, so
that its transfer is ready by ``t`` + k turns, which is when the one before it ends. So every replica lies between those
before and after it, and a group of neighbours that runs as its last member is never too fast.

*Folding.* A class of ranks becomes a class for each replica: exactly the simulation of every rank, tests say. Where
that is more than ``MOST_ROWS`` operators, the first replica has a class of its own and the others are grouped. Turns
stay exact then; what is lost is that the other traffic of each replica meets the collectives of all of them on the
ports at a moment of its own (tests: 0.1 % of a step at most, where two classes stand for four replicas).

*Ports.* A transfer in its turn comes first on the ports it passes; what else uses them shares what is left. A
collective over all replicas goes as slow as its slowest port, so that the ports of a group are taken during the turns
of its other members too: by a job that nobody calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ..program import Call, Program
from ..settings import Config
from ..workload import Workload
from .fabric import Fabric
from .jobs import Job
from .resources import PORT, UPLINK, Resources, Use

Int64 = NDArray[np.int64]
MOST_ROWS = 200_000  # operators of all simulated ranks, where replicas are told apart


@dataclass(frozen=True, slots=True)
class Turn:
    """How one job takes its turns.

    Attributes:
        before, after: jobs of the replicas before and after it in a round, -1.
        replicas: that it stands for; it runs as the last of them. time: ns of one turn. spread: ns of moving bytes
            inside the sites, in all. round: ns of all replicas' turns.
        uses: what it loads on its way, links between sites left out; ``tightest``: the resource that sets its rate.
        servers: numbers of the directions of links between sites that it occupies.
    """

    before: int
    after: int
    replicas: int
    time: float
    spread: float
    round: float
    uses: tuple[Use, ...]
    tightest: int
    servers: tuple[int, int]


def by_replica(workload: Workload, config: Config, fabric: Fabric) -> Workload:
    """Split every class of a folded workload by replica, or by groups of replicas that run as their last one.

    Raises:
        InvalidInput: E-WAN-SHARING where replicas have classes of their own already.
    """
    replica = fabric.replica_of(np.arange(fabric.npus))
    if not workload.folded:
        return workload
    ends = replica_ends(fabric.replicas, sum(len(workload.programs[k]) for k in workload.program.tolist()))
    group = np.searchsorted(ends, replica)
    programs, which, files = list(workload.programs), [], []
    representative: list[int] = []
    sim_of = np.empty(workload.npus, np.int64)
    for k, own in enumerate(workload.representative.tolist()):
        members = np.flatnonzero(workload.sim_of == k)
        there = np.unique(replica[members])
        if len(there) != fabric.replicas:
            raise _error(
                f"class {workload.files[k]} has {len(there)} of {fabric.replicas} replicas", "use fair sharing"
            )
        for number, chosen in enumerate(ends.tolist()):
            rank = fabric.in_replica(own, chosen)
            sim_of[members[group[members] == number]] = len(representative)
            representative.append(rank)
            files.append(workload.files[k])
            which.append(len(programs))
            programs.append(_moved(workload, config, k, rank))
    return replace(
        workload,
        programs=programs,
        program=np.array(which, np.int64),
        files=files,
        representative=np.array(representative, np.int64),
        sim_of=sim_of,
    )


def replica_ends(replicas: int, rows: int) -> Int64:
    """The last replica of each group: a group each as far as ``rows`` operators a replica allow it, the first always.

    Returns:
        int64[groups], ascending, 2 groups or more.
    """
    groups = min(replicas, max(2, MOST_ROWS // max(rows, 1)))
    return np.unique(np.ceil(np.linspace(0, replicas - 1, groups)).astype(np.int64))


def _moved(workload: Workload, config: Config, k: int, rank: int) -> Program:
    """The program of class ``k`` as another member runs it."""
    program = workload.programs[int(workload.program[k])]
    if rank == int(workload.representative[k]):
        return program
    ranks, trace = workload.source.ranks, program.trace

    def moved(peers: Int64) -> Int64:
        return np.where(peers < 0, peers, ranks.translate(k, rank, np.maximum(peers, 0)))

    def call(one: Call) -> Call:
        if not one.group or int(one.group) not in ranks.family_of:
            return one
        return replace(one, group=str(int(ranks.group_of(int(one.group), config.groups)[rank])))

    shifted = replace(trace, comm_src=moved(trace.comm_src), comm_dst=moved(trace.comm_dst))
    return replace(program, trace=shifted, calls=tuple(map(call, program.calls)))


def plan_turns(jobs: Sequence[Job], uses: Sequence[Sequence[Use]], resources: Resources) -> dict[int, Turn]:
    """The turns of every message that crosses the outermost level, by job.

    Args:
        jobs: all of them. uses: of each.

    Raises:
        InvalidInput: E-WAN-SHARING where nothing crosses, or a transfer has not one sender in every replica.
    """
    fabric = resources.fabric
    families: dict[tuple[int, ...], list[int]] = {}
    for number, job in enumerate(jobs):
        if job.crossing:
            families.setdefault(_family(fabric, job), []).append(number)
    if not families:
        raise _error(f"no message crosses {fabric.levels[-1].name}, so that nothing takes turns", "use fair sharing")
    servers: dict[tuple[int, ...], int] = {}
    found: dict[int, Turn] = {}
    for family in families.values():
        lanes: dict[int, list[int]] = {}
        for number in family:
            lanes.setdefault(fabric.in_replica(jobs[number].crossing[0], 0), []).append(number)
        for lane in lanes.values():
            found.update(_lane(jobs, uses, resources, family, lane, servers))
    return found


def _family(fabric: Fabric, job: Job) -> tuple[int, ...]:
    """What the same transfer of all replicas and lanes has in common: the stages and the bytes."""
    ends = [int(fabric.digits(rank)[d]) for rank in job.crossing for d in fabric.stage_dims]
    return (*ends, int(job.flow.size))


def _lane(
    jobs: Sequence[Job],
    uses: Sequence[Sequence[Use]],
    resources: Resources,
    family: Sequence[int],
    lane: Sequence[int],
    servers: dict[tuple[int, ...], int],
) -> dict[int, Turn]:
    fabric = resources.fabric
    ordered = sorted(lane, key=lambda number: int(fabric.replica_of(jobs[number].crossing[0])))
    places = [int(fabric.replica_of(jobs[number].crossing[0])) for number in ordered]
    count = fabric.replicas
    if places != sorted(set(places)) or places[-1] != count - 1:
        raise _error(f"a transfer is sent by replicas {places} of {count}", "use fair sharing")
    size = jobs[ordered[0]].flow.size
    pair, fair, tightest = _rates(uses, resources, family, ordered[0])
    spread_over = min(count, math.ceil(count * fair / pair * (1 - 1e-9)))
    time = size / min(count * fair, spread_over * pair)
    local = fabric.levels[-2].port
    spread = 2 * size * (spread_over - 1) / spread_over / local
    sender, receiver = jobs[ordered[0]].crossing
    unit, base = fabric.levels[-1].unit, fabric.lane_of(sender)
    ends = tuple(
        servers.setdefault(key, len(servers)) for key in ((sender // unit, 0, base), (receiver // unit, 1, base))
    )
    found = resources.found
    inner: dict[int, float] = {}  # each turn's bytes leave through all replicas' units, as ranks of all may send them
    for number in ordered:
        for r, load in uses[number]:
            if found[r].kind == UPLINK and found[r].level != len(fabric.levels) - 1:
                inner[r] = inner.get(r, 0.0) + load / count
    turns = {}
    for at, number in enumerate(ordered):
        weight = places[at] - (places[at - 1] if at else -1)
        ports = [(r, load / spread_over) for r, load in uses[number] if found[r].kind == PORT]
        own = (*ports, *inner.items())
        turns[number] = Turn(
            before=ordered[at - 1] if at else -1,
            after=ordered[at + 1] if at + 1 < len(ordered) else -1,
            replicas=weight,
            time=time,
            spread=spread,
            round=count * time,
            uses=own,
            tightest=tightest,
            servers=(ends[0], ends[1]),
        )
    return turns


def _rates(
    uses: Sequence[Sequence[Use]], resources: Resources, family: Sequence[int], one: int
) -> tuple[float, float, int]:
    """Bytes per ns of a sender through its ports alone, with fair shares of everything, and what limits the latter."""
    found = resources.found
    pair = min(found[r].capacity / load for r, load in uses[one] if found[r].kind == PORT and found[r].sharing)
    total: dict[int, float] = {}
    for number in family:
        for r, load in uses[number]:
            if found[r].kind == UPLINK:
                total[r] = total.get(r, 0.0) + load
    fair, tightest = min(((found[r].capacity / load, r) for r, load in total.items()), default=(math.inf, -1))
    return pair, min(fair, pair), tightest


def _error(clash: str, fix: str) -> InvalidInput:
    return InvalidInput("E-WAN-SHARING", f"wan-sharing temporal: {clash}", fix)
