"""How long the units of a plan take on a network, as max-plus maps: what the relaxed iteration is put together from.

An action is a max-plus map: with the rank free at c and its input there at i, its last compute block ends at
``max(c + cc, i + ic, gates)`` and its output is there at ``max(c + co, i + io, gates)``. Collectives between compute
blocks take what they would with the network to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..cluster import Accelerator
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..trace.context import COMPUTE, INPUT, Program
from ..trace.steps import Recipe
from ..trace.units import Transfer, Unit
from .replay import NEVER
from .speeds import Speeds

NANO = 1e-9
SHORT = 1 - 1e-6  # numbers of a configuration have six digits or more

UnitKey = tuple[object, ...]


class Times(NamedTuple):
    """When the last compute block ends and when outputs are there, seconds after what they are counted from."""

    computed: float
    ready: float


class Map(NamedTuple):
    """A unit or action: its times from a free rank, from its input, and from the gate of its first compute block."""

    free: Times
    given: Times
    gate: Times


NOTHING = Map(Times(0.0, NEVER), Times(NEVER, 0.0), Times(NEVER, NEVER))


class Clock:
    """Times of a plan's units on one network; equal units are walked through once.

    Args:
        training, parallelism, accelerator: of the plan. speeds: of the network.
    """

    def __init__(self, training: Training, parallelism: Parallelism, accelerator: Accelerator, speeds: Speeds) -> None:
        self.speeds = speeds
        self.fused = parallelism.granularity == "block"
        self.peak = accelerator.peak(training.precision)
        self.bandwidth = accelerator.memory_bandwidth
        self._units: dict[tuple[UnitKey, bool], Map] = {}

    def unit(self, key: UnitKey, program: Program | Recipe, first: bool) -> Map:
        """The map of a unit; ``first`` in its action, where the rank has to be free before the input is used."""
        if (key, first) not in self._units:
            self._units[key, first] = Map(*(self._walk(program, first, start) for start in range(3)))
        return self._units[key, first]

    def _walk(self, program: Program | Recipe, first: bool, start: int) -> Times:
        """Times of a unit from one of: the free rank (0), the input (1), the gate of the first compute block (2)."""
        last, given, gate = (0.0 if start == which else NEVER for which in range(3))
        ends: list[float] = []
        head = last if first else NEVER
        for step in program.steps:
            begin = max((given if handle == INPUT else ends[handle] for handle in step.after), default=NEVER)
            if INPUT in step.after:
                begin = max(begin, head)
            if step.comm_type == COMPUTE:
                last = max(begin, last, gate) + self.compute(step.num_ops, step.size)
                gate = NEVER
                ends.append(last)
            elif self.fused:  # fused actions send less often; what their one collective takes is left out
                ends.append(begin)
            else:
                ends.append(begin + self.speeds.collective(step.comm_type, step.size, step.group))
        ready = max((given if handle == INPUT else ends[handle] for handle in program.ends), default=NEVER)
        return Times(last, ready)

    def compute(self, num_ops: int, size: int) -> float:
        """Seconds of a compute block."""
        if self.fused:  # the roofline of a sum may be below the sum of rooflines
            return num_ops / self.peak * SHORT
        return max(0.0, max(num_ops / self.peak, size / self.bandwidth) * SHORT - NANO)

    def work(self, programs: Iterable[Program | Recipe]) -> float:
        """Compute alone, without what lies between."""
        steps = (step for program in programs for step in program.steps if step.comm_type == COMPUTE)
        return sum(self.compute(step.num_ops, step.size) for step in steps)

    def seconds(self, transfer: Transfer) -> float:
        """A collective of data parallelism alone on the network."""
        return self.speeds.collective(transfer.comm_type, transfer.size, transfer.group)


def unit_key(model: Model, training: Training, unit: Unit, phase: str) -> UnitKey:
    """Units of a plan with the same key take the same time on the same network."""
    length = training.sequence_length
    kinds = tuple((model.is_moe(layer), model.attention_span(layer, length)) for layer in unit.layers)
    return ("" if kinds else unit.label, kinds, phase)


def after(unit: Map, now: Times, gate: float = NEVER) -> Times:
    """The times after a unit that starts at ``now``: (rank free, input there)."""
    free, given = now
    return Times(
        max(free + unit.free[0], given + unit.given[0], gate + unit.gate[0]),
        max(free + unit.free[1], given + unit.given[1], gate + unit.gate[1]),
    )


def composed(units: Iterable[Map]) -> Map:
    """Units in a row as one, without gates."""
    free, given = NOTHING.free, NOTHING.given
    for unit in units:
        free, given = after(unit, free), after(unit, given)
    return Map(free, given, NOTHING.gate)


def serial_end(jobs: Iterable[tuple[float, float]]) -> float:
    """The least end of jobs (release, duration) on one machine, whatever their order."""
    end = 0.0
    for begin, seconds in sorted(jobs):
        end = max(end, begin) + seconds
    return end
