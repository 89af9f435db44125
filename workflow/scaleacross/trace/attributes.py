"""Attributes of Chakra nodes that a simulator reads: their kinds, canonical order, decoding and encoding.

Any integer member of the attribute's value is accepted for an integer, as ASTRA-sim does. What is read back is written
back with the same member and in the same order; new nodes take the canonical order and members below. Both directions
go through the schema's AttributeProto once per distinct attribute and remember its bytes: traces repeat themselves.
"""

from __future__ import annotations

from chakra.schema.protobuf.et_def_pb2 import AttributeProto
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode

from .columns import AttributeForm
from .wire import VARINTS, varint

# Columns of a decoded row; the last one is the index of the form.
(CPU, NUM_OPS, TENSOR_SIZE, COMM_TYPE, COMM_SIZE, COMM_SRC, COMM_DST, COMM_TAG, PRIORITY, PG, INVOLVED, FORM) = range(
    12
)
ABSENT_ROW = (-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0)

# The canonical form, in the order written: (column, attribute name, oneof member).
CANONICAL = (
    (CPU, "is_cpu_op", "bool_val"),
    (NUM_OPS, "num_ops", "int64_val"),
    (TENSOR_SIZE, "tensor_size", "uint64_val"),
    (COMM_TYPE, "comm_type", "int64_val"),
    (COMM_SRC, "comm_src", "int32_val"),
    (COMM_DST, "comm_dst", "int32_val"),
    (COMM_SIZE, "comm_size", "int64_val"),
    (COMM_TAG, "comm_tag", "int32_val"),
    (INVOLVED, "involved_dim", "bool_list"),
    (PG, "pg_name", "string_val"),
    (PRIORITY, "comm_priority", "int32_val"),
)
COLUMN_OF = {name: column for column, name, _ in CANONICAL}
INTEGER_MEMBERS = frozenset(
    field.name
    for field in AttributeProto.DESCRIPTOR.fields
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
) | {"bool_val"}
_MAX_INT = 2**63 - 1
_MEMBER_MAX = {"bool_val": 1} | {f"{kind}_val": 2**31 - 1 for kind in ("int32", "sint32", "sfixed32")}
_MEMBER_MAX |= {"uint32_val": 2**32 - 1, "fixed32_val": 2**32 - 1}

Row = tuple[int, ...]
Entry = tuple[str, str, bytes]
_TAG = bytes([ChakraNode.DESCRIPTOR.fields_by_name["attr"].number << 3 | 2])
_CHUNKS_KEPT = 1 << 18  # distinct attributes remembered: bounds memory where every node has its own tag


class AttributeReader:
    """Decodes attribute blocks to rows. ``pgs``, ``involved`` and ``forms`` number what the rows refer to."""

    def __init__(self) -> None:
        self.pgs: dict[str, int] = {"": 0}
        self.involved: dict[tuple[bool, ...] | None, int] = {None: 0}
        self.forms: dict[AttributeForm | None, int] = {None: 0}
        self._entries: dict[Entry, int] = {}
        self._form_of: dict[tuple[int, ...], tuple[int, str]] = {}
        self._known: dict[bytes, tuple[int, int, int, str]] = {}

    def decode(self, block: bytes) -> tuple[list[int], list[str]]:
        """A node's serialized ``attr`` fields as (row, what is wrong with them).

        Raises:
            google.protobuf.message.DecodeError, ValueError: not attributes of the Chakra schema.
        """
        row = list(ABSENT_ROW)
        form: list[int] = []
        problems: list[str] = []
        known = self._known
        for chunk in _split(block):
            found = known.get(chunk)
            if found is None:
                found = self._read(chunk)
            column, value, entry, problem = found
            if column >= 0:
                row[column] = value
            form.append(entry)
            if problem:
                problems.append(problem)
        key = tuple(form)
        row[FORM], problem = self._form_of.get(key) or self._new_form(key)
        if problem:
            problems.append(problem)
        return row, problems

    def _read(self, chunk: bytes) -> tuple[int, int, int, str]:
        """One serialized attribute as (column or -1, value, number of its form entry, what is wrong)."""
        attribute = AttributeProto.FromString(chunk)
        name, member = attribute.name, attribute.WhichOneof("value") or ""
        column = COLUMN_OF.get(name, -1)
        value, problem = self._value(column, attribute, member) if column >= 0 else (0, "")
        # Kept whole: what no column holds, what cannot be used, and a default that is written out.
        whole = column < 0 or problem or value == ABSENT_ROW[column]
        entry = self._entries.setdefault((name, member, chunk if whole else b""), len(self._entries))
        result = (-1 if problem else column, value, entry, problem and f"attribute {name} {problem}")
        if len(self._known) >= _CHUNKS_KEPT:
            self._known.clear()
        self._known[chunk] = result
        return result

    def _value(self, column: int, attribute: AttributeProto, member: str) -> tuple[int, str]:
        """The attribute's value for its column, and what is wrong with it or ""."""
        if column == INVOLVED:
            if member != "bool_list":
                return 0, f"is {member or 'empty'}, not bool_list"
            return self.involved.setdefault(tuple(attribute.bool_list.values), len(self.involved)), ""
        if column == PG:
            if member != "string_val":
                return 0, f"is {member or 'empty'}, not string_val"
            return self.pgs.setdefault(attribute.string_val, len(self.pgs)), ""
        if member not in INTEGER_MEMBERS:
            return 0, f"is {member or 'empty'}, not an integer"
        value = int(getattr(attribute, member))
        if value > _MAX_INT or (value < 0 and column != PRIORITY):
            return 0, f"is {value}, outside 0 .. 2^63 - 1"
        return int(bool(value)) if column == CPU else value, ""

    def _new_form(self, key: tuple[int, ...]) -> tuple[int, str]:
        """Number a form seen for the first time (0 is the canonical one); also what is wrong with it."""
        entries = list(self._entries)
        form = tuple(entries[index] for index in key)
        names = [name for name, _, _ in form]
        canonical = tuple((name, member, b"") for _, name, member in CANONICAL if name in names)
        index = 0 if form == canonical else self.forms.setdefault(form, len(self.forms))
        twice = {name for name in names if names.count(name) > 1}
        result = self._form_of[key] = (index, f"attribute {min(twice)} is given twice" if twice else "")
        return result


