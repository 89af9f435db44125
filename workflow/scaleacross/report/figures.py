"""The figures of the report. Each function draws one and returns it; ``style.write_figure`` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .findings import PARTS, TIME, Against, Effect, Findings
from .style import BASELINE, CATEGORIES, GRID, INK, MUTED, PART_COLOURS, POINT, WINNER, canvas, horizontal
from .tables import Row, number_of
from .words import (
    PART_NAMES,
    environment_text,
    name_of,
    number,
    seconds,
    short_label,
    signed_percent,
    value_of,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Environments in the figure of speedups; the table below it has them all.
MOST_ENVIRONMENTS = 24
#: A value is written inside a bar only where it takes at least this share of the longest bar.
LEAST_LABELLED = 0.045


def speedups(findings: Findings) -> Figure:
    """Bars: training speedup of each environment's best design over each baseline, in percent."""
    environments = findings.environments[:MOST_ENVIRONMENTS]
    baselines = list(dict.fromkeys(item.baseline for item in findings.comparisons))
    figure, (axes,) = canvas(0.75 + 0.22 * len(environments) * (len(baselines) + 0.8))
    height = 0.8 / max(1, len(baselines))
    found = {(tuple(item.environment.values()), item.baseline): item for item in findings.comparisons}
    longest = max([100 * (item.speedup or 0) for item in findings.comparisons], default=0) or 1
    for column, baseline in enumerate(baselines):
        for row, environment in enumerate(environments):
            item = found.get((tuple(environment.values()), baseline))
            y = row + (column - (len(baselines) - 1) / 2) * height
            if item is None or item.speedup is None:
                _beside(axes, 0, y, "no feasible point matches the baseline", color=MUTED)
                continue
            label = baseline if row == 0 or baseline not in axes.get_legend_handles_labels()[1] else None
            axes.barh(y, 100 * item.speedup, height * 0.86, color=CATEGORIES[column % len(CATEGORIES)], label=label)
            _beside(axes, 100 * item.speedup, y, signed_percent(item.speedup), size=8.5)
    horizontal(axes, len(environments))
    axes.set_xlim(0, longest * 1.12)
    labels = [environment_text(environment) or "this study" for environment in environments]
    axes.set_yticks(range(len(environments)), [wrapped(label, 46) for label in labels])
    axes.set_xlabel("training speedup over baseline: baseline time / best time − 1 (%)")
    if len(baselines) > 1:
        figure.legend(loc="outside upper left", ncols=4, title="over", alignment="left")
    return figure


def breakdown_rows(findings: Findings) -> list[tuple[str, Row]]:
    """What the breakdown shows: the winner, each baseline's point, up to four runners-up, with a name for each."""
    winner = findings.winner()
    if winner is None:
        return []
    rows = [("winner", winner)]
    for item in findings.against():
        same = [place for place, (_, row) in enumerate(rows) if row is item.point]
        if same:
            rows[same[0]] = (f"{rows[same[0]][0]}, {item.baseline}", rows[same[0]][1])
        elif item.point is not None:
            rows.append((item.baseline, item.point))
    shown = [id(row) for _, row in rows]
    runners = [row for row in findings.runners_up(6) if id(row) not in shown][:4]
    return rows + [(f"runner-up {place}", row) for place, row in enumerate(runners, start=1)]


def breakdown(findings: Findings) -> Figure:
    """Stacked bars of the iteration time by part, winner first; bars end at the iteration time."""
    rows = breakdown_rows(findings)
    figure, (axes,) = canvas(0.8 + 0.5 * len(rows))
    longest = max(number_of(row, TIME) for _, row in rows)
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [max(0.0, number_of(row, part)) if number_of(row, part) > 0 else 0.0 for _, row in rows]
        if max(widths) <= 1e-4 * longest:
            continue
        axes.barh(range(len(rows)), widths, 0.66, left=left, color=PART_COLOURS[part], label=PART_NAMES[part])
        colour = INK if part in ("idle_s", "exposed_cp_s", "exposed_pp_s", "exposed_ep_s") else "white"
        for y, width in enumerate(widths):
            if width > LEAST_LABELLED * longest:
                axes.text(left[y] + width / 2, y, number(width), ha="center", va="center", color=colour, size=8)
            left[y] += width
    for y, (_, row) in enumerate(rows):
        _beside(axes, left[y], y, seconds(number_of(row, TIME)), size=9, weight="bold")
    horizontal(axes, len(rows))
    axes.set_xlim(0, longest * 1.1)
    labels = [f"{name}\n{wrapped(short_label(row, findings.varied), 46, 2)}" for name, row in rows]
    axes.set_yticks(range(len(rows)), labels, linespacing=1.15, size=7.8)
    axes.set_xlabel("time of one iteration, average over GPUs (s)")
    figure.legend(loc="outside upper right", ncols=8, columnspacing=1.3, handlelength=1.3)
    return figure


