"""Sites that differ, and links that differ by pair: what a tier model can hold of them, and where it says no.

A cluster is tiers of equal units, because a plan gives every rank the same share of the work. So

* **unequal sites** are refused unless the file says ``unequal_sites: by-size``: then all units take part, as units of
  one tier that pipeline stages alone lie across, and the network model knows which of them are on one site; or
  ``smallest``: then every site takes part with as many units as the smallest has, and the rest is reported as idle;
* **mixed accelerators** are refused unless it says ``mixed_accelerators: by-site``: then every rank computes as fast as
  its site's type does and has its memory; or ``slowest``: then all ranks are given the time and memory of the slowest
  type. Simulators have one roofline for all ranks, so that by site one type has to be the fastest in everything, and
  else one the slowest (:func:`accelerator_of`);
* **pairwise links** (a bandwidth for every pair of units of a tier) are refused unless they are taken ``as: slowest``:
  every pair then has the slowest one's bandwidth and the longest one's latency. That is exact for what crosses all
  pairs and never too fast for anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import InvalidInput
from ..schema import quantity
from .accelerator import Accelerator, SiteAccelerator, load_accelerator

if TYPE_CHECKING:
    Price: TypeAlias = float
    Watts: TypeAlias = float
    Rate: TypeAlias = float
    Seconds: TypeAlias = float
else:
    Price = Annotated[quantity("usd/hour", most=1e6), Field(ge=0)]
    Watts = Annotated[quantity("watt"), Field(gt=0)]
    Rate = Annotated[quantity("byte/second", most=1e15), Field(gt=0)]
    Seconds = Annotated[quantity("second", most=100), Field(ge=0)]


@dataclass(frozen=True)
class Site:
    """One unit below the outermost tier: a building, a region.

    Attributes:
        name: of the site.
        size: units of the tier below that it has. used: of these, how many take part.
        accelerator: name of its type.
        price: usd an hour for a GPU, 0 where not given. power: watts the site may draw, 0 where not given.
    """

    name: str
    size: int
    used: int
    accelerator: str
    price: float = 0.0
    power: float = 0.0


@dataclass(frozen=True)
class Pair:
    """A link between two units of a tier: bytes/s and seconds one way (0 where only the tier states one)."""

    first: str
    second: str
    bandwidth: float
    latency: float = 0.0


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SiteFile(_Strict):
    """An entry of ``sites``. What is not given is as the tiers and the cluster say."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    size: int | None = Field(None, ge=1)
    accelerator: str | None = None
    price: Price | None = None
    power: Watts | None = None


class PairsFile(_Strict):
    """``pairs`` of a tier: names of its units and a bandwidth (and latency) for every two of them, ``a/b``."""

    units: list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]] = Field(min_length=2)
    bandwidth: dict[str, Rate]
    latency: dict[str, Seconds] = Field(default_factory=dict)
    taken_as: Literal["slowest"] | None = Field(None, alias="as")

    @model_validator(mode="after")
    def _complete(self) -> PairsFile:
        if len(set(self.units)) < len(self.units):
            raise ValueError(f"units {self.units} name one twice")
        for what, links in (("bandwidth", self.bandwidth), ("latency", self.latency)):
            known = {frozenset(pair) for pair in combinations(self.units, 2)}
            given = [frozenset(key.split("/")) for key in links]
            for key, pair in zip(links, given, strict=True):
                if pair not in known:
                    raise ValueError(f"{what} of '{key}' is no pair a/b of the units {', '.join(self.units)}")
            missing = sorted("/".join(sorted(pair)) for pair in known - set(given))
            if links and (missing or len(given) > len(known)):
                raise ValueError(f"{what} needs one entry for each pair; " + f"missing {', '.join(missing) or 'none'}")
        if not self.bandwidth:
            raise ValueError("bandwidth is empty; write a rate for each pair a/b")
        return self

    def links(self) -> tuple[Pair, ...]:
        """Every pair in SI units, in the order of the units."""
        rates = {frozenset(key.split("/")): value for key, value in self.bandwidth.items()}
        delays = {frozenset(key.split("/")): value for key, value in self.latency.items()}
        return tuple(
            Pair(a, b, rates[frozenset((a, b))], delays.get(frozenset((a, b)), 0.0))
            for a, b in combinations(self.units, 2)
        )


