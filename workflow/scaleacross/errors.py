"""Errors a user sees: an id, the values that clash, and the fix. One line each.

Exit codes are those of the commands: 2 invalid input, 3 deadlock, 4 time or memory limit, 1 anything else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_FAILED, EXIT_INVALID, EXIT_DEADLOCK, EXIT_LIMIT = 1, 2, 3, 4


class ScaleAcrossError(Exception):
    """An error with an id (``E-WORLD``), what clashes (with values) and how to mend it.

    ``str(error)`` is the one line the command prints: ``E-WORLD: <what clashes>; <fix>``.
    """

    exit_code = EXIT_FAILED

    def __init__(self, error_id: str, clash: str, fix: str = "") -> None:
        self.error_id, self.clash, self.fix = error_id, clash, fix
        super().__init__(f"{error_id}: {clash}" + (f"; {fix}" if fix else ""))

    def __reduce__(self) -> tuple[type[ScaleAcrossError], tuple[str, str, str], dict[str, object]]:
        """So that it can come from another process as it is."""
        return type(self), (self.error_id, self.clash, self.fix), self.__dict__


class InvalidInput(ScaleAcrossError):
    """Bad input: a file, a key, a value or a combination of values."""

    exit_code = EXIT_INVALID


class Infeasible(InvalidInput):
    """A design point that cannot exist. ``shortfall`` (0 = just missed, 1 = off by 100 %) ranks the closest miss."""

    def __init__(self, error_id: str, clash: str, fix: str = "", shortfall: float = 1.0) -> None:
        super().__init__(error_id, clash, fix)
        self.shortfall = shortfall


class Deadlock(ScaleAcrossError):
    """Some rank never finished."""

    exit_code = EXIT_DEADLOCK


class LimitReached(ScaleAcrossError):
    """A time or memory limit stopped the run."""

    exit_code = EXIT_LIMIT


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'tp'?`` when a known word is close, else the list of known words."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(names)
