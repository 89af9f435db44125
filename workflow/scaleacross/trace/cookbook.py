"""Recipes of a plan's units: what each virtual stage computes and communicates, whatever the order it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..cluster.accelerator import Accelerator
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..plan.memory import shard_of
from ..plan.placement import Placement
from .recipe import Kitchen
from .steps import Recipe, join, renamed
from .units import Unit, stage_units


@dataclass(frozen=True)
class Cookbook:
    """What is trained, how it is split and where it lies."""

    model: Model
    training: Training
    parallelism: Parallelism
    placement: Placement
    accelerator: Accelerator

    @cached_property
    def kitchen(self) -> Kitchen:
        """Maker of recipes."""
        shard = shard_of(self.training, self.parallelism)
        precision = self.training.precision
        return Kitchen(self.model, self.parallelism, self.placement, shard, self.accelerator, precision)

    @cached_property
    def positions(self) -> tuple[tuple[Unit, ...], ...]:
        """Units of every virtual stage."""
        return stage_units(self.model, self.parallelism)

    @cached_property
    def _recipes(self) -> dict[tuple[bool, int, str], Recipe]:
        return {}

    def unit_recipe(self, unit: Unit, phase: str) -> Recipe:
        """All of a unit: layer after layer in the order of the phase."""
        return join(renamed(recipe, prefix) for prefix, recipe in self.unit_parts(unit, phase))

    def unit_parts(self, unit: Unit, phase: str) -> list[tuple[str, Recipe]]:
        """(prefix of its names, recipe) of everything a unit runs, in order; equal layers share one recipe."""
        if unit.label == "embedding":
            return [] if phase == "W" else [("", self.kitchen.embedding("F" if phase == "F" else "B"))]
        if unit.label == "head":
            return [("", self.kitchen.head(phase))]
        layers = unit.layers if phase == "F" else unit.layers[::-1]
        return [(f"l{layer}.", self._layer_recipe(layer, phase)) for layer in layers]

    def _layer_recipe(self, layer: int, phase: str) -> Recipe:
        span = self.model.attention_span(layer, self.training.sequence_length)
        key = (self.model.is_moe(layer), span, phase)
        if key not in self._recipes:
            kitchen = self.kitchen
            if phase == "F":
                recipe = kitchen.forward(layer)
            else:
                recipe = kitchen.weight(layer) if phase == "W" else kitchen.backward(layer, phase == "BW")
            self._recipes[key] = recipe
        return self._recipes[key]
