"""The network dimensions of a placed plan and the arithmetic of its ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .gray import gray_digits, gray_number, radix_number

# group -> what it is for; each is a set of whole network dimensions
GROUPS = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "pp": "pipeline stages",
    "dp": "data parallel",
    "data": "holders of the same dense parameters: dp and cp",
    "shard": "ranks that share out one copy of the dense optimizer state",
    "replica": "hsdp: holders of the same shard",
    "etp": "tensor parallel inside an expert",
    "ep": "expert parallel",
    "edata": "holders of the same experts",
    "eshard": "ranks that share out one copy of the experts' optimizer state",
    "ereplica": "hsdp: holders of the same expert shard",
}


@dataclass(frozen=True)
class NetworkDim:
    """One dimension of the simulated network.

    Attributes:
        size: NPUs along it (> 1).
        tier: name of the tier it belongs to.
        axis: tp, cp, pp or dp.
        share: fraction of a unit's GPUs that send across this dimension at once. 1.0 for collective axes; for pp the
            stages of a unit with a neighbour across it, over the stages of the unit (the largest such fraction),
            messages of forward and backward and the wrap-around of interleaving included.
        groups: names (keys of ``GROUPS``) of the groups that span it.
    """

    size: int
    tier: str
    axis: str
    share: float = 1.0
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """The network dimensions of a plan, innermost first, and the arithmetic of its ranks."""

    dims: tuple[NetworkDim, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, dimension 0 fastest."""
        return tuple(dim.size for dim in self.dims)

    @cached_property
    def ranks(self) -> int:
        """Number of ranks, the product of the shape."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Ranks between neighbours along each dimension."""
        return tuple(math.prod(self.shape[:index]) for index in range(len(self.shape)))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Position of a rank along every dimension."""
        return tuple(rank // stride % size for stride, size in zip(self.strides, self.shape, strict=True))

    def rank_at(self, coordinates: Sequence[int]) -> int:
        """The rank at a position: the inverse of ``coordinates``."""
        return sum(place * stride for place, stride in zip(coordinates, self.strides, strict=True))

    def dims_of(self, group: str) -> tuple[int, ...]:
        """Indices of the dimensions that a group spans, innermost first."""
        return tuple(index for index, dim in enumerate(self.dims) if group in dim.groups)

    def involved(self, group: str) -> tuple[bool, ...]:
        """A group as ASTRA-sim's ``involved_dim``: one bool a dimension."""
        return tuple(group in dim.groups for dim in self.dims)

    def size_of(self, group: str) -> int:
        """Ranks in a group (1 where it spans no dimension)."""
        return math.prod(self.dims[index].size for index in self.dims_of(group))

    def tiers_of(self, group: str) -> tuple[str, ...]:
        """Tiers that a group's members are spread over, innermost first."""
        return tuple(dict.fromkeys(self.dims[index].tier for index in self.dims_of(group)))

    def axis_index(self, rank: int, group: str) -> int:
        """Index of a rank inside its group, inner dimensions fastest; for ``pp`` the pipeline stage."""
        if group == "pp":
            return self.stage(rank)
        place, index, radix = self.coordinates(rank), 0, 1
        for dim in self.dims_of(group):
            index += place[dim] * radix
            radix *= self.shape[dim]
        return index

    def stage(self, rank: int) -> int:
        """Pipeline stage of a rank."""
        place, dims = self.coordinates(rank), self.dims_of("pp")
        return gray_number([place[dim] for dim in dims], [self.shape[dim] for dim in dims])

    def stage_coordinates(self, stage: int) -> dict[int, int]:
        """Dimension -> coordinate for the pipeline dimensions of a stage."""
        dims = self.dims_of("pp")
        return dict(zip(dims, gray_digits(stage, [self.shape[dim] for dim in dims]), strict=True))

    def stage_units(self, stage: int) -> tuple[tuple[int, ...], ...]:
        """``[d]`` -> in which units of the ``d`` innermost dimensions a stage's ranks are: its pipeline coordinates
        outside of them. Stages with the same ones share those units."""
        place = self.stage_coordinates(stage).items()
        return tuple(tuple(value for dim, value in place if dim >= inner) for inner in range(len(self.dims) + 1))

    def stage_rank(self, rank: int, stage: int) -> int:
        """The rank of another stage that shares every other coordinate with ``rank``: its pipeline peer."""
        place = list(self.coordinates(rank))
        for dim, value in self.stage_coordinates(stage).items():
            place[dim] = value
        return self.rank_at(place)

    def rank_of(self, **indices: int) -> int:
        """The rank with given tp, cp, dp indices and ``pp`` stage (0 where not given)."""
        place = [0] * len(self.dims)
        for axis, index in indices.items():
            if axis == "pp":
                continue
            for dim in self.dims_of(axis):
                index, place[dim] = divmod(index, self.shape[dim])
        for dim, value in self.stage_coordinates(indices.get("pp", 0)).items():
            place[dim] = value
        return self.rank_at(place)

    def members(self, rank: int, group: str) -> list[int]:
        """Ranks of the group of ``rank``, in the order of their index (ring order: inner tiers first)."""
        dims, place = self.dims_of(group), list(self.coordinates(rank))
        base = rank - sum(place[dim] * self.strides[dim] for dim in dims)
        members = [base]
        for dim in dims:
            members = [first + step * self.strides[dim] for step in range(self.shape[dim]) for first in members]
        if group == "pp":
            members.sort(key=self.stage)
        return members

    def groups(self, group: str) -> NDArray[np.int64]:
        """Every group of a kind, int64[groups, members]: a partition of the ranks."""
        dims = self.dims_of(group)
        others = [index for index in range(len(self.dims)) if index not in dims]
        grid = np.arange(self.ranks, dtype=np.int64).reshape(self.shape[::-1] or (1,))
        last = len(self.dims) - 1
        order = [last - index for index in reversed(others)] + [last - index for index in reversed(dims)]
        return grid.transpose(order).reshape(-1, self.size_of(group)) if self.dims else grid.reshape(1, 1)

    def unit_of(self, rank: int, tier: str) -> int:
        """Number of the unit of a tier that holds a rank: the building's number, the zone's ..."""
        return rank // self._unit_sizes[tier]

    @cached_property
    def _unit_sizes(self) -> dict[str, int]:
        """Tier -> ranks in one unit of it."""
        sizes: dict[str, int] = {}
        product = 1
        for dim in self.dims:
            product *= dim.size
            sizes[dim.tier] = product
        return sizes

    def rank_table(self) -> dict[str, NDArray[np.int64]]:
        """Columns, an entry a rank: ``rank``, its unit of every tier (``<tier>_unit``), its index on every axis."""
        ranks = np.arange(self.ranks, dtype=np.int64)
        table = {"rank": ranks}
        for tier, size in self._unit_sizes.items():
            table[f"{tier}_unit"] = ranks // size
        for group in ("tp", "cp", "pp", "dp", "ep"):
            table[group] = self._index_column(group)
        return table

    def _index_column(self, group: str) -> NDArray[np.int64]:
        ranks, dims = np.arange(self.ranks, dtype=np.int64), self.dims_of(group)
        digits = [ranks // self.strides[dim] % self.shape[dim] for dim in dims]
        sizes = [self.shape[dim] for dim in dims]
        if group == "pp":
            stages = self.size_of("pp")
            lookup = np.zeros(stages, dtype=np.int64)
            for stage in range(stages):
                lookup[radix_number(gray_digits(stage, sizes), sizes)] = stage
            return lookup[radix_number(digits, sizes)] if dims else np.zeros_like(ranks)
        return np.asarray(radix_number(digits, sizes) if dims else np.zeros_like(ranks), dtype=np.int64)


def rank_map_csv(placement: Placement) -> str:
    """The rank map as CSV text: a line a rank, columns of ``Placement.rank_table``."""
    table = placement.rank_table()
    rows = np.column_stack(list(table.values()))
    lines = [",".join(table)]
    lines += [",".join(map(str, row)) for row in rows.tolist()]
    return "\n".join(lines) + "\n"