def slowest_link(pairs: PairsFile, where: str) -> Pair:
    """Bandwidth of the slowest pair and latency of the longest.

    Raises:
        InvalidInput: E-PAIRS unless the file says that this is how they are to be taken.
    """
    links = pairs.links()
    slow, fast = (pick(links, key=lambda link: link.bandwidth) for pick in (min, max))
    if pairs.taken_as is None:
        spread = (
            f"{slow.first}/{slow.second} to {fast.first}/{fast.second} differ {fast.bandwidth / slow.bandwidth:.1f}x"
        )
        clash = f"{where}: a tier has one bandwidth, and its pairs have several ({spread})"
        raise InvalidInput("E-PAIRS", clash, "write as: slowest to take the slowest pair for all, or split the tier")
    return replace(slow, latency=max(link.latency for link in links))


def slowest_pair(pairs: PairsFile) -> str:
    """Name and rate of the slowest pair, for the list of sources."""
    slow = min(pairs.links(), key=lambda link: link.bandwidth)
    return f"{slow.first}/{slow.second} at {slow.bandwidth * 8 / 1e9:g} Gbps"


def read_sites(
    files: Sequence[SiteFile], units: int, size: int, accelerator: str, price: float, unequal: str | None, where: str
) -> tuple[Site, ...]:
    """The sites of a cluster, ``units`` of them with ``size`` units each where they don't say.

    Raises:
        InvalidInput: E-SITES where their number is not the outermost tier's, two have one name, or they are unequal and
            the file does not say how to use them.
    """
    if not files:
        return ()
    names = [site.name for site in files]
    if len(files) != units or len(set(names)) < len(names):
        clash = f"{where}: {len(files)} sites ({', '.join(names)}) where the outermost tier has {units} units"
        raise InvalidInput("E-SITES", clash, "list every unit once, under a name of its own")
    sizes = [site.size or size for site in files]
    least = min(sizes)
    if len(set(sizes)) > 1 and unequal is None:
        listed = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
        clash = f"{where}: sites have different sizes ({listed} units), and the file doesn't say how a plan uses them"
        fix = f"write unequal_sites: by-size, or unequal_sites: smallest to use {least} units of each"
        raise InvalidInput("E-SITES", clash, fix)
    return tuple(
        Site(
            file.name,
            own,
            own if unequal == "by-size" else least,
            file.accelerator or accelerator,
            price if file.price is None else file.price,
            file.power or 0.0,
        )
        for file, own in zip(files, sizes, strict=True)
    )


class ClusterLike(Protocol):
    """What choosing the accelerator needs of a cluster (:class:`scaleacross.cluster.Cluster`)."""

    @property
    def name(self) -> str: ...
    @property
    def accelerator(self) -> str: ...
    @property
    def gpus(self) -> int: ...
    @property
    def sites(self) -> tuple[Site, ...]: ...
    @property
    def mixed_accelerators(self) -> str: ...
    @property
    def pue(self) -> float: ...


def accelerator_of(cluster: ClusterLike, folder: Path | str) -> Accelerator:
    """The accelerator that every rank of a plan is taken to have, and whether the sites' power suffices for them.

    Raises:
        InvalidInput: E-ACCELERATOR for a file that is missing or wrong; E-MIXED where sites have other types and the
            file does not say how to use them, or none of them is the slowest in everything; E-POWER where a site's GPUs
            need more than it has.
    """
    folder = Path(folder)
    names = list(dict.fromkeys([cluster.accelerator, *(site.accelerator for site in cluster.sites)]))
    loaded = {name: load_accelerator(folder / f"{name}.yaml") for name in names}
    _check_power(cluster, loaded)
    used = list(dict.fromkeys(site.accelerator for site in cluster.sites)) or names
    if len(used) == 1:
        return loaded[used[0]]
    listed = ", ".join(f"{site.name} {site.accelerator}" for site in cluster.sites)
    if cluster.mixed_accelerators == "by-site":
        return _by_site(cluster, loaded, listed)
    if cluster.mixed_accelerators != "slowest":
        clash = f"{cluster.name}: sites have different accelerators ({listed}), and nothing says how a plan uses them"
        fix = "write mixed_accelerators: by-site, or mixed_accelerators: slowest for all to run as the slowest type"
        raise InvalidInput("E-MIXED", clash, fix)
    for name in used:
        if all(_no_faster(loaded[name], loaded[other]) for other in used):
            return loaded[name]
    clash = f"{cluster.name}: none of {', '.join(used)} is the slowest in peak, memory and memory bandwidth alike"
    raise InvalidInput("E-MIXED", clash, "use one type, or describe a common denominator in config/accelerators")


