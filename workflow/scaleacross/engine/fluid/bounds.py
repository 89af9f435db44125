"""The least time that ports, uplinks and arithmetic allow, whatever the algorithm.

Of n members, blocks of m on one side of n / m = o: an all-reduce of D bytes has to bring 2 D (o - 1) / o through the
ports of a block, reduce-scatter and all-gather D (o - 1) / o (D: the whole buffer), an all-to-all m D (o - 1) / o (D:
what a member holds). Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...trace.columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL
from .build import Built
from .jobs import Job

Float64 = NDArray[np.float64]


def bound_ratio(built: Built, ran: Float64, through: Float64, iteration: float, compute: Float64) -> float:
    """Smallest of: iteration over its bound, each collective alone over its bound. ``compute``: ns a class."""
    found = built.resources.found
    least = max(
        [float(compute.max()), *(moved / resource.capacity for moved, resource in zip(through, found, strict=True))]
    )
    ratios = [iteration / least] if least > 0 else []
    for job, times, alone in zip(built.jobs, ran.tolist(), built.laid.alone, strict=True):
        if times and job.call is not None:
            bound = collective_bound(job)
            if bound > 0:
                ratios.append(alone / bound)
    return float(min(ratios, default=1.0))


def collective_bound(job: Job) -> float:
    """Nanoseconds that the ports of a collective's members need at least."""
    call = job.call
    assert call is not None
    whole = call.size * job.nodes if call.comm_type == ALL_GATHER else call.size
    bound = 0.0
    for inside, rate in job.blocks:
        blocks = job.nodes / inside
        share = whole * (blocks - 1) / blocks
        if call.comm_type == ALL_REDUCE:
            share *= 2
        if call.comm_type != ALL_TO_ALL:
            share /= inside
        bound = max(bound, share / rate)
    return bound
