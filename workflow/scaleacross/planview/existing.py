"""An existing launch placed on the cluster of a study, to compare it with the study's plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..plan.frameworks import Launch
from ..study.design import Designer
from ..study.flow import settings_from_file
from ..study.plans import Setting, make_plan
from ..study.points import Point, make_id
from ..study.schema import load_study
from .choose import Chosen, baseline_values, chosen_of


def place_launch(launch: Launch, study_name: str, config: Path, source: str) -> Chosen:
    """The plan of a launch on a study's cluster, in its headline environment.

    Raises:
        Infeasible: E-WORLD where the cluster has another number of GPUs; whatever rule, placement or schedule
            condition the launch breaks.
    """
    settings = settings_from_file(config, study=study_name)
    study = load_study(study_name, settings.overrides)
    designer = Designer(study)
    values: dict[str, Any] = {name: values[0] for name, values in study.swept.items()}
    values.update(baseline_values(study)[1])
    ours = designer.setting(values)
    setting = Setting(launch.model, launch.training, ours.cluster, ours.accelerator)
    plan = make_plan(setting, launch.parallelism)
    own = launch.parallelism.as_dict()
    point = Point(make_id(own, own), own)
    how = f"the plan of {source} on {ours.cluster.name}"
    return chosen_of(study.name, point, how, setting, plan, launch.parallelism.defaulted)
