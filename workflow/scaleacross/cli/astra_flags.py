"""The flags of ASTRA-sim's analytical binaries, for commands that take the same."""

from __future__ import annotations

import argparse

MODELS = ("unaware", "aware", "scaleacross")


def add_astra_flags(parser: argparse.ArgumentParser) -> None:
    """Add the twelve flags, with the binary's defaults; both ``--flag=value`` and ``--flag value`` work."""
    text = {
        "workload": "prefix of the traces: DIR/workload for DIR/workload.<rank>.et (or DIR/ranks.json)",
        "network": "network.yml",
        "system": "system.json",
        "remote-memory": "memory.json",
    }
    for name, help_text in text.items():
        parser.add_argument(f"--{name}-configuration", required=True, metavar="PATH", help=help_text)
    parser.add_argument(
        "--comm-group-configuration", default="empty", metavar="PATH", help="comm_groups.json; 'empty' for none"
    )
    parser.add_argument(
        "--num-queues-per-dim", type=positive_integer, default=1, metavar="N", help="queues a dimension"
    )
    parser.add_argument(
        "--injection-scale", type=positive_number, default=1.0, metavar="X", help="scales endpoint-delay"
    )
    parser.add_argument("--rendezvous-protocol", type=boolean, default=False, metavar="BOOL", help="true or false")
    for name in ("comm-scale", "compute-scale"):
        parser.add_argument(
            f"--{name}", type=positive_number, default=1.0, metavar="X", help="accepted and without effect, as there"
        )
    for name, default in (("logging-configuration", "empty"), ("logging-folder", "log")):
        parser.add_argument(f"--{name}", default=default, metavar="PATH", help="accepted; nothing is logged")


def positive_integer(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number above 0")
    return value


def boolean(text: str) -> bool:
    """``true`` or ``false`` as the binary reads them."""
    values = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return values[text.lower()]
