"""``scaleacross design``: enumerate a study's points and check each, without simulating any."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("design", help="enumerate a study's points, check each, write what the flow runs on")
    parser.add_argument("study", nargs="?", help="name or file of a study; default: that of config/config.yaml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="change the study, repeatable"
    )
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")
    parser.add_argument("--why", action="store_true", help="list why points are infeasible")


def run(args: argparse.Namespace) -> int:
    """Design the study, write ``<results>/<study>/design`` and print the counts."""
    from ..search.why import screened
    from ..study.flow import design_key, settings_from_file
    from ..study.reasons import tabulate
    from ..study.schema import Study, study_path
    from ..study.tables import read_csv
    from ..study.write import design_study

    settings = settings_from_file(args.config, study=args.study, results=args.results, overrides=args.overrides)
    for name in settings.studies:
        content = design_study(name, settings, design_key(study_path(name), settings))
        counts = ", ".join(f"{count} {what}" for what, count in content["counts"].items())
        print(f"{content['study']['name']}: {counts}")
        if args.why and content["study"]["search"] == "certified":
            print(screened(Study.model_validate(content["study"])))
        elif args.why:
            print(tabulate(read_csv(settings.results / content["study"]["name"] / "points.csv")))
    return 0
