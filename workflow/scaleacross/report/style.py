"""How figures look: one colour-blind-safe palette for all, and writing them as SVG (inline and file) and PNG.

Colours are of Okabe and Ito's palette. Compute is blue everywhere (a Gantt's forward, backward and weight gradient are
its shades), each axis of communication keeps its colour, idle is grey.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1d2733", "#667281", "#dfe4ea"
WINNER, BASELINE, POINT = "#0072B2", "#D55E00", "#9aa5b1"

AXIS_COLOURS = {
    "tp": "#009E73",
    "cp": "#F0E442",
    "ep": "#CC79A7",
    "pp": "#E69F00",
    "dp": "#D55E00",
    "other": "#6b6b6b",
}
PART_COLOURS = {
    "compute_s": "#0072B2",
    **{f"exposed_{axis}_s": colour for axis, colour in AXIS_COLOURS.items()},
    "idle_s": "#d4d9df",
}
PASS_COLOURS = {"F": "#8cc4e8", "B": "#0072B2", "W": "#003b63", "compute": "#5b7f9b"}
#: For categories without a meaning of their own.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

WIDTH = 9.0
_RC = {
    "font.size": 9,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "svg.hashsalt": "scaleacross",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib settings of our figures, for the time of a block."""
    from matplotlib import rc_context

    with rc_context(_RC):  # type: ignore[arg-type]
        yield


def canvas(
    height: float, rows: int = 1, share_x: bool = False, margins: tuple[float, float, float, float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of the report's width (inches) with ``rows`` axes under one another.

    ``margins`` (left, right, top, bottom, in inches) fixes what is otherwise laid out to fit the labels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout=None if margins else "constrained")
    FigureCanvasAgg(figure)
    if margins:
        left, right, top, bottom = margins
        figure.subplots_adjust(left / WIDTH, bottom / height, 1 - right / WIDTH, 1 - top / height)
    axes = figure.subplots(rows, 1, sharex=share_x, squeeze=False)
    return figure, [row[0] for row in axes]


def horizontal(axes: Axes, count: int) -> None:
    """Set up axes for ``count`` horizontal bars at 0, 1, ... from the top: no y ticks marks, vertical grid lines."""
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def write_figure(name: str, draw: Callable[[], Figure], folder: Path) -> str:
    """Draw a figure, write ``<name>.svg`` and ``<name>.png`` (150 dpi) to ``folder``; returns the SVG for inlining."""
    with styled():
        figure = draw()
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "ScaleAcross Explorer"})
        figure.set_layout_engine("none")  # it is laid out now: not again for the other format
        figure.savefig(png, format="png", dpi=150, metadata={"Software": "ScaleAcross Explorer"})
    write_atomic(folder / f"{name}.svg", svg.getvalue())
    write_atomic(folder / f"{name}.png", png.getvalue())
    return inline(svg.getvalue(), name)


_IDS = re.compile(r'(\bid="|href="#|url\(#)')


def inline(svg: str, name: str) -> str:
    """An SVG file as an element of an HTML page: without prologue and metadata, its ids and style kept to itself."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r' xmlns(:xlink)?="[^"]*"', "", body)
    body = body.replace("xlink:href", "href")
    body = _IDS.sub(rf"\g<1>{name}-", body)
    return re.sub(
        r'<svg ([^>]*?)width="[^"]*"',
        r'<svg class="figure" \1',
        re.sub(r' height="[^"]*pt"', "", body, count=1),
        count=1,
    )
