"""Sends and receives across ranks: each send has its receive, with the same tag and size.

Work is done per channel (source rank, destination rank) on sorted arrays; what a class sends to one peer is compared
once, however many ranks the class has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..trace.columns import RECV, SEND
from .findings import WARNING, Findings
from .table import NodeTable
from .traces import TAG_SPACE

Int64 = NDArray[np.int64]
_SHOWN = 20


@dataclass(frozen=True)
class Messages:
    """Sends and receives by segment: what one trace sends to, or receives from, one peer of its representative.

    Attributes:
        table: the nodes.
        rows: rows of sends and receives, by segment, then tag, size and order in the file.
        start: int64[segments + 1] into ``rows``.
    """

    table: NodeTable
    rows: Int64
    start: Int64

    @staticmethod
    def build(table: NodeTable) -> Messages:
        """The usable sends and receives: peer, tag and size are there."""
        pair = (table.types == SEND) | (table.types == RECV)
        peer = np.where(table.types == SEND, table.comm_dst, table.comm_src)
        good = pair & (peer >= 0) & (peer < table.ranks.ranks) & (table.comm_tag >= 0) & (table.comm_size >= 0)
        rows = np.flatnonzero(good)
        tags, sizes = table.comm_tag[rows] % TAG_SPACE, table.comm_size[rows]
        order = np.lexsort((rows, sizes, tags, peer[rows], table.types[rows], table.owner[rows]))
        rows = rows[order]
        keys = np.stack([table.owner[rows], table.types[rows], peer[rows]], axis=1)
        cuts = np.flatnonzero((np.diff(keys, axis=0) != 0).any(axis=1)) + 1
        start = np.concatenate([[0], cuts, [len(rows)]]) if len(rows) else np.zeros(1, dtype=np.int64)
        return Messages(table, rows, start.astype(np.int64))

    @cached_property
    def first(self) -> Int64:
        """The first row of each segment."""
        return self.rows[self.start[:-1]]

    @cached_property
    def sends(self) -> NDArray[np.bool_]:
        """Which segments are sends."""
        return self.table.types[self.first] == SEND

    @cached_property
    def content(self) -> Int64:
        """Equal for segments with the same tags and sizes."""
        known: dict[bytes, int] = {}
        pairs = np.stack([self.table.comm_tag[self.rows] % TAG_SPACE, self.table.comm_size[self.rows]], axis=1)
        cuts = self.start.tolist()
        keys = (pairs[begin:end].tobytes() for begin, end in pairwise(cuts))
        return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)

    def segment(self, index: int) -> Int64:
        """Rows of a segment, by tag and size."""
        return self.rows[self.start[index] : self.start[index + 1]]

    def unique(self, index: int) -> NDArray[np.bool_]:
        """Which rows of a segment have a tag and size that no other row of it has."""
        rows = self.segment(index)
        changes = np.ones(len(rows) + 1, dtype=bool)
        changes[1:-1] = (np.diff(self.table.comm_tag[rows] % TAG_SPACE) != 0) | (
            np.diff(self.table.comm_size[rows]) != 0
        )
        return changes[1:] & changes[:-1]

    @cached_property
    def channels(self) -> tuple[Int64, Int64, Int64]:
        """Each segment for each rank that runs it: (source x ranks + destination, segment, class)."""
        table, ranks = self.table, self.table.ranks
        keys, segments, classes = [], [], []
        for index, row in enumerate(self.first.tolist()):
            send = self.sends[index]
            peer = int(table.comm_dst[row] if send else table.comm_src[row])
            for user in table.users[int(table.owner[row])]:
                members = ranks.members(user)
                peers = ranks.translate(user, members, peer)
                source, target = (members, peers) if send else (peers, members)
                keys.append(source * ranks.ranks + target)
                segments.append(np.full(len(members), index))
                classes.append(np.full(len(members), user))
        if not keys:
            empty = np.zeros(0, dtype=np.int64)
            return empty, empty, empty
        return np.concatenate(keys), np.concatenate(segments), np.concatenate(classes)

    @cached_property
    def pairs(self) -> tuple[Int64, Int64]:
        """Indices into ``channels`` of sends and receives of one source and destination; -1 where one is missing."""
        keys, segments, _ = self.channels
        sends = np.flatnonzero(self.sends[segments]) if len(keys) else keys
        receives = np.flatnonzero(~self.sends[segments]) if len(keys) else keys
        values = np.unique(keys)
        send_at, receive_at = np.full(len(values), -1), np.full(len(values), -1)
        send_at[np.searchsorted(values, keys[sends])] = sends
        receive_at[np.searchsorted(values, keys[receives])] = receives
        return send_at, receive_at


def check_messages(messages: Messages, found: Findings) -> None:
    """Every send has its receive and every receive its send, with equal tag and size, between the right ranks."""
    table = messages.table
    if not len(messages.rows):
        return
    _check_repeated(messages, found)
    _check_self(messages, found)
    keys, segments, _ = messages.channels
    send_at, receive_at = messages.pairs
    send_segment = np.where(send_at >= 0, segments[send_at], -1)
    receive_segment = np.where(receive_at >= 0, segments[receive_at], -1)
    content = np.append(messages.content, -1)
    bad = np.flatnonzero(content[send_segment] != content[receive_segment])
    if not len(bad):
        return
    combos = send_segment[bad] * len(messages.start) + receive_segment[bad]
    _, firsts, counts = np.unique(combos, return_index=True, return_counts=True)
    for first, count in sorted(zip(firsts.tolist(), counts.tolist(), strict=True))[:_SHOWN]:
        place = bad[first]
        channel = int(keys[max(send_at[place], receive_at[place])])
        source, target = divmod(channel, table.ranks.ranks)
        more = f" (and {count - 1} more pairs of ranks alike)" if count > 1 else ""
        _explain(messages, int(send_segment[place]), int(receive_segment[place]), (source, target), more, found)
    if len(firsts) > _SHOWN:
        clash = f"{len(firsts) - _SHOWN} more pairs of ranks whose sends and receives do not match"
        found.error("E-P2P-MORE", clash, "mend the ones above first")


def _check_self(messages: Messages, found: Findings) -> None:
    """Ranks other than the first of their class that talk to themselves; the first ones are reported before."""
    table = messages.table
    keys, segments, classes = messages.channels
    sources, targets = np.divmod(keys, table.ranks.ranks)
    first = np.array([table.ranks.classes[users[0]].representative for users in table.users])
    bad = (sources == targets) & (sources != first[table.owner[messages.first[segments]]])
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        row = int(messages.first[segments[place]])
        name = f"rank {int(sources[place])} (class {int(classes[place])}) node {_node(table, row)}"
        clash = f"{name} sends to or receives from itself ({int(bad.sum())} ranks in all)"
        found.error("E-PEER-SELF", clash, "leave it out")


def _check_repeated(messages: Messages, found: Findings) -> None:
    table, rows = messages.table, messages.rows
    same = np.ones(len(rows), dtype=bool)
    same[messages.start[:-1]] = False
    for column in (table.comm_tag % TAG_SPACE, table.comm_size):
        same[1:] &= np.diff(column[rows]) == 0
    bad = np.zeros(len(table), dtype=bool)
    bad[rows[same]] = True
    clash = "the same peer, tag and size as another node: matched in the order of issue"
    fix = "give each direction, chunk and micro-batch its own tag"
    found.nodes(WARNING, "W-TAG-REPEATED", table, bad, clash, fix, lambda row: f"tag {int(table.comm_tag[row])}")


def _explain(messages: Messages, send: int, receive: int, channel: tuple[int, int], more: str, found: Findings) -> None:
    """The first send or receive of one channel that has no partner."""
    table, (source, target) = messages.table, channel
    left = [_Left.of(messages, segment) for segment in (send, receive)]
    both = left[0].counts & left[1].counts
    sends, receives = (side.without(both) for side in left)
    for row in sends:
        tag, size = _tag(table, row), int(table.comm_size[row])
        mine = f"rank {source} node {_node(table, row)} sends {size} bytes with tag {tag} to rank {target}"
        partner = next((other for other in receives if _tag(table, other) == tag), None)
        if partner is not None:
            other = int(table.comm_size[partner])
            clash = f"{mine}, whose node {_node(table, partner)} receives {other} bytes with that tag{more}"
            found.error("E-P2P-SIZE", clash, "both never match and the receive waits forever; write equal sizes")
            return
    if sends and receives:
        row, partner = sends[0], receives[0]
        clash = (
            f"rank {source} node {_node(table, row)} sends {int(table.comm_size[row])} bytes to rank {target} with tag "
            f"{_tag(table, row)}, but its node {_node(table, partner)} waits for {int(table.comm_size[partner])} bytes "
            f"from rank {source} with tag {_tag(table, partner)}{more}"
        )
        found.error("E-P2P-TAG", clash, "write the same tag on both")
    elif sends:
        row = sends[0]
        clash = (
            f"rank {source} node {_node(table, row)} sends {int(table.comm_size[row])} bytes with tag "
            f"{_tag(table, row)} to rank {target}, which has no receive for it{_more(sends)}{more}"
        )
        found.error("E-P2P-RECEIVE", clash, "add the receive or remove the send")
    elif receives:
        row = receives[0]
        clash = (
            f"rank {target} node {_node(table, row)} waits for {int(table.comm_size[row])} bytes with tag "
            f"{_tag(table, row)} from rank {source}, which never sends them{_more(receives)}{more}"
        )
        found.error("E-P2P-SEND", clash, "add the send or remove the receive")


@dataclass(frozen=True)
class _Left:
    """Rows of one segment by (tag, size)."""

    rows: dict[tuple[int, int], list[int]]
    counts: Counter[tuple[int, int]]

    @staticmethod
    def of(messages: Messages, segment: int) -> _Left:
        rows: dict[tuple[int, int], list[int]] = {}
        for row in messages.segment(segment).tolist() if segment >= 0 else []:
            rows.setdefault((_tag(messages.table, row), int(messages.table.comm_size[row])), []).append(row)
        return _Left(rows, Counter({key: len(value) for key, value in rows.items()}))

    def without(self, both: Counter[tuple[int, int]]) -> list[int]:
        """Rows left when partners are taken away."""
        return sorted(row for key, rows in self.rows.items() for row in rows[both[key] :])


def _tag(table: NodeTable, row: int) -> int:
    return int(table.comm_tag[row]) % TAG_SPACE


def _node(table: NodeTable, row: int) -> str:
    return f"{int(table.ids[row])} '{table.name(row)}'"


def _more(rows: list[int]) -> str:
    return f" (nor for {len(rows) - 1} more)" if len(rows) > 1 else ""
