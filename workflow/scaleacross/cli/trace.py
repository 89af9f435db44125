"""``scaleacross trace``: the Chakra traces of a batch of plans."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("trace", help="write the Chakra traces of a batch of plans")
    parser.add_argument("plans", type=Path, help="results/<study>/design/plans_<batch>.json")
    parser.add_argument("--output", required=True, type=Path, help="manifest; traces go to <its folder>/<plan_id>/")


def run(args: argparse.Namespace) -> int:
    """Write ``<folder>/<plan_id>/`` for every plan; a plan that is there, made by the same code, is kept."""
    from ..files import write_atomic
    from ..study.traces import TraceRecord, write_traces

    manifest: dict[str, Any] = {}
    for plan_id, plan in json.loads(args.plans.read_text()).items():
        start = time.perf_counter()
        record: TraceRecord = write_traces(args.output.parent / plan_id, plan)
        manifest[plan_id] = record.as_dict()
        state = "kept" if record.kept else f"{time.perf_counter() - start:.2f} s"
        print(
            f"{plan_id}: {record.files} files, {record.nodes} nodes, {record.bytes / 1e6:.1f} MB, {state}", flush=True
        )
    write_atomic(args.output, json.dumps(manifest, indent=1) + "\n")
    return 0
