"""Chakra traces: what is written is read back, byte for byte; broken files are refused with an id."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from chakra.schema.protobuf.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from chakra.src.third_party.utils.protolib import decodeMessage, encodeMessage, openFileRd
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.errors import InvalidInput
from scaleacross.trace.attributes import INTEGER_MEMBERS
from scaleacross.trace.chakra_io import (
    inspect_traces,
    parse_trace,
    read_trace,
    read_traces,
    serialize_trace,
    write_trace,
)
from scaleacross.trace.columns import ALL_GATHER, ALL_REDUCE, COLL, COMP, SEND, Trace, TraceBuilder
from scaleacross.trace.wire import varint

SIZES = st.one_of(st.integers(0, 300), st.integers(0, 2**53))


def frames(*messages: bytes, metadata: bytes = b"") -> bytes:
    return b"".join(varint(len(message)) + message for message in (metadata, *messages))


def node(**fields: object) -> Node:
    return Node(**{"id": 1, "name": "n", "type": COMP, **fields})


def with_attribute(name: str, member: str, value: object) -> bytes:
    message = node()
    message.attr.append(AttributeProto(name=name, **{member: value}))
    return frames(message.SerializeToString())


@st.composite
def built_traces(draw: st.DrawFn) -> Trace:
    builder = TraceBuilder(draw(st.sampled_from([-1, 0, 7])))
    for index in range(draw(st.integers(0, 12))):
        deps = draw(st.lists(st.integers(0, max(index - 1, 0)), max_size=3)) if index else []
        ctrl = draw(st.lists(st.integers(0, max(index - 1, 0)), max_size=2)) if index else []
        name = draw(st.text(max_size=8))
        kind = draw(st.sampled_from(["compute", "dims", "group", "send", "recv", "memory"]))
        if kind == "compute":
            builder.compute(name, draw(SIZES), draw(SIZES), deps, ctrl, draw(SIZES), draw(st.booleans()))
        elif kind == "dims":
            dims = draw(st.lists(st.booleans(), max_size=6))
            builder.collective(name, ALL_REDUCE, draw(SIZES), deps, ctrl, involved=dims)
        elif kind == "group":
            priority = draw(st.integers(0, 9))
            builder.collective(name, ALL_GATHER, draw(SIZES), deps, ctrl, pg=draw(st.integers(1, 9)), priority=priority)
        elif kind == "send":
            builder.send(name, draw(st.integers(0, 2**33)), draw(SIZES), draw(SIZES), deps, ctrl)
        elif kind == "recv":
            builder.recv(name, draw(st.integers(0, 99)), draw(SIZES), draw(SIZES), deps, ctrl)
        else:
            builder.memory(name, draw(SIZES), draw(st.booleans()), deps, ctrl)
    return builder.build()


@given(built_traces())
def test_round_trip(trace: Trace) -> None:
    data = serialize_trace(trace)
    again = parse_trace(data)
    assert again.nodes_equal(trace)
    assert serialize_trace(again) == data


@st.composite
def chakra_files(draw: st.DrawFn) -> bytes:
    """Files as Chakra's own code may write them: any attribute, any integer member, fields that nobody reads."""
    messages = [GlobalMetadata(version=draw(st.text(max_size=4))).SerializeToString()]
    for _ in range(draw(st.integers(0, 5))):
        message = node(id=draw(st.integers(0, 2**40)), name=draw(st.text(max_size=5)), type=draw(st.integers(0, 7)))
        message.data_deps.extend(draw(st.lists(st.integers(0, 2**40), max_size=3)))
        message.ctrl_deps.extend(draw(st.lists(st.integers(0, 300), max_size=3)))
        if draw(st.booleans()):
            message.start_time_micros = draw(st.integers(0, 2**64 - 1))
            message.inputs.values = draw(st.text(max_size=3))
        names = draw(
            st.permutations(["is_cpu_op", "comm_size", "comm_tag", "comm_priority", "num_ops", "x", "pg_name"])
        )
        for name in names[: draw(st.integers(0, 7))]:
            attribute = message.attr.add(name=name, doc_string=draw(st.sampled_from(["", ""])))
            if name == "pg_name":
                attribute.string_val = draw(st.sampled_from(["", "0", "3"]))
            elif name == "is_cpu_op":
                attribute.bool_val = draw(st.booleans())
            else:
                member = draw(st.sampled_from(sorted(INTEGER_MEMBERS - {"bool_val"})))
                setattr(attribute, member, draw(st.integers(0, 2**31 - 1)))
        messages.append(message.SerializeToString())
    return b"".join(varint(len(message)) + message for message in messages)


