"""Compiling the kernel: once per process, the machine code kept on disk.

Interpreted, the modules of this package work on lists. :func:`compile_kernel` puts numba's functions in the place of
the three that are called from outside; from then on they take int64 and float64 arrays. What they call is linked into
them, so a warm process loads three files. Each function is compiled once, with an explicit signature, callees first.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from . import bus, custom, loop, network, operators, packets, pools, streams, trees

MODULES = (pools, bus, network, custom, packets, trees, streams, operators, loop)
ENTRIES = ("start", "settle", "run")
_state = {"compiled": False}


def is_compiled() -> bool:
    """True when the kernel takes arrays in this process."""
    return _state["compiled"]


def is_on_disk() -> bool:
    """True when the kernel only has to be read."""
    return (cache_folder(version("numba")) / "complete").exists()


def compile_kernel() -> None:
    """Put numba's functions in place: read from disk, or compiled (15 s) and written there.

    Processes that start together wait for the first to compile.
    """
    if _state["compiled"]:
        return
    import numba

    folder = cache_folder(numba.__version__)
    setattr(numba.config, "CACHE_DIR", str(folder))  # noqa: B010 (the module has no such attribute for mypy)
    with _lock(folder):
        done = folder / "complete"
        if not (done.exists() and _load(numba)):
            _compile(numba)
            done.touch()
    _state["compiled"] = True


def _load(numba: ModuleType) -> bool:
    """Read the entries from disk. False when they have to be compiled after all."""
    plain = {name: getattr(loop, name) for name in ENTRIES}
    try:
        ready = {name: _entry(numba, function) for name, function in plain.items()}
    except numba.core.errors.NumbaError:
        return False
    for name, function in ready.items():
        setattr(loop, name, function)
    return True


def _entry(numba: ModuleType, function: FunctionType) -> Any:
    return numba.njit(_signature(numba, function), cache=True, error_model="numpy")(function)


def _compile(numba: ModuleType) -> None:
    from .arrays import grow_array

    made: dict[int, Any] = {id(pools.grow): numba.njit((numba.int64[::1],))(grow_array)}
    for module in MODULES:
        own = []
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and id(value) in made:
                setattr(module, name, made[id(value)])
            elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
                own.append(value)
        for function in _callees_first(own):
            if module is loop and function.__name__ in ENTRIES:
                made[id(function)] = _entry(numba, function)
            else:
                made[id(function)] = numba.njit(
                    _signature(numba, function), error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
                )(function)
            setattr(module, function.__name__, made[id(function)])


def _callees_first(functions: list[FunctionType]) -> list[FunctionType]:
    """The functions of a module, each behind those that it calls."""
    left, ordered = list(functions), []
    while left:
        names = {function.__name__ for function in left}
        ready = [f for f in left if not (set(f.__code__.co_names) & names - {f.__name__})]
        ordered += ready
        left = [f for f in left if f not in ready]
    return ordered


def _signature(numba: ModuleType, function: FunctionType) -> tuple[Any, ...]:
    """``m``, ``h`` and ``heap`` are int64 arrays, ``f`` a float64 array, all else int64."""
    arrays = {"m": numba.int64[::1], "h": numba.int64[::1], "heap": numba.int64[::1], "f": numba.float64[::1]}
    return tuple(arrays.get(name, numba.int64) for name in inspect.signature(function).parameters)


def cache_folder(numba_version: str) -> Path:
    """Where compiled code is kept: under ``$SCALEACROSS_CACHE``, else the user's cache folder, else the temporary one.

    The folder's name holds a digest of the package's source and of what compiles it.
    """
    digest = hashlib.sha256(f"{numba_version} {platform.python_version()} {platform.machine()}".encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    home = os.environ.get("SCALEACROSS_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(home).expanduser() / "scaleacross" / f"kernel-{digest.hexdigest()[:12]}"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        folder = Path(tempfile.gettempdir()) / f"scaleacross-{os.getuid()}" / folder.name
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    import fcntl

    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
