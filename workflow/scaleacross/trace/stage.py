"""The trace of one pipeline stage: the schedule's actions instantiated from recipes, messages, data parallelism.

Order. A rank's compute nodes form one chain in schedule order (control dependencies). Tensor, context and expert
collectives follow that chain. Pipeline sends and data-parallel collectives hang beside it and overlap what they can.
Node ids ascend in the order of issue, because ASTRA-sim tries ready nodes by id; so what has been waiting always has a
lower id than what becomes ready, and two events of the same nanosecond may come in either order.

Deadlock. Receives are posted from the start, so sends never wait and only collectives can wait for each other. All
members of every collective run the same trace at symmetric places of the network, hence meet their collectives in the
same order. Flat rings break that symmetry (a member next to a cut finishes late), so with them every collective waits
for the previous one in id order: a fixed order on every rank.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model import optimizer_operators
from ..schedule import Action
from .columns import ALL_GATHER, Trace, TraceBuilder
from .compute import block_cost
from .context import COMPUTE, INPUT, Context, Program, Twin
from .groups import Where
from .units import Transfer, Unit, optimizer_elements

Nodes = tuple[int, ...]
_Emission = Generator[None, None, Nodes]


class _Use(NamedTuple):
    """One pass of an action over one unit of a chunk."""

    kind: str
    micro_batch: int
    chunk: int
    unit: int


@dataclass
class StageWriter:
    """Writes the trace of one stage's representative rank: coordinates 0 off the pipeline axis but for ``site``."""

    context: Context
    stage: int
    site: Mapping[int, int] = field(default_factory=dict)
    builder: TraceBuilder = field(init=False)

    def __post_init__(self) -> None:
        context = self.context
        self.rank = context.placement.rank_of(pp=self.stage)
        if self.site:
            place = enumerate(context.placement.coordinates(self.rank))
            self.rank = context.placement.rank_at([self.site.get(d, here) for d, here in place])
        self.builder = TraceBuilder(self.rank)
        self.actions = context.schedule.actions[self.stage]
        self.units = context.chunk_units(self.stage)
        self.outputs: dict[tuple[str, int, int], Nodes] = {}
        self.last: Nodes = ()  # the last compute node
        self.barrier: Nodes = ()  # what the next action has to wait for besides
        self.last_collective: Nodes = ()
        self.places: dict[str, Where] = {}
        self.reduced: Nodes = ()
        self.shards_apart: list[tuple[str, list[Twin]]] = []
        self.postponed: list[tuple[str, Unit, list[Twin]]] = []
        self.gather_of, self.gather_units = self._plan_gathers()
        self.gathered: dict[int, Nodes] = {}
        self.closing = self._closing_actions(self.context.reduce_always)
        self.final = self._closing_actions(False)
        self.fused = self._fused_actions()

    def write(self) -> Trace:
        """The whole step: actions in order, then what data parallelism left, the optimizer, parameter gathers."""
        if self.context.prefetch:
            self._gather_ahead()
        steps = iter(self.actions)
        for step in steps:
            head, self.barrier = self.last + self.barrier, ()
            if step.overlaps_next:
                _interleave(self._action(step, head), self._action(next(steps), head))
            else:
                for _ in self._action(step, head):
                    pass
        self._finish_gradients()
        self._optimizer()
        return self.builder.build()

    # -- actions ------------------------------------------------------------------------------------------------------

    def _action(self, step: Action, head: Nodes) -> Generator[None, None, None]:
        """Emit one action; yields after every block of compute, so that two actions can be interleaved."""
        inputs = self._arrivals(step)
        name = f"{step.kind}.m{step.micro_batch}.c{step.chunk}"
        phase = "BW" if step.kind == "B" and step.whole else step.kind
        units = self.units[step.chunk]
        order = range(len(units)) if step.kind == "F" else range(len(units) - 1, -1, -1)
        uses = [_Use(step.kind, step.micro_batch, step.chunk, index) for index in order]
        closes = step in self.closing
        if step in self.fused:
            program = self.context.fused(self.stage, step.chunk, phase)
            inputs = yield from self._emit(program, name, inputs, head, ())
        else:
            for use in uses:
                gate = self._ready(use)
                program = self.context.program(self.stage, step.chunk, use.unit, phase)
                inputs = yield from self._emit(program, name, inputs, head, gate)
                head = ()
                self._used(use)
                if closes:
                    self._close(step, units[use.unit])
        self.outputs[step.kind, step.micro_batch, step.chunk] = inputs
        self._departure(step, inputs)

    def _emit(self, program: Program, name: str, inputs: Nodes, head: Nodes, gate: Nodes) -> _Emission:
        """Instantiate a recipe; ``head`` controls what it starts with, ``gate`` its first compute node."""
        builder, static = self.builder, self.context.static_order
        made: list[int] = []
        for comm_type, axis, suffix, num_ops, size, group, after, closes in program.steps:
            if after == (INPUT,):
                deps, ctrl = inputs, head
            else:
                deps, ctrl = (), ()
                for handle in after:
                    if handle == INPUT:
                        deps += inputs
                        ctrl = head
                    else:
                        deps += (made[handle],)
            if comm_type == COMPUTE:
                ctrl = _union(ctrl, self.last) if gate == () else _union(ctrl + gate, self.last)
                gate = ()
                if self.last and self.last[0] in deps:
                    ctrl = tuple(node for node in ctrl if node != self.last[0])
                node = builder.compute(f"{name}.{suffix}", num_ops, size, deps, ctrl)
                self.last = (node,)
                made.append(node)
                if closes:
                    yield
                continue
            if static:
                ctrl = _union(ctrl, self.last_collective)
            involved, group_id = self._where(group)
            node = builder.collective(f"{axis}.{name}.{suffix}", comm_type, size, deps, ctrl, involved, group_id)
            self.last_collective = (node,)
            made.append(node)
        result: list[int] = []
        for handle in program.ends:
            result += inputs if handle == INPUT else (made[handle],)
        return tuple(dict.fromkeys(result))

    def _where(self, group: str) -> Where:
        if group not in self.places:
            self.places[group] = self.context.names.where(group, self.rank)
        return self.places[group]

    def _fused_actions(self) -> set[Action]:
        """At block granularity, the actions whose compute is one node.

        Not those under which parameters are gathered or gradients reduced, which wait for units and take turns with an
        action's collectives; nor overlapped pairs, which are interleaved block by block.
        """
        if self.context.parallelism.granularity != "block":
            return set()
        uses = {(use.kind, use.micro_batch, use.chunk) for use in self.gather_of}
        first = 1 + max((i for i, step in enumerate(self.actions) if step.key in uses), default=-1)
        last = next(i for i, step in enumerate(self.actions) if step in self.closing)
        paired = [False, *(step.overlaps_next for step in self.actions)]
        return {self.actions[i] for i in range(first, last) if not (paired[i] or paired[i + 1])}

    # -- messages -----------------------------------------------------------------------------------------------------

    def _arrivals(self, step: Action) -> Nodes:
        """An action's input: a receive, the neighbour chunk's output on this rank, or the own forward."""
        schedule = self.context.schedule
        if step.kind == "W":
            return ()
        forward = step.kind == "F"
        source = schedule.previous(self.stage, step) if forward else schedule.next(self.stage, step)
        if source is None:
            return () if forward else self.outputs["F", step.micro_batch, step.chunk]
        stage, chunk = source
        if stage == self.stage:
            return self.outputs[step.kind, step.micro_batch, chunk]
        peer = self.context.placement.stage_rank(self.rank, stage)
        label = f"{step.kind}.m{step.micro_batch}.c{step.chunk}"
        position = schedule.virtual_stage(self.stage, step.chunk)
        tag = self.context.tag(step, position)
        # Posted from the start: it costs no slot, and no sender that waits for a posted receive can be held up by it.
        node = self.builder.recv(f"pp.recv.{label}", peer, self.context.message_bytes, tag)
        if self.context.gathers_messages:
            gather = Transfer("", ALL_GATHER, self.context.message_bytes, "tp")
            node = self._transfer(f"tp.{label}.boundary.ag", gather, (node,), self.last)
        return (node,)

    def _departure(self, step: Action, outputs: Nodes) -> None:
        """Send an action's output to the rank of the neighbour chunk, if that is another."""
        schedule = self.context.schedule
        if step.kind == "W":
            return
        forward = step.kind == "F"
        target = schedule.next(self.stage, step) if forward else schedule.previous(self.stage, step)
        if target is None or target[0] == self.stage:
            return
        peer = self.context.placement.stage_rank(self.rank, target[0])
        position = schedule.virtual_stage(self.stage, step.chunk) + (1 if forward else -1)
        label = f"pp.send.{step.kind}.m{step.micro_batch}.c{step.chunk}"
        node = self.builder.send(label, peer, self.context.message_bytes, self.context.tag(step, position), outputs)
        if not self.context.parallelism.p2p_overlap:
            self.barrier += (node,)

    # -- data parallelism: parameters ---------------------------------------------------------------------------------

    def _plan_gathers(self) -> tuple[dict[_Use, int], list[tuple[str, Unit]]]:
        """Which uses need a gather, and the (name, unit) of every gather in the order of use."""
        mode = self.context.gather_mode
        found: dict[_Use, int] = {}
        units: list[tuple[str, Unit]] = []
        if mode in ("never", "after"):
            return found, units
        seen: set[tuple[int, int]] = set()
        for step in self.actions:
            if step.kind == "W":
                continue
            own = self.units[step.chunk]
            order = range(len(own)) if step.kind == "F" else range(len(own) - 1, -1, -1)
            for index in order:
                if mode == "first" and (step.chunk, index) in seen:
                    continue
                seen.add((step.chunk, index))
                label = f"c{step.chunk}.{own[index].label}"
                if mode == "every":
                    label = f"{step.kind}.m{step.micro_batch}.{label}"
                found[_Use(step.kind, step.micro_batch, step.chunk, index)] = len(units)
                units.append((label, own[index]))
        return found, units

    def _ready(self, use: _Use) -> Nodes:
        """The gathers that a use has to wait for."""
        index = self.gather_of.get(use)
        if index is None:
            return ()
        if index not in self.gathered:
            self._gather(index, self.last)
        return self.gathered[index]

    def _used(self, use: _Use) -> None:
        """After a use the next gather but one may start: no more than two units are held beside the one in use."""
        index = self.gather_of.get(use)
        if index is not None and self.context.prefetch and index + 2 < len(self.gather_units):
            self._gather(index + 2, self.last)

    def _gather_ahead(self) -> None:
        """Gathers that no computation holds back, two in flight at most.

        Parameters that are kept are gathered as fast as that allows, in the pipeline's warm-up too; of those that are
        dropped after their use the first two. They have the lowest ids: whatever becomes ready in the moment that one
        ends, the next gather goes first on every rank.
        """
        kept = self.context.gather_mode == "first"
        for index in range(len(self.gather_units) if kept else min(2, len(self.gather_units))):
            self._gather(index, self.gathered[index - 2] if index >= 2 else ())

    def _gather(self, index: int, ctrl: Nodes) -> None:
        if index in self.gathered:
            return
        label, unit = self.gather_units[index]
        self.gathered[index] = tuple(
            self._transfer(f"dp.gather.{label}", transfer, (), ctrl) for transfer in self.context.gathers(unit)
        )

    # -- data parallelism: gradients ----------------------------------------------------------------------------------

    def _closing_actions(self, always: bool) -> set[Action]:
        """Actions after which gradients are reduced: every one that computes weight gradients, or a chunk's last."""
        closing: dict[object, Action] = {}
        for step in self.actions:
            if step.kind == "W" or (step.kind == "B" and step.whole):
                closing[(step.micro_batch, step.chunk) if always else step.chunk] = step
        return set(closing.values())

    def _close(self, step: Action, unit: Unit) -> None:
        """A unit's gradient is complete: reduce it now, or note it for the end."""
        twins = self.context.twins(self.stage, self.rank, step.chunk, unit) if step in self.final else []
        label = f"c{step.chunk}.{unit.label}"
        alone = self.context.parallelism.dp_overlap == "none"
        if not self.context.reduce_always:
            if alone or self._must_wait(twins):
                self.postponed.append((label, unit, twins))
            else:
                self.reduced += self._reduce(label, unit, self._exchange(label, twins, 1))
            return
        nodes = self._reduce(f"m{step.micro_batch}.{label}", unit, self.last)
        if alone:
            self.barrier += nodes
        self.reduced += nodes
        if twins:  # what is left of the gradient by then is this rank's shard
            self.shards_apart.append((label, twins))

    def _must_wait(self, twins: list[Twin]) -> bool:
        """Whether an exchange is left for the end: tied embeddings as in Megatron-LM, since the first stage's part is
        complete last; with a fixed order any, or the collectives behind it would wait for a stage that waits for them.
        """
        return any(twin.name == "tied" or self.context.static_order for twin in twins)

    def _exchange(self, label: str, twins: list[Twin], shards: int) -> Nodes:
        """Swap gradients with other holders of the same weights; what their sum depends on."""
        ready = self.last
        for twin in twins:
            name, size = f"{twin.name}.{label}", -(-twin.size // shards)
            self.builder.send(f"dp.send.{name}", twin.peer, size, twin.tag, self.last)
            ready += (self.builder.recv(f"dp.recv.{name}", twin.peer, size, twin.tag),)
        return ready

    def _reduce(self, label: str, unit: Unit, ready: Nodes) -> Nodes:
        """Gradient collectives of one unit; where there are none, what they would wait for."""
        ends: Nodes = ()
        for chain in self.context.reductions(unit):
            deps = ready
            for transfer in chain:
                deps = (self._transfer(f"dp.reduce.{label}", transfer, deps, ()),)
            ends += deps
        return ends or ready

    def _finish_gradients(self) -> None:
        """After the last action: reductions that wait for it, sums over other holders of the same weights."""
        for label, unit, twins in self.postponed:
            self.reduced += self._reduce(label, unit, self._exchange(label, twins, 1))
        shards = self.context.placement.size_of("shard")
        for label, twins in self.shards_apart:
            self.reduced += self._exchange(label, twins, shards)

    def _optimizer(self) -> None:
        context = self.context
        deps = tuple(dict.fromkeys(self.reduced))
        elements = optimizer_elements([unit for units in self.units for unit in units], context.placement)
        scaled = context.training.precision == "fp16"
        operators = optimizer_operators(elements, context.parallelism.gradient_bytes, scaled)
        cost = block_cost(operators, context.kitchen.accelerator, context.kitchen.precision)
        ctrl = () if self.last and self.last[0] in deps else self.last
        self.last = (self.builder.compute("optimizer", cost.num_ops, cost.tensor_size, deps, ctrl),)
        if context.gather_mode == "after":
            for chunk, units in enumerate(self.units):
                for unit in units:
                    for transfer in context.gathers(unit):
                        self._transfer(f"dp.gather.c{chunk}.{unit.label}", transfer, self.last, ())

    def _transfer(self, name: str, transfer: Transfer, deps: Nodes, ctrl: Nodes) -> int:
        if self.context.static_order:
            ctrl = _union(ctrl, self.last_collective)
        involved, group_id = self._where(transfer.group)
        name += transfer.suffix
        node = self.builder.collective(name, transfer.comm_type, transfer.size, deps, ctrl, involved, group_id)
        self.last_collective = (node,)
        return node


def _interleave(first: Generator[None, None, None], second: Generator[None, None, None]) -> None:
    """Emit two actions in turn, a compute block of one and a compute block of the other."""
    running = [first, second]
    while running:
        running = [action for action in running if next(action, _DONE) is not _DONE]


_DONE = object()


def _union(nodes: Nodes, more: Nodes) -> Nodes:
    return nodes + tuple(node for node in more if node not in nodes)
