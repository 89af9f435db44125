"""Reading and writing Chakra execution traces (``.et``) as columns.

File format: varint-length-delimited messages, a GlobalMetadata and then Nodes, plain or gzip-compressed. protobuf
parses and validates every byte; each distinct attribute block is decoded once. A file whose nodes have their fields in
ascending order, as protobuf writes them, is written back byte for byte (gzip is written plain).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode
from google.protobuf.message import DecodeError

from ..errors import InvalidInput
from ..files import write_atomic
from .attributes import AttributeTable, Row, encode_block
from .columns import INT_COLUMNS, Int64, NodeExtra, Trace
from .wire import (
    ATTR_TAG,
    VARINTS,
    NodeView,
    decode_varints,
    encode_varints,
    parse_frames,
    split_frames,
    varint,
    varint_lengths,
)

SCHEMA_VERSION = "0.0.4"
_BLOCK = 65536  # nodes parsed at once: bounds the memory that parsed messages take


def read_trace(path: Path | str, problems: list[InvalidInput] | None = None) -> Trace:
    """Read one rank's ``.et``.

    With ``problems`` given, attributes that cannot be used are added to it (and left absent in the columns), so that a
    checker can list them all; without, the first is raised.

    Raises:
        InvalidInput: E-TRACE-FILE (missing, a folder, unreadable), E-TRACE-EMPTY, E-TRACE-CUT, E-TRACE-FORMAT (not
            protobuf or not Chakra), E-TRACE-ATTR (an attribute has the wrong type or range), E-TRACE-RANGE.
    """
    return parse_trace(read_bytes(path), path, problems)


def read_traces(paths: Iterable[Path | str]) -> list[Trace]:
    """Read many files; files with equal bytes share one Trace object, which must then not be changed."""
    known: dict[bytes, Trace] = {}
    traces: list[Trace] = []
    for path in paths:
        data = read_bytes(path)
        trace = known.get(data)
        if trace is None:
            trace = known[data] = parse_trace(data, path)
        traces.append(trace)
    return traces


def read_bytes(path: Path | str) -> bytes:
    """The bytes of a trace file, decompressed if it is gzip.

    Raises:
        InvalidInput: E-TRACE-FILE, E-TRACE-EMPTY, E-TRACE-CUT (gzip ends early).
    """
    try:
        data = Path(path).read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except EOFError:
        raise InvalidInput("E-TRACE-CUT", f"{path} is gzip and ends early", "write it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput("E-TRACE-FORMAT", f"{path} is broken gzip ({error})", "write it again") from None
    except OSError as error:
        raise InvalidInput(
            "E-TRACE-FILE", f"cannot read {path}: {error.strerror}", "give the workload's prefix, e.g. DIR/workload"
        ) from None
    if not data:
        raise InvalidInput(
            "E-TRACE-EMPTY", f"{path} has no bytes", "a trace has a GlobalMetadata and at least one node"
        )
    return data


def parse_trace(data: bytes, path: Path | str, problems: list[InvalidInput] | None = None) -> Trace:
    """The bytes of an uncompressed ``.et`` as columns; ``path`` is for messages. See :func:`read_trace`."""
    found: list[InvalidInput] = []
    frames = split_frames(data, path)
    reader = _Reader(path, found)
    try:
        GlobalMetadata.FromString(frames[0])
        for start in range(1, len(frames), _BLOCK):
            reader.add(frames[start : start + _BLOCK])
        trace = reader.finish(frames[0])
    except (DecodeError, ValueError) as error:
        raise InvalidInput(
            "E-TRACE-FORMAT", f"{path} is not a Chakra trace ({error})", "expected GlobalMetadata, then Nodes"
        ) from None
    if problems is not None:
        problems.extend(found)
    elif found:
        raise found[0]
    return trace


class _Reader:
    """Collects parsed nodes of one file as lists; ``finish`` makes the columns."""

    def __init__(self, path: Path | str, problems: list[InvalidInput]) -> None:
        self.path, self.problems = path, problems
        self.table = AttributeTable()
        self.blocks: dict[bytes, int] = {}
        self.rows: list[Row] = []
        self.row_of: list[int] = []
        self.ids: list[int] = []
        self.names: list[str] = []
        self.types: list[int] = []
        self.durations: list[int] = []
        self.data: list[bytes] = []
        self.ctrl: list[bytes] = []
        self.extras: dict[int, NodeExtra] = {}

    def add(self, frames: list[bytes]) -> None:
        """Append the nodes of these messages."""
        message, canonical = parse_frames(frames)
        nodes = list(message.node)
        if not canonical:
            nodes, frames = _canonical(frames)
        first = len(self.ids)
        self.ids += [node.id for node in nodes]
        names = [node.name for node in nodes]
        self.names += names
        self.types += [node.type for node in nodes]
        self.durations += [node.duration_micros for node in nodes]
        self.data += [node.data_deps for node in nodes]
        self.ctrl += [node.ctrl_deps for node in nodes]
        heads = self._head_lengths(first, names)
        blocks, row_of = self.blocks, self.row_of
        for row, (frame, head) in enumerate(zip(frames, heads, strict=True), start=first):
            if len(frame) > head and frame[head] != ATTR_TAG:
                head = self._extra(row, nodes[row - first], frame)
            block = frame[head:]
            index = blocks.get(block)
            if index is None:
                index = self._decode(block, row)
            row_of.append(index)

    def _head_lengths(self, first: int, names: list[str]) -> list[int]:
        """Bytes before the attributes of each node, for nodes without the fields that go to ``extras``."""
        if max(max(self.ids[first:]), max(self.durations[first:])) >= 2**63:
            raise ValueError("a node id or duration is 2^63 or more")
        total = np.zeros(len(names), dtype=np.int64)
        for numbers in (self.ids[first:], self.types[first:], self.durations[first:]):
            values = np.array(numbers, dtype=np.int64)
            # A negative enum number takes the ten bytes of a 64-bit varint.
            total += np.where(values == 0, 0, 1 + np.where(values < 0, 10, varint_lengths(values)))
        sizes = [len(name) if name.isascii() else len(name.encode()) for name in names]
        for lengths in (sizes, map(len, self.ctrl[first:]), map(len, self.data[first:])):
            values = np.fromiter(lengths, dtype=np.int64, count=len(names))
            total += np.where(values == 0, 0, 1 + varint_lengths(values) + values)
        return total.tolist()

    def _extra(self, row: int, node: Any, frame: bytes) -> int:
        """Keep the fields that no simulator reads; returns where the node's attributes start."""
        self.extras[row] = NodeExtra(
            node.start_time_micros,
            node.inputs if node.HasField("inputs") else None,
            node.outputs if node.HasField("outputs") else None,
        )
        copy = NodeView.FromString(frame)
        del copy.attr[:]
        copy.DiscardUnknownFields()
        return len(copy.SerializeToString())

    def _decode(self, block: bytes, row: int) -> int:
        values, problems = self.table.decode(block)
        for problem in problems:
            self.problems.append(
                InvalidInput(
                    "E-TRACE-ATTR",
                    f"{self.path}: node {self.ids[row]} '{self.names[row]}': {problem}",
                    "see the Chakra schema; sizes, ranks and tags are integers, is_cpu_op a bool",
                )
            )
        index = self.blocks[block] = len(self.rows)
        self.rows.append(values)
        return index

    def finish(self, metadata: bytes) -> Trace:
        """The columns."""
        table = np.array(self.rows, dtype=np.int64).reshape(len(self.rows), 12)
        columns = table[np.array(self.row_of, dtype=np.int64)].T
        data_ptr, data_deps = _unpack(self.data)
        ctrl_ptr, ctrl_deps = _unpack(self.ctrl)
        types = np.array(self.types, dtype=np.int64)
        return Trace(
            ids=np.array(self.ids, dtype=np.int64),
            types=np.where((types >= 0) & (types <= 7), types, 0).astype(np.int8),
            names=self.names,
            duration_micros=np.array(self.durations, dtype=np.int64),
            is_cpu_op=columns[0].astype(np.int8),
            **{name: np.ascontiguousarray(columns[1 + i]) for i, name in enumerate(INT_COLUMNS)},
            comm_priority=np.ascontiguousarray(columns[8]),
            pg=columns[9].astype(np.int32),
            pg_names=list(self.table.pgs),
            involved=columns[10].astype(np.int32),
            involved_sets=list(self.table.involved),
            data_ptr=data_ptr,
            data_deps=data_deps,
            ctrl_ptr=ctrl_ptr,
            ctrl_deps=ctrl_deps,
            form=columns[11].astype(np.int32),
            forms=list(self.table.forms),
            extras=self.extras,
            metadata=None if metadata == default_metadata() else metadata,
        )


