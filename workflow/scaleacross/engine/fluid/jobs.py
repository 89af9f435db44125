"""Jobs: the different collectives and messages of a workload, each a transfer over resources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ..kernel import layout
from ..plan import Plan, group_plan, implementations, world_plan
from ..population import Communicator, communicator
from ..program import Call
from ..settings import Config
from .blocks import blocks_of
from .fabric import Fabric
from .flows import IN, Lane, Transfer, as_one, dimension_transfers, local_costs
from .groups import group_transfers
from .resources import Resources, Row, Use
from .routes import route

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flow:
    """The transfer of a job on its resources.

    Attributes:
        latency: ns. size: bytes that its rate counts. limit: bytes per ns.
        uses: ports as the busiest member of a class loads them. means: as members do on average.
        rows: uplink rows (lane, row, factor), resolved when all are known.
        dims: network dimension -> bytes sent on it for a byte of the size.
        held: level -> ns for which its ports set the pace.
    """

    latency: float
    size: float
    limit: float
    uses: tuple[Use, ...]
    means: tuple[Use, ...]
    rows: tuple[tuple[Lane, Row, float], ...]
    dims: dict[int, float]
    held: dict[int, float]


@dataclass(frozen=True, slots=True)
class Job:
    """What runs when all of ``sims`` have called.

    Attributes:
        sims: classes that take part (of a message: the sender). flow: what it sends.
        text: for messages to the user. axis: index into AXIS_NAMES.
        call: of a collective. nodes: its ranks. blocks: see :func:`.blocks.blocks_of`.
        crossing: of a message that takes turns on the outermost tier: its two ranks.
        stream: of a collective its axis, of a message its slot: what has the same runs one after the other on a class.
    """

    sims: tuple[int, ...]
    flow: Flow
    text: str
    axis: int
    call: Call | None = None
    nodes: int = 2
    blocks: tuple[tuple[int, float], ...] = ()
    stream: int = 0
    crossing: tuple[int, ...] = ()


@dataclass
class JobTable:
    """Jobs by what they are; asking twice gives the same number."""

    config: Config
    fabric: Fabric
    resources: Resources
    true_of: Int64
    family: dict[int, int]
    classes: dict[tuple[tuple[int, ...], int], tuple[int, ...]]
    injection_scale: float = 1.0
    window: int = 1
    jobs: list[Job] = field(default_factory=list)
    _collectives: dict[tuple[object, ...], int] = field(default_factory=dict)
    _messages: dict[tuple[int, ...], int] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], tuple[Plan, Transfer | None]] = field(default_factory=dict)
    _images: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    _block_sizes: dict[tuple[int, ...], tuple[tuple[int, float], ...]] = field(default_factory=dict)
    _kin: dict[tuple[int, int, tuple[int, ...]], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.grid = self.resources.sim_of.reshape(self.fabric.shape[::-1])
        for group, number in self.family.items():
            if group in self.config.groups:
                self._images.setdefault(number, []).append(self.config.groups[group])

    def collective(self, sim: int, call: Call, axis: int, where: str) -> int:
        """The job of a collective that class ``sim`` calls on the stream of ``axis``.

        Raises:
            InvalidInput: what resolving the communicator and its algorithm raises; E-HALVING, E-COLL-DIMS.
        """
        sims, who = self._participants(sim, call, where)
        place = who if isinstance(who, tuple) else self._place(sim, sims, who)
        key = (sims, place, call.comm_type, call.size, axis)
        if key not in self._collectives:
            self._collectives[key] = len(self.jobs)
            self.jobs.append(self._collective(sims, who, call, axis))
        return self._collectives[key]

    def message(self, sim: int, peer: int, size: int, slot: int, axis: int) -> int:
        """The job of messages of ``size`` bytes from class ``sim`` to rank ``peer``."""
        key = (sim, peer, size, slot, axis)
        if key not in self._messages:
            self._messages[key] = len(self.jobs)
            self.jobs.append(self._message(*key))
        return self._messages[key]

    # -- collectives ---------------------------------------------------------------------------------------------------

    def _participants(self, sim: int, call: Call, where: str) -> tuple[tuple[int, ...], tuple[int, ...] | Communicator]:
        """Classes that take part, and the dimensions or the group."""
        dims = self.config.network.dimensions
        rank = int(self.true_of[sim])
        if call.group:
            who = communicator(self.config, call, rank, where)
            if not who.dims:
                return tuple(np.unique(self.resources.sim_of[who.members]).tolist()), who
            chosen = who.dims
        else:
            chosen = tuple(
                d for d in range(dims) if call.involved is None or (d < len(call.involved) and call.involved[d])
            )
        key = (chosen, sim)
        if key not in self.classes:
            place = self.fabric.digits(rank)
            index = tuple(slice(None) if d in chosen else int(place[d]) for d in reversed(range(dims)))
            around = self.grid[index]
            alone = bool((around == sim).all())
            self.classes[key] = (sim,) if alone else tuple(np.unique(around).tolist())
        return self.classes[key], chosen

    def _place(self, sim: int, sims: tuple[int, ...], who: Communicator) -> tuple[int, ...]:
        """What every participant calls a group: its number, or its family and which of the class' groups it is."""
        number = self.family.get(who.group, -1)
        if number < 0:
            return (who.group,)
        kin = self._kin.setdefault((sim, number, sims), [])
        if who.group not in kin:
            kin.append(who.group)
        return (-1, number, kin.index(who.group))

    def _collective(self, sims: tuple[int, ...], who: tuple[int, ...] | Communicator, call: Call, axis: int) -> Job:
        if isinstance(who, Communicator):
            return self._group_job(sims, who, call, axis)
        key = (call.comm_type, call.size, who)
        if key not in self._plans:
            self._plans[key] = self._world(call, who)
        plan, transfer = self._plans[key]
        if not plan.phases:
            raise InvalidInput("E-COLL-DIMS", f"a collective of {call.size} bytes involves no dimension", "involve one")
        nodes = math.prod(self.fabric.shape[d] for d in who)
        if transfer is None:
            transfer = self._group_transfer(plan, np.arange(self.fabric.npus)[None, :], False)
        flow = self._flow(transfer, sims)
        return Job(sims, flow, f"a collective of {nodes} ranks", axis, call, nodes, self._blocks(who), axis)

    def _blocks(self, dims: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
        if dims not in self._block_sizes:
            self._block_sizes[dims] = blocks_of(self.fabric, None, dims)
        return self._block_sizes[dims]

    def _world(self, call: Call, dims: tuple[int, ...]) -> tuple[Plan, Transfer | None]:
        """A plan over whole dimensions and its transfer; None where a one* algorithm takes all ranks as one ring."""
        involved = tuple(d in dims for d in range(len(self.fabric.shape)))
        plan = world_plan(self.config, call.comm_type, call.size, involved)
        _check_halving(plan)
        if implementations(self.config, call.comm_type)[0].one and len(self.fabric.shape) > 1:
            return plan, None
        local = local_costs(self.config, self.injection_scale, group=False)
        phases = [dimension_transfers(self.fabric, phase, local) for phase in plan.phases]
        return plan, as_one(self.fabric, phases, plan, self.window)

    def _group_job(self, sims: tuple[int, ...], who: Communicator, call: Call, axis: int) -> Job:
        plan = group_plan(self.config, call.comm_type, call.size, len(who.members))
        _check_halving(plan)
        images = self._images.get(self.family.get(who.group, -1), [self.config.groups[who.group]])
        groups = np.array([ranks for ranks in images if len(ranks) == len(who.members)], np.int64)
        ours = np.isin(self.resources.sim_of[groups], sims).all(axis=1)
        flow = self._flow(self._group_transfer(plan, groups[ours], True), sims)
        blocks = blocks_of(self.fabric, who.members, ())
        return Job(sims, flow, f"a collective of group {who.group}", axis, call, len(who.members), blocks, axis)

    def _group_transfer(self, plan: Plan, groups: Int64, smaller: bool) -> Transfer:
        local = local_costs(self.config, self.injection_scale, group=smaller)
        phases = [group_transfers(self.fabric, phase, groups, local) for phase in plan.phases]
        return as_one(self.fabric, phases, plan, self.window)

    def _flow(self, transfer: Transfer, sims: Sequence[int]) -> Flow:
        resources = self.resources
        if transfer.spread is not None:
            uses, means, rows = resources.spread_uses(transfer.spread, sims)
        else:
            uses = [(resources.port(k, lane, sim), load) for sim in sims for (k, lane), load in transfer.ports.items()]
            means, rows = uses, resources.class_uses(transfer.uplinks, sims)
        if self.fabric.sites and any(k >= len(self.fabric.levels) - 2 for _, (k, _), _ in rows):
            clash = f"sites of different size, and a collective crosses {self.fabric.levels[-2].name}"
            raise InvalidInput("E-SITES", clash, "let messages of pipeline stages alone cross it")
        if self.fabric.turns and any(k == len(self.fabric.levels) - 1 for _, (k, _), _ in rows):
            clash = f"wan-sharing temporal: a collective crosses {self.fabric.levels[-1].name}; it cannot take turns"
            raise InvalidInput("E-WAN-SHARING", clash, "use fair sharing, or put the pipeline alone across that tier")
        own = tuple(uses)
        mean = own if means is uses else tuple(means)
        return Flow(
            transfer.latency, transfer.size, transfer.limit, own, mean, tuple(rows), transfer.dims, transfer.held
        )

    # -- messages ------------------------------------------------------------------------------------------------------

    def _message(self, sim: int, peer: int, size: int, slot: int, axis: int) -> Job:
        resources, sizes = self.resources, self.resources.sizes
        rank, other = int(self.true_of[sim]), int(resources.sim_of[peer])
        if rank == peer:
            raise InvalidInput("E-MESSAGE", f"rank {rank} sends to itself", "send to another rank")
        way = route(self.fabric, rank, peer)
        loads = [(k, lane, sim, load) for k, lane, load in way.out]
        loads += [(k, lane, other, load * sizes[sim] / sizes[other]) for k, lane, load in way.into]
        for k, lane, between, load in way.passed:
            owner = int(resources.sim_of[between])
            loads.append((k, lane, owner, load * sizes[sim] / sizes[owner]))
        ports = loads[: len(loads) - len(way.passed)] if self.fabric.tiered else loads
        uses = tuple((resources.port(k, lane, owner), float(load)) for k, lane, owner, load in ports)
        rows = tuple(
            (lane, resources.class_row(k, owner), float(load))
            for k, lane, owner, load in loads
            if resources.has_uplinks(k)
        )
        flow = Flow(way.latency, float(size), np.inf, uses, uses, rows, {way.dimension: 1.0}, {})
        turns = self.fabric.turns and int(self.fabric.top(rank, peer)) == len(self.fabric.levels) - 1
        crossing = (rank, peer) if turns else ()
        return Job((sim,), flow, f"a message to rank {peer}", axis=axis, stream=slot, crossing=crossing)


def _check_halving(plan: Plan) -> None:
    for phase in plan.phases:
        if phase.algorithm == layout.HALVING and phase.nodes & (phase.nodes - 1):
            clash = f"halvingDoubling on {phase.nodes} ranks"
            raise InvalidInput("E-HALVING", clash, "it needs a power of two (the reference never ends)")


__all__ = ["IN", "Flow", "Job", "JobTable"]
