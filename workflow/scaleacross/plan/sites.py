"""Which ranks of a plan lie on which site: the units below the outermost tier, whose accelerators may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from ..cluster.accelerator import Accelerator
from ..errors import Infeasible
from .degrees import Parallelism
from .dims import Placement
from .memory import MemoryBreakdown, check_memory


def site_dims(placement: Placement) -> tuple[int, ...]:
    """Dimensions on the outermost tier, innermost first: their coordinates say which site a rank is on."""
    return tuple(d for d, dim in enumerate(placement.dims) if dim.tier == placement.dims[-1].tier)


def site_coordinates(placement: Placement, site: int) -> dict[int, int]:
    """Dimension -> coordinate of the ranks of a site."""
    found = {}
    for d in site_dims(placement):
        site, found[d] = divmod(site, placement.shape[d])
    return found


def stage_sites(placement: Placement, stage: int) -> tuple[int, ...]:
    """Sites, ascending, that hold ranks of a pipeline stage: one where pp alone lies across them, all where dp does."""
    dims, fixed = site_dims(placement), placement.stage_coordinates(stage)
    choices = [(fixed[d],) if d in fixed else range(placement.shape[d]) for d in dims]
    radix = [math.prod(placement.shape[e] for e in dims if e < d) for d in dims]
    return tuple(sorted(sum(p * r for p, r in zip(places, radix, strict=True)) for places in product(*choices)))


def check_sites(parallelism: Parallelism, placement: Placement, accelerator: Accelerator) -> None:
    """Whether a plan can use sites with accelerators of their own.

    Raises:
        Infeasible: E-MIXED where they are not the units below the outermost tier (of a twin, say), or a flat ring goes
            over ranks of several types: its members end apart, by their place on it, and no class stands for them.
    """
    if not accelerator.by_site:
        return
    sites = math.prod(placement.shape[d] for d in site_dims(placement))
    if sites != len(accelerator.by_site):
        clash = f"{len(accelerator.by_site)} sites with accelerators of their own, {sites} units of the outermost tier"
        raise Infeasible("E-MIXED", clash, "keep the number of sites")
    across = {placement.dims[d].axis for d in site_dims(placement)} - {"pp"}
    if across and parallelism.flat_rings:
        clash = (
            f"flat_rings {', '.join(parallelism.flat_rings)} with {', '.join(sorted(across))} over sites that differ"
        )
        raise Infeasible("E-MIXED", clash, "leave flat_rings out, or let pp alone cross the sites")


def tightest(
    stages: Sequence[MemoryBreakdown], placement: Placement, accelerator: Accelerator
) -> tuple[MemoryBreakdown, float, Infeasible | None]:
    """The stage nearest to its site's memory limit, that limit in bytes, and the error if it does not fit.

    Returns:
        The error is E-MEMORY, which names the stage and, where sites differ, the site.
    """
    found: list[tuple[float, MemoryBreakdown, str, Accelerator]] = []
    for stage in stages:
        for name, own in _types(placement, accelerator, stage.stage):
            found.append((stage.total / own.usable_bytes, stage, name, own))
    _, heaviest, name, own = max(found, key=lambda entry: entry[0])
    problem = None
    try:
        check_memory([heaviest], own)
    except Infeasible as error:
        place = f"stage {heaviest.stage} on site {name}" if name else f"stage {heaviest.stage}"
        clash = error.clash.replace(f"stage {heaviest.stage}", place, 1)
        fix = f"{error.fix}, or give that site fewer layers (layout)" if name else error.fix
        problem = Infeasible(error.error_id, clash, fix, error.shortfall)
    return heaviest, own.usable_bytes, problem


def _types(placement: Placement, accelerator: Accelerator, stage: int) -> list[tuple[str, Accelerator]]:
    if not accelerator.by_site:
        return [("", accelerator)]
    return [
        (accelerator.by_site[site].site, accelerator.by_site[site].accelerator)
        for site in stage_sites(placement, stage)
    ]
