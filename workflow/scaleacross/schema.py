"""YAML a user writes, read strictly: no YAML 1.1 surprises, no duplicate or unknown keys, quantities with units.

Plain YAML turns ``no`` into False, ``1e9`` into a string and ``1:7`` into 67 (base sixty). :func:`parse_yaml` reads
scalars as YAML 1.2 does (core schema): only ``true``/``false`` are booleans, ``1e9`` is a number, ``1:7`` is text.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from .errors import InvalidInput, did_you_mean
from .units import parse

_Model = TypeVar("_Model", bound=BaseModel)
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster, where it was built


class _StrictLoader(_BaseLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is there twice", key_node.start_mark)
            if isinstance(key, Hashable):
                seen.add(key)
        result: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return result


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
):
    _StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def parse_yaml(text: str, where: Path | str) -> Any:
    """Parse one YAML document.

    Raises:
        InvalidInput: E-YAML with ``where``, the line's number and its text.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        lines = text.splitlines()
        place = f", line {mark.line + 1}" if mark else ""
        shown = f" in `{lines[mark.line].strip()}`" if mark and mark.line < len(lines) else ""
        raise InvalidInput("E-YAML", f"{where}{place}: {problem}{shown}", "correct the YAML") from None


def read_yaml(path: Path | str) -> Any:
    """Parse a YAML file; InvalidInput E-FILE (missing, with a did-you-mean of its neighbours) or E-YAML."""
    return parse_yaml(read_text(path), path)


def read_text(path: Path | str) -> str:
    """A text file's content; InvalidInput E-FILE: not there (with a did-you-mean of its neighbours), or not UTF-8."""
    path = Path(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        clash = f"{path}: is not UTF-8 text (byte {error.start})"
        raise InvalidInput("E-FILE", clash, "save it as UTF-8, or name another file") from None
    except OSError as error:
        raise missing_file(path, error.strerror or str(error)) from None


def missing_file(path: Path, problem: str = "No such file or directory") -> InvalidInput:
    """E-FILE for ``path``, naming the closest neighbour, or the folder that isn't there."""
    if path.parent.is_dir():
        names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
        return InvalidInput(
            "E-FILE", f"{path}: {problem}", did_you_mean(path.name, names) if names else "the folder is empty"
        )
    return InvalidInput("E-FILE", f"{path}: {problem}", f"there is no folder {path.parent}")


def quantity(unit: str, most: float = math.inf) -> Any:
    """A pydantic field type: text with a unit (``"150 us"``) read as a float in ``unit`` (see :func:`units.parse`).

    More than ``most`` is refused: numbers that no cluster has, and no simulator can hold.
    """

    def convert(value: Any) -> float:
        try:
            number = parse(value if isinstance(value, str | int | float) else str(value), unit)
        except InvalidInput as error:
            raise PydanticCustomError("quantity", "{text}", {"text": f"{error.clash}; {error.fix}"}) from None
        if number > most:
            raise PydanticCustomError("quantity", "{text}", {"text": f"{value!r} is more than {most:g} {unit}"})
        return number

    return Annotated[float, BeforeValidator(convert)]


def validate(model: type[_Model], data: Any, where: Path | str) -> _Model:
    """``data`` as a ``model``.

    Raises:
        InvalidInput: E-KEY for an unknown or missing key, E-VALUE for anything else; one line with the place and, when
            there are several problems, how many more.
    """
    if not isinstance(data, dict):
        raise InvalidInput("E-VALUE", f"{where}: a mapping is needed, not {data!r:.60}", "see config/ for examples")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        unknown_first = sorted(problems, key=lambda problem: problem["type"] != "extra_forbidden")
        raise _explain(model, unknown_first[0], len(problems) - 1, where) from None


def _explain(model: type[BaseModel], problem: ErrorDetails, more: int, where: Path | str) -> InvalidInput:
    *parents, last = problem["loc"] or ("",)
    place = ".".join(str(part) for part in problem["loc"])
    tail = f" (and {more} more)" if more else ""
    if problem["type"] == "extra_forbidden":
        owner = _model_at(model, parents)
        return InvalidInput(
            "E-KEY", f"{where}: unknown key '{place}'{tail}", did_you_mean(str(last), owner.model_fields)
        )
    if problem["type"] == "missing":
        return InvalidInput("E-KEY", f"{where}: key '{place}' is missing{tail}", "add it")
    text = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "quantity" else f" (given: {problem['input']!r:.80})"
    return InvalidInput("E-VALUE", f"{where}: {place}: {text}{given}{tail}" if place else f"{where}: {text}{tail}")


def _model_at(model: type[BaseModel], location: list[int | str]) -> type[BaseModel]:
    for part in location:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        inner = _inner_model(field.annotation) if field else None
        model = inner or model
    return model


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if (
        isinstance(annotation, type)
        and not isinstance(annotation, types.GenericAlias)
        and issubclass(annotation, BaseModel)
    ):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _inner_model(arg))), None)
