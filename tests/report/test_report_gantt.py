"""Bars of a step from schedules and timelines, and SVG made fit for a page."""

import re

import pytest
from scaleacross.report.gantt import Bar, Gantt, from_schedule, from_timeline
from scaleacross.report.gantt_figure import MOST_VECTORS, detail, whole
from scaleacross.report.style import inline, write_figure
from scaleacross.schedule import build, gantt_rows


def test_a_schedules_rows_become_stages():
    gantt = from_schedule("x", gantt_rows(build("1f1b", 4, 8, 1), f=1, b=1, w=1), unit=0.5)
    assert len(gantt.rows) == 4 and gantt.count == 4 * 16
    assert gantt.end == pytest.approx(0.5 * (8 + 3) * 3)
    assert {bar.kind for bar in gantt.rows[0]} == {"F", "B"}


def test_a_timelines_operators_become_passes():
    rows = [
        (0, 100, "F.m0.c1.l0.attention", "compute"),
        (100, 170, "tp.F.m0.c1.l0.mlp.ag", "tp"),
        (170, 200, "F.m0.c1.l0.mlp", "compute"),
        (0, 400, "pp.recv.F.m1.c1", "pp"),
        (200, 230, "pp.send.F.m0.c1", "pp"),
        (400, 500, "F.m1.c1.l0.attention", "compute"),
        (500, 900, "B.m0.c1.l0.mlp", "compute"),
        (120, 180, "dp.gather.c0.l3", "dp"),
        (900, 950, "optimizer", "compute"),
    ]
    (bars,) = from_timeline("x", {3: rows}).rows
    seconds = [(round(bar.start * 1e9), round(bar.end * 1e9), *bar[2:]) for bar in bars]
    assert sorted(seconds) == [
        (0, 200, "F", 0, 1),
        (120, 180, "dp", -1, 0),
        (200, 230, "pp", -1, 0),
        (400, 500, "F", 1, 1),
        (500, 900, "B", 0, 1),
        (900, 950, "compute", -1, 0),
    ]


def test_stages_are_in_order_of_their_number():
    gantt = from_timeline("x", {1: [(5, 9, "F.m0.c0", "compute")], 0: [(0, 4, "F.m0.c0", "compute")]})
    assert [row[0].start for row in gantt.rows] == [0, pytest.approx(5e-9)]


def _many(count):
    return Gantt("many", [[Bar(0.01 * n, 0.01 * n + 0.008, "F", n) for n in range(count)]])


def test_many_bars_are_an_image_and_few_are_vectors(tmp_path):
    few = write_figure("few", lambda: whole([_many(100)]), tmp_path)
    many = write_figure("many", lambda: whole([_many(MOST_VECTORS + 1)]), tmp_path)
    assert "<image" not in few
    assert "data:image/png;base64" in many and len(many) < 200_000


def test_the_detail_numbers_the_micro_batches_of_the_middle(tmp_path):
    svg = write_figure("detail", lambda: detail([_many(200)]), tmp_path)
    numbers = {int(text) for text in re.findall(r"<text[^>]*>(\d+)</text>", svg)}
    assert numbers >= set(range(86, 115)) and not numbers & set(range(1, 80)) and not numbers & set(range(125, 200))


def test_figures_are_the_same_every_time(tmp_path):
    for folder in ("a", "b"):
        write_figure("g", lambda: whole([_many(20)]), tmp_path / folder)
    for name in ("g.svg", "g.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_inlined_svg_keeps_its_ids_to_itself():
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://x" '
        'width="9pt" height="4pt" viewBox="0 0 9 4"><metadata>http://x</metadata><style>*{a}</style>'
        '<g id="p1"><use xlink:href="#m"/><path clip-path="url(#c)"/></g></svg>'
    )
    found = inline(svg, "name")
    assert found == (
        '<svg class="figure"  viewBox="0 0 9 4"><g id="name-p1"><use href="#name-m"/>'
        '<path clip-path="url(#name-c)"/></g></svg>'
    )
