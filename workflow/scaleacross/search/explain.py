"""Why an optimum is one: what each chosen knob bought, and what the design uses up.

A knob is turned back alone, everything else as in the optimum, so its cost is that of the knob on top of the others;
where no such point is ok, it is forced alone and the others chosen anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..study.tables import Row, cell
from .objective import ITERATION_TIME, Objective
from .select import TIME, best

FULL = 0.95  # of its memory: from here on memory is what binds
_DIGITS = 4


def knobs(
    winner: Row,
    ranked: Sequence[Row],
    against: Row | None,
    dimensions: Sequence[str],
    complete: bool = True,
    objective: Objective = ITERATION_TIME,
    turned: Sequence[Row] = (),
) -> dict[str, dict[str, Any]]:
    """What every dimension that varies bought: turned back to the baseline's value, else to the next best one.

    Args:
        winner: of the environment. ranked: its ok points. against: the baseline's point, if there is one.
        complete: whether all points were simulated; where a search left some out, another point may cost less.
        turned: then the ok points that differ from the winner in one dimension, simulated for this.

    Returns:
        Dimension -> value, ``instead`` (the other value), ``costs_pct`` (its score over the optimum's, minus 1),
        ``alone`` (True: nothing else changed; False: the other dimensions were chosen anew), ``at_most`` (True: a point
        that was not simulated may cost less).
    """
    ranked = [*ranked, *turned]
    varied = [name for name in dimensions if len({cell(row.get(name)) for row in ranked}) > 1]
    found = {}
    for name in varied:
        others = [row for row in ranked if row.get(name) != winner.get(name)]
        back = None if against is None or against.get(name) == winner.get(name) else against.get(name)
        wanted = [row for row in others if back is None or row.get(name) == back]
        alone = [row for row in wanted if all(row.get(key) == winner.get(key) for key in varied if key != name)]
        other = best(alone, objective) or best(wanted, objective) or best(others, objective)
        if other is not None:
            found[name] = {
                "value": winner.get(name),
                "instead": other.get(name),
                "costs_pct": round(objective.gain_pct(winner, other), _DIGITS),
                "alone": other in alone,
                "at_most": not complete and not (other in alone and (back is not None or bool(turned))),
                "point_id": other["point_id"],
            }
    return dict(sorted(found.items(), key=lambda item: -item[1]["costs_pct"]))


def uses(winner: Row) -> dict[str, Any]:
    """Share of the iteration that compute and the fullest link of every tier are in use, share of memory, what binds.

    From the row: its bottleneck (see the data dictionary), and memory where it is all but full.
    """
    shares: dict[str, float] = {}
    if winner.get("compute_s") is not None:
        shares["compute"] = winner["compute_s"] / winner[TIME]
    busy = {name.removeprefix("busy_"): value for name, value in winner.items() if name.startswith("busy_")}
    shares.update({tier: float(value) for tier, value in busy.items() if value is not None})
    result: dict[str, Any] = {"share": {name: round(share, _DIGITS) for name, share in shares.items()}}
    if winner.get("memory_gib") and winner.get("memory_limit_gib"):
        result["memory"] = round(winner["memory_gib"] / winner["memory_limit_gib"], _DIGITS)
    binds = [str(winner["bottleneck"])] if winner.get("bottleneck") else []
    if result.get("memory", 0.0) >= FULL:
        binds.append("memory")
    if binds:
        result["binds"] = " and ".join(binds)
    return result
