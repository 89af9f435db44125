"""The ``scaleacross`` network model: tiers with shared uplinks, ports that serialise, streams that overlap.

See ``docs/network-model.md``.
"""

from .outcome import FluidOutcome
from .simulate import simulate_fluid

__all__ = ["FluidOutcome", "simulate_fluid"]
