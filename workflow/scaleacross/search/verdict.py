"""Whether a finished study can be trusted: the share of its feasible points that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..errors import ScaleAcrossError
from ..study.tables import Row

FAILED = ("timeout", "deadlock", "crash", "invalid")
ORDER = ("ok", "infeasible", "rejected", "unphysical", *FAILED)


def judge(rows: Sequence[Row], threshold: float) -> str:
    """One line with the number of points of each status.

    Args:
        rows: rows of ``results.csv``.
        threshold: share of the feasible points that may fail, 0 to 1.

    Raises:
        ScaleAcrossError: E-FAILURES above the threshold, or when no point is ok; with the counts and a first example.
    """
    counts = Counter(row["status"] for row in rows)
    text = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    failed = [row for row in rows if row["status"] in FAILED]
    feasible = sum(1 for row in rows if row["status"] != "infeasible")
    share = len(failed) / feasible if feasible else 0.0
    if share > threshold:
        example = failed[0]
        raise ScaleAcrossError(
            "E-FAILURES",
            f"{len(failed)} of {feasible} feasible points failed ({share:.1%}, allowed {threshold:.1%}): {text}; "
            f"for example {example['point_id']}, {example['status']}: {example['reason']}",
            "read the column reason; snakemake --forcerun simulate tries timeouts and crashes again",
        )
    if not counts["ok"]:
        raise ScaleAcrossError("E-FAILURES", f"no point is ok: {text or 'no points'}", "read the column reason")
    return f"{len(rows)} points: {text}"
