"""``scaleacross verdict``: the last check of a run, which fails it when more points failed than the study allows."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("verdict", help="fail when more points failed than the study allows")
    parser.add_argument("table", type=Path, help="results/<study>/results.csv")
    parser.add_argument("--study", required=True, type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--output", required=True, type=Path, help="text file to write when the check passes")


def run(args: argparse.Namespace) -> int:
    """Count the statuses.

    Raises:
        ScaleAcrossError: E-FAILURES when the share of failed points is above ``failure_threshold``, or none is ok.
    """
    from ..files import write_atomic
    from ..search.verdict import judge
    from ..study.tables import read_csv

    threshold = float(json.loads(args.study.read_text())["study"]["failure_threshold"])
    text = judge(read_csv(args.table), threshold)
    write_atomic(args.output, text + "\n")
    print(text)
    return 0
