"""Constraints mean what Python means, and nothing but constraints can be written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.errors import InvalidInput
from scaleacross.study.expressions import parse_expression

NAMES = {
    "pp": 16,
    "chunks": 2,
    "schedule": "interleaved",
    "order": ["tp", "cp", "pp", "dp"],
    "global_batch": 2048,
    "dp": 128,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("micro * 2 if False else pp", 16),
        ("schedule != 'interleaved' or chunks > 1", True),
        ("(schedule == 'interleaved') == (chunks > 1)", True),
        ("order[-1] == 'dp' and order[0] in ['tp', 'cp']", True),
        ("1 < chunks <= 2 < pp", True),
        ("global_batch % (dp * pp) == 0", True),
        ("max(pp, chunks) - min(pp, chunks, 3) // 2", 15),
        ("not pp", False),
        ("len(order) - abs(-4)", 0),
        ("pp not in [8, 32]", True),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_expression(text, {*NAMES, "micro"}).evaluate(NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "pp.__class__",
        "(lambda: 1)()",
        "[x for x in order]",
        "f'{pp}'",
        "pp ** 9",
        "pp << 99",
        "{1: 2}",
        "max(*order)",
        "min(pp, key=len)",
        "print(pp)",
        "a := 3",
        "pp ==",
        "",
        "pp = 3",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="E-EXPRESSION"):
        parse_expression(text, NAMES)


def test_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match=r"'chunk'.*did you mean 'chunks'"):
        parse_expression("chunk > 1", NAMES)


@pytest.mark.parametrize(
    "text", ["pp // (chunks - 2)", "order + 1", "schedule * 3", "schedule < pp", "order[7]", "abs(order)"]
)
def test_a_failing_evaluation_shows_its_values(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"E-EXPRESSION.* = "):
        parse_expression(text, NAMES).evaluate(NAMES)


integers = st.integers(-20, 20)


@settings(deadline=None)
@given(a=integers, b=integers, c=integers)
def test_agrees_with_python(a: int, b: int, c: int) -> None:
    text = "(a + b * c - -a) % 7 == 3 or a < b <= c and not (a == b != c) or (a if b > c else c) in [a, 2]"
    python = (a + b * c - -a) % 7 == 3 or (a < b <= c and not (a == b != c)) or (a if b > c else c) in [a, 2]
    assert bool(parse_expression(text, {"a", "b", "c"}).evaluate({"a": a, "b": b, "c": c})) is bool(python)
