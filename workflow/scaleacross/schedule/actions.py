"""A pipeline schedule as plain data: for every rank the ordered actions it runs.

Vocabulary (the field's): *stages* are the pipeline-parallel ranks; a rank holds *chunks* of the model (virtual
stages); a *position* is a virtual stage counted from the embedding (0) to the loss (``stages * chunks - 1``). ``F`` is
a forward, ``B`` a backward and ``W`` a weight gradient, each of one micro-batch through one chunk. A ``B`` that is
``whole`` computes the input and the weight gradients; another leaves the weight gradient to a later ``W`` (Zero Bubble,
arXiv 2401.10241).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

Kind = Literal["F", "B", "W"]


@dataclass(frozen=True, slots=True)
class Action:
    """One step of one rank.

    Attributes:
        kind: ``F``, ``B`` or ``W``.
        micro_batch: 0 .. micro_batches - 1.
        chunk: which of the rank's chunks, 0 .. chunks * weight_copies - 1.
        whole: for a ``B``: it computes the weight gradient too, no ``W`` follows.
        overlaps_next: it runs together with the rank's next action, one's compute hiding the other's communication
            (DualPipe's F&B pairs); the two start together and end together.
    """

    kind: Kind
    micro_batch: int
    chunk: int = 0
    whole: bool = True
    overlaps_next: bool = False

    @property
    def parts(self) -> tuple[Kind, ...]:
        """The computations inside: a whole ``B`` is the input gradient ``B`` and the weight gradient ``W``."""
        return ("B", "W") if self.kind == "B" and self.whole else (self.kind,)

    @property
    def key(self) -> tuple[Kind, int, int]:
        """What is computed: (kind, micro_batch, chunk), however it is run."""
        return self.kind, self.micro_batch, self.chunk

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}.{self.chunk}"


@lru_cache(maxsize=1 << 16)
def action(kind: Kind, micro_batch: int, chunk: int = 0, whole: bool = True, overlaps_next: bool = False) -> Action:
    """``Action(...)``, shared: every rank runs the same few thousand distinct actions."""
    return Action(kind, micro_batch, chunk, whole, overlaps_next)


def looped_positions(stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """``[rank][chunk]`` -> position as Megatron interleaves (arXiv 2104.04473): chunk c of rank r is c * stages + r."""
    return tuple(tuple(chunk * stages + rank for chunk in range(chunks)) for rank in range(stages))


def v_positions(stages: int) -> tuple[tuple[int, ...], ...]:
    """``[rank][chunk]`` -> position in V shape (arXiv 2405.15362): down the ranks and back, rank 0 holds both ends."""
    return tuple((rank, 2 * stages - 1 - rank) for rank in range(stages))


@dataclass(frozen=True)
class Schedule:
    """The actions of every rank and where each rank's chunks lie in the model.

    Attributes:
        name: the registered name it was built by.
        stages, micro_batches: pipeline ranks and micro-batches of one step (of one data-parallel replica).
        chunks: virtual stages a rank of one copy of the model.
        actions: ``[rank]`` -> its actions in order.
        positions: ``[rank][chunk]`` -> position of the chunk in the model.
        weight_copies: copies of the model the ranks hold together: 1, or 2 for DualPipe. Chunks ``k * chunks ..`` of a
            rank belong to copy k; micro-batches are dealt to the copies in equal runs (``copy_of``).
    """

    name: str
    stages: int
    micro_batches: int
    chunks: int
    actions: tuple[tuple[Action, ...], ...] = field(repr=False)
    positions: tuple[tuple[int, ...], ...] = field(repr=False)
    weight_copies: int = 1
    _owners: dict[tuple[int, int], tuple[int, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owners = {
            (chunk // self.chunks, position): (rank, chunk)
            for rank, row in enumerate(self.positions)
            for chunk, position in enumerate(row)
        }
        object.__setattr__(self, "_owners", owners)

    @property
    def depth(self) -> int:
        """Virtual stages of the model: stages * chunks."""
        return self.stages * self.chunks

    @cached_property
    def splits_backward(self) -> bool:
        """True if some backwards leave their weight gradient to a ``W`` (ask each action's ``whole``)."""
        return any(step.kind == "W" for row in self.actions for step in row)

    def virtual_stage(self, rank: int, chunk: int = 0) -> int:
        """Position (0 .. depth - 1) of a rank's chunk in the model."""
        return self.positions[rank][chunk]

    def copy_of(self, micro_batch: int) -> int:
        """Which copy of the model a micro-batch runs through (always 0 unless ``weight_copies`` > 1)."""
        return micro_batch * self.weight_copies // self.micro_batches

    def owner(self, position: int, micro_batch: int = 0) -> tuple[int, int]:
        """(rank, chunk) that runs this position of the model; ``micro_batch`` matters only with two copies."""
        return self.owner_in(self.copy_of(micro_batch), position)

    def owner_in(self, copy: int, position: int) -> tuple[int, int]:
        """(rank, chunk) that holds this position in the given copy of the model."""
        return self._owners[copy, position]

    def previous(self, rank: int, step: Action) -> tuple[int, int] | None:
        """(rank, chunk) of the position before this action's, or None at the embedding."""
        position = self.positions[rank][step.chunk]
        return self.owner(position - 1, step.micro_batch) if position else None

    def next(self, rank: int, step: Action) -> tuple[int, int] | None:
        """(rank, chunk) of the position after this action's, or None at the loss."""
        position = self.positions[rank][step.chunk]
        return self.owner(position + 1, step.micro_batch) if position + 1 < self.depth else None

    @cached_property
    def peak_in_flight(self) -> tuple[int, ...]:
        """``[rank]`` -> most (micro-batch, chunk) activations held at once, each of 1 / chunks of a rank's layers.

        An activation is held from its ``F`` until its weight gradient is done (``W``, or a whole ``B``): the upper
        bound, exact where a ``B`` frees nothing of it (Zero Bubble's M_W = M_B).
        """
        return tuple(max(held_after_each(row), default=0) for row in self.actions)

    @cached_property
    def most_held(self) -> tuple[np.ndarray, ...]:
        """``[rank]`` -> what it holds at every moment that may be its peak, whatever its chunks weigh.

        Shape (moments, 2 * copies * chunks + 2), each row once: activations of every chunk as its ``F`` stored them;
        of every chunk those that a ``B`` leaves to its ``W``, from the start of that ``B``; how many are of the loss
        with their backward still to come; and 1 if a whole ``B`` runs, else 0. Left out are moments that hold no more
        than another, as long as what a ``B`` leaves weighs no less than what its ``F`` stored.
        """
        return tuple(self._most_held(rank) for rank in range(self.stages))

    def _most_held(self, rank: int) -> np.ndarray:
        row, ends = self.actions[rank], self.positions[rank]
        kinds = np.array([step.kind for step in row])
        chunks = np.array([step.chunk for step in row])
        whole = (kinds == "B") & np.array([step.whole for step in row])
        forward, split, loss = kinds == "F", (kinds == "B") & ~whole, np.array(ends)[chunks] == self.depth - 1
        left = chunks + len(ends)
        change = np.zeros((len(row) + 1, 2 * len(ends) + 2), dtype=np.int32)
        for steps, later, column, by in (
            (forward, 0, chunks, 1),
            (split, 0, chunks, -1),
            (split, 0, left, 1),
            (whole, 1, chunks, -1),  # freed once the action is over
            (kinds == "W", 1, left, -1),
        ):
            np.add.at(change, (steps.nonzero()[0] + later, column[steps]), by)
        change[:-1, -2] += forward & loss
        change[1:, -2] -= (kinds == "B") & loss
        held = change.cumsum(axis=0)[:-1]
        beside = np.append(False, whole[:-1] & np.array([step.overlaps_next for step in row[:-1]], dtype=bool))
        held[:, -1] = whole | beside
        return np.array(sorted(set(map(tuple, held[_tops(forward, split, whole, loss, beside)].tolist()))), np.int32)

    @cached_property
    def peak_until_backward(self) -> tuple[int, ...]:
        """As ``peak_in_flight`` with an activation freed by its ``B``: the lower bound (nothing is kept for ``W``)."""
        return tuple(max(held_after_each(row, release_on_b=True), default=0) for row in self.actions)


def _tops(
    forward: np.ndarray, split: np.ndarray, whole: np.ndarray, loss: np.ndarray, beside: np.ndarray
) -> np.ndarray:
    """Mask of the moments of ``Schedule.most_held``: a forward and a split backward free nothing (but that of the loss
    its logits), so the next action holds as much, unless it is a ``W``; a whole backward after another holds less."""
    later = np.append((forward | split | whole)[1:], False) & ~(beside & ~np.append((whole | beside)[1:], False))
    return np.asarray(((forward | split) & ~(later & ~(split & loss))) | (whole & ~np.append(False, whole[:-1])))


def held_after_each(row: Iterable[Action], release_on_b: bool = False) -> Iterator[int]:
    """Activations held while each action of one rank runs, the one that the action frees included."""
    held = 0
    for step in row:
        if step.kind == "F":
            held += 1
        yield held
        if step.kind == "W" or (step.kind == "B" and step.whole):
            held -= not (release_on_b and step.kind == "W")
        elif step.kind == "B" and release_on_b:
            held -= 1


def freeze(rows: Sequence[Sequence[Action]]) -> tuple[tuple[Action, ...], ...]:
    """Lists of actions as the tuples a Schedule holds."""
    return tuple(tuple(row) for row in rows)
