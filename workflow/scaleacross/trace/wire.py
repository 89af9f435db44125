"""The wire side of Chakra traces: a flat view of the Chakra ``Node``, varints as numpy arrays, length-delimited frames.

The view has the field numbers of the Chakra schema itself (read from its descriptors), but leaves dependencies and
attributes serialized, so that a whole block of nodes is parsed by protobuf in one call and decoded as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from ..errors import InvalidInput

Int64 = NDArray[np.int64]

_PACKAGE = "scaleacross.view"
_VIEW_TYPES = {
    "name": FieldDescriptor.TYPE_STRING,
    "type": FieldDescriptor.TYPE_INT32,
    "ctrl_deps": FieldDescriptor.TYPE_BYTES,
    "data_deps": FieldDescriptor.TYPE_BYTES,
    "inputs": FieldDescriptor.TYPE_BYTES,
    "outputs": FieldDescriptor.TYPE_BYTES,
    "attr": FieldDescriptor.TYPE_BYTES,
}


def _view_classes() -> tuple[Any, Any]:
    """The message classes NodeView and NodeViews (``repeated NodeView node = 1``)."""
    label = descriptor_pb2.FieldDescriptorProto.Label
    file = descriptor_pb2.FileDescriptorProto(name="scaleacross/view.proto", package=_PACKAGE, syntax="proto3")
    view = file.message_type.add(name="NodeView")
    for field in ChakraNode.DESCRIPTOR.fields:
        added = view.field.add(
            name=field.name,
            number=field.number,
            type=descriptor_pb2.FieldDescriptorProto.Type.ValueType(
                _VIEW_TYPES.get(field.name, FieldDescriptor.TYPE_UINT64)
            ),
            label=label.LABEL_REPEATED if field.name == "attr" else label.LABEL_OPTIONAL,
        )
        if field.name in ("inputs", "outputs"):  # an empty message is not an absent one
            added.proto3_optional = True
            added.oneof_index = len(view.oneof_decl)
            view.oneof_decl.add(name=f"_{field.name}")
    frames = file.message_type.add(name="NodeViews")
    frames.field.add(
        name="node",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.NodeView",
        label=label.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.NodeView")),
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.NodeViews")),
    )


NodeView, NodeViews = _view_classes()
_FRAME_TAG = b"\x0a"
_HEAD_FIELDS = {
    field.name: (field.number, _VIEW_TYPES.get(field.name) in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES))
    for field in sorted(ChakraNode.DESCRIPTOR.fields, key=lambda field: field.number)
    if field.name != "attr"
}


def varint(value: int) -> bytes:
    """One unsigned integer as a protobuf varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = [varint(value) for value in range(4096)]


def varint_lengths(values: Int64) -> Int64:
    """Bytes each non-negative value takes as a varint."""
    lengths = np.ones(len(values), dtype=np.int64)
    for bits in range(7, 63, 7):
        longer = values >> bits > 0
        if not longer.any():
            break
        lengths += longer
    return lengths


def encode_varints(values: Int64) -> tuple[bytes, Int64]:
    """Non-negative values as consecutive varints, and the offsets int64[n + 1] of each."""
    lengths = varint_lengths(values)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.zeros(int(offsets[-1]), dtype=np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > byte)
        more = np.where(lengths[rows] > byte + 1, 128, 0)
        out[offsets[rows] + byte] = (values[rows] >> 7 * byte) & 127 | more
    return out.tobytes(), offsets


@dataclass(frozen=True, slots=True)
class Frames:
    """The messages of a varint-length-delimited file: ``data[starts[i]:ends[i]]``, and ``parts[i]`` with its length."""

    data: bytes
    parts: list[bytes]
    starts: list[int]
    ends: list[int]


