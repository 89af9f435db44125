"""Recipes as plain data: steps with dependencies among them, and how recipes follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

COMPUTE = -1
INPUT = -1


class Step(NamedTuple):
    """One node of a recipe.

    Attributes:
        name: what it is within its layer: ``attention``, ``mlp.rs``.
        comm_type: ``COMPUTE`` or a Chakra collective type.
        num_ops, size: FLOPs and bytes of a compute block; 0 and bytes of a collective.
        axis: label of a collective (tp, cp, ep), empty for compute.
        group: key of ``plan.dims.GROUPS`` it runs over, empty for compute.
        after: indices of the steps it needs, ``INPUT`` for what the recipe as a whole is given.
        closes: whether a block of compute ends with it: at operator granularity only the block's last operator.
    """

    name: str
    comm_type: int
    num_ops: int
    size: int
    axis: str
    group: str
    after: tuple[int, ...]
    closes: bool = True


class Recipe(NamedTuple):
    """Steps in order of issue and the indices of those that end it (``INPUT`` alone for an empty one)."""

    steps: tuple[Step, ...]
    ends: tuple[int, ...]


Handles = tuple[int, ...]


def renamed(recipe: Recipe, prefix: str) -> Recipe:
    """The recipe with a prefix to its steps' names."""
    return Recipe(tuple(step._replace(name=prefix + step.name) for step in recipe.steps), recipe.ends)


def join(recipes: Iterable[Recipe]) -> Recipe:
    """Recipes one after the other."""
    steps: list[Step] = []
    ends: Handles = (INPUT,)
    for recipe in recipes:
        base = len(steps)
        for step in recipe.steps:
            steps.append(step._replace(after=_shift(step.after, base, ends)))
        ends = _shift(recipe.ends, base, ends)
    return Recipe(tuple(steps), ends)


def _shift(handles: Handles, base: int, start: Handles) -> Handles:
    shifted: list[int] = []
    for handle in handles:
        shifted += start if handle == INPUT else (handle + base,)
    return tuple(dict.fromkeys(shifted))
