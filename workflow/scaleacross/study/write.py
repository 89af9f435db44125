"""Writing a designed study to disk: the table of points, and the batches that the jobs of the flow read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..search.baselines import baseline_notes
from ..units import parse
from .design import Designed, Designer, design, notes_of
from .flow import Settings, batch_count, batch_of, binary_digest, remove_stale, write_json
from .outcomes import RATE_COLUMNS, check_outcomes, fronts, objective_column
from .points import count_points, enumerate_points
from .schema import STUDIES, Study, load_study, study_path
from .tables import write_csv

POINT_COLUMNS = ("point_id", "status", "reason")
PLAN_COLUMNS = ("plan_id", "config_id", "memory_gib", "memory_stage", "memory_limit_gib", *RATE_COLUMNS)


def design_study(name: str, settings: Settings, key: str, studies: Path = STUDIES) -> dict[str, Any]:
    """Design a study and write ``<results>/<study>/design/`` and ``points.csv``; returns what ``study.json`` holds.

    Nothing is written unless the whole design succeeds.

    Raises:
        InvalidInput: whatever is wrong with the study, with the path of its file; E-WRITE for a folder not writable.
    """
    study = load_study(name, settings.overrides, studies)
    try:
        if study.search == "certified":
            return write_certified(study, settings, key)
        designed = design(study)
    except InvalidInput as error:
        raise InvalidInput(error.error_id, f"{study_path(name, studies)}: {error.clash}", error.fix) from None
    return write_design(designed, settings, key)


def run_settings_of(study: Study, settings: Settings) -> dict[str, Any]:
    """What a simulation must know of a study."""
    return {
        "simulator": study.simulator,
        "network_model": study.network_model,
        "time_limit_s": parse(study.time_limit, "second"),
        "binary_digest": binary_digest(settings.astra_sim) if study.simulator == "astra-sim" else None,
    }


def write_certified(study: Study, settings: Settings, key: str) -> dict[str, Any]:
    """The design of a study whose points are enumerated by its search: only what all of them share."""
    designer = Designer(study)
    first = designer.setting(next(enumerate_points(study)).values)
    check_outcomes(study, first.cluster)
    designed = Designed(study, first.cluster, first.accelerator, designer.model)
    content = study_content(designed, settings, key, run_settings_of(study, settings))
    content["counts"] = {"points": count_points(study)}
    content["batches"] = []
    write_json(settings.results / study.name / "design/study.json", content)
    return content


def write_design(designed: Designed, settings: Settings, key: str) -> dict[str, Any]:
    """Write the design; ``study.json``, which says that all is there, comes last."""
    study = designed.study
    folder = settings.results / study.name
    columns = [*POINT_COLUMNS, *designed.dimension_columns, *PLAN_COLUMNS]
    write_csv(folder / "points.csv", designed.rows, columns)
    count = batch_count(len(designed.pairs), settings.batches)
    run_settings = run_settings_of(study, settings)
    batches: dict[str, list[str]] = defaultdict(list)
    for plan_id in sorted(designed.pairs):
        batches[batch_of(plan_id, count)].append(plan_id)
    design_folder = folder / "design"
    for batch, plan_ids in batches.items():
        write_json(design_folder / f"plans_{batch}.json", {plan: designed.plans[plan].content for plan in plan_ids})
        runs = {plan: {"work": designed.plans[plan].work, "configs": sorted(designed.pairs[plan])} for plan in plan_ids}
        write_json(design_folder / f"runs_{batch}.json", {"settings": run_settings, "plans": runs})
    write_json(design_folder / "configs.json", {name: designed.configs[name] for name in sorted(designed.configs)})
    for kind in ("plans", "runs"):
        remove_stale(design_folder, f"{kind}_*.json", (f"{kind}_{batch}.json" for batch in batches))
    content = study_content(designed, settings, key, run_settings)
    content["batches"] = sorted(batches)
    write_json(design_folder / "study.json", content)
    return content


def study_content(designed: Designed, settings: Settings, key: str, run_settings: Mapping[str, Any]) -> dict[str, Any]:
    """What later steps must know of the study beside its points."""
    study = designed.study
    feasible = sum(1 for row in designed.rows if row["status"] == "feasible")
    tiers = [tier.name.replace("-", "_") for tier in designed.cluster.tiers]
    return {
        "key": key,
        "study": study.model_dump(mode="json"),
        "dimension_columns": designed.dimension_columns,
        "tiers": tiers,
        "objective": objective_column(study),
        "pareto": fronts(study, tiers),
        "gpus": designed.cluster.gpus,
        "gpus_per_node": designed.cluster.tiers[0].size,
        "accelerator": designed.accelerator.name,
        "configs": str(settings.astra_configs / study.name),
        "binary_digest": run_settings["binary_digest"],
        "run_settings": dict(run_settings),
        "counts": {
            "points": len(designed.rows),
            "feasible": feasible,
            "plans": len(designed.pairs),
            "configurations": len(designed.configs),
            "runs": sum(len(configs) for configs in designed.pairs.values()),
        },
        "assumptions": [*notes_of(designed, assumed=True), *baseline_notes(study.baselines, assumed=True)],
        "sources": [*notes_of(designed, assumed=False), *baseline_notes(study.baselines, assumed=False)],
    }
