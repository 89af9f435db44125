"""The resources that flows share, folded: a port stands for the ports of a class, an uplink for those of like units.

Every simulated rank (class) has one resource for each port it uses; all its members' ports carry the same. Units of a
tier that hold the same number of members of every class (and send as much for every group) carry the same too and are
one resource; a building with other stages is another. A resource that another one always limits first takes no part in
sharing: an uplink without oversubscription, or a tier as wide as the one below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .fabric import Fabric, Level
from .flows import IN, OUT, Lane, Loads, links_in
from .groups import Spread

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
PORT, UPLINK = 0, 1
Row = tuple[int, int]  # level, number of the row in its table
Use = tuple[int, float]  # resource, load for one byte that a member sends
# GPUs of a unit and sites -> members of each class in each unit, float64[classes, units]; first unit and number of
# units of each kind as far as classes tell them apart
UnitsKnown = dict[tuple[int, tuple[int, ...]], tuple[Float64, Int64, Int64]]


@dataclass(frozen=True, slots=True)
class Resource:
    """A port of a class, or an uplink of a kind of units.

    Attributes:
        kind: PORT or UPLINK. level, lane: where. owner: class, or kind of units of that level.
        capacity: bytes per ns. count: how many of them there are in the world. sharing: it can be a bottleneck.
    """

    kind: int
    level: int
    lane: Lane
    owner: int
    capacity: float
    count: int
    sharing: bool


@dataclass
class Resources:
    """Numbers of resources, given out as flows name them; uplinks when all rows are known (:meth:`close`).

    ``sim_of`` int64[npus]: class of each rank. ``known``: see :data:`UnitsKnown`, kept while the workload is.
    """

    fabric: Fabric
    sim_of: Int64
    sizes: Int64
    found: list[Resource] = field(default_factory=list)
    _ports: dict[tuple[int, Lane, int], int] = field(default_factory=dict)
    _rows: dict[int, list[Float64]] = field(default_factory=dict)
    known: UnitsKnown = field(default_factory=dict)
    _kind_of: dict[int, tuple[Int64, Int64]] = field(default_factory=dict)
    _uplinks: dict[tuple[int, Lane, int], int] = field(default_factory=dict)
    _uses: dict[tuple[int, Lane, int], list[Use]] = field(default_factory=dict)
    _parts: dict[Row, list[tuple[int, int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        levels = range(len(self.fabric.levels))
        self._port_shares = [port_shares(self.fabric, k) for k in levels]
        self._uplink_shares = [uplink_shares(self.fabric, k) for k in levels]

    def port(self, k: int, lane: Lane, sim: int) -> int:
        """The resource of a port of class ``sim``."""
        key = (k, lane, sim)
        number = self._ports.get(key)
        if number is None:
            capacity = self.fabric.port_rate(k, links_in(lane))
            number = self._ports[key] = len(self.found)
            self.found.append(Resource(PORT, k, lane, sim, capacity, int(self.sizes[sim]), self._port_shares[k]))
        return number

    def has_uplinks(self, k: int) -> bool:
        """True for tiers above the GPU."""
        return self.fabric.tiered and self.fabric.levels[k].unit > 1

    def class_row(self, k: int, sim: int) -> Row:
        """The row of a level that counts the members of a class in each unit."""
        return k, sim

    def add_row(self, k: int, loads: Float64) -> Row:
        """A row of a level with loads of its own, float64[units]."""
        rows = self._rows.setdefault(k, [])
        rows.append(loads)
        return k, len(self.sizes) + len(rows) - 1

    def spread_uses(
        self, spread: Spread, sims: Iterable[int]
    ) -> tuple[list[Use], list[Use], list[tuple[Lane, Row, float]]]:
        """Loads counted rank by rank: ports of a class' busiest member, ports of its average member, uplink rows."""
        ports: list[Use] = []
        means: list[Use] = []
        wanted = list(sims)
        for (k, lane), load in spread.ports.items():
            busiest = np.zeros(len(self.sizes))
            np.maximum.at(busiest, self.sim_of, load)
            average = np.bincount(self.sim_of, load, len(self.sizes)) / self.sizes
            for sim in wanted:
                if busiest[sim] > 0:
                    ports.append((self.port(k, lane, sim), float(busiest[sim])))
                    means.append((self.port(k, lane, sim), float(average[sim])))
        rows = [(lane, self.add_row(k, load), 1.0) for (k, lane), load in spread.uplinks.items()]
        return ports, means, rows

    def class_uses(self, loads: Loads, sims: Iterable[int]) -> list[tuple[Lane, Row, float]]:
        """Uplink rows of loads that every member of some classes puts on the units above it."""
        return [
            (lane, self.class_row(k, sim), load)
            for sim in sims
            for (k, lane), load in loads.items()
            if self.has_uplinks(k)
        ]

    def uplink_uses(self, rows: Iterable[tuple[Lane, Row, float]]) -> list[Use]:
        """Uplinks that rows load; call it when every row has been added."""
        total: dict[int, float] = {}
        for lane, (k, row), factor in rows:
            for resource, load in self._row_uses(k, lane, row):
                total[resource] = total.get(resource, 0.0) + load * factor
        return list(total.items())

    def _row_uses(self, k: int, lane: Lane, row: int) -> list[Use]:
        key = (k, lane, row)
        if key not in self._uses:
            if (k, row) not in self._parts:
                self._parts[k, row] = self._row_parts(k, row)
            self._uses[key] = [(self._uplink(k, lane, kind, count), load) for kind, count, load in self._parts[k, row]]
        return self._uses[key]

    def _row_parts(self, k: int, row: int) -> list[tuple[int, int, float]]:
        """Kinds of units that a row loads: number, how many there are, load of each."""
        first, count = self._kinds(k)
        loads = (self._units(k)[0][row] if row < len(self.sizes) else self._rows[k][row - len(self.sizes)])[first]
        kinds = np.flatnonzero(loads)
        return list(zip(kinds.tolist(), count[kinds].tolist(), loads[kinds].tolist(), strict=True))

    def _units(self, k: int) -> tuple[Float64, Int64, Int64]:
        """What is known of the units of the level below."""
        key = (self.fabric.levels[k].unit, self._sites(k))
        if key not in self.known:
            units = self.fabric.units_of(k)
            cells = self.sim_of * units + self.fabric.unit_of(k, np.arange(self.fabric.npus))
            counts = np.bincount(cells, minlength=len(self.sizes) * units).reshape(len(self.sizes), units)
            self.known[key] = counts.astype(np.float64), *self._kinds_by(k, counts.astype(np.float64))
        return self.known[key]

    def _sites(self, k: int) -> tuple[int, ...]:
        return self.fabric.sites if k == len(self.fabric.levels) - 1 else ()

    def _kinds(self, k: int) -> tuple[Int64, Int64]:
        """First unit and number of units of each kind: units whose columns over all rows are equal."""
        if k not in self._kind_of:
            counts, *known = self._units(k)
            first, number = self._kinds_by(k, np.vstack([counts, *self._rows[k]])) if k in self._rows else known
            self._kind_of[k] = first, number
        return self._kind_of[k]

    def _kinds_by(self, k: int, rows: Float64) -> tuple[Int64, Int64]:
        """Units whose columns in float64[rows, units] are equal, and sites of the same size."""
        random = np.random.default_rng(1).integers(1, 1 << 62, len(rows), np.int64).view(np.uint64)
        bits = np.ascontiguousarray(rows).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = random @ (bits ^ (bits >> np.uint64(31)))  # round numbers differ in their highest bits alone
        if self._sites(k):
            mixed += np.array(self._sites(k), np.uint64)
        _, first, number = np.unique(mixed, return_index=True, return_counts=True)
        return first.astype(np.int64), number.astype(np.int64)

    def _uplink(self, k: int, lane: Lane, kind: int, count: int) -> int:
        key = (k, lane, kind)
        if key not in self._uplinks:
            self._uplinks[key] = len(self.found)
            capacity = self.fabric.uplink(k, int(self._kinds(k)[0][kind])) * links_in(lane)
            self.found.append(Resource(UPLINK, k, lane, kind, capacity, count, self._uplink_shares[k]))
        return self._uplinks[key]


def port_shares(fabric: Fabric, k: int) -> bool:
    """Whether the ports of a level can limit what the ports of the levels passed before it let through."""
    below = [fabric.levels[j].port for j in fabric.chain(k)[:-1]]
    return not below or fabric.levels[k].port < min(below) or fabric.levels[k].topology != "Switch"


def uplink_shares(fabric: Fabric, k: int) -> bool:
    """Whether the uplinks of a level can limit what ports and uplinks passed before them let through."""
    if fabric.levels[k].topology == "Ring":
        return True  # it carries what only passes, too
    own = fabric.levels[k].port / fabric.levels[k].oversubscription
    before: list[Level] = [fabric.levels[j] for j in fabric.chain(k)]
    inner = [level.port for level in before] + [lv.port / lv.oversubscription for lv in before[:-1] if lv.unit > 1]
    return own < min(inner)


__all__ = ["IN", "OUT", "PORT", "UPLINK", "Resource", "Resources", "Row", "Use"]
