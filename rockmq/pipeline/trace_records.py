"""Bodies of message trace as columns (TraceDataEncoder.java; clients' spec, 2.10).

A record is text: its fields with 0x01 between them and 0x02 behind the last. Which field means what depends on the first,
and on how many there are: older clients tell less. All bodies of a batch are taken apart at once, without an object per
record. What isn't a record of these kinds, or has no number where one belongs, keeps its text, and has a `reason`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rockmq.client.trace import FIELD_END, RECORD_END
from rockmq.pipeline.ledgers import TIME_MS_MAX

_FIELDS_MAX = 16
"""Fields that are looked at; of those behind them nothing is known."""


class _Kind(NamedTuple):
    """Columns by place, and how many fields there are at least."""

    columns: Mapping[str, int]
    least: int


_KINDS = {
    "Pub": _Kind(
        {
            "time_ms": 1, "region": 2, "group": 3, "topic": 4, "msg_id": 5, "tags": 6, "keys": 7, "host": 8, "size": 9,
            "cost_ms": 10, "message_kind": 11,
        },
        13,
    ),
    "SubBefore": _Kind(
        {"time_ms": 1, "region": 2, "group": 3, "request_id": 4, "msg_id": 5, "retries": 6, "keys": 7}, 8
    ),
    "SubAfter": _Kind(
        {"request_id": 1, "msg_id": 2, "cost_ms": 3, "success": 4, "keys": 5, "code": 6, "time_ms": 7, "group": 8}, 6
    ),
    "EndTransaction": _Kind(
        {
            "time_ms": 1, "region": 2, "group": 3, "topic": 4, "msg_id": 5, "tags": 6, "keys": 7, "host": 8,
            "message_kind": 9, "state": 11,
        },
        13,
    ),
    "Recall": _Kind({"time_ms": 1, "region": 2, "group": 3, "topic": 4, "msg_id": 5, "success": 6}, 7),
}  # fmt: skip

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("time_ms", pa.int64()),
        ("region", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("msg_id", pa.string()),
        ("request_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("host", pa.string()),
        ("size", pa.int32()),
        ("cost_ms", pa.int64()),
        ("message_kind", pa.int32()),
        ("success", pa.bool_()),
        ("retries", pa.int32()),
        ("code", pa.int32()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("text", pa.string()),
    ]
)
"""A row of `decode`; `text` is the record itself where there is a `reason` why it is none. Times are the clients'."""
DDL = ", ".join(
    f"`{field.name}` {({pa.int64(): 'bigint', pa.int32(): 'int', pa.bool_(): 'boolean'}).get(field.type, 'string')}"
    for field in SCHEMA
)
"""The same for Spark."""

_NEEDED = {
    "Pub": ("time_ms", "group", "topic", "msg_id", "cost_ms"),
    "SubBefore": ("time_ms", "group", "request_id", "msg_id", "retries"),
    "SubAfter": ("request_id", "msg_id", "cost_ms"),
    "EndTransaction": ("time_ms", "group", "topic", "msg_id"),
    "Recall": ("time_ms", "group", "topic", "msg_id"),
}
_DIGITS = {pa.int64(): r"\A-?[0-9]{1,18}\z", pa.int32(): r"\A-?[0-9]{1,9}\z"}
_RANGES = {"time_ms": (0, TIME_MS_MAX), "cost_ms": (-(2**31), 2**31 - 1)}
"""A time that a clock may have, and what Java's client has room for."""


def decode(bodies: pa.Array) -> pa.RecordBatch:
    """The records of trace messages, given as binary, in order."""
    texts = _texts(bodies)
    records = pc.list_flatten(pc.split_pattern(texts, RECORD_END))
    records = records.filter(pc.not_equal(records, ""))
    counts = pc.add(pc.count_substring(records, FIELD_END), 1)
    padded = pc.binary_join_element_wise(records, FIELD_END * _FIELDS_MAX, "")
    split = pc.split_pattern(padded, FIELD_END, max_splits=_FIELDS_MAX)
    fields = [pc.list_element(split, place) for place in range(_FIELDS_MAX)]
    made = {field.name: pa.nulls(len(records), field.type) for field in SCHEMA}
    kinds = fields[0]
    reason = pc.if_else(pc.is_in(kinds, value_set=pa.array(list(_KINDS))), pa.scalar(None, pa.string()), "no kind of record")
    for name, kind in _KINDS.items():
        here = pc.equal(kinds, name)
        if not pc.any(here).as_py():
            continue
        reason = pc.if_else(pc.and_(here, pc.less(counts, kind.least)), "it has too few fields", reason)
        for column, place in kind.columns.items():
            value = _value(fields[place], SCHEMA.field(column).type)
            if column in _RANGES:
                least, most = _RANGES[column]
                in_range = pc.and_(pc.greater_equal(value, least), pc.less_equal(value, most))
                value = pc.if_else(in_range, value, pa.scalar(None, value.type))
            made[column] = pc.if_else(here, value, made[column])
        for column in _NEEDED[name]:
            missing = pc.and_(pc.and_(here, pc.is_null(reason)), pc.is_null(made[column]))
            reason = pc.if_else(missing, f"its {column} is none", reason)
    # Whether the broker has stored it for good stands last, but for the client's address behind it in newer ones.
    is_pub = pc.equal(kinds, "Pub")
    stored_well = pc.if_else(pc.equal(counts, 13), fields[12], fields[13])
    made["success"] = pc.if_else(is_pub, pc.equal(stored_well, "true"), made["success"])
    made["kind"], made["reason"] = kinds, reason
    made["text"] = pc.if_else(pc.is_null(reason), pa.scalar(None, pa.string()), records)
    return pa.RecordBatch.from_arrays([made[name] for name in SCHEMA.names], schema=SCHEMA)


def _texts(bodies: pa.Array) -> pa.Array:
    """As text; one that isn't UTF-8 becomes a text that is no record."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if body is None else body.decode("utf-8", "replace") for body in bodies.to_pylist()])


def _value(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Null where the text is `null` or empty, or is none of that type."""
    if kind == pa.string():
        absent = pc.is_in(texts, value_set=pa.array(["null", ""]))
        return pc.if_else(absent, pa.scalar(None, pa.string()), texts)
    if kind == pa.bool_():
        said = pc.is_in(texts, value_set=pa.array(["true", "false"]))
        return pc.if_else(said, pc.equal(texts, "true"), pa.scalar(None, pa.bool_()))
    numeric = pc.match_substring_regex(texts, _DIGITS[kind])
    return pc.if_else(numeric, texts, pa.scalar(None, pa.string())).cast(kind)