def _canonical(frames: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """Nodes whose fields are unordered or unpacked, through the full schema into canonical bytes."""
    frames = [ChakraNode.FromString(frame).SerializeToString(deterministic=True) for frame in frames]
    message, canonical = parse_frames(frames)
    if not canonical:
        raise ValueError("nodes have fields that the Chakra schema does not know")
    return list(message.node), frames


def _unpack(packed: list[bytes]) -> tuple[Int64, Int64]:
    """Packed varints of each node as (pointers, ids)."""
    values, ends = decode_varints(b"".join(packed))
    pointers = np.zeros(len(packed) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, packed), dtype=np.int64, count=len(packed)), out=pointers[1:])
    return np.searchsorted(ends, pointers, side="right"), values


def default_metadata() -> bytes:
    """The GlobalMetadata that this package writes."""
    return GlobalMetadata(version=SCHEMA_VERSION).SerializeToString()


def write_trace(path: Path | str, trace: Trace) -> None:
    """Write a trace atomically. A trace that was read is written with the same bytes.

    Raises:
        InvalidInput: E-WRITE when the file cannot be written.
    """
    write_atomic(path, serialize_trace(trace))


def serialize_trace(trace: Trace) -> bytes:
    """The bytes of an ``.et`` file."""
    metadata = default_metadata() if trace.metadata is None else trace.metadata
    view, out = NodeView(), [varint(len(metadata)), metadata]
    blocks = _attribute_blocks(trace)
    data, ctrl = _pack(trace.data_ptr, trace.data_deps), _pack(trace.ctrl_ptr, trace.ctrl_deps)
    columns = zip(
        trace.ids.tolist(), trace.names, trace.types.tolist(), trace.duration_micros.tolist(), data, ctrl, blocks,
        strict=True,
    )  # fmt: skip
    for row, (node, name, kind, duration, data_deps, ctrl_deps, block) in enumerate(columns):
        view.id = node
        view.name = name
        view.type = kind
        view.duration_micros = duration
        view.data_deps = data_deps
        view.ctrl_deps = ctrl_deps
        head = _with_extra(view, trace.extras[row]) if row in trace.extras else view.SerializeToString()
        size = len(head) + len(block)
        out += (VARINTS[size] if size < 4096 else varint(size), head, block)
    return b"".join(out)


