"""From what the flow wrote beside the tables to the facts of a report: the study, the choice, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .findings import Assumption, StudyFacts

_SHOWN = {"traces": "Chakra traces", "configuration": "ASTRA-sim configuration", "command": "simulate it again"}


def facts_from(content: Mapping[str, Any], optimum: Mapping[str, Any], provenance: Mapping[str, Any]) -> StudyFacts:
    """The facts of a study.

    Args:
        content: ``design/study.json``: ``study`` (the study file), ``dimension_columns``, ``tiers``, ``gpus``,
            ``pareto`` (columns of every front), and where there are any ``assumptions`` and ``sources`` (each with
            ``subject`` and ``text``).
        optimum: ``optimum.yaml``: ``environments``, each with ``point_id``, the headline first, and its inputs.
        provenance: ``provenance.yaml``: ``versions`` and ``design_key``.
    """
    study = content["study"]
    swept = [name for section in ("environment", "fixed", "dimensions") for name in study.get(section) or {}]
    chosen: Sequence[Mapping[str, Any]] = optimum.get("environments") or [{}]
    headline = chosen[0]
    return StudyFacts(
        name=str(study["name"]),
        model=str(study.get("model", "")),
        cluster=str(study.get("cluster", "")),
        gpus=content.get("gpus"),
        training=study.get("training") or {},
        environment=tuple(study.get("environment") or {}),
        derived=tuple(name for name in content.get("dimension_columns", ()) if name not in swept),
        baselines=study.get("baselines") or {},
        chosen=tuple(str(entry["point_id"]) for entry in chosen if entry.get("point_id")),
        allow_unphysical=bool(study.get("allow_unphysical", False)),
        objective=str(study.get("objective", "iteration_time")),
        require=tuple(study.get("require") or ()),
        fronts=tuple(tuple(front) for front in content["pareto"]),
        alternatives=headline.get("alternatives") or (),
        complete=study.get("search") != "certified",
        tiers=tuple(content.get("tiers", ())),
        assumptions=_texts(content.get("assumptions")),
        sources=_texts(content.get("sources")),
        provenance=_provenance(provenance),
        flags=headline.get("flags") or {},
        paths={label: str(headline[key]) for key, label in _SHOWN.items() if headline.get(key)},
    )


def _texts(items: Sequence[Mapping[str, Any]] | None) -> tuple[Assumption, ...]:
    """Notes as they are, without the mark "assumption:", which their heading says."""
    return tuple(
        Assumption(str(item["subject"]), str(item["text"]).removeprefix("assumption: ")) for item in items or ()
    )


def _provenance(record: Mapping[str, Any]) -> dict[str, str]:
    found = {str(name): str(value) for name, value in (record.get("versions") or {}).items() if value is not None}
    if record.get("design_key"):
        found["design key"] = str(record["design_key"])
    return found
