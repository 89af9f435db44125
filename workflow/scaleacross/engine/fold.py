"""Folding: ranks that the inputs cannot tell apart are simulated once.

Ranks are coloured by what their traces say, with peers written as distances and groups by their hop pattern, then
recoloured by the colours of their peers and of the members of their communicators, seen from each rank, until nothing
changes (an equitable partition). Building blocks of networks look the same from each of their ranks, so ranks of one
colour do the same at the same time, and one of them can stand for all.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from .assemble import hop_pattern
from .kernel import layout as L
from .plan import implementations
from .population import Communicator, Population, communicator
from .program import Call, Program
from .settings import Config

Int64 = NDArray[np.int64]
TURNING = ("ring", "direct")  # algorithms that look alike from every place of a ring


def fold(population: Population, config: Config, names: list[str]) -> Population:
    """The same ranks with one representative a colour, the lowest rank of it.

    Raises:
        InvalidInput: what :func:`communicator` and the collectives raise.
    """
    folder = _Folder(population, config, names)
    colour = folder.refine()
    _, first, sim_of = np.unique(colour, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    representatives = first[order]
    used, program = np.unique(population.program[representatives], return_inverse=True)
    programs = [population.programs[k] for k in used.tolist()]
    return Population(programs, program.astype(np.int64), representatives.astype(np.int64), place[sim_of])


class _Folder:
    """Colours of all ranks, refined."""

    def __init__(self, population: Population, config: Config, names: list[str]) -> None:
        self.population, self.config, self.names = population, config, names
        self.content = [_content(program) for program in population.programs]
        self.count = len(population.true_of)
        self.peers = self._peers()
        self.worlds: dict[tuple[tuple[int, ...], bool], list[int]] = {}  # (dimensions, turning) -> ranks that call
        self.members: dict[tuple[int, bool], Communicator] = {}  # (group, turning) -> its ranks
        self.callers: list[list[tuple[int, bool]]] = [[] for _ in range(self.count)]  # groups, in the order of calls
        self.colour = self._initial()

    def refine(self) -> Int64:
        """Recolour until the number of colours stays."""
        colours = len(np.unique(self.colour))
        while colours < self.count:
            self.colour = self._recolour()
            found = len(np.unique(self.colour))
            if found == colours:
                break
            colours = found
        return self.colour

    def _peers(self) -> list[Int64]:
        found = []
        for program in self.population.programs:
            trace, order = program.trace, program.order
            sends, receives = program.kind == L.SEND, program.kind == L.RECEIVE
            peers = np.where(sends, trace.comm_dst[order], trace.comm_src[order])[sends | receives]
            found.append(peers)
        return found

    def _initial(self) -> Int64:
        labels: dict[tuple[object, ...], int] = {}
        colour = np.zeros(self.count, np.int64)
        for rank, k in enumerate(self.population.program.tolist()):
            program = self.population.programs[k]
            away = self._distances(rank, self.peers[k]).tobytes()
            calls = tuple(self._call(rank, call) for call in program.calls)
            key = (self.content[k], away, calls)
            colour[rank] = labels.setdefault(key, len(labels))
        return colour

    def _distances(self, rank: int, peers: Int64) -> Int64:
        total = np.zeros_like(peers)
        for size, stride in zip(self.config.network.npus_count, self.config.strides, strict=True):
            total += (((peers // stride) - (rank // stride)) % size) * stride
        return total

    def _call(self, rank: int, call: Call) -> tuple[object, ...]:
        """What a rank's first look at a call says; also notes whom the call is with."""
        listed = implementations(self.config, call.comm_type)
        turning = all(entry.algorithm in TURNING for entry in listed)
        group = int(call.group) if call.group else 0
        who = self.members.get((group, turning)) if group else None
        if who is None:
            who = communicator(self.config, call, rank, self.names[rank])
        if who.dims or not call.group:
            self.worlds.setdefault((who.dims, turning), []).append(rank)
            trees = any(entry.algorithm == "doubleBinaryTree" for entry in listed)
            return (who.dims, turning, self._place(rank, who.dims) if trees else ())
        self.members[(group, turning)] = who
        self.callers[rank].append((group, turning))
        network = self.config.network
        if network.dimensions == 1 and network.topology[0] != "Ring":
            return (len(who.members),)
        pattern = hop_pattern(self.config, who.members)
        if turning and len(set(pattern)) == 1 and all(entry.algorithm == "ring" for entry in listed):
            return (len(who.members), pattern[0])
        return (group, int(np.flatnonzero(who.members == rank)[0]))

    def _place(self, rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
        """A rank's coordinates: the places of a tree differ."""
        return tuple((rank // self.config.strides[d]) % self.config.network.npus_count[d] for d in dims)

    def _recolour(self) -> Int64:
        colour = self.colour
        columns = [colour]
        columns.extend(self._world_column(dims, turning) for dims, turning in self.worlds)
        groups = {key: self._group_labels(who, key[1]) for key, who in self.members.items()}
        labels: dict[tuple[object, ...], int] = {}
        fresh = np.zeros(self.count, np.int64)
        table = np.stack(columns, axis=1).tolist()
        for rank, k in enumerate(self.population.program.tolist()):
            mine = tuple(
                groups[key] if isinstance(groups[key], int) else groups[key][rank]  # type: ignore[index]
                for key in self.callers[rank]
            )
            key = (tuple(table[rank]), colour[self.peers[k]].tobytes(), mine)
            fresh[rank] = labels.setdefault(key, len(labels))
        return fresh

    def _world_column(self, dims: tuple[int, ...], turning: bool) -> Int64:
        """For each rank a number that says which colours it sees along some dimensions."""
        shape = self.config.network.npus_count
        cube = self.colour.reshape(tuple(reversed(shape)))
        axes = tuple(len(shape) - 1 - d for d in dims)
        low, high = cube.min(axis=axes, keepdims=True), cube.max(axis=axes, keepdims=True)
        even = np.broadcast_to(low == high, cube.shape).ravel()
        seen = np.broadcast_to(low, cube.shape).ravel().copy()
        if even.all():
            return seen
        views: dict[bytes, int] = {}
        for rank in np.flatnonzero(~even).tolist():
            own = [(rank // self.config.strides[d]) % shape[d] for d in range(len(shape))]
            at: tuple[int | slice, ...] = tuple(
                slice(None) if d in dims else own[d] for d in reversed(range(len(shape)))
            )
            view = cube[at]
            if turning:
                view = np.roll(view, [-own[d] for d in sorted(dims, reverse=True)], axis=tuple(range(view.ndim)))
                key = view.tobytes()
            else:
                key = view.tobytes() + bytes(str([own[d] for d in dims]), "ascii")
            seen[rank] = -1 - views.setdefault(key, len(views))
        return seen

    def _group_labels(self, who: Communicator, turning: bool) -> int | dict[int, tuple[object, ...]]:
        """One number when all members have a colour, else what each member sees."""
        colours = self.colour[who.members]
        if (colours == colours[0]).all():
            return int(colours[0])
        if not turning:
            whole = colours.tobytes()
            return {rank: (k, whole) for k, rank in enumerate(who.members.tolist())}
        return {rank: (np.roll(colours, -k).tobytes(),) for k, rank in enumerate(who.members.tolist())}


def _content(program: Program) -> bytes:
    """Digest of all that matters in a program, peers and group numbers left out."""
    trace, order = program.trace, program.order
    digest = blake2b(digest_size=16)
    for column in (
        trace.duration_micros,
        trace.num_ops,
        trace.tensor_size,
        trace.comm_size,
        trace.comm_tag,
        trace.comm_type,
    ):
        digest.update(column[order].tobytes())
    for column in (program.kind, program.slot, program.call, program.child_ptr, program.child, program.axis):
        digest.update(column.tobytes())
    digest.update(str([(c.comm_type, c.size, c.involved, c.priority, c.group == "") for c in program.calls]).encode())
    return digest.digest()
