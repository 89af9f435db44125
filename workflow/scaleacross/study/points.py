"""Design points: every combination of a study's values, enumerated lazily, with stable ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from ..files import short_hash
from .schema import Study

_SLUG_KEYS = ("tp", "cp", "ep", "pp")
MAX_ID = 40


@dataclass(frozen=True)
class Point:
    """One combination. ``values`` holds every key of the study: environment, fixed and dimensions."""

    point_id: str
    values: Mapping[str, Any]


def make_id(values: Mapping[str, Any], content: Any, prefix: str = "") -> str:
    """A readable slug from the integer degrees among ``values`` and a hash of ``content``: at most 40 characters.

    Only known keys with integer values enter the slug, so an id is safe as a folder name whatever the study says.
    Twelve hexadecimal digits keep the chance of two equal ids among a million below 0.2 %.
    """
    degrees = [
        f"{key}{values[key]}"
        for key in _SLUG_KEYS
        if isinstance(values.get(key), int) and not isinstance(values.get(key), bool) and values[key] > 1
    ]
    digest = short_hash(content, 12)
    slug = "-".join([*([prefix] if prefix else []), *degrees])[: MAX_ID - len(digest) - 1]
    return f"{slug}-{digest}" if slug else digest


def count_points(study: Study) -> int:
    """Number of combinations before constraints."""
    return prod(len(values) for values in study.swept.values())


def enumerate_points(study: Study) -> Iterator[Point]:
    """Every combination, the last dimension of the file fastest, the environment slowest."""
    swept = study.swept
    names = list(swept)
    for combination in product(*swept.values()):
        values = dict(zip(names, combination, strict=True))
        yield Point(make_id(values, values), values)
