"""Running the ASTRA-sim binary: in a scratch folder, in its own process group, killed at the time limit.

A failing run is a result, not an exception: a sweep writes a row for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import InvalidInput
from .config_files import load_groups, load_network
from .log import AstraResult, Ending, judge

__all__ = ["AstraResult", "RunOptions", "run_astra_sim"]

_SPARE_FILES = 64  # beside one open trace a rank: logs, libraries, configuration
_LONGEST_PAUSE = 0.02  # seconds between looks at the process


@dataclass(frozen=True)
class RunOptions:
    """Flags of the binary that change its result."""

    queues_per_dim: int = 1
    injection_scale: float = 1.0
    rendezvous: bool = False

    def flags(self) -> list[str]:
        """As the command line takes them."""
        return [
            f"--num-queues-per-dim={self.queues_per_dim}",
            f"--injection-scale={self.injection_scale}",
            f"--rendezvous-protocol={str(self.rendezvous).lower()}",
        ]


def run_astra_sim(
    binary: Path | str,
    workload_prefix: Path | str,
    config_dir: Path | str,
    time_limit: float | None = None,
    options: RunOptions | None = None,
) -> AstraResult:
    """Simulate ``<workload_prefix>.<rank>.et`` on the configuration of a folder.

    The binary writes a ``log`` folder where it runs, so it runs in a scratch folder of its own. It keeps the trace of
    every rank open, so the limit of open files is raised. At ``time_limit`` (wall seconds) its whole process group is
    killed; a limit of CPU time ends it even if this process is killed first.

    Returns:
        The result; trouble with the inputs or the binary is a status with a message, see :class:`AstraResult`.
    """
    workload, config = Path(workload_prefix).resolve(), Path(config_dir).resolve()
    npus = 0
    try:
        npus = load_network(config / "network.yml").npus
        groups_file = config / "comm_groups.json"
        groups = len(load_groups(groups_file)) if groups_file.exists() else 0
        _check_traces(workload, npus)
        files = _files_limit(npus)
    except InvalidInput as error:
        nothing = np.full(npus, -1, dtype=np.int64)
        return AstraResult("invalid", str(error), nothing, nothing)
    command = [
        str(Path(binary).resolve()),
        f"--workload-configuration={workload}",
        f"--network-configuration={config / 'network.yml'}",
        f"--system-configuration={config / 'system.json'}",
        f"--remote-memory-configuration={config / 'memory.json'}",
        *([f"--comm-group-configuration={groups_file}"] if groups else []),
        *(options or RunOptions()).flags(),
    ]
    started = time.monotonic()
    ending = _execute(_with_limits(command, files, time_limit), time_limit)
    result = judge(ending, npus, groups, time_limit)
    return replace(result, wall_seconds=time.monotonic() - started)


def _check_traces(workload: Path, npus: int) -> None:
    """Every rank has a trace and there is no other: the binary would use the first N of more."""
    pattern = re.compile(re.escape(workload.name) + r"\.(\d+)\.et")
    folder = workload.parent
    if not folder.is_dir():
        raise InvalidInput("E-WORLD", f"there is no folder {folder} with traces", "generate the traces first")
    ranks = {int(match[1]) for entry in os.scandir(folder) if (match := pattern.fullmatch(entry.name))}
    if not ranks and (folder / "ranks.json").exists():
        raise InvalidInput("E-FOLDED", f"{folder} holds folded traces", "expand them: the binary needs one file a rank")
    missing, extra = sorted(set(range(npus)) - ranks), sorted(ranks - set(range(npus)))
    for what, numbers in (("no trace", missing), ("a trace but no NPU", extra)):
        if numbers:
            shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
            clash = f"{npus} NPUs in network.yml, {len(ranks)} traces {workload}.<rank>.et; {what} for ranks {shown}"
            raise InvalidInput("E-WORLD", clash, "make npus_count multiply to the number of traces")


def _files_limit(npus: int) -> int:
    """Open files to ask for; E-OPEN-FILES where this user may not have one for each trace."""
    needed = npus + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        clash = f"{npus} ranks need {needed} open files, this user may have {hard}"
        raise InvalidInput("E-OPEN-FILES", clash, "raise the hard limit (ulimit -Hn), or simulate a scaled-down twin")
    return needed if soft == resource.RLIM_INFINITY else max(needed, soft)


def _with_limits(command: list[str], files: int, time_limit: float | None) -> list[str]:
    """A shell that sets the limits and becomes the command: no code of ours runs between fork and exec."""
    limits = f"ulimit -S -n {files}"
    if time_limit is not None:  # the binary computes in one thread; twice the limit is never reached before we kill it
        limits += f" && ulimit -t {math.ceil(2 * time_limit) + 10}"
    return ["/bin/sh", "-c", f'{limits} && exec "$@"', "sh", *command]


def _execute(command: list[str], time_limit: float | None) -> Ending:
    """Run a command to its end or to the limit; nothing of its process group outlives this call."""
    with tempfile.TemporaryDirectory(prefix="scaleacross-astra-", ignore_cleanup_errors=True) as scratch:
        out, err = Path(scratch) / "stdout", Path(scratch) / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )
            ended = False
            try:
                ended = _wait_for_end(process.pid, time_limit)
            finally:  # also after an interrupt, and when a finished binary leaves a child behind
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        return Ending(code, not ended, *(path.read_text("utf-8", errors="replace") for path in (out, err)))


def _wait_for_end(pid: int, time_limit: float | None) -> bool:
    """Wait until the process ends (True) or the limit is reached (False).

    It is left unreaped: its number, which is that of its group, can't go to another process before the group is killed.
    """
    started, pause = time.monotonic(), 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        passed = time.monotonic() - started
        if time_limit is not None and passed >= time_limit:
            return False
        time.sleep(min(pause, max(time_limit - passed, 0.0)) if time_limit is not None else pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
