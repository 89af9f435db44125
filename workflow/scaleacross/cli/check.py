"""``scaleacross check``: what is wrong with a set of ASTRA-sim inputs, before a run; the flags of its binary."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .astra_flags import MODELS, add_astra_flags


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser(
        "check",
        allow_abbrev=False,
        help="check any set of ASTRA-sim inputs before a run",
        description="List what would crash, hang, be ignored or be free, one line each; exit code 2 on errors.",
    )
    add_astra_flags(parser)
    parser.add_argument(
        "--network-model", choices=MODELS, help="aware: also the limits of the congestion-aware backend"
    )
    parser.add_argument("--no-warnings", action="store_true", help="list errors only")


def run(args: argparse.Namespace) -> int:
    """Print every finding on its own line; 0 without errors, 2 with."""
    from ..validate import WARNING, check_inputs, exit_code

    findings = check_inputs(
        args.workload_configuration,
        args.network_configuration,
        args.system_configuration,
        args.remote_memory_configuration,
        args.comm_group_configuration,
        args.network_model,
    )
    for finding in findings:
        if finding.severity != WARNING or not args.no_warnings:
            print(finding)
    warnings = sum(finding.severity == WARNING for finding in findings)
    print(f"{len(findings) - warnings} errors, {warnings} warnings", file=sys.stderr)
    return exit_code(findings)
