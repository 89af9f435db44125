"""ZB-H1 and ZB-H2, the handcrafted schedules of Zero Bubble (Qi et al., arXiv 2401.10241), one chunk a rank.

The backward is split: ``B`` sends the input gradient on at once, ``W`` fills what would be idle.
"""

from __future__ import annotations

from .actions import Action, Schedule, action, freeze, looped_positions
from .classic import one_chunk
from .registry import register, require


@register("zb-h1")
def zb_h1(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """1F1B's warm-up and memory, a third of its bubble: (p - 1) (F + B - W) (arXiv 2401.10241, table 1, T_comm = 0).

    Rank r lets its weight gradients lag r micro-batches behind, so every rank holds the p activations the first one
    does.

    Raises:
        Infeasible: chunks != 1.
    """
    one_chunk("zb-h1", chunks)
    rows = [split_row(micro_batches, stages - rank, rank) for rank in range(stages)]
    return Schedule("zb-h1", stages, micro_batches, 1, freeze(rows), looped_positions(stages, 1))


@register("zb-h2")
def zb_h2(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """No bubble for F = B = W: (p - 1) (F + B - 2 W) for 2 p - 1 activations a rank (arXiv 2401.10241, table 1).

    The bubble is of ``Replay.span``: the ranks start and end staggered, which pays where they don't wait for each other
    between iterations. ``makespan`` has the p - 1 forwards of the stagger on top.

    Raises:
        Infeasible: chunks != 1, or fewer than 2 p - 1 micro-batches, the warm-up of the first rank.
    """
    one_chunk("zb-h2", chunks)
    warmup = 2 * stages - 1
    rule = f"micro_batches >= 2 * stages - 1 ({micro_batches} >= {warmup})"
    require(micro_batches >= warmup, "zb-h2", rule, "raise micro_batches, or use zb-h1", 1 - micro_batches / warmup)
    rows = [split_row(micro_batches, 2 * (stages - rank) - 1, 2 * rank) for rank in range(stages)]
    return Schedule("zb-h2", stages, micro_batches, 1, freeze(rows), looped_positions(stages, 1))


def split_row(micro_batches: int, warmup: int, lag: int) -> list[Action]:
    """``warmup`` forwards, then B, W and F in turn, the W ``lag`` micro-batches behind the B; the W left come last."""
    row = [action("F", m) for m in range(min(warmup, micro_batches))]
    for m in range(micro_batches):
        row.append(action("B", m, whole=False))
        if m >= lag:
            row.append(action("W", m - lag))
        if m + warmup < micro_batches:
            row.append(action("F", m + warmup))
    return row + [action("W", m) for m in range(max(micro_batches - lag, 0), micro_batches)]
