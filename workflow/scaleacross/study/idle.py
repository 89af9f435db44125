"""Keys of a study that would change nothing: the queue depth of an unused transport, turns that no simulator takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster import Cluster, load_cluster
from ..errors import InvalidInput
from ..files import canonical_json
from .schema import Study

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def check_idle(file: Path, names: Iterable[str], settings: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a key whose value no point's cluster depends on.

    Args:
        file: the cluster's template. names: keys that only it reads. settings: the values it is rendered with, of
            every point that differs in them.

    Raises:
        InvalidInput: E-DIMENSION with the key, its values, and what may have been meant.
    """
    known = [dict(values) for values in {canonical_json(values): values for values in settings}.values()]
    for name in names:
        given = [values for values in known if name in values]
        if given and not any(_matters(file, name, values) for values in given):
            shown = ", ".join(dict.fromkeys(str(values[name]) for values in given))
            chosen = sorted({str(values["transport"]) for values in given if "transport" in values}) or ["ideal"]
            raise InvalidInput(
                "E-DIMENSION",
                f"{name!r} ({shown}) changes nothing in {file.name}: no tier uses what reads it "
                f"(transport: {', '.join(chosen)})",
                "choose a transport that does, for example transport: roce-gbn, or leave the key out",
            )


def check_turns(study: Study) -> None:
    """Refuse turns on the wide area where nothing that simulates or bounds the points knows them.

    Raises:
        InvalidInput: E-WAN-SHARING.
    """
    if "temporal" not in study.swept.get("wan_sharing", []):
        return
    needed = {"simulator": "embedded", "network_model": "scaleacross", "search": "exhaustive"}
    for key, wanted in needed.items():
        given = getattr(study, key)
        if given != wanted:
            clash = f"wan_sharing temporal with {key} {given}, which has no turns"
            raise InvalidInput("E-WAN-SHARING", clash, f"make {key} {wanted}, or wan_sharing fair")


def check_unequal(study: Study, cluster: Cluster) -> None:
    """Refuse sites of different size where nothing that simulates or bounds the points knows them.

    Raises:
        InvalidInput: E-SITES.
    """
    needed = {"simulator": "embedded", "network_model": "scaleacross", "search": "exhaustive"}
    for key, wanted in needed.items() if cluster.site_sizes else ():
        given = getattr(study, key)
        if given != wanted:
            clash = f"{key} {given} cannot tell which stages of {cluster.name} are on one site (unequal_sites: by-size)"
            raise InvalidInput(
                "E-SITES", clash, f"make {key} {wanted}, or write unequal_sites: smallest in the cluster"
            )


def _matters(file: Path, name: str, values: Mapping[str, Any]) -> bool:
    """Whether the cluster is another without the key, or with another value of its kind."""
    value = values[name]
    if isinstance(value, bool) or not (isinstance(value, int | float) or _NUMBER.search(str(value))):
        return True  # a word: choosing the default by name is no mistake
    rest = {key: value for key, value in values.items() if key != name}
    try:
        here = _bare(load_cluster(file, values))
        return any(_bare(load_cluster(file, other)) != here for other in _variants(rest, name, values[name]))
    except InvalidInput:  # another value does not fit: somebody looks at it
        return True


def _variants(rest: Mapping[str, Any], name: str, value: Any) -> Iterator[Mapping[str, Any]]:
    yield rest
    if isinstance(value, int | float):
        yield {**rest, name: 2 * value or 1}
    else:
        yield {**rest, name: _NUMBER.sub(lambda match: f"{2 * float(match[0]) or 1:g}", str(value), count=1)}


def _bare(cluster: Cluster) -> Cluster:
    """A cluster without its sources, and without what an ideal transport doesn't look at."""
    tiers = tuple(
        replace(tier, notes=(), loss=tier.loss if tier.transport else 0.0, paths=tier.paths if tier.transport else 0)
        for tier in cluster.tiers
    )
    return replace(cluster, tiers=tiers, notes=())
