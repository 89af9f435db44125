"""Gantt charts of a step: stages as lines, passes and exposed communication as bars, one time axis for all designs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .gantt import Bar, Gantt
from .style import AXIS_COLOURS, GRID, INK, PASS_COLOURS, canvas
from .words import AXES, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: More bars than this are drawn as an image inside the SVG: a browser would need seconds for the vectors.
MOST_VECTORS = 2000
PASSES = {"F": "forward", "B": "backward", "W": "weight gradient"}


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


def zoom(gantts: Sequence[Gantt], stages: int = 4, share: float = 0.2) -> Figure:
    """The first stages during the first part of the shortest step, with the number of the micro-batch in each pass."""
    end = share * min(gantt.end for gantt in gantts)
    figure, axes = canvas(0.9 + len(gantts) * (0.5 + 0.3 * stages), len(gantts), share_x=True)
    for part, gantt in zip(axes, gantts, strict=True):
        shown = range(min(stages, len(gantt.rows)))
        _draw(part, gantt, 0.0, end, shown)
        for row in shown:
            _numbers(part, gantt.rows[row], row, end)
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
                corners.setdefault(bar.kind, []).append(_corners(bar, row, end))
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
    axes.set_xlim(start, end * 1.002)
    axes.set_ylim(rows.stop - 0.45, -0.55)
    step = max(1, -(-len(rows) // 16))
    axes.set_yticks(rows[::step])
    axes.set_ylabel("pipeline stage")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID)


def _corners(bar: Bar, row: int, end: float) -> list[tuple[float, float]]:
    top, bottom, right = row - 0.4, row + 0.4, min(bar.end, end * 1.01)
    return [(bar.start, bottom), (right, bottom), (right, top), (bar.start, top)]


def _numbers(axes: Axes, bars: Sequence[Bar], row: int, end: float) -> None:
    """The micro-batch in the middle of each pass that is wide enough for it."""
    for bar in bars:
        width = min(bar.end, end) - bar.start
        if bar.micro_batch >= 0 and width > 0.011 * end:
            colour = INK if bar.kind == "F" else "white"
            middle = bar.start + width / 2
            axes.text(middle, row, str(bar.micro_batch), ha="center", va="center", size=6.5, color=colour, zorder=4)


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
