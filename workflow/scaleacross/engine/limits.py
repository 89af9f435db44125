"""The longest time a simulation can count: nanoseconds are 64-bit integers, and sums of them must stay so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput

MOST_NS = 2**62  # 146 years


def too_long(what: str) -> InvalidInput:
    """E-TIME-RANGE: ``what`` takes longer than can be counted."""
    clash = f"{what} takes more than {MOST_NS} ns (146 years), the longest time that can be simulated"
    return InvalidInput("E-TIME-RANGE", clash, "check the sizes in the traces and the speeds in the configuration")


def whole_ns(times: NDArray[np.float64], what: str) -> NDArray[np.int64]:
    """Times in ns cut to whole ones.

    Raises:
        InvalidInput: E-TIME-RANGE for one that a 64-bit integer may not hold (or that is not a number).
    """
    if not (times <= MOST_NS).all():
        raise too_long(what)
    return times.astype(np.int64)
