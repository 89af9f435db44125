"""What the traces of a plan's stages have in common: units, instantiated recipes, groups, message sizes and tags."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..plan.dims import GROUPS
from ..schedule import Action, Schedule
from .cookbook import Cookbook
from .fuse import fuse
from .groups import GroupNames
from .steps import COMPUTE, INPUT, Recipe
from .units import Transfer, Unit, gathers, reductions, tied_bytes, without_table

__all__ = ["COMPUTE", "INPUT", "Context", "Program", "Twin"]


class ProgramStep(NamedTuple):
    """A recipe's step ready to be emitted: everything but micro-batch, chunk and node ids."""

    comm_type: int
    axis: str
    suffix: str
    num_ops: int
    size: int
    group: str
    after: tuple[int, ...]
    closes: bool


class Program(NamedTuple):
    """A recipe ready to be emitted."""

    steps: tuple[ProgramStep, ...]
    ends: tuple[int, ...]


class Twin(NamedTuple):
    """Another holder of the same weights: why, its rank, the bytes sent each way, the tag."""

    name: str
    peer: int
    size: int
    tag: int


@dataclass(frozen=True)
class Context(Cookbook):
    """A plan to write: a cookbook and the order to run it in."""

    schedule: Schedule

    @cached_property
    def _chunk_units(self) -> list[tuple[tuple[Unit, ...], ...]]:
        result = []
        for stage, row in enumerate(self.schedule.positions):
            chunks = []
            for position in row:
                units = self.positions[position]
                if self._shares_table(stage) and units[-1].label == "head":
                    units = (*units[:-1], without_table(units[-1], self.model, self.parallelism))
                chunks.append(units)
            result.append(tuple(chunks))
        return result

    def _shares_table(self, stage: int) -> bool:
        """Whether the token table of both ends is one on this rank, which holds both."""
        ends = {0, self.schedule.depth - 1}
        return self.model.table_at_both_ends and ends <= set(self.schedule.positions[stage])

    def chunk_units(self, stage: int) -> tuple[tuple[Unit, ...], ...]:
        """``[chunk]`` -> units of a pipeline rank."""
        return self._chunk_units[stage]

    @cached_property
    def _programs(self) -> dict[tuple[int, int, str], Program]:
        return {}

    def program(self, stage: int, chunk: int, index: int, phase: str) -> Program:
        """Steps of one unit for a phase: F, B (input gradients), BW (both) or W."""
        key = (self.schedule.positions[stage][chunk], index, phase)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._instantiate(self.unit_recipe(self.positions[key[0]][index], phase))
        return program

    def fused(self, stage: int, chunk: int, phase: str) -> Program:
        """A whole virtual stage with its compute fused (see ``trace.fuse``)."""
        key = (self.schedule.positions[stage][chunk], -1, phase)
        program = self._programs.get(key)
        if program is None:
            units = self.positions[key[0]]
            ordered = units if phase == "F" else units[::-1]
            recipe = fuse([part for unit in ordered for part in self.unit_parts(unit, phase)], self._flat_groups)
            program = self._programs[key] = self._instantiate(recipe)
        return program

    @cached_property
    def _flat_groups(self) -> dict[str, int]:
        """Sizes of the groups that lie in one network dimension."""
        place = self.placement
        return {group: place.size_of(group) for group in GROUPS if len(place.dims_of(group)) == 1}

    def _instantiate(self, recipe: Recipe) -> Program:
        steps = tuple(
            ProgramStep(
                step.comm_type,
                step.axis,
                step.name,
                step.num_ops,
                step.size,
                step.group,
                step.after,
                step.closes,
            )
            for step in recipe.steps
        )
        return Program(steps, recipe.ends)

    @cached_property
    def names(self) -> GroupNames:
        """How collectives name their groups."""
        return GroupNames(self.placement, self.parallelism.flat_rings)

    @cached_property
    def static_order(self) -> bool:
        """Whether collectives keep one fixed order on every rank (see ``trace.stage``)."""
        return self.parallelism.fixed_order or self.names.comm_groups() is not None

    # -- messages -----------------------------------------------------------------------------------------------------

    @cached_property
    def gathers_messages(self) -> bool:
        """Whether a boundary is sent as 1 / tp and gathered on arrival."""
        parallelism = self.parallelism
        return parallelism.scatter_gather and parallelism.tp > 1 and not self.kitchen.shard.sequence_parallel

    @cached_property
    def message_bytes(self) -> int:
        """Bytes a rank sends to the next stage for one micro-batch: its part of the residual stream."""
        shard = self.kitchen.shard
        whole = shard.residual_tokens * self.model.hidden * shard.bytes_per_element
        return whole // self.parallelism.tp if self.gathers_messages else whole

    def tag(self, step: Action, position: int) -> int:
        """Tag of the message that arrives at a position: distinct by direction, micro-batch and receiving chunk."""
        return 2 * (step.micro_batch * self.schedule.depth + position) + (2 if step.kind == "F" else 1)

    def twins(self, stage: int, rank: int, chunk: int, unit: Unit) -> list[Twin]:
        """Other holders of a unit's weights inside the pipeline.

        DualPipe's second copy of a stage, and the other end where both hold the token table. Two holders add their
        gradients by sending each other the whole: the bytes of an all-reduce of two.
        """
        schedule, parallelism = self.schedule, self.parallelism
        position, first_tag = schedule.positions[stage][chunk], 2 * schedule.micro_batches * schedule.depth + 3
        peers: list[Twin] = []
        if schedule.weight_copies > 1:
            other = next(
                row
                for row, places in enumerate(schedule.positions)
                for c, place in enumerate(places)
                if place == position and (row, c) != (stage, chunk)
            )
            size = (unit.dense + unit.expert) * parallelism.gradient_bytes
            index = [item.label for item in self.positions[position]].index(unit.label)
            tag = first_tag + schedule.weight_copies + position * (self.model.layers + 2) + index
            peers.append(Twin("copy", self.placement.stage_rank(rank, other), size, tag))
        if unit.label in ("embedding", "head") and self.model.table_at_both_ends and not self._shares_table(stage):
            copy = chunk // schedule.chunks
            far = schedule.depth - 1 if unit.label == "embedding" else 0
            other = next(
                row
                for row, places in enumerate(schedule.positions)
                for c, place in enumerate(places)
                if place == far and c // schedule.chunks == copy
            )
            peer = self.placement.stage_rank(rank, other)
            peers.append(Twin("tied", peer, tied_bytes(self.model, parallelism), first_tag + copy))
        return peers

    # -- data parallelism ---------------------------------------------------------------------------------------------

    @property
    def prefetch(self) -> bool:
        """Whether parameters are gathered ahead of their use."""
        return self.parallelism.dp_overlap == "prefetch"

    @property
    def reduce_always(self) -> bool:
        """Whether gradients are reduced after every micro-batch, so that none is held whole (ZeRO-2)."""
        return self.parallelism.dp_sharding == "zero2"

    @cached_property
    def gather_mode(self) -> str:
        """When parameters are gathered: ``never``, before the ``first`` use, ``every`` use, or ``after`` the step."""
        sharding = self.parallelism.dp_sharding
        if sharding == "ddp":
            return "never"
        if sharding in ("zero1", "zero2"):
            return "first" if self.prefetch else "after"
        return "every" if sharding == "fsdp-reshard" else "first"

    def gathers(self, unit: Unit) -> tuple[Transfer, ...]:
        """Parameter all-gathers of a unit."""
        return gathers(unit, self.training.element_bytes, self.placement)

    def reductions(self, unit: Unit) -> tuple[tuple[Transfer, ...], ...]:
        """Gradient collectives of a unit."""
        return reductions(unit, self.parallelism, self.placement)
