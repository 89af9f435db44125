"""Which ranks are simulated, and whom each stands for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from .program import Call, Program
from .settings import Config

Int64 = NDArray[np.int64]


@dataclass(slots=True)
class Population:
    """Simulated ranks.

    Attributes:
        programs: distinct programs. program: index of each simulated rank's.
        true_of: rank that a simulated rank is. sim_of: for every rank of the world, the simulated rank that stands
        for it.
        family: group id -> number shared by groups that are images of each other.
    """

    programs: list[Program]
    program: Int64
    true_of: Int64
    sim_of: Int64
    family: dict[int, int] = field(default_factory=dict)

    @property
    def folded(self) -> bool:
        """True when some simulated rank stands for others."""
        return len(self.true_of) < len(self.sim_of)

    def weights(self) -> Int64:
        """How many ranks each simulated rank stands for."""
        return np.bincount(self.sim_of, minlength=len(self.true_of)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of a collective: whole dimensions around a rank, or a group.

    Attributes:
        members: true ranks; of dimensions in ascending order, of a group in ring order.
        dims: dimensions, none for a group.
        group: the group's id, 0 for dimensions.
    """

    members: Int64
    dims: tuple[int, ...]
    group: int


def communicator(config: Config, call: Call, rank: int, where: str) -> Communicator:
    """Who takes part when ``rank`` makes ``call``.

    Raises:
        InvalidInput: E-GROUP-MISSING (no such group), E-GROUP-CALLER (the rank is not in it), E-GROUP-SIZE,
        E-GROUP-RANK.
    """
    dims = config.network.dimensions
    if call.group:
        number = int(call.group)
        if number not in config.groups:
            fix = "add it to the communicator groups, and name their file"
            raise InvalidInput("E-GROUP-MISSING", f"{where} uses group {number}, which is not defined", fix)
        members = np.array(config.groups[number], np.int64)
        if len(members) < 2:
            raise InvalidInput(
                "E-GROUP-SIZE", f"group {number} has {len(members)} member(s)", "a group needs two or more"
            )
        if members.min() < 0 or members.max() >= config.npus:
            clash = f"group {number} has rank {members.max()}, the network has {config.npus}"
            raise InvalidInput("E-GROUP-RANK", clash, "use ranks of the network")
        if rank not in config.groups[number]:
            raise InvalidInput(
                "E-GROUP-CALLER", f"{where} (rank {rank}) is not in group {number}", "use a group of its own"
            )
        if len(members) < config.npus:
            return Communicator(members, (), number)
        return Communicator(np.arange(config.npus), tuple(range(dims)), number)
    chosen = tuple(d for d in range(dims) if call.involved is None or (d < len(call.involved) and call.involved[d]))
    return Communicator(subspace(config, rank, chosen), chosen, 0)


def subspace(config: Config, rank: int, dims: tuple[int, ...]) -> Int64:
    """The ranks that differ from ``rank`` in ``dims`` only, ascending (lowest dimension fastest)."""
    members = np.array([rank], np.int64)
    for d in dims:
        stride, size = config.strides[d], config.network.npus_count[d]
        own = (rank // stride) % size
        members = (members[None, :] + ((np.arange(size) - own) * stride)[:, None]).ravel()
    return members
