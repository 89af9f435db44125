"""``scaleacross published``: predictions of the flow beside the published values of its studies."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("published", help="compare results with the published values of their studies")
    parser.add_argument("tables", nargs="+", type=Path, help="results.csv of studies with published values")
    parser.add_argument("--output", required=True, type=Path, help="validation.csv to write")
    parser.add_argument("--markdown", type=Path, help="Markdown table to write")
    parser.add_argument("--figure", nargs="*", type=Path, default=[], help="scatter plot to write, .svg or .png")


def run(args: argparse.Namespace) -> int:
    """Compare, write, print the table.

    Raises:
        InvalidInput: E-PUBLISHED for a published row whose point is missing or failed.
    """
    from ..files import write_atomic
    from ..published import compare
    from ..published.figure import write_scatter
    from ..published.tables import COLUMNS, csv_rows, markdown
    from ..study.tables import write_csv

    rows = compare(args.tables)
    write_csv(args.output, csv_rows(rows), COLUMNS)
    text = markdown(rows)
    if args.markdown:
        write_atomic(args.markdown, text, only_if_changed=True)
    if args.figure:
        write_scatter(rows, args.figure)
    print(text, end="")
    return 0
