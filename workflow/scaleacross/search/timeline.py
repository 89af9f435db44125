"""A point of a finished study simulated once more, to see what happens when: timeline and critical path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..files import write_atomic

if TYPE_CHECKING:
    from ..engine import Outcome

TIME_LIMIT = 60.0  # seconds of wall time
TOLERANCE = 1e-6  # of the iteration time: rows hold it in seconds


@dataclass(frozen=True)
class Replayed:
    """A design by its name, with what was simulated and what the traces of the simulated ranks are called."""

    name: str
    outcome: Outcome
    files: Sequence[str]

    def critical_seconds(self) -> dict[str, float]:
        """Seconds of the critical path by kind of operator; empty where the network model knows none."""
        return {kind: ns * 1e-9 for kind, ns in self.outcome.critical_parts().items()}


def replayed(name: str, workload: Path, config: Path, model: str, seconds: float | None = None) -> Replayed:
    """Simulate a point with the embedded engine and keep every operator's interval.

    Args:
        workload: prefix of its traces. config: folder of its configuration. model: of the network.
        seconds: iteration time in the row of results; a timeline that contradicts it is refused.

    Raises:
        InvalidInput: E-TIMELINE where it does not end, or not when the row says; what reading the inputs raises.
    """
    from ..engine import load_config, load_workload, simulate

    groups = config / "comm_groups.json"
    loaded = load_config(
        network=config / "network.yml",
        system=config / "system.json",
        memory=config / "memory.json",
        groups=groups if groups.is_file() else None,
    )
    work = load_workload(workload)
    outcome = simulate(work, loaded, model=model, timeline=True, time_limit=TIME_LIMIT)
    if outcome.status != "ok":
        raise InvalidInput("E-TIMELINE", f"{outcome.status}: {outcome.message}", "see the point's row in results.csv")
    check_end(outcome.iteration_ns * 1e-9, seconds)
    return Replayed(name, outcome, work.files)


def check_end(end: float, seconds: float | None) -> None:
    """Refuse a timeline that contradicts the table (traces or configuration were written anew since then).

    Raises:
        InvalidInput: E-TIMELINE.
    """
    if seconds is not None and abs(end - seconds) > TOLERANCE * seconds:
        clash = f"the step ends after {end:.6g} s, results.csv says {seconds:.6g} s"
        raise InvalidInput("E-TIMELINE", clash, "run the flow again: its inputs changed since")


def write_timeline(path: Path, designs: Sequence[Replayed]) -> None:
    """Chrome trace events of the designs on one time axis, for Perfetto."""
    from ..engine.timeline import chrome_traces

    document = chrome_traces([(design.name, design.outcome, design.files) for design in designs])
    write_atomic(path, json.dumps(document, separators=(",", ":")))
