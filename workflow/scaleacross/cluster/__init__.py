"""Accelerators, tiers, links: latency, bandwidth, oversubscription. Knows nothing of models."""

from .accelerator import Accelerator, load_accelerator
from .spec import Cluster, Note, Tier, load_cluster, parse_oversubscription
from .template import render, template_variables

__all__ = [
    "Accelerator",
    "Cluster",
    "Note",
    "Tier",
    "load_accelerator",
    "load_cluster",
    "parse_oversubscription",
    "render",
    "template_variables",
]
