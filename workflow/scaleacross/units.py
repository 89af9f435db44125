"""Quantities with units, the only place that converts: ``400 Gbps``, ``150 us``, ``80 GiB``, ``989 TFLOPS``.

Inside the package everything is SI: bytes, seconds, bytes/second, FLOP/second. Files of ASTRA-sim have their own units:
``network.yml`` takes GiB/s (2^30) and nanoseconds, ``local-mem-bw`` GB/s (1e9), ``peak-perf`` TFLOP/s.
"""

from __future__ import annotations

import math
import re
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
    "usd/joule": "0.08 usd/kWh",
}


# A registry of our own: to pint a bit is a mere number, so that 5 Hz or 989 TFLOPS would pass as a bandwidth.
_DEFINITIONS = """
    nano- = 1e-9 = n- ; micro- = 1e-6 = u- = µ- = μ- ; milli- = 1e-3 = m- ; kilo- = 1e3 = k- ; mega- = 1e6 = M-
    giga- = 1e9 = G- ; tera- = 1e12 = T- ; peta- = 1e15 = P- ; exa- = 1e18 = E-
    kibi- = 2**10 = Ki- ; mebi- = 2**20 = Mi- ; gibi- = 2**30 = Gi- ; tebi- = 2**40 = Ti- ; pebi- = 2**50 = Pi-
    second = [time] = s = sec ; minute = 60 * second = min ; hour = 60 * minute = h ; day = 24 * hour
    meter = [length] = m = metre ; bit = [information] = b ; byte = 8 * bit = B ; bps = bit / second
    flop = [operation] = FLOP ; FLOPS = flop / second ; watt = [power] = W
    joule = watt * second = J ; Wh = watt * hour ; usd = [currency] = USD
"""


@cache
def _registry() -> pint.UnitRegistry:
    import pint

    registry: pint.UnitRegistry = pint.UnitRegistry(None, cache_folder=None)
    for definition in _DEFINITIONS.replace("\n", ";").split(";"):
        if definition.strip():
            registry.define(definition.strip())
    return registry


# A number, then units multiplied or divided: no sums or powers, and no comma, a point to some and nothing to others.
_QUANTITY = re.compile(
    r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµμ]+(?:\s*[/*]\s*[A-Za-zµμ]+)*)?\s*", re.ASCII
)


@cache
def parse(text: str | int | float, unit: str) -> float:
    """``text``, a number and a unit, in ``unit``: byte, second, byte/second, flop/second, meter, watt ...

    Raises:
        InvalidInput: E-UNIT for a bare number or unit, an unknown unit, one of another kind, or a number beyond floats.
    """
    import pint

    example = _EXAMPLES.get(unit, unit)
    if not isinstance(text, str):
        raise InvalidInput("E-UNIT", f"{text!r} has no unit", f"write for example {example}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        clash = f"{text!r:.60} is not a number (with a point, no comma) and a unit"
        raise InvalidInput("E-UNIT", clash, f"write for example {example}")
    number, written = match.groups()
    if written is None:
        raise InvalidInput("E-UNIT", f"{text!r} has no unit", f"write for example {example}")
    try:
        value = float(_registry().Quantity(float(number), written).to(unit).magnitude)
    except pint.errors.PintError as error:
        clash = f"{text!r} is not a quantity in {unit} ({error})"
        raise InvalidInput("E-UNIT", clash, f"write e.g. {example}") from None
    if not math.isfinite(value):
        raise InvalidInput("E-UNIT", f"{text!r} is no finite number", f"write for example {example}")
    return value


def nanoseconds(seconds: float) -> float:
    """Seconds as the nanoseconds of ``network.yml``."""
    return round(seconds * 1e9, 3)


def gib_per_second(bytes_per_second: float) -> float:
    """Bytes/second as the GiB/s of ``network.yml``: 400 Gbps is 46.566."""
    return round(bytes_per_second / GIB, 6)
