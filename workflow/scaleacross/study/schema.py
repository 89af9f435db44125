"""What a study file may say: the schema, its defaults, and errors that name file and key, all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..errors import InvalidInput, did_you_mean
from ..schema import parse_yaml, read_yaml
from ..units import parse
from .expressions import parse_expression
from .published import Published
from .tables import same

STUDIES = Path("config/studies")
Value = bool | int | float | str | list[str | int | float]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")

# Cost models that may pick a baseline's plan (search.sailor).
PICKERS = ("sailor",)

# Names that constraints and templates may use besides the study's own keys; `design` gives them their values.
DERIVED_NAMES = ("gpus", "dp", "micro_batches", "layers", "hidden", "heads", "kv_heads", "vocabulary")


class _Section(BaseModel):
    """A part of the study: unknown keys are refused, values are never converted from another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TrainingSection(_Section):
    """The work of one iteration, the same in every point unless a dimension of the same name sweeps it."""

    sequence_length: int = Field(gt=0, description="tokens a sequence")
    global_batch: int = Field(gt=0, description="sequences an iteration, over all replicas")
    precision: Literal["bf16", "fp16", "fp8"] = "bf16"
    optimizer: Literal["adam"] = "adam"
    document_length: float = Field(0.0, ge=0, description="tokens of a packed document, weighted by tokens; 0: none")
    attention_imbalance: float = Field(1.0, ge=1, description="attention work of the busiest rank over the mean")


