"""Transports: what loss, distance and windows leave of a tier's bandwidth, and what they add to its latency.

A cluster file lists transports, each a recovery scheme with its windows, and a tier names the one that connections
across it use::

    transports:
      roce-gbn: {scheme: go-back-n, queue_pairs: 16, outstanding: 128 MiB, source: ...}
    tiers:
      - {name: campus, ..., loss: 1e-6, transport: roce-gbn, paths: 76}

The formulas are in :mod:`.protocols` (recovery), :mod:`.sharing` (hashed paths).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..errors import InvalidInput, did_you_mean
from ..schema import quantity
from .protocols import Path, completion, goodput, unit_loss, wire_overhead
from .scheme import Scheme
from .sharing import collision_efficiency

IDEAL = "ideal"
MIB = 2**20
MOST_CHUNKS_LOST = 0.9  # beyond that a transfer is repeats of repeats


@dataclass(frozen=True)
class Transport:
    """A named transport.

    Attributes:
        scheme: recovery and windows.
        balance: ``spray`` (packets or messages in turn over all paths) or ``ecmp`` (a queue pair is hashed onto one).
        message: bytes at which the latency and bandwidth handed to a simulator are exact.
    """

    name: str
    scheme: Scheme = field(default_factory=Scheme)
    balance: Literal["spray", "ecmp"] = "spray"
    message: float = 16.0 * MIB


class TierLike(Protocol):
    """What a transport needs to know of a tier (:class:`scaleacross.cluster.Tier`)."""

    @property
    def bandwidth(self) -> float: ...
    @property
    def latency(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def paths(self) -> int: ...
    @property
    def transport(self) -> Transport | None: ...


@dataclass(frozen=True)
class Effective:
    """What a simulator of latency and bandwidth is given.

    Attributes:
        bandwidth: payload bytes/s of one sender.
        latency: seconds one way, expected repairs included.
        overhead: bytes on the wire for a byte of payload.
    """

    bandwidth: float
    latency: float
    overhead: float = 1.0


def effective(tier: TierLike, message_bytes: float | None = None, rate: float | None = None) -> Effective:
    """Bandwidth and latency of connections across a tier.

    A simulator charges latency + bytes / bandwidth. Here that is exact for messages of ``message_bytes`` (the
    transport's own reference where none is given). The bandwidth is the goodput of endless messages, so that larger
    ones are right too; what is left of the reference's time is latency. Where that would be less than the way itself
    (a message that fits the window of a long path is faster than the window allows in the long run), the latency is the
    way and the bandwidth what the reference sees.

    Args:
        tier: with its transport (None: what the tier says is what one gets).
        message_bytes: reference, bytes.
        rate: bytes/s that the wire gives to one sender; the port's bandwidth by default. A sender on a crowded uplink
            has less in flight, and go-back-N then wastes less for a loss.
    """
    wire = tier.bandwidth if rate is None else rate
    if tier.transport is None or tier.transport.scheme.kind == IDEAL:
        return Effective(wire, tier.latency)
    scheme, message = tier.transport.scheme, message_bytes or tier.transport.message
    path = Path(wire, 2 * tier.latency, tier.loss)
    moving = completion(scheme, path, message) - tier.latency
    bandwidth = max(goodput(scheme, path), message / moving) if moving > 0 else wire
    latency = max(tier.latency, tier.latency + moving - message / bandwidth)
    return Effective(bandwidth, latency, wire_overhead(scheme, path))


def uplink_efficiency(tier: TierLike, senders: float) -> float:
    """Share of a unit's uplink that ``senders`` GPUs can use: 1 unless the tier has paths and its transport hashes."""
    transport = tier.transport
    if transport is None or transport.balance == "spray" or tier.paths <= 1:
        return 1.0
    return collision_efficiency(max(1, round(senders * transport.scheme.queue_pairs)), tier.paths)


# The cluster file's section ------------------------------------------------------------------------------------------

_KEYS = {
    "go-back-n": ("queue_pairs", "outstanding", "mtu", "timeout", "timeout_rtts"),
    "selective-repeat": ("queue_pairs", "outstanding", "mtu", "chunk", "repair_rtts", "timeout"),
    "erasure-coding": (
        *("queue_pairs", "outstanding", "mtu", "chunk", "repair_rtts", "timeout"),
        *("data_chunks", "parity_chunks", "code", "slack_rtts"),
    ),
    "tcp": ("connections", "outstanding", "mtu", "congestion"),
}
_COMMON = ("scheme", "balance", "message", "source")
SCHEMES = tuple(_KEYS)


def _number(value: Any) -> Any:
    """Whole numbers where a float is meant."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


if TYPE_CHECKING:
    Bytes: TypeAlias = float
    Seconds: TypeAlias = float
    Number: TypeAlias = float
else:
    Bytes = Annotated[quantity("byte", most=1e15), Field(ge=1)]
    Seconds = Annotated[quantity("second", most=100), Field(ge=0)]
    Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]


class TransportFile(BaseModel):
    """One entry of ``transports``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    scheme: Literal["go-back-n", "selective-repeat", "erasure-coding", "tcp"]
    queue_pairs: Annotated[int, Field(ge=1, le=65536)] = 1
    connections: Annotated[int, Field(ge=1, le=65536)] = 1
    outstanding: Bytes | None = None
    mtu: Annotated[Bytes, Field(ge=64, le=MIB)] = 4096.0
    chunk: Bytes | None = None
    repair_rtts: Annotated[Number, Field(ge=1)] = 1.0
    timeout: Seconds = 0.0
    timeout_rtts: Annotated[Number, Field(ge=1)] = 3.0
    data_chunks: Annotated[int, Field(ge=1, le=4096)] = 32
    parity_chunks: Annotated[int, Field(ge=0, le=4096)] = 8
    code: Literal["mds", "xor"] = "mds"
    slack_rtts: Annotated[Number, Field(ge=0)] = 0.5
    congestion: Literal["reno", "cubic"] = "cubic"
    balance: Literal["spray", "ecmp"] = "spray"
    message: Bytes = 16.0 * MIB
    source: str | dict[str, str] = Field(default_factory=dict)

    _written: dict[str, str] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _keep_text(cls, data: Any, handler: Any) -> TransportFile:
        transport: TransportFile = handler(data)
        allowed = (*_COMMON, *_KEYS[transport.scheme])
        for key in data:
            if key not in allowed:
                raise ValueError(f"'{key}' means nothing to scheme {transport.scheme}; it takes {', '.join(allowed)}")
        transport._written = {str(k): str(v) for k, v in data.items() if k not in ("scheme", "source")}
        return transport

    @property
    def written(self) -> dict[str, str]:
        """The numbers as the file has them."""
        return self._written

    def read(self, name: str) -> Transport:
        """In SI units."""
        pairs = self.connections if self.scheme == "tcp" else self.queue_pairs
        scheme = Scheme(
            kind=self.scheme,
            queue_pairs=pairs,
            outstanding=math.inf if self.outstanding is None else self.outstanding,
            mtu=self.mtu,
            chunk=self.chunk or 0.0,
            repair_rtts=self.repair_rtts,
            timeout=self.timeout,
            timeout_rtts=self.timeout_rtts,
            data_chunks=self.data_chunks,
            parity_chunks=self.parity_chunks,
            code=self.code,
            slack_rtts=self.slack_rtts,
            congestion=self.congestion,
        )
        return Transport(name, scheme, self.balance, self.message)


def find_transport(name: str, known: Mapping[str, TransportFile], loss: float, where: str) -> Transport | None:
    """The transport a tier names; None for ``ideal``.

    Raises:
        InvalidInput: E-TRANSPORT for a name that the file does not have, or where the tier's ``loss`` of a packet means
            that hardly a chunk arrives whole.
    """
    if name == IDEAL:
        return None
    if name not in known:
        clash = f"{where}: no transport '{name}' among the file's transports"
        raise InvalidInput("E-TRANSPORT", clash, did_you_mean(name, [*known, IDEAL]))
    transport = known[name].read(name)
    lost = unit_loss(transport.scheme, loss)
    if lost > MOST_CHUNKS_LOST:
        clash = (
            f"{where}: {lost:.1%} of the chunks of {known[name].chunk:g} bytes lose a packet (loss {loss:g} of each)"
        )
        raise InvalidInput("E-TRANSPORT", clash, f"make chunk of transports.{name} or loss smaller")
    return transport