@given(chakra_files())
def test_files_of_the_schema_are_written_back_unchanged(data: bytes) -> None:
    assert serialize_trace(parse_trace(data)) == data


def test_protolib_reads_what_we_write(tmp_path: Path) -> None:
    builder = TraceBuilder(rank=2)
    first = builder.compute("F.attention", 10, 20)
    builder.collective("tp.ar", ALL_REDUCE, 64, deps=[first], involved=[True, False])
    builder.send("pp.send", peer=3, size=8, tag=5, deps=[1], ctrl=[first])
    write_trace(tmp_path / "t.et", builder.build())
    stream = openFileRd(str(tmp_path / "t.et"))
    assert decodeMessage(stream, GlobalMetadata())
    nodes = []
    while decodeMessage(stream, message := Node()):
        nodes.append(message)
    assert [(n.id, n.name, n.type) for n in nodes] == [
        (0, "F.attention", COMP),
        (1, "tp.ar", COLL),
        (2, "pp.send", SEND),
    ]
    assert list(nodes[2].data_deps) == [1] and list(nodes[2].ctrl_deps) == [0]
    values = {a.name: getattr(a, a.WhichOneof("value") or "") for a in nodes[2].attr}
    assert values == {"is_cpu_op": False, "comm_src": 2, "comm_dst": 3, "comm_size": 8, "comm_tag": 5}
    assert list(next(a for a in nodes[1].attr if a.name == "involved_dim").bool_list.values) == [True, False]


def test_reads_what_protolib_writes_also_compressed(tmp_path: Path) -> None:
    for opener, name in ((open, "plain.et"), (gzip.open, "packed.et")):
        with opener(tmp_path / name, "wb") as stream:
            encodeMessage(stream, GlobalMetadata(version="0.0.4"))
            message = node(duration_micros=7, data_deps=[9])
            message.attr.append(AttributeProto(name="is_cpu_op", bool_val=True))
            encodeMessage(stream, message)
        trace = read_trace(tmp_path / name)
        assert (trace.ids[0], trace.duration_micros[0], trace.is_cpu_op[0], trace.data_deps[0]) == (1, 7, 1, 9)
        assert trace.num_ops[0] == trace.comm_size[0] == -1


@pytest.mark.parametrize("member", sorted(INTEGER_MEMBERS))
def test_any_integer_member_is_an_integer(member: str) -> None:
    assert parse_trace(with_attribute("comm_size", member, 1)).comm_size[0] == 1


@pytest.mark.parametrize(
    ("name", "member", "value"),
    [
        ("comm_size", "double_val", 1.0),
        ("comm_size", "string_val", "1"),
        ("comm_size", "int64_val", -1),
        ("comm_size", "uint64_val", 2**63),
        ("is_cpu_op", "string_val", "true"),
        ("pg_name", "int32_val", 3),
    ],
)
def test_wrong_attribute(name: str, member: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=f"E-TRACE-ATTR.*node 1 'n'.*{name}"):
        parse_trace(with_attribute(name, member, value))


def test_attribute_given_twice() -> None:
    message = node()
    for size in (1, 2):
        message.attr.append(AttributeProto(name="comm_size", int64_val=size))
    with pytest.raises(InvalidInput, match="comm_size is given twice"):
        parse_trace(frames(message.SerializeToString()))


def test_unordered_and_unpacked_fields_are_read() -> None:
    message = (
        b"\x3a\x00" + b"\x28\x05\x28\x81\x01" + b"\x12\x01a" + b"\x08\x07" + b"\x18\x04"
    )  # inputs, deps 5 129, name, id, type
    trace = parse_trace(frames(b"\x42\x00" + message[2:]))
    assert (trace.ids.tolist(), trace.names, trace.data_deps.tolist()) == ([7], ["a"], [5, 129])
    assert parse_trace(serialize_trace(trace)).nodes_equal(trace)


