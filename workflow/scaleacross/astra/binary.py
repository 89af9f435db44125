"""Where the ASTRA-sim binary is, and which one it is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ..errors import InvalidInput

VARIABLE = "ASTRA_SIM"
NAME = "AstraSim_Analytical_Congestion_Unaware"


def find_binary(configured: str | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """The ASTRA-sim analytical binary: ``configured`` (from config.yaml), else ``$ASTRA_SIM``; a file or its folder.

    Raises:
        InvalidInput: E-ASTRA-BINARY with the path tried and how to mend it.
    """
    given = configured or (os.environ if environment is None else environment).get(VARIABLE, "")
    origin = "the configuration" if configured else f"${VARIABLE}"
    fix = f"build ASTRA-sim's analytical backend and set {VARIABLE} to {NAME}, or use simulator: embedded"
    if not given:
        raise InvalidInput("E-ASTRA-BINARY", f"no ASTRA-sim binary is configured and {VARIABLE} is not set", fix)
    path = Path(given).expanduser()
    if path.is_dir():
        path /= NAME
    if not path.is_file():
        raise InvalidInput("E-ASTRA-BINARY", f"{path} (from {origin}) does not exist", fix)
    if not os.access(path, os.X_OK):
        raise InvalidInput("E-ASTRA-BINARY", f"{path} (from {origin}) is not executable", f"chmod +x {path}")
    return path.resolve()


def binary_digest(path: Path | str) -> str:
    """First 12 hexadecimal digits of the binary's SHA-256, for the rules that run it and the origin of a row."""
    status = Path(path).stat()
    return _digest(str(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _digest(path: str, modified_ns: int, size: int) -> str:  # noqa: ARG001  (a changed file is another key)
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]
