"""A plan's iteration with everything that could only slow it down left out: a lower bound of its simulated time.

Each rank runs its actions in the order of its schedule, each action its compute blocks in a row with the tensor-,
context- and expert-parallel collectives between them, each as if it had the network to itself; messages between stages
take their latency and their bytes; parameters are gathered one after the other before they are used, gradients reduced
one after the other when they are there (a rank has one stream for its data-parallel collectives), and what all stages
of a unit send through an uplink takes at least its bytes over the uplink's rate. A real run adds contention and waiting
to this, and nothing in it can be faster: every start here is the largest of fewer and smaller terms. So it bounds the
simulated time from below, and is close to it wherever links are not crowded.

An action is a max-plus map: with the rank free at c and its input there at i, its last compute block ends at
``max(c + cc, i + ic, gates)`` and its output is there at ``max(c + co, i + io, gates)``. What does not depend on the
network (:class:`Skeleton`) is made once a plan; a network then costs a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..errors import Deadlock
from ..model import optimizer_operators
from ..schedule import Action
from ..trace.compute import block_cost
from ..trace.context import COMPUTE, INPUT, Context, Program
from ..trace.units import Transfer, Unit, optimizer_elements
from .replay import NEVER, replay
from .speeds import Speeds

_NANO = 1e-9
_SHORT = 1 - 1e-6  # numbers of a configuration have six digits or more


class Times(NamedTuple):
    """When the last compute block ends and when outputs are there, seconds after what they are counted from."""

    computed: float
    ready: float


class Map(NamedTuple):
    """A unit or action: its times from a free rank, from its input, and from the gate of its first compute block."""

    free: Times
    given: Times
    gate: Times


UnitKey = tuple[object, ...]


@dataclass(frozen=True)
class ActionKind:
    """Actions of one rank and chunk that do the same: ``units`` in order, each (key, program), the index of each."""

    stage: int
    chunk: int
    phase: str
    first_use: bool
    units: tuple[tuple[UnitKey, Program], ...]
    order: tuple[int, ...]


class Skeleton:
    """The order of a plan's actions as arrays for :func:`.replay.replay`, and what else no network changes."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.schedule = context.schedule
        self.kinds: list[ActionKind] = []
        self._numbers: dict[tuple[int, int, str, bool], int] = {}
        self.lags: dict[tuple[int, int], int] = {}
        slots = self._slots()
        rows: list[list[tuple[int, ...]]] = [self._row(stage, slots) for stage in range(self.schedule.stages)]
        self.first = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        self.table = np.array([entry for row in rows for entry in row], np.int64).T.copy()
        self.slots = len(slots)

    def _slots(self) -> dict[tuple[int, tuple[str, int, int]], int]:
        slots: dict[tuple[int, tuple[str, int, int]], int] = {}
        for stage, row in enumerate(self.schedule.actions):
            for step in row:
                slots[stage, step.key] = len(slots)
        return slots

    def _row(self, stage: int, slots: Mapping[tuple[int, tuple[str, int, int]], int]) -> list[tuple[int, ...]]:
        """(kind, own slot, slot waited for, lag, overlaps next) of every action of a rank."""
        seen: set[int] = set()
        every = self.context.gather_mode == "every"
        row: list[tuple[int, ...]] = []
        for step in self.schedule.actions[stage]:
            first = step.kind != "W" and (every or step.chunk not in seen)
            if step.kind != "W":
                seen.add(step.chunk)
            source, lag = self._source(stage, step), -1
            if source is not None and source[0] != stage:
                lag = self.lags.setdefault((source[0], stage), len(self.lags))
            wait = -1 if source is None else slots[source]
            row.append((self._kind(stage, step, first), slots[stage, step.key], wait, lag, int(step.overlaps_next)))
        return row

    def _source(self, stage: int, step: Action) -> tuple[int, tuple[str, int, int]] | None:
        """(rank, output) that an action needs; None for a weight gradient or the embedding."""
        if step.kind == "W":
            return None
        forward = step.kind == "F"
        peer = self.schedule.previous(stage, step) if forward else self.schedule.next(stage, step)
        if peer is None:
            return None if forward else (stage, ("F", step.micro_batch, step.chunk))
        return peer[0], (step.kind, step.micro_batch, peer[1])

    def _kind(self, stage: int, step: Action, first: bool) -> int:
        phase = "BW" if step.kind == "B" and step.whole else step.kind
        key = (stage, step.chunk, phase, first)
        if key not in self._numbers:
            context, count = self.context, len(self.context.chunk_units(stage)[step.chunk])
            order = tuple(range(count) if step.kind == "F" else range(count - 1, -1, -1))
            units = tuple(
                (self._unit_key(stage, step.chunk, index, phase), context.program(stage, step.chunk, index, phase))
                for index in order
            )
            self._numbers[key] = len(self.kinds)
            self.kinds.append(ActionKind(stage, step.chunk, phase, first, units, order))
        return self._numbers[key]

    def _unit_key(self, stage: int, chunk: int, index: int, phase: str) -> UnitKey:
        """Units with the same key take the same time on the same network."""
        unit, model = self.context.chunk_units(stage)[chunk][index], self.context.model
        length = self.context.training.sequence_length
        kinds = tuple((model.is_moe(layer), model.attention_span(layer, length)) for layer in unit.layers)
        return ("" if kinds else unit.label, kinds, phase)

    @cached_property
    def closing(self) -> list[list[int]]:
        """``[stage]`` -> positions in its row of the actions after which gradients are reduced."""
        found = []
        for row in self.schedule.actions:
            last: dict[object, int] = {}
            for position, step in enumerate(row):
                if step.kind == "W" or (step.kind == "B" and step.whole):
                    last[(step.micro_batch, step.chunk) if self.context.reduce_always else step.chunk] = position
            found.append(list(last.values()))
        return found

    @cached_property
    def optimizer(self) -> list[float]:
        """Seconds of each rank's optimizer step."""
        context, found = self.context, []
        for stage in range(self.schedule.stages):
            elements = optimizer_elements(self.units(stage), context.placement)
            cost = block_cost(optimizer_operators(elements), context.accelerator, context.training.precision)
            found.append(max(0.0, cost.seconds * _SHORT - _NANO))
        return found

    def units(self, stage: int) -> list[Unit]:
        """All units of a rank."""
        return [unit for row in self.context.chunk_units(stage) for unit in row]

    @cached_property
    def unit_of_tier(self) -> list[dict[str, tuple[int, ...]]]:
        """``[stage]`` -> tier -> which of the units below that tier its ranks are in."""
        placement, found = self.context.placement, []
        tiers = [dim.tier for dim in placement.dims]
        for stage in range(self.schedule.stages):
            place = placement.stage_coordinates(stage)
            found.append(
                {
                    tier: tuple(v for dim, v in place.items() if dim >= tiers.index(tier))
                    for tier in dict.fromkeys(tiers)
                }
            )
        return found