def pareto(findings: Findings, effects: Sequence[Effect]) -> Figure:
    """Iteration time against memory of every ok point of the headline environment, front, winner, baselines, limit."""
    rows = [row for row in findings.best() if number_of(row, "memory_gib") >= 0]
    figure, (axes,) = canvas(4.3)
    by = next((effect.dimension for effect in effects if 1 < len(effect.best) <= len(CATEGORIES)), None)
    values = findings.values[by] if by else [""]
    for value, colour in zip(values, CATEGORIES if by else (POINT,), strict=False):
        group = [row for row in rows if by is None or row[by] == value]
        if group:
            x, y = _memory_and_time(group)
            axes.plot(x, y, "o", ms=5, mew=0, alpha=0.65, color=colour, label=value_of(by, value) if by else None)
    front = findings.pareto()
    x, y = _memory_and_time(front)
    axes.step(x, y, where="post", color=INK, lw=1.2, label="Pareto front", zorder=3)
    _mark_points(axes, findings)
    limits = {number_of(row, "memory_limit_gib") for row in rows}
    if len(limits) == 1 and (limit := limits.pop()) > 0:
        axes.axvline(limit, color=INK, lw=1, ls=(0, (4, 3)))
        axes.annotate("memory limit", (limit, 1), (-5, -4), axes.get_xaxis_transform(), "offset points", size=8,
                      ha="right", va="top")  # fmt: skip
        end = limit + 0.06 * (limit - min(number_of(row, "memory_gib") for row in rows) + 1e-3 * limit)
        axes.axvspan(limit, end, color=GRID, lw=0)
        axes.set_xlim(None, end)
    times = _memory_and_time(rows)[1]
    if max(times) > 6 * min(times):
        axes.set_yscale("log")
    axes.grid()
    axes.set_xlabel("memory of a GPU, heaviest stage (GiB)")
    axes.set_ylabel("time of one iteration (s)")
    figure.legend(loc="outside right upper", title=wrapped(name_of(by), 20, 3) if by else None, alignment="left")
    return figure


def _memory_and_time(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [number_of(row, "memory_gib") for row in rows], [number_of(row, TIME) for row in rows]


def _mark_points(axes: Axes, findings: Findings) -> None:
    """The winner as a star, every baseline's point as a diamond."""
    seen: list[Row] = []
    marked: list[tuple[str, Row | None, str, int, str]] = [("winner", findings.winner(), "*", 15, WINNER)]
    marked += [(item.baseline, item.point, "D", 8, BASELINE) for item in findings.against()]
    for name, row, marker, size, colour in marked:
        if row is None or any(row is other for other in seen):
            continue
        seen.append(row)
        x, y = _memory_and_time([row])
        axes.plot(
            x, y, marker, ms=size, color=colour, mec="white", mew=1, label=name, ls="none", zorder=6 - len(seen) / 10
        )
        below = name == "winner"  # it is the lowest of all: the others' labels keep clear of it
        axes.annotate(name, (x[0], y[0]), (9, -4 if below else 5), textcoords="offset points", size=8.5,
                      va="top" if below else "bottom", weight="bold", zorder=5)  # fmt: skip


def _beside(
    axes: Axes, x: float, y: float, text: str, gap: float = 4, color: str = INK, size: float = 8, weight: str = "normal"
) -> None:
    """Text to the right of a bar's end or a marker, ``gap`` points away."""
    axes.annotate(
        text, (x, y), (gap, 0), textcoords="offset points", va="center", color=color, size=size, weight=weight
    )


def effects(found: Sequence[Effect], best: float) -> Figure:
    """What each dimension does: the best time with each of its values, as distance from the best time of all (s)."""
    from matplotlib.transforms import blended_transform_factory

    lines = sum(len(effect.best) for effect in found)
    height = 0.55 + 0.21 * (lines + 0.4 * len(found))
    figure, (axes,) = canvas(height, margins=(3.9, 0.1, 0.05, 0.5))
    names = blended_transform_factory(figure.transFigure, axes.transData)
    y, ticks, labels = 0.0, [], []
    for effect in found:
        axes.text(0.005, y, wrapped(name_of(effect.dimension), 32, 1), transform=names, va="center", weight="bold")
        for value, time in effect.best.items():
            ticks.append(y)
            labels.append(wrapped(value_of(effect.dimension, value), 26, 1))
            _effect_line(axes, y, best, time)
            y += 1
        axes.plot([0.005, 0.985], [y - 0.3] * 2, color=GRID, lw=0.8, transform=names, clip_on=False, zorder=1)
        y += 0.4
    slowest = max((time for effect in found for time in effect.best.values() if time == time), default=best)
    margin = max(slowest - best, 0.02 * best)
    axes.set_xlim(best - 0.02 * margin, slowest + 0.14 * margin)
    axes.set_ylim(y - 0.7, -0.7)
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel("best iteration time with the value, all else free (s)")
    return figure


def _effect_line(axes: Axes, y: float, best: float, time: float) -> None:
    if time != time:
        return _beside(axes, best, y, "no point with it ran", gap=8, color=MUTED)
    is_best = time <= best * (1 + 1e-9)
    axes.plot([best, time], [y, y], color=POINT, lw=2.2, solid_capstyle="butt", zorder=2)
    axes.plot(time, y, "o", ms=6.5, color=WINNER if is_best else BASELINE, zorder=3, clip_on=False)
    return _beside(axes, time, y, "best" if is_best else signed_percent(time / best - 1), gap=8)


def speedup_items(findings: Findings) -> list[Against]:
    """Comparisons that have a baseline point: when there is none, there is no figure to draw."""
    return [item for item in findings.comparisons if item.point is not None]


def memory_known(findings: Findings) -> bool:
    """Whether the headline's points carry a memory figure to draw."""
    return any(number_of(row, "memory_gib") >= 0 for row in findings.best())


def parts_known(findings: Findings) -> bool:
    """Whether the winner's time is broken down (the ASTRA-sim binary tells less than the embedded engine)."""
    winner = findings.winner()
    return winner is not None and any(number_of(winner, part) > 0 for part in PARTS)
