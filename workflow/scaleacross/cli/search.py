"""``scaleacross search``: the certified optimum of a designed study, from few simulations."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("search", help="find a study's optimum with a proof, simulating few points")
    parser.add_argument("study", type=Path, help="results/<study>/design/study.json")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--astra-sim", type=Path, help="the ASTRA-sim binary, for `simulator: astra-sim`")
    parser.add_argument("--points", required=True, type=Path, help="table of the points that were simulated, to write")
    parser.add_argument("--rows", required=True, type=Path, help="their result rows as JSON lines, to write")
    parser.add_argument(
        "--plans", required=True, type=Path, help="plans.csv.gz with what became of every plan, to write"
    )
    parser.add_argument("--certificate", required=True, type=Path, help="certificate.yaml to write")


def run(args: argparse.Namespace) -> int:
    """Search every environment and write what was simulated, and the certificate."""
    from ..files import write_atomic
    from ..search.certificate import certificate_text
    from ..search.search_study import search_study, write_search

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a cancelled job ends its processes
    content = json.loads(args.study.read_text())
    folder = args.study.parent.parent
    certificates, search = search_study(content, folder, max(1, args.cores), args.astra_sim)
    write_search(content, search, args.points, args.rows, args.plans)
    write_atomic(args.certificate, certificate_text(content["study"]["name"], certificates))
    for certificate in certificates:
        place = ", ".join(f"{name} {value}" for name, value in certificate.environment.items()) or "the environment"
        found = f"{certificate.optimum_s:.6f} s" if certificate.optimum_s is not None else "no ok point"
        gap = "" if certificate.gap is None else f"gap {certificate.gap:.2%}, "
        print(
            f"{place}: {found}, {certificate.simulated} of {certificate.points} points simulated, "
            f"{certificate.pruned} pruned, {certificate.infeasible} infeasible, {gap}"
            f"{certificate.ended}, {certificate.seconds:.0f} s"
        )
    return 0