def _by_site(cluster: ClusterLike, loaded: Mapping[str, Accelerator], listed: str) -> Accelerator:
    """The fastest type, with the types of all sites."""
    used = [site.accelerator for site in cluster.sites]
    units = [site.used if len({site.used for site in cluster.sites}) > 1 else 1 for site in cluster.sites]
    sites = tuple(
        SiteAccelerator(site.name, loaded[site.accelerator])
        for site, count in zip(cluster.sites, units, strict=True)
        for _ in range(count)
    )
    for name in used:
        if all(_as_fast(loaded[name], loaded[other]) for other in used):
            return replace(loaded[name], by_site=sites)
    clash = f"{cluster.name}: none of the sites' types ({listed}) is the fastest in peak and memory bandwidth alike"
    raise InvalidInput("E-MIXED", clash, "write mixed_accelerators: slowest, or use one type")


def _as_fast(one: Accelerator, other: Accelerator) -> bool:
    return (
        all(one.peak_flops.get(precision, 0.0) >= rate for precision, rate in other.peak_flops.items())
        and one.memory_bandwidth >= other.memory_bandwidth
    )


def _no_faster(one: Accelerator, other: Accelerator) -> bool:
    shared = one.peak_flops.keys() & other.peak_flops.keys()
    return (
        all(one.peak_flops[precision] <= other.peak_flops[precision] for precision in shared)
        and one.peak_flops.keys() <= other.peak_flops.keys()
        and one.usable_bytes <= other.usable_bytes
        and one.memory_bandwidth <= other.memory_bandwidth
    )


def _check_power(cluster: ClusterLike, accelerators: Mapping[str, Accelerator]) -> None:
    for site in cluster.sites:
        gpus = cluster.gpus * site.used // sum(other.used for other in cluster.sites)
        need = gpus * accelerators[site.accelerator].power * cluster.pue
        if site.power and need > site.power:
            clash = (
                f"{cluster.name}: site {site.name} may draw {site.power / 1e6:g} MW; its {gpus} {site.accelerator} at "
                f"{accelerators[site.accelerator].power:g} W and a PUE of {cluster.pue:g} need {need / 1e6:.4g} MW"
            )
            raise InvalidInput("E-POWER", clash, "make the site smaller or its power larger")


def best_ring(pairs: Sequence[Pair]) -> tuple[tuple[str, ...], float]:
    """The ring over all units whose slowest link is fastest, and that link's bytes/s.

    What a ring collective could get where ``slowest`` is too careful; by trying every cycle (up to nine units).

    Raises:
        InvalidInput: E-PAIRS for more than nine units.
    """
    units = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
    if len(units) > 9:
        raise InvalidInput("E-PAIRS", f"{len(units)} units have too many rings to try", "give nine or fewer")
    rate = {frozenset((pair.first, pair.second)): pair.bandwidth for pair in pairs}
    rings = [(units[0], *rest) for rest in permutations(units[1:])]

    def bottleneck(ring: tuple[str, ...]) -> float:
        return min(rate[frozenset((a, b))] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))

    best = max(rings, key=bottleneck)
    return best, bottleneck(best)


def site_notes(files: Sequence[SiteFile]) -> dict[str, str]:
    """What the sites say of their own, by field name, for the list of sources."""
    written: dict[str, str] = {}
    for site in files:
        values: dict[str, Any] = site.model_dump(exclude_none=True, exclude={"name"})
        texts = [f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()]
        if texts:
            written[f"site_{site.name.replace('-', '_')}"] = ", ".join(texts)
    return written
