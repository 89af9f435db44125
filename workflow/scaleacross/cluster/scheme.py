"""A transport as a cluster file describes it: the recovery scheme and its windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["ideal", "go-back-n", "selective-repeat", "erasure-coding", "tcp"]

UNLIMITED = 1e12  # packets


@dataclass(frozen=True)
class Scheme:
    """How a connection between two GPUs sends and repairs.

    Attributes:
        kind: ``ideal`` (no loss, no window), ``go-back-n``, ``selective-repeat``, ``erasure-coding`` or ``tcp``.
        queue_pairs: queue pairs (TCP: connections) that a message is spread over, evenly.
        outstanding: bytes a queue pair may have unacknowledged (TCP: socket buffer); infinite means no limit.
        mtu: payload bytes of a packet.
        chunk: bytes repaired together, one bit of the receiver's bitmap; 0 is a packet.
        repair_rtts: round trips from a loss to its repair: 1 with NACKs, about 3 where a timer finds it.
        timeout: least time of a timer, seconds. timeout_rtts: its length in round trips.
        data_chunks, parity_chunks: k and m of an erasure-coded group. code: ``mds`` or ``xor``.
        slack_rtts: round trips a receiver waits beyond a group's end before it asks for a group it cannot decode.
        congestion: ``reno`` or ``cubic``.
    """

    kind: Kind = "ideal"
    queue_pairs: int = 1
    outstanding: float = math.inf
    mtu: float = 4096.0
    chunk: float = 0.0
    repair_rtts: float = 1.0
    timeout: float = 0.0
    timeout_rtts: float = 3.0
    data_chunks: int = 32
    parity_chunks: int = 8
    code: Literal["mds", "xor"] = "mds"
    slack_rtts: float = 0.5
    congestion: Literal["reno", "cubic"] = "cubic"

    @property
    def window(self) -> float:
        """Packets a queue pair may have in flight: at least one; unlimited is more than any link holds."""
        return max(1.0, self.outstanding // self.mtu) if self.outstanding < UNLIMITED * self.mtu else UNLIMITED
