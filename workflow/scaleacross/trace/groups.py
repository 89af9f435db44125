"""How collectives name their group: the network dimensions involved, or a communicator of comm_groups.json."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan.dims import GROUPS
from ..plan.placement import Placement


class Where(NamedTuple):
    """A group as a collective names it: the dimensions involved, or a communicator id (the other is empty)."""

    involved: tuple[bool, ...] | None
    group_id: str


def axis_of(group: str) -> str:
    """Label of a group's collectives: tp, cp, ep, or dp."""
    return {"tp": "tp", "etp": "tp", "cp": "cp", "ep": "ep", "pp": "pp"}.get(group, "dp")


@dataclass(frozen=True)
class GroupNames:
    """Names every group of a placement. Axes in ``flat`` get communicators, a ring each, in the order of their members:
    inner tiers first, so that a ring crosses every cut once in each direction."""

    placement: Placement
    flat: tuple[str, ...]

    def where(self, group: str, rank: int) -> Where:
        """The group of ``rank``."""
        involved = self.placement.involved(group)
        first = self._first_ids.get(involved)
        if first is None or axis_of(group) not in self.flat:
            return Where(involved, "")
        row = int(np.nonzero((self._members(group) == rank).any(axis=1))[0][0])
        return Where(None, str(first + row))

    def comm_groups(self) -> dict[str, list[int]] | None:
        """Content of comm_groups.json, or None where every group is whole dimensions."""
        if not self._first_ids:
            return None
        result: dict[str, list[int]] = {}
        for group, first in self._flat_groups():
            for row, members in enumerate(self._members(group).tolist()):
                result[str(first + row)] = members
        return result

    def families(self) -> list[list[str]]:
        """Communicator ids that are images of each other: all groups of a kind."""
        ids: list[list[str]] = []
        for group, first in self._flat_groups():
            count = self.placement.ranks // self.placement.size_of(group)
            ids.append([str(first + row) for row in range(count)])
        return ids

    def _flat_groups(self) -> list[tuple[str, int]]:
        """Groups of flat axes and the first of their communicator ids; ids start at 1, 0 is ASTRA-sim's all NPUs.

        One of several groups that span the same dimensions is enough.
        """
        first = 1
        result: list[tuple[str, int]] = []
        seen: set[tuple[bool, ...]] = set()
        for group in GROUPS:
            involved, size = self.placement.involved(group), self.placement.size_of(group)
            if group in ("pp", "dp") or axis_of(group) not in self.flat or size == 1 or involved in seen:
                continue
            seen.add(involved)
            result.append((group, first))
            first += self.placement.ranks // size
        return result

    @cached_property
    def _first_ids(self) -> dict[tuple[bool, ...], int]:
        return {self.placement.involved(group): first for group, first in self._flat_groups()}

    @cached_property
    def _tables(self) -> dict[str, NDArray[np.int64]]:
        return {}

    def _members(self, group: str) -> NDArray[np.int64]:
        if group not in self._tables:
            self._tables[group] = self.placement.groups(group)
        return self._tables[group]