def split_frames(data: bytes, path: object) -> Frames:
    """Find the messages of a file.

    Raises:
        InvalidInput: E-TRACE-CUT when the file ends inside a message.
    """
    parts: list[bytes] = []
    starts: list[int] = []
    ends: list[int] = []
    position, end = 0, len(data)
    try:
        while position < end:
            begin = position
            size = data[position]
            position += 1
            if size > 127:
                size &= 127
                shift = 7
                while True:
                    byte = data[position]
                    position += 1
                    size |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
                    if shift > 63:  # no length has so many bytes; without this, garbage takes quadratic time
                        raise IndexError
            starts.append(position)
            position += size
            ends.append(position)
            parts.append(data[begin:position])
    except IndexError:
        position = end + 1
    if position > end:
        raise InvalidInput(
            "E-TRACE-CUT",
            f"{path} ends inside message {max(len(ends) - 1, 0)}, after {end} bytes",
            "the file was cut short or is not a Chakra trace; write it again",
        )
    return Frames(data, parts, starts, ends)


def check_frames(parts: list[bytes]) -> bool:
    """Parse messages (each with its length in front) as nodes in one call.

    Returns:
        True when protobuf writes exactly the same bytes again: fields in ascending order, packed, none unknown. Only
        then may :func:`decode_heads` be used on them.

    Raises:
        google.protobuf.message.DecodeError: not protobuf, or a name that is not UTF-8.
    """
    data = _FRAME_TAG + _FRAME_TAG.join(parts)
    message = NodeViews.FromString(data)
    message.DiscardUnknownFields()
    return bool(message.SerializeToString() == data)


@dataclass(frozen=True, slots=True)
class Heads:
    """What stands before the attributes of n nodes. Offsets are into the file's bytes.

    Attributes:
        numbers: field name -> int64[n] for id, type, start_time_micros, duration_micros (0 when absent).
        texts: field name -> (start int64[n], end int64[n]) for name, ctrl_deps, data_deps, inputs, outputs; -1 is the
            start of an absent field.
        end: int64[n], where the attributes start.
    """

    numbers: dict[str, Int64]
    texts: dict[str, tuple[Int64, Int64]]
    end: Int64


def decode_heads(raw: NDArray[np.uint8], starts: Int64, ends: Int64) -> Heads:
    """Decode the fields before the attributes, for nodes that passed :func:`check_frames`.

    ``raw`` is the file's bytes followed by at least 11 zero bytes.
    """
    numbers: dict[str, Int64] = {}
    texts: dict[str, tuple[Int64, Int64]] = {}
    position = starts.copy()
    for name, (number, is_text) in _HEAD_FIELDS.items():
        here = (position < ends) & (raw[position] == (number << 3 | (2 if is_text else 0)))
        rows = np.flatnonzero(here)
        values, after = _varints_at(raw, position[rows] + 1)
        if is_text:
            begin, end = np.full(len(starts), -1, dtype=np.int64), position.copy()
            begin[rows], end[rows] = after, after + values
            texts[name] = begin, end
            position[rows] = after + values
        else:
            column = np.zeros(len(starts), dtype=np.int64)
            column[rows] = values
            numbers[name] = column
            position[rows] = after
    return Heads(numbers, texts, position)


def _varints_at(raw: NDArray[np.uint8], positions: Int64) -> tuple[Int64, Int64]:
    """The varints that start at these positions, and where each ends."""
    byte = raw[positions]
    values = (byte & 127).astype(np.uint64)
    after = positions + 1
    rows = np.flatnonzero(byte > 127)
    shift = 7
    while len(rows):
        byte = raw[after[rows]]
        values[rows] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[rows] += 1
        rows = rows[byte > 127]
        shift += 7
    return values.view(np.int64), after


def cut_varints(raw: NDArray[np.uint8], begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """The varints packed in each span ``raw[begin[i]:end[i]]`` (begin -1: none) as (pointers int64[n + 1], values)."""
    sizes = np.where(begin < 0, 0, end - begin)
    bounds = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    # Position in the file of each byte of the spans, one after the other.
    where = np.repeat(begin - bounds[:-1], sizes) + np.arange(bounds[-1])
    spans = raw[where]
    lasts = np.flatnonzero(spans < 128)
    pointers = np.searchsorted(lasts, bounds)
    firsts = np.concatenate([np.zeros(1, dtype=np.int64), lasts + 1])[:-1]
    values, _ = _varints_at(np.concatenate([spans, np.zeros(11, dtype=np.uint8)]), firsts)
    return pointers, values
