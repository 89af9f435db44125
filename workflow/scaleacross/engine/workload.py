"""A workload that can be simulated on many configurations: every rank's trace, or the classes of a folded one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..trace.workload import Workload as Source
from ..trace.workload import open_workload
from .program import Program, Structure, build_program

Int64 = NDArray[np.int64]


@dataclass(slots=True)
class Workload:
    """Traces of all ranks, made ready.

    Attributes:
        source: the traces as read.
        programs: distinct traces, made ready. program: of each rank (or of each class), index into ``programs``.
        files: name of each rank's (class's) file.
        representative: rank of each class; empty when not folded.
        sim_of: class of each rank; empty when not folded.
        family: group id -> number shared by groups that are images of each other.
    """

    source: Source
    programs: list[Program]
    program: Int64
    files: list[str]
    representative: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    sim_of: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    family: dict[int, int] = field(default_factory=dict)

    @property
    def folded(self) -> bool:
        """True when a trace stands for a class of ranks."""
        return len(self.representative) > 0

    @property
    def npus(self) -> int:
        """Ranks of the workload."""
        return len(self.sim_of) if self.folded else len(self.program)


def load_workload(prefix: Path | str) -> Workload:
    """Read ``PREFIX.<rank>.et`` of every rank, or, where ``ranks.json`` stands beside them, the classes that it lists.

    Raises:
        InvalidInput: as :func:`scaleacross.trace.workload.open_workload` and :func:`prepare`.
    """
    return prepare(open_workload(prefix))


def prepare(source: Source) -> Workload:
    """Make traces ready that have been read.

    Raises:
        InvalidInput: what :func:`build_program` raises.
    """
    ranks = source.ranks
    files = [entry.file for entry in ranks.classes]
    numbers: dict[int, int] = {}
    programs: list[Program] = []
    known: dict[bytes, Structure] = {}
    which = np.zeros(len(files), np.int64)
    for k, trace in enumerate(source.traces):
        if id(trace) not in numbers:
            assert trace is not None
            numbers[id(trace)] = len(programs)
            programs.append(build_program(trace, files[k], known))
        which[k] = numbers[id(trace)]
    if not ranks.folded:
        return Workload(source, programs, which, files)
    family = {int(name): k for k, names in enumerate(ranks.group_families) for name in names}
    representative = np.array([entry.representative for entry in ranks.classes], np.int64)
    return Workload(source, programs, which, files, representative, ranks.class_of.astype(np.int64), family)
