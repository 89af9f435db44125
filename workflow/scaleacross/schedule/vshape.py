"""ZBV, V-Half and V-Min: two chunks a rank in V shape (Qi et al., arXiv 2405.15362; ZBV: arXiv 2401.10241).

A *building block* says in which slot of F = B = W = 1 each rank runs the four passes of micro-batch 0; micro-batch m
follows 6 m slots later (two chunks, three kinds). How many slots a pass waits before the next rank's decides how long
activations live, so the memory: the V shape makes the sum of both chunks the same on every rank. The block is then
compressed at both ends of the step: an action runs before its slot if that never takes the rank above the block's own
peak memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, product

from .actions import Kind, Schedule, action, freeze, v_positions
from .registry import register, require
from .replay import replay

PERIOD = 6
# The passes of a micro-batch in order: forward of chunk 0, of chunk 1, backward of chunk 1, of chunk 0; then their W.
_F0, _F1, _B1, _B0, _W1, _W0 = range(6)
_KIND: tuple[Kind, ...] = ("F", "F", "B", "B", "W", "W")
_CHUNK = (0, 1, 1, 0, 1, 0)
_ALL = (1 << len(_KIND)) - 1
_NEVER = 1 << 60

Slots = tuple[int, int, int, int]
Item = tuple[int, int, int]


@register("zbv")
def zbv(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """No bubble for F = B = W and 2 p micro-batches or more, at 1F1B's memory (arXiv 2401.10241, section on ZB-V).

    2 p chunk activations on every rank, p of a rank's layers. The bubble is of ``Replay.span``, as for ZB-H2.

    Raises:
        Infeasible: chunks != 2 or one stage.
    """
    return _v_schedule("zbv", stages, micro_batches, chunks, steps=(4, 2), turns=((_F0, _F1), (_F0,)))


@register("v-half")
def v_half(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Half of 1F1B's activations and, for F = B = W, half of its bubble (arXiv 2405.15362).

    At most 2 floor((p + 2) / 2) chunk activations a rank, the bound the authors give; bubble at most 3 (p - 1) chunk
    passes, where 1F1B has 6 (p - 1).

    Raises:
        Infeasible: chunks != 2 or one stage.
    """
    return _v_schedule("v-half", stages, micro_batches, chunks, steps=(2, 1), turns=((_F0,),))


