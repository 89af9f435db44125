"""Checks of the configuration against itself and against what the traces use: algorithms, dimensions, groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..astra.collectives import COLLECTIVE_KEYS, Implementation
from ..astra.config_files import MemoryFile, NetworkFile, SystemFile
from ..documents import shown
from ..trace.columns import COLL
from ..trace.ranks import ranges
from .findings import Finding, Findings
from .table import NodeTable

Groups = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Use:
    """How the traces use one type of collective.

    Attributes:
        involved: the dimensions of each whole-world use.
        sizes: sizes of the communicator groups smaller than the world, with an example id of each.
        several: a rank uses several groups smaller than the world.
    """

    involved: tuple[frozenset[int], ...]
    sizes: Mapping[int, int]
    several: bool


def collective_use(table: NodeTable, network: NetworkFile, groups: Groups) -> dict[int, Use]:
    """Chakra collective type -> how it is used."""
    uses: dict[int, Use] = {}
    collective = table.types == COLL
    for comm_type in COLLECTIVE_KEYS:
        rows = collective & (table.comm_type == comm_type)
        if not rows.any():
            continue
        ids = np.unique(table.groups[rows]).tolist()
        sizes = {len(groups[group]): group for group in ids if group in groups and len(groups[group]) < network.npus}
        whole = {group for group in ids if group in groups and len(groups[group]) == network.npus}
        involved = {frozenset(range(network.dimensions))} if whole else set()
        for index in np.unique(table.involved[rows & (table.groups == 0)]).tolist():
            dims = table.involved_sets[index]
            chosen = range(network.dimensions) if dims is None else (d for d, used in enumerate(dims) if used)
            involved.add(frozenset(dim for dim in chosen if dim < network.dimensions))
        smaller = [group for group in ids if group in groups and len(groups[group]) < network.npus]
        calls = np.unique((table.owner << 32 | table.groups)[rows & np.isin(table.groups, smaller)])
        several = len(np.unique(calls >> 32)) < len(calls)
        uses[comm_type] = Use(tuple(involved), sizes, several)
    return uses


def check_settings(network: NetworkFile, system: SystemFile, memory: MemoryFile | None, found: Findings) -> None:
    """What is wrong or surprising in the configuration alone."""
    for key in system.ignored:
        found.warning("W-SYSTEM-IGNORED", f"'{key}' has no effect in this version of ASTRA-sim", "leave it out")
    if system.endpoint_delay == 0:
        clash = "endpoint-delay 0 ends ASTRA-sim when a collective starts at time 0"
        found.warning("W-ENDPOINT-DELAY", clash, "write at least 1")
    splits, active = system.preferred_dataset_splits, system.active_chunks_per_dimension
    if network.dimensions > 1 and active < splits and len(set(network.latency)) > 1:
        clash = (
            f"active-chunks-per-dimension {active} < preferred-dataset-splits {splits} on latencies {network.latency}"
        )
        found.warning("W-ACTIVE-CHUNKS", clash, "reported to deadlock ASTRA-sim; use equal numbers if it hangs")
    if system.replay_only:
        fix = "write 0 to simulate the network"
        found.warning("W-REPLAY", "replay-only: collectives, sends and receives take their duration_micros", fix)
    if memory is not None and memory.kind == "PER_NODE_MEMORY_EXPANSION":
        room = memory.nodes * memory.npus_per_node
        if room < network.npus:
            clash = (
                f"{network.npus} NPUs, but num-nodes {memory.nodes} x num-npus-per-node {memory.npus_per_node} = {room}"
            )
            found.error("E-MEMORY-NODES", clash, "the product must reach the number of NPUs")
    for comm_type, stem in COLLECTIVE_KEYS.items():
        count = len(system.implementations.get(comm_type, ()))
        if count > network.dimensions:
            clash = f"'{stem}-implementation' has {count} entries, the network {network.dimensions} dimensions"
            found.error("E-IMPLEMENTATION-LONG", clash, "write one entry per dimension")


def check_model(network: NetworkFile, model: str | None, found: Findings) -> None:
    """Limits of ASTRA-sim's congestion-aware backend."""
    if model != "aware":
        return
    if network.dimensions > 1:
        clash = f"{network.dimensions} dimensions, but the congestion-aware model has one only"
        found.error("E-AWARE-DIMENSIONS", clash, "use --network-model unaware or scaleacross")
    elif network.topology[0] == "Ring" and network.npus_count[0] == 2:
        fix = "use FullyConnected or Switch"
        found.error("E-AWARE-RING", "a Ring of 2 NPUs ends the congestion-aware model", fix)


