"""``scaleacross expand``: every rank's trace of a folded workload, for simulators that know nothing of ranks.json."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("expand", help="write every rank's trace of a folded workload")
    parser.add_argument("folder", type=Path, help="folder with ranks.json and the class files")
    parser.add_argument("output", type=Path, help="folder for workload.<rank>.et")
    parser.add_argument(
        "--comm-group-configuration",
        type=Path,
        metavar="PATH",
        help="comm_groups.json; default: the folder's, if there",
    )
    parser.add_argument("--prefix", default="workload", help="name of the files before .<rank>.et")


def run(args: argparse.Namespace) -> int:
    """Write the files and say how many."""
    from ..astra.config_files import load_groups
    from ..trace.expand import expand

    path = args.comm_group_configuration
    if path is None and (args.folder / "comm_groups.json").is_file():
        path = args.folder / "comm_groups.json"
    count = expand(args.folder, args.output, load_groups(path) if path else None, args.prefix)
    print(f"{count} traces -> {args.output}")
    return 0
