"""A first bound of a plan that needs neither its order of actions nor whether it fits: under a millisecond a plan.

A rank computes all its micro-batches, whatever their order. It cannot begin before its first micro-batch has come down
through the virtual stages before its own, and the last gradient that leaves it has to go back up through them: with one
chunk a rank that is the pipeline's whole bubble. Gradients are reduced one after the other on a rank's stream, none
before its chunk has run all micro-batches but the last one's backward, and share their uplinks. The terms are those of
:mod:`.relax`, with every start earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from ..cluster import Accelerator
from ..errors import Infeasible
from ..model import Model, optimizer_operators
from ..plan.degrees import Parallelism, Training
from ..plan.memory import shard_of
from ..plan.placement import Placement
from ..schedule import build
from ..schedule import parameters as known_parameters
from ..trace.compute import block_cost
from ..trace.cookbook import Cookbook
from ..trace.generate import resolved
from ..trace.steps import Recipe
from ..trace.units import Unit, gathers, optimizer_elements, reductions, stage_units, without_table
from .pieces import NANO, SHORT, Clock, UnitKey, composed, serial_end, unit_key
from .speeds import Speeds

# Knobs that change neither a unit's compute nor its collectives (their placement is looked at apart).
_OTHER = {
    "pp", "dp", "order", "schedule", "schedule_parameters", "chunks", "dp_sharding", "dp_shard", "dp_overlap",
    "bucket_layers", "p2p_overlap", "fixed_order", "layout", "defaulted",
}  # fmt: skip
_UNIT_KNOBS = tuple(item.name for item in fields(Parallelism) if item.name not in _OTHER)
_LAYOUT_KNOBS = ("tp", "ep", "etp", "pp", "chunks", "bucket_layers", "layout")


class Outline(NamedTuple):
    """What does not depend on the number of micro-batches: ``[rank][chunk]`` -> (copy of the model, position)."""

    places: tuple[tuple[tuple[int, int], ...], ...]
    copies: int
    pairs: bool


class Pass(NamedTuple):
    """One micro-batch through a virtual stage, seconds.

    Attributes:
        forward, backward: for which the rank is busy; inputs: as backward, weight gradients left out where they can be.
        down: from the input to the output, forward. up: from the gradient that comes to the one that goes, backward.
        last: from the gradient that comes to the end of compute.
    """

    forward: float
    backward: float
    inputs: float
    down: float
    up: float
    last: float


class Data(NamedTuple):
    """Data parallelism of a virtual stage: seconds of reductions and of gathers, of uplinks (by unit) for each of them;
    parameters one rank updates."""

    reduce: float
    gather: float
    reduce_uplink: Mapping[int, float]
    gather_uplink: Mapping[int, float]
    elements: int


@lru_cache(maxsize=1024)
def outline(schedule: str, stages: int, chunks: int, parameters: tuple[tuple[str, object], ...]) -> Outline | None:
    """Where a schedule puts its chunks, from its smallest instance; None where that cannot be built."""
    count = stages if "delay" in known_parameters(schedule) else 4 * stages  # an order made for times takes long
    try:
        small = build(schedule, stages=stages, micro_batches=count, chunks=chunks, **dict(parameters))
    except Infeasible:
        return None
    places = tuple(tuple((chunk // small.chunks, place) for chunk, place in enumerate(row)) for row in small.positions)
    pairs = any(step.overlaps_next for row in small.actions for step in row)
    return Outline(places, small.weight_copies, pairs)


@dataclass(frozen=True)
class Subject:
    """What a floor is made for."""

    model: Model
    training: Training
    parallelism: Parallelism
    placement: Placement
    accelerator: Accelerator


class Floors:
    """Makes floors of plans; what plans share is made once."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}
        self._numbers: dict[object, int] = {}

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made the first time a key is asked for."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def number(self, key: object) -> int:
        """A small number for a key, the same for equal ones: hashing a placement costs more than using it."""
        return self._numbers.setdefault(key, len(self._numbers))

    def seconds(self, subject: Subject, speeds: Speeds, network: object) -> float:
        """A lower bound of the iteration time, 0 where there is none.

        Args:
            speeds: of a network, or of the best of several. network: what tells these speeds from others.
        """
        plan = subject.parallelism
        known = outline(plan.schedule, plan.pp, plan.chunks, plan.schedule_parameters)
        if known is None or plan.layout == ():  # a layout that is still to be made
            return 0.0
        return max(0.0, _Floor(self, subject, speeds, network, known).seconds() * SHORT - NANO)


