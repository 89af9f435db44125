"""Whether a value has the kind that a field's annotation says: one check for every knob of a plan.

Values come from YAML, where ``order: 5`` or ``fixed_order: [1, 2]`` parse as well as anything else.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import InvalidInput

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "words"}
# Where the annotation alone is too little help: id of the error, and how the value is written.
_WRITTEN = {
    "layout": ("E-LAYOUT", "list the layers of every virtual stage, embedding to loss: layout: [3, 4, 4, 3]"),
    "order": ("E-ORDER", "write order: [tp, cp, pp, dp] or tp-cp-pp-dp, innermost tier first"),
    "expert_imbalance": ("E-IMBALANCE", "give a number of at least 1"),
    "attention_imbalance": ("E-IMBALANCE", "give a number of at least 1"),
}


def check_kinds(instance: object) -> None:
    """Check every field of a dataclass instance (but those left out of comparison) against its annotation.

    Raises:
        InvalidInput: E-LAYOUT, E-ORDER, E-IMBALANCE for those keys, E-DEGREE for every other: key, value, what to give.
    """
    owner: Any = type(instance)
    for name, kind in _kinds(owner).items():
        value = getattr(instance, name)
        if not fits(kind, value):
            error_id, fix = _WRITTEN.get(name, ("E-DEGREE", f"give {wanted(kind)}"))
            raise InvalidInput(error_id, f"{name} is {plain(value)!r}", fix)


def fits(kind: Any, value: Any) -> bool:
    """Whether ``value`` is a ``kind``: a class, a union, or a tuple of kinds. A bool is no number, an int a float."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(part, value) for part in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(kinds) == len(value) and all(map(fits, kinds, value))
    accepted = (int, float) if kind is float else kind
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


def wanted(kind: Any) -> str:
    """A kind in words: ``a list of whole numbers or null``."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(wanted(part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of {_PLURALS.get(get_args(kind)[0], 'pairs of name and value')}"
    return _WORDS.get(kind, str(kind))


@cache
def _kinds(owner: Any) -> dict[str, Any]:
    hints = get_type_hints(owner)
    return {item.name: hints[item.name] for item in fields(owner) if item.compare}


def plain(value: Any) -> Any:
    """A value with lists for tuples, as YAML and JSON write it."""
    return [plain(item) for item in value] if isinstance(value, tuple) else value
