"""A batch of (plan, configuration) pairs: keep the rows that are still true, simulate the others, lose none.

A row is kept by its provenance, the hash of everything it depends on: traces, configuration, simulator and its code. So
after an edit of a study only the pairs it touched run again, and a killed run goes on where it stopped.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import package_digest, short_hash, write_atomic
from ..study.tables import Row
from .evaluate import Evaluator, Pair
from .isolate import Failure, run_isolated

# Statuses that say something about the pair; a timeout or a crash may be the machine's fault and is tried again.
LASTING = frozenset({"ok", "unphysical", "deadlock", "invalid"})
# A point's own time limit is watched by its simulator. This one ends a process that does not watch: start-up and first
# compilation included.
HARD_LIMIT_FACTOR, HARD_LIMIT_EXTRA = 2.0, 120.0
# Code that decides a row, by simulator.
SIMULATOR_CODE = {
    "embedded": ("engine", "astra", "trace", "validate", "search.evaluate", "search.pacing"),
    "astra-sim": ("engine", "astra", "trace", "search.evaluate", "search.pacing"),
}


@dataclass(frozen=True)
class Batch:
    """What a job works on.

    Attributes:
        runs: ``{"settings": {...}, "plans": {plan_id: {"work": {...}, "configs": [config_id]}}}``.
        traces: manifest of the traces, ``{plan_id: {"digest": ...}}``.
        trace_folder, config_folder: hold a folder for each plan and for each configuration.
        cache_folder: rows kept from earlier runs, a file a plan.
        astra_sim: binary, for ``simulator: astra-sim``.
    """

    runs: Mapping[str, Any]
    traces: Mapping[str, Any]
    trace_folder: Path
    config_folder: Path
    cache_folder: Path
    astra_sim: Path | None = None


def simulate_batch(batch: Batch, output: Path) -> None:
    """Write a row for every pair of the batch, as JSON lines."""
    code = package_digest(*SIMULATOR_CODE[batch.runs["settings"]["simulator"]])
    pairs = [
        _pair(batch, plan_id, config_id, code)
        for plan_id, run in batch.runs["plans"].items()
        for config_id in run["configs"]
    ]
    kept = {plan_id: _read_kept(batch.cache_folder, plan_id) for plan_id in batch.runs["plans"]}
    rows = {pair: kept[pair.plan_id][pair.provenance] for pair in pairs if pair.provenance in kept[pair.plan_id]}
    todo = [pair for pair in pairs if pair not in rows]
    print(f"{len(rows)} rows kept, {len(todo)} to simulate", flush=True)
    with tempfile.TemporaryDirectory(prefix="scaleacross-", ignore_cleanup_errors=True) as scratch:
        for pair, row in _evaluate(batch, todo, Path(scratch)):
            rows[pair] = row
            if row["status"] in LASTING:
                _keep(batch.cache_folder, pair, row)
            print(f"{pair.plan_id} {pair.config_id}: {_summary(row)}", flush=True)
    lines = "".join(json.dumps(rows[pair]) + "\n" for pair in pairs)
    write_atomic(output, lines)


def _evaluate(batch: Batch, pairs: Sequence[Pair], scratch: Path) -> Iterator[tuple[Pair, Row]]:
    settings = batch.runs["settings"]
    hard_limit = HARD_LIMIT_FACTOR * float(settings["time_limit_s"]) + HARD_LIMIT_EXTRA
    for done in run_isolated(Evaluator(settings, batch.astra_sim, scratch), pairs, hard_limit):
        row = done.result
        if isinstance(row, Failure):
            row = {**done.task.identity(settings), "status": row.kind, "reason": f"E-PROCESS: {row.cause}"}
        yield done.task, row


def _pair(batch: Batch, plan_id: str, config_id: str, code: str) -> Pair:
    settings, run = batch.runs["settings"], batch.runs["plans"][plan_id]
    basis = [
        batch.traces[plan_id]["digest"],
        config_id,
        settings["simulator"],
        settings["network_model"],
        settings.get("binary_digest"),
        code,
        run["work"],
    ]
    return Pair(
        plan_id=plan_id,
        config_id=config_id,
        workload=str(batch.trace_folder / plan_id / "workload"),
        config=str(batch.config_folder / config_id),
        work=json.dumps(run["work"], sort_keys=True),
        provenance=short_hash(basis, 16),
    )


def _kept_file(folder: Path, plan_id: str) -> Path:
    return folder / f"{plan_id}.jsonl"


def _read_kept(folder: Path, plan_id: str) -> dict[str, Row]:
    """Kept rows of a plan by provenance; a line cut short by a kill is passed over."""
    try:
        lines = _kept_file(folder, plan_id).read_text().splitlines()
    except OSError:
        return {}
    rows: dict[str, Row] = {}
    for line in lines:
        try:
            row = json.loads(line)
            rows[row["provenance"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def _keep(folder: Path, pair: Pair, row: Row) -> None:
    """Append a row; a plan belongs to one batch, so nobody else writes this file."""
    folder.mkdir(parents=True, exist_ok=True)
    with _kept_file(folder, pair.plan_id).open("a") as stream:
        stream.write(json.dumps(row) + "\n")


def _summary(row: Row) -> str:
    time = row.get("iteration_time_s")
    text = f"{row['status']} {time:.4f} s" if time is not None else f"{row['status']} {row.get('reason', '')}"
    wall = row.get("simulate_wall_s")
    return text if wall is None else f"{text} (simulated in {wall:.2f} s)"
