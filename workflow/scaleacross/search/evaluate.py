"""One door to both simulators: a (plan, configuration) pair in, a result row out, whatever happens inside.

``embedded`` is :mod:`scaleacross.engine`; ``astra-sim`` is the analytical binary on the same files, every rank's trace
written out first. Both are driven by the ASTRA-sim inputs alone.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Deadlock, InvalidInput, LimitReached, ScaleAcrossError
from ..study.tables import Row
from .pacing import NETWORK, network_of

if TYPE_CHECKING:
    from ..engine import TierUse, Workload

# Truncation to whole nanoseconds, as ASTRA-sim does it, may undercut a bound by this much without meaning anything.
BOUND_TOLERANCE = 1e-3
AWAY = 1.0  # seconds that a folder may be away while another takes its place
KEPT_BYTES = 100_000_000  # of traces on disk; a loaded one takes a few times that
AXES = ("tp", "cp", "ep", "pp", "dp", "other")


@dataclass(frozen=True)
class Pair:
    """What a row is about. ``work`` is the plan's work as JSON (see ``measures``), ``provenance`` hashes its causes."""

    plan_id: str
    config_id: str
    workload: str
    config: str
    work: str
    provenance: str

    def identity(self, settings: Mapping[str, Any]) -> Row:
        """The columns every row has, whatever became of it."""
        return {
            "plan_id": self.plan_id,
            "config_id": self.config_id,
            "simulator": settings["simulator"],
            "network_model": settings["network_model"],
            "provenance": self.provenance,
        }


@dataclass(frozen=True)
class Simulated:
    """What a simulator found out: time in seconds, and what else it can tell (columns of ``results.csv``)."""

    iteration_time_s: float
    columns: Mapping[str, Any]


class Evaluator:
    """Rows of pairs, one after another; the workload of the latest plan stays loaded."""

    def __init__(self, settings: Mapping[str, Any], astra_sim: Path | None, scratch: Path) -> None:
        self.settings = dict(settings)
        self.simulator: Embedded | Binary = (
            Binary(self.settings, astra_sim, scratch)
            if settings["simulator"] == "astra-sim"
            else Embedded(self.settings, scratch)
        )

    def __call__(self, pair: Pair) -> Row:
        """The row of a pair: every error becomes a status with its cause."""
        row = pair.identity(self.settings)
        start = time.perf_counter()
        try:
            found = self.simulator.run(pair)
            row.update(measures(found, json.loads(pair.work)))
            row.update(judge_bound(found))
        except Deadlock as error:
            row.update(status="deadlock", reason=str(error))
        except LimitReached as error:
            row.update(status="timeout", reason=str(error))
        except InvalidInput as error:
            row.update(status="invalid", reason=str(error))
        except ScaleAcrossError as error:
            row.update(status="crash", reason=str(error))
        except MemoryError:
            row.update(status="crash", reason="E-MEMORY-HOST: this machine has not enough memory for the point")
        except Exception as error:
            row.update(status="crash", reason=f"E-INTERNAL: {type(error).__name__}: {error}")
        row["simulate_wall_s"] = round(time.perf_counter() - start, 4)
        return row


def measures(found: Simulated, work: Mapping[str, Any]) -> Row:
    """Columns that follow from the time and the plan's work.

    Args:
        work: ``gpus``, ``tokens`` a step, ``model_flops`` a step, ``peak_flops`` of a GPU (FLOP/s).
    """
    seconds = found.iteration_time_s
    if not 0 < seconds < float("inf"):
        raise InvalidInput("E-RESULT", f"the iteration takes {seconds} s", "look at the traces and the configuration")
    rate = work["model_flops"] / work["gpus"] / seconds
    return {
        "iteration_time_s": seconds,
        "tokens_per_s": work["tokens"] / seconds,
        "tflops_per_gpu": rate / 1e12,
        "mfu": rate / work["peak_flops"],
        **found.columns,
    }


