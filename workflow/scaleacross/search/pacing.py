"""A better network is never slower: a point takes the run of a worse network of its study where that took less time.
(Where both are ok and meet what the study requires; a search, its certificate and thresholds know times as simulated.)

Fair sharing has anomalies (``docs/network-model.md``): a delay can take transfers out of each other's way, so that the
same plan takes less time on a network that is worse in some number and better in none. But whoever has the better
network can make it like the worse one: a sender can limit its rate or wait before it sends, a switch can limit a link.
So the time on the worse network can be had on the better one, and a row whose own time is longer by more than
``NOTICED`` takes the row of the worse network, which its ``config_id`` then names; ``unpaced_time_s`` keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from ..engine.settings import Config
from ..files import short_hash
from ..study.tables import Row
from .objective import TIME
from .table import Pair

NOTICED = 1e-3  # share of the time; what gains less is left as it is
NETWORK = "network"  # of a row: what :func:`network_of` says, not in results.csv
FILES = ("system.json", "memory.json", "comm_groups.json")


def network_of(config: Config, folder: Path) -> Mapping[str, Any] | None:
    """What tells two networks of a plan apart, None where there are no tiers.

    Returns:
        ``numbers``: of every tier ns a GiB of a port, ns one way and oversubscription, all worse when larger.
        ``rest``: hash of all else in the configuration; networks are comparable where it is equal.
    """
    extension = config.network.extension
    if not extension:
        return None
    tiers, dims = extension["tiers"], extension["dims"]
    shape = [[tier["name"], tier["size"], tier["topology"]] for tier in tiers]
    axes = [[dim["tier"], dim.get("axis"), dim.get("share")] for dim in dims]
    other = {key: value for key, value in extension.items() if key not in ("cluster", "dims", "tiers")}
    texts = [(folder / name).read_text() if (folder / name).is_file() else "" for name in FILES]
    return {
        "numbers": [
            number for tier in tiers for number in (1e9 / tier["bandwidth"], tier["one-way"], tier["oversubscription"])
        ],
        "rest": short_hash([list(config.network.npus_count), shape, axes, other, texts]),
    }


def paced(rows: Mapping[Pair, Row]) -> dict[Pair, Row]:
    """Rows by (plan, configuration), each with the least time that it has on its own network or a worse one."""
    done = dict(rows)
    able = {pair: row for pair, row in rows.items() if row.get(NETWORK) and row["status"] == "ok" and row.get(TIME)}

    def kind(pair: Pair) -> tuple[str, str]:
        return pair[0], able[pair][NETWORK]["rest"]

    for _, group in groupby(sorted(able, key=kind), key=kind):
        done.update(_paced(able, list(group)))
    return done


def _paced(rows: Mapping[Pair, Row], pairs: Iterable[Pair]) -> Iterable[tuple[Pair, Row]]:
    by_time = sorted(pairs, key=lambda pair: float(rows[pair][TIME]))
    for number, pair in enumerate(by_time):
        row = rows[pair]
        own = float(row[TIME])
        for other in by_time[:number]:
            if float(rows[other][TIME]) >= own * (1 - NOTICED):
                break
            if _worse(rows[other], row):
                yield pair, {**rows[other], "unpaced_time_s": own}
                break


def _worse(one: Row, other: Row) -> bool:
    """Whether the network of ``one`` is nowhere better than that of ``other``."""
    return all(mine >= theirs for mine, theirs in zip(one[NETWORK]["numbers"], other[NETWORK]["numbers"], strict=True))
