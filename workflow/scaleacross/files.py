"""Files and ids: atomic writes, canonical JSON, short stable ids, the digest of the package's own code."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
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
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_hash(value: Any, length: int = 8) -> str:
    """The first hexadecimal digits of the SHA-256 of ``value``'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


@cache
def package_digest() -> str:
    """Hash of every source file of this package: a parameter of each rule, so that a code change reruns what it must."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
