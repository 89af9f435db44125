"""Megatron-LM's two small languages: the pipeline layout (``Et*7|(t*8|)*14t*7L``) and patterns of MoE layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from ...errors import InvalidInput

_GROUP = re.compile(r"\(([^()]+)\)\*(\d+)")
_REPEAT = re.compile(r"([A-Za-z|])\*(\d+)")
_TERM = re.compile(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d+))?")


def layout_text(counts: Sequence[int], mtp_modules: int = 0) -> str:
    """Layers of every virtual stage as ``--pipeline-model-parallel-layout``.

    E is the embedding, t a layer, m a prediction module, L the loss; | parts the stages. Prediction modules go with the
    loss, where our plans have them.
    """
    stages = [_repeat("t", count) for count in counts]
    stages[0] = "E" + stages[0]
    stages[-1] += _repeat("m", mtp_modules) + "L"
    *inner, last = stages
    text = ""
    for stage, run in groupby(inner):
        count = len(list(run))
        text += f"({stage}|)*{count}" if count > 2 and stage else f"{stage}|" * count
    return text + last


def read_layout(text: str) -> tuple[tuple[int, ...], int]:
    """(layers of every virtual stage, prediction modules) of a layout.

    Raises:
        InvalidInput: E-FLAG for another letter, E-FRAMEWORK for an embedding, loss or prediction module where our plans
            cannot have it.
    """
    plain = text.replace(",", "").replace(" ", "")
    while _GROUP.search(plain):
        plain = _GROUP.sub(lambda match: match[1] * int(match[2]), plain)
    plain = _REPEAT.sub(lambda match: match[1] * int(match[2]), plain)
    if not re.fullmatch(r"[EtmL|]+", plain):
        raise InvalidInput("E-FLAG", f"--pipeline-model-parallel-layout is {text!r}", "use E, t, m, L, | and *n")
    stages = plain.split("|")
    ordered = re.fullmatch(r"E[t|]*m*L", plain)
    if ordered is None or stages[0][:1] != "E" or "m" in "".join(stages[:-1]):
        raise InvalidInput(
            "E-FRAMEWORK",
            f"layout {text!r} does not start with the embedding and end with prediction modules and loss in one stage",
            "our plans hold the embedding on the first virtual stage, prediction modules and loss on the last",
        )
    return tuple(stage.count("t") for stage in stages), stages[-1].count("m")


def pattern_text(pattern: Sequence[bool]) -> str:
    """MoE layers as ``--moe-layer-freq`` takes them: ``([0]*3+[1]*58)``."""
    for period in range(1, len(pattern) // 2 + 1):
        if len(pattern) % period == 0 and list(pattern[:period]) * (len(pattern) // period) == list(pattern):
            return f"({_runs(pattern[:period])})*{len(pattern) // period}"
    return f"({_runs(pattern)})"


def read_pattern(text: str, layers: int) -> list[bool]:
    """Which of ``layers`` layers are MoE layers: ``n`` (one in n, the first of each n) or a list expression.

    Raises:
        InvalidInput: E-FLAG for anything else, or another length.
    """
    if text.isdigit() and int(text) > 0:
        return [layer % int(text) == 0 for layer in range(layers)]
    plain = text.replace(" ", "")
    whole = re.fullmatch(r"\((?P<inner>.*)\)(?:\*(?P<times>\d+))?", plain)
    inner, times = (
        (whole["inner"], int(whole["times"] or 1)) if whole and _TERM.fullmatch(plain) is None else (plain, 1)
    )
    pattern: list[bool] = []
    for part in inner.split("+"):
        term = _TERM.fullmatch(part)
        if term is None:
            raise InvalidInput("E-FLAG", f"--moe-layer-freq is {text!r}", "write for example ([0]*3+[1]*58)")
        pattern += [digit == "1" for digit in term[1].split(",")] * int(term[2] or 1)
    pattern *= times
    if len(pattern) != layers:
        clash = f"--moe-layer-freq {text} describes {len(pattern)} layers, --num-layers {layers}"
        raise InvalidInput("E-FLAG", clash, "make them agree")
    return pattern


def _repeat(letter: str, count: int) -> str:
    return letter if count == 1 else f"{letter}*{count}" if count else ""


def _runs(pattern: Sequence[bool]) -> str:
    return "+".join(f"[{int(value)}]*{len(list(run))}" for value, run in groupby(pattern))