class _Floor:
    """The floor of one plan. ``on``: its training, placement and network as a number."""

    def __init__(self, floors: Floors, subject: Subject, speeds: Speeds, network: object, shape: Outline) -> None:
        self.floors, self.subject, self.speeds, self.shape = floors, subject, speeds, shape
        plan, training = subject.parallelism, subject.training
        self.plan = plan
        self.count = training.global_batch // (plan.dp * plan.micro_batch) // shape.copies
        self.on = floors.number((training, subject.placement, network))
        knobs = tuple(getattr(plan, name) for name in _UNIT_KNOBS)
        self.unit_key = floors.number((self.on, knobs, shape.pairs))
        self.data_key = floors.number((self.on, plan.dp_sharding, plan.dp_shard, plan.gradient_bytes))
        self.layout = floors.number((training, *(getattr(plan, name) for name in _LAYOUT_KNOBS)))
        self.places = floors.number((shape.places, shape.copies))
        self.positions: tuple[tuple[Unit, ...], ...]
        self.positions = floors.once(("units", self.layout), lambda: stage_units(subject.model, plan))
        self.book: Cookbook
        self.clock: Clock
        self.book, self.clock = floors.once(("clock", self.unit_key), self._clock)

    def _clock(self) -> tuple[Cookbook, Clock]:
        subject = self.subject
        book = Cookbook(subject.model, subject.training, self.plan, subject.placement, subject.accelerator)
        return book, Clock(subject.training, self.plan, subject.accelerator, self.speeds)

    # -- virtual stages ------------------------------------------------------------------------------------------------

    def _passes(self) -> list[Pass]:
        """Of every virtual stage."""
        floors, model, training = self.floors, self.subject.model, self.subject.training

        def signatures() -> list[int]:
            return [floors.number(tuple(unit_key(model, training, unit, "") for unit in row)) for row in self.positions]

        def passes() -> list[Pass]:
            found: list[int] = floors.once(("signatures", self.layout), signatures)
            return [
                floors.once(("pass", self.unit_key, signature), lambda row=row: self._pass(row))  # type: ignore[misc]
                for signature, row in zip(found, self.positions, strict=True)
            ]

        result: list[Pass] = floors.once(("passes", self.unit_key, self.layout), passes)
        return result

    def _pass(self, units: Sequence[Unit]) -> Pass:
        maps, work = {}, {}
        for phase in ("F", "B", "W", "BW"):
            row = units if phase == "F" else units[::-1]
            keys = [unit_key(self.subject.model, self.subject.training, unit, phase) for unit in row]
            recipes = [self._recipe(key, unit, phase) for key, unit in zip(keys, row, strict=True)]
            maps[phase] = composed(self.clock.unit(keys[n], recipe, n == 0) for n, recipe in enumerate(recipes))
            work[phase] = self.clock.work(recipes) if self.shape.pairs else maps[phase].free.computed
        backs = [maps["BW"], maps["B"]]
        return Pass(
            forward=min(work["F"], maps["F"].given.computed),
            backward=min(work["BW"], work["B"] + work["W"]),  # whether a schedule splits it is not known here
            inputs=min(work["BW"], work["B"]),
            down=maps["F"].given.ready,
            up=min(item.given.ready for item in backs),
            last=min(item.given.computed for item in backs),
        )

    def _recipe(self, key: UnitKey, unit: Unit, phase: str) -> Recipe:
        made: Recipe = self.floors.once(("recipe", self.unit_key, key), lambda: self.book.unit_recipe(unit, phase))
        return made

    def _held(self) -> list[list[Data]]:
        """``[rank][chunk]`` -> data parallelism."""
        key = ("held", self.data_key, self.layout, self.places)
        found: list[list[Data]] = self.floors.once(
            key, lambda: [[self._data(units) for units in self._units_of(row)] for row in self.shape.places]
        )
        return found

    def _data(self, units: Sequence[Unit]) -> Data:
        key = ("data", self.data_key, tuple((unit.dense, unit.expert) for unit in units))
        found: Data = self.floors.once(key, lambda: self._reduced(units))
        return found

    def _reduced(self, units: Sequence[Unit]) -> Data:
        placement = self.subject.placement
        whole = resolved(self.plan, placement)
        gathered = [move for unit in units for move in gathers(unit, self.subject.training.element_bytes, placement)]
        reduced = [move for unit in units for chain in reductions(unit, whole, placement) for move in chain]
        sums = [sum(map(self.clock.seconds, moves)) for moves in (reduced, gathered)]
        uplinks: list[dict[int, float]] = [{}, {}]
        for found, moves in zip(uplinks, (reduced, gathered), strict=True):
            for move in moves:
                for inside, seconds in self.speeds.uplink_seconds(move.comm_type, move.size, move.group).items():
                    found[inside] = found.get(inside, 0.0) + seconds
        return Data(sums[0], sums[1], uplinks[0], uplinks[1], optimizer_elements(list(units), placement))

    def _units_of(self, places: Sequence[tuple[int, int]]) -> list[tuple[Unit, ...]]:
        """``[chunk]`` -> units of a rank; embedding and loss on one rank may share their table."""
        model, last = self.subject.model, len(self.positions) - 1
        held = [place for _, place in places]
        rows = [self.positions[place] for place in held]
        if model.table_at_both_ends and 0 in held and last in held:
            row = rows[held.index(last)]
            rows[held.index(last)] = (*row[:-1], without_table(row[-1], model, self.plan))
        return rows

    # -- the pipeline --------------------------------------------------------------------------------------------------

    def _hops(self) -> list[list[tuple[float, float]]]:
        """``[copy][position]`` -> seconds of a message from the position before it, and of one back."""
        shard = shard_of(self.subject.training, self.plan)
        size = shard.residual_tokens * self.subject.model.hidden * shard.bytes_per_element
        if self.plan.scatter_gather and self.plan.tp > 1 and not shard.sequence_parallel:
            size //= self.plan.tp

        def make() -> list[list[tuple[float, float]]]:
            owner = {place: rank for rank, row in enumerate(self.shape.places) for place in row}
            result = []
            for copy in range(self.shape.copies):
                ranks = [owner[copy, place] for place in range(len(self.positions))]
                pairs = [(0.0, 0.0)]
                for here, there in pairwise(ranks):
                    ways = ((here, there), (there, here))
                    down, up = (0.0 if one == other else self.speeds.message(size, one, other) for one, other in ways)
                    pairs.append((down, up))
                result.append(pairs)
            return result

        found: list[list[tuple[float, float]]] = self.floors.once(("hops", self.on, size, self.places), make)
        return found

    def _ramps(self, passes: Sequence[Pass]) -> tuple[list[list[float]], list[list[float]]]:
        """``[copy][position]`` -> seconds before a first input is there, and from a gradient that leaves to the end."""
        downs, ups = [], []
        for hops in self._hops():
            down, up = [0.0], [0.0]
            for place in range(1, len(passes)):
                down.append(down[-1] + passes[place - 1].down + hops[place][0])
                rest = up[-1] + passes[place - 1].up if place > 1 else passes[0].last
                up.append(hops[place][1] + rest)
            downs.append(down)
            ups.append(up)
        return downs, ups

    def seconds(self) -> float:
        """The bound."""
        passes = self._passes()
        downs, ups = self._ramps(passes)
        begins, frees, turned = [], [], 0.0
        for row in self.shape.places:
            own = [passes[place] for _, place in row]
            begin = min(downs[copy][place] for copy, place in row)
            begins.append(begin)
            frees.append(begin + self.count * sum(item.forward + item.backward for item in own))
            sent = begin + self.count * sum(item.forward + item.inputs for item in own)
            # The last gradient to leave a rank is one of a first position; its weights' may come after it.
            firsts = {copy: min(place for other, place in row if other == copy) for copy, _ in row}
            tails = [
                ups[copy][place] - max(0.0, passes[place].inputs - passes[place].up) if place else 0.0
                for copy, place in firsts.items()
            ]
            turned = max(turned, sent + min(tails))
        if self.shape.copies == 1:  # the last gradient of all ends on the rank of the embedding
            first = next(rank for rank, row in enumerate(self.shape.places) if (0, 0) in row)
            frees[first] = max(frees[first], turned)
        return max(turned, self._finish(passes, begins, frees))

    def _finish(self, passes: Sequence[Pass], begins: Sequence[float], frees: Sequence[float]) -> float:
        """The end of the slowest rank's reductions and optimizer, and of the fullest uplink."""
        mode, always = self._gathering(), self.plan.dp_sharding == "zero2"
        alone, times = self.plan.dp_overlap == "none" and not always, self.count if always else 1
        bound, stage_units = 0.0, self._stage_units()
        loads: dict[tuple[int, tuple[int, ...]], list[tuple[float, float]]] = {}
        for rank, (data, begin, free) in enumerate(zip(self._held(), begins, frees, strict=True)):
            gather, jobs, units = sum(item.gather for item in data), [], stage_units[rank]
            for (_, place), item in zip(self.shape.places[rank], data, strict=True):
                before = self.count * passes[place].forward + (self.count - 1) * passes[place].backward
                release = free if alone else begin + (0.0 if always else before)
                jobs.append((release, times * item.reduce))
                for inside, seconds in item.reduce_uplink.items():
                    loads.setdefault((inside, units[inside]), []).append((release, times * seconds))
                if mode == "first":
                    for inside, seconds in item.gather_uplink.items():
                        loads.setdefault((inside, units[inside]), []).append((0.0, seconds))
            if mode in ("first", "every"):
                jobs.append((0.0, gather * (2 * self.count if mode == "every" else 1)))
            end = max(free, serial_end(jobs)) + self._optimizer(sum(item.elements for item in data))
            bound = max(bound, end + (gather if mode == "after" else 0.0))
        return max([bound, *map(serial_end, loads.values())])

    def _gathering(self) -> str:
        """When parameters are gathered, as ``trace.context.Context.gather_mode`` has it."""
        sharding = self.plan.dp_sharding
        if sharding in ("ddp", "fsdp-reshard"):
            return "never" if sharding == "ddp" else "every"
        return "after" if sharding in ("zero1", "zero2") and self.plan.dp_overlap != "prefetch" else "first"

    def _optimizer(self, elements: int) -> float:
        accelerator, precision = self.subject.accelerator, self.subject.training.precision
        cost: float = self.floors.once(
            ("optimizer", elements, self.on),
            lambda: block_cost(optimizer_operators(elements), accelerator, precision).seconds,
        )
        return max(0.0, cost * SHORT - NANO)

    def _stage_units(self) -> list[tuple[tuple[int, ...], ...]]:
        """``[rank]`` -> how many dimensions lie inside a unit -> in which units its members are."""
        placement = self.subject.placement
        result: list[tuple[tuple[int, ...], ...]] = self.floors.once(
            ("units", self.on), lambda: [placement.stage_units(rank) for rank in range(self.plan.pp)]
        )
        return result