def test_unknown_fields_are_dropped() -> None:
    good = node(data_deps=[3]).SerializeToString()
    trace = parse_trace(frames(good + b"\xa0\x06\x01"))
    assert serialize_trace(trace) == frames(good)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "E-TRACE-EMPTY"),
        (b"\x05ab", "E-TRACE-CUT"),
        (b"\xff" * 50, "E-TRACE-CUT"),
        (b"\xff" * 5_000_000, "E-TRACE-CUT"),
        (frames(node().SerializeToString())[:-1], "E-TRACE-CUT"),
        (frames(b"\x0a\xff"), "E-TRACE-FORMAT"),
        (frames(b"\x12\x02\xff\xfe"), "E-TRACE-FORMAT"),  # a name that is not UTF-8
        (frames(b"", metadata=b"\x0f"), "E-TRACE-FORMAT"),
        (frames(node(id=2**63).SerializeToString()), "E-TRACE-FORMAT"),
        (frames(node(data_deps=[2**63]).SerializeToString()), "E-TRACE-FORMAT"),
        (b'{"json": 1}' * 9, "E-TRACE-"),
        (b"\x1f\x8b garbage", "E-TRACE-FORMAT"),
        (gzip.compress(frames(node().SerializeToString()))[:-9], "E-TRACE-CUT"),
    ],
)
def test_broken_file(tmp_path: Path, data: bytes, error: str) -> None:
    path = tmp_path / "broken.et"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=error):
        read_trace(path)


@given(st.binary(max_size=200))
def test_noise_is_read_or_refused(data: bytes) -> None:
    try:
        trace = parse_trace(data or b"\x00")
    except InvalidInput as error:
        assert error.error_id.startswith("E-TRACE")
    else:
        assert parse_trace(serialize_trace(trace)).nodes_equal(trace)


@settings(max_examples=60)
@given(built_traces(), st.data())
def test_damaged_file_is_read_or_refused(trace: Trace, data: st.DataObject) -> None:
    content = bytearray(serialize_trace(trace))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_trace(bytes(content[: data.draw(st.integers(1, len(content)))]))
    except InvalidInput as error:
        assert error.error_id.startswith("E-TRACE")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.et"):
        with pytest.raises(InvalidInput, match="E-TRACE-FILE"):
            read_trace(path)


def test_many_files_together(tmp_path: Path) -> None:
    traces = []
    for rank in range(4):
        builder = TraceBuilder(rank)
        for index in range(rank + 1):
            builder.collective(f"dp.{index}", ALL_REDUCE, 8 + rank, pg=rank + 1, deps=[index - 1] if index else [])
        traces.append(builder.build())
        write_trace(tmp_path / f"w.{rank}.et", traces[-1])
    write_trace(tmp_path / "w.4.et", traces[1])
    read = read_traces(tmp_path / f"w.{rank}.et" for rank in range(5))
    assert all(a.nodes_equal(b) for a, b in zip(read, [*traces, traces[1]], strict=True))
    assert read[4] is read[1]
    assert read[2].pg_names == ["", "3"]  # no names of the other files

    (tmp_path / "w.1.et").write_bytes(b"\x09")
    found, problems = inspect_traces([tmp_path / f"w.{rank}.et" for rank in range(6)])
    assert [trace is None for trace in found] == [False, True, False, False, False, True]
    assert sorted(problem.error_id for problem in problems) == ["E-TRACE-CUT", "E-TRACE-FILE"]


def test_columns() -> None:
    builder = TraceBuilder()
    a = builder.compute("F.m0", 5, 6)
    b = builder.collective("dp.rs", 7, 9, deps=[a], involved=(True, False))
    builder.depend(b, ctrl=[a])
    trace = builder.build()
    assert trace.data_deps.tolist() == trace.ctrl_deps.tolist() == [0]
    assert trace.data_ptr.tolist() == [0, 0, 1] and trace.axis(b) == "dp" and trace.axis(a) == "other"
    assert trace.involved_sets[trace.involved[b]] == (True, False)
    assert np.array_equal(trace.comm_type, [-1, 7]) and trace.comm_src.tolist() == [-1, -1]
    with pytest.raises(ValueError, match="exclude each other"):
        builder.collective("x", 0, 1, involved=[True], pg=1)
