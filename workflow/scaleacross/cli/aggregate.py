"""``scaleacross aggregate``: points and result rows joined into ``results.csv``, a row for every point."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("aggregate", help="join points and result rows into results.csv")
    parser.add_argument("rows", nargs="*", type=Path, help="results/<study>/runs/batch_*.jsonl")
    parser.add_argument("--points", required=True, type=Path, help="results/<study>/points.csv")
    parser.add_argument("--study", required=True, type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--output", required=True, type=Path, help="results.csv to write")
    parser.add_argument("--provenance", required=True, type=Path, help="provenance.yaml to write")


def run(args: argparse.Namespace) -> int:
    """Write the table (and its parquet twin where pyarrow is installed) and what it was made from."""
    import yaml

    from ..files import write_atomic
    from ..search.outcomes import with_outcomes
    from ..search.pacing import paced
    from ..search.table import Pair, join, read_rows, write_parquet
    from ..study.outcomes import requirements
    from ..study.provenance import versions
    from ..study.tables import Row, read_csv, write_csv
    from .columns import numeric_columns, result_columns

    content = json.loads(args.study.read_text())
    wanted = requirements(content["study"]["require"], content["tiers"])
    points, rows = read_csv(args.points), read_rows(args.rows)

    def told(rows: Mapping[Pair, Row]) -> list[Row]:
        return [with_outcomes(row, wanted, content["tiers"]) for row in join(points, rows)]

    own = told(rows)
    good = {(row["plan_id"], row["config_id"]) for row in own if row["status"] == "ok"}
    after = told({**rows, **paced({pair: row for pair, row in rows.items() if pair in good})})
    table = [row if row["status"] == "ok" else before for before, row in zip(own, after, strict=True)]
    columns = result_columns(content["dimension_columns"], content["tiers"])
    write_csv(args.output, table, columns)
    write_parquet(args.output.with_suffix(".parquet"), table, columns, numeric_columns(columns))
    record = {"study": content["study"], "design_key": content["key"], "versions": versions(content)}
    write_atomic(args.provenance, yaml.safe_dump(record, sort_keys=False, width=120), only_if_changed=True)
    print(f"{len(table)} points -> {args.output}")
    return 0
