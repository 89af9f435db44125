"""``scaleacross paper``: the paper's experiment over the results of its studies."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("paper", help="sum up the paper's experiment over its studies")
    parser.add_argument("speedups", nargs="+", type=Path, help="speedups.csv of every study, in its results folder")
    parser.add_argument("--output", required=True, type=Path, help="paper.csv to write, a row a design point, baseline")
    parser.add_argument("--markdown", required=True, type=Path, help="paper.md to write")


def run(args: argparse.Namespace) -> int:
    """Write table and summary, print the summary's first part."""
    from ..files import write_atomic
    from ..search.paper import COLUMNS, read_experiment, summary
    from ..study.tables import write_csv

    experiment = read_experiment([path.parent for path in args.speedups])
    write_csv(args.output, experiment.rows, COLUMNS)
    text = summary(experiment)
    write_atomic(args.markdown, text, only_if_changed=True)
    print(text.split("## Design points")[0])
    return 0
