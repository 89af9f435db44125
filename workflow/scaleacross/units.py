"""Quantities with units, the only place that converts: ``400 Gbps``, ``150 us``, ``80 GiB``, ``989 TFLOPS``.

Inside the package everything is SI: bytes, seconds, bytes/second, FLOP/second. Files of ASTRA-sim have their own units:
``network.yml`` takes GiB/s (2^30) and nanoseconds, ``local-mem-bw`` GB/s (1e9), ``peak-perf`` TFLOP/s.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from .errors import InvalidInput

if TYPE_CHECKING:
    import pint

GIB = 2**30

_EXAMPLES = {
    "byte": "80 GiB",
    "second": "150 us",
    "byte/second": "400 Gbps or 50 GB/s",
    "flop/second": "989 TFLOPS",
    "meter": "10 km",
    "watt": "700 W",
    "usd/hour": "2.5 usd/hour",
}


@cache
def _registry() -> pint.UnitRegistry:
    import pint

    registry: pint.UnitRegistry = pint.UnitRegistry(cache_folder=None)
    for definition in ("bps = bit / second", "flop = []", "FLOPS = flop / second", "usd = []"):
        registry.define(definition)
    return registry


@cache
def parse(text: str | int | float, unit: str) -> float:
    """Convert ``text`` (number and unit) to ``unit``: one of byte, second, byte/second, flop/second, meter, watt, usd/hour.

    Raises:
        InvalidInput: E-UNIT for a bare number, an unknown unit, or one of another kind.
    """
    import pint

    example = _EXAMPLES.get(unit, unit)
    if not isinstance(text, str):
        raise InvalidInput("E-UNIT", f"{text!r} has no unit", f"write for example {example}")
    try:
        quantity = _registry().Quantity(text)
        if not quantity.unitless or unit == "dimensionless":
            return float(quantity.to(unit).magnitude)
    except (pint.errors.PintError, ValueError, TypeError, AttributeError, SyntaxError, AssertionError) as error:
        raise InvalidInput("E-UNIT", f"{text!r} is not a quantity in {unit} ({error})", f"write e.g. {example}") from None
    raise InvalidInput("E-UNIT", f"{text!r} has no unit", f"write for example {example}")


def nanoseconds(seconds: float) -> float:
    """Seconds as the nanoseconds of ``network.yml``."""
    return round(seconds * 1e9, 3)


def gib_per_second(bytes_per_second: float) -> float:
    """Bytes/second as the GiB/s of ``network.yml``: 400 Gbps is 46.566."""
    return round(bytes_per_second / GIB, 6)
