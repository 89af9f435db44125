"""The wire side of Chakra traces: a flat view of the Chakra ``Node``, varints as numpy arrays, length-delimited frames.

The view has the field numbers of the Chakra schema itself (read from its descriptors), but leaves dependencies and
attributes serialized, so that a whole block of nodes is parsed by protobuf in one call and decoded as arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from ..errors import InvalidInput

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
    """The message classes NodeView and Frames (``repeated NodeView node = 1``)."""
    label = descriptor_pb2.FieldDescriptorProto.Label
    file = descriptor_pb2.FileDescriptorProto(name="scaleacross/view.proto", package=_PACKAGE, syntax="proto3")
    view = file.message_type.add(name="NodeView")
    for field in ChakraNode.DESCRIPTOR.fields:
        view.field.add(
            name=field.name,
            number=field.number,
            type=descriptor_pb2.FieldDescriptorProto.Type.ValueType(
                _VIEW_TYPES.get(field.name, FieldDescriptor.TYPE_UINT64)
            ),
            label=label.LABEL_REPEATED if field.name == "attr" else label.LABEL_OPTIONAL,
        )
    frames = file.message_type.add(name="Frames")
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
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Frames")),
    )


NodeView, Frames = _view_classes()
ATTR_TAG = ChakraNode.DESCRIPTOR.fields_by_name["attr"].number << 3 | 2
_FRAME_TAG = b"\x0a"


def varint(value: int) -> bytes:
    """One unsigned integer as a protobuf varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


VARINTS = [varint(value) for value in range(4096)]


def varint_lengths(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes each non-negative value takes as a varint."""
    lengths = np.ones(len(values), dtype=np.int64)
    for bits in range(7, 63, 7):
        longer = values >> bits > 0
        if not longer.any():
            break
        lengths += longer
    return lengths


def encode_varints(values: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
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


def decode_varints(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Consecutive varints as (values, end offset of each). Values past 2^63 come out negative.

    Raises:
        ValueError: the last varint is cut, or one has more than 10 bytes.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw < 128) + 1
    if len(raw) and (not len(ends) or ends[-1] != len(raw)):
        raise ValueError("a varint is cut short")
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]]) if len(ends) else ends
    lengths = ends - starts
    if lengths.max(initial=0) > 10:
        raise ValueError("a varint has more than 10 bytes")
    values = np.zeros(len(ends), dtype=np.uint64)
    for byte in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > byte)
        values[rows] |= (raw[starts[rows] + byte] & 127).astype(np.uint64) << np.uint64(7 * byte)
    return values.view(np.int64), ends


def split_frames(data: bytes, path: object) -> list[bytes]:
    """The messages of a varint-length-delimited file, without their lengths.

    Raises:
        InvalidInput: E-TRACE-CUT when the file ends inside a message.
    """
    frames: list[bytes] = []
    append = frames.append
    position, end = 0, len(data)
    try:
        while position < end:
            size = data[position]
            start = position + 1
            if size > 127:
                size &= 127
                shift = 7
                while True:
                    byte = data[start]
                    start += 1
                    size |= (byte & 127) << shift
                    shift += 7
                    if byte < 128:
                        break
            position = start + size
            append(data[start:position])
    except IndexError:
        position = end + 1
    if position > end:
        raise InvalidInput(
            "E-TRACE-CUT",
            f"{path} ends inside message {len(frames)} of {end} bytes",
            "the file was cut short or is not a Chakra trace; write it again",
        )
    return frames


def parse_frames(frames: list[bytes]) -> tuple[Any, bool]:
    """Parse node messages in one call.

    Returns:
        (the Frames message, True when protobuf writes exactly the same bytes again: fields in ascending order, packed).

    Raises:
        google.protobuf.message.DecodeError: not protobuf, or a name that is not UTF-8.
    """
    parts: list[bytes] = []
    for frame in frames:
        size = len(frame)
        parts += (_FRAME_TAG, VARINTS[size] if size < 4096 else varint(size), frame)
    data = b"".join(parts)
    message = Frames.FromString(data)
    return message, message.SerializeToString() == data
