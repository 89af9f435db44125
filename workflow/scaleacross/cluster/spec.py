"""Clusters as tiers of switches, read from ``config/clusters/<name>.yaml.j2``.

A cluster file is a template: it is rendered with a design point's values, so that a line such as
``latency: {{ uplink_latency | default("150 us") }}`` makes any number of it a dimension. Every number carries
where it comes from (``source:``); what was not read in a source starts with ``assumption:`` and is listed by
:meth:`Cluster.assumptions` for the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InvalidInput, did_you_mean
from ..schema import parse_yaml, quantity, validate
from .sites import (
    Pair,
    PairsFile,
    Price,
    Rate,
    Seconds,
    Site,
    SiteFile,
    read_sites,
    site_notes,
    slowest_link,
    slowest_pair,
)
from .template import render
from .transport import IDEAL, Number, Transport, TransportFile, find_transport

Topology = Literal["Switch", "Ring", "FullyConnected"]

FIBRE_SECONDS_PER_METRE = 5e-9  # light in glass: about 5 us/km one way
ASSUMPTION = "assumption:"
JOULES_A_KWH = 3.6e6
LEAST_SHARE = 1e4  # bytes/s of a GPU; network.yml holds no less than 1e-6 GiB/s


@dataclass(frozen=True)
class Note:
    """Where one number of a cluster file comes from: ``tier`` ("" for the cluster), ``field``, ``value`` as written."""

    tier: str
    field: str
    value: str
    text: str

    @property
    def is_assumption(self) -> bool:
        """True unless a source is named."""
        return self.text.lower().startswith(ASSUMPTION)

    def __str__(self) -> str:
        return f"{self.tier + ' ' if self.tier else ''}{self.field} = {self.value}: {self.text}"


@dataclass(frozen=True)
class Tier:
    """One level of the network, joining ``size`` units of the level below (GPUs for the innermost).

    Attributes:
        name: node, rack, zone, building, campus, region ...
        size: units of the tier below in one unit of this tier.
        bandwidth: bytes/s a GPU's port can send into this tier, one direction.
        latency: seconds one way between two GPUs whose lowest common tier is this, fibre of ``distance`` included.
        oversubscription: port bandwidth of the units below over the capacity that joins them, >= 1 (1:2.8 is 2.8).
        topology: of ASTRA-sim's dimension(s) for this tier.
        distance: metres of fibre between two units, 0 where latency says it all.
        loss: probability that a packet between two such GPUs is lost.
        paths: equal-cost paths of a unit's uplink, 0 where traffic is taken as perfectly spread.
        transport: of connections between two such GPUs; None is ideal: bandwidth and latency are those stated.
        pairs: links between its units where they differ; ``bandwidth`` and ``latency`` are then the slowest one's.
        egress: usd a byte sent across, 0 where not given.
        notes: where the numbers come from.
    """

    name: str
    size: int
    bandwidth: float
    latency: float
    oversubscription: float = 1.0
    topology: Topology = "Switch"
    distance: float = 0.0
    notes: tuple[Note, ...] = ()
    loss: float = 0.0
    paths: int = 0
    transport: Transport | None = None
    pairs: tuple[Pair, ...] = ()
    egress: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """A whole cluster: ``tiers`` from the inside out; ``accelerator`` names a file of ``config/accelerators``.

    ``sites`` are the units below the outermost tier where they are described one by one; the tiers hold what all of
    them have. ``price``: usd an hour for a GPU; ``pue``: watts drawn for each that a GPU draws;
    ``energy_price``: usd a joule, 0 where the price of a GPU includes its energy.
    """

    name: str
    accelerator: str
    tiers: tuple[Tier, ...]
    description: str = ""
    notes: tuple[Note, ...] = ()
    sites: tuple[Site, ...] = ()
    mixed_accelerators: str = "refuse"
    price: float = 0.0
    pue: float = 1.0
    energy_price: float = 0.0

    @property
    def idle_gpus(self) -> int:
        """GPUs of larger sites that no plan uses."""
        below = prod(tier.size for tier in self.tiers[:-2])
        return sum((site.size - site.used) * below for site in self.sites)

    @property
    def site_sizes(self) -> tuple[int, ...]:
        """Units of each site where they differ in size; the tier below the outermost then holds them all, in order."""
        sizes = tuple(site.used for site in self.sites)
        return sizes if len(set(sizes)) > 1 else ()

    @property
    def gpus(self) -> int:
        """GPUs in all: the product of the tiers' sizes."""
        return prod(tier.size for tier in self.tiers)

    def tier(self, name: str) -> Tier:
        """The tier of that name; InvalidInput E-TIER with a did-you-mean."""
        return self.tiers[self.tier_index(name)]

    def tier_index(self, name: str) -> int:
        """Position of a tier, 0 innermost; InvalidInput E-TIER with a did-you-mean."""
        names = [tier.name for tier in self.tiers]
        if name not in names:
            raise InvalidInput("E-TIER", f"cluster {self.name} has no tier '{name}'", did_you_mean(name, names))
        return names.index(name)

    def sources(self) -> tuple[Note, ...]:
        """Where every number comes from, innermost tier first."""
        return self.notes + tuple(note for tier in self.tiers for note in tier.notes)

    def assumptions(self) -> tuple[Note, ...]:
        """The numbers that no source states; a report shows them."""
        return tuple(note for note in self.sources() if note.is_assumption)

    def scaled(self, sizes: Mapping[str, int] | Sequence[int]) -> Cluster:
        """The same cluster with other tier sizes (all of them in order, or some by name), for a scaled-down twin.

        Raises:
            InvalidInput: E-TIER for an unknown tier or a wrong number of sizes, E-SIZE for a size below 1.
        """
        if not isinstance(sizes, Mapping):
            if len(sizes) != len(self.tiers):
                clash = f"{len(sizes)} sizes {list(sizes)} for {len(self.tiers)} tiers {[t.name for t in self.tiers]}"
                raise InvalidInput("E-TIER", clash, "give one size a tier")
            sizes = {tier.name: size for tier, size in zip(self.tiers, sizes, strict=True)}
        for name, size in sizes.items():
            self.tier(name)
            if size < 1:
                raise InvalidInput("E-SIZE", f"tier {name} of {self.name}: size {size}", "give a size of 1 or more")
        tiers = tuple(_resized(tier, sizes.get(tier.name, tier.size), self.name) for tier in self.tiers)
        return replace(self, tiers=tiers)


