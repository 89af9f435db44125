"""A plan's iteration with everything that could only slow it down left out: a lower bound of its simulated time.

Each rank runs its actions in the order of its schedule, each action its compute blocks in a row with the tensor-,
context- and expert-parallel collectives between them, each as if it had the network to itself; messages between stages
take their latency and their bytes; parameters are gathered one after the other before they are used, gradients reduced
one after the other when they are there (a rank has one stream for its data-parallel collectives), and what all stages
of a unit send through an uplink takes at least its bytes over the uplink's rate. A real run adds contention and waiting
to this, and nothing in it can be faster: every start here is the largest of fewer and smaller terms. So it bounds the
simulated time from below, and is close to it wherever links are not crowded.

What does not depend on the network (:class:`Skeleton`) is made once a plan; a network then costs a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import Deadlock
from ..model import optimizer_operators
from ..trace.compute import block_cost
from ..trace.context import Context, Program
from ..trace.units import Transfer, Unit, optimizer_elements
from .order import Kind, Order
from .pieces import NANO, NOTHING, SHORT, Clock, Map, Times, UnitKey, after, composed, serial_end, unit_key
from .replay import NEVER, replay
from .speeds import Speeds


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
    """A plan's order of actions and what else no network changes.

    Args:
        context: of the plan. order: of its schedule, where it is known already.
    """

    def __init__(self, context: Context, order: Order | None = None) -> None:
        self.context = context
        self.order = order or order_of(context)
        self.chains: dict[tuple[int, int], tuple[tuple[Transfer, ...], ...]] = {}  # (dense, expert) -> reductions
        self._programs: dict[UnitKey, Program] = {}
        self.kinds = [self._kind(kind) for kind in self.order.kinds]

    def _kind(self, kind: Kind) -> ActionKind:
        own = self.context.chunk_units(kind.stage)[kind.chunk]
        order = tuple(range(len(own)) if kind.phase == "F" else range(len(own) - 1, -1, -1))
        units = tuple(self._unit(kind, own[index], index) for index in order)
        return ActionKind(*kind, units, order)

    def _unit(self, kind: Kind, unit: Unit, index: int) -> tuple[UnitKey, Program]:
        key = unit_key(self.context.model, self.context.training, unit, kind.phase)
        if key not in self._programs:
            self._programs[key] = self.context.program(kind.stage, kind.chunk, index, kind.phase)
        return key, self._programs[key]

    @cached_property
    def optimizer(self) -> list[float]:
        """Seconds of each rank's optimizer step."""
        context, found = self.context, []
        for stage in range(self.order.stages):
            elements = optimizer_elements(self.units(stage), context.placement)
            cost = block_cost(optimizer_operators(elements), context.accelerator, context.training.precision)
            found.append(max(0.0, cost.seconds * SHORT - NANO))
        return found

    def units(self, stage: int) -> list[Unit]:
        """All units of a rank."""
        return [unit for row in self.context.chunk_units(stage) for unit in row]

    @cached_property
    def stage_units(self) -> list[tuple[tuple[int, ...], ...]]:
        """``[stage]`` -> how many dimensions lie inside a unit -> in which units its ranks are."""
        return [self.context.placement.stage_units(stage) for stage in range(self.order.stages)]


def order_of(context: Context) -> Order:
    """The order of a plan's actions as arrays."""
    return Order(context.schedule, context.gather_mode == "every", context.reduce_always)