def judge_bound(found: Simulated) -> Row:
    """``ok``, or ``unphysical`` for a point faster than its links or its arithmetic allow."""
    ratio = found.columns.get("bound_ratio")
    if ratio is not None and ratio < 1.0 - BOUND_TOLERANCE:
        clash = f"E-UNPHYSICAL: {ratio:.4f} of the least time that links and compute allow"
        return {
            "status": "unphysical",
            "reason": f"{clash}; this network model shares a link between messages for free",
        }
    return {"status": "ok", "reason": ""}


class Workloads:
    """Workloads that were loaded, the latest ones kept: a search goes from plan to plan and back.

    Args:
        bytes_kept: of trace files whose workloads are kept in memory, the latest one always.
    """

    def __init__(self, bytes_kept: int = KEPT_BYTES) -> None:
        self.bytes_kept = bytes_kept
        self._loaded: OrderedDict[str, tuple[object, int, Workload]] = OrderedDict()

    def __call__(self, prefix: str) -> Workload:
        """The workload of ``PREFIX.*.et``, read anew where its folder was replaced since.

        Raises:
            InvalidInput: as :func:`scaleacross.engine.load_workload`.
        """
        known = self._loaded.pop(prefix, None)
        if known is None or known[0] != _state(prefix):
            size = sum(file.stat().st_size for file in Path(prefix).parent.glob(f"{Path(prefix).name}.*.et"))
            self._make_room(size)
            state, workload = _loaded(prefix)
            known = (state, size, workload)
        self._loaded[prefix] = known
        return known[2]

    def _make_room(self, size: int) -> None:
        while self._loaded and size + sum(item[1] for item in self._loaded.values()) > self.bytes_kept:
            self._loaded.popitem(last=False)


def _loaded(prefix: str) -> tuple[object, Workload]:
    """A workload and the state it was read in; read again where its folder is replaced meanwhile."""
    from ..engine import load_workload

    end = time.monotonic() + AWAY
    while True:
        state = _state(prefix)
        try:
            workload = load_workload(prefix)
        except InvalidInput:
            if state is None and time.monotonic() < end:
                time.sleep(0.01)
            elif _state(prefix) == state:
                raise
            continue
        if _state(prefix) == state:
            return state, workload


def _state(prefix: str) -> object:
    """What changes when a folder of traces is replaced."""
    try:
        found = Path(prefix).parent.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


