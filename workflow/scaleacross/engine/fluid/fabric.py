"""The network as levels: the tiers of a cluster, or the dimensions of a plain ASTRA-sim network.

*Tiers* (``x-scaleacross`` in ``network.yml``). A level has the ports of its GPUs and, for each unit of the level
below, an uplink of ``members x port / oversubscription`` (one out, one in). The innermost level has ports of its own
(NVLink); all further levels share a NIC: traffic that leaves the node passes the ports of every level up to the highest
one it crosses, and the uplink of every unit it leaves or enters. Its latency is what the cluster states for that level.

*Plain dimensions*. Every dimension has ports of its own and no uplinks; a message between ranks that differ in several
dimensions pays for each of them, latency included (the congestion-unaware backend charges the lowest alone).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...astra.config_files import NetworkFile
from ...errors import InvalidInput, did_you_mean

Int64 = NDArray[np.int64]
GIB_PER_NS = (1 << 30) / 1e9  # network.yml's GiB/s in bytes per nanosecond
HOPS = {"Switch": 2, "FullyConnected": 1, "Ring": 1}  # hops that ASTRA-sim charges between neighbours of a dimension
TIER_KEYS = ("name", "size", "bandwidth", "one-way", "oversubscription", "topology")
DIM_KEYS = ("tier", "axis", "share", "port", "one-way")
EXTENSION_KEYS = ("cluster", "dims", "tiers", "wan-sharing", "sites")
FAIR, TEMPORAL = "fair", "temporal"
ROUNDING = 1e-4  # relative; the files print six digits


@dataclass(frozen=True, slots=True)
class Level:
    """A tier, or a dimension of a plain network.

    Attributes:
        name: of the tier, or ``dim<k>``.
        dims: network dimensions in it, inner first. size: units of the level below in one of its units.
        unit: GPUs in a unit of the level below.
        port: bytes per ns of a GPU's port into it. latency: ns one way (on a Ring: a step between neighbours).
        oversubscription: of the uplinks into it, at least 1. topology: Switch, FullyConnected or Ring.
    """

    name: str
    dims: tuple[int, ...]
    size: int
    unit: int
    port: float
    latency: float
    oversubscription: float
    topology: str

    @property
    def uplink(self) -> float:
        """Bytes per ns of the uplink of a unit of the level below."""
        return self.unit * self.port / self.oversubscription


@dataclass(frozen=True)
class Fabric:
    """All levels, inner to outer.

    Attributes:
        tiered: they nest as tiers, with a NIC shared above the innermost.
        turns: data-parallel replicas take turns on the uplinks of the outermost tier (:mod:`.turns`).
        replica_dims, stage_dims: dimensions of the axes dp and pp, as far as the file says.
        sites: where the units of the outermost tier differ in size, how many units of the tier below each has. The
            dimensions of both are then those of the tier below, and only messages cross them.
    """

    levels: tuple[Level, ...]
    shape: tuple[int, ...]
    tiered: bool
    turns: bool = False
    replica_dims: tuple[int, ...] = ()
    stage_dims: tuple[int, ...] = ()
    sites: tuple[int, ...] = ()

    @property
    def npus(self) -> int:
        """Ranks in the world."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Rank distance of neighbours in each dimension."""
        return tuple(math.prod(self.shape[:d]) for d in range(len(self.shape)))

    @cached_property
    def level_of(self) -> tuple[int, ...]:
        """Level of each dimension."""
        found = {d: k for k, level in enumerate(self.levels) for d in level.dims}
        return tuple(found[d] for d in range(len(self.shape)))

    def chain(self, top: int) -> tuple[int, ...]:
        """Levels whose ports and uplinks a message with highest level ``top`` passes on its way up."""
        return tuple(range(1, top + 1)) if self.tiered and top > 0 else (top,)

    def digits(self, ranks: Any) -> Int64:
        """Coordinates int64[dimensions, ...]."""
        ranks = np.asarray(ranks, np.int64)
        return np.stack([ranks // s % n for s, n in zip(self.strides, self.shape, strict=True)])

    def offset(self, rank: int, peer: int) -> tuple[int, ...]:
        """Steps forward from ``rank`` to ``peer`` in each dimension."""
        pairs = zip(self.strides, self.shape, strict=True)
        return tuple((peer // s - rank // s) % n for s, n in pairs)

    def units_of(self, k: int) -> int:
        """Units of the level below level ``k``."""
        return len(self.sites) if self.sites and k == len(self.levels) - 1 else self.npus // self.levels[k].unit

    def port_rate(self, k: int, links: int = 1) -> float:
        """Bytes per ns of so many links of a GPU's port into level ``k``."""
        level = self.levels[k]
        return (level.uplink if level.unit == 1 else level.port) * links

    def unit_of(self, k: int, ranks: Any) -> Int64:
        """The unit of the level below level ``k`` that each rank is in."""
        ranks = np.asarray(ranks, np.int64)
        if self.sites and k == len(self.levels) - 1:
            ends = np.cumsum(self.sites)
            return np.searchsorted(ends, ranks // self.levels[k - 1].unit, side="right").astype(np.int64)
        return ranks // self.levels[k].unit

    def uplink(self, k: int, unit: int) -> float:
        """Bytes per ns of the uplink of a unit of the level below level ``k``."""
        level = self.levels[k]
        if self.sites and k == len(self.levels) - 1:
            return self.sites[unit] * self.levels[k - 1].unit * level.port / level.oversubscription
        return level.uplink

    @cached_property
    def replicas(self) -> int:
        """Data-parallel replicas."""
        return math.prod(self.shape[d] for d in self.replica_dims)

    def replica_of(self, ranks: Any) -> Int64:
        """Number of the data-parallel replica that each rank belongs to, the inner dimension fastest."""
        number, radix = np.zeros(np.shape(ranks), np.int64), 1
        for d in self.replica_dims:
            number = number + np.asarray(ranks, np.int64) // self.strides[d] % self.shape[d] * radix
            radix *= self.shape[d]
        return number

    def in_replica(self, rank: int, replica: int) -> int:
        """The rank with the same place in another replica."""
        for d in self.replica_dims:
            replica, place = divmod(replica, self.shape[d])
            rank += (place - rank // self.strides[d] % self.shape[d]) * self.strides[d]
        return rank

    def lane_of(self, rank: int) -> int:
        """The rank with the same place in the first replica and the first of each pipeline dimension."""
        for d in self.stage_dims:
            rank -= rank // self.strides[d] % self.shape[d] * self.strides[d]
        return self.in_replica(rank, 0)

    def top(self, ranks: Any, peers: Any) -> Int64:
        """Highest level in which ranks and peers differ, -1 where they are equal (numpy broadcasting)."""
        ranks, peers = np.asarray(ranks, np.int64), np.asarray(peers, np.int64)
        found = np.full(np.broadcast(ranks, peers).shape, -1, np.int64)
        for k in range(len(self.levels)):
            if self.tiered:
                found = np.where(self.unit_of(k, ranks) != self.unit_of(k, peers), k, found)
            else:
                stride, size = self.strides[k], self.shape[k]
                found = np.where(ranks // stride % size != peers // stride % size, k, found)
        return found


def ring_hops(steps: Any, size: int) -> Any:
    """Hops of the shorter way round a ring (ties go forward)."""
    return np.minimum(steps, size - steps)


def build_fabric(network: NetworkFile) -> Fabric:
    """Levels of a network file.

    Raises:
        InvalidInput: E-NETWORK-EXT where ``x-scaleacross`` has unknown or missing keys, or disagrees with the
        dimensions.
    """
    if not network.extension:
        return Fabric(_plain_levels(network), network.npus_count, tiered=False)
    extension = network.extension
    _refuse_unknown(extension, EXTENSION_KEYS, "x-scaleacross")
    for key in ("dims", "tiers"):
        if not isinstance(extension.get(key), list):
            raise _error(f"x-scaleacross has no list '{key}'", "write dims and tiers, or leave x-scaleacross out")
    tiers, dims = extension["tiers"], extension["dims"]
    if len(dims) != network.dimensions:
        raise _error(f"{len(dims)} dims for {network.dimensions} dimensions", "write one entry a dimension")
    levels = _tier_levels(tiers, [str(_get(dim, "tier", DIM_KEYS, f"dims[{d}]")) for d, dim in enumerate(dims)])
    _check_sizes(levels, network)
    for level in levels:
        for d in level.dims:
            _check_dimension(network, d, level)
    axes = [dim.get("axis") for dim in dims]
    replicas, stages = (tuple(d for d, axis in enumerate(axes) if axis == name) for name in ("dp", "pp"))
    sites = _sites(extension, levels)
    fabric = Fabric(levels, network.npus_count, True, _takes_turns(extension), replicas, stages, sites)
    if fabric.turns:
        _check_turns(fabric)
    return fabric


def _sites(extension: Mapping[str, Any], levels: Sequence[Level]) -> tuple[int, ...]:
    """Units of each site where they differ.

    Raises:
        InvalidInput: E-NETWORK-EXT where they don't add up to the tier below the outermost.
    """
    sites = extension.get("sites", [])
    whole = isinstance(sites, list) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sites)
    if not whole or (sites and (len(levels) < 3 or levels[-1].dims or sum(sites) != levels[-2].size)):
        fix = "list the units of each site; they add up to the size of the tier below the outermost, which has size 1"
        raise _error(f"sites is {sites!r}", fix)
    if sites and any(level.topology != "Switch" for level in levels[-2:]):
        raise _error("sites of different size need Switch tiers", "make the two outermost tiers Switch")
    return tuple(sites)


def _takes_turns(extension: Mapping[str, Any]) -> bool:
    value = extension.get("wan-sharing", FAIR)
    if value not in (FAIR, TEMPORAL):
        raise _error(f"wan-sharing is {value!r}", f"write {FAIR} or {TEMPORAL}")
    return bool(value == TEMPORAL)


def _check_turns(fabric: Fabric) -> None:
    outer = fabric.levels[-1]
    clash, fix = "", "use fair sharing, or put the pipeline alone across that tier"
    if fabric.replicas < 2:
        clash, fix = "there is one data-parallel replica, with nobody to take turns with", "use fair sharing"
    elif len(fabric.levels) < 2 or not set(outer.dims) <= set(fabric.stage_dims):
        clash = f"more than pipeline stages lie across tier {outer.name}, and collectives cannot take turns"
    elif outer.topology != "Switch":
        clash, fix = f"tier {outer.name} is a {outer.topology}; turns are of a Switch's uplinks", "make it a Switch"
    if clash:
        raise InvalidInput("E-WAN-SHARING", f"network.yml: wan-sharing {TEMPORAL}: {clash}", fix)


def _plain_levels(network: NetworkFile) -> tuple[Level, ...]:
    levels, unit = [], 1
    for d, size in enumerate(network.npus_count):
        topology = network.topology[d]
        latency = network.latency[d] * HOPS[topology]
        levels.append(Level(f"dim{d}", (d,), size, unit, network.bandwidth[d] * GIB_PER_NS, latency, 1.0, topology))
        unit *= size
    return tuple(levels)


def _tier_levels(tiers: Sequence[Any], tier_of: Sequence[str]) -> tuple[Level, ...]:
    levels, unit = [], 1
    names = [str(_get(tier, "name", TIER_KEYS, f"tiers[{k}]")) for k, tier in enumerate(tiers)]
    for d, name in enumerate(tier_of):
        if name not in names:
            raise _error(f"dims[{d}] is on tier '{name}', which is not there", did_you_mean(name, names))
    for k, tier in enumerate(tiers):
        where = f"tiers[{k}] ({names[k]})"
        size, port, one_way, ratio = (
            _number(tier, key, where) for key in ("size", "bandwidth", "one-way", "oversubscription")
        )
        if size < 1 or size != int(size) or port <= 0 or one_way < 0 or ratio < 1:
            raise _error(f"{where} has impossible numbers: {dict(tier)}", "render the configuration again")
        topology = _get(tier, "topology", TIER_KEYS, where)
        if topology not in HOPS:
            raise _error(f"{where} has topology {topology!r}", "use Switch, FullyConnected or Ring")
        own = tuple(d for d, name in enumerate(tier_of) if name == names[k])
        levels.append(Level(names[k], own, int(size), unit, port * GIB_PER_NS, one_way, ratio, topology))
        unit *= int(size)
    return tuple(levels)


def _check_sizes(levels: Sequence[Level], network: NetworkFile) -> None:
    if [d for level in levels for d in level.dims] != list(range(network.dimensions)):
        raise _error("the dimensions are not in the order of the tiers", "render the configuration again")
    for level in levels:
        ranks = math.prod(network.npus_count[d] for d in level.dims)
        if ranks != level.size:
            clash = f"npus_count of tier {level.name} multiplies to {ranks}, its size is {level.size}"
            raise _error(clash, "render the configuration again")


def _check_dimension(network: NetworkFile, d: int, level: Level) -> None:
    """What ASTRA-sim reads and the tiers must agree: who edits one of them alone would see no effect here."""
    one_way = network.latency[d] * HOPS[network.topology[d]]
    if network.topology[d] != level.topology:
        clash = f"dimension {d} is a {network.topology[d]}, its tier {level.name} a {level.topology}"
    elif not math.isclose(one_way, level.latency, rel_tol=ROUNDING, abs_tol=0.01):
        clash = f"dimension {d}: latency makes {one_way:g} ns one way, its tier {level.name} says {level.latency:g} ns"
    elif network.bandwidth[d] * GIB_PER_NS > level.port * (1 + ROUNDING):
        clash = f"dimension {d}: bandwidth {network.bandwidth[d]:g} GiB/s is above the port of its tier {level.name}"
    else:
        return
    raise _error(clash, "change the cluster and render again, or change x-scaleacross too")


def _get(entry: Any, key: str, known: Sequence[str], where: str) -> Any:
    if not isinstance(entry, Mapping):
        raise _error(f"{where} is {entry!r}, not keys and values", f"write {', '.join(known)}")
    _refuse_unknown(entry, known, where)
    if key not in entry:
        raise _error(f"{where} has no '{key}'", f"write {', '.join(known)}")
    return entry[key]


def _number(entry: Any, key: str, where: str) -> float:
    value = _get(entry, key, TIER_KEYS, where)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _error(f"{where}: {key} is {value!r}", "write a number")
    return float(value)


def _refuse_unknown(entry: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in known:
            raise _error(f"{where} has an unknown key {key!r}", did_you_mean(str(key), known))


def _error(clash: str, fix: str) -> InvalidInput:
    return InvalidInput("E-NETWORK-EXT", f"network.yml: {clash}", fix)
