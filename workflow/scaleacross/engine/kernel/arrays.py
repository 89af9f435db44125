"""What only the compiled kernel needs."""

from __future__ import annotations

from typing import Any

import numpy as np


def grow_array(pool: Any) -> Any:
    """A copy of an array, twice as long (:func:`.pools.grow` for arrays)."""
    longer = np.zeros(2 * len(pool), np.int64)
    longer[: len(pool)] = pool
    return longer
