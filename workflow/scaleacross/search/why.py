"""Why points of a large space are infeasible: counted by constraint and by plan, without writing a row a point."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import Infeasible
from ..progress import Progress
from ..study.design import Designer
from ..study.plans import parallelism_of
from ..study.schema import Study
from .screen import Excluded, Screen
from .space import Space, Values

KEPT = 64  # plans in memory


def screened(study: Study, root: Path = Path()) -> str:
    """Lines ``count x cause, for example ...`` of every environment, and how many points are left."""
    designer = Designer(study, root, kept=KEPT)
    space = Space(designer)
    return "\n".join(line for environment in space.environments() for line in _lines(space, environment))


def _lines(space: Space, environment: Values) -> list[str]:
    screen, progress = Screen(space, environment), Progress(f"design {space.designer.study.name}")
    found: dict[str, Excluded] = {}
    points = plans = 0
    for numbers, masks in screen.blocks():
        sizes = np.array([int(mask.sum()) for mask in screen.masks])[masks]
        for number, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
            plans += 1
            try:
                _check(space, environment, number)
                points += size
            except Infeasible as error:
                entry = found.setdefault(error.error_id, Excluded(0, error.clash))
                entry.points += size
            progress.tell(f"{plans:,} plans of {space.plan_count:,} combinations checked, {points:,} points feasible")
    causes = {f"E-CONSTRAINT {text}": entry for text, entry in screen.excluded.items()} | found
    ordered = sorted(causes.items(), key=lambda item: -item[1].points)
    place = ", ".join(f"{name} {value}" for name, value in environment.items())
    head = f"{place + ': ' if place else ''}{points} of {space.points_an_environment} points feasible"
    return [head, *(f"{entry.points:>10} x {name}  for example: {entry.example}" for name, entry in ordered)]


def _check(space: Space, environment: Values, number: int) -> None:
    """Raise the rule that a plan breaks, or that it does not fit in memory, on the first of its networks."""
    designer = space.designer
    values = space.values(environment, space.plan(number), space.networks[0])
    setting = designer.setting(values)
    plan = designer.plan(setting, parallelism_of(values, setting.cluster.gpus))
    if plan.problem is not None:
        raise plan.problem
