"""From stored records to Arrow columns: every column, and what is odd in what producers send."""

import zlib
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import decode_columns, encode_batch
from rockmq.protocol.compression import Compression, compress
from rockmq.protocol.message import INNER
from rockmq.spark import schema
from rockmq.spark.batch_reader import to_batches
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.pulling import Part
from rockmq.spark.ranges import DataLoss, Range
from rockmq.spark.schema import ARROW, COLUMNS, Records, project
from tests.spark.records import Record, encode

SPARK_TYPES: dict[str, DataType] = {
    each.simpleString(): each
    for each in (StringType(), IntegerType(), LongType(), BinaryType(), TimestampType(), MapType(StringType(), StringType()))
}
QUEUE = MessageQueue("orders", "broker-a", 3)


def batches(*records: Record, start: int = 0, end: int | None = None, **options: str) -> list[pa.RecordBatch]:
    stop = len(records) + start if end is None else end
    part = Part(start, stop, encode(*records))
    return list(to_batches([part], Range(QUEUE, start, stop), given(**options), ARROW))


def given(**options: str) -> ReadOptions:
    return parse({"nameServer": "a:1", "topic": "orders", **options})


def spark_schema(**columns: str) -> StructType:
    return StructType([StructField(name, SPARK_TYPES[kind]) for name, kind in columns.items()])


def offsets(found: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in found for offset in batch.column("queueOffset").to_pylist()]


def test_arrow_types_are_those_that_spark_makes_of_its_own() -> None:
    ours = spark_schema(**{name: column.spark for name, column in COLUMNS.items()})

    assert to_arrow_schema(ours, timezone="UTC").equals(ARROW)


def test_a_record_becomes_a_row() -> None:
    record = Record(
        queue_offset=7,
        queue_id=3,
        position=4_711,
        body=b"\x00\xff",
        reconsume_times=2,
        sys_flag=8,
        properties={"UNIQ_KEY": "7F0001", "KEYS": "a b", "TAGS": "red", "__SHARDINGKEY": "s", "mine": "grüß dich"},
    )

    (batch,) = batches(record, start=7)

    (row,) = batch.to_pylist()
    assert batch.schema.equals(ARROW)
    assert dict(row.pop("properties")) == record.properties
    assert row == {
        "topic": "orders",
        "broker": "broker-a",
        "queueId": 3,
        "queueOffset": 7,
        "msgId": "7F0001",
        "keys": "a b",
        "tags": "red",
        "shardingKey": "s",
        "body": b"\x00\xff",
        "bornTimestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "storeTimestamp": datetime(2023, 11, 14, 22, 13, 20, 456_000, tzinfo=UTC),
        "bornHost": "127.0.0.1:4321",
        "reconsumeTimes": 2,
        "sysFlag": 8,
        "commitLogOffset": 4_711,
    }


def test_what_a_message_has_not_is_null() -> None:
    (batch,) = batches(Record(queue_offset=0, position=0x1234))

    (row,) = batch.to_pylist()
    assert (row["keys"], row["tags"], row["shardingKey"], row["properties"]) == (None, None, None, [])
    assert row["msgId"] == "7F000001" + "00002A9F" + "0000000000001234"


def test_rows_keep_their_own_properties() -> None:
    records = [Record(queue_offset=at, properties={f"k{i}": str(at) for i in range(at % 4)}) for at in range(40)]

    (batch,) = batches(*records)

    assert [dict(each) for each in batch.column("properties").to_pylist()] == [each.properties for each in records]
    batch.validate(full=True)


