"""Numbers and names as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.report.words import (
    crossing_axis,
    environment_text,
    number,
    percent,
    seconds,
    short_label,
    signed_percent,
    value_of,
    wrapped,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4.5678, "4.57"),
        (4.5, "4.50"),
        (0.05, "0.0500"),
        (9.999, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (123.4, "123"),
        (1234.5, "1,230"),
        (-0.1234, "-0.123"),
        (0.00001234, "1.23e-05"),
        (float("nan"), "–"),
        (None, "–"),
    ],
)
def test_three_significant_digits(value, text):
    assert number(value) == text


@given(st.floats(1e-4, 1e12), st.integers(2, 6))
def test_a_written_number_is_within_half_a_digit(value, digits):
    written = float(number(value, digits).replace(",", ""))
    assert abs(written - value) <= 0.5000001 * 10 ** (math.floor(math.log10(value)) + 1 - digits)


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.85, "6.85 s"), (0.441, "441 ms"), (0.9999, "1.00 s"), (75e-6, "75.0 us"), (0.0, "0 s"), (1200.0, "20.0 min")],
)
def test_durations_choose_their_unit(value, text):
    assert seconds(value) == text


def test_a_duration_can_take_anothers_unit():
    assert seconds(0.441, like=6.85) == "0.441 s"
    assert seconds(0.441, like=float("nan")) == "441 ms"


def test_percentages():
    assert percent(0.4321) == "43.2 %"
    assert signed_percent(0.2857) == "+28.6 %"
    assert signed_percent(-0.05) == "−5.0 %"
    assert signed_percent(0.00021) == "+0.02 %"
    assert signed_percent(None) == "–"


@pytest.mark.parametrize("order", ["tp-cp-pp-dp", "[tp, cp, pp, dp]", "['tp', 'cp', 'pp', 'dp']"])
def test_a_placement_is_read_however_it_is_written(order):
    assert value_of("order", order) == "tp → cp → pp → dp"


@pytest.mark.parametrize(
    ("point", "axis"),
    [
        ({"order": "tp-cp-pp-dp", "tp": "8", "pp": "16", "dp": "128"}, "dp"),
        ({"order": "tp-cp-pp-dp", "tp": "8", "pp": "16", "dp": "1"}, "pp"),
        ({"order": "tp-cp-dp-pp", "tp": "8", "pp": "16"}, "pp"),
        ({"order": "tp-pp-dp", "tp": "8", "pp": "16"}, "dp"),  # dp is no column: the rest of the GPUs
        ({"tp": "8"}, None),
    ],
)
def test_what_crosses_the_slow_cut_is_the_outermost_axis_that_has_members(point, axis):
    assert crossing_axis(point) == axis


def test_a_label_names_what_varies():
    point = {"point_id": "x", "order": "tp-pp-dp", "pp": "16", "dp": "8", "chunks": "1", "schedule": "1f1b"}
    assert short_label(point, ("pp", "order", "schedule", "chunks")) == "pp16, dp across, 1f1b, 1 chunk"
    assert short_label(point, ()) == "x"


def test_an_environments_values_are_not_torn_apart():
    text = environment_text({"uplink_latency": "75 us", "oversubscription": "1:7"})
    assert text.replace("\N{NO-BREAK SPACE}", " ") == "uplink latency 75 us, oversubscription 1:7"
    assert wrapped(text, 26).splitlines()[0].endswith(",")
