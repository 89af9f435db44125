"""A plan as another framework's settings, and back: Megatron-LM's flags and torchtitan's TOML.

>>> text = write("megatron-lm", launch)        # doctest: +SKIP
>>> read("megatron-lm", text).launch == canonical(launch)        # doctest: +SKIP
True

What a framework cannot express is an error E-FRAMEWORK that names it: never a plan that differs in silence.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import InvalidInput, did_you_mean
from . import megatron, megatron_read, torchtitan, torchtitan_read
from .launch import Launch, Reading, canonical

__all__ = ["FRAMEWORKS", "VERSIONS", "Launch", "Reading", "canonical", "guess", "read", "write"]

_WRITERS: dict[str, Callable[[Launch], str]] = {"megatron-lm": megatron.write, "torchtitan": torchtitan.write}
_READERS: dict[str, Callable[[str, int | None], Reading]] = {
    "megatron-lm": megatron_read.read,
    "torchtitan": torchtitan_read.read,
}
FRAMEWORKS = tuple(_WRITERS)
VERSIONS = {"megatron-lm": megatron.VERSION, "torchtitan": torchtitan.VERSION}


def write(framework: str, launch: Launch) -> str:
    """A launch as the text of a framework's settings.

    Raises:
        InvalidInput: E-CHOICE for an unknown framework.
        Infeasible: E-FRAMEWORK for the first thing the framework cannot express.
    """
    return _WRITERS[_known(framework)](canonical(launch))


def read(framework: str, text: str, gpus: int | None = None) -> Reading:
    """The launch that a framework's settings describe; ``gpus`` where the text does not say how many there are.

    Raises:
        InvalidInput: E-CHOICE for an unknown framework, E-FRAMEWORK for settings that no plan of ours has, E-FLAG for a
            setting that is misspelt, lacks its value or is missing.
    """
    return _READERS[_known(framework)](text, gpus)


def guess(text: str) -> str:
    """The framework whose settings a text holds: torchtitan's TOML has sections, Megatron-LM's flags have none."""
    return "torchtitan" if any(line.strip() == "[parallelism]" for line in text.splitlines()) else "megatron-lm"


def _known(framework: str) -> str:
    if framework not in _WRITERS:
        raise InvalidInput("E-CHOICE", f"framework is {framework!r}", did_you_mean(framework, _WRITERS))
    return framework
