"""What a check found: severity, id, the clash with its values, the fix. Many nodes with one problem are one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import EXIT_INVALID, ScaleAcrossError
from .table import NodeTable

ERROR, WARNING = "error", "warning"
_TRACES_SHOWN, _NODES_SHOWN = 3, 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a set of inputs.

    Attributes:
        severity: ``error`` (would crash, hang, or simulate something else than written) or ``warning``.
        error_id: e.g. ``E-WORLD``; warnings start with ``W-``.
        clash: what clashes, with values.
        fix: how to mend it.
    """

    severity: str
    error_id: str
    clash: str
    fix: str

    def __str__(self) -> str:
        return f"{self.severity} {self.error_id}: {self.clash}" + (f"; {self.fix}" if self.fix else "")


class Findings:
    """Collects findings in the order of the checks."""

    def __init__(self) -> None:
        self.items: list[Finding] = []

    def error(self, error_id: str, clash: str, fix: str) -> None:
        """Add an error."""
        self.items.append(Finding(ERROR, error_id, clash, fix))

    def warning(self, error_id: str, clash: str, fix: str) -> None:
        """Add a warning."""
        self.items.append(Finding(WARNING, error_id, clash, fix))

    def raised(self, errors: Iterable[ScaleAcrossError]) -> None:
        """Add what loaders raised or collected."""
        for error in errors:
            self.error(error.error_id, error.clash, error.fix)

    @property
    def has_errors(self) -> bool:
        """True when an error was found."""
        return any(item.severity == ERROR for item in self.items)

    def nodes(
        self,
        severity: str,
        error_id: str,
        table: NodeTable,
        bad: NDArray[np.bool_],
        clash: str,
        fix: str,
        value: Callable[[int], object] | None = None,
    ) -> None:
        """One finding for all ``bad`` rows of ``table``: the traces and nodes, and ``value(row)`` of the first."""
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        shown = f" ({value(int(rows[0]))})" if value else ""
        self.items.append(Finding(severity, error_id, f"{places(table, rows)}: {clash}{shown}", fix))


def places(table: NodeTable, rows: NDArray[np.int64]) -> str:
    """``rank 0 node 3 'x', 4; rank 1 node 3 ... and 12 more nodes``."""
    owners = table.owner[rows]
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))[:_TRACES_SHOWN]
    texts, shown = [], 0
    for first in firsts.tolist():
        mine = rows[owners == owners[first]][:_NODES_SHOWN]
        nodes = ", ".join(str(int(node)) for node in table.ids[mine])
        texts.append(f"{table.who(int(owners[first]))} node {nodes} '{table.name(int(mine[0]))}'")
        shown += len(mine)
    more = f" and {len(rows) - shown} more" if len(rows) > shown else ""
    return "; ".join(texts) + more


def exit_code(findings: Iterable[Finding]) -> int:
    """2 when there is an error, else 0."""
    return EXIT_INVALID if any(item.severity == ERROR for item in findings) else 0
