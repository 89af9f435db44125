"""Compilation of the kernel: machine code is kept on disk in a folder of this package's version."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """A function that other compiled ones call."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry(function: F) -> F:
    """A compiled function that Python may call too."""
    return _compiled(function)


def _compiled(function: F, **options: bool) -> F:
    """``numba.njit`` with a cache that a change of any module of this folder makes new."""
    settings: Any = numba.config
    njit: Any = numba.njit
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_folder())
    try:
        compiled = njit(cache=True, error_model="numpy", **options)(function)
    finally:
        settings.CACHE_DIR = before
    return cast(F, compiled)


@cache
def cache_folder() -> Path:
    """``$SCALEACROSS_CACHE``, else the user's cache folder, else the temporary one."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    home = os.environ.get("SCALEACROSS_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = f"fluid-{digest.hexdigest()[:12]}"
    for folder in (
        Path(home).expanduser() / "scaleacross" / name,
        Path(tempfile.gettempdir()) / f"scaleacross-{os.getuid()}" / name,
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            break
    return folder