def check_algorithms(network: NetworkFile, system: SystemFile, uses: Mapping[int, Use], found: Findings) -> None:
    """Each used collective has an algorithm for each dimension that it involves, and the algorithm can do it."""
    problems: dict[Finding, None] = {}
    for comm_type, use in uses.items():
        if comm_type in system.custom:
            continue
        one = Findings()
        _check_use(comm_type, use, network, system, one)
        problems.update(dict.fromkeys(one.items))
    found.items.extend(problems)


def _check_use(comm_type: int, use: Use, network: NetworkFile, system: SystemFile, found: Findings) -> None:
    stem = COLLECTIVE_KEYS[comm_type]
    key = f"{stem}-implementation"
    names = system.implementations.get(comm_type, ())
    if not names:
        fix = f'write "{key}", one entry per dimension'
        found.error("E-IMPLEMENTATION-MISSING", f"the traces have {stem} collectives, but '{key}' is missing", fix)
        return
    if use.sizes and len(names) == 1:
        for size, group in use.sizes.items():
            _check_algorithm(stem, names[0], size, f"communicator group {group}", True, found)
        if use.several:
            clash = f"a rank has several communicator groups with {stem}, and a '{key}' of one entry"
            fix = "ASTRA-sim frees memory twice when it ends (after printing); ours does not"
            found.warning("W-DOUBLE-FREE", clash, fix)
    if names[0].one:
        for involved in use.involved:
            _check_algorithm(stem, names[0], network.npus, "the whole world", False, found)
            if len(involved) < network.dimensions:
                clash = (
                    f"'{key}' names an algorithm over all NPUs, but a collective involves dimensions {sorted(involved)}"
                )
                found.warning(
                    "W-IMPLEMENTATION-ONE", clash, "the whole world takes part; name an algorithm per dimension"
                )
        return
    for involved in use.involved:
        dropped = sorted(dim for dim in involved if dim >= len(names))
        if dropped:
            clash = (
                f"'{key}' has {len(names)} entries, but {stem} collectives involve dimension {ranges(dropped)} as well"
            )
            fix = "ASTRA-sim drops those dimensions and they cost nothing; write one entry per dimension"
            found.error("E-IMPLEMENTATION-SHORT", clash, fix)
        for dim in sorted(involved - set(dropped)):
            _check_algorithm(stem, names[dim], network.npus_count[dim], f"dimension {dim}", False, found)


def _check_algorithm(
    stem: str, implementation: Implementation, count: int, where: str, group: bool, found: Findings
) -> None:
    """What ``implementation`` cannot do over ``count`` ranks."""
    algorithm = implementation.algorithm
    if algorithm == "halvingDoubling":
        if stem == "all-to-all":
            clash = f"halvingDoubling has no all-to-all ({where})"
            found.error("E-ALGORITHM", clash, "use ring or direct")
        elif count & (count - 1):
            clash = f"halvingDoubling {stem} over {count} NPUs ({where}) never finishes"
            found.error("E-ALGORITHM", clash, "it needs a power of two; use ring or direct")
    elif algorithm == "doubleBinaryTree":
        if group:
            clash = f"doubleBinaryTree {stem} in {where}, which is smaller than the world, crashes ASTRA-sim"
            found.error("E-ALGORITHM", clash, "use ring")
        elif count & (count - 1):
            clash = f"doubleBinaryTree {stem} over {count} NPUs ({where}) crashes ASTRA-sim"
            found.error("E-ALGORITHM", clash, "it needs a power of two; use ring or direct")
        elif stem != "all-reduce":
            clash = f"doubleBinaryTree {stem} ({where}): ASTRA-sim runs the all-reduce tree instead"
            found.warning("W-ALGORITHM", clash, "use another algorithm")


def check_custom(system: SystemFile, ranks: int, found: Findings) -> None:
    """Every rank's trace of each custom collective is there."""
    prefixes = [*system.custom.values(), *system.per_node_custom.values()]
    for prefix in dict.fromkeys(prefixes):
        missing = [rank for rank in range(ranks) if not Path(f"{prefix}.{rank}.et").is_file()]
        if missing:
            clash = f"custom collective {prefix}.<rank>.et has no trace for rank {ranges(missing)}"
            found.error("E-CUSTOM-FILE", clash, "write it, with a path relative to the working folder or absolute")


