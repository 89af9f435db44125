"""Every check on a set of ASTRA-sim inputs, ours or not: what would crash, hang, be ignored or be free."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..astra.config_files import (
    Groups,
    MemoryFile,
    NetworkFile,
    SystemFile,
    inspect_groups,
    inspect_memory,
    inspect_network,
    inspect_system,
)
from ..trace.workload import Workload, inspect_workload
from .collectives import Sequences, check_sequences
from .findings import Finding, Findings
from .hangs import check_hangs
from .messages import Messages, check_messages
from .settings import (
    check_algorithms,
    check_custom,
    check_groups,
    check_involved,
    check_model,
    check_settings,
    collective_use,
)
from .table import NodeTable
from .traces import check_nodes, check_peers, check_splits, check_structure, check_tracking

PathLike = Path | str
NO_GROUPS = "empty"  # ASTRA-sim's default for --comm-group-configuration


def check_inputs(
    workload_prefix: PathLike,
    network: PathLike,
    system: PathLike,
    memory: PathLike | None = None,
    groups: PathLike | None = None,
    network_model: str | None = None,
) -> list[Finding]:
    """Read a set of inputs and list everything that is wrong or surprising, errors and warnings.

    Args:
        workload_prefix: ``DIR/workload`` for ``DIR/workload.<rank>.et``, or for the class files of ``DIR/ranks.json``.
        network, system, memory, groups: the configuration files; no groups file, or one named ``empty``: no groups.
        network_model: ``aware`` adds the limits of ASTRA-sim's congestion-aware backend.
    """
    found = Findings()
    network_file, problems = inspect_network(network)
    found.raised(problems)
    system_file, problems = inspect_system(system)
    found.raised(problems)
    memory_file, problems = inspect_memory(memory) if memory is not None else (None, [])
    found.raised(problems)
    given = groups is not None and str(groups) != NO_GROUPS
    group_map: Groups | None = {}
    if given and groups is not None:
        group_map, problems = inspect_groups(groups)
        found.raised(problems)
    workload, problems = inspect_workload(workload_prefix, network_file.npus if network_file else None)
    found.raised(problems)
    if workload is not None:
        _check(
            found, workload, network_file, system_file, memory_file, group_map, groups if given else None, network_model
        )
    return found.items


def check_loaded(
    workload: Workload,
    network: NetworkFile,
    system: SystemFile,
    memory: MemoryFile | None = None,
    groups: Mapping[int, tuple[int, ...]] | None = None,
    groups_path: PathLike | None = None,
    network_model: str | None = None,
) -> list[Finding]:
    """The same checks on inputs that are loaded already; ``groups_path`` is for messages."""
    found = Findings()
    if workload.ranks.ranks != network.npus:
        clash = (
            f"{network.npus} NPUs in the network ({network.npus_count}), {workload.ranks.ranks} ranks in the workload"
        )
        found.error("E-WORLD", clash, "change npus_count or the plan's degrees")
    _check(found, workload, network, system, memory, dict(groups or {}), groups_path, network_model)
    return found.items


def _check(
    found: Findings,
    workload: Workload,
    network: NetworkFile | None,
    system: SystemFile | None,
    memory: MemoryFile | None,
    groups: Groups | None,
    groups_path: PathLike | None,
    network_model: str | None,
) -> None:
    table = NodeTable.build(workload)
    complete = bool((table.class_trace >= 0).all())
    check_structure(table, found)
    check_nodes(table, system, memory, found)
    check_peers(table, found)
    if groups is not None:
        check_groups(table, groups, groups_path, groups_path is not None, table.ranks.ranks, found)
    if network is not None:
        check_model(network, network_model, found)
        check_involved(table, network, found)
    if system is not None:
        check_tracking(table, system, found)
        check_custom(system, table.ranks.ranks, found)
    if network is not None and system is not None:
        check_settings(network, system, memory, found)
        check_algorithms(network, system, collective_use(table, network, groups or {}), found)
        check_splits(table, system, network.npus, network.dimensions, found)
    same = network is not None and network.npus == table.ranks.ranks
    if network is not None and same and table.ranks.folded and table.ranks.shape != network.npus_count:
        clash = f"the network has dimensions {list(network.npus_count)}, ranks.json shape {list(table.ranks.shape)}"
        found.error("E-WORLD-SHAPE", clash, "classes hold for one network shape; render and trace the same plan")
        same = False
    replay = system is not None and system.replay_only
    if complete and network is not None and same and groups is not None and not replay:
        _check_across(table, network, groups, found)


def _check_across(table: NodeTable, network: NetworkFile, groups: Groups, found: Findings) -> None:
    messages = Messages.build(table)
    check_messages(messages, found)
    sequences = Sequences(table, network.npus_count, groups)
    ordered = check_sequences(sequences, found)
    if ordered and not found.has_errors:
        check_hangs(messages, sequences, found)
