"""A schedule as a Gantt chart of characters, and as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Bar = tuple[int, float, float, str, int, int]

LEGEND = "F forward, B backward, W weight gradient, . idle; what most of a column is"
_NUMBERED = 6  # characters a bar needs on average for its micro-batch to be written into it


def gantt_lines(bars: Sequence[Bar], width: int = 100) -> list[str]:
    """Lines of characters, a pipeline stage each, time to the right, the whole step in ``width`` columns.

    Where bars are wide enough they are drawn with the number of their micro-batch.
    """
    stages = 1 + max(bar[0] for bar in bars)
    end = max(bar[2] for bar in bars)
    label = len(str(stages - 1)) + 3
    columns = width - label - 1
    rows: list[list[Bar]] = [[] for _ in range(stages)]
    for bar in bars:
        rows[bar[0]].append(bar)
    numbered = columns / max(map(len, rows)) >= _NUMBERED
    lines = [f"GANTT, {end * 1e-9:.3g} s wide: {LEGEND}"]
    for stage, row in enumerate(rows):
        line = _numbered(row, end, columns) if numbered else _letters(row, end, columns)
        lines.append(f"  {stage:>{label - 3}} {line}")
    return lines


def write_svg(title: str, bars: Sequence[Bar], path: Path) -> None:
    """Write the chart as an SVG file.

    Raises:
        InvalidInput: E-WRITE where the file cannot be written.
    """
    import io

    from ..files import write_atomic
    from ..report.gantt import from_schedule
    from ..report.gantt_figure import whole
    from ..report.style import styled

    with styled():
        figure = whole([from_schedule(title, bars, unit=1e-9)])
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": "ScaleAcross Explorer"})
    write_atomic(path, text.getvalue())


def _letters(row: Sequence[Bar], end: float, columns: int) -> str:
    """The kind that fills most of each column's time."""
    cell = end / columns
    filled: list[dict[str, float]] = [{} for _ in range(columns)]
    for _, start, stop, kind, _, _ in row:
        for column in range(int(start / cell), min(columns - 1, int(stop / cell)) + 1):
            part = min(stop, (column + 1) * cell) - max(start, column * cell)
            if part > 0:
                filled[column][kind] = filled[column].get(kind, 0.0) + part
    text = ""
    for parts in filled:
        parts["."] = cell - sum(parts.values())
        text += max(parts, key=lambda kind: parts[kind])
    return text


def _numbered(row: Sequence[Bar], end: float, columns: int) -> str:
    """Bars with their micro-batch: ``F3-----B1----------``."""
    text = ["."] * columns
    for _, start, stop, kind, micro_batch, _ in sorted(row, key=lambda bar: bar[1]):
        first, last = round(start / end * columns), round(stop / end * columns)
        body = f"{kind}{micro_batch}"[: max(1, last - first)].ljust(last - first, "-")
        text[first:last] = body
    return "".join(text[:columns])