def check_groups(
    table: NodeTable, groups: Groups, path: Path | str | None, given: bool, ranks: int, found: Findings
) -> None:
    """Communicator groups: members, sizes, ids used by the traces, ring order."""
    if path is not None and "empty" in str(path):
        clash = f"the path {path} contains 'empty': ASTRA-sim ignores the file"
        found.warning("W-GROUPS-PATH", clash, "rename the file or folder")
    used = set(np.unique(table.groups[table.types == COLL]).tolist()) - {0}
    if table.ranks.folded:
        families = table.ranks.family_of
        used |= {g for u in used if u in families for g in table.ranks.group_families[families[u]]}
    _check_names(table, found)
    for group in sorted(used - {-1} - set(groups)):
        clash = f"communicator group {group} is used by {_user(table, group)}, but " + (
            f"{path} has no such id" if given else "no groups file is given"
        )
        found.error("E-GROUP-MISSING", clash, "add it, or give --comm-group-configuration")
    disordered = []
    for group, members in groups.items():
        outside = [rank for rank in members if rank >= ranks]
        if outside:
            clash = f"group {group} has rank {ranges(sorted(outside))}, the world {ranks} ranks"
            found.error("E-GROUP-MEMBER", clash, "members are ranks of the world")
        if len(members) < 2:
            report = found.error if group in used else found.warning
            clash = f"group {group} has {len(members)} members {list(members)}"
            report(
                "E-GROUP-SIZE" if group in used else "W-GROUP-SIZE", clash, "its collectives never finish; leave it out"
            )
        if list(members) != sorted(members) and group in used:
            disordered.append(group)
    if disordered:
        first = disordered[0]
        order = ", ".join(map(str, groups[first][:12]))
        clash = f"group {ranges(disordered)} is not in ascending order: the ring goes {order} ... (group {first})"
        found.warning("W-GROUP-ORDER", clash, "the order is the ring's order; make sure it is meant")
    _check_callers(table, groups, found)


def _user(table: NodeTable, group: int) -> str:
    rows = np.flatnonzero((table.groups == group) & (table.types == COLL))
    return table.node(int(rows[0])) if len(rows) else "a member of a class, by group_families"


def _check_names(table: NodeTable, found: Findings) -> None:
    bad = (table.types == COLL) & (table.groups < 0)
    clash = "a pg_name that is not a whole number of at least 0"
    found.nodes(
        "error", "E-GROUP-NAME", table, bad, clash, "write the id of a group", lambda row: shown(_pg(table, row))
    )
    both = (table.types == COLL) & (table.groups > 0) & (table.involved > 0)
    clash = "a collective with pg_name and involved_dim: the dimensions are ignored"
    found.nodes("warning", "W-GROUP-INVOLVED", table, both, clash, "write one of them")


def _pg(table: NodeTable, row: int) -> str:
    trace = table.traces[int(table.owner[row])]
    return trace.pg_names[int(trace.pg[row - int(table.start[table.owner[row]])])]


def _check_callers(table: NodeTable, groups: Groups, found: Findings) -> None:
    """The rank that runs a collective of a group is in it."""
    rows = np.flatnonzero((table.types == COLL) & (table.groups > 0))
    _, firsts = np.unique(table.owner[rows] << 32 | table.groups[rows], return_index=True)
    members = {group: frozenset(ranks) for group, ranks in groups.items()}
    outsiders: dict[int, list[int]] = {}
    for row in rows[firsts].tolist():
        trace, group = int(table.owner[row]), int(table.groups[row])
        if group in members:
            callers = [table.ranks.classes[user].representative for user in table.users[trace]]
            outsiders.setdefault(group, []).extend(rank for rank in callers if rank not in members[group])
    for group, ranks in outsiders.items():
        if ranks:
            clash = (
                f"rank {ranges(sorted(ranks))} calls group {group}, whose members are {ranges(sorted(groups[group]))}"
            )
            found.error("E-GROUP-CALLER", clash, "add the rank to the group or change pg_name")


def check_involved(table: NodeTable, network: NetworkFile, found: Findings) -> None:
    """``involved_dim`` lists against the number of dimensions."""
    world = (table.types == COLL) & (table.groups == 0)
    for index, dims in enumerate(table.involved_sets):
        rows = world & (table.involved == index)
        if dims is None:
            if network.dimensions > 4:
                clash = (
                    f"no involved_dim: ASTRA-sim assumes 4 dimensions and reads past the end with {network.dimensions}"
                )
                found.nodes("warning", "W-INVOLVED", table, rows, clash, "write involved_dim, an entry per dimension")
        elif len(dims) < network.dimensions:
            clash = f"involved_dim has {len(dims)} entries, the network {network.dimensions} dimensions"
            found.nodes("error", "E-INVOLVED", table, rows, clash, "write an entry per dimension")
        elif not any(dims[: network.dimensions]):
            found.nodes("error", "E-INVOLVED", table, rows, "involved_dim involves no dimension", "set one to true")
