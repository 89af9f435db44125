"""``scaleacross prune``: what a study's folders still hold of points that have left it, and its removal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("prune", help="list what a study no longer uses, and remove it with --remove")
    parser.add_argument("study", help="name or file of a study")
    parser.add_argument("--remove", action="store_true", help="remove it; without this it is only listed")
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")


def run(args: argparse.Namespace) -> int:
    """List, and remove when asked. Designs the study first if it was edited, as the flow would."""
    from ..study.flow import prepare, settings_from_file
    from ..study.prune import find_stale, remove

    settings = settings_from_file(args.config, study=args.study, results=args.results)
    stale = find_stale(prepare(settings.studies[0], settings))
    for item in stale:
        print(f"{item.size / 1e6:10.2f} MB  {item.path}")
    total = sum(item.size for item in stale) / 1e6
    if args.remove:
        remove(stale)
    done = "removed" if args.remove else "unused; remove them with --remove"
    print(f"{len(stale)} files and folders, {total:.2f} MB, {done}" if stale else "nothing is unused")
    return 0
