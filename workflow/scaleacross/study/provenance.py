"""What a result was made with: versions of everything that can change a number."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from .. import __version__
from ..files import package_digest

_PACKAGES = ("mlc-chakra", "protobuf", "numpy", "numba", "pandas", "snakemake")


def versions(content: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and digests: this package, Python, the libraries, the simulator binary where one was used."""
    found: dict[str, Any] = {"scaleacross": __version__, "package_digest": package_digest()}
    if content.get("binary_digest"):
        found["astra_sim_binary"] = content["binary_digest"]
    found["python"] = platform.python_version()
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found