def _resized(tier: Tier, size: int, cluster: str) -> Tier:
    if size == tier.size:
        return tier
    note = Note(tier.name, "size", str(size), f"{ASSUMPTION} scaled from the {tier.size} of {cluster}")
    return replace(tier, size=size, notes=(note, *(n for n in tier.notes if n.field != "size")))


def load_cluster(path: Path | str, values: Mapping[str, Any] | None = None) -> Cluster:
    """Render a cluster file with a design point's ``values`` and read it.

    Raises:
        InvalidInput: E-FILE, E-TEMPLATE-SYNTAX or E-UNDEFINED from the template; E-YAML with line, text; E-KEY for an
            unknown or missing key, with did-you-mean; E-VALUE for anything else, a number without its unit included.
    """
    return _parse(render(path, values or {}), str(path))


@lru_cache(maxsize=1024)
def _parse(text: str, where: str) -> Cluster:
    file = validate(_ClusterFile, parse_yaml(text, f"{where} (as rendered)"), where)
    tiers = [tier.read(where, file.transports) for tier in file.tiers]
    below = tiers[-2].size if len(tiers) > 1 else 1
    if file.sites and len(tiers) < 2:
        raise InvalidInput("E-SITES", f"{where}: sites need two tiers, one of which joins them", "add a tier")
    sites = read_sites(
        file.sites, tiers[-1].size, below, file.accelerator, file.price or 0.0, file.unequal_sites, where
    )
    cluster = Cluster(
        name=file.name,
        accelerator=file.accelerator,
        tiers=tuple(tiers),
        description=" ".join(file.description.split()),
        notes=_notes("", file.written(), file.source, where) + _transport_notes(file, where),
        sites=sites,
        mixed_accelerators=file.mixed_accelerators,
        price=file.price or 0.0,
        pue=file.pue,
        energy_price=file.energy_price,
    )
    if any(site.used != sites[0].used for site in sites):
        if len(tiers) < 3:
            clash = f"{where}: sites of different size are units of two tiers, and no tier is left for their GPUs"
            raise InvalidInput("E-SITES", clash, "add a tier, or write unequal_sites: smallest")
        cluster = cluster.scaled({tiers[-2].name: sum(site.used for site in sites), tiers[-1].name: 1})
    elif sites and sites[0].used != below:
        cluster = cluster.scaled({tiers[-2].name: sites[0].used})
    if cluster.idle_gpus:
        text = f"{ASSUMPTION} sites are unequal, so that each takes part with what the smallest has"
        cluster = replace(cluster, notes=(*cluster.notes, Note("", "idle_gpus", str(cluster.idle_gpus), text)))
    return cluster


