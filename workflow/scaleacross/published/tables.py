"""The comparison as CSV rows and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .compare import Comparison, Summary, summarise

COLUMNS = (
    "table",
    "row",
    "study",
    "point_id",
    "gpus",
    "held_out",
    "predicted_s",
    "published_s",
    "error_pct",
    "predicted_tflops_per_gpu",
    "published_tflops_per_gpu",
    "compute_s",
    "exposed_tp_s",
    "exposed_cp_s",
    "exposed_pp_s",
    "exposed_dp_s",
    "idle_s",
    "note",
)


def csv_rows(rows: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Rows of ``validation.csv``, its columns in ``COLUMNS``; times in seconds, the error in percent."""
    return [
        {
            **{name: round(seconds, 4) for name, seconds in row.parts.items()},
            "table": row.table,
            "row": row.row,
            "study": row.study,
            "point_id": row.point_id,
            "gpus": row.gpus,
            "held_out": str(row.held_out).lower(),
            "predicted_s": round(row.predicted_s, 4),
            "published_s": round(row.published_s, 4),
            "error_pct": round(row.error_pct, 2),
            "predicted_tflops_per_gpu": round(row.flops_per_gpu / row.predicted_s / 1e12, 1),
            "published_tflops_per_gpu": round(row.flops_per_gpu / row.published_s / 1e12, 1),
            "note": row.note,
        }
        for row in rows
    ]


def markdown(rows: Sequence[Comparison]) -> str:
    """A table of all rows under the errors of each published table, of the rows held out, and of all."""
    lines = [
        "| table | rows | mean error | worst | bias | pairs in wrong order by time | by FLOP/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    names = list(dict.fromkeys(row.table for row in rows))
    for name in names:
        lines.append(_summary(name, summarise([row for row in rows if row.table == name])))
    for name, held_out in (("**all but held out**", False), ("**held out**", True)):
        lines.append(_summary(name, summarise([row for row in rows if row.held_out is held_out])))
    lines += [_summary("**all**", summarise(rows)), ""]
    lines += [
        "| table | row | GPUs | predicted (s) | published (s) | error |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row.predicted_s:.2f} | {row.published_s:.2f} | {row.error_pct:+.1f} %"
        lines.append(f"| {row.table} | {row.row} | {row.gpus:,} | {times} |")
    return "\n".join(lines) + "\n"


def _summary(name: str, summary: Summary) -> str:
    errors = f"{summary.mean_pct:.2f} % | {summary.worst_pct:.2f} % | {summary.bias_pct:+.2f} %"
    orders = " | ".join(f"{order.inversions} of {order.pairs}" for order in (summary.by_time, summary.by_rate))
    return f"| {name} | {summary.rows} | {errors} | {orders} |"
