"""The ``scaleacross`` network model: tiers with shared uplinks, ports that serialise, streams that overlap.

See ``docs/network-model.md``.
"""

from ..use import TierUse
from .critical import Step
from .outcome import FluidOutcome
from .simulate import simulate_fluid

__all__ = ["FluidOutcome", "Step", "TierUse", "simulate_fluid"]