def parse_oversubscription(value: Any) -> float:
    """``"1:2.8"``, uplink to ports, as a ratio >= 1: 2.8.

    Raises:
        InvalidInput: E-OVERSUBSCRIPTION for anything else, ``"2.8:1"`` and ``2.8`` included: one way to write it, since
            a number alone, or the other way round, may have been meant as its inverse.
    """
    match = re.fullmatch(r"\s*1\s*:\s*(\d+(?:\.\d+)?)\s*", str(value))
    ratio = float(match[1]) if match else 0.0
    if ratio < 1:
        numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", str(value))]
        meant = max(numbers, default=2.8) / (min(numbers) if len(numbers) == 2 and min(numbers) > 0 else 1)
        clash = f"{value!r} is no oversubscription (uplink to ports, 1:1 or more)"
        raise InvalidInput("E-OVERSUBSCRIPTION", clash, f'write "1:{max(meant, 1):g}"')
    return ratio


def _ratio(value: Any) -> float:
    try:
        return parse_oversubscription(value)
    except InvalidInput as error:
        raise PydanticCustomError("quantity", "{text}", {"text": f"{error.clash}; {error.fix}"}) from None


Source = str | dict[str, str]
_NUMBERS = ("size", "bandwidth", "latency", "distance", "loss", "paths", "egress")  # of a tier, written as they are


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _TierFile(_Strict):
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    size: int = Field(ge=1)
    pairs: PairsFile | None = None
    bandwidth: Annotated[Rate | None, Field(validate_default=True)] = None
    egress: Annotated[quantity("usd/byte", most=1e-3), Field(ge=0)] = 0.0  # type: ignore[valid-type]
    latency: Seconds | None = None
    distance: Annotated[quantity("meter", most=1e9), Field(ge=0)] = 0.0  # type: ignore[valid-type]
    oversubscription: Annotated[float, BeforeValidator(_ratio)] = 1.0
    topology: Topology = "Switch"
    loss: Annotated[Number, Field(ge=0, le=0.5)] = 0.0
    paths: int = Field(0, ge=0)
    transport: str = IDEAL
    source: Source = Field(default_factory=dict)

    _written: dict[str, str] = {}

    @field_validator("bandwidth")
    @classmethod
    def _given_unless_pairs_are(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is None and info.data.get("pairs", "wrong") is None:
            raise PydanticCustomError("missing", "bandwidth or pairs is needed")
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _keep_text(cls, data: Any, handler: Any) -> _TierFile:
        tier: _TierFile = handler(data)
        tier._written = {k: str(v) for k, v in data.items() if k in _NUMBERS}
        if tier.pairs:
            slow = slowest_pair(tier.pairs)
            tier._written["pairs"] = f"{len(tier.pairs.bandwidth)} links, slowest {slow}"
        if "oversubscription" in data:
            tier._written["oversubscription"] = f"1:{tier.oversubscription:g}"
        return tier

    @model_validator(mode="after")
    def _has_numbers(self) -> _TierFile:
        if self.bandwidth is not None and self.pairs:
            raise ValueError("bandwidth and pairs exclude each other; keep one")
        if self.pairs and len(self.pairs.units) != self.size:
            raise ValueError(f"pairs has {len(self.pairs.units)} units, the tier {self.size}; name each")
        if self.latency is None and not self.distance and not (self.pairs and self.pairs.latency):
            raise ValueError("neither latency nor distance is given; write for example latency: 150 us")
        return self

    def read(self, where: str, transports: Mapping[str, TransportFile]) -> Tier:
        """The tier in SI units, with its notes.

        Raises:
            InvalidInput: E-TRANSPORT for a transport that the file does not have; E-VALUE where a GPU's share of the
                uplink is too small for the files of a simulator.
        """
        place = f"{where}: tiers.{self.name}"
        slowest = slowest_link(self.pairs, place) if self.pairs else None
        bandwidth = slowest.bandwidth if slowest else float(self.bandwidth or 0.0)
        if bandwidth / self.oversubscription < LEAST_SHARE:
            clash = f"{place}: bandwidth {bandwidth:g} B/s at 1:{self.oversubscription:g} leaves a GPU"
            clash += f" {bandwidth / self.oversubscription:.3g} B/s"
            raise InvalidInput("E-VALUE", clash, f"make it {LEAST_SHARE:g} B/s or more")
        latency = (self.latency or 0.0) + self.distance * FIBRE_SECONDS_PER_METRE
        return Tier(
            name=self.name,
            size=self.size,
            bandwidth=bandwidth,
            latency=latency + (slowest.latency if slowest else 0.0),
            oversubscription=self.oversubscription,
            topology=self.topology,
            distance=self.distance,
            loss=self.loss,
            paths=self.paths,
            pairs=self.pairs.links() if self.pairs else (),
            egress=self.egress,
            transport=find_transport(self.transport, transports, self.loss, place),
            notes=_notes(self.name, self._written, self.source, place),
        )


class _ClusterFile(_Strict):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    description: str = ""
    accelerator: str
    source: Source = Field(default_factory=dict)
    sites: list[SiteFile] = Field(default_factory=list)
    unequal_sites: Literal["smallest", "by-size"] | None = None
    mixed_accelerators: Literal["refuse", "slowest", "by-site"] = "refuse"
    price: Price | None = None
    pue: Annotated[Number, Field(ge=1, le=3)] = 1.0
    energy_price: Annotated[quantity("usd/joule", most=1), Field(ge=0)] = 0.0  # type: ignore[valid-type]
    transports: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], TransportFile] = Field(default_factory=dict)
    tiers: list[_TierFile] = Field(min_length=1)

    @model_validator(mode="after")
    def _tiers_agree(self) -> _ClusterFile:
        names = [tier.name for tier in self.tiers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"tier {twice[0]!r} is there twice; tiers need names of their own")
        if prod(tier.size for tier in self.tiers) < 2:
            raise ValueError("the sizes of all tiers multiply to 1 GPU; a network needs 2 or more")
        return self

    def written(self) -> dict[str, str]:
        """The cluster's own numbers, as far as they are given."""
        found = {"accelerator": self.accelerator}
        if self.price is not None:
            found["price"] = f"{self.price:g} usd/hour"
        if self.pue != 1:
            found["pue"] = f"{self.pue:g}"
        if self.energy_price:
            found["energy_price"] = f"{self.energy_price * JOULES_A_KWH:g} usd/kWh"
        return {**found, **site_notes(self.sites)}


def _transport_notes(file: _ClusterFile, where: str) -> tuple[Note, ...]:
    """Where the numbers of the transports come from that some tier uses; others change nothing."""
    used = {tier.transport for tier in file.tiers}
    found: tuple[Note, ...] = ()
    for name, transport in file.transports.items():
        if name in used:
            place = f"{where}: transports.{name}"
            found += _notes(f"transport {name}", transport.written, transport.source, place)
    return found


def _notes(tier: str, written: Mapping[str, str], source: Source, where: str) -> tuple[Note, ...]:
    """One note a number; a number without a stated source is an assumption."""
    by_field = {} if isinstance(source, str) else source
    for field in by_field:
        if field not in written:
            raise InvalidInput(
                "E-KEY", f"{where}: source of '{field}', which is not given", did_you_mean(field, written)
            )
    default = source if isinstance(source, str) else f"{ASSUMPTION} no source stated"
    texts = {field: " ".join((by_field.get(field) or default).split()) for field in written}
    return tuple(Note(tier, field, value, texts[field]) for field, value in written.items())