class Relaxed:
    """The relaxed iteration of a plan on one network (or on the best of several)."""

    def __init__(self, skeleton: Skeleton, speeds: Speeds) -> None:
        self.skeleton, self.context, self.speeds = skeleton, skeleton.context, speeds
        self._units: dict[tuple[UnitKey, bool], Map] = {}
        self._gather_seconds: dict[tuple[int, int], float] = {}

    def seconds(self) -> float:
        """The lower bound of the iteration time."""
        skeleton = self.skeleton
        maps, fixed = self._kinds()
        lags = np.array([self._message(*pair) for pair in skeleton.lags] or [0.0])
        work = np.array([self._work(kind) for kind in skeleton.kinds])
        free, given, last, done = replay(skeleton.first, skeleton.table, maps, fixed, work, lags, skeleton.slots)
        if not done:
            raise Deadlock("E-SCHEDULE-DEADLOCK", f"{skeleton.schedule.name!r} never ends", "mend the schedule")
        jobs = [self._reductions(stage, free, given) for stage in range(skeleton.schedule.stages)]
        bound = max(self._finish(stage, float(last[stage]), own) for stage, own in enumerate(jobs))
        return max(bound, self._uplinks(jobs)) * _SHORT - _NANO

    # -- actions -------------------------------------------------------------------------------------------------------

    def _kinds(self) -> tuple[Any, Any]:
        """Of each kind of action the four numbers of its map, and the two times before which its gates keep it."""
        maps, fixed = [], []
        gates = self._gates()
        for number, kind in enumerate(self.skeleton.kinds):
            delays = self._delays(kind)
            free, given, gate = Times(0.0, NEVER), Times(NEVER, 0.0), Times(NEVER, NEVER)
            for index in range(len(kind.units)):
                unit, late = self._unit(kind, index), delays[index] if delays else None
                free = after(unit, free, NEVER if late is None else free.computed + late)
                given = after(unit, given, NEVER if late is None else given.computed + late)
                gate = after(unit, gate, gates[number][index] if number in gates else NEVER)
            maps.append((*free, *given))
            fixed.append(tuple(gate))
        return np.array(maps), np.array(fixed)

    def _unit(self, kind: ActionKind, index: int) -> Map:
        key, program = kind.units[index]
        if (key, index == 0) not in self._units:
            self._units[key, index == 0] = Map(*(self._walk(program, index == 0, start) for start in range(3)))
        return self._units[key, index == 0]

    def _walk(self, program: Program, first: bool, start: int) -> Times:
        """Times of a unit from one of: the free rank (0), the input (1), the gate of the first compute block (2)."""
        last, given, gate = (0.0 if start == which else NEVER for which in range(3))
        ends: list[float] = []
        head = last if first else NEVER
        fused = self.context.parallelism.granularity == "block"
        for step in program.steps:
            begin = max((given if handle == INPUT else ends[handle] for handle in step.after), default=NEVER)
            if INPUT in step.after:
                begin = max(begin, head)
            if step.comm_type == COMPUTE:
                last = max(begin, last, gate) + self._compute(step.num_ops, step.size)
                gate = NEVER
                ends.append(last)
            elif fused:  # fused actions send less often; what their one collective takes is left out
                ends.append(begin)
            else:
                ends.append(begin + self.speeds.collective(step.comm_type, step.size, step.group))
        ready = max((given if handle == INPUT else ends[handle] for handle in program.ends), default=NEVER)
        return Times(last, ready)

    def _compute(self, num_ops: int, size: int) -> float:
        peak = self.context.accelerator.peak(self.context.training.precision)
        if self.context.parallelism.granularity == "block":  # the roofline of a sum may be below the sum of rooflines
            return num_ops / peak * _SHORT
        return max(0.0, max(num_ops / peak, size / self.context.accelerator.memory_bandwidth) * _SHORT - _NANO)

    def _work(self, kind: ActionKind) -> float:
        """Compute alone of an action, for pairs that share a rank."""
        steps = (step for _, program in kind.units for step in program.steps if step.comm_type == COMPUTE)
        return sum(self._compute(step.num_ops, step.size) for step in steps)

    def _message(self, here: int, there: int) -> float:
        return self.speeds.message(self.context.message_bytes, here, there)

    # -- data parallelism ----------------------------------------------------------------------------------------------

    def _seconds(self, transfer: Transfer) -> float:
        return self.speeds.collective(transfer.comm_type, transfer.size, transfer.group)

    def _gather(self, unit: Unit) -> float:
        key = (unit.dense, unit.expert)
        if key not in self._gather_seconds:
            self._gather_seconds[key] = sum(map(self._seconds, self.context.gathers(unit)))
        return self._gather_seconds[key]

    def _gathers(self, kind: ActionKind) -> list[float]:
        units = self.context.chunk_units(kind.stage)[kind.chunk]
        return [self._gather(units[index]) for index in kind.order]

    def _gates(self) -> dict[int, list[float]]:
        """Kind -> when each of its units is there: gathered once, ahead of use, one after the other on every rank."""
        if self.context.gather_mode != "first" or not self.context.prefetch:
            return {}
        now = dict.fromkeys(range(self.skeleton.schedule.stages), 0.0)
        found: dict[int, list[float]] = {}
        for number, kind in enumerate(self.skeleton.kinds):  # kinds are numbered in the order of their first use
            if kind.first_use:
                found[number] = []
                for seconds in self._gathers(kind):
                    now[kind.stage] += seconds
                    found[number].append(now[kind.stage])
        return found

    def _delays(self, kind: ActionKind) -> list[float]:
        """Gathers of an action's units that start only when the rank comes to them: without prefetching."""
        if self.context.gather_mode not in ("first", "every") or self.context.prefetch or not kind.first_use:
            return []
        return self._gathers(kind)

    # -- the end of the step -------------------------------------------------------------------------------------------

    def _reductions(self, stage: int, free: Any, given: Any) -> list[tuple[float, Transfer]]:
        """(when its gradient is there, collective) of every data-parallel reduction of a stage's rank."""
        skeleton, base, jobs = self.skeleton, int(self.skeleton.first[stage]), []
        for position in skeleton.closing[stage]:
            row = base + position
            kind = skeleton.kinds[int(skeleton.table[0, row])]
            units = self.context.chunk_units(stage)[kind.chunk]
            now = Times(float(free[row]), float(given[row]))
            for number, index in enumerate(kind.order):
                now = after(self._unit(kind, number), now)
                for chain in self.context.reductions(units[index]):
                    jobs += [(now.computed, transfer) for transfer in chain]
        return jobs

    def _finish(self, stage: int, free: float, jobs: list[tuple[float, Transfer]]) -> float:
        """When a rank has reduced its gradients one after the other, updated its parameters and gathered them."""
        context = self.context
        alone = context.parallelism.dp_overlap == "none" and not context.reduce_always
        busy = [(free if alone else begin, self._seconds(transfer)) for begin, transfer in jobs]
        gathers = sum(map(self._gather, self.skeleton.units(stage)))
        if context.gather_mode == "first":
            busy.append((0.0, gathers))
        elif context.gather_mode == "every":
            share = context.schedule.micro_batches / context.schedule.weight_copies
            busy.append((0.0, gathers * 2 * share))  # once forward and once backward of every micro-batch
        end = max(free, serial_end(busy)) + self.skeleton.optimizer[stage]
        return end + (gathers if context.gather_mode == "after" else 0.0)

    def _uplinks(self, jobs: list[list[tuple[float, Transfer]]]) -> float:
        """The last end of what the stages of each unit send through its uplink, whatever the order."""
        loads: dict[tuple[str, tuple[int, ...]], list[tuple[float, float]]] = {}
        known: dict[tuple[int, int, str], Mapping[str, float]] = {}
        once = self.context.gather_mode == "first"
        for stage, own in enumerate(jobs):
            units = self.skeleton.units(stage) if once else []
            gathers = [(0.0, transfer) for unit in units for transfer in self.context.gathers(unit)]
            for begin, transfer in [*gathers, *own]:
                key = (transfer.comm_type, transfer.size, transfer.group)
                if key not in known:
                    known[key] = self.speeds.uplink_seconds(*key)
                for tier, seconds in known[key].items():
                    unit_of = self.skeleton.unit_of_tier[stage][tier]
                    loads.setdefault((tier, unit_of), []).append((begin, seconds))
        return max((serial_end(load) for load in loads.values()), default=0.0)


def after(unit: Map, now: Times, gate: float = NEVER) -> Times:
    """The times after a unit that starts at ``now``: (rank free, input there)."""
    free, given = now
    return Times(
        max(free + unit.free[0], given + unit.given[0], gate + unit.gate[0]),
        max(free + unit.free[1], given + unit.given[1], gate + unit.gate[1]),
    )


def serial_end(jobs: Sequence[tuple[float, float]]) -> float:
    """The least end of jobs (release, duration) on one machine, whatever their order."""
    end = 0.0
    for begin, seconds in sorted(jobs):
        end = max(end, begin) + seconds
    return end
