"""``scaleacross twin``: points of a study on 64 to 256 NPUs, as folders that the ASTRA-sim binary takes as they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..study.flow import Settings
    from ..study.twin import Twin

TIME_LIMIT = 600.0  # seconds, of one run of a simulator


def add_parser(subparsers: Any) -> None:
    """Options of the command."""
    parser = subparsers.add_parser("twin", help="write points scaled down to 64-256 NPUs as ASTRA-sim input folders")
    parser.add_argument("study", help="name or file of a study")
    parser.add_argument(
        "points", nargs="*", help="ids of points; default: the winner and the baselines of the headline"
    )
    parser.add_argument("--output", type=Path, help="folder for the twins; default: results/<study>/twins")
    parser.add_argument("--compare", action="store_true", help="run both simulators and compare every rank's cycles")
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="the flow's settings")
    parser.add_argument("--results", type=Path, help="folder of results instead of that of the settings")


def run(args: argparse.Namespace) -> int:
    """Write the twins, print how to run each, and compare the simulators where asked. Exit code 1 when they differ."""
    from ..study.design import Designer
    from ..study.flow import astra_sim_binary, settings_from_file
    from ..study.schema import load_study
    from ..study.twin import find_points, write_twin

    settings = settings_from_file(args.config, study=args.study, results=args.results)
    binary = astra_sim_binary(settings) if args.compare else None
    study = load_study(args.study, settings.overrides)
    points = find_points(study, args.points or _default_points(settings, study.name))
    designer = Designer(study)
    folder = args.output or settings.results / study.name / "twins"
    equal = True
    for point in points:
        twin = write_twin(designer, point, folder / point.point_id)
        print(f"{twin.point_id}: {twin.npus} NPUs in {twin.folder} ({twin.description})")
        print(f"  {binary or 'AstraSim_Analytical_Congestion_Unaware'} " + " ".join(twin.flags))
        if binary is not None:
            equal = _compare(twin, binary) and equal
    return 0 if equal else 1


def _default_points(settings: Settings, study: str) -> Sequence[str]:
    """Winner and baselines of the headline environment.

    Raises:
        InvalidInput: E-RESULTS when the study has not been run.
    """
    from ..errors import InvalidInput
    from ..schema import read_yaml
    from ..study.tables import read_csv

    optimum = settings.results / study / "optimum.yaml"
    if not optimum.is_file():
        raise InvalidInput(
            "E-RESULTS", f"{optimum.parent} holds no optimum.yaml", "run the study first, or name points"
        )
    headline = read_yaml(optimum)["environments"][0]
    rows = [
        row
        for row in read_csv(optimum.with_name("speedups.csv"))
        if all(row[name] == value for name, value in headline["environment"].items())
    ]
    found = [headline["point_id"], *(row["baseline_point_id"] for row in rows)]
    return list(dict.fromkeys(point for point in found if point))


def _compare(twin: Twin, binary: Path) -> bool:
    """Run the binary on every rank's trace and the embedded engine on both forms; print the largest difference."""
    from ..astra.runner import run_astra_sim
    from ..study.twin import FOLDED

    reference = run_astra_sim(binary, twin.folder / "workload", twin.folder, time_limit=TIME_LIMIT)
    if reference.status != "ok":
        print(f"  ASTRA-sim: {reference.status}: {reference.message}")
        return False
    print(f"  ASTRA-sim: {reference.iteration_ns} cycles in {reference.wall_seconds:.1f} s")
    equal = True
    for form, prefix in (("every rank", twin.folder / "workload"), ("folded", twin.folder / FOLDED / "workload")):
        outcome = simulate_embedded(prefix, twin.folder)
        if outcome.status != "ok":
            print(f"  embedded, {form}: {outcome.status}: {outcome.message}")
            equal = False
            continue
        finish = int(abs(outcome.finish_cycles - reference.finish_cycles).max())
        exposed = int(abs(outcome.exposed_cycles - reference.exposed_cycles).max())
        ranks = int((outcome.finish_cycles != reference.finish_cycles).sum())
        print(
            f"  embedded, {form}: {outcome.iteration_ns} cycles; largest difference of a rank: finish {finish},"
            f" exposed {exposed}; {ranks} of {twin.npus} ranks finish at another time"
        )
        equal = equal and finish == 0 and exposed == 0
    return equal


def simulate_embedded(prefix: Path, folder: Path) -> Any:
    """Outcome of the embedded engine in its ``unaware`` model, the one that equals the binary."""
    from ..engine import load_config, load_workload, simulate

    groups = folder / "comm_groups.json"
    config = load_config(
        network=folder / "network.yml",
        system=folder / "system.json",
        memory=folder / "memory.json",
        groups=groups if groups.is_file() else None,
    )
    return simulate(load_workload(prefix), config, model="unaware", time_limit=TIME_LIMIT)
