"""A certified search as a step of the flow: what it reads of a designed study and the files it leaves.

Results are kept as they come (``search/known.jsonl``): a search that was interrupted goes on where it stopped, and one
after an edit simulates only what is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ..files import write_atomic
from ..study.design import Designer
from ..study.schema import Study
from ..study.tables import Row, write_csv
from ..units import parse
from .batch import LASTING
from .certificate import Certificate, plans_table
from .certified import Search
from .pool import Pool
from .space import Space

KNOWN = "search/known.jsonl"


def search_study(
    content: Mapping[str, Any], folder: Path, cores: int, astra_sim: Path | None = None, root: Path = Path()
) -> tuple[list[Certificate], Search]:
    """Search a study of ``design/study.json``; traces go to ``<folder>/traces``, configurations to the study's folder.

    Raises:
        InvalidInput: whatever is wrong with the study.
    """
    study = Study.model_validate(content["study"])
    file = folder / KNOWN
    file.parent.mkdir(parents=True, exist_ok=True)
    arguments = (study, root, folder / "traces", Path(content["configs"]), content["run_settings"], astra_sim)
    pool = Pool(cores, (*arguments, _read_known(file)))
    seconds = parse(study.search_limit, "second") if study.search_limit else float("inf")
    try:
        with file.open("a") as stream:
            search = Search(
                Space(Designer(study, root)), pool, study.baselines, seconds, lambda row: _keep(stream, row)
            )
            return search.run(), search
    finally:
        pool.close()


def _read_known(file: Path) -> dict[str, Row]:
    """Provenance -> result of what earlier searches have simulated; a line that was cut off is nothing."""
    known: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        try:
            result = json.loads(line)
            known[result["provenance"]] = result
        except (ValueError, KeyError, TypeError):
            continue
    return known


def _keep(stream: TextIO, row: Row) -> None:
    result = row.get("result") or {}
    if result.get("status") in LASTING:
        stream.write(json.dumps(result) + "\n")
        stream.flush()


def write_search(content: Mapping[str, Any], search: Search, points: Path, runs: Path, plans: Path) -> None:
    """Write the points that were simulated and their results as the exhaustive flow has them, and every plan's fate."""
    from ..study.write import PLAN_COLUMNS, POINT_COLUMNS

    columns = [*POINT_COLUMNS, *content["dimension_columns"], *PLAN_COLUMNS]
    ordered = sorted(search.rows, key=lambda row: str(row["point_id"]))
    write_csv(points, ({name: value for name, value in row.items() if name != "result"} for row in ordered), columns)
    results = {(row["plan_id"], row["config_id"]): row["result"] for row in ordered if row.get("config_id")}
    write_atomic(runs, "".join(json.dumps(results[key]) + "\n" for key in sorted(results)))
    write_atomic(plans, plans_table(_fates(search), _names(search.space)))


def _names(space: Space) -> Sequence[str]:
    return [*space.designer.study.environment, *(name for name, values in space.plan_lists.items() if len(values) > 1)]


def _fates(search: Search) -> Iterator[Sequence[Any]]:
    names = _names(search.space)
    for environment, number, fate in search.fates():
        values = {**environment, **search.space.plan(number)}
        bound = fate.bound if fate.bound < float("inf") else None
        yield [*(values[name] for name in names), fate.status, fate.reason, fate.points, fate.simulated, bound]
