"""A generated plan as a folder, and as plain data to show."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..cluster.accelerator import Accelerator
from ..errors import InvalidInput
from ..files import write_atomic
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..plan.dims import GROUPS, Placement, rank_map_csv
from ..plan.layers import spread_layers
from ..schedule import Schedule
from .chakra_io import write_trace
from .generate import Generated, generate

RANKS, GROUP_FILE, RANK_MAP, SUMMARY = "ranks.json", "comm_groups.json", "rank_map.csv", "summary.json"


def write_plan(
    directory: Path | str,
    model: Model,
    training: Training,
    parallelism: Parallelism,
    placement: Placement,
    schedule: Schedule,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Generate a plan's traces and write its folder; returns the summary that is written too.

    Writes ``workload.c<k>.et``, ``comm_groups.json`` (only where communicators are used), ``rank_map.csv``,
    ``summary.json`` and, last, ``ranks.json``: a folder without it is not complete. Each file is written whole or not
    at all; traces of an earlier plan are removed. Equal input gives equal bytes.

    Raises:
        InvalidInput: E-WRITE where the folder cannot be written; what ``generate`` raises.
    """
    folder = Path(directory)
    generated = generate(model, training, parallelism, placement, schedule, accelerator)
    _clear(folder, generated)
    for name, trace in generated.traces.items():
        write_trace(folder / name, trace)
    if generated.comm_groups is not None:
        write_atomic(folder / GROUP_FILE, json.dumps(generated.comm_groups) + "\n")
    result = summary(model, training, generated, placement, schedule)
    write_atomic(folder / RANK_MAP, rank_map_csv(placement))
    write_atomic(folder / SUMMARY, json.dumps(result, indent=1) + "\n")
    write_atomic(folder / RANKS, json.dumps(generated.ranks) + "\n")
    return result


def _clear(folder: Path, generated: Generated) -> None:
    """Make the folder and remove what an earlier plan left, ``ranks.json`` first."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in (folder / RANKS, folder / GROUP_FILE, *folder.glob("workload.c*.et")):
            if stale.name not in generated.traces:
                stale.unlink(missing_ok=True)
    except OSError as error:
        clash = f"cannot write {folder}: {error.strerror}"
        raise InvalidInput("E-WRITE", clash, "choose a writable results folder") from error


def summary(
    model: Model, training: Training, generated: Generated, placement: Placement, schedule: Schedule
) -> dict[str, Any]:
    """A plan as plain data: degrees, dimensions, groups, layers, schedule, and what its traces hold."""
    parallelism = generated.parallelism
    return {
        "format": "scaleacross-plan/1",
        "model": model.name,
        "training": asdict(training),
        "parallelism": parallelism.as_dict(),
        "defaulted": sorted(parallelism.defaulted),
        "dimensions": [
            {"size": dim.size, "tier": dim.tier, "axis": dim.axis, "share": dim.share, "groups": list(dim.groups)}
            for dim in placement.dims
        ],
        "groups": group_table(placement),
        "layers": list(spread_layers(model.layers, parallelism)),
        "schedule": {
            "name": schedule.name,
            "stages": schedule.stages,
            "micro_batches": schedule.micro_batches,
            "chunks": schedule.chunks,
            "positions": [list(row) for row in schedule.positions],
            "peak_in_flight": list(schedule.peak_in_flight),
        },
        "counts": generated.counts,
    }


def group_table(placement: Placement) -> dict[str, dict[str, Any]]:
    """Every kind of group with more than one member: purpose, size, number, tiers spanned, the members of rank 0's."""
    table: dict[str, dict[str, Any]] = {}
    for group, purpose in GROUPS.items():
        size = placement.size_of(group)
        if size > 1:
            table[group] = {
                "purpose": purpose,
                "size": size,
                "count": placement.ranks // size,
                "tiers": list(placement.tiers_of(group)),
                "involved": list(placement.involved(group)),
                "first": placement.members(0, group),
            }
    return table
