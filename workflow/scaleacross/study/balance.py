"""``layout: by-speed``: layers to virtual stages in proportion to how fast their sites compute a layer."""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster import Accelerator
from ..model import Model
from ..plan.degrees import Parallelism, Training
from ..plan.dims import Placement
from ..plan.layers import apportion
from ..plan.sites import stage_sites
from ..trace.context import COMPUTE
from ..trace.cookbook import Cookbook


def balanced_layout(
    model: Model,
    training: Training,
    parallelism: Parallelism,
    placement: Placement,
    accelerator: Accelerator,
    positions: Sequence[Sequence[int]],
) -> tuple[int, ...]:
    """Layers of every virtual stage, embedding to loss, by largest remainder.

    A stage on several sites is as fast as the slowest of them, since its replicas wait for each other. Embedding and
    loss are not counted.

    Args:
        positions: ``[stage][chunk]`` -> virtual stage, of the schedule.
    """
    types = [site.accelerator for site in accelerator.by_site] or [accelerator]
    seconds = [_layers_seconds(Cookbook(model, training, parallelism, placement, own)) for own in types]
    speeds = [0.0] * (parallelism.pp * parallelism.chunks)
    for stage, own in enumerate(positions):
        sites = stage_sites(placement, stage) if accelerator.by_site else (0,)
        for position in own:
            speeds[position] = 1.0 / max(seconds[site] for site in sites)
    return apportion(model.layers, speeds)


def _layers_seconds(book: Cookbook) -> float:
    """Seconds of computing all layers forward and backward once."""
    peak, bandwidth = book.accelerator.peak(book.training.precision), book.accelerator.memory_bandwidth
    units = [unit for position in book.positions for unit in position if unit.label not in ("embedding", "head")]
    steps = [step for unit in units for phase in ("F", "BW") for step in book.unit_recipe(unit, phase).steps]
    return sum(max(step.num_ops / peak, step.size / bandwidth) for step in steps if step.comm_type == COMPUTE)