def _split(block: bytes) -> list[bytes]:
    """The length-delimited ``attr`` fields of a block."""
    chunks: list[bytes] = []
    position, end = 0, len(block)
    tag = _TAG[0]
    while position < end:
        if block[position] != tag:
            raise ValueError("a node has a field that the Chakra schema does not know")
        start = position + 2
        size = block[position + 1]
        if size > 127:
            size &= 127
            shift = 7
            while True:
                byte = block[start]
                start += 1
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        position = start + size
        chunks.append(block[start:position])
    return chunks


class AttributeWriter:
    """Encodes rows of one trace as attribute blocks: the form's order and members, the columns' values.

    Values that a form does not mention are appended in canonical order; mentioned but absent ones are left out.
    """

    def __init__(
        self, pg_names: list[str], involved_sets: list[tuple[bool, ...] | None], forms: list[AttributeForm | None]
    ) -> None:
        self.pg_names, self.involved_sets, self.forms = pg_names, involved_sets, forms
        self._known: dict[tuple[int, str, int], bytes] = {}

    def encode(self, row: Row) -> bytes:
        """The serialized ``attr`` fields of one node."""
        form = self.forms[row[FORM]]
        if form is None:
            return b"".join(
                [
                    self._known.get((column, member, row[column])) or self._write(column, name, member, row[column])
                    for column, name, member in CANONICAL
                    if row[column] != ABSENT_ROW[column]
                ]
            )
        parts: list[bytes] = []
        for name, member, raw in form:
            column = COLUMN_OF.get(name, -1)
            if column < 0 or row[column] == ABSENT_ROW[column]:
                parts.append(_field(raw) if raw else b"")
            else:
                parts.append(self._write(column, name, member, row[column]))
        named = {entry[0] for entry in form}
        for column, name, member in CANONICAL:
            if name not in named and row[column] != ABSENT_ROW[column]:
                parts.append(self._write(column, name, member, row[column]))
        return b"".join(parts)

    def _write(self, column: int, name: str, member: str, value: int) -> bytes:
        attribute = AttributeProto(name=name)
        if column == PG:
            attribute.string_val = self.pg_names[value]
        elif column == INVOLVED:
            attribute.bool_list.SetInParent()
            attribute.bool_list.values.extend(self.involved_sets[value] or ())
        else:
            fits = value <= _MEMBER_MAX.get(member, _MAX_INT) and (value >= 0 or member in ("int32_val", "int64_val"))
            setattr(attribute, member if fits else "int64_val", bool(value) if member == "bool_val" and fits else value)
        field = self._known[column, member, value] = _field(attribute.SerializeToString())
        return field


def _field(message: bytes) -> bytes:
    size = len(message)
    return _TAG + (VARINTS[size] if size < len(VARINTS) else varint(size)) + message
