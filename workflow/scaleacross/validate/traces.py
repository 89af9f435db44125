"""Checks of each trace by itself: structure, kinds of nodes, attributes, ranges."""

from __future__ import annotations

import numpy as np

from ..astra.config_files import MemoryFile, SystemFile
from ..trace.columns import (
    ALL_GATHER,
    BROADCAST,
    COLL,
    COMM_TYPES,
    COMP,
    INVALID,
    METADATA,
    NODE_TYPES,
    RECV,
    SEND,
)
from .findings import ERROR, WARNING, Findings
from .graph import TraceGraph
from .table import NodeTable

EXACT = 2**53  # whole numbers up to here are exact in a double
MAX_MICROS = EXACT // 1000
TAG_SPACE = 500_000_000  # ASTRA-sim takes tags of sends and receives modulo this
RUNNABLE_COLLECTIVES = (0, 2, 5, 6, 7)


def check_structure(table: NodeTable, found: Findings) -> None:
    """Empty traces, ids given twice, dependencies on unknown nodes, on the node itself, and cycles."""
    for trace in np.flatnonzero(np.diff(table.start) == 0).tolist():
        fix = "give an idle rank one node, e.g. a compute node of 1 us"
        found.error("E-TRACE-NODES", f"{table.who(trace)} has no node", fix)
    _check_twice(table, found)
    row, target, control, node = table.edges
    missing = np.flatnonzero(target < 0)
    if len(missing):
        first = missing[0]
        kind = "control" if control[first] else "data"
        clash = f"{table.node(int(row[first]))} has a {kind} dependency on node {int(node[first])}, which is not there"
        more = f" (and {len(missing) - 1} more dependencies like it)" if len(missing) > 1 else ""
        found.error("E-DEP-MISSING", clash + more, "the trace was cut short or a node was removed; write it again")
    own = np.zeros(len(table), dtype=bool)
    own[row[target == row]] = True
    found.nodes(ERROR, "E-DEP-SELF", table, own, "depends on itself and never starts", "remove the dependency")
    for trace in np.flatnonzero(~table.ascending).tolist():
        cycle = TraceGraph(table.traces[trace]).cycle()
        if len(cycle) > 1:
            ids = [int(table.traces[trace].ids[row]) for row in cycle]
            path = " -> ".join(map(str, [*ids[:12], "..." if len(ids) > 12 else ids[0]]))
            clash = f"{table.who(trace)}: nodes depend on each other in a cycle: {path}"
            found.error("E-DEP-CYCLE", clash, "none of them ever starts; remove a dependency")


def _check_twice(table: NodeTable, found: Findings) -> None:
    if table.numbered:
        return
    order = np.lexsort((table.ids, table.owner))
    same = (np.diff(table.ids[order]) == 0) & (np.diff(table.owner[order]) == 0)
    twice = np.zeros(len(table), dtype=bool)
    twice[order[1:][same]] = True
    found.nodes(
        ERROR, "E-NODE-TWICE", table, twice, "this node id is there twice", "one of them is lost; number them anew"
    )


def check_nodes(table: NodeTable, system: SystemFile | None, memory: MemoryFile | None, found: Findings) -> None:
    """Kinds of nodes and what each kind must have; without system or memory file, what needs no settings."""
    kinds = table.types
    found.nodes(
        ERROR, "E-NODE-TYPE", table, kinds == INVALID, "type INVALID: nodes after it never start", "give it a type"
    )
    found.nodes(
        ERROR, "E-NODE-TYPE", table, kinds == METADATA, "a METADATA node ends ASTRA-sim", "leave it out of the trace"
    )
    cpu = table.is_cpu_op == 1
    found.nodes(
        ERROR, "E-COMM-CPU", table, cpu & table.communicates, "communication with is_cpu_op true", "set is_cpu_op false"
    )
    _check_sizes(table, found)
    _check_collectives(table, found)
    if memory is not None:
        _check_memory(table, memory, found)
    _check_statistics(table, cpu, found)
    if system is not None:
        _check_compute(table, system, cpu, found)


def _check_sizes(table: NodeTable, found: Findings) -> None:
    def size(row: int) -> str:
        return f"comm_size {int(table.comm_size[row])}"

    comm = table.communicates & ~((table.types == COLL) & (table.comm_type == BROADCAST))
    absent = comm & (table.comm_size < 0)
    found.nodes(ERROR, "E-COMM-SIZE", table, absent, "communication without comm_size", "write its bytes")
    zero = comm & (table.comm_size == 0)
    found.nodes(ERROR, "E-COMM-SIZE", table, zero, "communication of 0 bytes never finishes", "write at least 1 byte")
    huge = comm & (table.comm_size > EXACT)
    found.nodes(ERROR, "E-COMM-SIZE", table, huge, "more than 2^53 bytes is not exact", "check the size's unit", size)
    long = table.duration_micros > MAX_MICROS
    found.nodes(
        ERROR, "E-DURATION", table, long, f"a duration above {MAX_MICROS} us", "durations are in microseconds",
        lambda row: f"{int(table.duration_micros[row])} us",
    )  # fmt: skip


