"""Lines on standard error that say how far a long step is, every few seconds; quick steps say nothing."""

from __future__ import annotations

import sys
import time

EVERY = 4.0  # seconds


class Progress:
    """Tells of a step named ``what``; the first line comes after ``EVERY`` seconds."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._begun = self._told = time.monotonic()

    def tell(self, text: str) -> None:
        """Print a line unless the last one was moments ago."""
        now = time.monotonic()
        if now - self._told >= EVERY:
            self._told = now
            print(f"{self.what}, {now - self._begun:.0f} s: {text}", file=sys.stderr, flush=True)

    @property
    def is_due(self) -> bool:
        """Whether ``tell`` would print, for texts that cost something."""
        return time.monotonic() - self._told >= EVERY
