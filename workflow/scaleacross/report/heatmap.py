"""Heat map: the best iteration time for each pair of values of two dimensions that matter most."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from .findings import Effect, Findings
from .style import GRID, INK, canvas
from .tables import NAN, text_of
from .words import name_of, number, signed_percent, value_of, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_VALUES = 16  # of a dimension that is drawn
FILLED = 0.75  # of the combinations of a pair must have run, for the pair to be preferred
FULL = 0.5  # from this much over the best time on, a cell has the lightest colour


def pair_of(findings: Findings, effects: Sequence[Effect]) -> tuple[str, str] | None:
    """The pair of dimensions with the largest effects that combine freely, the one with more values across.

    Where too few combinations of every pair ran, the pair with the largest effects; None for fewer than two dimensions.
    """
    found = [effect for effect in effects if 1 < len(effect.best) <= MOST_VALUES]
    pairs = sorted(combinations(found, 2), key=lambda pair: -sum(effect.spread for effect in pair))
    if not pairs:
        return None
    chosen = next((pair for pair in pairs if _filled(findings, pair) >= FILLED), pairs[0])
    across, down = sorted(chosen, key=lambda effect: -len(effect.best))
    return across.dimension, down.dimension


def _filled(findings: Findings, pair: Sequence[Effect]) -> float:
    """Share of the combinations of two dimensions' values that have a point with a time."""
    one, other = pair
    return len(best_scores(findings, one.dimension, other.dimension)) / (len(one.best) * len(other.best))


def best_scores(findings: Findings, across: str, down: str) -> dict[tuple[str, str], float]:
    """(value of ``across``, value of ``down``) -> best score with both, everything else free, in the headline
    environment."""
    found: dict[tuple[str, str], float] = {}
    for row in findings.best():
        key = (text_of(row, across), text_of(row, down))
        found[key] = min(findings.objective.score(row), found.get(key, float("inf")))
    return found


def ordered(values: Sequence[str]) -> list[str]:
    """Numbers by size, anything else as it comes."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return list(values)


def heat_map(findings: Findings, across: str, down: str) -> Figure:
    """The darker the better; each cell says its best time (or cost of a token) and how far that is from the best."""
    from matplotlib.colors import LinearSegmentedColormap

    scores, unit = best_scores(findings, across, down), findings.objective.unit.split(" ")[0]
    columns, lines = ordered(findings.values[across]), ordered(findings.values[down])
    best = min(scores.values())
    grid = [[scores.get((column, line), NAN) / best - 1 for column in columns] for line in lines]
    figure, (axes,) = canvas(1.0 + 0.5 * len(lines))
    colours = LinearSegmentedColormap.from_list("time", ["#0072B2", "#8cc4e8", "#f3f6f8"])
    top = min(FULL, max(max(value for line in grid for value in line if value == value), 1e-3))
    axes.imshow(grid, cmap=colours, vmin=0.0, vmax=top, aspect="auto", interpolation="nearest")
    for y, line in enumerate(grid):
        for x, over in enumerate(line):
            if over != over:
                axes.text(x, y, "no point ran", ha="center", va="center", size=8, color="#667281")
                continue
            told = "best" if over == 0 else signed_percent(over)
            colour = "white" if over < 0.3 * top else INK
            text = f"{number(best * (1 + over))} {unit}\n{told}"
            weight = "bold" if over == 0 else "normal"
            axes.text(x, y, text, ha="center", va="center", size=8, color=colour, weight=weight)
    axes.set_xticks(range(len(columns)), [wrapped(value_of(across, v), 20, 2) for v in columns])
    axes.set_yticks(range(len(lines)), [wrapped(value_of(down, v), 26, 2) for v in lines])
    axes.set_xticks([k - 0.5 for k in range(1, len(columns))], minor=True)
    axes.set_yticks([k - 0.5 for k in range(1, len(lines))], minor=True)
    axes.grid(which="minor", color="white", lw=2)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color(GRID)
    axes.set_xlabel(name_of(across))
    axes.set_ylabel(name_of(down))
    return figure
