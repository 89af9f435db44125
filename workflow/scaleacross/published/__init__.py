"""Predictions of the ordinary flow beside published measurements: comparison, tables, scatter plot."""

from .compare import Comparison, Summary, compare, summarise

__all__ = ["Comparison", "Summary", "compare", "summarise"]
