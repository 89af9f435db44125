"""Accelerators, tiers, links: latency, bandwidth, oversubscription, transports. Knows nothing of models."""

from .accelerator import Accelerator, load_accelerator
from .scheme import Scheme
from .spec import Cluster, Note, Tier, load_cluster, parse_oversubscription
from .template import render, template_variables
from .transport import Effective, Transport, effective

__all__ = [
    "Accelerator",
    "Cluster",
    "Effective",
    "Note",
    "Scheme",
    "Tier",
    "Transport",
    "effective",
    "load_accelerator",
    "load_cluster",
    "parse_oversubscription",
    "render",
    "template_variables",
]
