"""What a study's folders still hold of points that have left the study: traces, configurations, kept rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInput
from .flow import Flow
from .tables import read_csv
from .traces import RECORD


@dataclass(frozen=True)
class Stale:
    """A file or folder that no point of the study uses any more, and its size in bytes."""

    path: Path
    size: int


def find_stale(flow: Flow) -> list[Stale]:
    """Traces and kept rows of plans, and configurations, that the study as it is designed now does not have.

    Of a certified study those that its last search did not simulate. Only folders that the flow wrote are looked at.

    Raises:
        InvalidInput: E-RESULTS for a certified study that was not searched yet.
    """
    plans, configs = _in_use(flow)
    folder = Path(flow.folder)
    found = [path.parent for path in folder.glob(f"traces/*/{RECORD}") if path.parent.name not in plans]
    found += [path for path in folder.glob("runs/kept/*.jsonl") if path.stem not in plans]
    found += [path.parent for path in Path(flow.configs).glob("*/network.yml") if path.parent.name not in configs]
    return [Stale(path, _size(path)) for path in sorted(found)]


def remove(stale: Iterable[Stale]) -> None:
    """Remove what :func:`find_stale` found, with a plan's lock beside it; what has gone meanwhile is no error."""
    for item in stale:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
            shutil.rmtree(item.path.with_name(f".{item.path.name}"), ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


def _in_use(flow: Flow) -> tuple[set[str], set[str]]:
    """Ids of plans and of configurations."""
    if flow.certified:
        if not Path(flow.points_file).is_file():
            raise InvalidInput("E-RESULTS", f"{flow.points_file} does not exist", "run snakemake --cores N first")
        rows = read_csv(Path(flow.points_file))
        return {row["plan_id"] for row in rows}, {row["config_id"] for row in rows}
    plans: set[str] = set()
    configs: set[str] = set()
    for batch in flow.batches:
        runs = json.loads((Path(flow.folder) / f"design/runs_{batch}.json").read_text())["plans"]
        plans.update(runs)
        configs.update(name for run in runs.values() for name in run["configs"])
    return plans, configs


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
