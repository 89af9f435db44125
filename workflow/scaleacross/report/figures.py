"""The figures of the report. Each function draws one and returns it; ``style.write_figure`` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..search.objective import Objective
from ..study.outcomes import MORE_IS_BETTER
from .findings import PARTS, TIME, Against, Effect, Findings
from .style import BASELINE, CATEGORIES, GRID, INK, MUTED, PART_COLOURS, POINT, WINNER, canvas, horizontal
from .tables import Row, number_of
from .words import (
    GAINS,
    PART_NAMES,
    column_label,
    compact,
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
    """Bars: gain of each environment's best design over each baseline in the study's objective, in percent."""
    objective = findings.objective
    environments = findings.environments[:MOST_ENVIRONMENTS]
    baselines = list(dict.fromkeys(item.baseline for item in findings.comparisons))
    figure, (axes,) = canvas(0.75 + 0.22 * len(environments) * (len(baselines) + 0.8))
    height = 0.8 / max(1, len(baselines))
    found = {(tuple(item.environment.values()), item.baseline): item for item in findings.comparisons}
    longest = max([100 * (item.gain(objective) or 0) for item in findings.comparisons], default=0) or 1
    for column, baseline in enumerate(baselines):
        for row, environment in enumerate(environments):
            item = found.get((tuple(environment.values()), baseline))
            y = row + (column - (len(baselines) - 1) / 2) * height
            gain = None if item is None else item.gain(objective)
            if gain is None:
                _beside(axes, 0, y, "no feasible point matches the baseline", color=MUTED)
                continue
            label = baseline if row == 0 or baseline not in axes.get_legend_handles_labels()[1] else None
            axes.barh(y, 100 * gain, height * 0.86, color=CATEGORIES[column % len(CATEGORIES)], label=label)
            _beside(axes, 100 * gain, y, signed_percent(gain), size=8.5)
    horizontal(axes, len(environments))
    axes.set_xlim(0, longest * 1.12)
    labels = [environment_text(environment) or "this study" for environment in environments]
    axes.set_yticks(range(len(environments)), [wrapped(label, 46) for label in labels])
    axes.set_xlabel(f"{GAINS[objective.name][0]} over baseline: {GAINS[objective.name][1]} (%)")
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


def pareto(findings: Findings, effects: Sequence[Effect], columns: Sequence[str]) -> Figure:
    """One column against another (y, x) of every ok point of the headline environment: front, winner, baselines."""
    rows = findings.known(columns)
    figure, (axes,) = canvas(4.3)
    by = next((effect.dimension for effect in effects if 1 < len(effect.best) <= len(CATEGORIES)), None)
    values = findings.values[by] if by else [""]
    for value, colour in zip(values, CATEGORIES if by else (POINT,), strict=False):
        group = [row for row in rows if by is None or row[by] == value]
        if group:
            y, x = _both(group, columns)
            axes.plot(x, y, "o", ms=5, mew=0, alpha=0.65, color=colour, label=value_of(by, value) if by else None)
    y, x = _both(sorted(findings.pareto(columns), key=lambda row: number_of(row, columns[1])), columns)
    where: Literal["pre", "post"] = "pre" if columns[1] in MORE_IS_BETTER else "post"
    axes.step(x, y, where=where, color=INK, lw=1.2, label="Pareto front", zorder=3)
    axes.plot(x, y, ".", ms=4, color=INK, zorder=3)
    _mark_points(axes, findings, columns)
    if columns[1] == "memory_gib":
        _memory_limit(axes, rows)
    for values_of, scale in zip(_both(rows, columns), (axes.set_yscale, axes.set_xscale), strict=True):
        if max(values_of) > 6 * min(values_of) > 0:
            scale("log")
    for axis, values_of in zip((axes.yaxis, axes.xaxis), _both(rows, columns), strict=True):
        if max(values_of) >= 1e4:
            axis.set_major_formatter(lambda value, _: compact(value))
    axes.grid()
    axes.set_xlabel(column_label(columns[1]))
    axes.set_ylabel(column_label(columns[0]))
    figure.legend(loc="outside right upper", title=wrapped(name_of(by), 20, 3) if by else None, alignment="left")
    return figure


def _memory_limit(axes: Axes, rows: Sequence[Row]) -> None:
    """A line at the memory a GPU has, where it is the same for all."""
    limits = {number_of(row, "memory_limit_gib") for row in rows}
    if len(limits) != 1 or not (limit := limits.pop()) > 0:
        return
    axes.axvline(limit, color=INK, lw=1, ls=(0, (4, 3)))
    axes.annotate("memory limit", (limit, 1), (-5, -4), axes.get_xaxis_transform(), "offset points", size=8,
                  ha="right", va="top")  # fmt: skip
    end = limit + 0.06 * (limit - min(number_of(row, "memory_gib") for row in rows) + 1e-3 * limit)
    axes.axvspan(limit, end, color=GRID, lw=0)
    axes.set_xlim(None, end)


def _both(rows: Sequence[Row], columns: Sequence[str]) -> tuple[list[float], list[float]]:
    one, other = ([number_of(row, name) for row in rows] for name in columns)
    return one, other


def _mark_points(axes: Axes, findings: Findings, columns: Sequence[str]) -> None:
    """The winner as a star, every baseline's point as a diamond."""
    seen: list[Row] = []
    marked: list[tuple[str, Row | None, str, int, str]] = [("winner", findings.winner(), "*", 15, WINNER)]
    marked += [(item.baseline, item.point, "D", 8, BASELINE) for item in findings.against()]
    for name, row, marker, size, colour in marked:
        if row is None or any(row is other for other in seen):
            continue
        seen.append(row)
        y, x = _both([row], columns)
        axes.plot(
            x, y, marker, ms=size, color=colour, mec="white", mew=1, label=name, ls="none", zorder=6 - len(seen) / 10
        )
        below = name == "winner"  # it is at the edge of all: the others' labels keep clear of it
        axes.annotate(name, (x[0], y[0]), (9, -4 if below else 5), textcoords="offset points", size=8.5,
                      va="top" if below else "bottom", weight="bold", zorder=5)  # fmt: skip


def _beside(
    axes: Axes, x: float, y: float, text: str, gap: float = 4, color: str = INK, size: float = 8, weight: str = "normal"
) -> None:
    """Text to the right of a bar's end or a marker, ``gap`` points away."""
    axes.annotate(
        text, (x, y), (gap, 0), textcoords="offset points", va="center", color=color, size=size, weight=weight
    )


def effects(found: Sequence[Effect], best: float, objective: Objective) -> Figure:
    """What each dimension does: the best score with each of its values, as distance from the best score of all."""
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
    axes.set_xlabel(f"best {objective.measure} with the value, all else free ({objective.unit.split(' ')[0]})")
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


def parts_known(findings: Findings) -> bool:
    """Whether the winner's time is broken down (the ASTRA-sim binary tells less than the embedded engine)."""
    winner = findings.winner()
    return winner is not None and any(number_of(winner, part) > 0 for part in PARTS)
