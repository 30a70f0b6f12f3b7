"""The columns of a read, for Spark and for Arrow, and how decoded records become them.

The Arrow types must equal what Spark makes of its own, or Spark refuses the batch: time stamps are microseconds in UTC,
text and bytes have 32-bit offsets, a map's keys can't be null while everything else can.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol.compression import decompress
from rockmq.spark import json_bodies
from rockmq.spark.options import ReadOptions, names

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rockmq._core import Text

VERSION = 1
"""Counts changes of the columns; archives carry it."""

BODIES_SIZE_MAX = 64 << 20
"""Bytes of decompressed bodies in one batch; further rows go into another."""

# What Spark can show of a time stamp: years 1 to 9999. A producer's clock is not to be trusted.
_TIME_MIN_MS, _TIME_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
_TIME = pa.timestamp("us", tz="UTC")
_MAP_KEY = pa.field("key", pa.string(), nullable=False)
_MAP_VALUE = pa.field("value", pa.string())
_MAP = pa.map_(_MAP_KEY, _MAP_VALUE)


class Records:
    """Records as the core decoded them, and their columns as Arrow arrays over the same memory."""

    def __init__(self, decoded: "Mapping[str, bytes | Text]", broker: str) -> None:
        self._decoded = decoded
        self.broker = broker
        self.rows = int.from_bytes(cast("bytes", decoded["rows"]), sys.byteorder)

    @property
    def offsets(self) -> memoryview:
        """The queue offsets, as integers."""
        return memoryview(cast("bytes", self._decoded["queueOffset"])).cast("q")

    def any_has(self, flags: int) -> bool:
        """Whether a sysFlag has all of `flags`."""
        wanted = pa.scalar(flags, pa.int32())
        return bool(pc.any(pc.equal(pc.bit_wise_and(self.integers("sysFlag", pa.int32()), wanted), wanted)).as_py())

    def integers(self, name: str, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, [None, pa.py_buffer(self._decoded[name])])

    def text(self, name: str, kind: pa.DataType | None = None) -> pa.Array:
        return _text(cast("Text", self._decoded[name]), self.rows, kind or pa.string())

    def time(self, name: str) -> pa.Array:
        """Milliseconds as a time stamp; null where no calendar reaches."""
        milliseconds = np.frombuffer(cast("bytes", self._decoded[name]), np.int64)
        sane = (milliseconds >= _TIME_MIN_MS) & (milliseconds <= _TIME_MAX_MS)
        microseconds = pa.py_buffer(milliseconds * 1000)
        validity = None if sane.all() else pa.py_buffer(np.packbits(sane, bitorder="little"))
        return pa.Array.from_buffers(_TIME, self.rows, [validity, microseconds])

    def properties(self) -> pa.Array:
        offsets = cast("bytes", self._decoded["propertiesOffsets"])
        count = memoryview(offsets).cast("i")[self.rows]
        keys = _text(cast("Text", self._decoded["propertiesKeys"]), count, pa.string())
        values = _text(cast("Text", self._decoded["propertiesValues"]), count, pa.string())
        pairs = pa.StructArray.from_arrays([keys, values], fields=[_MAP_KEY, _MAP_VALUE])
        return pa.Array.from_buffers(_MAP, self.rows, [None, pa.py_buffer(offsets)], children=[pairs])

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The columns of `schema` but for `json`, bodies as stored."""
        return pa.RecordBatch.from_arrays([COLUMNS[name].take(self, name) for name in schema.names], schema=schema)

    def tagged(self, tags: frozenset[str]) -> pa.Array:
        """Which rows have one of the tags. A broker selects by hash, so others may come with them."""
        return pc.is_in(self.text("tags"), value_set=pa.array(sorted(tags), pa.string()))


class Column(NamedTuple):
    """A column's type in Spark's spelling and in Arrow, and where it comes from."""

    spark: str
    arrow: pa.DataType
    take: Callable[[Records, str], pa.Array]


def _string(records: Records, name: str) -> pa.Array:
    return records.text(name)


def _int(records: Records, name: str) -> pa.Array:
    return records.integers(name, pa.int32())


def _long(records: Records, name: str) -> pa.Array:
    return records.integers(name, pa.int64())


def _timestamp(records: Records, name: str) -> pa.Array:
    return records.time(name)


