"""YAML scalars as a reader expects them, and pydantic's complaints as one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from scaleacross.errors import InvalidInput
from scaleacross.schema import parse_yaml, read_yaml, validate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:7", "1:7"),
        ("1:2.8", "1:2.8"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("1e9", 1e9),
        ("1e-3", 1e-3),
        ("1.5", 1.5),
        ("010", 10),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("-3", -3),
        ("~", None),
        ("", None),
        (".inf", float("inf")),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    assert parse_yaml(text, "a.yaml") == value
    assert type(parse_yaml(text, "a.yaml")) is type(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text("abno1: ~.-e", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abn", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_what_pyyaml_writes_is_read_back(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump(value, default_flow_style=True), "a.yaml") == value


@pytest.mark.parametrize(
    "text", ["{a: 1, a: 2}", "a: {b: 1, b: 1}", "[1, ]]", "a: b: c", "!!python/object:os.system {}"]
)
def test_bad_yaml_names_the_line(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"E-YAML: a\.yaml, line 1"):
        parse_yaml(text, "a.yaml")


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: list[Inner] = []
    by_name: dict[str, Inner] = {}
    maybe: Inner | None = None


@pytest.mark.parametrize(
    "data",
    [
        {"inner": [{"siez": 1}]},
        {"by_name": {"x": {"siez": 1}}},
        {"maybe": {"siez": 1}},
        {"maybe": {"siez": 1, "size": "q"}},
    ],
)
def test_an_unknown_key_is_compared_with_the_keys_of_its_own_level(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"E-KEY: a\.yaml: unknown key '.*siez'.*; did you mean 'size'\?"):
        validate(Outer, data, "a.yaml")


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match=r"E-VALUE: a\.yaml: a mapping is needed"):
        validate(Outer, data, "a.yaml")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("a: 1\n")
    assert read_yaml(tmp_path / "study.yaml") == {"a": 1}
    with pytest.raises(InvalidInput, match=r"E-FILE: .*did you mean 'study\.yaml'"):
        read_yaml(tmp_path / "stduy.yaml")
