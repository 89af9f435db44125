"""``scaleacross plan``: one plan shown, as another framework's settings, or read from them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..planview.choose import Chosen

POINT = """\
a point of the study: nothing (the optimum where the study has been run, else the production baseline), optimum, the
name of a baseline, a point_id, or key=value ... (pp=16 schedule=interleaved): the first feasible point with these"""


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser(
        "plan",
        help="show a plan: rank map, groups, memory, schedule; or print it as Megatron-LM or torchtitan settings",
    )
    actions = parser.add_subparsers(dest="action", metavar="show|flags|from-flags", required=True)
    show = actions.add_parser("show", help="rank map, groups and their traffic, memory a stage, schedule")
    _add_point(show)
    show.add_argument("--rank-map", type=Path, metavar="FILE", help="write every rank's place as CSV")
    show.add_argument("--gantt", type=Path, metavar="FILE", help="write the schedule as SVG")
    show.add_argument("--json", action="store_true", help="print everything as JSON")
    flags = actions.add_parser("flags", help="the same plan as another framework's settings")
    _add_point(flags)
    _add_framework(flags, required=True)
    read = actions.add_parser("from-flags", help="the plan of an existing launch line or TOML file")
    read.add_argument("file", type=Path, help="a launch script, a command line or a torchtitan TOML; - for the input")
    _add_framework(read, required=False)
    read.add_argument("--gpus", type=int, help="how many GPUs, where the file does not say it")
    read.add_argument("--study", help="place the plan on this study's cluster and show it")
    read.add_argument("--json", action="store_true", help="print everything as JSON")
    read.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    return int({"show": _show, "flags": _flags, "from-flags": _from_flags}[args.action](args))


def _add_point(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help="name or file of a study")
    parser.add_argument("point", nargs="*", help=POINT)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")


def _add_framework(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--framework", required=required, help="megatron-lm or torchtitan")


def _chosen(args: argparse.Namespace) -> Chosen:
    from ..planview.choose import choose
    from ..study.design import Designer
    from ..study.flow import settings_from_file
    from ..study.schema import load_study

    settings = settings_from_file(args.config, study=args.study, results=args.results)
    study = load_study(args.study, settings.overrides)
    return choose(study, Designer(study), args.point, settings.results / study.name)


def _show(args: argparse.Namespace) -> int:
    from ..files import write_atomic
    from ..plan.placement import rank_map_csv

    chosen = _chosen(args)
    if args.rank_map:
        write_atomic(args.rank_map, rank_map_csv(chosen.plan.placement))
    _print(chosen, args.json, args.gantt)
    return 0


def _flags(args: argparse.Namespace) -> int:
    from ..plan.frameworks import write

    chosen = _chosen(args)
    text = write(args.framework, chosen.launch)
    print(f"# {chosen.study}, point {chosen.point.point_id}, plan {chosen.plan.plan_id}: {chosen.how}")
    if chosen.plan.problem is not None:
        print(f"# does not fit: {chosen.plan.problem}")
    print(text, end="")
    return 0


def _from_flags(args: argparse.Namespace) -> int:
    from ..plan.frameworks import VERSIONS, guess, read

    text = _text(args.file)
    framework = args.framework or guess(text)
    reading = read(framework, text, args.gpus)
    for note in reading.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.study:
        from ..planview.existing import place_launch

        _print(place_launch(reading.launch, args.study, args.config, str(args.file)), args.json, None)
        return 0
    launch = reading.launch
    content = {
        "read_as": VERSIONS[framework],
        "model": {name: value for name, value in launch.model.model_dump(mode="json").items() if value},
        "training": dict(launch.training.__dict__),
        "parallelism": launch.parallelism.as_dict(),
        "gpus": launch.parallelism.world,
        "notes": list(reading.notes),
    }
    if args.json:
        print(json.dumps(content, indent=1))
        return 0
    import yaml

    print(yaml.safe_dump(content, sort_keys=False, width=100, default_flow_style=None), end="")
    return 0


def _print(chosen: Chosen, as_json: bool, svg: Path | None) -> None:
    from ..planview.facts import bars, facts_of
    from ..planview.gantt import gantt_lines, write_svg
    from ..planview.text import plan_text

    facts = facts_of(chosen)
    drawn = bars(chosen)
    if svg:
        write_svg(f"{facts['study']} {facts['point_id']}: {facts['schedule']['name']}", drawn, svg)
    print(json.dumps(facts, indent=1) if as_json else plan_text(facts, gantt_lines(drawn)))


def _text(path: Path) -> str:
    """Content of a file, or of the standard input for ``-``.

    Raises:
        InvalidInput: E-FILE when it cannot be read.
    """
    from ..errors import InvalidInput

    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("E-FILE", f"cannot read {path} ({error})", "check the path") from None