@register("v-min")
def v_min(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """A third of 1F1B's activations and, for F = B = W, two thirds of its bubble (arXiv 2405.15362).

    At most 2 floor((p + 4) / 3) chunk activations a rank, the bound the authors give; bubble at most 4 (p - 1) chunk
    passes, where 1F1B has 6 (p - 1).

    Raises:
        Infeasible: chunks != 2 or one stage.
    """
    return _v_schedule("v-min", stages, micro_batches, chunks, steps=(1, 1), turns=((_F0,),))


def _v_schedule(
    name: str,
    stages: int,
    micro_batches: int,
    chunks: int,
    steps: tuple[int, int],
    turns: tuple[tuple[int, ...], ...],
) -> Schedule:
    """The compressed block; of several turns (see ``compress``) that of the shortest span for F = B = W.

    For ZBV the late turn, after the last forward of both chunks, leaves no bubble once the pipeline fills; with fewer
    micro-batches than that the early one is shorter.
    """
    require(chunks == 2, name, f"chunks == 2 ({chunks})", "set chunks to 2")
    require(stages > 1, name, f"stages > 1 ({stages})", "use more than one stage")
    block, limit = building_block(stages, *steps)
    best: tuple[float, float, Schedule] | None = None
    for turn in turns:
        rows = compress(block, micro_batches, limit, turn)
        actions = [[action(_KIND[item], m, _CHUNK[item], whole=_KIND[item] != "B") for item, m in row] for row in rows]
        made = Schedule(name, stages, micro_batches, 2, freeze(actions), v_positions(stages))
        times = replay(made, 1, 1, 1)
        if best is None or (times.span, times.makespan) < best[:2]:
            best = times.span, times.makespan, made
        if times.span == PERIOD * micro_batches:
            break
    assert best is not None
    return best[2]


def building_block(stages: int, down: int, up: int) -> tuple[list[Slots], int]:
    """``[rank]`` -> slots of F0, F1, B1, B0 of micro-batch 0, and the most chunk activations a rank then holds.

    A pass reaches the next rank ``down`` slots later on the way to the last rank and ``up`` slots later on the way
    back. At the three turns it waits as little as leaves the four passes of every rank in different slots modulo 6; of
    several such waits the one of least memory is taken.

    A rank's two activations live 2 p (down + up) slots together, plus the turns: 12 p for ZBV, 6 p for V-Half, 4 p for
    V-Min, each 6 slots making one chunk activation of the peak (arXiv 2405.15362, lifespan of a building block).
    """
    found: list[tuple[int, tuple[int, ...], list[Slots]]] = []
    for waits in sorted(product(range(1, PERIOD + 1), repeat=3), key=sum):
        if found and sum(waits) > sum(found[0][1]):
            break
        block = _block(stages, down, up, waits)
        if all(len({slot % PERIOD for slot in slots}) == 4 for slots in block):
            found.append((max(_peak(_sequence(slots, 2 * stages + 4)) for slots in block), waits, block))
    peak, _, block = min(found)
    return block, peak


def _block(stages: int, down: int, up: int, waits: Sequence[int]) -> list[Slots]:
    last = stages - 1
    f1 = down * last + waits[0]
    b1 = f1 + up * last + waits[1]
    b0 = b1 + down * last + waits[2]
    return [(down * r, f1 + up * (last - r), b1 + down * r, b0 + up * (last - r)) for r in range(stages)]


def _sequence(slots: Slots, micro_batches: int) -> list[Item]:
    """One rank's (slot, item, micro-batch) of the repeated block; each W takes the first free slot after its B."""
    passes = sorted((slot + PERIOD * m, item, m) for item, slot in enumerate(slots) for m in range(micro_batches))
    taken = {slot for slot, _, _ in passes}
    weights: list[Item] = []
    free = 0
    for slot, item, m in passes:
        if item >= _B1:
            free = max(free, slot + 1)
            while free in taken:
                free += 1
            weights.append((free, item + 2, m))
            free += 1
    return sorted(passes + weights)


def _peak(sequence: list[Item]) -> int:
    """Most activations held while a rank runs the sequence."""
    held = accumulate((item < _B1) - (item >= _W1) for _, item, _ in sequence)
    return max(held)


def compress(block: list[Slots], micro_batches: int, limit: int, turn: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """``[rank]`` -> (item, micro-batch) in order: the repeated block run as early as dependencies and memory let it.

    Slot by slot each rank runs the ready item of the earliest nominal slot. An F overtakes items before it only if
    their running in order afterwards stays within ``limit`` activations; so the block's own order stays possible at any
    time and nothing can deadlock. After a rank's last forward of the kinds in ``turn`` a W only fills slots nothing
    else wants.
    """
    ranks = [_Rank(r, slots, len(block), micro_batches, limit, turn) for r, slots in enumerate(block)]
    done = [[[_NEVER] * micro_batches for _ in block] for _ in range(4)]
    slot, left = 0, 6 * micro_batches * len(block)
    while left:
        ran = [(rank, rank.take(slot, done)) for rank in ranks if rank.todo]
        slot += 1
        for rank, chosen in ran:
            if chosen is not None:
                item, m = chosen
                left -= 1
                if item < _W1:
                    done[item][rank.rank][m] = slot
    return [rank.row for rank in ranks]


class _Rank:
    """What a rank still has to run, in nominal order, and what it holds."""

    def __init__(
        self, rank: int, slots: Slots, stages: int, micro_batches: int, limit: int, turn: tuple[int, ...]
    ) -> None:
        self.rank, self.limit = rank, limit
        self.todo = deque(_sequence(slots, micro_batches))
        self.cool = max(slots[item] for item in turn) + PERIOD * (micro_batches - 1)
        self.held = 0
        self.row: list[tuple[int, int]] = []
        first, last = rank == 0, rank == stages - 1
        # (item, rank) each item waits for, None for the first forward.
        self.inputs: list[tuple[int, int] | None] = [
            None if first else (_F0, rank - 1),
            (_F0, rank) if last else (_F1, rank + 1),
            (_F1, rank) if first else (_B1, rank - 1),
            (_B1, rank) if last else (_B0, rank + 1),
            (_B1, rank),
            (_B0, rank),
        ]

    def take(self, slot: int, done: list[list[list[int]]]) -> tuple[int, int] | None:
        """Choose and remove the item to run in this slot; None if nothing can."""
        index = self._choose(slot, done)
        if index < 0:
            return None
        _, item, m = self.todo[index]
        del self.todo[index]
        self.held += (item < _B1) - (item >= _W1)
        self.row.append((item, m))
        return item, m

    def _choose(self, slot: int, done: list[list[list[int]]]) -> int:
        filler, seen = -1, 0
        held = peak = self.held
        for index, (nominal, item, m) in enumerate(self.todo):
            if not seen >> item & 1:
                seen |= 1 << item
                source = self.inputs[item]
                ready = source is None or done[source[0]][source[1]][m] <= slot
                if ready and (item >= _B1 or peak < self.limit):
                    if item < _W1 or nominal <= self.cool:
                        return index
                    filler = index if filler < 0 else filler
                if seen == _ALL:
                    break
            if item < _B1:
                held += 1
                peak = max(peak, held)
            elif item >= _W1:
                held -= 1
        return filler
