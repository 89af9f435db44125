"""The report: what a study found, for a person. ``write_report`` makes the page and its figures from the tables."""

from .findings import Assumption, StudyFacts
from .gantt import Bar, Gantt, from_schedule, from_timeline
from .write import write_report

__all__ = ["Assumption", "Bar", "Gantt", "StudyFacts", "from_schedule", "from_timeline", "write_report"]
