"""Quantities: the right kind or an error, never a silent number."""

from __future__ import annotations

import pytest
from scaleacross.errors import InvalidInput
from scaleacross.units import gib_per_second, nanoseconds, parse


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("400 Gbps", "byte/second", 50e9),
        ("50 GB/s", "byte/second", 50e9),
        ("400 GiB/s", "byte/second", 400 * 2**30),
        ("80 GiB", "byte", 80 * 2**30),
        ("150 us", "second", 150e-6),
        ("989 TFLOPS", "flop/second", 989e12),
        ("989 TFLOP/s", "flop/second", 989e12),
        ("400 Gb/s", "byte/second", 50e9),
        ("2 µs", "second", 2e-6),
        ("10 km", "meter", 10e3),
        ("700 W", "watt", 700.0),
        ("2.5 usd/hour", "usd/hour", 2.5),
        ("0.09 usd/kWh", "usd/joule", 0.09 / 3.6e6),
        ("0.09 usd/kilowatt/hour", "usd/joule", 0.09 / 3.6e6),
    ],
)
def test_quantities_are_si(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("989 TFLOPS", "byte/second"),
        ("5 Hz", "byte/second"),
        ("2 GB/s", "flop/second"),
        ("5 usd", "byte"),
        ("400 Gbps", "byte"),
        ("80", "byte"),
        (80, "byte"),
        ("1e9", "byte/second"),
        ("", "second"),
        ("fast", "second"),
        ("1/0 s", "second"),
        ("()", "second"),
        ("3 m", "second"),
        ("1,5 GB/s", "byte/second"),  # 1.5 to some, and 15 without the comma
        ("1,000 GB/s", "byte/second"),
        ("GB/s", "byte/second"),
        ("1 GB/s + 1 GB/s", "byte/second"),
        ("9**9**9**9 s", "second"),
        ("9 s**9", "second"),
        ("1e400 s", "second"),
        ("nan s", "second"),
        ("inf s", "second"),
        ("5 if", "second"),
        ("٣ s", "second"),
    ],
)
def test_another_kind_or_no_unit_is_refused(text: str | int, unit: str) -> None:
    with pytest.raises(InvalidInput, match="E-UNIT"):
        parse(text, unit)


def test_the_units_of_the_network_file() -> None:
    assert gib_per_second(parse("400 Gbps", "byte/second")) == 46.566129
    assert nanoseconds(parse("150 us", "second")) == 150_000
