"""Scaled-down twins: a point of a study with the same shape on few GPUs, as a complete folder of ASTRA-sim inputs.

A twin keeps the order of axes, the tiers they lie on, the schedule, the sharding and the layers of a stage; only counts
shrink. It is made by the same code as the point itself, so what holds for the one (that the binary takes it, that both
simulators agree) is evidence for the other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..astra.render import render_config, write_config
from ..errors import InvalidInput, did_you_mean
from ..files import write_atomic
from ..trace.expand import expand
from ..trace.scale import scale_down
from .design import Designer
from .plans import Setting, make_plan, parallelism_of
from .points import Point, enumerate_points
from .schema import Study
from .traces import write_traces

FOLDED = "folded"


@dataclass(frozen=True)
class Twin:
    """A written twin: every rank's trace and the configuration in ``folder``, folded traces in ``folder/folded``."""

    point_id: str
    folder: Path
    npus: int
    description: str

    @property
    def flags(self) -> list[str]:
        """Flags of the ASTRA-sim binary and of ``scaleacross sim`` for this twin."""
        groups = self.folder / "comm_groups.json"
        return [
            f"--workload-configuration={self.folder}/workload",
            f"--system-configuration={self.folder}/system.json",
            f"--remote-memory-configuration={self.folder}/memory.json",
            f"--network-configuration={self.folder}/network.yml",
            *([f"--comm-group-configuration={groups}"] if groups.is_file() else []),
        ]


def find_points(study: Study, point_ids: Iterable[str]) -> list[Point]:
    """The points with these ids.

    Raises:
        InvalidInput: E-POINT for an id that is none of the study's (did you mean).
    """
    wanted = dict.fromkeys(point_ids)
    found = {point.point_id: point for point in enumerate_points(study) if point.point_id in wanted}
    for point_id in wanted:
        if point_id not in found:
            known = [point.point_id for point, _ in zip(enumerate_points(study), range(10_000), strict=False)]
            raise InvalidInput(
                "E-POINT", f"{study.name} has no point {point_id!r}", did_you_mean(point_id, known)[:200]
            )
    return [found[point_id] for point_id in wanted]


def write_twin(designer: Designer, point: Point, folder: Path) -> Twin:
    """Write a point's twin into ``folder``, replacing what was there.

    Raises:
        Infeasible: when the point itself cannot exist, or cannot be made that small.
        InvalidInput: E-WRITE, and what is wrong with its inputs.
    """
    setting = designer.setting(point.values)
    parallelism = parallelism_of(point.values, setting.cluster.gpus)
    make_plan(setting, parallelism)  # a twin of what cannot exist would show nothing
    small = scale_down(setting.model, setting.training, parallelism, setting.cluster)
    tiny = Setting(small.model, small.training, small.cluster, setting.accelerator)
    twin = make_plan(tiny, small.parallelism)
    files = render_config(
        twin.placement.dims, tiny.cluster, tiny.accelerator, point.values, tiny.training.precision, twin.groups
    )
    if folder.exists():
        shutil.rmtree(folder)
    write_traces(folder / FOLDED, twin.content)
    write_config(folder, files)
    groups = None if twin.groups is None else {int(name): list(ranks) for name, ranks in twin.groups.items()}
    npus = expand(folder / FOLDED, folder, groups)
    description = _describe(setting, tiny, parallelism.as_dict(), small.parallelism.as_dict())
    write_atomic(folder / "twin.json", json.dumps({"point_id": point.point_id, "npus": npus}, indent=1) + "\n")
    return Twin(point.point_id, folder, npus, description)


def _describe(full: Setting, tiny: Setting, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changes = [f"{full.cluster.gpus} -> {tiny.cluster.gpus} GPUs", f"{full.model.layers} -> {tiny.model.layers} layers"]
    degrees = ("tp", "cp", "pp", "dp", "ep", "dp_shard")
    changes += [f"{key} {before[key]} -> {after[key]}" for key in degrees if before[key] != after[key]]
    return ", ".join(changes)
