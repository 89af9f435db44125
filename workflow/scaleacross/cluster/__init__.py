"""Accelerators, tiers, links: latency, bandwidth, oversubscription, transports. Knows nothing of models."""

from .accelerator import Accelerator, load_accelerator
from .scheme import Scheme
from .sites import Site, accelerator_of
from .spec import Cluster, Note, Tier, load_cluster, parse_oversubscription
from .template import render, template_variables
from .transport import Effective, Transport, effective

__all__ = [
    "Accelerator",
    "Cluster",
    "Effective",
    "Note",
    "Scheme",
    "Site",
    "Tier",
    "Transport",
    "accelerator_of",
    "effective",
    "load_accelerator",
    "load_cluster",
    "parse_oversubscription",
    "render",
    "template_variables",
]