def _with_extra(view: Any, extra: NodeExtra) -> bytes:
    copy = type(view)()
    copy.CopyFrom(view)
    copy.start_time_micros = extra.start_time_micros
    if extra.inputs is not None:
        copy.inputs = extra.inputs
    if extra.outputs is not None:
        copy.outputs = extra.outputs
    return copy.SerializeToString()


def _pack(pointers: Int64, nodes: Int64) -> list[bytes]:
    """Each row's dependencies as packed varints."""
    if not len(nodes):
        return [b""] * (len(pointers) - 1)
    data, offsets = encode_varints(nodes)
    cuts = offsets[pointers].tolist()
    return [data[start:end] for start, end in pairwise(cuts)]


def _attribute_blocks(trace: Trace) -> list[bytes]:
    """Each row's serialized attributes; rows with equal values share one block."""
    columns = [trace.is_cpu_op, *(getattr(trace, name) for name in INT_COLUMNS), trace.comm_priority, trace.pg]
    rows = zip(*(column.tolist() for column in (*columns, trace.involved, trace.form)), strict=True)
    known: dict[Row, bytes] = {}
    blocks: list[bytes] = []
    for row in rows:
        block = known.get(row)
        if block is None:
            block = known[row] = encode_block(row, trace.forms[row[11]], trace.pg_names, trace.involved_sets)
        blocks.append(block)
    return blocks
