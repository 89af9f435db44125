"""All traces of a run: every ``PREFIX.<rank>.et``, or the class files named by ``ranks.json`` beside the prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidInput
from .chakra_io import inspect_traces
from .columns import Trace
from .ranks import MAX_RANKS, RANKS_FILE, RankMap, ranges


@dataclass(frozen=True)
class Workload:
    """Traces and who runs them.

    Attributes:
        prefix: as given, e.g. ``DIR/workload``.
        ranks: which rank is in which class.
        traces: one per class; equal files share one object. None where the file could not be read (only from
            :func:`inspect_workload`).
    """

    prefix: Path
    ranks: RankMap
    traces: tuple[Trace | None, ...]

    @property
    def folded(self) -> bool:
        """True when ranks share class files."""
        return self.ranks.folded

    def file(self, index: int) -> Path:
        """The file of class ``index``."""
        return self.prefix.parent / self.ranks.classes[index].file


def open_workload(prefix: Path | str) -> Workload:
    """Read every trace of a workload.

    Raises:
        InvalidInput: E-WORLD-TRACES (no trace, or a rank without one), and as ``read_trace`` and ``RankMap.load``.
    """
    workload, problems = inspect_workload(prefix)
    if workload is None or problems:
        raise problems[0]
    return workload


def inspect_workload(prefix: Path | str, ranks: int | None = None) -> tuple[Workload | None, list[InvalidInput]]:
    """Read every trace that can be read; also every problem.

    With ``ranks`` given (the product of npus_count), every rank without a trace, and every trace without a rank, is
    named; without, the highest rank found counts.
    """
    prefix = Path(prefix)
    if (prefix.parent / RANKS_FILE).is_file():
        try:
            rank_map = RankMap.load(prefix.parent)
        except InvalidInput as error:
            return None, [error]
        problems = []
        if ranks is not None and rank_map.ranks != ranks:
            clash = f"{ranks} NPUs in the network, {rank_map.ranks} ranks (shape {rank_map.shape}) in {RANKS_FILE}"
            problems.append(InvalidInput("E-WORLD", clash, "change npus_count or the plan's degrees"))
    else:
        found = _rank_files(prefix)
        if not found or max(found) >= MAX_RANKS:
            clash = f"no trace named {prefix}.<rank>.et" if not found else f"a trace of rank {max(found)}"
            return None, [InvalidInput("E-WORLD-TRACES", clash, "give the workload's prefix, e.g. DIR/workload")]
        problems = _compare(prefix, found, ranks)
        rank_map = RankMap.unfolded(min(max(found) + 1, ranks or max(found) + 1), prefix.name)
        if any(problem.error_id == "E-WORLD-TRACES" for problem in problems):
            return None, problems
    traces, unread = inspect_traces(prefix.parent / entry.file for entry in rank_map.classes)
    return Workload(prefix, rank_map, tuple(traces)), problems + unread


def _rank_files(prefix: Path) -> set[int]:
    """Ranks that have a file."""
    pattern = re.compile(re.escape(prefix.name) + r"\.(\d{1,9})\.et")
    try:
        names = [entry.name for entry in prefix.parent.iterdir()]
    except OSError:
        return set()
    return {int(match[1]) for name in names if (match := pattern.fullmatch(name)) and match[1] == str(int(match[1]))}


def _compare(prefix: Path, found: set[int], ranks: int | None) -> list[InvalidInput]:
    world = max(found) + 1 if ranks is None else ranks
    problems = []
    missing = np.setdiff1d(np.arange(world), np.array(sorted(found)))
    if len(missing):
        clash = f"{world} NPUs, {len(found)} traces: no {prefix}.<rank>.et for rank {ranges(missing)}"
        problems.append(InvalidInput("E-WORLD-TRACES", clash, "write a trace for each rank or change npus_count"))
    extra = sorted(rank for rank in found if rank >= world)
    if extra:
        clash = f"{world} NPUs in the network, {len(found)} traces: {prefix}.<rank>.et also for rank {ranges(extra)}"
        fix = "ASTRA-sim would use only the first; change npus_count or remove the others"
        problems.append(InvalidInput("E-WORLD", clash, fix))
    return problems
