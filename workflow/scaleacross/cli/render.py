"""``scaleacross render``: the ASTRA-sim configuration folders of a study, one for each distinct configuration."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("render", help="write the ASTRA-sim configuration folders")
    parser.add_argument("configs", type=Path, help="results/<study>/design/configs.json")
    parser.add_argument("--folder", required=True, type=Path, help="astra_configs/<study>")
    parser.add_argument(
        "--output", required=True, type=Path, help="list of the configurations, written when all are there"
    )


def run(args: argparse.Namespace) -> int:
    """Write ``<folder>/<config_id>/`` with the files that the design step rendered and parsed back."""
    from ..astra.render import write_config
    from ..files import write_atomic

    configs = json.loads(args.configs.read_text())
    for config_id, files in configs.items():
        write_config(args.folder / config_id, files)
    write_atomic(args.output, json.dumps(sorted(configs), indent=0) + "\n")
    print(f"{len(configs)} configurations -> {args.folder}")
    return 0
