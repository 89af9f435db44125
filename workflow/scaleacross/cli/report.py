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
    from ..search.timeline import Replayed

MOST_STAGES = 64
TIMELINE = "timeline.json"


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
    from ..search.timeline import write_timeline

    folder = args.output.parent
    content = json.loads(args.study.read_text())
    facts = facts_from(content, _yaml(folder / "optimum.yaml"), _yaml(folder / "provenance.yaml"))
    designs = [] if args.no_timelines else timelines(folder, content, facts)
    if designs:
        write_timeline(folder / TIMELINE, [design for design, _ in designs])
    else:
        (folder / TIMELINE).unlink(missing_ok=True)  # one of an earlier run would contradict the report
    critical = [(design.name, design.critical_seconds()) for design, _ in designs]
    path = write_report(folder, facts, [gantt for _, gantt in designs], output=args.output, critical=critical)
    print(f"report: {path}")
    return 0


def _yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    return yaml.safe_load(path.read_text()) or {} if path.is_file() else {}


def timelines(folder: Path, content: Mapping[str, Any], facts: StudyFacts) -> list[tuple[Replayed, Gantt]]:
    """The step in time of the winner and of the first baseline, from the embedded engine; or fewer."""
    from ..errors import ScaleAcrossError
    from ..report.findings import TIME, load_findings
    from ..report.tables import number_of
    from ..report.words import short_label
    from ..search.timeline import replayed

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
            design = replayed(name, workload, config, str(point["network_model"]), number_of(point, TIME))
            found.append((design, _gantt(f"{name}: {short_label(point, findings.varied)}", design, workload.parent)))
        except (ScaleAcrossError, OSError) as error:
            print(f"no timeline of {point['point_id']}: {error}", file=sys.stderr)
    return found


def _gantt(title: str, design: Replayed, traces: Path) -> Gantt:
    """What one rank of every class of ranks (pipeline stage) does when."""
    from ..report import from_timeline
    from ..trace.ranks import RankMap

    stages = range(min(MOST_STAGES, len(RankMap.load(traces).classes)))
    return from_timeline(title, {stage: design.outcome.timeline(stage) for stage in stages})
