"""A collective algorithm as Chakra traces, for ASTRA-sim's ``<collective>-implementation-custom`` keys.

What ASTRA-sim does with such a key (read in its system layer): the key holds one path prefix; each member reads
``<prefix>.<position>.et``, its position in the communicator group, or its rank where there is no group. Peers in the
trace are positions likewise. Nodes have no slots: whatever is ready starts. A send ends on arrival, a compute node
after its microseconds (1 ns where it says 0), and the collective with the last node. The bytes are those of the trace,
whatever the workload asks for; splits and chunks don't apply. A relative prefix is taken from the working folder. A
position is counted in the group's *sorted* list, the peers in the list as written: only ascending groups work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from ...errors import InvalidInput
from ...trace.chakra_io import write_trace
from ...trace.columns import Trace, TraceBuilder
from .schedules import Message, MessageSchedule

KEY = "{}-implementation-custom"


def custom_traces(schedule: MessageSchedule, size: int, reduce_bandwidth: float = 0.0) -> list[Trace]:
    """One trace for each position of a schedule.

    A send waits for the arrivals (and sums) that it carries and for what the position sent a step before: a port takes
    one step after the other. (The two trees of a double binary tree are independent: there only the arrivals count.)
    Sends of a step start at once, receives are posted at the start. Every pair numbers its messages, so that tags tell
    them apart.

    Args:
        schedule: of :func:`make_schedule`.
        size: bytes of the whole buffer (all-gather: of what everybody has in the end; all-to-all: of what one sends).
            Blocks are rounded up to whole bytes.
        reduce_bandwidth: bytes/s of the memory in which arrivals are summed, three passes each, as compute nodes in
            whole microseconds; 0 leaves sums out.

    Raises:
        InvalidInput: E-COLLECTIVE for a size below 1 byte or a group of one.
    """
    if size < 1 or schedule.members < 2:
        clash = f"{schedule.collective} of {size} bytes over {schedule.members} members"
        raise InvalidInput("E-COLLECTIVE", clash, "a trace needs 1 byte and 2 members or more")
    blocks = schedule.members if schedule.collective == "all-to-all" else schedule.parts
    block = math.ceil(size / blocks)
    builders = [TraceBuilder() for _ in range(schedule.members)]
    brought: list[dict[int, list[int]]] = [{} for _ in range(schedule.members)]  # position: block -> nodes
    numbers: dict[tuple[int, int], int] = {}
    busy: list[list[int]] = [[] for _ in range(schedule.members)]  # sends of the position's step before
    for number, step in enumerate(schedule.steps):
        tags = []
        sends: dict[int, list[int]] = {}
        for message in step:
            pair = (message.source, message.target)
            numbers[pair] = numbers.get(pair, -1) + 1
            tags.append(numbers[pair])
            known = brought[message.source]
            deps = sorted({*busy[message.source], *(node for b in message.blocks for node in known.get(b, ()))})
            name = f"{schedule.algorithm}.s{number}.to{message.target}"
            node = builders[message.source].send(name, message.target, block * len(message.blocks), tags[-1], deps=deps)
            sends.setdefault(message.source, []).append(node)
        if schedule.algorithm != "double-binary-tree":
            for position, nodes in sends.items():
                busy[position] = nodes
        for message, tag in zip(step, tags, strict=True):
            node = _receive(builders[message.target], message, tag, block * len(message.blocks), reduce_bandwidth)
            known = brought[message.target]
            for b in message.blocks:
                known[b] = [*known.get(b, ()), node] if message.adds else [node]
    return [builder.build() for builder in builders]


def _receive(builder: TraceBuilder, message: Message, tag: int, count: int, reduce_bandwidth: float) -> int:
    """The receive of a message of ``count`` bytes and its sum; the node after which it can be sent on."""
    node = builder.recv(f"from{message.source}.{tag}", message.source, count, tag)
    if message.adds and reduce_bandwidth:
        micros = round(3 * count / reduce_bandwidth * 1e6)  # two reads and a write, as ASTRA-sim's own algorithms
        node = builder.compute(f"sum{message.source}.{tag}", 0, 0, deps=(node,), duration_micros=micros)
    return node


def write_custom(
    folder: Path | str, schedule: MessageSchedule, size: int, reduce_bandwidth: float = 0.0
) -> dict[str, list[str]]:
    """Write ``<folder>/<collective>.<position>.et`` and return the entry for ``system.json``.

    Raises:
        InvalidInput: as :func:`custom_traces`; E-WRITE.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / schedule.collective
    for position, trace in enumerate(custom_traces(schedule, size, reduce_bandwidth)):
        write_trace(prefix.with_name(f"{prefix.name}.{position}.et"), trace)
    return {KEY.format(schedule.collective): [str(prefix.resolve())]}


def with_custom(system: Mapping[str, object], entry: Mapping[str, list[str]]) -> dict[str, object]:
    """A system file's content with a custom collective; the native lists stay, they describe the topology."""
    return {**system, **entry}
