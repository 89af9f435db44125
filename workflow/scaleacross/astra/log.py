"""What the ASTRA-sim binary prints, read without trust: a run counts only when every rank says that it finished.

The binary exits 0 on a deadlock, prints what is wrong at the level ``critical`` (and then may go on), and aborts at
teardown with a double free when several communicator groups exist although every result was printed. See
:func:`judge`.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import EXIT_DEADLOCK, EXIT_FAILED, EXIT_INVALID, EXIT_LIMIT

_FINISHED = re.compile(r"sys\[(\d{1,9})\] finished, (\d{1,19}) cycles, exposed communication (-?\d{1,19}) cycles")
_CRITICAL = re.compile(r"\[critical\] (.*)")
_STUCK_RANK = re.compile(
    r"!!!Hardware Resource sys\.id=\d+ has unreleased nodes!!!|GPU comm node id: |CPU node id: |GPU comp "
)
_LOGGED = re.compile(r"\[(trace|debug|info|warning|error|critical)\] |\bsys\[\d+\]")
# glibc's words when it finds its heap damaged; which of them a double free ends in depends on the heap's state.
_HEAP = re.compile(r"double free|\b(free|malloc|realloc|malloc_consolidate|munmap_chunk)\(\): |corrupted .*list")
MOST_CYCLES = 2**62  # a division by zero operations in the roofline model gives about 2^63

EXIT_CODES = {"ok": 0, "deadlock": EXIT_DEADLOCK, "timeout": EXIT_LIMIT, "invalid": EXIT_INVALID, "crash": EXIT_FAILED}


@dataclass(frozen=True)
class Ending:
    """How the process ended: exit ``code`` (negative: the signal), whether the limit killed it, and what it printed."""

    code: int
    timed_out: bool
    output: str
    errors: str


@dataclass(frozen=True)
class AstraResult:
    """One run of the binary.

    Attributes:
        status: ``ok``; ``deadlock`` (some rank never finished); ``timeout``; ``invalid`` (it refused the inputs, or
        printed
            results that cannot be true); ``crash`` (a signal, or nothing that ASTRA-sim prints).
        message: what happened, the true error last; empty when ok.
        finish_cycles: int64[npus], ns at which a rank finished; -1 for ranks that did not.
        exposed_cycles: int64[npus], the rank's finish minus its compute time, as the binary defines it.
        warnings: for a result that counts although something was odd.
        wall_seconds: of the process.
    """

    status: str
    message: str
    finish_cycles: npt.NDArray[np.int64]
    exposed_cycles: npt.NDArray[np.int64]
    warnings: tuple[str, ...] = ()
    wall_seconds: float = 0.0

    @property
    def iteration_ns(self) -> int:
        """When the last rank finished; only a result with status ok has a true one."""
        return int(self.finish_cycles.max(initial=-1))


def judge(ending: Ending, npus: int, groups: int = 0, limit: float | None = None) -> AstraResult:
    """Status and cycles of a finished process.

    ``ok`` needs the line of every rank, no line at level critical and exit code 0. One exception is named: with two or
    more communicator ``groups`` the binary frees some memory twice at its end, and now and then dies of it (of 80 equal
    runs 19 ended in SIGABRT and 1 in SIGSEGV, all after the same cycles). If every line was printed and the allocator
    stopped it, or a segmentation fault that says nothing, the run counts, with a warning.
    """
    finish, exposed, strange = _cycles(ending.output, npus)
    missing = np.flatnonzero(finish < 0)
    critical = _CRITICAL.findall(ending.output)
    warnings: tuple[str, ...] = ()
    if ending.timed_out:
        done = f"{npus - len(missing)} of {npus} ranks had finished"
        status, message = "timeout", f"E-TIME-LIMIT: killed after {limit:g} s; {done}"
    elif ending.code and not (_teardown(ending, groups) and not len(missing) and not critical):
        status, message = _failure(ending, len(missing), npus, critical)
    elif strange:
        status, message = "invalid", f"E-ASTRA-OUTPUT: {strange}"
    elif len(missing) == npus and not _LOGGED.search(ending.output):
        asked = "is this the ASTRA-sim analytical binary?"
        status, message = "crash", f"E-ASTRA-OUTPUT: exit code 0, but it printed no line of any rank; {asked}"
    elif len(missing):
        status, message = "deadlock", _deadlock_message(missing, npus, critical)
    elif critical:
        status, message = "invalid", f"E-ASTRA-CRITICAL: every rank finished, but it printed: {critical[-1].strip()}"
    else:
        status, message = "ok", ""
        if ending.code:
            words = f"{_signal_name(ending.code)} while freeing {groups} groups, after the line of every rank"
            warnings = (f"W-ASTRA-TEARDOWN: {words}; results are complete",)
    return AstraResult(status, message, finish, exposed, warnings)


def _cycles(output: str, npus: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], str]:
    finish, exposed = np.full(npus, -1, dtype=np.int64), np.full(npus, -1, dtype=np.int64)
    strange = ""
    for match in _FINISHED.finditer(output):
        rank, cycles, waited = (int(text) for text in match.groups())
        if rank >= npus:
            strange = f"rank {rank} finished, but the network has {npus} NPUs"
        elif cycles > MOST_CYCLES:
            strange = f"rank {rank} finished after {cycles} cycles: infinite work (a compute node without operations?)"
        elif finish[rank] >= 0 and finish[rank] != cycles:
            strange = f"rank {rank} finished twice, after {finish[rank]} and after {cycles} cycles"
        else:
            finish[rank], exposed[rank] = cycles, waited
    if not strange and npus and (finish == 0).all():
        strange = "every rank finished after 0 cycles: no work was read"
    return finish, exposed, strange


def _signal_name(code: int) -> str:
    """SIGABRT for -6 (the process was killed) and for 134 (a shell says so); else the exit code."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name if code < 0 or code > 128 else f"exit code {code}"
    except ValueError:
        return f"exit code {code}"


def _teardown(ending: Ending, groups: int) -> bool:
    name = _signal_name(ending.code)
    said_so = name == "SIGABRT" and _HEAP.search(ending.errors)
    return groups > 1 and bool(said_so or (name == "SIGSEGV" and not ending.errors.strip()))


def _failure(ending: Ending, missing: int, npus: int, critical: list[str]) -> tuple[str, str]:
    """A process that did not exit with 0: killed by a signal (crash), or refusing its input (invalid)."""
    name = _signal_name(ending.code)
    last_words = [line.strip() for line in ending.errors.splitlines() if line.strip()]
    true_error = (critical[-1:] or last_words[-1:] or ["it printed no error"])[-1].strip()
    if name.startswith("SIG"):
        true_error = (last_words[-1:] or critical[-1:] or ["it printed no error"])[-1].strip()
        lost = "; its log is written by another thread, lines may be lost" if missing else ""
        return "crash", f"E-ASTRA-CRASH: {name} with {npus - missing} of {npus} ranks finished{lost}: {true_error}"
    return "invalid", f"E-ASTRA-REFUSED: {name}: {true_error}"


def _deadlock_message(missing: npt.NDArray[np.int64], npus: int, critical: list[str]) -> str:
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    head = f"E-DEADLOCK: exit code 0, but {len(missing)} of {npus} ranks never finished ({shown})"
    stuck = [line.strip() for line in critical if _STUCK_RANK.search(line)]
    other = [line.strip() for line in critical if not _STUCK_RANK.search(line)]
    return "; ".join([head, *stuck[:2], *other[-1:]])
