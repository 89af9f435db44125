"""Scatter plot of predicted against published times, with the errors below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .compare import Comparison, summarise


def write_scatter(rows: Sequence[Comparison], files: Sequence[Path]) -> None:
    """Write the plot to files whose suffix says the format. Equal input gives equal SVG bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "scaleacross", "font.size": 9, "svg.fonttype": "path"}):
        figure, (times, errors) = pyplot.subplots(
            2, 1, figsize=(6.4, 6.8), sharex=True, height_ratios=(3, 1.3), layout="constrained"
        )
        low, high = _range(rows)
        times.plot([low, high], [low, high], color="0.55", linewidth=0.8, zorder=1)
        times.fill_between([low, high], [low * 0.9, high * 0.9], [low * 1.1, high * 1.1], color="0.92", zorder=0)
        for number, table in enumerate(dict.fromkeys(row.table for row in rows)):
            own = [row for row in rows if row.table == table]
            style = {"color": f"C{number}", "marker": "osD^v"[number % 5], "s": 26, "zorder": 3, "linewidths": 0}
            summary = summarise(own)
            label = f"{table}: mean {summary.mean_pct:.1f} %, worst {summary.worst_pct:.1f} %"
            published = [row.published_s for row in own]
            times.scatter(published, [row.predicted_s for row in own], label=label, **style)
            errors.scatter(published, [row.error_pct for row in own], **style)
        times.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), ylabel="predicted iteration time (s)")
        times.set_title("Predicted against published; grey: within 10 %", fontsize=10)
        times.legend(loc="upper left", fontsize=8, frameon=False)
        errors.axhline(0, color="0.55", linewidth=0.8)
        errors.set(xlabel="published iteration time (s)", ylabel="error (%)")
        errors.grid(axis="y", color="0.9")
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=160, metadata=metadata)
        pyplot.close(figure)


def _range(rows: Sequence[Comparison]) -> tuple[float, float]:
    values = [value for row in rows for value in (row.published_s, row.predicted_s)]
    return min(values) / 1.3, max(values) * 1.3
