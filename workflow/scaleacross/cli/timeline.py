"""``scaleacross timeline``: what a point of a study does when, as a file for Perfetto, and its critical path."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WINNER = "winner"


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("timeline", help="write what points of a study do when, for Perfetto")
    parser.add_argument("study", help="name or file of a study that has run")
    parser.add_argument("points", nargs="*", default=[WINNER], help="ids, baselines or 'winner' (default)")
    parser.add_argument("--output", type=Path, help="Chrome trace events (default: <point>.timeline.json)")
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")


def run(args: argparse.Namespace) -> int:
    """Simulate the points again with every operator kept; one file with all of them on one time axis."""
    from ..search.timeline import replayed, write_timeline
    from ..study.flow import settings_from_file
    from ..study.schema import load_study
    from ..study.tables import read_csv

    settings = settings_from_file(args.config, study=args.study, results=args.results)
    folder = settings.results / load_study(settings.studies[0], settings.overrides).name
    rows = {row["point_id"]: row for row in read_csv(folder / "results.csv", ["iteration_time_s"])}
    configs = Path(json.loads((folder / "design/study.json").read_text())["configs"])
    designs = []
    for word in args.points:
        row = _row(word, rows, folder)
        workload, config = folder / "traces" / row["plan_id"] / "workload", configs / row["config_id"]
        designs.append(replayed(word, workload, config, row["network_model"], row["iteration_time_s"]))
        print(f"{word} ({row['point_id']}): {row['iteration_time_s']:.4f} s")
        for kind, seconds in designs[-1].critical_seconds().items():
            print(f"  {seconds / row['iteration_time_s']:6.1%} of the critical path: {kind}")
    output = args.output or Path(f"{args.points[0]}.timeline.json")
    write_timeline(output, designs)
    print(f"timeline: {output} (open it at ui.perfetto.dev)")
    return 0


def _row(word: str, rows: Mapping[str, Any], folder: Path) -> Any:
    """The row that a word means: a point's id, or winner or a baseline in the headline environment.

    Raises:
        InvalidInput: E-POINT for a word that means none, or a point without a time.
    """
    from ..errors import InvalidInput, did_you_mean
    from ..schema import read_yaml
    from ..study.tables import read_csv

    named: dict[str, str] = {}
    for speedup in reversed(read_csv(folder / "speedups.csv")):  # the headline environment comes first
        named[speedup["baseline"]] = speedup["baseline_point_id"]
    named[WINNER] = read_yaml(folder / "optimum.yaml")["environments"][0]["point_id"]
    row = rows.get(named.get(word, word))
    if row is None:
        raise InvalidInput("E-POINT", f"{folder} has no point {word!r}", did_you_mean(word, [*named, *rows]))
    if row["iteration_time_s"] is None:
        raise InvalidInput("E-POINT", f"{row['point_id']} has no time: {row['status']}", "choose one that is ok")
    return row
