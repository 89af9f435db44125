"""Points of one environment that are simulated when asked for: what the interplay of a certified search needs.

A search leaves most points without a time. Methods that choose part after part go through points it never looked at;
here each subspace that they ask for is searched as the whole space was, by lower bounds, the least first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from ..errors import Infeasible, LimitReached
from ..study.points import make_id
from ..study.schema import Study
from ..study.tables import Row, cell
from .interplay import GROUPS, group_of, interplay_rows
from .objective import ITERATION_TIME, TIME, Objective
from .select import Rules
from .whatif import NEVER, Bench

MOST = 4096  # points of a subspace that is searched


@dataclass
class OnDemand:
    """The points of one environment. ``known``: result rows of the table, with their dimensions as cells.

    Raises:
        LimitReached: E-SUBSPACE from :meth:`free` where a subspace has more than ``MOST`` points.
    """

    bench: Bench
    environment: Mapping[str, str]
    known: Sequence[Row]
    objective: Objective = ITERATION_TIME
    _rows: dict[tuple[str, ...], Row | None] = field(default_factory=dict)
    _bounds: dict[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        study = self.bench.designer.study
        self.swept: dict[str, dict[str, Any]] = {
            name: {cell(value): value for value in values} for name, values in study.swept.items()
        }
        varied = [name for name, values in study.dimensions.items() if len(values) > 1]
        self.keys = {group: tuple(name for name in varied if group_of(name) == group) for group in GROUPS}
        for row in self.known:
            if all(row.get(name) == value for name, value in self.environment.items()):
                counts = row["status"] == "ok" and row.get(TIME) is not None
                self._rows[self._key(row)] = row if counts else None

    @property
    def names(self) -> tuple[str, ...]:
        """All dimensions that vary."""
        return tuple(name for group in GROUPS for name in self.keys[group])

    def free(self, start: Row, names: Iterable[str]) -> Row:
        """The best point that differs from ``start`` in these dimensions alone (``start`` itself where none is ok)."""
        free = list(names)
        count = prod(len(self.swept[name]) for name in free)
        if count > MOST:
            raise LimitReached(
                "E-SUBSPACE", f"{count} points differ in {' '.join(free)}", f"at most {MOST} are searched"
            )
        best, heap = start, []
        for combination in product(*(self.swept[name] for name in free)):
            cells = {**{name: str(start[name]) for name in self.swept}, **dict(zip(free, combination, strict=True))}
            key = self._key(cells)
            found = self._rows.get(key)
            if found is not None and found[TIME] < best[TIME]:
                best = found
            if key not in self._rows:
                heap.append((self._bounds.get(key, 0.0), key in self._bounds, key))
        heapq.heapify(heap)
        while heap:
            least, bounded, key = heapq.heappop(heap)
            if least >= best[TIME]:
                break
            if not bounded:
                self._bounds[key] = self._bound(key)
                heapq.heappush(heap, (self._bounds[key], True, key))
                continue
            found = self._simulated(key)
            if found is not None and found[TIME] < best[TIME]:
                best = found
        return best

    def at(self, values: Mapping[str, str]) -> Row | None:
        """The point with these values, if it is ok; what they leave out has one value."""
        given = {**self.environment, **values}
        cells = {name: given.get(name) or next(iter(self.swept[name])) for name in self.swept}
        key = self._key(cells)
        if key not in self._rows and self._bound(key) < NEVER:
            return self._simulated(key)
        return self._rows.get(key)

    def _key(self, cells: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(cells[name]) for name in self.swept)

    def _values(self, key: tuple[str, ...]) -> dict[str, Any]:
        return {name: values[text] for (name, values), text in zip(self.swept.items(), key, strict=True)}

    def _bound(self, key: tuple[str, ...]) -> float:
        """A lower bound; infinite where the point cannot exist."""
        values = self._values(key)
        try:
            self.bench.designer.check_constraints(values)
            if self.bench.plan(values)[1].problem is not None:
                return NEVER
        except Infeasible:
            return NEVER
        return self.bench.bound(values)

    def _simulated(self, key: tuple[str, ...]) -> Row | None:
        values = self._values(key)
        time = self.bench.seconds(values)
        row: Row = {**dict(zip(self.swept, key, strict=True)), "point_id": make_id(values, values), TIME: time}
        self._rows[key] = row if time < NEVER else None
        return self._rows[key]


def asked_for(content: Mapping[str, Any], traces: Path) -> Bench | None:
    """What simulates points of a certified study that its search left out; to be closed.

    None unless the objective is time and nothing is required of outcomes: points simulated here have a time alone.

    Args:
        content: ``design/study.json``. traces: folder of the study's traces.
    """
    study = Study.model_validate(content["study"])
    if study.objective != ITERATION_TIME.name or study.require:
        return None
    return Bench(study, traces, float(content["run_settings"]["time_limit_s"]))


def interplay_of_search(bench: Bench, rows: Sequence[Row], rules: Rules) -> list[Row]:
    """Rows of ``interplay.csv`` of a certified study: every environment, pairs for the headline alone.

    Args:
        rows: of ``results.csv``, simulated points alone.
    """
    dimensions = list(bench.designer.study.dimensions)
    try:
        return interplay_rows(rows, rules, dimensions, on_demand=lambda environment: OnDemand(bench, environment, rows))
    except LimitReached as error:
        print(f"no interplay: {error}")
        return []


def turned_back(space: OnDemand, winner: Row, against: Row | None) -> list[Row]:
    """Ok points with one knob of the winner turned: to the baseline's value where that differs, else to each other."""
    here = {name: str(winner[name]) for name in space.swept}
    found = []
    for name in space.names:
        back = None if against is None or against[name] == winner[name] else str(against[name])
        for value in space.swept[name] if back is None else (back,):
            row = space.at({**here, name: value}) if value != here[name] else None
            found += [] if row is None else [row]
    return found
