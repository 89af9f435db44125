"""What a workload says whatever the network's numbers are: prepared once, kept while the workload is.

A study simulates the traces of a plan on many configurations; rows, slots, messages' channels and the list of different
collectives and messages stay the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ..assemble import durations
from ..kernel import layout
from ..program import COMPUTE_AXIS, Program
from ..settings import Config
from ..workload import Workload
from .fabric import Fabric
from .resources import UnitsKnown
from .routes import codes
from .streams import NO_SLOT, by_program, comm_axis, different, slots

Int64 = NDArray[np.int64]
TIMED, COLLECTIVE, SEND, RECEIVE = range(4)
COMPUTES, QUIET = 6, 7  # what a row counts as; 0..5 are the axes of AXIS_NAMES
TAGS = layout.COLLECTIVE_TAG

_kept: dict[int, tuple[weakref.ref[Any], dict[Any, Prepared]]] = {}


@dataclass(frozen=True, slots=True)
class Asked:
    """Different collectives or messages of a program.

    Attributes:
        rows: that ask for them. which: for each row an index into ``keys``.
        keys: (call, axis) of collectives, (peer, bytes, slot, axis) of messages.
    """

    rows: Int64
    keys: list[tuple[int, ...]]
    which: Int64
    messages: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows of all simulated ranks, one rank after the other, in ascending id.

    Attributes:
        sim_of: simulated rank that stands for each rank. true_of: rank that a simulated rank is. which: its program.
        first_row, first_slot: of each simulated rank, and the end.
        kind, slot, axis, sim, waits: int64 a row. child_ptr, child: rows that wait for a row.
        asked: of each program. channel: of each row, -1. sends, receives: of each channel.
        time: ns of each row that takes time by itself. in_line: rows that need a slot, slot after slot.
        classes: classes along some dimensions around one, kept by :class:`.jobs.JobTable`.
        images: memory of the event loop, kept by :func:`.machine.make_machine`.
        units: kept by :class:`.resources.Resources`.
    """

    sim_of: Int64
    true_of: Int64
    which: list[int]
    first_row: Int64
    first_slot: Int64
    kind: Int64
    slot: Int64
    axis: Int64
    sim: Int64
    waits: Int64
    child_ptr: Int64
    child: Int64
    asked: list[list[Asked]]
    channel: Int64
    sends: Int64
    receives: Int64
    time: NDArray[np.float64]
    in_line: Int64
    classes: dict[tuple[tuple[int, ...], int], tuple[int, ...]]
    images: dict[bool, tuple[Int64, NDArray[np.float64]]]
    units: UnitsKnown


def prepared(workload: Workload, config: Config, fabric: Fabric, single: bool) -> Prepared:
    """Rows of a workload, from memory if the same ones have been prepared before."""
    anchor = workload.program
    known = _kept.get(id(anchor))
    if known is None or known[0]() is not anchor:
        key = id(anchor)
        known = _kept[key] = (weakref.ref(anchor, lambda _: _kept.pop(key, None)), {})
    system = config.system
    compute = (system.replay_only, system.roofline_enabled, system.local_mem_bandwidth, system.peak_perf)
    setting = (single, compute, config.memory, fabric.shape)
    if setting not in known[1]:
        known[1].clear()
        known[1][setting] = _prepare(workload, config, fabric, single)
    return known[1][setting]


def _prepare(workload: Workload, config: Config, fabric: Fabric, single: bool) -> Prepared:
    programs, which = workload.programs, workload.program.tolist()
    everyone = np.arange(workload.npus)
    sim_of = workload.sim_of if workload.folded else everyone
    true_of = workload.representative if workload.folded else everyone
    own_slots = slots(programs, single, config.npus)
    kinds = [_kinds(program, config) for program in programs]
    first_row = np.cumsum([0, *(len(programs[k]) for k in which)])
    first_slot = np.cumsum([0, *(own_slots[k][1] for k in which)])
    edges = np.cumsum([0, *(len(programs[k].child) for k in which)])
    places = list(zip(which, first_row.tolist(), first_slot.tolist(), edges.tolist(), strict=False))
    slot = [np.where(own_slots[k][0] == NO_SLOT, NO_SLOT, own_slots[k][0] + first) for k, _, first, _ in places]
    channel, sends, receives = _channels(workload, kinds, fabric, sim_of, true_of, first_row)
    every_slot = np.concatenate(slot)
    return Prepared(
        sim_of=sim_of,
        true_of=true_of,
        which=which,
        first_row=first_row,
        first_slot=first_slot,
        kind=join(kinds, which),
        slot=every_slot,
        axis=join([_counts_as(program) for program in programs], which),
        sim=np.repeat(np.arange(len(which)), np.diff(first_row)),
        waits=join([program.waits for program in programs], which),
        child_ptr=np.concatenate([*(programs[k].child_ptr[:-1] + edge for k, _, _, edge in places), edges[-1:]]),
        child=np.concatenate([programs[k].child + row for k, row, _, _ in places]),
        asked=_asked(programs, kinds, [own for own, _ in own_slots], config.npus),
        channel=channel,
        sends=sends,
        receives=receives,
        time=join([durations(program, config).astype(np.float64) for program in programs], which),
        in_line=np.argsort(every_slot, kind="stable")[np.count_nonzero(every_slot < 0) :],
        classes={},
        images={},
        units={},
    )


