"""The ``scaleacross`` command: one sub-command a step of the flow, and the stand-alone doors ``sim`` and ``check``.

Every module of this folder named below has ``add_parser(subparsers)`` and ``run(args) -> exit code``; only the module
of the command that was asked for is imported, so that ``scaleacross sim`` starts as fast as it can.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from .. import __version__
from ..errors import EXIT_FAILED, EXIT_INVALID, EXIT_LIMIT, ScaleAcrossError, did_you_mean

COMMANDS = {
    "design": "enumerate a study's points, check each, write what the flow runs on",
    "trace": "write the Chakra traces of a batch of plans",
    "render": "write the ASTRA-sim configuration folders",
    "simulate": "simulate a batch of points, one result row each",
    "search": "find a study's optimum with a proof, simulating few points",
    "aggregate": "join points and result rows into results.csv",
    "select": "find the optimum and the speedups over the baselines",
    "thresholds": "find what would change the choice: the nearest bandwidth, latency or memory",
    "report": "write report.html",
    "verdict": "fail when more points failed than the study allows",
    "published": "compare results with the published values of their studies",
    "paper": "sum up the paper's experiment over its studies",
    "timeline": "write what points of a study do when, for Perfetto, and their critical path",
    "show": "print a study's winner, its speedups and the report's path",
    "plan": "show a plan, print it as Megatron-LM or torchtitan settings, or read it from them",
    "twin": "write a point scaled down to 64-256 NPUs as a complete ASTRA-sim input folder",
    "prune": "list, or remove, traces and configurations that a study no longer uses",
    "sim": "simulate ASTRA-sim inputs: the flags and the output of its analytical binary",
    "check": "check any set of ASTRA-sim inputs before a run",
    "collective": "compare the algorithms of a collective across the cuts, write one as traces",
    "expand": "write every rank's trace of a folded workload",
}
EXIT_INTERRUPTED = 130


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the options of ``command`` alone; without one, only the list of commands."""
    parser = argparse.ArgumentParser(
        prog="scaleacross",
        description="Find the best design for training across data centres.",
        epilog="commands:\n" + "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="scaleacross COMMAND [options]" if command is None else None,
    )
    parser.add_argument("--version", action="version", version=f"scaleacross {__version__}")
    if command is not None:
        subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        importlib.import_module(f".{command}", __package__).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 2 invalid input, 3 deadlock, 4 limit reached, 1 anything else."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    if command is None or arguments[0].startswith("-"):
        build_parser().parse_args(arguments[:1])
        build_parser().print_help(sys.stderr)
        return EXIT_INVALID
    if command not in COMMANDS:
        print(f"E-COMMAND: there is no command {command!r}; {did_you_mean(command, COMMANDS)}", file=sys.stderr)
        return EXIT_INVALID
    try:
        module = importlib.import_module(f".{command}", __package__)
        return int(module.run(build_parser(command).parse_args(arguments)))
    except ScaleAcrossError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `scaleacross show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except MemoryError as error:
        detail = f" ({error})" if str(error) else ""
        fix = "raise the limit (ulimit -v), or fold the workload"
        print(f"E-MEMORY-LIMIT: the process may not take more memory{detail}; {fix}", file=sys.stderr)
        return EXIT_LIMIT
    except Exception as error:
        traceback.print_exc()
        print(f"E-INTERNAL: {type(error).__name__}: {error}; this is a defect of scaleacross", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
