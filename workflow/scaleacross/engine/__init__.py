"""The embedded simulator: cycle-exact with ASTRA-sim's analytical backends, from the same files.

>>> workload = load_workload("traces/workload")                                    # doctest: +SKIP
>>> config = load_config("network.yml", "system.json", "memory.json")              # doctest: +SKIP
>>> simulate(workload, config).iteration_ns                                        # doctest: +SKIP
"""

from __future__ import annotations

from .outcome import Outcome
from .settings import Config, load_config
from .simulate import simulate
from .use import TierUse
from .workload import Workload, load_workload

__all__ = ["Config", "Outcome", "TierUse", "Workload", "load_config", "load_workload", "simulate"]