class Relaxed:
    """The relaxed iteration of a plan on one network (or on the best of several)."""

    def __init__(self, skeleton: Skeleton, speeds: Speeds) -> None:
        self.skeleton, self.context, self.speeds = skeleton, skeleton.context, speeds
        context = self.context
        self.clock = Clock(context.training, context.parallelism, context.accelerator, speeds)
        self._gather_seconds: dict[tuple[int, int], float] = {}
        self._maps: dict[tuple[UnitKey, ...], Map] = {}

    def seconds(self) -> float:
        """The lower bound of the iteration time."""
        order = self.skeleton.order
        maps, fixed = self._kinds()
        lags = np.array([self._message(*pair) for pair in order.lags] or [0.0])
        work = np.array([self.clock.work(program for _, program in kind.units) for kind in self.skeleton.kinds])
        free, given, last, done = replay(order.first, order.table, maps, fixed, work, lags, order.slots)
        if not done:
            raise Deadlock("E-SCHEDULE-DEADLOCK", f"{order.name!r} never ends", "mend the schedule")
        jobs = [self._reductions(stage, free, given) for stage in range(order.stages)]
        bound = max(self._finish(stage, float(last[stage]), own) for stage, own in enumerate(jobs))
        return max(bound, self._uplinks(jobs)) * SHORT - NANO

    # -- actions -------------------------------------------------------------------------------------------------------

    def _kinds(self) -> tuple[Any, Any]:
        """Of each kind of action the four numbers of its map, and the two times before which its gates keep it."""
        maps, fixed = [], []
        gates = self._gates()
        for number, kind in enumerate(self.skeleton.kinds):
            delays = self._delays(kind)
            if not delays and number not in gates:
                whole, gate = self._map(kind), NOTHING.gate
                maps.append((*whole.free, *whole.given))
                fixed.append(tuple(gate))
                continue
            free, given, gate = NOTHING
            for index in range(len(kind.units)):
                unit, late = self._unit(kind, index), delays[index] if delays else None
                free = after(unit, free, NEVER if late is None else free.computed + late)
                given = after(unit, given, NEVER if late is None else given.computed + late)
                gate = after(unit, gate, gates[number][index] if number in gates else NEVER)
            maps.append((*free, *given))
            fixed.append(tuple(gate))
        return np.array(maps), np.array(fixed)

    def _map(self, kind: ActionKind) -> Map:
        key = tuple(key for key, _ in kind.units)
        if key not in self._maps:
            self._maps[key] = composed(self._unit(kind, index) for index in range(len(kind.units)))
        return self._maps[key]

    def _unit(self, kind: ActionKind, index: int) -> Map:
        return self.clock.unit(*kind.units[index], index == 0)

    def _message(self, here: int, there: int) -> float:
        return self.speeds.message(self.context.message_bytes, here, there)

    # -- data parallelism ----------------------------------------------------------------------------------------------

    def _gather(self, unit: Unit) -> float:
        key = (unit.dense, unit.expert)
        if key not in self._gather_seconds:
            self._gather_seconds[key] = sum(map(self.clock.seconds, self.context.gathers(unit)))
        return self._gather_seconds[key]

    def _gathers(self, kind: ActionKind) -> list[float]:
        units = self.context.chunk_units(kind.stage)[kind.chunk]
        return [self._gather(units[index]) for index in kind.order]

    def _gates(self) -> dict[int, list[float]]:
        """Kind -> when each of its units is there: gathered once, ahead of use, one after the other on every rank."""
        if self.context.gather_mode != "first" or not self.context.prefetch:
            return {}
        now = dict.fromkeys(range(self.skeleton.order.stages), 0.0)
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
        skeleton, jobs = self.skeleton, []
        base = int(skeleton.order.first[stage])
        for position in skeleton.order.closing[stage]:
            row = base + position
            kind = skeleton.kinds[int(skeleton.order.table[0, row])]
            units = self.context.chunk_units(stage)[kind.chunk]
            now = Times(float(free[row]), float(given[row]))
            for number, index in enumerate(kind.order):
                now = after(self._unit(kind, number), now)
                for chain in self._chains(units[index]):
                    jobs += [(now.computed, transfer) for transfer in chain]
        return jobs

    def _chains(self, unit: Unit) -> tuple[tuple[Transfer, ...], ...]:
        key = (unit.dense, unit.expert)
        if key not in self.skeleton.chains:
            self.skeleton.chains[key] = self.context.reductions(unit)
        return self.skeleton.chains[key]

    def _finish(self, stage: int, free: float, jobs: list[tuple[float, Transfer]]) -> float:
        """When a rank has reduced its gradients one after the other, updated its parameters and gathered them."""
        context = self.context
        alone = context.parallelism.dp_overlap == "none" and not context.reduce_always
        busy = [(free if alone else begin, self.clock.seconds(transfer)) for begin, transfer in jobs]
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
        loads: dict[tuple[int, tuple[int, ...]], list[tuple[float, float]]] = {}
        known: dict[tuple[int, int, str], Mapping[int, float]] = {}
        once = self.context.gather_mode == "first"
        for stage, own in enumerate(jobs):
            units = self.skeleton.units(stage) if once else []
            gathers = [(0.0, transfer) for unit in units for transfer in self.context.gathers(unit)]
            for begin, transfer in [*gathers, *own]:
                key = (transfer.comm_type, transfer.size, transfer.group)
                if key not in known:
                    known[key] = self.speeds.uplink_seconds(*key)
                for inside, seconds in known[key].items():
                    unit = (inside, self.skeleton.stage_units[stage][inside])
                    loads.setdefault(unit, []).append((begin, seconds))
        return max((serial_end(load) for load in loads.values()), default=0.0)
