"""A folded workload as one file a rank, for simulators that know nothing of ``ranks.json``.

A class's nodes are serialized once; for each member only nodes with peers or communicator groups are encoded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from .attributes import COMM_DST, COMM_SRC, PG, AttributeWriter, Row
from .chakra_io import attribute_rows, frame, header, node_heads
from .columns import RECV, SEND, Trace
from .ranks import RankMap, ranges
from .workload import Workload, open_workload

Groups = Mapping[int, Sequence[int]]


def expand(folder: Path | str, out_folder: Path | str, groups: Groups | None = None, prefix: str = "workload") -> int:
    """Write every rank's ``<prefix>.<rank>.et`` of the folded workload in ``folder`` to ``out_folder``.

    Args:
        groups: communicator id -> ranks; needed where the traces name communicator groups.

    Returns:
        The number of files written. Each appears whole or not at all.

    Raises:
        InvalidInput: as ``open_workload``; E-EXPAND-FOLDED (no ranks.json), E-EXPAND-GROUP (an id that has no image for
            a member), E-EXPAND-STALE (files of other ranks are there), E-WRITE.
    """
    workload = open_workload(Path(folder) / prefix)
    if not workload.folded:
        raise InvalidInput("E-EXPAND-FOLDED", f"{folder} has no ranks.json", "it has every rank's file already")
    out = Path(out_folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _refuse_stale(out, prefix, workload.ranks.ranks)
        for index, trace in enumerate(workload.traces):
            if trace is not None:
                _write_class(out, prefix, workload, index, trace, groups or {})
    except OSError as error:
        clash = f"cannot write {error.filename or out}: {error.strerror}"
        raise InvalidInput("E-WRITE", clash, "choose a writable folder") from error
    return workload.ranks.ranks


def _refuse_stale(out: Path, prefix: str, ranks: int) -> None:
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.et")
    stale = sorted(int(match[1]) for entry in out.iterdir() if (match := pattern.fullmatch(entry.name)))
    stale = [rank for rank in stale if rank >= ranks]
    if stale:
        clash = f"{out} has traces of rank {ranges(stale)}, but the workload has {ranks} ranks"
        raise InvalidInput("E-EXPAND-STALE", clash, "choose an empty folder")


def _write_class(out: Path, prefix: str, workload: Workload, index: int, trace: Trace, groups: Groups) -> None:
    for rank, data in expand_class(workload.ranks, index, trace, groups):
        path = out / f"{prefix}.{rank}.et"
        temporary = out / f".{prefix}.{rank}.et.part"
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def expand_class(ranks: RankMap, index: int, trace: Trace, groups: Groups) -> Iterator[tuple[int, bytes]]:
    """Yield the file of each member of a class: (rank, bytes of its ``.et``).

    Raises:
        InvalidInput: E-EXPAND-GROUP.
    """
    members = ranks.members(index)
    heads, rows = node_heads(trace), attribute_rows(trace)
    names, ids = _group_ids(ranks, index, trace, members, groups)
    writer = AttributeWriter(names, trace.involved_sets, trace.forms)
    varying = np.flatnonzero((trace.comm_src >= 0) | (trace.comm_dst >= 0) | (trace.pg > 0))
    own = ranks.classes[index].representative
    sources = _peers(ranks, index, members, trace.comm_src[varying], trace.types[varying] == SEND, own)
    targets = _peers(ranks, index, members, trace.comm_dst[varying], trace.types[varying] == RECV, own)
    fixed = _fixed_runs(header(trace), heads, rows, writer, varying.tolist())
    for place, rank in enumerate(members.tolist()):
        parts = [fixed[0]]
        known: dict[Row, bytes] = {}
        columns = zip(varying.tolist(), sources[place].tolist(), targets[place].tolist(), fixed[1:], strict=True)
        for row, source, target, rest in columns:
            values = list(rows[row])
            values[COMM_SRC], values[COMM_DST], values[PG] = source, target, ids[values[PG]][place]
            key = tuple(values)
            block = known.get(key)
            if block is None:
                block = known[key] = writer.encode(key)
            parts.append(frame(heads[row], block))
            parts.append(rest)
        yield rank, b"".join(parts)


def _peers(
    ranks: RankMap, index: int, members: NDArray[np.int64], peers: NDArray[np.int64], own: NDArray[np.bool_], rank: int
) -> NDArray[np.int64]:
    """The representative's ``peers`` for each member, int64[members, n]: absent ones stay -1, ``own`` is the member."""
    moved = ranks.translate(index, members[:, None], np.maximum(peers, 0)[None, :])
    moved = np.where(peers < 0, peers, moved)
    return np.where(own & (peers == rank), members[:, None], moved)


def _group_ids(
    ranks: RankMap, index: int, trace: Trace, members: NDArray[np.int64], groups: Groups
) -> tuple[list[str], list[list[int]]]:
    """Communicator names that members use, and for each pg index of the trace the index of every member's name."""
    names: dict[str, int] = {"": 0}
    ids: list[list[int]] = []
    for name in trace.pg_names:
        if name in ("", "0") or not name.isdecimal() or int(name) not in ranks.family_of:
            ids.append([names.setdefault(name, len(names))] * len(members))
            continue
        family = ranks.group_families[ranks.family_of[int(name)]]
        if missing := [group for group in family if group not in groups]:
            clash = f"communicator group {ranges(missing)} of class {index} is in no groups file"
            raise InvalidInput("E-EXPAND-GROUP", clash, "give comm_groups.json with --comm-group-configuration")
        images = ranks.group_of(int(name), groups)[members]
        if (images < 0).any():
            clash = f"rank {ranges(members[images < 0])} of class {index} is in no group of the family of group {name}"
            raise InvalidInput("E-EXPAND-GROUP", clash, "complete comm_groups.json or group_families in ranks.json")
        ids.append([names.setdefault(str(image), len(names)) for image in images.tolist()])
    return list(names), ids


def _fixed_runs(
    start: bytes, heads: list[bytes], rows: list[Row], writer: AttributeWriter, varying: list[int]
) -> list[bytes]:
    """The bytes before the first varying node, between each two, and after the last."""
    known: dict[Row, bytes] = {}
    runs: list[bytes] = []
    parts = [start]
    marks = set(varying)
    for row, values in enumerate(rows):
        if row in marks:
            runs.append(b"".join(parts))
            parts = []
            continue
        block = known.get(values)
        if block is None:
            block = known[values] = writer.encode(values)
        parts.append(frame(heads[row], block))
    runs.append(b"".join(parts))
    return runs
