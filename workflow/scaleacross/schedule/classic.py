"""GPipe, 1F1B and interleaved 1F1B, as Megatron-LM orders them.

Bubbles below are idle time a rank over its busy time, with p stages, m micro-batches, v chunks, no communication.
"""

from __future__ import annotations

from .actions import Action, Schedule, action, freeze, looped_positions
from .registry import check_count, register, require


@register("gpipe")
def gpipe(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """All forwards, then all backwards. Bubble (p - 1) / m, m activations a rank (GPipe, arXiv 1811.06965).

    Raises:
        Infeasible: chunks != 1.
    """
    one_chunk("gpipe", chunks)
    row = [action("F", m) for m in range(micro_batches)] + [action("B", m) for m in range(micro_batches)]
    return Schedule("gpipe", stages, micro_batches, 1, freeze([row] * stages), looped_positions(stages, 1))


@register("1f1b")
def one_forward_one_backward(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Warm up with p - 1 - r forwards, then one forward, one backward (PipeDream-Flush, arXiv 2006.09503).

    Bubble (p - 1) / m; rank r holds min(p - r, m) activations (Narayanan et al., arXiv 2104.04473, section 2.2).

    Raises:
        Infeasible: chunks != 1.
    """
    one_chunk("1f1b", chunks)
    order = [(m, 0) for m in range(micro_batches)]
    rows = [warmup_then_alternate(order, order, stages - 1 - rank) for rank in range(stages)]
    return Schedule("1f1b", stages, micro_batches, 1, freeze(rows), looped_positions(stages, 1))


@register("interleaved")
def interleaved(stages: int, micro_batches: int, chunks: int, contiguous: int | None = None) -> Schedule:
    """Interleaved 1F1B (Narayanan et al., arXiv 2104.04473): bubble (p - 1) / (v m).

    ``contiguous`` is N, the micro-batches a chunk runs in a row (Llama 3, arXiv 2407.21783, section 3.3.2): N = stages
    is depth-first, Megatron's default; N = micro_batches is breadth-first. Rank r warms up with 2 (p - 1 - r) +
    (v - 1) N chunk forwards, so the first holds 2 (p - 1) + (v - 1) N + 1 chunk activations if m v is above that: for
    N = p they weigh p (1 + (p - 1) / (p v)) activations of a rank's layers (Korthikanti et al., arXiv 2205.05198).

    Raises:
        Infeasible: Megatron's rules: stages > 1, chunks >= 2, stages <= N <= micro_batches, and the last run, of
            micro_batches % N, is empty or has at least ``stages`` (so micro_batches % stages == 0 for N = stages).
    """
    group = stages if contiguous is None else contiguous
    check_count("contiguous", group)
    _check_interleaved(stages, micro_batches, chunks, group)
    forward = [
        (m, chunk)
        for first in range(0, micro_batches, group)
        for chunk in range(chunks)
        for m in range(first, min(first + group, micro_batches))
    ]
    backward = [(m, chunks - 1 - chunk) for m, chunk in forward]
    rows = [
        warmup_then_alternate(forward, backward, 2 * (stages - 1 - rank) + (chunks - 1) * group)
        for rank in range(stages)
    ]
    positions = looped_positions(stages, chunks)
    return Schedule("interleaved", stages, micro_batches, chunks, freeze(rows), positions)


def one_chunk(name: str, chunks: int) -> None:
    """Refuse chunks for a schedule that has one virtual stage a rank."""
    require(chunks == 1, name, f"chunks == 1 ({chunks})", "set chunks to 1, or schedule to interleaved")


def warmup_then_alternate(forward: list[tuple[int, int]], backward: list[tuple[int, int]], warmup: int) -> list[Action]:
    """``warmup`` forwards, then forward and backward in turn, then backwards. Orders are of (micro_batch, chunk)."""
    warmup = min(warmup, len(forward))
    row = [action("F", *item) for item in forward[:warmup]]
    for ahead, behind in zip(forward[warmup:], backward, strict=False):
        row += (action("F", *ahead), action("B", *behind))
    return row + [action("B", *item) for item in backward[len(forward) - warmup :]]


def _check_interleaved(stages: int, micro_batches: int, chunks: int, group: int) -> None:
    name, rest = "interleaved", micro_batches % group
    require(stages > 1, name, f"stages > 1 ({stages})", "use 1f1b, or more than one stage")
    require(chunks >= 2, name, f"chunks >= 2 ({chunks})", "use 1f1b, or 2 chunks or more")
    require(
        group >= stages, name, f"contiguous >= stages ({group} >= {stages})", "raise contiguous", 1 - group / stages
    )
    if group == stages:
        rule = f"micro_batches % stages == 0 ({micro_batches} % {stages} = {micro_batches % stages})"
        require(rest == 0, name, rule, f"make micro_batches a multiple of {stages}", (stages - rest) / stages)
        return
    rule = f"contiguous <= micro_batches ({group} <= {micro_batches})"
    require(group <= micro_batches, name, rule, "lower contiguous", group / micro_batches - 1)
    rule = f"micro_batches % contiguous == 0 or >= stages ({micro_batches} % {group} = {rest}, stages {stages})"
    require(rest == 0 or rest >= stages, name, rule, "choose a contiguous that divides micro_batches")