def _check_collectives(table: NodeTable, found: Findings) -> None:
    collective = table.types == COLL
    absent = collective & (table.comm_type < 0)
    found.nodes(ERROR, "E-COMM-TYPE", table, absent, "a collective without comm_type", "write comm_type as a number")

    def kind(row: int) -> str:
        number = int(table.comm_type[row])
        return f"comm_type {number}" + (f", {COMM_TYPES[number]}" if number < len(COMM_TYPES) else "")

    other = collective & (table.comm_type >= 0) & ~np.isin(table.comm_type, RUNNABLE_COLLECTIVES)
    fix = "0 all-reduce, 2 all-gather, 6 all-to-all and 7 reduce-scatter are simulated"
    found.nodes(ERROR, "E-COMM-TYPE", table, other, "a collective that is not simulated", fix, kind)
    free = collective & (table.comm_type == BROADCAST)
    clash = "a BROADCAST only waits for its duration_micros (1 ns when 0): its bytes are free"
    found.nodes(WARNING, "W-BROADCAST", table, free, clash, "write an all-gather or sends instead")


def _check_memory(table: NodeTable, memory: MemoryFile, found: Findings) -> None:
    remote = table.remote_memory
    if memory.kind == "NO_MEMORY_EXPANSION":
        clash = "loads from or stores to remote memory, but memory-type is NO_MEMORY_EXPANSION"
        found.nodes(ERROR, "E-MEMORY", table, remote, clash, "choose another memory-type or leave the node out")
    absent = remote & (table.tensor_size < 0)
    found.nodes(ERROR, "E-MEMORY", table, absent, "a memory node without tensor_size", "write its bytes")


def _check_statistics(table: NodeTable, cpu: np.ndarray, found: Findings) -> None:
    silent = table.remote_memory | (cpu & (table.types == COMP))
    clash = "a CPU or memory node: ASTRA-sim prints the cycles but no statistics for its rank"
    found.nodes(WARNING, "W-STATISTICS", table, silent, clash, "none needed: the cycles are right")


def _check_compute(table: NodeTable, system: SystemFile, cpu: np.ndarray, found: Findings) -> None:
    """Compute nodes that would be free, endless or stall."""
    compute = (table.types == COMP) & ~cpu
    if not system.roofline_enabled or system.replay_only:
        free = compute & (table.duration_micros == 0) & (table.num_ops > 0)
        clash = "compute without duration_micros takes 1 ns, whatever num_ops is, while roofline-enabled is 0"
        found.nodes(WARNING, "W-COMPUTE-FREE", table, free, clash, "enable roofline or write duration_micros")
        return
    none = compute & (table.tensor_size <= 0)
    clash = "roofline needs tensor_size above 0: without it the node ends at once and nothing after it starts"
    found.nodes(ERROR, "E-ROOFLINE-BYTES", table, none, clash, "write the bytes it moves")
    idle = compute & (table.num_ops <= 0)
    clash = "roofline needs num_ops above 0: with 0 the node takes 9.2e18 cycles"
    found.nodes(ERROR, "E-ROOFLINE-OPS", table, idle, clash, "write its FLOPs (1 for pure memory traffic)")
    good = compute & (table.tensor_size > 0) & (table.num_ops > 0)
    ops, size = np.maximum(table.num_ops, 1).astype(float), np.maximum(table.tensor_size, 1).astype(float)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # absurd settings give infinity, reported below
        perf = np.minimum(system.local_mem_bandwidth * 1e9 * (ops / size), system.peak_perf * 1e12)
        nanoseconds = ops / perf * 1e9
    clash = "roofline gives less than 1 ns, which ends ASTRA-sim when it happens at time 0"
    found.nodes(WARNING, "W-ROOFLINE-ZERO", table, good & (nanoseconds < 1), clash, "merge it with its neighbour")
    late = good & (nanoseconds > EXACT)
    found.nodes(ERROR, "E-DURATION", table, late, "roofline gives more than 2^53 ns", "check num_ops and peak-perf")


