"""The configuration files of ASTRA-sim's analytical backend, read strictly into frozen dataclasses.

ASTRA-sim ignores keys that it does not know, so a typo silently changes nothing; here each is an error with a
suggestion. What it reads but does not use is accepted and listed in ``ignored``. Everything of this package's own is
under ``x-scaleacross``, which ASTRA-sim ignores. Each file has two readers: ``load_*`` raises the first problem,
``inspect_*`` returns every problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..documents import Document, as_integer, as_number, read_mapping, shown
from ..errors import InvalidInput
from .collectives import COLLECTIVE_KEYS, Implementation, read_custom, read_implementations, read_per_node_custom

Groups = dict[int, tuple[int, ...]]
PathLike = Path | str
T = TypeVar("T")

TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
MEMORY_TYPES = ("NO_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "MEMORY_POOL")
SCHEDULING_POLICIES = ("LIFO", "FIFO", "EXPLICIT")
OPTIMIZATIONS = ("localBWAware", "baseline")
# Read by other versions of ASTRA-sim or in its examples; the analytical backend does nothing with them.
IGNORED_SYSTEM_KEYS = frozenset({"inter-dimension-scheduling", "intra-dimension-scheduling", "boost-mode"})
MAX_NPUS = 2**24
# Beyond these no network is meant, and the nanoseconds of a simulation may leave 64 bits.
MAX_LATENCY = 1e12  # ns: 1,000 s
MIN_BANDWIDTH, MAX_BANDWIDTH = 1e-6, 1e9  # GiB/s

_NETWORK_KEYS = frozenset({"topology", "npus_count", "bandwidth", "latency"})
_MEMORY_KEYS = frozenset({"memory-type", "remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node"})
_SYSTEM_KEYS = (
    frozenset(
        {
            "scheduling-policy",
            "collective-optimization",
            "local-reduction-delay",
            "active-chunks-per-dimension",
            "preferred-dataset-splits",
            "endpoint-delay",
            "model-shared-bus",
            "L",
            "o",
            "g",
            "G",
            "peak-perf",
            "local-mem-bw",
            "roofline-enabled",
            "trace-enabled",
            "replay-only",
            "track-local-mem",
            "local-mem-trace-filename",
            "per-node-custom-implementation",
        }
    )
    | {f"{stem}-implementation" for stem in COLLECTIVE_KEYS.values()}
    | {f"{stem}-implementation-custom" for stem in COLLECTIVE_KEYS.values()}
    | IGNORED_SYSTEM_KEYS
)


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """``network.yml``: one entry per dimension, dimension 0 fastest in the rank number.

    Attributes:
        topology: Ring, FullyConnected or Switch.
        npus_count: ranks in each dimension, > 1.
        bandwidth: GiB/s (2^30 bytes per second) of a link, 1e-6 to 1e9.
        latency: nanoseconds of a hop, at most 1e12.
        extension: what stands under ``x-scaleacross``.
    """

    topology: tuple[str, ...]
    npus_count: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    extension: Mapping[str, Any] = field(default_factory=dict)

    @property
    def npus(self) -> int:
        """Ranks in the world."""
        return math.prod(self.npus_count)

    @property
    def dimensions(self) -> int:
        """Number of network dimensions."""
        return len(self.topology)


@dataclass(frozen=True, slots=True)
class SystemFile:
    """``system.json``, with the defaults of ASTRA-sim for keys that may be left out.

    Attributes:
        implementations: Chakra collective type -> one entry per dimension (or one in all); missing types are not there.
        custom: Chakra collective type -> prefix of the Chakra trace that is the algorithm.
        per_node_custom: node id -> prefix of the Chakra trace that is that collective's algorithm.
        endpoint_delay, reduction_delay: ns. local_mem_bandwidth: GB/s (1e9). peak_perf: TFLOP/s (1e12).
        bus_l, bus_o, bus_g, bus_gap: the keys L, o, g, G of the shared-bus model.
        ignored: keys that are there and have no effect.
        extension: what stands under ``x-scaleacross``.
    """

    implementations: Mapping[int, tuple[Implementation, ...]]
    custom: Mapping[int, str] = field(default_factory=dict)
    per_node_custom: Mapping[int, str] = field(default_factory=dict)
    scheduling_policy: str = "LIFO"
    collective_optimization: str = "localBWAware"
    preferred_dataset_splits: int = 1
    active_chunks_per_dimension: int = 1
    endpoint_delay: int = 10
    reduction_delay: int = 1
    local_mem_bandwidth: float = 0.0
    peak_perf: float = 0.0
    roofline_enabled: bool = False
    model_shared_bus: bool = False
    bus_l: float = 0.0
    bus_o: float = 0.0
    bus_g: float = 0.0
    bus_gap: float = 0.0
    replay_only: bool = False
    trace_enabled: bool = False
    track_local_mem: bool = False
    local_mem_trace_filename: str = "local_mem_trace"
    ignored: tuple[str, ...] = ()
    extension: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """``memory.json``: remote memory. Latency in ns, bandwidth in GB/s (1e9)."""

    kind: str = "NO_MEMORY_EXPANSION"
    latency: int = 0
    bandwidth: int = 0
    nodes: int = 0
    npus_per_node: int = 0


def load_network(path: PathLike) -> NetworkFile:
    """``network.yml``.

    Raises:
        InvalidInput: E-CONFIG-FILE, -SYNTAX, -KEY, -MISSING, -TYPE, -VALUE, E-NETWORK-LENGTHS, E-NETWORK-SIZE.
    """
    return _first(*inspect_network(path))


def inspect_network(path: PathLike) -> tuple[NetworkFile | None, list[InvalidInput]]:
    """``network.yml`` (None if it cannot be used) and every problem in it."""
    document = _open(path, "yaml")
    if isinstance(document, InvalidInput):
        return None, [document]
    document.refuse_unknown(_NETWORK_KEYS)
    for key in sorted(_NETWORK_KEYS):
        document.require(key, "write a list with an entry per dimension")
    if document.problems:
        return None, document.problems
    lists = {
        "topology": document.items("topology", _topology, "Ring, FullyConnected or Switch (case matters)"),
        "npus_count": document.items("npus_count", _npus, "whole numbers above 1"),
        "bandwidth": document.items(
            "bandwidth", _bandwidth, f"numbers from {MIN_BANDWIDTH:g} to {MAX_BANDWIDTH:g} (GiB/s)"
        ),
        "latency": document.items("latency", _latency, f"numbers from 0 to {MAX_LATENCY:g} (ns; 1,000 s)"),
    }
    if len({len(entries) for entries in lists.values()}) > 1 and not document.problems:
        lengths = ", ".join(f"{key} {len(entries)}" for key, entries in lists.items())
        document.problem(
            "E-NETWORK-LENGTHS", f"lists differ in length: {lengths}", "write one entry per dimension in each"
        )
    if not document.problems and math.prod(lists["npus_count"]) > MAX_NPUS:
        world = " x ".join(map(str, lists["npus_count"]))
        document.problem("E-NETWORK-SIZE", f"{shown(world)} NPUs", f"at most {MAX_NPUS} are supported")
    extension = document.extension()
    if document.problems:
        return None, document.problems
    return NetworkFile(**lists, extension=extension), []


def load_system(path: PathLike) -> SystemFile:
    """``system.json``.

    Raises:
        InvalidInput: E-CONFIG-FILE, -SYNTAX, -KEY, -MISSING, -TYPE, -VALUE.
    """
    return _first(*inspect_system(path))


def inspect_system(path: PathLike) -> tuple[SystemFile | None, list[InvalidInput]]:
    """``system.json`` (None if it cannot be used) and every problem in it."""
    document = _open(path, "json")
    if isinstance(document, InvalidInput):
        return None, [document]
    document.refuse_unknown(_SYSTEM_KEYS)
    document.require("preferred-dataset-splits", "write 1; ASTRA-sim divides by zero without it")
    document.require("scheduling-policy", "write LIFO; ASTRA-sim reads an uninitialised value without it")
    document.require("collective-optimization", "write localBWAware; ASTRA-sim reads an uninitialised value without it")
    document.require(
        "local-mem-bw", "write the accelerator's memory bandwidth in GB/s; reductions cost nothing without it"
    )
    roofline = document.flag("roofline-enabled")
    if roofline:
        document.require("peak-perf", "roofline-enabled needs the peak in TFLOP/s")
    system = SystemFile(
        implementations=read_implementations(document),
        custom=read_custom(document),
        per_node_custom=read_per_node_custom(document),
        scheduling_policy=document.choice("scheduling-policy", SCHEDULING_POLICIES, "LIFO"),
        collective_optimization=document.choice("collective-optimization", OPTIMIZATIONS, "localBWAware"),
        preferred_dataset_splits=document.integer("preferred-dataset-splits", 1, 1),
        active_chunks_per_dimension=document.integer("active-chunks-per-dimension", 1, 1),
        endpoint_delay=document.integer("endpoint-delay", 10, 0),
        reduction_delay=document.integer("local-reduction-delay", 1, 0),
        local_mem_bandwidth=document.number("local-mem-bw", 0.0, 0.0, above=True),
        peak_perf=document.number("peak-perf", 0.0, 0.0, above=roofline),
        roofline_enabled=roofline,
        model_shared_bus=document.flag("model-shared-bus"),
        bus_l=document.number("L", 0.0, 0.0),
        bus_o=document.number("o", 0.0, 0.0),
        bus_g=document.number("g", 0.0, 0.0),
        bus_gap=document.number("G", 0.0, 0.0),
        replay_only=document.flag("replay-only"),
        trace_enabled=document.flag("trace-enabled"),
        track_local_mem=document.flag("track-local-mem"),
        local_mem_trace_filename=document.text("local-mem-trace-filename", "local_mem_trace"),
        ignored=tuple(sorted(IGNORED_SYSTEM_KEYS & document.mapping.keys())),
        extension=document.extension(),
    )
    return (None, document.problems) if document.problems else (system, [])


def load_memory(path: PathLike) -> MemoryFile:
    """``memory.json``.

    Raises:
        InvalidInput: E-CONFIG-FILE, -SYNTAX, -KEY, -MISSING, -TYPE, -VALUE.
    """
    return _first(*inspect_memory(path))


def inspect_memory(path: PathLike) -> tuple[MemoryFile | None, list[InvalidInput]]:
    """``memory.json`` (None if it cannot be used) and every problem in it."""
    document = _open(path, "json")
    if isinstance(document, InvalidInput):
        return None, [document]
    document.refuse_unknown(_MEMORY_KEYS)
    document.require("memory-type", "write NO_MEMORY_EXPANSION")
    kind = document.choice("memory-type", MEMORY_TYPES, MEMORY_TYPES[0])
    if kind != MEMORY_TYPES[0]:
        document.require("remote-mem-bw", f"{kind} needs a bandwidth in GB/s")
    if kind == "PER_NODE_MEMORY_EXPANSION":
        for key in ("num-nodes", "num-npus-per-node"):
            document.require(key, f"{kind} needs it")
    memory = MemoryFile(
        kind=kind,
        latency=document.integer("remote-mem-latency", 0, 0),
        bandwidth=document.integer("remote-mem-bw", 0, 0 if kind == MEMORY_TYPES[0] else 1),
        nodes=document.integer("num-nodes", 0, 1),
        npus_per_node=document.integer("num-npus-per-node", 0, 1),
    )
    return (None, document.problems) if document.problems else (memory, [])


def load_groups(path: PathLike) -> Groups:
    """``comm_groups.json``: communicator id -> ranks in ring order. Sizes and whether the ranks exist are
    checked elsewhere (:mod:`scaleacross.validate`).

    Raises:
        InvalidInput: E-CONFIG-FILE, -SYNTAX, E-GROUP-ID, E-GROUP-TYPE, E-GROUP-TWICE.
    """
    return _first(*inspect_groups(path))


def inspect_groups(path: PathLike) -> tuple[Groups | None, list[InvalidInput]]:
    """``comm_groups.json`` (None if it cannot be used) and every problem in it."""
    document = _open(path, "json")
    if isinstance(document, InvalidInput):
        return None, [document]
    groups: Groups = {}
    for name, members in document.mapping.items():
        if not re.fullmatch(r"[1-9][0-9]{0,8}", str(name)):
            document.problem("E-GROUP-ID", f"group id {shown(name)}", "ids are whole numbers of at least 1")
        elif not isinstance(members, list) or not all(type(rank) is int and 0 <= rank < 2**31 for rank in members):
            document.problem("E-GROUP-TYPE", f"group {name} is {shown(members)}", "a group is a list of rank numbers")
        elif len(set(members)) < len(members):
            twice = sorted(rank for rank in set(members) if members.count(rank) > 1)
            document.problem("E-GROUP-TWICE", f"group {name} has {shown(twice)} more than once", "members are unique")
        else:
            groups[int(name)] = tuple(members)
    return (None, document.problems) if document.problems else (groups, [])


def _topology(entry: Any) -> str | None:
    return entry if isinstance(entry, str) and entry in TOPOLOGIES else None


def _npus(entry: Any) -> int | None:
    count = as_integer(entry, text=True)
    return count if count is not None and count > 1 else None


def _bandwidth(entry: Any) -> float | None:
    value = as_number(entry, text=True)
    return value if value is not None and MIN_BANDWIDTH <= value <= MAX_BANDWIDTH else None


def _latency(entry: Any) -> float | None:
    value = as_number(entry, text=True)
    return value if value is not None and 0 <= value <= MAX_LATENCY else None


def _open(path: PathLike, kind: str) -> Document | InvalidInput:
    try:
        return Document(path, read_mapping(path, kind))
    except InvalidInput as error:
        return error


def _first(value: T | None, problems: list[InvalidInput]) -> T:
    if value is None:
        raise problems[0]
    return value
