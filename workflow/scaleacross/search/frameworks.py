"""The chosen design as other frameworks' settings, from the plan that lies beside its traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import Infeasible
from ..plan.frameworks import FRAMEWORKS, Launch, write
from ..study.plans import read_plan
from ..trace.generate import resolved

PLAN = "plan.json"


def framework_settings(folder: Path, gpus_per_node: int) -> dict[str, str] | None:
    """Framework -> its settings for the plan of a folder of traces, or the error that says what it lacks.

    None where the folder has no plan beside its traces.
    """
    try:
        content: Mapping[str, Any] = json.loads((folder / PLAN).read_text())["plan"]
    except (OSError, ValueError, KeyError):
        return None
    model, training, parallelism, placement, _ = read_plan(content)
    launch = Launch(model, training, resolved(parallelism, placement), gpus_per_node)
    return {framework: _text(framework, launch) for framework in FRAMEWORKS}


def _text(framework: str, launch: Launch) -> str:
    try:
        return write(framework, launch)
    except Infeasible as error:
        return str(error)