def check_splits(table: NodeTable, system: SystemFile, ranks: int, dimensions: int, found: Findings) -> None:
    """Sizes of collectives against ``preferred-dataset-splits``."""
    splits = system.preferred_dataset_splits
    collective = (table.types == COLL) & (table.comm_size > 0) & np.isin(table.comm_type, (0, 2, 6, 7))
    collective &= ~np.isin(table.comm_type, list(system.custom))

    def size(row: int) -> str:
        return f"comm_size {int(table.comm_size[row])}"

    small = collective & (table.comm_type == ALL_GATHER) & (table.comm_size < splits)
    clash = f"an all-gather shard smaller than preferred-dataset-splits {splits} never ends"
    found.nodes(ERROR, "E-SPLITS", table, small, clash, "use fewer splits or a larger shard", size)
    raised = collective & (table.comm_type != ALL_GATHER) & (table.comm_size < splits * ranks)
    clash = f"fewer than splits {splits} x NPUs {ranks} bytes: ASTRA-sim sends {splits * ranks} bytes instead"
    found.nodes(WARNING, "W-SPLITS-RAISED", table, raised, clash, "use fewer splits or larger collectives", size)
    tiny = collective & (table.comm_type == ALL_GATHER) & (table.comm_size < splits * ranks) & ~small
    if dimensions > 1:
        clash = "so few bytes a chunk may end ASTRA-sim on several dimensions (chunk_size > 0)"
        found.nodes(WARNING, "W-SPLITS-TINY", table, tiny, clash, "use fewer splits or larger collectives", size)
    rest = collective & ~small & ~raised & (table.comm_size % splits > 0)
    clash = f"not a multiple of preferred-dataset-splits {splits}: the rest becomes one more whole chunk"
    found.nodes(WARNING, "W-SPLITS-REST", table, rest, clash, "use a multiple", size)


def check_tracking(table: NodeTable, system: SystemFile, found: Findings) -> None:
    """``track-local-mem`` needs inputs and outputs on every node."""
    if not system.track_local_mem:
        return
    bad = np.ones(len(table), dtype=bool)
    for trace, start in zip(table.traces, table.start.tolist(), strict=False):
        full = np.array([_has_tensors(form) for form in trace.forms])
        bad[start : start + len(trace)] = ~full[trace.form]
    clash = "track-local-mem needs the attributes inputs and outputs on every node"
    found.nodes(ERROR, "E-TRACK-MEMORY", table, bad, clash, "add them or set track-local-mem 0")


def _has_tensors(form: tuple[tuple[str, str, bytes], ...] | None) -> bool:
    return {"inputs", "outputs"} <= {name for name, _, _ in form or ()}


def kind_name(table: NodeTable, row: int) -> str:
    """``COMM_SEND`` ... of a row."""
    return NODE_TYPES[int(table.types[row])]


def check_peers(table: NodeTable, found: Findings) -> None:
    """Sends and receives of each class: attributes there, own side right, peer exists and is another rank."""
    send, recv = table.types == SEND, table.types == RECV
    peer = np.where(send, table.comm_dst, table.comm_src)
    own = np.where(send, table.comm_src, table.comm_dst)
    pair = send | recv
    fix = "write comm_dst on sends, comm_src on receives"
    found.nodes(ERROR, "E-PEER", table, pair & (peer < 0), "a send without comm_dst or a receive without comm_src", fix)
    found.nodes(ERROR, "E-TAG", table, pair & (table.comm_tag < 0), "no comm_tag", "write a tag")
    high = pair & (table.comm_tag >= 2**31)
    found.nodes(
        ERROR, "E-TAG", table, high, "a tag of 2^31 or more", "use smaller tags", lambda r: int(table.comm_tag[r])
    )
    wraps = pair & (table.comm_tag >= TAG_SPACE) & ~high
    clash = f"a tag of {TAG_SPACE} or more: ASTRA-sim takes it modulo {TAG_SPACE}"
    found.nodes(WARNING, "W-TAG", table, wraps, clash, "use smaller tags", lambda r: int(table.comm_tag[r]))
    outside = pair & (peer >= table.ranks.ranks)
    clash = f"its peer is no rank of the world of {table.ranks.ranks}"
    found.nodes(ERROR, "E-PEER", table, outside, clash, "check comm_src and comm_dst", lambda r: int(peer[r]))
    first = np.array([table.ranks.classes[users[0]].representative for users in table.users], dtype=np.int64)
    mine = first[table.owner] if len(first) else table.owner
    foreign = pair & (own >= 0) & (own != mine)
    clash = "a send's comm_src, or a receive's comm_dst, is not the rank that runs it"
    found.nodes(ERROR, "E-PEER-OWN", table, foreign, clash, "write its own rank or leave it out", lambda r: int(own[r]))
    if not table.ranks.folded:
        shared = np.array([len(users) > 1 for users in table.users])[table.owner] if len(table) else own > 0
        clash = "several ranks have equal files, but they name their own rank"
        alike = pair & shared & (own >= 0)
        found.nodes(ERROR, "E-PEER-OWN", table, alike, clash, "each rank names itself", lambda r: int(own[r]))
    found.nodes(ERROR, "E-PEER-SELF", table, pair & (peer == mine), "sends to or receives from itself", "leave it out")
