"""``scaleacross simulate``: a result row for every (plan, configuration) pair of a batch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("simulate", help="simulate a batch of points, one result row each")
    parser.add_argument("runs", type=Path, help="results/<study>/design/runs_<batch>.json")
    parser.add_argument("--traces", required=True, type=Path, help="manifest of the batch's traces")
    parser.add_argument("--configs", required=True, type=Path, help="astra_configs/<study>")
    parser.add_argument("--astra-sim", type=Path, help="the ASTRA-sim binary, for `simulator: astra-sim`")
    parser.add_argument("--output", required=True, type=Path, help="JSON lines to write")


def run(args: argparse.Namespace) -> int:
    """Simulate what is not known yet, in a child process, and write every row."""
    from ..search.batch import Batch, simulate_batch

    batch = Batch(
        runs=json.loads(args.runs.read_text()),
        traces=json.loads(args.traces.read_text()),
        trace_folder=args.traces.parent,
        config_folder=args.configs,
        cache_folder=args.output.parent / "kept",
        astra_sim=args.astra_sim,
    )
    simulate_batch(batch, args.output)
    return 0
