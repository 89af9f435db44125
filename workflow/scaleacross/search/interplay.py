"""The value of choosing placement, schedule and network together: joint optimum against optimizing part after part.

From the table of simulated points where it holds all of them, else from points simulated when a method asks for them
(:mod:`.ondemand`): exact for the study either way. Start is the production point. *One group alone* changes
one group of dimensions and leaves the others as they are; *each group alone* puts the best values of all three
together; *sequential* optimizes the groups one after the other, each with what the ones before it chose. Whatever ends
above the joint optimum lost that much to interaction, and the pair of groups (and of dimensions) whose joint change
from there gains most is what it lost it to. Where one part changed alone gains it all, the order was wrong: the pair
is that part and the one whose later change made its value wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Protocol

from ..study.tables import Row, cell
from .objective import ITERATION_TIME, TIME, Objective
from .select import Rules, baseline_row, best, contenders, environments

PLACEMENT = frozenset({"tp", "cp", "pp", "dp", "ep", "etp", "order", "layout", "dp_shard", "dp_sharding"})
SCHEDULE = frozenset(
    {
        "schedule",
        "chunks",
        "micro_batch",
        "dp_overlap",
        "bucket_layers",
        "recompute",
        "p2p_overlap",
        "scatter_gather",
        "cp_method",
        "fixed_order",
        "in_flight",
        "split",
    }
)
GROUPS = ("placement", "schedule", "network")
COLUMNS = (
    "method",
    "order",
    "point_id",
    "iteration_time_s",
    "loss_pct",
    "pair",
    "pair_gain_pct",
    "dimensions",
    "dimensions_gain_pct",
)
_SLACK = 1e-9


class Choices(Protocol):
    """The points of one environment as methods go through them."""

    @property
    def keys(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def objective(self) -> Objective: ...
    def free(self, start: Row, names: Iterable[str]) -> Row: ...
    def at(self, values: Mapping[str, str]) -> Row | None: ...


@dataclass(frozen=True)
class Space:
    """The ok points of one environment. ``keys``: the dimensions that vary, by group."""

    rows: Sequence[Row]
    keys: Mapping[str, tuple[str, ...]]
    objective: Objective = ITERATION_TIME

    @property
    def names(self) -> tuple[str, ...]:
        """All dimensions that vary."""
        return tuple(name for group in GROUPS for name in self.keys[group])

    def free(self, start: Row, names: Iterable[str]) -> Row:
        """The best point that differs from ``start`` in these dimensions alone (``start`` itself where none is ok)."""
        kept = [name for name in self.names if name not in set(names)]
        found = best(
            [row for row in self.rows if all(row.get(name) == start.get(name) for name in kept)], self.objective
        )
        return start if found is None else found

    def at(self, values: Mapping[str, str]) -> Row | None:
        """The point with these values, if it is ok."""
        return best(
            [row for row in self.rows if all(row.get(name) == value for name, value in values.items())], self.objective
        )


def group_of(dimension: str) -> str:
    """Placement, schedule or network: what is neither of the first two changes the network."""
    return "placement" if dimension in PLACEMENT else "schedule" if dimension in SCHEDULE else "network"


def grouped(dimensions: Sequence[str], rows: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    """Dimensions that take more than one value among the rows, by group."""
    varied = [name for name in dimensions if len({cell(row.get(name)) for row in rows}) > 1]
    return {group: tuple(name for name in varied if group_of(name) == group) for group in GROUPS}


def interplay_rows(
    rows: Sequence[Row],
    rules: Rules,
    dimensions: Sequence[str],
    start: str | None = None,
    on_demand: Callable[[Mapping[str, str]], Choices] | None = None,
) -> list[Row]:
    """Rows of ``interplay.csv``: for every environment that has a start and an optimum, a row a method.

    Args:
        rows: of ``results.csv``. dimensions: the study's own (no environment, no derived ``dp``).
        start: baseline to start from; default ``production``, else the first.
        on_demand: the points of an environment where the table does not hold all; then pairs are looked for in the
            headline alone.
    """
    start = start or ("production" if "production" in rules.baselines else next(iter(rules.baselines), None))
    table: list[Row] = []
    if start is None:
        return table
    for number, environment in enumerate(environments(rules)):
        ranked = contenders(rows, rules, environment)
        first, joint = baseline_row(ranked, rules, start), best(ranked, rules.objective)
        if first is not None and joint is not None:
            space: Choices = Space(ranked, grouped(dimensions, ranked), rules.objective)
            if on_demand is not None:
                space = on_demand(environment)
            pairs = on_demand is None or number == 0
            table += [{**environment, **row} for row in _methods(space, start, first, joint, pairs)]
    return table


def _methods(space: Choices, name: str, start: Row, joint: Row, pairs: bool) -> Iterator[Row]:
    yield _row(space, "joint", "", joint, joint, pairs)
    yield _row(space, f"none ({name})", "", start, joint, pairs)
    alone = {group: space.free(start, space.keys[group]) for group in GROUPS}
    for group in GROUPS:
        yield _row(space, "one group alone", group, alone[group], joint, pairs)
    values = {key: alone[group][key] for group in GROUPS for key in space.keys[group]}
    together = space.at(values)
    if together is None:  # the three choices exclude each other: no such point is ok
        yield {"method": "each group alone, put together", "order": "no ok point"}
    else:
        yield _row(space, "each group alone, put together", "", together, joint, pairs)
    for order in permutations(GROUPS):
        now = start
        for group in order:
            now = space.free(now, space.keys[group])
        yield _row(space, "sequential", ", ".join(order), now, joint, pairs, start)


def _row(space: Choices, method: str, order: str, point: Row, joint: Row, pairs: bool, start: Row | None = None) -> Row:
    row: Row = {
        "method": method,
        "order": order,
        "point_id": point["point_id"],
        "iteration_time_s": point[TIME],
        "loss_pct": space.objective.gain_pct(joint, point),
    }
    if pairs and row["loss_pct"] > 100 * _SLACK:
        groups = {group: space.keys[group] for group in GROUPS if space.keys[group]}
        for column, parts in (("pair", groups), ("dimensions", {name: (name,) for name in space.names})):
            found = strongest_pair(space, point, parts)
            if not found[0] and start is not None:
                found = overtaken_pair(space, point, parts, start)
            row[column], row[f"{column}_gain_pct"] = found
    return row


def strongest_pair(space: Choices, point: Row, parts: Mapping[str, Sequence[str]]) -> tuple[str, float | None]:
    """The two parts whose joint change from a point gains most beyond what the better of them gains alone, in percent.

    The gain is (score with the better one free) / (score with both free) - 1, where the score is the objective's, time
    or cost. Nothing where no pair interacts.
    """
    score = space.objective.score
    alone = {part: score(space.free(point, names)) for part, names in parts.items()}
    found, gain = "", 0.0
    for one, other in combinations(parts, 2):
        both = score(space.free(point, [*parts[one], *parts[other]]))
        extra = 100.0 * (min(alone[one], alone[other]) / both - 1.0)
        if extra > gain + _SLACK:
            found, gain = f"{one} x {other}", extra
    return found, gain if found else None


def overtaken_pair(
    space: Choices, point: Row, parts: Mapping[str, Sequence[str]], start: Row
) -> tuple[str, float | None]:
    """The part that is worth changing alone, with the part whose change from ``start`` made it so, in percent.

    The gain of (one, other) is what freeing ``one`` gains at the point, less what it gains with ``other`` back at its
    value in ``start``: the interaction contrast of the two. Nothing where no part gains alone.
    """

    def gain_of_freeing(row: Row, part: str) -> float:
        return 100.0 * (space.objective.score(row) / space.objective.score(space.free(row, parts[part])) - 1.0)

    found, most = "", 0.0
    for one in parts:
        gain = gain_of_freeing(point, one)
        for other in parts:
            changed = other != one and any(point[name] != start[name] for name in parts[other])
            if not changed or gain <= most + _SLACK:
                continue
            values = {name: point[name] for name in space.names} | {name: start[name] for name in parts[other]}
            before = space.at(values)
            extra = gain if before is None else gain - gain_of_freeing(before, one)
            if extra > most + _SLACK:
                found, most = f"{one} x {other}", extra
    return found, most if found else None


def sentence(table: Sequence[Row], environment: Mapping[str, str]) -> str:
    """The interplay of one environment in a sentence for the report, empty where nothing was compared."""
    rows = [row for row in table if all(row.get(name) == value for name, value in environment.items())]
    orders = [row for row in rows if row["method"] == "sequential" and row.get("loss_pct") not in (None, "")]
    if not orders:
        return ""
    losses = {row["order"]: float(row["loss_pct"]) for row in orders}
    low, high = min(losses, key=lambda order: losses[order]), max(losses, key=lambda order: losses[order])
    if losses[high] <= 100 * _SLACK:
        return "Optimizing placement, schedule and network one after the other, in any order, finds the joint optimum."
    most = f"{losses[high]:.2f} %"
    range_ = (
        f"{losses[low]:.2f} % ({low}) to {most} ({high})" if f"{losses[low]:.2f} %" != most else f"{most} (any order)"
    )
    text = f"One after the other loses {range_} on the joint optimum"
    pair = next((str(row["dimensions"] or row["pair"]) for row in orders if row["order"] == high), "")
    return f"{text}; what interacts most there is {pair}." if pair else f"{text}."