class Study(_Section):
    """One study file. ``dimensions`` and ``environment`` map a name to the values it takes, ``fixed`` to one value."""

    name: str
    description: str = ""
    model: str = Field(description="config/models/<model>.yaml")
    cluster: str = Field(description="config/clusters/<cluster>.yaml.j2")
    training: TrainingSection
    fixed: dict[str, Value] = Field(default_factory=dict)
    dimensions: dict[str, list[Value]]
    environment: dict[str, list[Value]] = Field(default_factory=dict)
    constraints: list[str] = Field(default_factory=list)
    baselines: dict[str, dict[str, Value]] = Field(default_factory=dict)
    objective: Literal["iteration_time", "tokens_per_usd"] = "iteration_time"
    require: list[str] = Field(default_factory=list, description="expressions over columns of results.csv")
    pareto: list[list[str]] | None = Field(None, description="fronts, each of two or more columns of results.csv")
    search: Literal["exhaustive", "certified"] = "exhaustive"
    simulator: Literal["embedded", "astra-sim"] = "embedded"
    network_model: Literal["unaware", "aware", "scaleacross"] = Field(
        "scaleacross", description="of the simulator; where the binary simulates, unaware unless given"
    )
    time_limit: str = Field("60 s", description="wall time of one simulated point")
    search_limit: str | None = Field(None, description="wall time of a certified search; it then tells its gap")
    failure_threshold: float = Field(0.0, ge=0, le=1, description="share of the feasible points that may fail")
    allow_unphysical: bool = Field(False, description="let a point win that is faster than its lower bound")
    thresholds: bool = Field(True, description="look for the numbers at which another design wins")
    published: list[Published] = Field(default_factory=list, description="measured values of some points")

    @field_validator("name")
    @classmethod
    def _name_is_a_slug(cls, name: str) -> str:
        if not _SLUG.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a folder; use a-z, 0-9 and '-', at most 48 characters")
        return name

    @field_validator("time_limit", "search_limit")
    @classmethod
    def _time_has_a_unit(cls, text: str | None) -> str | None:
        try:
            if text is not None and parse(text, "second") <= 0:
                raise ValueError(f"{text!r} is not above zero")
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return text

    @field_validator("fixed", "dimensions", "environment")
    @classmethod
    def _names_are_identifiers(cls, section: dict[str, Any]) -> dict[str, Any]:
        for name in section:
            if not _NAME.fullmatch(name) or (name in DERIVED_NAMES and name != "dp"):
                raise ValueError(f"{name!r} cannot name a dimension; use a-z, 0-9 and '_', and no derived name")
        return section

    @field_validator("dimensions", "environment")
    @classmethod
    def _lists_have_distinct_values(cls, section: dict[str, list[Value]]) -> dict[str, list[Value]]:
        for name, values in section.items():
            if not values:
                raise ValueError(f"{name!r} has no value; list at least one")
            if any(same(value, other) for i, value in enumerate(values) for other in values[:i]):
                raise ValueError(f"{name!r} lists a value twice: {values}")
        return section

    @model_validator(mode="before")
    @classmethod
    def _the_binary_has_no_model_of_ours(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("simulator") == "astra-sim" and "network_model" not in data:
            return {**data, "network_model": "unaware"}
        return data

    @model_validator(mode="after")
    def _sections_agree(self) -> Study:
        problems = (
            list(self._simulator_problems())
            + list(self._search_problems())
            + list(self._clashes())
            + list(self._constraint_problems())
            + list(self._baseline_problems())
        )
        problems += list(self._published_problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @model_validator(mode="after")
    def _baselines_as_swept(self) -> Study:
        """Baselines say their values as the dimensions do, however they are written: tables are compared as text."""
        for wanted in self.baselines.values():
            for name, value in wanted.items():
                wanted[name] = next((known for known in self.swept.get(name, []) if same(value, known)), value)
        return self

    @property
    def swept(self) -> dict[str, list[Value]]:
        """Every key a point has, environment first, with the values it takes (one for a fixed key)."""
        return {**self.environment, **{name: [value] for name, value in self.fixed.items()}, **self.dimensions}

    def _simulator_problems(self) -> Iterator[str]:
        if self.simulator == "astra-sim" and self.network_model == "scaleacross":
            yield "network_model: 'scaleacross' is not one of ASTRA-sim's (simulator: astra-sim); use unaware or aware"
        if self.network_model != "scaleacross" and self.swept.get("qos", ["fair"]) != ["fair"]:
            yield f"qos: network model {self.network_model!r} has no traffic classes; use scaleacross, or leave qos out"

    def _search_problems(self) -> Iterator[str]:
        if self.search_limit is not None and self.search != "certified":
            yield "search_limit: nothing reads it where search is exhaustive; make search certified, or remove it"

    def _clashes(self) -> Iterator[str]:
        seen: dict[str, str] = {}
        for section in ("fixed", "dimensions", "environment"):
            for name in getattr(self, section):
                if name in seen:
                    yield f"{section}.{name}: is also in {seen[name]}; keep one"
                seen[name] = section

    def _constraint_problems(self) -> Iterator[str]:
        known = {*self.swept, *DERIVED_NAMES, *TrainingSection.model_fields}
        for index, text in enumerate(self.constraints):
            try:
                parse_expression(text, known)
            except InvalidInput as error:
                yield f"constraints.{index}: {error}"

    def _published_problems(self) -> Iterator[str]:
        for index, row in enumerate(self.published):
            for name, value in row.when.items():
                where = f"published.{index}.when.{name}"
                if name not in self.swept:
                    yield f"{where}: is no key of a point; {did_you_mean(name, self.swept)}"
                elif not any(same(value, known) for known in self.swept[name]):
                    yield f"{where}: {value!r} is not swept"

    def _baseline_problems(self) -> Iterator[str]:
        for baseline, wanted in self.baselines.items():
            if not _SLUG.fullmatch(baseline):
                yield f"baselines.{baseline}: use a-z, 0-9 and '-' in the name"
            if "best_of" in wanted:
                members = wanted["best_of"]
                for member in members if isinstance(members, list) else [members]:
                    if member not in self.baselines:
                        yield f"baselines.{baseline}.best_of: no baseline {member!r}; " + did_you_mean(
                            str(member), set(self.baselines) - {baseline}
                        )
                    elif "best_of" in self.baselines[str(member)]:
                        yield f"baselines.{baseline}.best_of: {member!r} is a best_of itself; list its members"
                if len(wanted) > 1:
                    yield f"baselines.{baseline}: best_of stands alone"
                continue
            for name, value in wanted.items():
                if name == "picked_by":
                    if value not in PICKERS:
                        yield f"baselines.{baseline}.picked_by: no cost model {value!r}; " + did_you_mean(
                            str(value), PICKERS
                        )
                elif name in self.environment:
                    yield f"baselines.{baseline}.{name}: the environment is not a baseline's to choose; remove it"
                elif name not in self.swept:
                    yield f"baselines.{baseline}.{name}: is no dimension; {did_you_mean(name, self.swept)}"
                elif not any(same(value, known) for known in self.swept[name]):
                    yield f"baselines.{baseline}.{name}: {value!r} is not swept; add it to dimensions.{name}"


def study_path(name: str, studies: Path = STUDIES) -> Path:
    """The file of a study given by name or by path.

    Raises:
        InvalidInput: E-STUDY when there is none (did you mean).
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else studies / f"{name}.yaml"
    if path.is_file():
        return path
    known = [str(file.relative_to(studies).with_suffix("")) for file in sorted(studies.rglob("*.yaml"))]
    raise InvalidInput("E-STUDY", f"there is no study {name!r} ({path} does not exist)", did_you_mean(name, known))


def apply_overrides(content: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """``content`` with ``key.sub=value`` overrides, values in YAML; ``key=`` with nothing after it removes the key.

    Raises:
        InvalidInput: E-OVERRIDE for one without ``=`` or through something that is not a mapping, E-YAML for the value.
    """
    result = dict(content)
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise InvalidInput("E-OVERRIDE", f"{override!r} is not KEY=VALUE", "write for example dimensions.pp=[8,16]")
        value = parse_yaml(text, f"override {key}")
        *parents, last = key.split(".")
        target = result
        for parent in parents:
            child = target.get(parent, {})
            if not isinstance(child, Mapping):
                raise InvalidInput("E-OVERRIDE", f"{override!r}: {parent!r} holds no keys", "check the path of the key")
            target[parent] = dict(child)
            target = target[parent]
        if text == "":
            target.pop(last, None)
        else:
            target[last] = value
    return result


def load_study(name: str, overrides: Sequence[str] = (), studies: Path = STUDIES) -> Study:
    """Read and validate a study.

    Raises:
        InvalidInput: E-STUDY with every problem of the file on a line of its own, each with its key.
    """
    path = study_path(name, studies)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InvalidInput("E-STUDY", f"{path} holds no keys", "start from config/studies/llama3-405b-2dc.yaml")
    content = apply_overrides(content, overrides)
    try:
        return Study.model_validate(content)
    except ValidationError as error:
        problems = list(dict.fromkeys(line for detail in error.errors() for line in _describe(dict(detail))))
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    raise InvalidInput("E-STUDY", f"{path} has {count}:\n  " + "\n  ".join(problems))


_SECTIONS: dict[str, type[BaseModel]] = {"": Study, "training": TrainingSection}


def _describe(detail: dict[str, Any]) -> list[str]:
    """Lines ``key: what is wrong; fix`` for one pydantic error."""
    names = [str(part) for part in detail["loc"]]
    location = [name for name in names if name not in _UNION_MEMBERS and not name.startswith("list[")]
    key = ".".join(location)
    if detail["type"] == "extra_forbidden":
        section = _SECTIONS.get(".".join(location[:-1]))
        fields = section.model_fields if section else ()
        return [f"{key}: unknown key; {did_you_mean(location[-1], fields)}"]
    if detail["type"] == "missing":
        return [f"{key}: is missing"]
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return [line if not key else f"{key}: {line}" for line in message.splitlines()]
    given = detail.get("input")
    hint = "; write [...] to sweep values, or move it to fixed:" if detail["type"] == "list_type" else ""
    if key in ("time_limit", "search_limit"):
        hint = "; write the unit: 60 s"
    elif given is None:
        return [f"{key}: has no value; give one, or remove the key"]
    return [f"{key}: {detail['msg'].lower()}, not {str(given)[:60]!r}{hint}"]


# Pydantic puts the members it tried of a union into the path of an error; a user knows only keys.
_UNION_MEMBERS = {"bool", "int", "float", "str"}
