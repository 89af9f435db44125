"""The longest time a simulation can count: nanoseconds are 64-bit integers, and sums of them must stay so."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput

MOST_NS = 2**62  # 146 years
MOST_STEP_NS = 2**52  # 52 days: the compiled kernel adds up to a thousand of them before a sum could wrap round


def too_long(what: str, most: int = MOST_NS) -> InvalidInput:
    """E-TIME-RANGE: ``what`` takes longer than can be counted."""
    span = f"{most} ns ({most / 86_400e9:,.0f} days)"
    clash = f"{what} takes more than {span}, the longest time that can be simulated"
    return InvalidInput("E-TIME-RANGE", clash, "check the sizes in the traces and the speeds in the configuration")


def whole_ns(times: NDArray[np.float64], what: str) -> NDArray[np.int64]:
    """Times in ns cut to whole ones.

    Raises:
        InvalidInput: E-TIME-RANGE for one that a 64-bit integer may not hold (or that is not a number).
    """
    if not (times <= MOST_NS).all():
        raise too_long(what)
    return times.astype(np.int64)


def check_steps(
    largest: int, npus: int, latency: Iterable[float], bytes_per_ns: Iterable[float], memory: float
) -> None:
    """Refuse messages and reductions that the compiled kernel, whose integers wrap round, could not count.

    Args:
        largest: bytes of the largest collective or message; one step moves or reduces at most that for every NPU.
        latency: ns, of each dimension. bytes_per_ns: of each dimension. memory: local memory, bytes/ns.

    Raises:
        InvalidInput: E-TIME-RANGE.
    """
    data = float(largest) * npus
    for dimension, (delay, rate) in enumerate(zip(latency, bytes_per_ns, strict=True)):
        if not npus * delay + data / rate <= MOST_STEP_NS:
            raise too_long(f"a message on dimension {dimension}", MOST_STEP_NS)
    if memory > 0 and not 3 * data / memory <= MOST_STEP_NS:
        raise too_long("a reduction in local memory", MOST_STEP_NS)
