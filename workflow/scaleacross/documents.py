"""Strict reading of YAML and JSON: one error per problem, with an id, the file, the key, the value and the fix.

Refused here although parsers let them pass: keys given twice, ``NaN`` and ``Infinity``, unknown keys.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import InvalidInput, did_you_mean

EXTENSION = "x-scaleacross"
_REPR = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = _REPR.maxlong = 60


def shown(value: object) -> str:
    """A value for a message, cut to a length that fits on a line."""
    return _REPR.repr(value)


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster, where it was built


class _UniqueKeyLoader(_SafeLoader):
    """SafeLoader that refuses a key given twice."""


def _unique_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    return _unique_pairs(
        [
            (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
            for key, value in node.value
        ]
    )


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _unique_pairs(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key, value in pairs:
        try:
            if key in mapping:
                raise ValueError(f"key {shown(key)} is given twice")
        except TypeError:
            raise ValueError(f"{shown(key)} cannot be a key") from None
        mapping[key] = value
    return mapping


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number here")


def _parse_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)


def _parse_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_UniqueKeyLoader)  # a SafeLoader


def read_mapping(path: Path | str, kind: str) -> dict[str, Any]:
    """The top-level mapping of a file; ``kind`` is "json" or "yaml".

    Raises:
        InvalidInput: E-CONFIG-FILE (missing, a folder, unreadable), E-CONFIG-SYNTAX.
    """
    parse: Callable[[str], Any] = _parse_json if kind == "json" else _parse_yaml
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput("E-CONFIG-FILE", f"cannot read {path}: {error.strerror}", "check the path") from None
    except ValueError:
        raise InvalidInput(
            "E-CONFIG-SYNTAX", f"{path} is not UTF-8 text", "save it as UTF-8, or name another file"
        ) from None
    try:
        value = parse(text)
    except RecursionError:
        raise InvalidInput("E-CONFIG-SYNTAX", f"{path} is nested too deeply", f"expected flat {kind.upper()}") from None
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput("E-CONFIG-SYNTAX", f"{path}: {reason}", f"expected {kind.upper()}") from None
    if not isinstance(value, dict) or not all(isinstance(key, str | int) for key in value):
        raise InvalidInput(
            "E-CONFIG-SYNTAX", f"{path} holds {shown(value)}", "expected keys and values at the top level"
        )
    return value


class Document:
    """Typed access to a mapping that collects problems instead of stopping at the first.

    Getters return the default (or a harmless value) where a problem was noted, so that reading goes on.
    """

    def __init__(self, path: Path | str, mapping: Mapping[str, Any]) -> None:
        self.path, self.mapping = path, mapping
        self.problems: list[InvalidInput] = []

    def problem(self, error_id: str, clash: str, fix: str) -> None:
        """Note a problem with this file."""
        self.problems.append(InvalidInput(error_id, f"{self.path}: {clash}", fix))

    def refuse_unknown(self, known: frozenset[str]) -> None:
        """E-CONFIG-KEY for each key that is not known."""
        for key in self.mapping:
            if key not in known and key != EXTENSION:
                self.problem("E-CONFIG-KEY", f"unknown key {shown(key)}", did_you_mean(str(key), known))

    def has(self, key: str) -> bool:
        """True when the key is there with a value other than null."""
        return self.mapping.get(key) is not None

    def require(self, key: str, fix: str) -> bool:
        """E-CONFIG-MISSING when the key is missing."""
        if not self.has(key):
            self.problem("E-CONFIG-MISSING", f"'{key}' is missing", fix)
        return self.has(key)

    def extension(self) -> dict[str, Any]:
        """What stands under ``x-scaleacross``."""
        value = self.mapping.get(EXTENSION) or {}
        if not isinstance(value, dict):
            self.problem("E-CONFIG-TYPE", f"'{EXTENSION}' is {shown(value)}", "it holds keys and values")
            return {}
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words (case matters)."""
        value = self.mapping.get(key, default)
        if value in choices:
            return str(value)
        self.problem("E-CONFIG-VALUE", f"'{key}' is {shown(value)}", did_you_mean(str(value), choices))
        return default

    def text(self, key: str, default: str = "") -> str:
        """A non-empty string."""
        value = self.mapping.get(key, default)
        if isinstance(value, str) and (value or not default):
            return value
        self.problem("E-CONFIG-TYPE", f"'{key}' is {shown(value)}", "write a text")
        return default

    def integer(self, key: str, default: int, low: int, high: int = 2**31 - 1) -> int:
        """A whole number between ``low`` and ``high``."""
        if not self.has(key):
            return default
        value = as_integer(self.mapping[key])
        if value is not None and low <= value <= high:
            return value
        wanted = f"a whole number from {low} to {high}"
        self.problem("E-CONFIG-VALUE", f"'{key}' is {shown(self.mapping[key])}", f"write {wanted}")
        return default

    def number(self, key: str, default: float, low: float, above: bool = False) -> float:
        """A finite number ≥ ``low``, or > ``low`` with ``above``."""
        if not self.has(key):
            return default
        value = as_number(self.mapping[key])
        if value is not None and (value > low or (value == low and not above)):
            return value
        wanted = f"a finite number {'above' if above else 'of at least'} {low:g}"
        self.problem("E-CONFIG-VALUE", f"'{key}' is {shown(self.mapping[key])}", f"write {wanted}")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """0 or 1. JSON's false and 0.0 mean "on" to ASTRA-sim, so only the two numbers are taken."""
        if not self.has(key):
            return default
        value = self.mapping[key]
        if type(value) is int and value in (0, 1):
            return bool(value)
        self.problem("E-CONFIG-TYPE", f"'{key}' is {shown(value)}", "write 0 or 1 (a number)")
        return default

    def items(self, key: str, convert: Callable[[Any], Any], wanted: str) -> tuple[Any, ...]:
        """A non-empty list whose entries ``convert`` accepts (it returns None otherwise)."""
        value = self.mapping.get(key)
        if not isinstance(value, list) or not value:
            self.problem("E-CONFIG-TYPE", f"'{key}' is {shown(value)}", f"write a list of {wanted}")
            return ()
        converted = tuple(convert(entry) for entry in value)
        for position, entry in enumerate(converted):
            if entry is None:
                clash = f"'{key}'[{position}] is {shown(value[position])}"
                self.problem("E-CONFIG-VALUE", clash, f"write a list of {wanted}")
        return converted


def as_integer(value: object, text: bool = False) -> int | None:
    """A whole number given as one, as a float without a fraction, or (with ``text``) as text; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    if text and isinstance(value, str) and len(value) < 20:
        try:
            return int(value)
        except ValueError:
            return None
    return None


def as_number(value: object, text: bool = False) -> float | None:
    """A finite number, with ``text`` also as text (YAML reads ``1e9`` as text); else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or (isinstance(value, str) and not text):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