def join(columns: list[NDArray[Any]], which: list[int]) -> NDArray[Any]:
    """A column of every simulated rank from one of every program."""
    return np.concatenate([columns[k] for k in which])


def _kinds(program: Program, config: Config) -> Int64:
    kinds = np.full(len(program), TIMED, np.int64)
    if config.system.replay_only:
        return kinds
    if (program.kind == layout.MEMORY).any() and config.memory.kind in ("MEMORY_POOL", "PER_NODE_MEMORY_EXPANSION"):
        clash = f"remote memory that ranks share ({config.memory.kind})"
        raise InvalidInput("E-FLUID-MEMORY", clash, "use the unaware model, or PER_NPU_MEMORY_EXPANSION")
    kinds[program.kind == layout.COLLECTIVE] = COLLECTIVE
    kinds[program.kind == layout.SEND] = SEND
    kinds[program.kind == layout.RECEIVE] = RECEIVE
    return kinds


def _counts_as(program: Program) -> Int64:
    return np.where(program.axis >= 0, program.axis, np.where(program.axis == COMPUTE_AXIS, COMPUTES, QUIET))


def _asked(programs: Sequence[Program], kinds: Sequence[Int64], slot: Sequence[Int64], npus: int) -> list[list[Asked]]:
    """Of each program, the different collectives and messages, found for all at once."""
    asked: list[list[Asked]] = [[] for _ in programs]
    axes = [comm_axis(program) for program in programs]
    rows = [np.flatnonzero(kind == COLLECTIVE) for kind in kinds]
    calls = [[program.call[own], axis[own]] for program, own, axis in zip(programs, rows, axes, strict=True)]
    _ask(asked, rows, calls, False)
    rows = [np.flatnonzero(kind == SEND) for kind in kinds]
    sends = []
    for program, own, axis, slots_of in zip(programs, rows, axes, slot, strict=True):
        trace, at = program.trace, program.order[own]
        wrong = np.flatnonzero(trace.comm_dst[at] >= npus)
        if len(wrong):
            clash = f"node {trace.ids[at[wrong[0]]]} sends to rank {trace.comm_dst[at[wrong[0]]]}; there are {npus}"
            raise InvalidInput("E-TRACE-PEER", clash, "use ranks of the network")
        sends.append([trace.comm_dst[at], trace.comm_size[at], slots_of[own], axis[own]])
    _ask(asked, rows, sends, True)
    return asked


def _ask(asked: list[list[Asked]], rows: Sequence[Int64], columns: Sequence[list[Int64]], messages: bool) -> None:
    """Add the different rows of each program's columns to what it asks for."""
    keys, which, first = by_program(columns)
    ends = np.cumsum([len(own) for own in rows])
    for number, (own, end) in enumerate(zip(rows, ends.tolist(), strict=True)):
        if len(own):
            here = [key[1:] for key in keys[first[number] : first[number + 1]]]
            asked[number].append(Asked(own, here, which[end - len(own) : end] - first[number], messages))


def _channels(
    workload: Workload, kinds: list[Int64], fabric: Fabric, sim_of: Int64, true_of: Int64, first_row: Int64
) -> tuple[Int64, Int64, Int64]:
    """Which channel each send and receive uses, and how many messages of each kind a channel has.

    The n-th send and the n-th receive with the same ends, tag and size belong together. Ends are named by their classes
    and the steps between them, which are the same for every member.
    """
    columns: list[list[NDArray[Any]]] = []
    for sim, k in enumerate(workload.program.tolist()):
        program, kind = workload.programs[k], kinds[k]
        own = np.flatnonzero((kind == SEND) | (kind == RECEIVE))
        sends = kind[own] == SEND
        trace, order = program.trace, program.order[own]
        peer = np.where(sends, trace.comm_dst[order], trace.comm_src[order])
        if len(peer) and peer.max() >= len(sim_of):
            node = trace.ids[order[np.argmax(peer)]]
            clash = f"{workload.files[sim]}: node {node} talks to rank {peer.max()}; there are {len(sim_of)}"
            raise InvalidInput("E-TRACE-PEER", clash, "use ranks of the network")
        rank = np.full(len(own), true_of[sim])
        columns.append([own + first_row[sim], rank, peer, trace.comm_tag[order] % TAGS, trace.comm_size[order], sends])
    at, rank, peer, tag, size, sends = (np.concatenate(column) for column in zip(*columns, strict=True))
    source, target = np.where(sends, rank, peer), np.where(sends, peer, rank)
    steps = codes(fabric, source, target)
    found, number = different(sim_of[source], sim_of[target], steps, tag, size)
    channel = np.full(int(first_row[-1]), -1, np.int64)
    channel[at] = number
    return channel, np.bincount(number[sends], minlength=len(found)), np.bincount(number[~sends], minlength=len(found))
