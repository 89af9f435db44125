"""``scaleacross sim``: simulate ASTRA-sim inputs, with the flags and the output of its analytical binaries."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import EXIT_DEADLOCK, EXIT_FAILED, EXIT_INVALID, EXIT_LIMIT
from .astra_flags import MODELS, add_astra_flags, positive_number

if TYPE_CHECKING:
    from ..engine import Config, Outcome, Workload

EXIT_CODES = {"ok": 0, "invalid": EXIT_INVALID, "deadlock": EXIT_DEADLOCK, "timeout": EXIT_LIMIT}


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser(
        "sim",
        allow_abbrev=False,
        help="simulate ASTRA-sim inputs",
        description="Simulate ASTRA-sim inputs with the flags of its analytical binaries. "
        "Exit code: 0 every rank finished, 2 invalid input, 3 deadlock, 4 time limit.",
    )
    add_astra_flags(parser)
    parser.add_argument("--network-model", choices=MODELS, default="unaware", help="default: unaware")
    parser.add_argument("--json", metavar="FILE", help="write everything that is known ('-': to stdout)")
    parser.add_argument("--timeline", metavar="FILE", help="write Chrome trace events, for Perfetto")
    parser.add_argument("--time-limit", type=positive_number, metavar="SECONDS", help="stop after this time")
    parser.add_argument("--no-check", action="store_true", help="skip the checks before the run")


def run(args: argparse.Namespace) -> int:
    """Check, simulate, print a line a rank in the order of finishing."""
    from ..engine import load_config, simulate
    from ..engine.workload import prepare
    from ..trace.workload import open_workload

    groups = None if args.comm_group_configuration == "empty" else args.comm_group_configuration
    config = load_config(
        args.network_configuration, args.system_configuration, args.remote_memory_configuration, groups
    )
    source = open_workload(args.workload_configuration)
    if not args.no_check and _refused(source, config, args):
        return EXIT_INVALID
    workload = prepare(source)
    outcome = simulate(
        workload,
        config,
        args.network_model,
        args.num_queues_per_dim,
        args.injection_scale,
        args.rendezvous_protocol,
        args.comm_scale,
        args.compute_scale,
        args.time_limit,
        timeline=args.timeline is not None,
    )
    _print(outcome, sys.stdout if args.json != "-" else sys.stderr)
    _write(args, outcome, workload)
    if outcome.message:
        print(outcome.message, file=sys.stderr)
    return EXIT_CODES.get(outcome.status, EXIT_FAILED)


def _refused(source: Any, config: Config, args: argparse.Namespace) -> bool:
    """Run the checks; print their errors. Warnings are for ``scaleacross check``."""
    from ..validate import ERROR, check_loaded

    groups = None if args.comm_group_configuration == "empty" else args.comm_group_configuration
    findings = check_loaded(
        source, config.network, config.system, config.memory, config.groups, groups, args.network_model
    )
    errors = [finding for finding in findings if finding.severity == ERROR]
    for finding in errors:
        print(finding, file=sys.stderr)
    return bool(errors)


def _print(outcome: Outcome, stream: Any) -> None:
    """The reference's lines: ``sys[i] finished, N cycles, exposed communication M cycles.``"""
    finish, exposed = outcome.finish_cycles.tolist(), outcome.exposed_cycles.tolist()
    stamp = datetime.datetime.now().strftime("[%Y-%m-%d %H:%M:%S.%f")[:-3] + "] [workload] [info] "
    done = sorted((cycles, rank) for rank, cycles in enumerate(finish) if cycles >= 0)
    lines = [f"{stamp}sys[{r}] finished, {c} cycles, exposed communication {exposed[r]} cycles.\n" for c, r in done]
    stream.write("".join(lines))


def _write(args: argparse.Namespace, outcome: Outcome, workload: Workload) -> None:
    if args.json:
        text = json.dumps(to_json(outcome)) + "\n"
        if args.json == "-":
            sys.stdout.write(text)
        else:
            from ..files import write_atomic

            write_atomic(args.json, text)
    if args.timeline and outcome.timelines:
        from ..engine.timeline import chrome_trace
        from ..files import write_atomic

        write_atomic(args.timeline, json.dumps(chrome_trace(outcome, workload.files)))


def to_json(outcome: Outcome) -> dict[str, Any]:
    """What ``--json`` writes: lists are indexed by rank, times are ns, unless the name says otherwise."""
    bound = outcome.bound_ratio
    return {
        "status": outcome.status,
        "message": outcome.message,
        "network_model": outcome.model,
        "finish_cycles": [cycles if cycles >= 0 else None for cycles in outcome.finish_cycles.tolist()],
        "exposed_cycles": [
            value if cycles >= 0 else None
            for value, cycles in zip(outcome.exposed_cycles.tolist(), outcome.finish_cycles.tolist(), strict=True)
        ],
        "iteration_ns": outcome.iteration_ns,
        "breakdown_ns": outcome.breakdown,
        "bytes_per_dim": outcome.bytes_per_dim,
        "tiers": [{key: None if value != value else value for key, value in asdict(t).items()} for t in outcome.tiers],
        "bound_ratio": bound if bound < float("inf") else None,
        "events": outcome.events,
        "wall_s": round(outcome.wall_s, 6),
    }
