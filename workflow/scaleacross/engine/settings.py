"""The configuration of a simulation: ASTRA-sim's files, read once, and what the command line adds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..astra.config_files import (
    Groups,
    MemoryFile,
    NetworkFile,
    SystemFile,
    load_groups,
    load_memory,
    load_network,
    load_system,
)

TOPOLOGY_CODES = {"Ring": 0, "FullyConnected": 1, "Switch": 2}
POLICY_CODES = {"LIFO": 0, "FIFO": 1, "EXPLICIT": 2}


@dataclass(frozen=True)
class Config:
    """Network, system, memory and communicator groups (id -> ranks in ring order)."""

    network: NetworkFile
    system: SystemFile
    memory: MemoryFile = field(default_factory=MemoryFile)
    groups: Groups = field(default_factory=dict)

    @property
    def npus(self) -> int:
        """Ranks in the world."""
        return self.network.npus

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Rank distance of neighbours in each dimension."""
        return tuple(math.prod(self.network.npus_count[:d]) for d in range(self.network.dimensions))

    @cached_property
    def bytes_per_ns(self) -> tuple[float, ...]:
        """Bandwidth of each dimension: network.yml's unit is 2^30 bytes per second."""
        return tuple(bandwidth * (1 << 30) / 1_000_000_000 for bandwidth in self.network.bandwidth)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of the reference adds.

    ``injection_scale`` multiplies the endpoint delay; ``comm_scale`` and ``compute_scale`` are accepted and have no
    effect, as in the reference.
    """

    queues_per_dim: int = 1
    injection_scale: float = 1.0
    rendezvous: bool = False


def load_config(
    network: Path | str, system: Path | str, memory: Path | str | None = None, groups: Path | str | None = None
) -> Config:
    """Read the configuration files. Unknown keys are refused, except what stands under ``x-scaleacross``.

    Raises:
        InvalidInput: a file is missing or wrong (ids of :mod:`scaleacross.astra.config_files`).
    """
    return Config(
        network=load_network(network),
        system=load_system(system),
        memory=load_memory(memory) if memory is not None else MemoryFile(),
        groups=load_groups(groups) if groups is not None else {},
    )
