"""Plans: degrees and knobs, their rules, where the axes lie on the tiers, the layers and memory of every stage.

>>> from types import SimpleNamespace as Tier
>>> plan = parallelism_from({"tp": 8, "pp": 4}, gpus=128)
>>> placement = place(plan, [Tier(name="node", size=8), Tier(name="zone", size=16)])
>>> [(dim.size, dim.axis, dim.tier) for dim in placement.dims]
[(8, 'tp', 'node'), (4, 'pp', 'zone'), (4, 'dp', 'zone')]
"""

from .degrees import Parallelism, Training, parallelism_from, training_from
from .dims import GROUPS, NetworkDim, Placement, rank_map_csv
from .layers import layer_ranges, spread_layers
from .memory import MemoryBreakdown, check_memory, stage_memory
from .placement import place
from .rules import micro_batches, problems, validate

__all__ = [
    "GROUPS",
    "MemoryBreakdown",
    "NetworkDim",
    "Parallelism",
    "Placement",
    "Training",
    "check_memory",
    "layer_ranges",
    "micro_batches",
    "parallelism_from",
    "place",
    "problems",
    "rank_map_csv",
    "spread_layers",
    "stage_memory",
    "training_from",
    "validate",
]
