"""Gantt charts of a step: stages as lines, passes and exposed communication as bars, one time axis for all designs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from .gantt import Bar, Gantt
from .style import AXIS_COLOURS, GRID, INK, PASS_COLOURS, canvas
from .words import AXES, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: More bars than this are drawn as an image inside the SVG: a browser would need seconds for the vectors.
MOST_VECTORS = 2000
#: About so many passes of the winner fill the width of the detail.
PASSES_SHOWN = 40
PASSES = {"F": "forward", "B": "backward", "W": "weight gradient", "compute": "other compute"}


def whole(gantts: Sequence[Gantt]) -> Figure:
    """Every design's whole step, one under the other on one time axis: the shorter one is seen to be shorter."""
    end = max(gantt.end for gantt in gantts)
    heights = [min(2.6, 0.45 + 0.14 * len(gantt.rows)) for gantt in gantts]
    figure, axes = canvas(0.9 + sum(heights) + 0.35 * len(gantts), len(gantts), share_x=True)
    for part, gantt in zip(axes, gantts, strict=True):
        _draw(part, gantt, 0.0, end, range(len(gantt.rows)))
        part.axvline(gantt.end, color=INK, lw=1)
        part.text(gantt.end, -0.7, seconds(gantt.end), ha="right", va="bottom", size=8.5, weight="bold")
        part.set_title(gantt.title, loc="left", size=9, weight="bold")
    axes[-1].set_xlabel("time from the start of the step (s)")
    _legend(figure, gantts)
    return figure


def detail(gantts: Sequence[Gantt], stages: int = 4) -> Figure:
    """A stretch from the middle of each step, first stages, all at one scale, with the micro-batch in each pass."""
    passes = [bar.end - bar.start for bar in gantts[0].rows[0] if bar.micro_batch >= 0]
    shortest = min(gantt.end for gantt in gantts)
    width = min(0.25 * shortest, PASSES_SHOWN * median(passes or [shortest]))
    figure, axes = canvas(0.9 + len(gantts) * (0.75 + 0.3 * stages), len(gantts))
    for part, gantt in zip(axes, gantts, strict=True):
        start = 0.5 * (gantt.end - width)
        shown = range(min(stages, len(gantt.rows)))
        _draw(part, gantt, start, start + width, shown)
        for row in shown:
            _numbers(part, gantt.rows[row], row, start, start + width)
        part.set_title(gantt.title, loc="left", size=9, weight="bold")
    axes[-1].set_xlabel("time from the start of the step (s); numbers are micro-batches")
    _legend(figure, gantts)
    return figure


def _draw(axes: Axes, gantt: Gantt, start: float, end: float, rows: range) -> None:
    """Bars of some stages in a window. Communication lies under compute, so only what is exposed shows."""
    from matplotlib.collections import PolyCollection

    corners: dict[str, list[list[tuple[float, float]]]] = {}
    for row in rows:
        for bar in gantt.rows[row]:
            if bar.end > start and bar.start < end:
                corners.setdefault(bar.kind, []).append(_corners(bar, row, start, end))
    raster = sum(map(len, corners.values())) > MOST_VECTORS
    for kind in sorted(corners, key=lambda kind: kind in PASS_COLOURS):
        bars = PolyCollection(
            corners[kind],
            facecolors=_colour(kind),
            edgecolors="white" if kind in PASS_COLOURS and not raster else "none",
            linewidths=0.3,
            zorder=3 if kind in PASS_COLOURS else 2,
            rasterized=raster,
        )
        axes.add_collection(bars, autolim=False)
    axes.set_facecolor("#f4f6f8")
    axes.set_xlim(start, end + 0.002 * (end - start))
    axes.set_ylim(rows.stop - 0.45, -0.55)
    step = max(1, -(-len(rows) // 16))
    axes.set_yticks(rows[::step])
    axes.set_ylabel("pipeline stage")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID)


def _corners(bar: Bar, row: int, start: float, end: float) -> list[tuple[float, float]]:
    margin = 0.01 * (end - start)
    left, right = max(bar.start, start - margin), min(bar.end, end + margin)
    return [(left, row + 0.4), (right, row + 0.4), (right, row - 0.4), (left, row - 0.4)]


def _numbers(axes: Axes, bars: Sequence[Bar], row: int, start: float, end: float) -> None:
    """The micro-batch in the middle of each pass that is wide enough for it."""
    for bar in bars:
        left, right = max(bar.start, start), min(bar.end, end)
        if bar.micro_batch >= 0 and right - left > 0.011 * (end - start):
            colour = INK if bar.kind == "F" else "white"
            label = axes.text((left + right) / 2, row, str(bar.micro_batch), ha="center", va="center", size=6.5)
            label.set(color=colour, zorder=4, in_layout=False)


def _colour(kind: str) -> str:
    return PASS_COLOURS.get(kind) or AXIS_COLOURS.get(kind, AXIS_COLOURS["other"])


def _legend(figure: Figure, gantts: Sequence[Gantt]) -> None:
    """One entry a kind that occurs, passes first."""
    from matplotlib.patches import Patch

    kinds = {bar.kind for gantt in gantts for row in gantt.rows for bar in row}
    order = [kind for kind in (*PASSES, *AXIS_COLOURS) if kind in kinds]
    names = {**PASSES, **{axis: f"exposed {name}" for axis, name in AXES.items()}, "other": "other communication"}
    handles = [Patch(color=_colour(kind), label=names[kind]) for kind in order]
    handles.append(Patch(facecolor="#f4f6f8", edgecolor=GRID, label="idle"))
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), columnspacing=1.2, handlelength=1.4)
