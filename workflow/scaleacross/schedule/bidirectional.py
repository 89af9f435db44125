"""DualPipe and DualPipeV (DeepSeek-V3 technical report, arXiv 2412.19437; deepseek-ai/DualPipe).

A rank feeds two streams of micro-batches at once, one near its start and one near its end, and runs the forward of one
together with the backward of the other (``Action.overlaps_next``), so that one's compute hides the other's
communication. With P the virtual stages of the whole model and B a whole backward, the bubble is (P / 2 - 1) (F&B + B -
3 W).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .actions import Action, Schedule, action, freeze, looped_positions, v_positions
from .classic import one_chunk
from .registry import register, require


@register("dualpipe")
def dualpipe(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Bidirectional: each rank holds two stages of two copies of the model; half of the micro-batches run each way.

    Parameters 2x, activations p + 1 a rank, bubble (p / 2 - 1) (F&B + B - 3 W) (deepseek-ai/DualPipe, README).

    Raises:
        Infeasible: chunks != 1, stages odd, micro_batches odd or below 2 * stages.
    """
    name, half = "dualpipe", stages // 2
    one_chunk(name, chunks)
    require(stages % 2 == 0, name, f"even stages ({stages} % 2 = 1)", "use an even number of stages, or dualpipe-v")
    require(micro_batches % 2 == 0, name, f"even micro_batches ({micro_batches} % 2 = 1)", "add one micro-batch")
    _enough(name, micro_batches, stages)
    forth = looped_positions(stages, 1)
    positions = tuple(row + back for row, back in zip(forth, reversed(forth), strict=True))
    streams = range(micro_batches // 2), range(micro_batches // 2, micro_batches)
    rows = []
    for rank in range(stages):
        near = int(rank >= half)
        order = _Order((near, streams[near]), (1 - near, streams[1 - near]))
        rows.append(list(order.run(min(rank, stages - 1 - rank), half)))
    return Schedule(name, stages, micro_batches, 1, freeze(rows), positions, weight_copies=2)


@register("dualpipe-v")
def dualpipe_v(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """DualPipe cut in half: two chunks a rank in V shape instead of two copies (Sea AI Lab; deepseek-ai/DualPipe).

    On p ranks: 2 p + 1 chunk activations, bubble (p - 1) (F&B + B - 3 W), durations of one chunk.

    Raises:
        Infeasible: chunks != 2, or micro_batches below 2 * stages.
    """
    name = "dualpipe-v"
    require(chunks == 2, name, f"chunks == 2 ({chunks})", "set chunks to 2")
    _enough(name, micro_batches, stages)
    every = range(micro_batches)
    rows = [list(_Order((0, every), (1, every)).run(rank, stages)) for rank in range(stages)]
    return Schedule(name, stages, micro_batches, 2, freeze(rows), v_positions(stages))


def _enough(name: str, micro_batches: int, stages: int) -> None:
    rule = f"micro_batches >= 2 * stages ({micro_batches} >= {2 * stages})"
    require(micro_batches >= 2 * stages, name, rule, "raise micro_batches", 1 - micro_batches / (2 * stages))


class _Order:
    """Emits one rank's actions; counts how far the forwards and backwards of its two streams are."""

    def __init__(self, near: tuple[int, range], far: tuple[int, range]) -> None:
        self.chunk = near[0], far[0]
        self.forwards = iter(near[1]), iter(far[1])
        self.backwards = iter(near[1]), iter(far[1])
        self.count = len(near[1])
        self.owed: deque[Action] = deque()

    def run(self, depth: int, half: int) -> Iterator[Action]:
        """``depth`` is the rank's distance from its near end, ``half`` the ranks from either end to the turn.

        The stream that enters at the near end is 0, the one that enters far away and leaves here is 1.
        """
        outer = half - 1 - depth
        for _ in range(2 * outer):
            yield self.forward(0)
        for _ in range(depth + 1):
            yield from (self.forward(0), self.forward(1))
        for _ in range(outer):
            yield from (self.backward(1, whole=False), self.owed.popleft(), self.forward(1))
        for i in range(self.count - half - outer):
            # At the turn the first pair is run apart: its backward then leaves earlier.
            yield from (self.forward(0, together=outer > 0 or i > 0), self.backward(1))
            yield from (self.forward(1, together=True), self.backward(0))
        for _ in range(outer):
            yield from (self.backward(1), self.forward(1, together=True), self.backward(0))
        for i in range(2 * (depth + 1)):
            yield self.backward((i + 1) % 2, whole=i <= depth)
        for _ in range(outer):
            yield from (self.owed.popleft(), self.backward(0, whole=False))
        yield from self.owed

    def forward(self, stream: int, together: bool = False) -> Action:
        return action("F", next(self.forwards[stream]), self.chunk[stream], overlaps_next=together)

    def backward(self, stream: int, whole: bool = True) -> Action:
        micro_batch = next(self.backwards[stream])
        if not whole:
            self.owed.append(action("W", micro_batch, self.chunk[stream]))
        return action("B", micro_batch, self.chunk[stream], whole)
