"""From a workload and a configuration to the flat arrays of the event loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ..program import Program
from ..settings import Config, Options
from ..workload import Workload
from .fabric import Fabric, build_fabric
from .jobs import Job, JobTable
from .laying import Laid, lay, pointers
from .prepared import Prepared, prepared
from .resources import Resources
from .streams import read_streams
from .turns import by_replica

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


class Tables(NamedTuple):
    """What the loop reads.

    Rows are the operators of all simulated ranks, one rank after the other, in ascending id; slots are those of all
    ranks.

    Attributes:
        kind, slot, job, channel, axis, sim, child_ptr, child: int64 a row (slot and channel -1: none).
        time: ns of a timed row.
        ready_ptr: where the waiting rows of each slot are kept. in_line: rows that need a slot, slot after slot.
        first, stretches, need, traffic, member_ptr: of each job; members is where rows that have called are kept.
        latency, size, limit, tightest, use_ptr: of each stretch; use_resource, use_load: of each use.
        capacity: bytes per ns of each resource.
        send_ptr, receive_ptr: where each channel keeps its messages.
        turn: of each stretch, 1 where it takes its turn (:mod:`.turns`). former, latter: of each job, the job whose
            turn is before and after its own, -1. servers: int64[jobs, 2], the two directions of links that it occupies.
        others: of each job, the one that stands for the turns of the other replicas of its class, -1.
        turn_time: float64[jobs, 3], ns of a turn, of the turns of the replicas it stands for, of a round.
        ends_ptr: where each job keeps when its turns end.
    """

    kind: Int64
    slot: Int64
    job: Int64
    channel: Int64
    axis: Int64
    sim: Int64
    child_ptr: Int64
    child: Int64
    time: Float64
    ready_ptr: Int64
    in_line: Int64
    first: Int64
    stretches: Int64
    need: Int64
    traffic: Int64
    member_ptr: Int64
    latency: Float64
    size: Float64
    limit: Float64
    tightest: Int64
    use_ptr: Int64
    use_resource: Int64
    use_load: Float64
    capacity: Float64
    send_ptr: Int64
    receive_ptr: Int64
    turn: Int64
    former: Int64
    latter: Int64
    others: Int64
    servers: Int64
    turn_time: Float64
    ends_ptr: Int64


@dataclass(slots=True)
class Built:
    """The arrays and what their numbers mean. ``in_line``: streams run their rows in the order of the trace."""

    tables: Tables
    rows: Prepared
    in_line: bool
    fabric: Fabric
    resources: Resources
    jobs: list[Job]
    laid: Laid
    programs: list[Program]  # of each simulated rank


def build(workload: Workload, config: Config, options: Options) -> Built:
    """Resolve every operator of a workload on a network.

    Raises:
        InvalidInput: what traces, groups, algorithms and the configuration raise; E-WORLD where ranks and NPUs differ.
    """
    fabric = build_fabric(config.network)
    streams = read_streams(config.system.extension)
    if workload.npus != config.npus:
        clash = f"{workload.npus} ranks in the traces, {config.npus} NPUs in the network"
        raise InvalidInput("E-WORLD", clash, "use the configuration that was rendered for this plan")
    _refuse_unmodelled(config, options)
    if fabric.turns:
        workload = by_replica(workload, config, fabric)
    rows = prepared(workload, config, fabric, streams.single)
    sizes = np.bincount(rows.sim_of, minlength=len(rows.true_of))
    resources = Resources(fabric, rows.sim_of, sizes, known=rows.units)
    window = -(-config.system.active_chunks_per_dimension // options.queues_per_dim)
    scale = options.injection_scale
    table = JobTable(config, fabric, resources, rows.true_of, workload.family, rows.classes, scale, window)
    job = _jobs(workload, rows, table)
    laid = lay(table.jobs, resources, streams)
    tables = Tables(
        kind=rows.kind,
        slot=rows.slot,
        job=job,
        channel=rows.channel,
        axis=rows.axis,
        sim=rows.sim,
        child_ptr=rows.child_ptr,
        child=rows.child,
        time=rows.time,
        ready_ptr=pointers(np.bincount(rows.slot[rows.slot >= 0], minlength=int(rows.first_slot[-1]))),
        in_line=rows.in_line,
        send_ptr=pointers(rows.sends),
        receive_ptr=pointers(rows.receives),
        ends_ptr=pointers(np.bincount(job[job >= 0], minlength=len(laid.columns["need"])) * fabric.turns),
        **laid.columns,
    )
    programs = [workload.programs[k] for k in rows.which]
    return Built(
        tables,
        rows,
        not streams.single,
        fabric,
        resources,
        table.jobs,
        laid,
        programs,
    )


def _refuse_unmodelled(config: Config, options: Options) -> None:
    """What would be ignored is an error."""
    system = config.system
    if system.custom or system.per_node_custom:
        clash = "collectives with an algorithm of their own (a Chakra trace)"
        raise InvalidInput("E-FLUID-CUSTOM", clash, "use the unaware model, or a native algorithm")
    if system.model_shared_bus:
        raise InvalidInput("E-FLUID-BUS", "model-shared-bus is on", "use the unaware model, or switch it off")
    if options.rendezvous:
        clash = "the rendezvous protocol is asked for; messages of the scaleacross model are sent at once"
        raise InvalidInput("E-FLUID-RENDEZVOUS", clash, "use the unaware model, or leave it out")


def _jobs(workload: Workload, rows: Prepared, table: JobTable) -> Int64:
    """The job of each row, -1 for rows that are none."""
    found = np.full(len(rows.kind), -1, np.int64)
    for sim, k in enumerate(rows.which):
        calls, where = workload.programs[k].calls, workload.files[sim]
        for asked in rows.asked[k]:
            if asked.messages:
                made = [table.message(sim, *key) for key in asked.keys]
            else:
                made = [table.collective(sim, calls[call], axis, where) for call, axis in asked.keys]
            found[int(rows.first_row[sim]) + asked.rows] = np.array(made, np.int64)[asked.which]
    return found
