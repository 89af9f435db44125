"""Flows that share links: hashing onto equal paths against spraying, and taking turns on a wide-area link."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=4096)
def expected_fullest(flows: int, paths: int) -> float:
    """Expected number of flows on the fullest of ``paths`` when each of ``flows`` is hashed onto one (ECMP).

    P(max <= x) of a multinomial, by B. Levin, "A representation for multinomial cumulative distribution functions",
    Annals of Statistics 9(5), 1981: independent Poisson counts given their sum, the sum of the truncated ones taken as
    normal.
    """
    if paths <= 1 or flows <= 1:
        return float(flows if paths <= 1 else min(flows, 1))
    mean = flows / paths
    top = int(mean + 8 * math.sqrt(mean) + 4 * math.log(paths) + 30)
    k = np.arange(top + 1, dtype=np.float64)
    logs = k * math.log(mean) - mean - np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
    mass = np.exp(logs)
    below = np.maximum(np.cumsum(mass), 1e-300)
    first = np.cumsum(k * mass) / below
    spread = np.maximum(np.cumsum(k * k * mass) / below - first**2, 1e-12)
    whole = flows * math.log(flows) - flows - math.lgamma(flows + 1)  # log P(Poisson(flows) = flows)
    density = -((flows - paths * first) ** 2) / (2 * paths * spread) - 0.5 * np.log(2 * math.pi * paths * spread)
    chance = np.exp(np.minimum(0.0, paths * np.log(below) + density - whole))
    least = math.ceil(mean)
    chance[:least] = 0.0
    chance = np.maximum.accumulate(chance)
    return float((1 - chance).sum())


def collision_efficiency(flows: int, paths: int) -> float:
    """Share of their uplink that equal flows use when hashed onto its ``paths``: mean load over the fullest one's.

    A collective ends with its slowest flow, and that one lies on the fullest path. Spraying (packets or messages in
    turn over all paths) has efficiency 1. More queue pairs a message make more, smaller flows: at equal load the
    efficiency rises, which is what E-ECMP with queue-pair scaling does (Gangidi et al., SIGCOMM 2024).
    """
    return 1.0 if paths <= 1 else (flows / paths) / max(expected_fullest(flows, paths), flows / paths)


def shared_arrivals(size: float, replicas: int, link: float, pair: float = math.inf) -> NDArray[np.float64]:
    """When the transfers of all replicas arrive if they share a link equally, seconds, float64[replicas].

    Args:
        size: bytes of each replica's transfer (an activation).
        replicas: data-parallel replicas that send at the same time.
        link: bytes/s of the wide-area link. pair: bytes/s that one pair of nodes can move over it.
    """
    return np.full(replicas, size / min(link / replicas, pair))


def turn_arrivals(
    size: float, replicas: int, link: float, pair: float = math.inf, local: float = math.inf
) -> NDArray[np.float64]:
    """The same when replicas take turns and each has the whole link: temporal sharing of ATLAS (arXiv 2411.14458).

    A sender spreads its transfer over as many node pairs of its rank as the link needs (at most those of all
    ``replicas``), so that it moves at min(link, pairs * pair); what the others carry goes to them over the local
    network before and is put together behind the link (``local`` bytes/s a node). Turn k ends at k * size / rate: the
    last replica waits as long as when all share (and for the local moves), the others less, and their pipelines start
    that much earlier.

    Returns:
        Seconds, float64[replicas], ascending.
    """
    pairs = min(replicas, max(1, math.ceil(link / pair * (1 - 1e-9)))) if pair < math.inf else 1
    rate = min(link, pairs * pair)
    spread = 2 * size * (pairs - 1) / pairs / local
    return np.asarray(spread + size / rate * np.arange(1, replicas + 1), dtype=np.float64)
