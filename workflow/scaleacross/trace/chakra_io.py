"""Reading and writing Chakra execution traces (``.et``) as columns.

File format: varint-length-delimited messages, a GlobalMetadata and then Nodes, plain or gzip-compressed. protobuf
parses and validates every byte; each distinct attribute block is decoded once. A file whose nodes have their fields in
ascending order, as protobuf writes them, is written back byte for byte (gzip is written plain).
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode
from google.protobuf.message import DecodeError

from ..errors import InvalidInput
from ..files import write_atomic
from .attributes import ABSENT_ROW, AttributeReader, AttributeWriter, Row
from .columns import INT_COLUMNS, AttributeForm, Int32, Int64, NodeExtra, Trace
from .wire import (
    VARINTS,
    Frames,
    NodeView,
    check_frames,
    cut_varints,
    decode_heads,
    encode_varints,
    split_frames,
    varint,
)

SCHEMA_VERSION = "0.0.4"
_BLOCK = 65536  # nodes parsed at once: bounds the memory that parsed messages take
_BATCH = 32 << 20  # bytes of small files decoded together

Traces = list[Trace | None]
T = TypeVar("T")


def read_trace(path: Path | str) -> Trace:
    """Read one rank's ``.et``.

    Raises:
        InvalidInput: E-TRACE-FILE (missing, a folder, unreadable), E-TRACE-EMPTY, E-TRACE-CUT, E-TRACE-FORMAT (not
            protobuf or not Chakra), E-TRACE-ATTR (an attribute has the wrong type or range).
    """
    return parse_trace(read_bytes(path), path)


def read_traces(paths: Iterable[Path | str]) -> list[Trace]:
    """Read many files, small ones together.

    Files with equal bytes share one Trace object, and all may share ``forms`` and memory: treat them as read-only.

    Raises:
        InvalidInput: as :func:`read_trace`, for the first file with a problem.
    """
    traces, problems = inspect_traces(paths)
    if problems:
        raise problems[0]
    return [trace for trace in traces if trace is not None]


def inspect_traces(paths: Iterable[Path | str]) -> tuple[Traces, list[InvalidInput]]:
    """Read many files as :func:`read_traces` does: the traces (None for a file that cannot be read), every problem.

    An attribute that cannot be used is a problem and is absent from the columns.
    """
    problems: list[InvalidInput] = []
    positions: dict[bytes, list[int]] = {}
    names: list[Path | str] = []
    for position, path in enumerate(paths):
        names.append(path)
        try:
            positions.setdefault(read_bytes(path), []).append(position)
        except InvalidInput as error:
            problems.append(error)
    traces: Traces = [None] * len(names)
    batch: list[tuple[bytes, Path | str]] = []
    targets: list[list[int]] = []
    size = 0
    for count, (data, users) in enumerate(positions.items(), start=1):
        batch.append((data, names[users[0]]))
        targets.append(users)
        size += len(data)
        if count == len(positions) or size > _BATCH:
            for trace, rows in zip(_parse_batch(batch, problems), targets, strict=True):
                for row in rows:
                    traces[row] = trace
            batch, targets, size = [], [], 0
    return traces, problems


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


def parse_trace(data: bytes, path: Path | str = "trace") -> Trace:
    """The bytes of an uncompressed ``.et`` as columns; ``path`` is for messages. See :func:`read_trace`."""
    problems: list[InvalidInput] = []
    traces = _parse_batch([(data, path)], problems)
    if problems or traces[0] is None:
        raise problems[0]
    return traces[0]


def _parse_batch(files: list[tuple[bytes, Path | str]], problems: list[InvalidInput]) -> Traces:
    """Decode files together; when one of them is broken, each by itself."""
    reader = _Reader()
    try:
        reader.add(files)
        traces: Traces = list(reader.finish())
        problems.extend(reader.problems)
        return traces
    except InvalidInput as error:
        if len(files) > 1:
            return [_parse_batch([file], problems)[0] for file in files]
        problems.append(error)
    except (DecodeError, ValueError, IndexError) as error:
        if len(files) > 1:
            return [_parse_batch([file], problems)[0] for file in files]
        fix = "expected GlobalMetadata, then Nodes"
        problems.append(InvalidInput("E-TRACE-FORMAT", f"{files[0][1]} is not a Chakra trace ({error})", fix))
    return [None]


class _Reader:
    """Decodes files together; ``finish`` makes the columns of each."""

    def __init__(self) -> None:
        self.problems: list[InvalidInput] = []
        self.paths: list[Path | str] = []
        self.metadata: list[bytes] = []
        self.starts: list[int] = [0]
        self.attributes = AttributeReader()
        self.rows = array("q")
        self.row_of: list[int] = []
        self.names: list[str] = []
        self.extras: dict[int, NodeExtra] = {}

    def add(self, files: list[tuple[bytes, Path | str]]) -> None:
        """Decode the nodes of these files.

        Raises:
            InvalidInput, DecodeError, ValueError, IndexError: one of the files is broken.
        """
        regions: list[bytes] = []
        starts: list[Int64] = []
        ends: list[Int64] = []
        offset = 0
        for data, path in files:
            frames = split_frames(data, path)
            self.paths.append(path)
            self.metadata.append(data[frames.starts[0] : frames.ends[0]])
            GlobalMetadata.FromString(self.metadata[-1])
            nodes = frames.parts[1:]
            if not all(check_frames(nodes[i : i + _BLOCK]) for i in range(0, len(nodes), _BLOCK)):
                frames = split_frames(_canonical(frames), path)
            begin = frames.ends[0]
            starts.append(np.array(frames.starts[1:], dtype=np.int64) + (offset - begin))
            ends.append(np.array(frames.ends[1:], dtype=np.int64) + (offset - begin))
            regions.append(frames.data[begin:])
            offset += len(regions[-1])
            self.starts.append(self.starts[-1] + len(nodes))
        data = b"".join(regions)
        raw = np.frombuffer(data + bytes(16), dtype=np.uint8)
        self.heads = decode_heads(raw, np.concatenate(starts), np.concatenate(ends))
        self.data_ptr, self.data_deps = cut_varints(raw, *self.heads.texts["data_deps"])
        self.ctrl_ptr, self.ctrl_deps = cut_varints(raw, *self.heads.texts["ctrl_deps"])
        self._check_range()
        self._read_names(data)
        self._keep_extras(data)
        self._read_attributes(data, np.concatenate(ends).tolist())

    def _read_names(self, data: bytes) -> None:
        known: dict[bytes, str] = {b"": ""}
        append = self.names.append
        for begin, end in zip(*(offsets.tolist() for offsets in self.heads.texts["name"]), strict=True):
            encoded = data[begin:end] if begin >= 0 else b""
            name = known.get(encoded)
            if name is None:
                name = known[encoded] = encoded.decode()
            append(name)

    def _read_attributes(self, data: bytes, ends: list[int]) -> None:
        blocks: dict[bytes, int] = {}
        append = self.row_of.append
        for begin, end in zip(self.heads.end.tolist(), ends, strict=True):
            block = data[begin:end]
            index = blocks.get(block)
            if index is None:
                index = blocks[block] = self._decode(block)
            append(index)

    def _decode(self, block: bytes) -> int:
        """Decode a block seen for the first time; returns its number."""
        values, problems = self.attributes.decode(block)
        row = len(self.row_of)
        for problem in problems:
            path = self.paths[bisect_right(self.starts, row) - 1]
            clash = f"{path}: node {self.heads.numbers['id'][row]} '{self.names[row]}': {problem}"
            fix = "sizes, ranks and tags are whole numbers of at least 0, is_cpu_op is a bool, pg_name a text"
            self.problems.append(InvalidInput("E-TRACE-ATTR", clash, fix))
        self.rows.fromlist(values)
        return len(self.rows) // len(ABSENT_ROW) - 1

    def _check_range(self) -> None:
        for name in ("id", "duration_micros"):
            if self.heads.numbers[name].min(initial=0) < 0:
                raise ValueError(f"a node's {name} is 2^63 or more")
        if min(self.data_deps.min(initial=0), self.ctrl_deps.min(initial=0)) < 0:
            raise ValueError("a dependency is 2^63 or more")

    def _keep_extras(self, data: bytes) -> None:
        """Keep the fields that no simulator reads."""
        start_times = self.heads.numbers["start_time_micros"]
        texts = (self.heads.texts["inputs"], self.heads.texts["outputs"])
        present = (start_times != 0) | (texts[0][0] >= 0) | (texts[1][0] >= 0)
        for row in np.flatnonzero(present).tolist():
            inputs, outputs = (data[begin[row] : end[row]] if begin[row] >= 0 else None for begin, end in texts)
            self.extras[row] = NodeExtra(int(start_times[row]) % 2**64, inputs, outputs)

    def finish(self) -> list[Trace]:
        """The columns of each file."""
        table = np.array(self.rows, dtype=np.int64).reshape(-1, len(ABSENT_ROW))
        columns = np.ascontiguousarray(table.T)[:, np.array(self.row_of, dtype=np.int64)]
        types = self.heads.numbers["type"]
        arrays = {
            "ids": self.heads.numbers["id"],
            "types": np.where((types >= 0) & (types <= 7), types, 0).astype(np.int8),
            "duration_micros": self.heads.numbers["duration_micros"],
            "is_cpu_op": columns[0].astype(np.int8),
            **{name: columns[1 + i] for i, name in enumerate(INT_COLUMNS)},
            "comm_priority": columns[8],
            "pg": columns[9].astype(np.int32),
            "involved": columns[10].astype(np.int32),
            "form": columns[11].astype(np.int32),
        }
        forms = list(self.attributes.forms)
        return [self._trace(file, arrays, forms) for file in range(len(self.paths))]

    def _trace(self, file: int, arrays: dict[str, Any], forms: list[AttributeForm | None]) -> Trace:
        start, end = self.starts[file : file + 2]
        columns = {name: column[start:end] for name, column in arrays.items()}
        columns["pg"], pg_names = _used(columns["pg"], list(self.attributes.pgs))
        columns["involved"], involved_sets = _used(columns["involved"], list(self.attributes.involved))
        data, ctrl = self.data_ptr[start : end + 1], self.ctrl_ptr[start : end + 1]
        metadata = self.metadata[file]
        return Trace(
            names=self.names[start:end],
            **columns,
            pg_names=pg_names,
            involved_sets=involved_sets,
            forms=forms,
            data_ptr=data - data[0],
            data_deps=self.data_deps[data[0] : data[-1]],
            ctrl_ptr=ctrl - ctrl[0],
            ctrl_deps=self.ctrl_deps[ctrl[0] : ctrl[-1]],
            extras={row - start: extra for row, extra in self.extras.items() if start <= row < end},
            metadata=None if metadata == default_metadata() else metadata,
        )


def _used(index: Int32, values: list[T]) -> tuple[Int32, list[T]]:
    """Renumber so that only the values that one file uses are left, in their order; 0 stays 0."""
    used = np.zeros(len(values), dtype=np.int32)
    used[index] = 1
    used[0] = 1
    if used.all():
        return index, values
    return (np.cumsum(used, dtype=np.int32) - 1)[index], [
        value for value, here in zip(values, used, strict=True) if here
    ]


def _canonical(frames: Frames) -> bytes:
    """The file with nodes as the Chakra schema writes them: fields ascending, packed, unknown ones dropped."""
    parts = [frames.parts[0]]
    for start, end in zip(frames.starts[1:], frames.ends[1:], strict=True):
        node = ChakraNode.FromString(frames.data[start:end])
        node.DiscardUnknownFields()
        message = node.SerializeToString()
        parts.append(varint(len(message)) + message)
    return b"".join(parts)


@cache
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
    encode = AttributeWriter(trace.pg_names, trace.involved_sets, trace.forms).encode
    known: dict[Row, bytes] = {}
    parts = [header(trace)]
    for head, row in zip(node_heads(trace), attribute_rows(trace), strict=True):
        block = known.get(row)
        if block is None:
            block = known[row] = encode(row)
        size = len(head) + len(block)
        parts += (VARINTS[size] if size < len(VARINTS) else varint(size), head, block)
    return b"".join(parts)


def header(trace: Trace) -> bytes:
    """The GlobalMetadata message with its length."""
    metadata = default_metadata() if trace.metadata is None else trace.metadata
    return varint(len(metadata)) + metadata


def frame(head: bytes, block: bytes) -> bytes:
    """One node's message with its length."""
    size = len(head) + len(block)
    return (VARINTS[size] if size < len(VARINTS) else varint(size)) + head + block


def node_heads(trace: Trace) -> list[bytes]:
    """Each node serialized without its attributes, which come last in a message."""
    view, extras = NodeView(), trace.extras
    heads: list[bytes] = []
    data, ctrl = _pack(trace.data_ptr, trace.data_deps), _pack(trace.ctrl_ptr, trace.ctrl_deps)
    columns = (trace.ids.tolist(), trace.names, trace.types.tolist(), trace.duration_micros.tolist(), data, ctrl)
    for row, (node, name, kind, duration, data_deps, ctrl_deps) in enumerate(zip(*columns, strict=True)):
        view.id = node
        view.name = name
        view.type = kind
        view.duration_micros = duration
        view.data_deps = data_deps
        view.ctrl_deps = ctrl_deps
        heads.append(_with_extra(view, extras[row]) if row in extras else view.SerializeToString())
    return heads


def attribute_rows(trace: Trace) -> list[Row]:
    """Each node's attribute values and form, as :class:`AttributeWriter` takes them."""
    columns = [trace.is_cpu_op, *(getattr(trace, name) for name in INT_COLUMNS), trace.comm_priority, trace.pg]
    return list(zip(*(column.tolist() for column in (*columns, trace.involved, trace.form)), strict=True))


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
