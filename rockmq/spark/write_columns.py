"""The columns of a write: which there may be, and how a batch of them goes to the core.

A row has its topic here (or all rows have the option's), a body, and what else a message may have. No object is made of a
row: columns are handed to the core as the buffers they are.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rockmq.base.errors import ConfigError
from rockmq.protocol import properties as names
from rockmq.protocol.codec import encode_columns, java_hashes
from rockmq.spark.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rockmq._core import Column

COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "shardingKey": ("string",),
    "properties": ("map<string,string>",),
    "deliverAt": ("timestamp",),
    "queue": ("int",),
}
"""The columns of a write and the types that each may have, in Spark's spelling."""

DEDUP_TYPES = ("string", "int", "bigint")
"""What a column named by `dedupKey` may be."""

BATCH_BYTES = 1 << 20
"""A request has so many bytes at most, or one message."""

ID_DIGITS = 32
"""Of an id that is made from a row these tell what the row is; the rest tells equal rows apart."""

_TEXTS = {"keys": names.KEYS, "tags": names.TAGS, "shardingKey": names.SHARDING_KEY}
OF_AN_EARLIER_STORING = (
    names.UNIQ_KEY,
    names.CLUSTER,
    names.MSG_REGION,
    names.TRACE_ON,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
)
"""Of a message that was read these say how it was stored, not what it is."""
FOR_BROKERS = (
    names.DELAY,
    *names.TIMER_WISHES,
    names.TRAN_MSG,
    names.PGROUP,
    names.MSG_TYPE,
    names.POP_CK,
    names.INNER_NUM,
    names.INNER_BASE,
    names.INNER_MULTI_DISPATCH,
    names.CRC32,
)
"""By these brokers do something else than to store a message, which a batch can't ask for."""


def check_schema(schema: "StructType", options: WriteOptions) -> None:
    """Raises ConfigError naming the column and what is allowed."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        allowed = COLUMNS.get(name)
        if name == options.dedup_key:
            allowed = allowed or DEDUP_TYPES
        if allowed is None:
            known = ", ".join(f"{each} {' or '.join(kinds)}" for each, kinds in COLUMNS.items())
            raise ConfigError(
                f"a write has no column {name!r}; the columns are: {known}, and one that option dedupKey names"
            )
        if kind not in allowed:
            raise ConfigError(f"column {name!r} is {kind}: expected {' or '.join(allowed)}")
    if "body" not in types:
        raise ConfigError("a write needs the column 'body': binary or string")
    if "topic" not in types and not options.topic:
        raise ConfigError("a write needs the option 'topic', or a column 'topic': string")
    if options.dedup_key and types.get(options.dedup_key) not in DEDUP_TYPES:
        raise ConfigError(
            f"option 'dedupKey' names column {options.dedup_key!r}: expected one that is {' or '.join(DEDUP_TYPES)}"
        )
    if options.transactional and "deliverAt" in types:
        raise ConfigError("column 'deliverAt' can't be with delivery=transactional: nothing in a transaction can be delayed")


class Encoded(NamedTuple):
    """What the core made of rows: (queue number, messages, body) of each batch, (row, why) of those that can't be sent."""

    batches: list[tuple[int, int, bytes]]
    faults: list[tuple[int, str]]
    ids: pa.Array