COLUMNS = {
    "topic": Column("string", pa.string(), _string),
    "broker": Column("string", pa.string(), lambda records, _: pa.repeat(records.broker, records.rows)),
    "queueId": Column("int", pa.int32(), _int),
    "queueOffset": Column("bigint", pa.int64(), _long),
    "msgId": Column("string", pa.string(), _string),
    "keys": Column("string", pa.string(), _string),
    "tags": Column("string", pa.string(), _string),
    "shardingKey": Column("string", pa.string(), _string),
    "body": Column("binary", pa.binary(), lambda records, name: records.text(name, pa.binary())),
    "properties": Column("map<string,string>", _MAP, lambda records, _: records.properties()),
    "bornTimestamp": Column("timestamp", _TIME, _timestamp),
    "storeTimestamp": Column("timestamp", _TIME, _timestamp),
    "bornHost": Column("string", pa.string(), _string),
    "reconsumeTimes": Column("int", pa.int32(), _int),
    "sysFlag": Column("int", pa.int32(), _int),
    "commitLogOffset": Column("bigint", pa.int64(), _long),
}
DDL = ", ".join(f"{name} {column.spark}" for name, column in COLUMNS.items())
ARROW = pa.schema([(name, column.arrow) for name, column in COLUMNS.items()])
JSON = "json"
"""The column of what bodies say, there if a schema for it is given."""


def ddl(options: ReadOptions) -> str:
    """The columns of the table in Spark's spelling. Raises ConfigError."""
    chosen = names(options.columns) or list(COLUMNS)
    for name in chosen:
        if name not in COLUMNS:
            raise ConfigError(f"option 'columns': there is no column {name!r}; the columns are: {', '.join(COLUMNS)}")
    columns = [f"{name} {COLUMNS[name].spark}" for name in chosen]
    return ", ".join([*columns, f"{JSON} struct<{options.json_schema}>"] if options.json_schema else columns)


def project(wanted: "StructType") -> pa.Schema:
    """The Arrow schema of the columns a user named with `.schema(...)`: any of ours, in any order, with our types; and
    `json` with any of its own."""
    fields = []
    for field in wanted.fields:
        if field.name == JSON and field.dataType.typeName() == "struct":
            fields.append(pa.field(JSON, json_bodies.arrow_type(field.dataType)))
            continue
        column = COLUMNS.get(field.name)
        if column is None:
            raise ConfigError(f"there is no column {field.name!r}; the columns are: {DDL}")
        if field.dataType.simpleString() != column.spark:
            raise ConfigError(f"column {field.name!r} is {column.spark}, not {field.dataType.simpleString()}")
        fields.append(pa.field(field.name, column.arrow, nullable=field.nullable))
    return pa.schema(fields)


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that those of `schema` are made from."""
    place = schema.get_field_index(JSON)
    if place < 0:
        return schema
    rest = schema.remove(place)
    return rest if "body" in rest.names else rest.append(pa.field("body", pa.binary()))


def with_json(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, of a batch with those of `stored_columns`."""
    if JSON not in schema.names:
        return batch
    made = {JSON: json_bodies.decoded(batch.column("body"), schema.field(JSON).type)}
    arrays = [made[name] if name in made else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decompressed(batch: pa.RecordBatch, flags: pa.Array, strict: bool) -> Iterator[pa.RecordBatch]:
    """The batch with bodies as their producers wrote them, in several when they are large; `flags` are its sysFlags.

    A body that can't be decompressed raises ProtocolError telling the row when `strict`, else it stays as stored.
    """
    column = batch.schema.get_field_index("body")
    bodies: list[bytes] = []
    size = done = 0
    for row, (flag, body) in enumerate(zip(flags.to_pylist(), batch.column(column).to_pylist(), strict=True)):
        plain = _plain(flag, body, row, strict)
        if bodies and size + len(plain) > BODIES_SIZE_MAX:
            yield _with_bodies(batch.slice(done, len(bodies)), column, bodies)
            done += len(bodies)
            bodies, size = [], 0
        bodies.append(plain)
        size += len(plain)
    if bodies:
        yield _with_bodies(batch.slice(done), column, bodies)


def _plain(flag: int, body: bytes, row: int, strict: bool) -> bytes:
    try:
        return decompress(flag, body)
    except ProtocolError as error:
        if strict:
            raise BrokenBody(row, str(error)) from None
        return body


class BrokenBody(ProtocolError):
    """A body that can't be decompressed, in row `row` of a batch."""

    def __init__(self, row: int, reason: str) -> None:
        self.row = row
        super().__init__(reason)


def _with_bodies(batch: pa.RecordBatch, column: int, bodies: list[bytes]) -> pa.RecordBatch:
    arrays = batch.columns
    arrays[column] = pa.array(bodies, pa.binary())
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _text(buffers: "Text", rows: int, kind: pa.DataType) -> pa.Array:
    valid, offsets, data = buffers
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
