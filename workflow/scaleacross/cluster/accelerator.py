"""Accelerators: peak rates, memory, and the calibration that :mod:`scaleacross.trace.compute` interprets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ..errors import InvalidInput, did_you_mean
from ..units import parse

_REQUIRED = ("name", "peak_flops", "memory", "memory_bandwidth")
_OPTIONAL = ("reserved_memory", "power", "calibration", "source")


@dataclass(frozen=True)
class Accelerator:
    """One type of accelerator, in SI units.

    Attributes:
        name: File name without suffix, for example ``h100-sxm``.
        peak_flops: Dense peak by precision (``bf16``, ``fp8`` ...), FLOP/s.
        memory_bytes: Device memory, bytes.
        memory_bandwidth: Peak device-memory bandwidth, bytes/s.
        reserved_bytes: Memory a training process cannot use (driver context, communication library), bytes.
        power: Board power limit, watts; 0 when unknown.
        calibration: Plain mapping, read by ``trace.compute.calibration``.
        source: Where the data-sheet numbers come from.
        by_site: Where sites have types of their own, that of each site (where these differ in size: of each unit of
            each site); the accelerator itself is then the fastest of them.
    """

    name: str
    peak_flops: dict[str, float]
    memory_bytes: float
    memory_bandwidth: float
    reserved_bytes: float = 0.0
    power: float = 0.0
    calibration: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    by_site: tuple[SiteAccelerator, ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.memory_bytes, self.memory_bandwidth))

    @property
    def usable_bytes(self) -> float:
        """Memory a plan may fill, bytes."""
        return self.memory_bytes - self.reserved_bytes

    def mean_peak(self, precision: str) -> float:
        """Dense peak of a precision, FLOP/s, on average over the sites, which have equally many GPUs."""
        if not self.by_site:
            return self.peak(precision)
        return sum(site.accelerator.peak(precision) for site in self.by_site) / len(self.by_site)

    def peak(self, precision: str) -> float:
        """Dense peak of a precision, FLOP/s.

        Raises:
            InvalidInput: E-PRECISION when the accelerator has no such rate.
        """
        try:
            return self.peak_flops[precision]
        except KeyError:
            raise InvalidInput(
                "E-PRECISION", f"{self.name} has no peak for '{precision}'", did_you_mean(precision, self.peak_flops)
            ) from None


@dataclass(frozen=True)
class SiteAccelerator:
    """The type of a site's accelerators."""

    site: str
    accelerator: Accelerator


def plain_accelerator(accelerator: Accelerator) -> dict[str, Any]:
    """An accelerator as plain data, without its sources: what a plan depends on."""
    own = {item.name: getattr(accelerator, item.name) for item in fields(accelerator) if item.name != "source"}
    sites = own.pop("by_site")
    if sites:
        own["by_site"] = [{"site": entry.site, "accelerator": plain_accelerator(entry.accelerator)} for entry in sites]
    return own


def accelerator_from(content: Mapping[str, Any]) -> Accelerator:
    """An accelerator from its plain form."""
    sites = content.get("by_site", ())
    by_site = tuple(SiteAccelerator(entry["site"], accelerator_from(entry["accelerator"])) for entry in sites)
    return Accelerator(**{**content, "by_site": by_site})


def load_accelerator(path: Path | str) -> Accelerator:
    """Read ``config/accelerators/<name>.yaml``.

    Raises:
        InvalidInput: E-ACCELERATOR for a missing file, an unknown or missing key, a number that is not positive; E-UNIT
            for a quantity without a unit.
    """
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        known = [file.stem for file in path.parent.glob("*.yaml")]
        raise InvalidInput("E-ACCELERATOR", f"cannot read {path}", did_you_mean(path.stem, known)) from error
    except yaml.YAMLError as error:
        raise InvalidInput("E-ACCELERATOR", f"{path} is not YAML ({error})") from error
    if not isinstance(raw, dict):
        raise InvalidInput("E-ACCELERATOR", f"{path} is not a mapping", "see config/accelerators for examples")
    for key in raw:
        if key not in _REQUIRED + _OPTIONAL:
            raise InvalidInput(
                "E-ACCELERATOR", f"{path}: unknown key '{key}'", did_you_mean(str(key), _REQUIRED + _OPTIONAL)
            )
    for key in _REQUIRED:
        if key not in raw:
            raise InvalidInput("E-ACCELERATOR", f"{path}: key '{key}' is missing", "add it")
    if not isinstance(raw["peak_flops"], dict) or not raw["peak_flops"]:
        raise InvalidInput(
            "E-ACCELERATOR", f"{path}: peak_flops is not a mapping", "write peak_flops: {bf16: 989 TFLOPS}"
        )

    def number(key: str, value: Any, unit: str, positive: bool = True) -> float:
        """SI; E-ACCELERATOR where it is not above 0 (or not at least 0)."""
        si = parse(value, unit)
        if si < 0 or (positive and not si):
            clash = f"{path}: {key} is {value}"
            raise InvalidInput("E-ACCELERATOR", clash, "write more than 0" if positive else "write 0 or more")
        return si

    peaks = {str(name): number(f"peak_flops.{name}", rate, "flop/second") for name, rate in raw["peak_flops"].items()}
    return Accelerator(
        name=str(raw["name"]),
        peak_flops=peaks,
        memory_bytes=number("memory", raw["memory"], "byte"),
        memory_bandwidth=number("memory_bandwidth", raw["memory_bandwidth"], "byte/second"),
        reserved_bytes=number("reserved_memory", raw.get("reserved_memory", "0 GiB"), "byte", positive=False),
        power=number("power", raw.get("power", "0 W"), "watt", positive=False),
        calibration=raw.get("calibration") or {},
        source=str(raw.get("source", "")),
    )
