"""What a certified search has done and shown, and its table of plans."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ..study.tables import cell

Values = Mapping[str, Any]
PLAN_STATE = ("status", "reason", "points", "simulated", "bound")


@dataclass
class Certificate:
    """What a search has done in one environment.

    Attributes:
        points: combinations, of which constraints exclude ``excluded``; infeasible: these, and points of plans (or
            pairs) that were found infeasible. A plan whose floor rules it out is not looked at further.
        plans: combinations of what changes plans; plans_left: by the constraints; plans_infeasible: of these.
        bounds: computed, of plans, groups and points. simulated: pairs of plan and configuration; failed: of these, not
            ended as they should. pruned: points never simulated, each with a bound above the optimum (if ``ended`` is
            ``complete``).
        objective: what the score is. optimum, least_bound: the best score, and the least bound of anything that was not
            simulated or has failed, None where nothing is. optimum_s, least_bound_s: the same where the score is time.
        gap: how far, as a share, the optimum could be above the true one; 0 when nothing left could beat it, None
            where no optimum was found.
        ended: ``complete``, or ``time limit``. reasons: what excludes points or makes them infeasible -> how many.
        seconds: wall time.
    """

    environment: Values
    points: int = 0
    excluded: int = 0
    infeasible: int = 0
    plans: int = 0
    plans_left: int = 0
    plans_infeasible: int = 0
    bounds: int = 0
    simulated: int = 0
    failed: int = 0
    pruned: int = 0
    objective: str = "iteration_time"
    optimum: float | None = None
    least_bound: float | None = None
    optimum_s: float | None = None
    least_bound_s: float | None = None
    gap: float | None = None
    ended: str = "complete"
    reasons: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``certificate.yaml``."""
        return {**vars(self), "environment": dict(self.environment), "seconds": round(self.seconds, 1)}

    def judge(self, optimum: float, optimum_s: float, left: float) -> None:
        """Enter the best score, its time, and the least bound of what was not simulated."""
        found, is_time = optimum < float("inf"), self.objective == "iteration_time"
        self.optimum, self.optimum_s = (optimum, optimum_s) if found else (None, None)
        self.least_bound = left if left < float("inf") else None
        self.least_bound_s = self.least_bound if is_time else None
        self.gap = max(0.0, optimum / left - 1 if left < optimum else 0.0) if found else None


def certificate_text(study: str, certificates: Sequence[Certificate]) -> str:
    """``certificate.yaml``."""
    content = {
        "study": study,
        "search": "certified",
        "meaning": "no point that was not simulated is better than the optimum: each has a lower bound above it "
        "(by at most the gap, where a search was stopped or points failed)",
        "environments": [certificate.as_dict() for certificate in certificates],
    }
    return yaml.safe_dump(content, sort_keys=False, width=120)


def plans_table(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> bytes:
    """``plans.csv.gz``: a row for every plan and environment that constraints leave, with what became of its points.

    Args:
        rows: values of ``names``, then of ``PLAN_STATE``; the same rows give the same bytes.
    """
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=5) as stream,
        io.TextIOWrapper(stream, newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *PLAN_STATE])
        writer.writerows([cell(value) for value in row] for row in rows)
    return packed.getvalue()