class Expanded:
    """Every rank's trace of a plan, in a scratch folder; those of the previous plan go when another comes."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._prefix = ""

    def __call__(self, pair: Pair) -> str:
        """The prefix of the expanded traces.

        Raises:
            InvalidInput: as :func:`scaleacross.trace.expand.expand`.
        """
        from ..astra.config_files import load_groups
        from ..trace.expand import expand

        folder = self.scratch / pair.plan_id
        if pair.workload != self._prefix:
            shutil.rmtree(self.scratch / Path(self._prefix).parent.name if self._prefix else folder, ignore_errors=True)
            self._prefix = ""
            groups = Path(pair.config) / "comm_groups.json"
            expand(Path(pair.workload).parent, folder, load_groups(groups) if groups.is_file() else None)
            self._prefix = pair.workload
        return str(folder / "workload")


class Embedded:
    """The embedded engine: a workload is loaded once a plan and simulated on every configuration.

    The congestion-aware model needs every rank's trace, as its binary does (``expanded``); the others run folded.
    """

    def __init__(self, settings: Mapping[str, Any], scratch: Path, expanded: Expanded | None = None) -> None:
        self.settings = settings
        self.workloads = Workloads()
        self.expanded = expanded or Expanded(scratch)

    def run(self, pair: Pair) -> Simulated:
        """Simulate a pair.

        Raises:
            Deadlock, LimitReached, InvalidInput: as the engine finds.
        """
        from ..engine import load_config, simulate

        folder = Path(pair.config)
        groups = folder / "comm_groups.json"
        config = load_config(
            network=folder / "network.yml",
            system=folder / "system.json",
            memory=folder / "memory.json",
            groups=groups if groups.is_file() else None,
        )
        aware = self.settings["network_model"] == "aware"
        outcome = simulate(
            self.workloads(self.expanded(pair) if aware else pair.workload),
            config,
            model=self.settings["network_model"],
            time_limit=float(self.settings["time_limit_s"]),
        )
        if outcome.status != "ok":
            raise _failure(outcome.status, outcome.message)
        columns: Row = {"bound_ratio": outcome.bound_ratio}
        if self.settings["network_model"] == "scaleacross":
            columns[NETWORK] = network_of(config, folder)
        columns["compute_s"] = outcome.breakdown["compute"] * 1e-9
        columns.update({f"exposed_{axis}_s": outcome.breakdown[f"exposed_{axis}"] * 1e-9 for axis in AXES})
        columns["idle_s"] = outcome.breakdown["idle"] * 1e-9
        compute = outcome.compute_max_ns / outcome.iteration_ns
        columns.update(tier_columns(outcome.tiers, compute))
        return Simulated(float(outcome.iteration_ns) * 1e-9, columns)


def tier_columns(tiers: Sequence[TierUse], compute: float) -> Row:
    """``sent_<tier>_gb``, ``cut_<tier>_gb``, ``busy_<tier>`` and ``bottleneck``; what a model cannot tell is left out.

    ``tiers``: inner to outer. ``compute``: share of the iteration that the busiest GPU computes.
    """
    found: Row = {}
    busiest = [("compute", compute)]
    for use in tiers:
        name = use.name.replace("-", "_")
        found[f"sent_{name}_gb"] = use.sent_bytes / 1e9
        if not math.isnan(use.cut_bytes_max):
            found[f"cut_{name}_gb"] = use.cut_bytes_max / 1e9
            found[f"busy_{name}"] = max(use.port_busy_max, use.uplink_busy_max)
        busiest += [(f"{use.name} ports", use.port_busy_max), (f"{use.name} uplinks", use.uplink_busy_max)]
    if not any(math.isnan(share) for _, share in busiest):
        found["bottleneck"] = max(busiest, key=lambda item: item[1])[0]
    return found


class Binary:
    """The ASTRA-sim analytical binary on every rank's trace, in a scratch folder that a plan's runs share."""

    def __init__(self, settings: Mapping[str, Any], binary: Path | None, scratch: Path) -> None:
        if binary is None:
            raise InvalidInput("E-ASTRA-SIM", "simulator: astra-sim needs the binary", "set astra_sim or $ASTRA_SIM")
        self.settings, self.binary = settings, binary
        self.expanded = Expanded(scratch)
        self.embedded = Embedded(settings, scratch, self.expanded)

    def run(self, pair: Pair) -> Simulated:
        """Run a pair.

        The binary tells the time a rank computes only as finish minus exposed; what it calls exposed mixes
        communication and waiting. The other columns are the embedded engine's on the same files, where it gives the
        same cycles; else only the bytes are, which do not depend on time.

        Raises:
            Deadlock, LimitReached, InvalidInput, ScaleAcrossError: as the runner finds.
        """
        from ..astra.runner import run_astra_sim

        prefix = Path(self.expanded(pair))
        result = run_astra_sim(self.binary, prefix, pair.config, time_limit=float(self.settings["time_limit_s"]))
        if result.status != "ok":
            raise _failure(result.status, result.message)
        compute = (result.finish_cycles - result.exposed_cycles).mean()
        seconds = result.iteration_ns * 1e-9
        return Simulated(seconds, {"compute_s": float(compute) * 1e-9, **self._embedded_columns(pair, seconds)})

    def _embedded_columns(self, pair: Pair, seconds: float) -> Row:
        try:
            found = self.embedded.run(pair)
        except ScaleAcrossError:
            return {}
        if found.iteration_time_s == seconds:
            return dict(found.columns)
        return {name: value for name, value in found.columns.items() if re.match(r"(sent|cut)_", name)}


def _failure(status: str, message: str) -> ScaleAcrossError:
    """A simulator's status and message (which may start with an id of its own) as an error."""
    kind = _FAILURES.get(status, ScaleAcrossError)
    known = re.match(r"(E-[A-Z0-9-]+): (.*)", message, re.DOTALL)
    return kind(known[1], known[2]) if known else kind(f"E-{status.upper()}", message)


_FAILURES: dict[str, type[ScaleAcrossError]] = {
    "deadlock": Deadlock,
    "timeout": LimitReached,
    "invalid": InvalidInput,
}
