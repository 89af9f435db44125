"""A certified search as a step of the flow: what it reads of a designed study and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..files import write_atomic
from ..study.design import Designer
from ..study.schema import Study
from ..study.tables import Row, write_csv
from .certified import Certificate, Pool, Search
from .space import Space


def search_study(
    content: Mapping[str, Any], folder: Path, cores: int, astra_sim: Path | None = None, root: Path = Path()
) -> tuple[list[Certificate], list[Row]]:
    """Search a study of ``design/study.json``; traces go to ``<folder>/traces``, configurations to the study's folder.

    Raises:
        InvalidInput: E-CERTIFIED for a network model without bounds; whatever is wrong with the study.
    """
    study = Study.model_validate(content["study"])
    settings = content["run_settings"]
    arguments = (study, root, folder / "traces", Path(content["configs"]), settings, astra_sim)
    pool = Pool(cores, arguments)
    try:
        search = Search(Space(Designer(study, root)), pool, study.baselines)
        return search.run(), search.rows
    finally:
        pool.close()


def write_search(content: Mapping[str, Any], rows: Sequence[Row], points: Path, runs: Path) -> None:
    """Write the points that were simulated and their result rows as the exhaustive flow has them."""
    from ..study.write import PLAN_COLUMNS, POINT_COLUMNS

    columns = [*POINT_COLUMNS, *content["dimension_columns"], *PLAN_COLUMNS]
    ordered = sorted(rows, key=lambda row: str(row["point_id"]))
    write_csv(points, ({name: value for name, value in row.items() if name != "result"} for row in ordered), columns)
    results = {(row["plan_id"], row["config_id"]): row["result"] for row in ordered if row.get("config_id")}
    write_atomic(runs, "".join(json.dumps(results[key]) + "\n" for key in sorted(results)))


def certificate_text(study: str, certificates: Sequence[Certificate]) -> str:
    """``certificate.yaml``."""
    content = {
        "study": study,
        "search": "certified",
        "meaning": "no point that was not simulated is faster than optimum_s: each has a lower bound above it",
        "environments": [certificate.as_dict() for certificate in certificates],
    }
    return yaml.safe_dump(content, sort_keys=False, width=120)
