"""The kernel's memory, filled: what a run needs, from plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from .kernel import jit, loop
from .kernel import layout as L
from .plan import Phase, Plan, tree_table
from .settings import POLICY_CODES, TOPOLOGY_CODES, Config, Options

Int64 = NDArray[np.int64]
INNER_GAP = 0.0038  # ns a byte on the inner link of the shared bus, fixed in the reference


@dataclass(slots=True)
class Machine:
    """A run that can be started, and continued. ``first_node``: of each simulated rank among the node states."""

    m: L.Memory
    h: L.Memory
    f: L.Memory
    first_node: Int64
    first_state: int

    def start(self) -> None:
        """Time 0."""
        self.m, self.h = loop.start(self.m, self.h, self.f)

    def compile(self) -> None:
        """Turn lists into arrays, for the kernel that has been compiled meanwhile."""
        self.m, self.h = np.array(self.m, np.int64), np.array(self.h, np.int64)
        self.f = np.array(self.f, np.float64)

    def run(self, budget: int = 1 << 62) -> int:
        """Until the end, or a reason to stop (DONE, NEEDS, PAUSED, BROKEN of the kernel's loop)."""
        status, self.m, self.h = loop.run(self.m, self.h, self.f, budget)
        return int(status)

    def settle(self) -> None:
        """Take up the collectives whose durations have been filled in after NEEDS."""
        self.m, self.h = loop.settle(self.m, self.h)

    def ranks(self, cell: int) -> Int64:
        """A cell of every simulated rank's record."""
        first = int(self.m[L.G_RANKS])
        return np.array(self.m[first + cell : first + int(self.m[L.G_COUNT]) * L.R_SIZE : L.R_SIZE], np.int64)

    def nodes(self, cell: int) -> Int64:
        """A cell of every node state, rank after rank."""
        end = self.first_state + int(self.first_node[-1]) * L.W_SIZE
        return np.array(self.m[self.first_state + cell : end : L.W_SIZE], np.int64)

    def unfinished(self) -> bool:
        """True when some node has not ended."""
        return bool(self.ranks(L.R_LEFT).any())

    def sent(self) -> Int64:
        """Bytes sent by chunk-wise simulated messages, of each simulated rank (rows) over each dimension."""
        dims = int(self.m[L.G_DIMS])
        first = [int(cell) for cell in self.ranks(L.R_SENT)]
        return np.array([self.m[cell : cell + dims] for cell in first], np.int64)

    def complain(self) -> InvalidInput:
        """Why a run is BROKEN."""
        clash = "a message has no bytes, or goes from a rank to itself"
        return InvalidInput(
            "E-MESSAGE", clash, "give collectives at least a byte a rank and chunk; send to another rank"
        )


@dataclass(slots=True)
class RankPart:
    """A simulated rank: its number in the world, its program's first row and nodes, its calls' first record."""

    true: int
    first_row: int
    nodes: int
    calls: int
    channel: int = 0


@dataclass
class Parts:
    """What a machine is put together from. ``cells`` is the memory's beginning; ``rows`` are node records."""

    config: Config
    options: Options
    composed: bool = False
    aware: bool = False
    quotient: bool = False
    cells: list[int] = field(default_factory=lambda: [0] * L.G_SIZE)
    ranks: list[RankPart] = field(default_factory=list)
    robins: list[list[int]] | None = None  # of each rank, where they are not fresh
    channels: int = 0
    custom_cells: int = 0
    room: int = 256
    longest: int = 1  # phases of a stream
    phases_at: dict[tuple[Any, int], int] = field(default_factory=dict)

    def put(self, cells: list[int]) -> int:
        """Append a record; returns its handle."""
        self.cells.extend(cells)
        return len(self.cells) - len(cells)

    def add_phases(self, plan: Plan, group: int = 0) -> int:
        """A plan's phase records, once. ``group``: handle of the members' ranks, 0 for dimensions."""
        key = (plan, group)
        if key not in self.phases_at:
            records = [cell for phase in plan.phases for cell in self._phase(phase, group)]
            self.phases_at[key] = self.put(records)
            windows = max((phase.window for phase in plan.phases), default=0)
            self.room = max(self.room, 256 + 2 * (L.M_SIZE + 8) * (windows + 4) + plan.chunks * (64 + 24 * windows))
            self.longest = max(self.longest, len(plan.phases))
        return self.phases_at[key]

    def _phase(self, phase: Phase, group: int) -> list[int]:
        cells = [0] * L.P_SIZE
        if phase.algorithm == L.HALVING:
            cells[L.P_TABLE] = self.put([cell for pair in phase.table for cell in pair])
        elif phase.algorithm == L.TREE:
            cells[L.P_TABLE] = self.put(list(tree_table(phase.nodes)))
        cells[L.P_ALGORITHM] = phase.algorithm
        cells[L.P_TYPE] = phase.comm_type
        cells[L.P_NODES] = phase.nodes
        cells[L.P_WINDOW] = phase.window
        cells[L.P_BYTES] = phase.size
        cells[L.P_STEPS] = phase.steps
        cells[L.P_PROCESSED] = phase.processed
        cells[L.P_LOCAL] = 1 if phase.dimension < 0 else 0
        cells[L.P_STRIDE] = phase.stride
        cells[L.P_GROUP] = group
        cells[L.P_LEVEL] = phase.level
        cells[L.P_ALLOCATOR] = phase.allocator
        cells[L.P_TREE] = 4 * phase.level + phase.family
        return cells

    def build(self, rows: Int64, children: Int64, waits: Int64, sim_of: Int64) -> Machine:
        """Put the memory together.

        Args:
            rows: node records [rows, N_SIZE] with children counted from the start of ``children``.
            children: for each row, its children's rows in the program. waits: of each rank's nodes, rank after rank.
            sim_of: for each rank of the world, the number of the rank that stands for it (-1: none).
        """
        config, dims, queues = self.config, self.config.network.dimensions, self.options.queues_per_dim
        network = config.network
        topologies = [TOPOLOGY_CODES[name] for name in network.topology]
        shape = self.put(
            [c for three in zip(network.npus_count, config.strides, topologies, strict=True) for c in three]
        )
        memory = self.put([0] * (self.channels * L.X_SIZE))
        count = len(self.ranks)
        first_node = np.cumsum([0, *(part.nodes for part in self.ranks)])
        own = dims * (2 * queues + 7 + 1) + self.custom_cells + 4 * L.V_SIZE
        mask = (1 << max(6, (8 * count - 1).bit_length())) - 1
        links = config.npus**2 if topologies[0] == 1 else 2 * config.npus
        at_children = len(self.cells)
        at_rows = at_children + len(children)
        at_ranks = at_rows + rows.size
        at_own = at_ranks + count * L.R_SIZE
        at_states = at_own + count * own
        at_sims = at_states + len(waits) * L.W_SIZE
        at_bucket = at_sims + len(sim_of)
        at_link = at_bucket + 2 * (mask + 1)
        top = at_link + (3 * links if self.aware else 0)
        rows = rows.copy()
        rows[:, L.N_CHILDREN] += at_children
        rows[:, L.N_CHILDREN_END] += at_children
        ranks = self._rank_records(at_states, at_own, own, first_node)
        states = np.zeros((len(waits), L.W_SIZE), np.int64)
        states[:, L.W_WAITS] = waits
        states[:, L.W_START] = states[:, L.W_END] = -1
        for k, part in enumerate(self.ranks):
            span = slice(first_node[k], first_node[k + 1])
            states[span, L.W_ROW] = at_rows + (part.first_row + np.arange(part.nodes)) * L.N_SIZE
            states[span, L.W_RANK] = at_ranks + k * L.R_SIZE
        self._fill_header(shape, memory, at_ranks, at_sims, at_bucket, at_link, mask, top)
        tail = np.zeros(at_states - at_own, np.int64)
        self._fill_own(tail, own, at_ranks)
        whole = np.concatenate(
            [
                np.array(self.cells, np.int64),
                children * L.W_SIZE,
                rows.ravel(),
                ranks.ravel(),
                tail,
                states.ravel(),
                np.where(sim_of < 0, 0, at_ranks + sim_of * L.R_SIZE),
                np.zeros(top - at_bucket + 2 * self.room, np.int64),
            ]
        )
        self._link_ready(whole, at_ranks, at_states, first_node, waits)
        constants = [*network.latency, *config.bytes_per_ns, config.system.local_mem_bandwidth * 1_000_000_000]
        constants += [float(np.float32(config.system.bus_gap)), INNER_GAP]
        heap = np.zeros(2 * self.room, np.int64)
        return Machine(ints(whole), ints(heap), floats(constants), first_node, at_states)

    def _rank_records(self, at_states: int, at_own: int, own: int, first_node: Int64) -> Int64:
        dims, queues = self.config.network.dimensions, self.options.queues_per_dim
        ranks = np.zeros((len(self.ranks), L.R_SIZE), np.int64)
        ranks[:, L.R_NODES] = at_states + first_node[:-1] * L.W_SIZE
        ranks[:, L.R_LEFT] = np.diff(first_node)
        ranks[:, L.R_CALLS] = [part.calls for part in self.ranks]
        ranks[:, L.R_TRUE] = [part.true for part in self.ranks]
        ranks[:, L.R_CHANNEL] = [part.channel for part in self.ranks]
        ranks[:, L.R_FINISH] = -1
        start = at_own + np.arange(len(self.ranks)) * own
        ranks[:, L.R_QUEUES] = start
        ranks[:, L.R_ROBINS] = start + 2 * dims * queues
        ranks[:, L.R_SENT] = start + 2 * dims * queues + 7 * dims
        ranks[:, L.R_CUSTOM] = start + 2 * dims * queues + 8 * dims
        ranks[:, L.R_BUS] = start + 2 * dims * queues + 8 * dims + self.custom_cells
        return ranks

    def _fill_own(self, tail: Int64, own: int, at_ranks: int) -> None:
        """Fresh round robins: 0, 0, half of the queues in each dimension; tree counters 0. Sides of the shared bus."""
        dims, queues = self.config.network.dimensions, self.options.queues_per_dim
        fresh = [cell for _ in range(dims) for cell in (0, 0, queues // 2)] + [0] * (4 * dims)
        table = tail.reshape(len(self.ranks), own)
        table[:, 2 * dims * queues : 2 * dims * queues + 7 * dims] = fresh if self.robins is None else self.robins
        system = self.config.system
        sides = table[:, own - 4 * L.V_SIZE :].reshape(len(self.ranks), 4, L.V_SIZE)
        sides[:, :, L.V_SIDE] = np.arange(4)
        sides[:, :, L.V_RANK] = (at_ranks + np.arange(len(self.ranks)) * L.R_SIZE)[:, None]
        for cell, value in ((L.V_L, system.bus_l), (L.V_O, system.bus_o), (L.V_G, system.bus_g)):
            sides[:, :, cell] = int(np.float32(value))

    def _fill_header(
        self, shape: int, memory: int, ranks: int, sims: int, bucket: int, link: int, mask: int, top: int
    ) -> None:
        g, system, queues = self.cells, self.config.system, self.options.queues_per_dim
        g[L.G_COMPOSED] = int(self.composed)
        g[L.G_AWARE] = int(self.aware)
        g[L.G_ENDPOINT] = int(system.endpoint_delay * self.options.injection_scale)
        g[L.G_CONCURRENT] = -(-system.active_chunks_per_dimension // queues)
        g[L.G_QUEUES] = queues
        g[L.G_DIMS] = self.config.network.dimensions
        g[L.G_POLICY] = POLICY_CODES[system.scheduling_policy]
        g[L.G_RENDEZVOUS] = int(self.options.rendezvous)
        g[L.G_QUOTIENT] = int(self.quotient)
        g[L.G_UNFINISHED] = g[L.G_COUNT] = len(self.ranks)
        g[L.G_MASK] = mask
        g[L.G_ROOM] = self.room
        g[L.G_STREAM] = L.S_PATH + self.longest
        g[L.G_TOPOLOGY] = TOPOLOGY_CODES[self.config.network.topology[0]]
        g[L.G_NPUS] = self.config.npus
        g[L.G_TOP] = top
        g[L.G_BUS] = int(system.model_shared_bus)
        g[L.G_REDUCE] = system.reduction_delay
        g[L.G_RANKS], g[L.G_SIM_OF], g[L.G_SHAPE], g[L.G_BUCKET] = ranks, sims, shape, bucket
        g[L.G_LINK], g[L.G_MEMORY] = link, memory

    def _link_ready(self, m: Int64, at_ranks: int, at_states: int, first_node: Int64, waits: Int64) -> None:
        """Ready lists at time 0: nodes without dependencies, in ascending id."""
        free = np.flatnonzero(waits == 0)
        owner = np.searchsorted(first_node, free, side="right") - 1
        for node, k in zip((at_states + free * L.W_SIZE).tolist(), owner.tolist(), strict=True):
            rank = at_ranks + k * L.R_SIZE
            slot = m[m[node + L.W_ROW] + L.N_SLOT]
            last = m[rank + L.R_LAST + slot]
            if last == 0:
                m[rank + L.R_READY + slot] = node
            else:
                m[last + L.W_AFTER] = node
            m[rank + L.R_LAST + slot] = node


def ints(values: Int64) -> L.Memory:
    """The memory as the kernel takes it: a list, or the int64 array once it is compiled."""
    return values if jit.is_compiled() else values.tolist()


def floats(values: list[float]) -> L.Memory:
    """A list, or a float64 array once the kernel is compiled."""
    return np.array(values, np.float64) if jit.is_compiled() else values
