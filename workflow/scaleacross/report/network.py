"""The report's section on the network: what crosses each tier, how full its links are, what binds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .findings import TIME, Findings
from .style import CATEGORIES, MUTED, canvas, horizontal
from .tables import Row, number_of, text_of
from .words import number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BASELINES = 3
_GBIT = 8.0  # of a GB


def compared(findings: Findings) -> list[tuple[str, Row]]:
    """The winner and the first baselines that have points of their own; one that is the winner shares its name."""
    winner = findings.winner()
    if winner is None:
        return []
    rows = [("winner", winner)]
    for item in findings.against():
        if item.point is winner:
            rows[0] = (f"{rows[0][0]}, {item.baseline}", winner)
        elif item.point is not None and all(item.point is not row for _, row in rows):
            rows.append((item.baseline, item.point))
    return rows[: 1 + MOST_BASELINES]


def network_section(findings: Findings) -> dict[str, Any]:
    """A line a tier with cells for each design, and what binds each design; no rows where no tier is known."""
    designs = compared(findings)
    rows = []
    for tier in findings.tiers:
        if any(number_of(row, f"{kind}_{tier}_gb") > 0 for _, row in designs for kind in ("sent", "cut")):
            rows.append((tier, [cell for _, row in designs for cell in _cells(row, tier)]))
    return {
        "designs": [name for name, _ in designs],
        "rows": rows,
        "binds": [(what, " and ".join(names)) for what, names in _binds(designs).items()],
    }


def _binds(designs: Sequence[tuple[str, Row]]) -> dict[str, list[str]]:
    """What binds -> the designs that it binds."""
    found: dict[str, list[str]] = {}
    for name, row in designs:
        if what := text_of(row, "bottleneck"):
            found.setdefault(what, []).append(name)
    return found


def _cells(row: Row, tier: str) -> list[str]:
    sent, cut = number_of(row, f"sent_{tier}_gb"), number_of(row, f"cut_{tier}_gb")
    return [
        number(sent),
        number(cut),
        number(cut * _GBIT / number_of(row, TIME)),
        percent(number_of(row, f"busy_{tier}")),
    ]


def busy_known(findings: Findings) -> bool:
    """Whether the compared designs' rows say how full links are."""
    return any(number_of(row, f"busy_{tier}") >= 0 for _, row in compared(findings) for tier in findings.tiers)


def utilisation(findings: Findings) -> Figure:
    """Bars: share of the iteration that compute and the fullest link of each tier are in use, a colour a design."""
    designs = compared(findings)
    resources = ["compute", *findings.tiers]
    figure, (axes,) = canvas(0.8 + (0.2 * len(designs) + 0.16) * len(resources))
    height = 0.82 / len(designs)
    for k, (name, row) in enumerate(designs):
        values = [100 * share for share in _shares(row, findings.tiers)]
        places = [line + (k - (len(designs) - 1) / 2) * height for line in range(len(resources))]
        axes.barh(places, [v if v == v else 0.0 for v in values], height * 0.88, color=CATEGORIES[k], label=name)
        for y, value in zip(places, values, strict=True):
            told = "not known" if value != value else f"{value:.1f} %" if value < 10 else f"{value:.0f} %"
            axes.annotate(told, (value if value == value else 0.0, y), (4, 0), textcoords="offset points", va="center",
                          size=8, color=MUTED if value != value else "black")  # fmt: skip
    horizontal(axes, len(resources))
    axes.set_xlim(0, max(100.0, axes.get_xlim()[1]))
    axes.set_yticks(range(len(resources)), ["compute", *(f"{tier} links" for tier in findings.tiers)])
    axes.set_xlabel("in use, of one iteration (%)")
    if len(designs) > 1:
        figure.legend(loc="outside upper right", ncols=len(designs))
    return figure


def _shares(row: Row, tiers: Sequence[str]) -> list[float]:
    return [number_of(row, "compute_s") / number_of(row, TIME), *(number_of(row, f"busy_{tier}") for tier in tiers)]


def critical_section(paths: Sequence[tuple[str, dict[str, float]]]) -> dict[str, Any]:
    """Table of what the critical path of each design consists of: a line a kind of operator, seconds and share.

    ``paths``: name of a design and seconds by kind of operator, of those whose path is known.
    """
    known = [(name, parts) for name, parts in paths if parts]
    order = dict.fromkeys(kind for _, parts in known for kind in parts)
    rows = []
    for kind in order:
        cells = []
        for _, parts in known:
            share = parts.get(kind, 0.0) / sum(parts.values())
            cells += [f"{number(parts.get(kind, 0.0))} s", percent(share)]
        rows.append((_KINDS.get(kind, kind), cells))
    return {"designs": [name for name, _ in known], "rows": rows}


_KINDS = {
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "pp": "pipeline sends",
    "dp": "data-parallel communication",
    "other": "other",
}