def test_a_time_stamp_out_of_every_calendar_is_null() -> None:
    records = [Record(queue_offset=at, born_timestamp=time) for at, time in enumerate((2**63 - 1, -(2**63), 0))]

    (batch,) = batches(*records)

    assert batch.column("bornTimestamp").to_pylist() == [None, None, datetime(1970, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize("kind", list(Compression))
def test_compressed_bodies_are_decompressed(kind: Compression) -> None:
    plain = b"much of the same " * 1_000
    packed = Record(queue_offset=1, body=compress(kind, plain), sys_flag=kind.flags)

    (batch,) = batches(Record(queue_offset=0, body=b"small"), packed)

    assert batch.column("body").to_pylist() == [b"small", plain]


def test_zlib_is_what_old_clients_mean_without_a_kind() -> None:
    (batch,) = batches(Record(queue_offset=0, body=zlib.compress(b"old"), sys_flag=1))

    assert batch.column("body").to_pylist() == [b"old"]


def test_a_broken_body_is_an_error_or_stays_as_stored() -> None:
    records = [Record(queue_offset=0), Record(queue_offset=1, body=b"no zlib", sys_flag=1)]

    with pytest.raises(ProtocolError, match="orders/broker-a/3, row 1 from offset 0 on"):
        batches(*records)
    (batch,) = batches(*records, failOnDataLoss="false")
    assert batch.column("body").to_pylist() == [b"body", b"no zlib"]


def inner(offset: int, count: int, kind: Compression | None = None) -> Record:
    """A record with the messages `offset` … `offset` + `count` - 1."""
    parts = ((0, b"%d" % at, b"UNIQ_KEY\x01U%d\x02TAGS\x01t%d\x02" % (at, at % 2)) for at in range(offset, offset + count))
    body = encode_batch(parts)
    flags = INNER if kind is None else INNER | kind.flags
    said = {"UNIQ_KEY": "whole", "INNER_NUM": str(count), "INNER_BASE": str(offset)}
    packed = body if kind is None else compress(kind, body)
    return Record(queue_offset=offset, position=offset * 1000, body=packed, sys_flag=flags, properties=said)


@pytest.mark.parametrize("kind", [None, *Compression])
def test_an_inner_batch_has_a_row_for_each_message(kind: Compression | None) -> None:
    records = [Record(queue_offset=0), inner(1, 3, kind), Record(queue_offset=4), inner(5, 2, kind)]

    (batch,) = batches(*records, end=7)

    assert batch.column("queueOffset").to_pylist() == list(range(7))
    assert batch.column("body").to_pylist() == [b"body", b"1", b"2", b"3", b"body", b"5", b"6"]
    assert batch.column("msgId").to_pylist()[1:4] == ["U1", "U2", "U3"]
    assert batch.column("tags").to_pylist()[1:4] == ["t1", "t0", "t1"]
    assert dict(batch.column("properties").to_pylist()[2]) == {"UNIQ_KEY": "U2", "TAGS": "t0"}
    assert batch.column("commitLogOffset").to_pylist()[1:4] == [1000] * 3
    assert set(batch.column("sysFlag").to_pylist()) == {0}
    batch.validate(full=True)


def test_ranges_begin_and_end_within_an_inner_batch() -> None:
    parts = [Part(3, 6, encode(inner(1, 5))), Part(6, 8, encode(inner(6, 1), inner(7, 3))), Part(8, 9, encode(inner(7, 3)))]

    found = list(to_batches(parts, Range(QUEUE, 3, 9), given(), ARROW))

    assert offsets(found) == [3, 4, 5, 6, 7, 8]
    assert offsets(list(to_batches(parts, Range(QUEUE, 3, 9), given(tags="t0"), ARROW))) == [4, 6, 8]


@pytest.mark.parametrize("flags", [INNER, INNER | Compression.ZLIB.flags])
def test_a_broken_inner_batch_is_an_error_or_stays_as_stored(flags: int) -> None:
    records = [Record(queue_offset=0), Record(queue_offset=1, body=b"no batch", sys_flag=flags)]

    with pytest.raises(ProtocolError, match="orders/broker-a/3: inner batch at offset 1"):
        batches(*records, end=4)
    (batch,) = batches(*records, end=4, failOnDataLoss="false")
    assert batch.column("body").to_pylist() == [b"body", b"no batch"]


def test_large_bodies_go_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BODIES_SIZE_MAX", 2_500)
    body = zlib.compress(b"x" * 1_000)

    found = batches(*(Record(queue_offset=at, body=body, sys_flag=1) for at in range(5)))

    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert offsets(found) == list(range(5))


def test_tags_that_only_share_a_hash_are_left_out() -> None:
    # "Aa" and "BB" have the same Java hash code.
    tags = ["Aa", "BB", None, "other", "Aa"]
    records = [Record(queue_offset=at, properties={"TAGS": tag} if tag else {}) for at, tag in enumerate(tags)]

    assert offsets(batches(*records, tags="Aa")) == [0, 4]
    assert offsets(batches(*records, tags="Aa || other")) == [0, 3, 4]


def test_messages_beyond_the_range_are_cut_off() -> None:
    records = [Record(queue_offset=at, properties={"TAGS": "a"}) for at in range(10)]

    assert offsets(batches(*records, end=6)) == list(range(6))
    assert offsets(batches(*records, end=6, tags="a")) == list(range(6))


def test_messages_that_came_twice_are_there_once() -> None:
    twice = [Record(queue_offset=at) for at in (0, 1, 2, 3, 2, 3, 4, 5)]

    assert offsets(batches(*twice, end=6)) == list(range(6))


def test_a_gap_is_an_error_unless_loss_is_accepted() -> None:
    records = [Record(queue_offset=at) for at in (0, 1, 4, 5)]

    with pytest.raises(DataLoss, match="orders/broker-a/3 has no message at offset 2"):
        batches(*records, end=6)
    assert offsets(batches(*records, end=6, failOnDataLoss="false")) == [0, 1, 4, 5]


def test_a_missing_end_is_an_error() -> None:
    with pytest.raises(DataLoss, match="no message at offset 2"):
        batches(Record(queue_offset=0), Record(queue_offset=1), end=3)


def test_records_that_make_no_sense_are_told_with_their_queue() -> None:
    part = Part(0, 1, b"\x00\x00\x00\x20 nothing of ours")

    with pytest.raises(ProtocolError, match="orders/broker-a/3 from 0 on"):
        list(to_batches([part], Range(QUEUE, 0, 1), given(), ARROW))


def test_a_user_may_name_fewer_columns() -> None:
    wanted = project(spark_schema(body="binary", queueOffset="bigint"))
    records = Records(decode_columns(encode(Record(queue_offset=5))), "broker-a")

    assert records.batch(wanted).to_pylist() == [{"body": b"body", "queueOffset": 5}]


@pytest.mark.parametrize(
    ("name", "words"),
    [("offset", "there is no column 'offset'"), ("queueId", "column 'queueId' is int, not bigint")],
)
def test_other_columns_are_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        project(spark_schema(**{name: "bigint"}))


def test_spark_and_arrow_name_the_same_columns() -> None:
    assert list(COLUMNS) == ARROW.names
