"""``scaleacross collective``: what each algorithm sends across the cuts, and one as ASTRA-sim's custom traces."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput

if TYPE_CHECKING:
    from ..astra.algorithms.survey import Choice

MOST_TRACED = 512
MOST_BYTES = 1e18


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("collective", help="compare the algorithms of a collective across the cuts")
    parser.add_argument(
        "members",
        nargs="+",
        metavar="TIER:N",
        help="members of the group, then units, in a unit of each tier, inner to outer: zone:8 campus:2",
    )
    parser.add_argument("--type", default="all-reduce", help="all-reduce, all-gather, reduce-scatter or all-to-all")
    parser.add_argument("--size", default="1 GiB", help="of the whole buffer (all-to-all: of what one sends)")
    parser.add_argument("--algorithm", help="with --write: the one to write")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="traces and the entry for system.json")


def run(args: argparse.Namespace) -> int:
    """Print a line an algorithm, and write one where asked to."""
    from ..astra.algorithms.survey import survey
    from ..units import parse

    members, size = _members(args.members), parse(args.size, "byte")
    if (args.write is None) != (args.algorithm is None):
        raise InvalidInput("E-COLLECTIVE", "--write and --algorithm go together", "give both or none")
    if not 1 <= size <= MOST_BYTES:
        raise InvalidInput("E-COLLECTIVE", f"--size {args.size!r}", f"give 1 byte or more, {MOST_BYTES:.0e} at most")
    print("\n".join(_lines(survey(members, args.type, size), list(members), args.type, args.size)))
    if args.write is not None:
        _write(args, list(members.values()), int(size))
    return 0


def _write(args: argparse.Namespace, sizes: Sequence[int], size: int) -> None:
    import json

    from ..astra.algorithms import make_schedule
    from ..astra.algorithms.custom import write_custom
    from ..files import write_atomic

    if math.prod(sizes) > MOST_TRACED:
        clash = f"traces of {math.prod(sizes)} members"
        raise InvalidInput("E-COLLECTIVE", clash, f"write {MOST_TRACED} at most; ASTRA-sim needs a file for each")
    entry = write_custom(args.write, make_schedule(args.algorithm, args.type, sizes), size)
    write_atomic(args.write / "system-entry.json", json.dumps(entry, indent=2) + "\n")
    print(f"{args.algorithm} as traces, and the key for system.json in system-entry.json -> {args.write}")


def _members(texts: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in " ".join(texts).split():
        tier, _, number = text.partition(":")
        if not tier or tier in found or not number.isascii() or not number.isdigit():
            raise InvalidInput("E-COLLECTIVE", f"members {text!r}", "write each tier once, as zone:8 campus:2")
        found[tier] = int(number)
    return found


def _lines(choices: Sequence[Choice], tiers: Sequence[str], collective: str, size: str) -> list[str]:
    from ..planview.words import count, scaled, table

    shown = tiers[1:] or tiers
    head = ["algorithm", "steps", "sent a member"]
    for tier in shown:
        head += [f"{tier}: crossings", "busiest uplink", "least"]
    rows, without = [], []
    for choice in choices:
        report = choice.report
        if report is None:
            without.append(f"  no {choice.algorithm}: {choice.lowered}")
            continue
        row = [choice.algorithm, count(report.steps), scaled(report.sent_bytes, "B")]
        for tier in shown:
            row += [count(report.crossings[tier]), scaled(report.cut_bytes[tier], "B")]
            row.append(scaled(report.bound_bytes[tier], "B"))
        rows.append([*row, choice.lowered])
    title = (
        f"{collective} of {size}: messages across each tier's cut, bytes out of its busiest unit, and the least of any"
    )
    return [title, *table([*head, "in ASTRA-sim"], rows, right=range(1, len(head))), *without]
