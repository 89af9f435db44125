"""Which rank runs which trace: a file a rank, or a file a class of ranks that plan and network cannot tell apart.

A folded workload has a ``ranks.json`` beside its class files::

    {"format": "scaleacross-ranks/1",
     "shape": [8, 16, 4],                        sizes of the network dimensions, dimension 0 fastest in the rank number
     "classes": [{"file": "workload.c0.et", "representative": 0, "coordinates": [null, null, [0]]}, ...],
     "group_families": [["1", "2"], ...]}        communicator ids that are images of each other

A class holds the ranks whose coordinates are in the given lists (null: any, called free). Its trace is written for the
representative; for another member r each free coordinate of a peer moves by r's distance to the representative, modulo
the dimension, and a communicator id becomes the one of its family whose group has r.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..documents import as_integer, read_mapping, shown
from ..errors import InvalidInput, did_you_mean

FORMAT = "scaleacross-ranks/1"
RANKS_FILE = "ranks.json"
MAX_RANKS = 2**24
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.et")

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RankClass:
    """Ranks that share a trace.

    Attributes:
        file: name of the trace, in the folder of ``ranks.json``.
        representative: the rank that the trace is written for.
        coordinates: per dimension the coordinates of its members; None is all (free).
    """

    file: str
    representative: int
    coordinates: tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class RankMap:
    """The classes of a workload, a partition of the ranks.

    Attributes:
        shape: sizes of the network dimensions; a single one when the workload is not folded.
        classes: see :class:`RankClass`.
        group_families: communicator ids that are images of each other under the translation.
        folded: False when every rank has a file of its own.
    """

    shape: tuple[int, ...]
    classes: tuple[RankClass, ...]
    group_families: tuple[tuple[int, ...], ...] = ()
    folded: bool = True

    @staticmethod
    def load(folder: Path | str) -> RankMap:
        """Read and check ``ranks.json`` in ``folder``.

        Raises:
            InvalidInput: E-CONFIG-FILE, E-CONFIG-SYNTAX, E-RANKS-FORMAT, E-RANKS-KEY, E-RANKS-SHAPE, E-RANKS-CLASS,
                E-RANKS-FAMILY, E-RANKS-PARTITION (with the ranks that are in no class or in several).
        """
        path = Path(folder) / RANKS_FILE
        return RankMap.from_json(read_mapping(path, "json"), path)

    @staticmethod
    def from_json(content: Mapping[str, Any], path: Path | str = RANKS_FILE) -> RankMap:
        """The content of ``ranks.json``; ``path`` is for messages. Raises as :meth:`load`."""
        return _Checker(path).rank_map(content)

    @staticmethod
    def unfolded(ranks: int, prefix: str = "workload") -> RankMap:
        """One class a rank: ``<prefix>.<rank>.et``."""
        classes = tuple(RankClass(f"{prefix}.{rank}.et", rank, (None,)) for rank in range(ranks))
        return RankMap((ranks,), classes, folded=False)

    def to_json(self) -> dict[str, Any]:
        """What ``ranks.json`` holds."""
        return {
            "format": FORMAT,
            "shape": list(self.shape),
            "classes": [
                {
                    "file": entry.file,
                    "representative": entry.representative,
                    "coordinates": [None if values is None else list(values) for values in entry.coordinates],
                }
                for entry in self.classes
            ],
            "group_families": [[str(group) for group in family] for family in self.group_families],
        }

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Rank distance of one step in each dimension."""
        return tuple(math.prod(self.shape[:dim]) for dim in range(len(self.shape)))

    @cached_property
    def class_of(self) -> Int32:
        """The class of each rank, int32[ranks]."""
        classes = np.zeros(self.ranks, dtype=np.int32)
        for index in range(len(self.classes)):
            classes[self.members(index)] = index
        return classes

    def members(self, index: int) -> Int64:
        """The ranks of a class, ascending, int64[members]."""
        if not self.folded:
            return np.array([index], dtype=np.int64)
        return _product(self.shape, self.strides, self.classes[index].coordinates)

    def coordinates(self, ranks: ArrayLike) -> Int64:
        """Coordinates int64[..., dimensions] of ranks."""
        array = np.asarray(ranks, dtype=np.int64)
        return np.stack(
            [array // stride % size for stride, size in zip(self.strides, self.shape, strict=True)], axis=-1
        )

    def translate(self, index: int, ranks: ArrayLike, peers: ArrayLike) -> Int64:
        """What the representative's ``peers`` are for members ``ranks`` of class ``index`` (numpy broadcasting)."""
        members, images = np.asarray(ranks, dtype=np.int64), np.asarray(peers, dtype=np.int64)
        if not self.folded:
            return images + np.zeros_like(members)
        entry = self.classes[index]
        moved = images + np.zeros_like(members)
        for values, stride, size in zip(entry.coordinates, self.strides, self.shape, strict=True):
            if values is None:
                here = images // stride % size
                distance = members // stride - entry.representative // stride
                moved = moved + ((here + distance) % size - here) * stride
        return moved

    @cached_property
    def family_of(self) -> dict[int, int]:
        """Communicator id -> index of its family."""
        return {group: index for index, family in enumerate(self.group_families) for group in family}

    def group_of(self, group: int, groups: Mapping[int, Sequence[int]]) -> Int64:
        """For each rank the id that ``group`` becomes, int64[ranks]; -1 for ranks in no group of its family."""
        index = self.family_of.get(group)
        ids = np.full(self.ranks, -1, dtype=np.int64)
        for member in (group,) if index is None else self.group_families[index]:
            ids[list(groups[member])] = member
        return ids


def _product(
    shape: tuple[int, ...], strides: tuple[int, ...], coordinates: tuple[tuple[int, ...] | None, ...]
) -> Int64:
    """Ranks with coordinates in the product of the lists, ascending."""
    ranks = np.zeros(1, dtype=np.int64)
    for size, stride, values in zip(shape, strides, coordinates, strict=True):
        steps = np.arange(size) if values is None else np.array(sorted(values), dtype=np.int64)
        ranks = (steps[:, None] * stride + ranks).reshape(-1)
    return ranks


class _Checker:
    """Turns the JSON content into a RankMap or says what is wrong with it."""

    def __init__(self, path: Path | str) -> None:
        self.path = path

    def rank_map(self, content: Mapping[str, Any]) -> RankMap:
        if content.get("format") != FORMAT:
            raise self.error("FORMAT", f"format is {shown(content.get('format'))}", f"this version reads {FORMAT}")
        self.keys(content, ("format", "shape", "classes", "group_families"), "the file")
        shape = self.shape(content.get("shape"))
        entries = content.get("classes")
        if not isinstance(entries, list) or not entries:
            raise self.error("CLASS", f"classes is {shown(entries)}", "write a list of classes")
        classes = tuple(self.rank_class(index, entry, shape) for index, entry in enumerate(entries))
        ranks = RankMap(shape, classes, self.families(content.get("group_families", [])))
        self.partition(ranks)
        return ranks

    def error(self, kind: str, clash: str, fix: str) -> InvalidInput:
        return InvalidInput(f"E-RANKS-{kind}", f"{self.path}: {clash}", fix)

    def keys(self, mapping: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in mapping:
            if key not in known:
                raise self.error("KEY", f"unknown key {shown(key)} in {where}", did_you_mean(str(key), known))

    def shape(self, value: Any) -> tuple[int, ...]:
        sizes = [as_integer(size) for size in value] if isinstance(value, list) else []
        shape = tuple(size for size in sizes if size is not None and size > 0)
        if not shape or len(shape) < len(sizes) or len(shape) > 32 or math.prod(shape) > MAX_RANKS:
            fix = f"write the sizes of the network dimensions, at most {MAX_RANKS} ranks in all"
            raise self.error("SHAPE", f"shape is {shown(value)}", fix)
        return shape

    def rank_class(self, index: int, entry: Any, shape: tuple[int, ...]) -> RankClass:
        if not isinstance(entry, dict):
            raise self.error("CLASS", f"class {index} is {shown(entry)}", "write file, representative and coordinates")
        self.keys(entry, ("file", "representative", "coordinates"), f"class {index}")
        file, representative, lists = entry.get("file"), entry.get("representative"), entry.get("coordinates")
        if not isinstance(file, str) or not _FILE_NAME.fullmatch(file):
            raise self.error(
                "CLASS", f"class {index}: file is {shown(file)}", "write the name of an .et file beside it"
            )
        if not isinstance(lists, list) or len(lists) != len(shape):
            fix = f"write a list of {len(shape)} entries (null or a list of coordinates), one per dimension of {shape}"
            raise self.error("CLASS", f"class {index}: coordinates is {shown(lists)}", fix)
        coordinates = tuple(self.values(index, dim, values, shape) for dim, values in enumerate(lists))
        rank = as_integer(representative)
        if rank is None or not 0 <= rank < math.prod(shape):
            clash = f"class {index}: representative is {shown(representative)}"
            raise self.error("CLASS", clash, f"write a rank from 0 to {math.prod(shape) - 1}")
        for dim, values in enumerate(coordinates):
            here = rank // math.prod(shape[:dim]) % shape[dim]
            if values is not None and here not in values:
                clash = (
                    f"class {index}: representative {rank} has coordinate {here} in dimension {dim}, not in {values}"
                )
                raise self.error("CLASS", clash, "the representative is a member of its class")
        return RankClass(file, rank, coordinates)

    def values(self, index: int, dim: int, values: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        if values is None:
            return None
        found = [as_integer(value) for value in values] if isinstance(values, list) else []
        inside = tuple(value for value in found if value is not None and 0 <= value < shape[dim])
        if not inside or len(inside) < len(found) or len(set(inside)) < len(inside):
            clash = f"class {index}: coordinates of dimension {dim} are {shown(values)}"
            raise self.error("CLASS", clash, f"write null or different numbers from 0 to {shape[dim] - 1}")
        return inside

    def families(self, value: Any) -> tuple[tuple[int, ...], ...]:
        if not isinstance(value, list) or not all(isinstance(family, list) and family for family in value):
            raise self.error("FAMILY", f"group_families is {shown(value)}", "write lists of communicator ids")
        families = tuple(tuple(as_integer(group, text=True) or 0 for group in family) for family in value)
        ids = [group for family in families for group in family]
        if any(group < 1 for group in ids):
            raise self.error(
                "FAMILY", "a communicator id is not a whole number of at least 1", "as in comm_groups.json"
            )
        if len(set(ids)) < len(ids):
            twice = sorted(group for group in set(ids) if ids.count(group) > 1)
            raise self.error("FAMILY", f"ids {shown(twice)} are in several families", "an id is in one family")
        return families

    def partition(self, ranks: RankMap) -> None:
        count = np.zeros(ranks.ranks, dtype=np.int32)
        for index in range(len(ranks.classes)):
            count[ranks.members(index)] += 1
        for found, what in ((count == 0, "in no class"), (count > 1, "in several classes")):
            if found.any():
                clash = f"ranks {ranges(np.flatnonzero(found))} are {what}"
                raise self.error("PARTITION", clash, "each rank is in one class")


def ranges(numbers: ArrayLike, shown_at_most: int = 8) -> str:
    """Ascending numbers as ``0-3, 7, 9-11``; long lists end with how many numbers are left out."""
    array = np.asarray(numbers, dtype=np.int64)
    if not len(array):
        return "none"
    cuts = np.flatnonzero(np.diff(array) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(array, cuts)[: shown_at_most + 1]]
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:shown_at_most])
    left = len(array) - sum(last - first + 1 for first, last in runs[:shown_at_most])
    return f"{text} and {left} more" if left else text
