"""``scaleacross select``: the best design in every environment, and its speedup over each baseline."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("select", help="find the optimum and the speedups over the baselines")
    parser.add_argument("table", type=Path, help="results/<study>/results.csv")
    parser.add_argument("--study", required=True, type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--optimum", required=True, type=Path, help="optimum.yaml to write")
    parser.add_argument("--speedups", required=True, type=Path, help="speedups.csv to write")
    parser.add_argument("--certificate", type=Path, help="certificate.yaml of a certified search")
    parser.add_argument("--thresholds", type=Path, help="thresholds.yaml, what would change the choice")
    parser.add_argument("--interplay", required=True, type=Path, help="interplay.csv to write")
    parser.add_argument("--pareto", required=True, type=Path, help="pareto.csv to write")


def run(args: argparse.Namespace) -> int:
    """Write ``optimum.yaml``, ``speedups.csv``, ``interplay.csv`` and ``pareto.csv``."""
    import yaml

    from ..files import write_atomic
    from ..report.columns import SPEEDUPS
    from ..schema import read_yaml
    from ..search.baselines import described, pickers
    from ..search.interplay import COLUMNS as INTERPLAY_COLUMNS
    from ..search.interplay import interplay_rows
    from ..search.ondemand import OnDemand, asked_for, interplay_of_search, turned_back
    from ..search.optimum import optimum
    from ..search.pareto import FIRST, LAST, front_columns, pareto_rows
    from ..search.sailor import PICKER, add_estimates
    from ..search.select import environments, rules_of, speedups
    from ..study.tables import read_csv, write_csv
    from .columns import numeric_columns, result_columns

    content = json.loads(args.study.read_text())
    study, dimensions = content["study"], content["dimension_columns"]
    columns = result_columns(dimensions, content["tiers"])
    rows = read_csv(args.table, numeric_columns(columns))
    rules = rules_of(study)
    traces, configs = args.table.parent / "traces", Path(content["configs"])
    if PICKER in pickers(rules.baselines):
        add_estimates(rows, traces, configs)
    environment = list(rules.environment)
    write_csv(args.speedups, speedups(rows, rules), [*environment, *(column.name for column in SPEEDUPS)])
    design = [name for name in dimensions if name not in environment]
    chosen_freely = list(study["dimensions"])
    bench, turned = None, None
    if args.certificate is None:
        methods = interplay_rows(rows, rules, chosen_freely)
    elif (bench := asked_for(content, traces)) is not None:
        methods = interplay_of_search(bench, rows, rules)
        turned = partial(turned_back, OnDemand(bench, next(environments(rules)), rows))
    else:
        methods = []
    write_csv(args.interplay, methods, [*environment, *INTERPLAY_COLUMNS])
    fronts, exact = content["pareto"], args.certificate is None
    table = pareto_rows(rows, rules, fronts, design, exact)
    write_csv(args.pareto, table, [*environment, *FIRST, *design, *front_columns(fronts), *LAST])
    derived = [name for name in design if name not in study["dimensions"] and name not in study["fixed"]]
    result = optimum(rows, rules, design, traces, configs, content["gpus_per_node"], exact, fronts, derived, turned)
    if bench is not None:
        bench.close()
    if args.thresholds is not None:
        result["environments"][0]["thresholds"] = read_yaml(args.thresholds)
    if args.certificate is not None:
        result["certificate"] = read_yaml(args.certificate)
    result["baselines"] = described(study.get("baselines", {}))
    text = yaml.dump({"study": study["name"], **result}, Dumper=_dumper(), sort_keys=False, width=120)
    write_atomic(args.optimum, text, only_if_changed=True)
    chosen = result["environments"][0]
    print(f"best of the headline environment: {chosen['point_id']}")
    return 0


def _dumper() -> Any:
    """YAML's safe dumper, with texts of several lines as they are."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper
