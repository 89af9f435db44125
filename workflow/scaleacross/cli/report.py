"""``scaleacross report``: the page and its figures from the tables, with the step in time of winner and baseline."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..report import Gantt, StudyFacts

MOST_STAGES = 64
TOLERANCE = 0.01  # of the iteration time; the last message may end after the last operator
TIME_LIMIT = 60.0  # seconds of wall time a timeline may take


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("report", help="write report.html and its figures")
    parser.add_argument("study", type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--output", required=True, type=Path, help="report.html to write, beside results.csv")
    parser.add_argument("--no-timelines", action="store_true", help="do not simulate winner and baseline again")


def run(args: argparse.Namespace) -> int:
    """Write the report into the folder that holds the tables."""
    from ..report import write_report
    from ..report.facts import facts_from

    folder = args.output.parent
    content = json.loads(args.study.read_text())
    facts = facts_from(content, _yaml(folder / "optimum.yaml"), _yaml(folder / "provenance.yaml"))
    gantts = [] if args.no_timelines else timelines(folder, content, facts)
    path = write_report(folder, facts, gantts, output=args.output)
    print(f"report: {path}")
    return 0


def _yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    return yaml.safe_load(path.read_text()) or {} if path.is_file() else {}


def timelines(folder: Path, content: Mapping[str, Any], facts: StudyFacts) -> list[Gantt]:
    """The step in time of the winner and of the first baseline, from the embedded engine; or fewer."""
    from ..errors import ScaleAcrossError
    from ..report.findings import TIME, load_findings
    from ..report.tables import number_of
    from ..report.words import short_label

    findings = load_findings(folder, facts)
    against, winner = findings.first_baseline(), findings.winner()
    points = [("winner", winner)]
    if against is not None and against.point is not winner:
        points.append((against.baseline, against.point))
    found = []
    for name, point in points:
        if point is None:
            continue
        workload = folder / "traces" / str(point["plan_id"]) / "workload"
        config = Path(content["configs"]) / str(point["config_id"])
        try:
            title = f"{name}: {short_label(point, findings.varied)}"
            gantt = _timeline(title, workload, config, str(point["network_model"]))
            _check_end(gantt, number_of(point, TIME))
            found.append(gantt)
        except (ScaleAcrossError, OSError) as error:
            print(f"no timeline of {point['point_id']}: {error}", file=sys.stderr)
    return found


def _timeline(title: str, workload: Path, config: Path, model: str) -> Gantt:
    """Simulate a point once more and keep what one rank of every class of ranks (pipeline stage) does when."""
    from ..engine import load_config, load_workload, simulate
    from ..errors import InvalidInput
    from ..report import from_timeline
    from ..trace.ranks import RankMap

    groups = config / "comm_groups.json"
    loaded = load_config(
        network=config / "network.yml",
        system=config / "system.json",
        memory=config / "memory.json",
        groups=groups if groups.is_file() else None,
    )
    outcome = simulate(load_workload(workload), loaded, model=model, timeline=True, time_limit=TIME_LIMIT)
    if outcome.status != "ok":
        raise InvalidInput("E-TIMELINE", f"{outcome.status}: {outcome.message}")
    stages = range(min(MOST_STAGES, len(RankMap.load(workload.parent).classes)))
    return from_timeline(title, {stage: outcome.timeline(stage) for stage in stages})


def _check_end(gantt: Gantt, seconds: float) -> None:
    """Refuse a timeline that contradicts the table (traces or configuration were written anew since then)."""
    from ..errors import InvalidInput

    if abs(gantt.end - seconds) > TOLERANCE * seconds:
        clash = f"the step ends after {gantt.end:.6g} s, results.csv says {seconds:.6g} s"
        raise InvalidInput("E-TIMELINE", clash, "run the flow again: its inputs changed since")
