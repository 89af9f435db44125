"""Collective algorithms: who sends what to whom, what crosses each tier's cut, how ASTRA-sim is made to run them."""

from .cut import CutReport, analyse
from .lowering import Implementations, implementations
from .schedules import COLLECTIVES, MessageSchedule, make_schedule
from .traffic import NAMES, Traffic, traffic

__all__ = [
    "COLLECTIVES",
    "NAMES",
    "CutReport",
    "Implementations",
    "MessageSchedule",
    "Traffic",
    "analyse",
    "implementations",
    "make_schedule",
    "traffic",
]
