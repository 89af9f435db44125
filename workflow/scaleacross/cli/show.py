"""``scaleacross show``: a study's winner, its speedups over the baselines and where the report is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("show", help="print a study's winner, its speedups and the report's path")
    parser.add_argument("study", nargs="?", help="name or file of a study; default: that of config/config.yaml")
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")


def run(args: argparse.Namespace) -> int:
    """Print the summary of every study named."""
    from ..study.flow import settings_from_file
    from ..study.schema import load_study

    settings = settings_from_file(args.config, study=args.study, results=args.results)
    for name in settings.studies:
        print(summary(settings.results / load_study(name, settings.overrides).name))
    return 0


def summary(folder: Path) -> str:
    """The text for one finished study.

    Raises:
        InvalidInput: E-RESULTS when the study has no results yet.
    """
    from ..errors import InvalidInput
    from ..schema import read_yaml

    if not (folder / "optimum.yaml").is_file():
        raise InvalidInput("E-RESULTS", f"{folder} holds no optimum.yaml", "run snakemake --cores N first")
    optimum = read_yaml(folder / "optimum.yaml")
    headline, *others = ({"objective": optimum["objective"], **entry} for entry in optimum["environments"])
    lines = [f"study {optimum['study']}{_place(headline['environment'])}"]
    lines += _winner(headline)
    for entry in others:
        gains = ", ".join(_gains(entry))
        lines.append(
            f"{_place(entry['environment'])[2:]}: {entry['point_id'] or 'none'}" + (f", {gains}" if gains else "")
        )
    report = folder / "report.html"
    lines.append(f"report: {report}" if report.is_file() else f"report: not written yet ({report})")
    return "\n".join(lines)


def _winner(entry: Mapping[str, Any]) -> list[str]:
    from ..report.change import memory_sentences, nearest
    from ..search.thresholds import NOISE

    if entry["point_id"] is None:
        return [f"  no winner: {entry['why']}"]
    design = ", ".join(f"{key} {value}" for key, value in entry["design"].items())
    lines = [
        f"  best design: {entry['point_id']}",
        f"    {design}",
        f"    {entry['iteration_time_s']:.3f} s an iteration, {entry['tflops_per_gpu']:.0f} TFLOP/s a GPU"
        f" (MFU {100 * entry['mfu']:.1f} %), {entry['memory_gib']:.1f} GiB of {entry['memory_limit_gib']:.1f} GiB",
    ]
    lines[-1] += f"; {entry['simulator']} simulator, network model {entry['network_model']}"
    if entry.get("unpaced_time_s"):
        lines.append(f"    paced like a worse network of the study; {entry['unpaced_time_s']:.3f} s without")
    if _is_about_cost(entry):
        lines.append(
            f"    {entry['tokens_per_usd']:,.0f} tokens per dollar: {entry['usd_per_iteration']:.2f} USD an iteration"
            f" on {entry['gpus']:,.0f} GPUs at {entry['usd_per_hour']:,.0f} USD an hour"
        )
    lines += [f"    {gain}" for gain in _gains(entry)]
    noise_pct = 100 * NOISE
    if any(abs(value) < noise_pct for value in entry["gain_pct"].values()):
        lines.append(f"    designs within {noise_pct:g} % of each other tie within the model (docs/network-model.md)")
    if "why" in entry:
        lines.append(f"    why: {entry['why']['summary']}")
    thresholds = entry.get("thresholds", {})
    if "network" in thresholds:
        lines.append(f"    what would change it: {' '.join([nearest(thresholds), *memory_sentences(thresholds)[-1:]])}")
    return lines


def _is_about_cost(entry: Mapping[str, Any]) -> bool:
    return bool(entry["objective"] == "tokens_per_usd")


def _gains(entry: Mapping[str, Any]) -> list[str]:
    """The gain over every baseline, in the study's objective; where that is cost, the speed beside it."""
    speed = entry.get("speedup_pct", {})
    if not _is_about_cost(entry):
        return [f"{value:+.2f} % over {name}" for name, value in speed.items()]
    gains = entry.get("gain_pct", {})
    return [f"{gains[name]:+.2f} % tokens per dollar over {name} ({speed[name]:+.2f} % speed)" for name in speed]


def _place(environment: Mapping[str, Any]) -> str:
    return ", " + ", ".join(f"{key} {value}" for key, value in environment.items()) if environment else ""
