"""The collective algorithms that a system file names: native ones per dimension, and Chakra traces as algorithms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..documents import Document, as_integer, read_mapping, shown
from ..errors import InvalidInput, did_you_mean

# Chakra CollectiveCommType -> the key's stem in the system file.
COLLECTIVE_KEYS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree", "oneRing", "oneDirect", "oneHalvingDoubling")
_NAME = re.compile(
    r"(ring|oneRing|halvingDoubling|oneHalvingDoubling|doubleBinaryTree)|(direct|oneDirect)([1-9]\d{0,4})?"
)


@dataclass(frozen=True, slots=True)
class Implementation:
    """One entry of an ``*-implementation`` list.

    Attributes:
        algorithm: ring, direct, halvingDoubling or doubleBinaryTree.
        one: an ``one*`` variant: all ranks as a single dimension.
        window: messages in flight of a ``direct`` collective; -1 is all.
    """

    algorithm: str
    one: bool = False
    window: int = -1


def parse_implementation(name: Any) -> Implementation | None:
    """``ring``, ``direct4``, ``oneHalvingDoubling`` ...; None when it is none of them."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return None
    stem = match[1] or match[2]
    one = stem.startswith("one")
    algorithm = stem[3].lower() + stem[4:] if one else stem
    return Implementation(algorithm, one, int(match[3] or -1))


def read_implementations(document: Document) -> dict[int, tuple[Implementation, ...]]:
    """The ``*-implementation`` lists, by Chakra collective type; a list that is not there is left out."""
    found: dict[int, tuple[Implementation, ...]] = {}
    for comm_type, stem in COLLECTIVE_KEYS.items():
        key = f"{stem}-implementation"
        if not document.has(key):
            continue
        names = document.mapping[key]
        if not isinstance(names, list) or not names:
            document.problem("E-CONFIG-TYPE", f"'{key}' is {shown(names)}", 'write a list such as ["ring"]')
            continue
        parsed = [parse_implementation(name) for name in names]
        for name, implementation in zip(names, parsed, strict=True):
            if implementation is None:
                document.problem("E-CONFIG-VALUE", f"'{key}' has {shown(name)}", did_you_mean(str(name), ALGORITHMS))
        found[comm_type] = tuple(implementation for implementation in parsed if implementation)
    return found


def read_custom(document: Document) -> dict[int, str]:
    """The ``*-implementation-custom`` entries: collective type -> prefix of the Chakra trace that is the algorithm."""
    found: dict[int, str] = {}
    for comm_type, stem in COLLECTIVE_KEYS.items():
        key = f"{stem}-implementation-custom"
        if not document.has(key):
            continue
        prefixes = document.mapping[key]
        if isinstance(prefixes, list) and len(prefixes) == 1 and isinstance(prefixes[0], str) and prefixes[0]:
            found[comm_type] = prefixes[0]
        else:
            fix = "write a list of one path prefix: the trace covers every dimension"
            document.problem("E-CONFIG-TYPE", f"'{key}' is {shown(prefixes)}", fix)
    return found


def read_per_node_custom(document: Document) -> dict[int, str]:
    """The file named by ``per-node-custom-implementation``: node id -> prefix of a Chakra trace."""
    key = "per-node-custom-implementation"
    if not document.has(key):
        return {}
    path = document.mapping[key]
    if not isinstance(path, str) or not path:
        document.problem("E-CONFIG-TYPE", f"'{key}' is {shown(path)}", "write the path of a YAML file")
        return {}
    try:
        entries = read_mapping(Path(path), "yaml")
    except InvalidInput as error:
        document.problems.append(error)
        return {}
    found: dict[int, str] = {}
    for node, prefix in entries.items():
        number = as_integer(node, text=True)
        if number is None or number < 0 or not isinstance(prefix, str):
            fix = "each line is a node id and a path prefix"
            document.problem("E-CONFIG-VALUE", f"{path} has {shown(node)}: {shown(prefix)}", fix)
        else:
            found[number] = prefix
    return found
