"""Waiting in circles across ranks: found before the run, for certain, with the nodes of the circle.

Nodes of all ranks (of all classes, when folded) form one graph: dependencies, a receive after its send, the members of
a collective as one node, and the order that a rank's single communication slot forces where it does not depend on
timing. A cycle in it never finishes. Folding keeps this exact: classes are orbits of a translation, so a walk backwards
round a cycle of classes is a walk backwards for ever among finitely many ranks.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..trace.columns import COLL, MEM_LOAD, MEM_STORE, RECV, SEND, Trace
from .collectives import Sequences
from .findings import Findings
from .graph import Orders, TraceGraph, surely_before, walk_cycle
from .messages import Messages
from .table import NodeTable

Int64 = NDArray[np.int64]
_SLOT_KINDS = (COLL, SEND, MEM_LOAD, MEM_STORE)
_PYTHON_NODES = 60_000
_STEPS_SHOWN = 8


def check_hangs(messages: Messages, sequences: Sequences, found: Findings) -> None:
    """E-DEADLOCK with one circle of nodes that wait for each other. Call it only where sequences and messages match."""
    table = messages.table
    bases = np.zeros(len(table.ranks.classes) + 1, dtype=np.int64)
    sizes = np.append(np.diff(table.start), 0)[table.class_trace]
    np.cumsum(sizes, out=bases[1:])
    merged = _merge(sequences, bases)
    if merged is None:
        return
    before, after, kinds = _edges(messages, sequences.orders, bases)
    stuck = unfinished(int(bases[-1]), merged[before], merged[after])
    if not stuck.any():
        return
    found.error("E-DEADLOCK", _circle(table, bases, merged, (before, after, kinds), stuck), "break the circle")


def _merge(sequences: Sequences, bases: Int64) -> Int64 | None:
    """For each node of each class the node that stands for its collective; None when that is not well defined."""
    merged = np.arange(bases[-1])
    ranks, communicators, instances, _ = sequences.members
    if not len(ranks):
        return merged
    classes = sequences.table.ranks.class_of[ranks].astype(np.int64)
    segments = sequences.of_ranks(ranks, communicators)
    # The classes of each instance; a class must meet the same classes in all instances of a communicator.
    count = len(bases)
    lead = np.full(int(instances.max()) + 1, count, dtype=np.int64)
    np.minimum.at(lead, instances, classes)
    keys = np.unique((communicators * count + classes) * count + lead[instances])
    if len(np.unique(keys // count)) < len(keys):
        return None
    _, firsts = np.unique(communicators * count + classes, return_index=True)
    at = {(int(communicators[i]), int(classes[i])): int(segments[i]) for i in firsts.tolist()}
    start = sequences.table.start
    for i in firsts.tolist():
        leader = int(lead[instances[i]])
        segment, other = int(segments[i]), at.get((int(communicators[i]), leader), -1)
        if leader == classes[i] or segment < 0 or other < 0:
            continue
        rows, lead_rows = sequences.segment(segment), sequences.segment(other)
        if not (sequences.orders.sure(rows) and sequences.orders.sure(lead_rows)):
            continue  # which of them meet depends on timing
        mine = bases[classes[i]] + rows - start[sequences.table.owner[rows[0]]]
        merged[mine] = bases[leader] + lead_rows - start[sequences.table.owner[lead_rows[0]]]
    return merged


def _edges(messages: Messages, orders: Orders, bases: Int64) -> tuple[Int64, Int64, NDArray[np.int8]]:
    """(node, node that comes after it, why: 0 dependency, 1 slot, 2 message) among the nodes of all classes."""
    table = messages.table
    parts: list[tuple[Int64, Int64, int]] = []
    row, target, _, _ = table.edges
    good = target >= 0
    row, target = row[good], target[good]
    order = np.argsort(table.owner[row], kind="stable")
    row, target = row[order], target[order]
    cuts = np.searchsorted(table.owner[row], np.arange(len(table.traces) + 1))
    known: dict[int, tuple[Int64, Int64]] = {}
    for trace, (begin, end) in enumerate(pairwise(cuts.tolist())):
        first = int(table.start[trace])
        key = orders.shape(trace)
        if key not in known:
            known[key] = _slot_edges(table.traces[trace], orders.graph(trace))
        for user in table.users[trace]:
            shift = bases[user]
            parts.append((target[begin:end] - first + shift, row[begin:end] - first + shift, 0))
            parts.append((known[key][0] + shift, known[key][1] + shift, 1))
    _, segments, classes = messages.channels
    send_at, receive_at = messages.pairs
    both = (send_at >= 0) & (receive_at >= 0)
    quads = np.stack([segments[send_at[both]], classes[send_at[both]], segments[receive_at[both]],
                      classes[receive_at[both]]], axis=1)  # fmt: skip
    for send, sender, receive, receiver in set(map(tuple, quads.tolist())):
        once = messages.unique(send)  # nodes with equal tag and size have no partner that is certain
        rows, others = messages.segment(send)[once], messages.segment(receive)[once]
        if not len(rows):
            continue
        start, end = table.start[table.owner[rows[0]]], table.start[table.owner[others[0]]]
        parts.append((rows - start + bases[sender], others - end + bases[receiver], 2))
    before = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    after = np.concatenate([part[1] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
    kinds = np.repeat(np.array([part[2] for part in parts], dtype=np.int8), [len(part[0]) for part in parts])
    return before, after, kinds


def _slot_edges(trace: Trace, graphs: tuple[TraceGraph, list[int], list[int] | None]) -> tuple[Int64, Int64]:
    """Pairs of nodes that the one communication slot runs in this order whatever the timing, by row."""
    graph, order, ancestors = graphs
    users = np.array(order)[np.isin(trace.types[order], _SLOT_KINDS)].tolist()
    if ancestors is None:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    sure = [pair for pair in pairwise(users) if surely_before(ancestors, pair[0], pair[1], graph.ids)]
    array = np.array(sure, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def unfinished(nodes: int, before: Int64, after: Int64) -> NDArray[np.bool_]:
    """Nodes that can never start because they come after a cycle or are in one, bool[nodes]."""
    waiting = np.bincount(after, minlength=nodes)
    order = np.argsort(before, kind="stable")
    targets = after[order]
    pointers = np.searchsorted(before[order], np.arange(nodes + 1))
    if nodes <= _PYTHON_NODES:
        return _unfinished_python(waiting, pointers, targets)
    ready = np.flatnonzero(waiting == 0)
    while len(ready):
        counts = pointers[ready + 1] - pointers[ready]
        ends = np.cumsum(counts)
        reached = targets[np.repeat(pointers[ready] - ends + counts, counts) + np.arange(ends[-1])]
        values, times = np.unique(reached, return_counts=True)
        waiting[values] -= times
        ready = values[waiting[values] == 0]
    return waiting > 0


def _unfinished_python(waiting: Int64, pointers: Int64, targets: Int64) -> NDArray[np.bool_]:
    left, cuts, flat = waiting.tolist(), pointers.tolist(), targets.tolist()
    ready = [node for node, count in enumerate(left) if not count]
    while ready:
        node = ready.pop()
        for target in flat[cuts[node] : cuts[node + 1]]:
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    return np.array(left) > 0


def _circle(
    table: NodeTable,
    bases: Int64,
    merged: Int64,
    edges: tuple[Int64, Int64, NDArray[np.int8]],
    stuck: NDArray[np.bool_],
) -> str:
    """One circle of waiting as text."""
    before, after, kinds = edges
    inside = np.flatnonzero(stuck[merged[before]] & stuck[merged[after]])
    cause = dict(zip(merged[after[inside]].tolist(), inside.tolist(), strict=True))
    path = walk_cycle(next(iter(cause)), lambda node: int(merged[before[cause[node]]]))
    steps = []
    for node in path[:_STEPS_SHOWN]:
        edge = cause[node]
        first, second = _name(table, bases, int(before[edge])), _name(table, bases, int(after[edge]))
        steps.append(f"{second} {('depends on', 'is issued after', 'receives from')[kinds[edge]]} {first}")
    more = f"; and {len(path) - _STEPS_SHOWN} more steps" if len(path) > _STEPS_SHOWN else ""
    return "these wait for each other for ever: " + "; ".join(steps) + more


def _name(table: NodeTable, bases: Int64, node: int) -> str:
    index = int(np.searchsorted(bases, node, side="right")) - 1
    row = int(table.start[table.class_trace[index]] + node - bases[index])
    kind = {COLL: "collective", SEND: "send", RECV: "receive"}.get(int(table.types[row]), "node")
    size = f" ({int(table.comm_size[row])} bytes)" if table.communicates[row] else ""
    rank = table.ranks.classes[index].representative
    return f"rank {rank} {kind} {int(table.ids[row])} '{table.name(row)}'{size}"