class Rows:
    """Some rows of one topic, as the core takes them.

    `seed` is what ids are made from besides the rows, `first` the number of the first of them; `dedup_key` the column that
    says ids.
    """

    def __init__(self, batch: pa.RecordBatch, *, seed: bytes, first: int, dedup_key: str, size_max: int) -> None:
        self.batch = batch
        self._size_max = size_max
        given = {name: _plain(batch.column(number)) for number, name in enumerate(batch.schema.names)}
        self._body: Column = _buffers(given["body"])
        self._properties = _map(given["properties"]) if "properties" in given else None
        self._texts = [(of, _buffers(_joined(given[name]))) for name, of in _TEXTS.items() if name in given]
        self._ids: tuple[bytes, int] | None = (seed, first)
        self._given_ids: pa.Array | None = None
        if dedup_key:
            self._ids = None
            self._given_ids = given[dedup_key].cast(pa.string())
            self._texts.append((names.UNIQ_KEY, _buffers(self._given_ids)))
        self.sharding_keys: pa.Array | None = given.get("shardingKey")
        self.queues: pa.Array | None = given.get("queue")
        self.deliver_at: pa.Array | None = given.get("deliverAt")

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    def timed(self) -> "npt.NDArray[np.bool_]":
        """Which rows are for later."""
        if self.deliver_at is None:
            return np.zeros(self.count, np.bool_)
        return np.asarray(self.deliver_at.is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def without_id(self) -> "npt.NDArray[np.int64]":
        """Rows in which the column that says ids says none."""
        if self._given_ids is None:
            return np.empty(0, np.int64)
        empty = pc.fill_null(pc.equal(self._given_ids, ""), True)  # which wouldn't be sent
        return np.flatnonzero(empty.to_numpy(zero_copy_only=False))

    def hashes(self) -> "npt.NDArray[np.int64]":
        """Java's hashes of the sharding keys."""
        assert self.sharding_keys is not None
        return hashes(self.sharding_keys)

    def encode(self, queues: "npt.NDArray[np.int32]", *, alone: bool = False) -> Encoded:
        """Rows as batches, each row into that of its queue; -1 leaves it out. `alone` makes a batch of each row."""
        texts = self._texts
        if alone and self.deliver_at is not None:  # null where it isn't for later
            texts = [*texts, (names.TIMER_DELIVER_MS, _buffers(_milliseconds(self.deliver_at)))]
        batches, faults, ids = encode_columns(
            np.ascontiguousarray(queues, np.int32).data,
            self._body,
            texts,
            self._properties,
            left_out=OF_AN_EARLIER_STORING,
            refused=FOR_BROKERS,
            size_max=self._size_max,
            batch_bytes=1 if alone else min(BATCH_BYTES, self._size_max),
            ids=self._ids,
        )
        if self._given_ids is not None:
            return Encoded(batches, faults, self._given_ids)
        _, offsets, data = ids
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return Encoded(batches, faults, pa.Array.from_buffers(pa.string(), self.count, buffers))


def hashes(texts: pa.Array) -> "npt.NDArray[np.int64]":
    """Java's hashes of texts; anything for a null."""
    return np.frombuffer(java_hashes(_buffers(_plain(texts)), len(texts)), np.int32).astype(np.int64)


def identities(ids: pa.Array, *, given: bool) -> pa.Array:
    """What of ids tells what a row is: all of those that a column says, else what comes from the row."""
    return ids if given else pc.utf8_slice_codeunits(ids, 0, ID_DIGITS)


def split(batch: pa.RecordBatch, topic: str) -> "Mapping[str | None, npt.NDArray[np.int64]]":
    """The rows of each topic; None for those without one. `topic` is where all go."""
    if topic:
        return {topic: np.arange(batch.num_rows)}
    column = _plain(batch.column(batch.schema.get_field_index("topic"))).dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found: dict[str | None, npt.NDArray[np.int64]] = {
        name: np.flatnonzero(codes == code) for code, name in enumerate(column.dictionary.to_pylist())
    }
    if column.null_count:
        found[None] = np.flatnonzero(codes == -1)
    return found


def _plain(column: pa.Array) -> pa.Array:
    """Text and bytes with 32-bit offsets, as the core reads them."""
    if pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    if pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    return column


def _joined(column: pa.Array) -> pa.Array:
    """Keys as their one text, words between blanks."""
    if not pa.types.is_list(column.type):
        return column
    if column.flatten().null_count:  # which would make the whole text null
        lists = column.to_pylist()
        return pa.array([words and " ".join(word for word in words if word) for words in lists], pa.string())
    # Lists that can't hold a null are another type, for which there is no such function.
    return pc.binary_join(column.cast(pa.list_(pa.string())), " ")


def _milliseconds(times: pa.Array) -> pa.Array:
    """Time stamps as texts of whole milliseconds, rounded up: no message may come before its time."""
    microseconds = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.divide(pc.add(microseconds, 999), 1000).cast(pa.string())


def _buffers(column: pa.Array) -> "Column":
    validity, offsets, data = column.buffers()
    return validity, offsets, data, column.offset


def _map(column: pa.Array) -> "tuple[Column, Column, Column]":
    validity, offsets = column.buffers()[:2]
    return (validity, offsets, None, column.offset), _buffers(_plain(column.keys)), _buffers(_plain(column.items))
