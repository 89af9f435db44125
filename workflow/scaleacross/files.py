"""Files and ids: atomic writes, canonical JSON, short stable ids, the digest of the package's own code."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from .errors import InvalidInput


def write_atomic(path: Path | str, content: str | bytes, only_if_changed: bool = False) -> None:
    """Write a whole file or nothing: temporary name in the same folder, fsync, rename.

    With ``only_if_changed`` an equal file keeps its modification time, so that nothing downstream reruns.

    Raises:
        InvalidInput: E-WRITE when the folder cannot be made or written.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if only_if_changed and path.is_file() and path.read_bytes() == data:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    except OSError as error:
        raise InvalidInput(
            "E-WRITE", f"cannot write {path}: {error.strerror}", "choose a writable results folder"
        ) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same folder waiting, by a lock on ``.lock`` in it; the system frees it.

    Raises:
        InvalidInput: E-WRITE when the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("wb")
    except OSError as error:
        clash = f"cannot write {folder}: {error.strerror}"
        raise InvalidInput("E-WRITE", clash, "choose a writable results folder") from error
    with stream:
        with suppress(OSError):  # some network file systems have no locks: no worse than without asking
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_hash(value: Any, length: int = 8) -> str:
    """The first hexadecimal digits of the SHA-256 of ``value``'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


@cache
def package_digest(*rooms: str) -> str:
    """Hash of the package's source, a parameter of each rule: a code change reruns what it must and no more.

    Args:
        rooms: the rooms a step uses (``"engine"``) or single modules (``"cli.simulate"``); none means the whole
            package. The modules beside the rooms (errors, units, files) always count.

    Raises:
        InvalidInput: E-DIGEST for a room that does not exist.
    """
    root = Path(__file__).parent
    files = set(root.rglob("*.py")) if not rooms else set(root.glob("*.py"))
    for room in rooms:
        path = root.joinpath(*room.split("."))
        found = path.rglob("*.py") if path.is_dir() else [file for file in [path.with_suffix(".py")] if file.is_file()]
        before = len(files)
        files.update(found)
        if len(files) == before:
            raise InvalidInput(
                "E-DIGEST", f"the package has no room {room!r}", "name a folder or a module of scaleacross"
            )
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
