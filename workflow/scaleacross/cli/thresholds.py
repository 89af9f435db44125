"""``scaleacross thresholds``: at which bandwidth, latency, oversubscription or memory another design would win."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("thresholds", help="find what would change the choice of the headline environment")
    parser.add_argument("table", type=Path, help="results/<study>/results.csv")
    parser.add_argument("--study", required=True, type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--certificate", type=Path, help="certificate.yaml of a certified search")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--output", required=True, type=Path, help="thresholds.yaml to write")


def run(args: argparse.Namespace) -> int:
    """Write ``thresholds.yaml``."""
    import yaml

    from ..files import write_atomic
    from ..schema import read_yaml
    from ..search.sensitivity import thresholds
    from ..study.tables import read_csv
    from .columns import numeric_columns, result_columns

    content = json.loads(args.study.read_text())
    columns = result_columns(content["dimension_columns"], content["tiers"])
    rows = read_csv(args.table, numeric_columns(columns))
    certificate = None if args.certificate is None else read_yaml(args.certificate)
    found = thresholds(content, rows, args.table.parent / "traces", args.cores, certificate)
    write_atomic(args.output, yaml.safe_dump(found, sort_keys=False, width=120), only_if_changed=True)
    print(f"{len(found.get('network', []))} numbers change the choice, {found.get('simulations', 0)} simulations")
    return 0
