"""Templates: filters, includes, the variables one uses, and errors that name file and line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from scaleacross.cluster import render, template_variables
from scaleacross.errors import InvalidInput


def rendered(folder: Path, text: str, **context: Any) -> str:
    path = folder / "a.j2"
    path.write_text(text)
    return render(path, context)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'150 us' | ns", "150000.0"),
        ("150e-6 | ns", "150000.0"),
        ("'400 Gbps' | gib_per_s", "46.566129"),
        ("'50 GB/s' | gib_per_s", "46.566129"),
        ("'3350 GB/s' | gb_per_s", "3350.0"),
        ("989.5e12 | tflops", "989.5"),
        ("latency | ns", "75000.0"),
    ],
)
def test_filters_give_the_units_of_astra_sim(tmp_path: Path, expression: str, expected: str) -> None:
    assert rendered(tmp_path, "{{ " + expression + " }}", latency="75 us") == expected


@pytest.mark.parametrize(
    ("text", "error_id", "says"),
    [
        ("a\n{{ latncy | ns }}", "E-UNDEFINED", ["a.j2, line 2", "'latncy'", "did you mean 'latency'?"]),
        ("{{ latncy }}", "E-UNDEFINED", ["a.j2, line 1"]),
        ("{{ dims.bandwith }}", "E-UNDEFINED", ["line 1", "bandwith"]),
        ("a\n\n{{ '5' | ns }}", "E-UNIT", ["a.j2, line 3", "'5' has no unit"]),
        ("a\n{{ '5 GB' | ns }}", "E-UNIT", ["a.j2, line 2", "150 us"]),
        ("a\n{% if %}", "E-TEMPLATE-SYNTAX", ["a.j2, line 2"]),
        ("{{ latency | nanos }}", "E-TEMPLATE-SYNTAX", ["a.j2, line 1", "nanos"]),
        ("a\n{{ 1 / 0 }}", "E-TEMPLATE-SYNTAX", ["a.j2, line 2", "ZeroDivisionError"]),
        ("{% include 'b.j2' %}", "E-FILE", ["b.j2"]),
    ],
)
def test_errors_name_file_line_and_fix(tmp_path: Path, text: str, error_id: str, says: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(tmp_path, text, latency="75 us", dims={"bandwidth": 1})
    assert caught.value.error_id == error_id
    for words in says:
        assert words in str(caught.value)


def test_an_edited_template_is_read_again(tmp_path: Path) -> None:
    assert rendered(tmp_path, "one") == "one"
    (tmp_path / "a.j2").write_text("two")
    os.utime(tmp_path / "a.j2", (1, 1))
    assert render(tmp_path / "a.j2", {}) == "two"


def test_variables_are_those_that_come_from_outside_includes_too(tmp_path: Path) -> None:
    (tmp_path / "b.j2").write_text("{{ below }}")
    (tmp_path / "a.j2").write_text(
        "{% set mine = x | default('1 us') %}{% for d in dims %}{{ d.size }}{% endfor %}{% include 'b.j2' %}{{ mine }}"
    )
    assert template_variables(tmp_path / "a.j2") == {"x", "dims", "below"}
