"""The trace step: a plan's plain form becomes a folder of Chakra traces, unless it is there already."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..files import alone_in, package_digest, short_hash, write_atomic
from .plans import build_schedule, read_plan

RECORD = "plan.json"
TRACES = "workload.c*.et"
TRACE_CODE = ("model", "cluster", "plan", "schedule", "trace", "study.traces")


@dataclass(frozen=True)
class TraceRecord:
    """What a folder of traces holds. ``digest`` is the hash of the plan and of the code that wrote them."""

    digest: str
    files: int
    nodes: int
    bytes: int
    kept: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For the manifest; whether traces were kept says nothing about them."""
        return {name: value for name, value in asdict(self).items() if name != "kept"}


def write_traces(folder: Path, content: Mapping[str, Any]) -> TraceRecord:
    """Write a plan's traces as ``folder``, which is complete whenever it is there, whoever reads or writes it.

    Processes of a search may want the same plan at the same time: one writes it, the others wait and find it. It is
    written beside its place and takes it by a rename, as a process of other code may be reading what was there; that is
    moved away before it is removed, so that open files stay readable. ``plan.json`` says that all files are there.

    Raises:
        InvalidInput: E-WRITE, or what the generator finds.
    """
    digest = short_hash([content, package_digest(*TRACE_CODE)], 16)
    kept = _read_record(folder, digest)
    if kept is not None:
        return kept
    beside = folder.with_name(f".{folder.name}")
    with alone_in(beside):
        kept = _read_record(folder, digest)
        if kept is not None:
            return kept
        new, old = beside / "new", beside / "old"
        for left in (new, old):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        record = _write(new, content, digest)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    return record


def _write(folder: Path, content: Mapping[str, Any], digest: str) -> TraceRecord:
    """Generate and write everything, ``plan.json`` last."""
    from ..trace.plan_files import write_plan

    model, training, parallelism, placement, accelerator = read_plan(content)
    schedule = build_schedule(training, parallelism)
    summary = write_plan(folder, model, training, parallelism, placement, schedule, accelerator)
    sizes = [file.stat().st_size for file in folder.glob(TRACES)]
    nodes = sum(counts["nodes"] for counts in summary["counts"].values())
    record = TraceRecord(digest, len(sizes), nodes, sum(sizes))
    write_atomic(folder / RECORD, json.dumps({"record": record.as_dict(), "plan": content}, indent=1) + "\n")
    return record


def _read_record(folder: Path, digest: str) -> TraceRecord | None:
    """The record of traces that are there and were made from this plan by this code."""
    try:
        record = TraceRecord(**json.loads((folder / RECORD).read_text())["record"], kept=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    complete = record.digest == digest and len(list(folder.glob(TRACES))) == record.files
    return record if complete else None
