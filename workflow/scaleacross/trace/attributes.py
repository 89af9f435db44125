"""Attributes of Chakra nodes that a simulator reads: their kinds, canonical order, decoding and encoding.

Any integer member of the attribute's value is accepted for an integer, as ASTRA-sim does. What is read back is written
back with the same member and in the same order; new nodes take the canonical order and members below.
"""

from __future__ import annotations

from chakra.schema.protobuf.et_def_pb2 import AttributeProto
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode

# Columns of a decoded row.
(CPU, NUM_OPS, TENSOR_SIZE, COMM_TYPE, COMM_SIZE, COMM_SRC, COMM_DST, COMM_TAG, PRIORITY, PG, INVOLVED) = range(11)
COLUMN_OF = {
    "is_cpu_op": CPU,
    "num_ops": NUM_OPS,
    "tensor_size": TENSOR_SIZE,
    "comm_type": COMM_TYPE,
    "comm_size": COMM_SIZE,
    "comm_src": COMM_SRC,
    "comm_dst": COMM_DST,
    "comm_tag": COMM_TAG,
    "comm_priority": PRIORITY,
    "pg_name": PG,
    "involved_dim": INVOLVED,
}
ABSENT_ROW = (-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0)

# The canonical form: what a new node's attributes look like on disk.
CANONICAL = (
    ("is_cpu_op", "bool_val"),
    ("num_ops", "int64_val"),
    ("tensor_size", "uint64_val"),
    ("comm_type", "int64_val"),
    ("comm_src", "int32_val"),
    ("comm_dst", "int32_val"),
    ("comm_size", "int64_val"),
    ("comm_tag", "int32_val"),
    ("involved_dim", "bool_list"),
    ("pg_name", "string_val"),
    ("comm_priority", "int32_val"),
)
INTEGER_MEMBERS = {
    name + "_val"
    for name in ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
}
# Largest value that each member holds; a bigger one is written as int64.
_MEMBER_MAX = {"int32_val": 2**31 - 1, "sint32_val": 2**31 - 1, "sfixed32_val": 2**31 - 1}
_MEMBER_MAX |= {"uint32_val": 2**32 - 1, "fixed32_val": 2**32 - 1, "bool_val": 1}
_MAX_INT = 2**63 - 1

Form = tuple[tuple[str, str, bytes], ...]
Row = tuple[int, ...]


class AttributeTable:
    """Decodes attribute blocks to rows and encodes rows to blocks, each distinct block once."""

    def __init__(self) -> None:
        self.pgs: dict[str, int] = {"": 0}
        self.involved: dict[tuple[bool, ...] | None, int] = {None: 0}
        self.forms: dict[Form | None, int] = {None: 0}

    def decode(self, block: bytes) -> tuple[Row, list[str]]:
        """A serialized attribute block as (11 column values and the form's index, what is wrong with it)."""
        row = list(ABSENT_ROW)
        form: list[tuple[str, str, bytes]] = []
        problems: list[str] = []
        seen: set[str] = set()
        for attribute in ChakraNode.FromString(block).attr:
            name, member = attribute.name, attribute.WhichOneof("value") or ""
            column = COLUMN_OF.get(name)
            if column is None:
                form.append((name, member, attribute.SerializeToString()))
                continue
            form.append((name, member, b""))
            if name in seen:
                problems.append(f"attribute {name} is given twice")
            seen.add(name)
            problem = self._read_value(row, column, attribute, member)
            if problem:
                problems.append(f"attribute {name} {problem}")
        row.append(self._form_index(tuple(form), row))
        return tuple(row), problems

    def _read_value(self, row: list[int], column: int, attribute: AttributeProto, member: str) -> str:
        """Store the attribute's value in its column; returns what is wrong with it, or ""."""
        if column == INVOLVED:
            if member != "bool_list":
                return f"is {member or 'empty'}, not bool_list"
            row[column] = self.involved.setdefault(tuple(attribute.bool_list.values), len(self.involved))
        elif column == PG:
            if member != "string_val":
                return f"is {member or 'empty'}, not string_val"
            row[column] = self.pgs.setdefault(attribute.string_val, len(self.pgs))
        elif column == CPU:
            if member != "bool_val":
                return f"is {member or 'empty'}, not bool_val"
            row[column] = int(attribute.bool_val)
        else:
            if member not in INTEGER_MEMBERS:
                return f"is {member or 'empty'}, not an integer"
            value = getattr(attribute, member)
            if value > _MAX_INT or (value < 0 and column != PRIORITY):
                return f"is {value}, outside 0 .. 2^63 - 1"
            row[column] = value
        return ""

    def _form_index(self, form: Form, row: list[int]) -> int:
        if form == canonical_form(row):
            return 0
        return self.forms.setdefault(form, len(self.forms))


def canonical_form(row: Row | list[int]) -> Form:
    """Names and members of the attributes that a new node with these values has."""
    form: list[tuple[str, str, bytes]] = []
    for name, member in CANONICAL:
        column = COLUMN_OF[name]
        if row[column] != ABSENT_ROW[column]:
            form.append((name, _fitting(member, row[column]), b""))
    return tuple(form)


def _fitting(member: str, value: int) -> str:
    """``member``, or int64 when the value does not fit it."""
    return "int64_val" if value > _MEMBER_MAX.get(member, _MAX_INT) else member


def encode_block(
    row: Row, form: Form | None, pg_names: list[str], involved_sets: list[tuple[bool, ...] | None]
) -> bytes:
    """The serialized ``attr`` fields of one node: the form's order and members, the row's values.

    Values that the form does not mention are appended in canonical order; mentioned but absent ones are left out.
    """
    canonical = canonical_form(row)
    if form is None:
        form = canonical
    else:
        named = {name for name, _, _ in form}
        form = (*form, *(entry for entry in canonical if entry[0] not in named))
    node = ChakraNode()
    for name, member, raw in form:
        column = COLUMN_OF.get(name)
        if column is None:
            node.attr.add().MergeFromString(raw)
        elif column == PG:
            node.attr.add(name=name, string_val=pg_names[row[PG]])
        elif column == INVOLVED:
            dims = involved_sets[row[INVOLVED]]
            if dims is not None:
                attribute = node.attr.add(name=name)
                attribute.bool_list.SetInParent()
                attribute.bool_list.values.extend(dims)
        elif row[column] != ABSENT_ROW[column] or column == PRIORITY:
            attribute = node.attr.add(name=name)
            setattr(attribute, _fitting(member, row[column]), row[column])
    return node.SerializeToString()
