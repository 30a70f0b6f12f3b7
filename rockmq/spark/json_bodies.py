"""Bodies that are JSON objects, as a column of a given type.

All bodies of a batch are read at once, each on a line of its own with its number before it. If that fails, or another
number of lines comes out, there is a body among them that isn't JSON or doesn't fit, and the batch is halved until it is
found: its row is null.
"""

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from rockmq.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

# What isn't an object needs no reading to be known for it: a topic that isn't JSON at all would be halved for long.
_OBJECT = rb"\A[ \t\r\n]*\{"
# `{},"x":1` isn't JSON, but would be within its line: a body in which an object ends so is looked at by itself.
_MEMBER_BEHIND = rb'\}[ \t\r\n]*,[ \t\r\n]*"'
_ALONE = msgspec.json.Decoder(msgspec.Raw)

_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_type(kind: "DataType", where: str = "json") -> pa.DataType:
    """What Spark makes of its own type. Raises ConfigError for one that isn't read from JSON here."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        fields = []
        for field in kind.fields:
            at = f"{where}.{field.name}"
            if not field.nullable:
                raise ConfigError(f"option 'jsonSchema': {at} is NOT NULL, and what a body doesn't say is null")
            fields.append(pa.field(field.name, arrow_type(field.dataType, at)))
        return pa.struct(fields)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType, where), nullable=kind.containsNull))
    plain = _PLAIN.get(kind.simpleString())
    if plain is None:
        allowed = ", ".join(_PLAIN)
        raise ConfigError(f"option 'jsonSchema': {where} is {kind.simpleString()}; allowed are {allowed}, array and struct")
    return plain


def decoded(bodies: pa.Array, kind: pa.StructType) -> pa.Array:
    """A struct for each body, null for one that isn't an object of that type. Members that aren't asked for are left out."""
    is_object = _objects(bodies)
    if pc.all(is_object).as_py():
        return _read(bodies, kind)
    found = _read(bodies.filter(is_object), kind)
    # Each object's place among the objects, null for the others.
    place = pc.if_else(is_object, pc.subtract(pc.cumulative_sum(is_object.cast(pa.int64())), 1), None)
    return found.take(place)


def _objects(bodies: pa.Array) -> pa.Array:
    """Whether each may be an object, and is nothing behind one."""
    is_object = pc.match_substring_regex(bodies, _OBJECT)
    doubtful = pc.and_(is_object, pc.match_substring_regex(bodies, _MEMBER_BEHIND))
    if not pc.any(doubtful).as_py():
        return is_object
    alone = [_is_alone(body) for body in bodies.filter(doubtful).to_pylist()]
    return pc.replace_with_mask(is_object, doubtful, pa.array(alone, pa.bool_()))


def _is_alone(body: bytes) -> bool:
    try:
        _ALONE.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _read(bodies: pa.Array, kind: pa.StructType) -> pa.Array:
    rows = len(bodies)
    if not rows:
        return pa.nulls(0, kind)
    found = _at_once(bodies, kind)
    if found is not None:
        return found
    if rows == 1:
        return pa.nulls(1, kind)
    half = rows // 2
    return pa.concat_arrays([_read(bodies.slice(0, half), kind), _read(bodies.slice(half), kind)])


def _at_once(bodies: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """All of them, None if they aren't all right."""
    numbers = pa.array(np.arange(len(bodies), dtype=np.int64))
    lines = pc.binary_join_element_wise(b'{"n":', numbers.cast(pa.string()).cast(pa.binary()), b',"v":', bodies, b"}\n", b"")
    _, ends, text = lines.buffers()
    size = memoryview(ends).cast("i")[len(bodies)]
    try:
        bodies.cast(pa.string())  # the reader doesn't ask whether text is UTF-8
        table = pj.read_json(
            pa.BufferReader(text.slice(0, size)),
            read_options=pj.ReadOptions(use_threads=False, block_size=size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([("n", pa.int64()), ("v", kind)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    if not table.column("n").combine_chunks().equals(numbers):
        return None
    found = table.column("v").combine_chunks()
    assert isinstance(found, pa.Array)
    return None if found.null_count else found
