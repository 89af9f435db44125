"""Pre-flight checks on any set of ASTRA-sim inputs."""

from .findings import ERROR, WARNING, Finding, exit_code
from .inputs import check_inputs, check_loaded

__all__ = ["ERROR", "WARNING", "Finding", "check_inputs", "check_loaded", "exit_code"]
