"""Columns of a write: which there may be, and what becomes of a row."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rockmq.base.errors import ConfigError
from rockmq.client.queues import hashed
from rockmq.client.routes import Target as Place
from rockmq.protocol import properties
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import decode_batch
from rockmq.spark.target import RUN_ROWS, Found, Target
from rockmq.spark.write_columns import BATCH_BYTES, Rows, check_schema, identities, split
from rockmq.spark.write_options import WriteOptions

OPTIONS = WriteOptions(name_server="a:1", topic="orders", delivery="atLeastOnce")
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
PROPERTIES = pa.map_(pa.string(), pa.string())


def rows(dedup_key: str = "", size_max: int = 1 << 20, seed: bytes = b"s", **columns: pa.Array) -> Rows:
    return Rows(pa.record_batch(columns), seed=seed, first=0, dedup_key=dedup_key, size_max=size_max)


def text(*values: Any) -> pa.Array:
    return pa.array(values, pa.string())


def in_queues(*numbers: int) -> "np.ndarray[Any, np.dtype[np.int32]]":
    return np.array(numbers, np.int32)


def messages(body: bytes) -> list[tuple[bytes, dict[str, str]]]:
    return [(plain, properties.decode(carried)) for _, plain, carried in decode_batch(body)]


def test_every_column_travels_as_it_is_meant_to() -> None:
    given = rows(
        topic=text("orders", "orders"),
        body=pa.array([b"\x00\xff", b"b"], pa.binary()),
        tags=text("paid", None),
        keys=pa.array([["a", None, "b"], None], pa.list_(pa.string())),
        shardingKey=text("s1", None),
        properties=pa.array([[("grüße", "你好"), ("TAGS", "hidden"), ("CLUSTER", "x"), ("none", None)], None], PROPERTIES),
        queue=pa.array([None, 1], pa.int32()),
    )

    encoded = given.encode(in_queues(0, 0))

    assert encoded.faults == []
    ((queue, count, body),) = encoded.batches
    assert (queue, count) == (0, 2)
    first, second = messages(body)
    ids = encoded.ids.to_pylist()
    assert first == (
        b"\x00\xff",
        {"grüße": "你好", "KEYS": "a b", "TAGS": "paid", "__SHARDINGKEY": "s1", "UNIQ_KEY": ids[0]},
    )
    assert second == (b"b", {"UNIQ_KEY": ids[1]})


def test_keys_are_one_text_whatever_their_list_may_hold() -> None:
    for word in (pa.field("element", pa.string(), nullable=False), pa.field("element", pa.large_string())):
        lists = pa.array([["a"], ["a", "b"], None, ["c", "d"], []], pa.list_(word)).slice(1)
        given = rows(body=text(*["b"] * 4), keys=lists)

        ((_, _, body),) = given.encode(in_queues(0, 0, 0, 0)).batches

        assert [carried.get("KEYS") for _, carried in messages(body)] == ["a b", None, "c d", None]


def test_a_body_may_be_text_and_large() -> None:
    given = rows(body=pa.array(["grüße", "你好"], pa.large_string()))

    ((_, _, body),) = given.encode(in_queues(0, 0)).batches

    assert [plain.decode() for plain, _ in messages(body)] == ["grüße", "你好"]


def test_pieces_of_columns_are_read_where_they_begin() -> None:
    whole = pa.record_batch(
        {
            "body": text("a", "b", "c", "d"),
            "tags": text("1", None, "3", None),
            "properties": pa.array([[("n", "a")], [("n", "b")], [("n", "c"), ("m", "c")], []], PROPERTIES),
        }
    )
    given = Rows(whole.slice(1, 3), seed=b"", first=0, dedup_key="", size_max=1000)

    ((_, _, body),) = given.encode(in_queues(0, 0, 0)).batches

    found = [(plain, carried.get("TAGS"), carried.get("n"), carried.get("m")) for plain, carried in messages(body)]
    assert found == [(b"b", None, "b", None), (b"c", "3", "c", "c"), (b"d", None, None, None)]


def test_large_batches_are_cut() -> None:
    given = rows(body=pa.array([b"x" * 100_000] * 12, pa.binary()))

    batches = given.encode(in_queues(*[0] * 12)).batches

    assert [count for _, count, _ in batches] == [10, 2]
    assert all(len(body) <= BATCH_BYTES for _, _, body in batches)


def test_a_batch_is_no_larger_than_a_message_may_be() -> None:
    given = rows(size_max=350_000, body=pa.array([b"x" * 100_000] * 7, pa.binary()))

    assert [count for _, count, _ in given.encode(in_queues(*[0] * 7)).batches] == [3, 3, 1]


def test_what_cannot_be_sent_says_why() -> None:
    given = rows(
        size_max=1_100,
        body=text("b", None, "", "x" * 2_000, "b", "b", "b"),
        properties=pa.array([[("n", "v" * 40_000)], [], [], [], [("DELAY", "3")], [("n", "\x01")], [("", "v")]], PROPERTIES),
    )

    encoded = given.encode(in_queues(*[0] * 7))

    assert encoded.batches == []
    reasons = dict(encoded.faults)
    assert "its properties take 400" in reasons[0]
    assert reasons[1] == "the body is null"
    assert reasons[2] == "the body is empty"
    assert "the bound is 1100" in reasons[3]
    assert reasons[4] == 'property "DELAY" is for brokers'
    assert reasons[5] == 'property "n" holds a separator (0x01 or 0x02)'
    assert reasons[6] == "a property has no name"


def test_a_row_for_later_has_its_time_rounded_up() -> None:
    times = pa.array([datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC"))
    given = rows(body=text("later", "now"), deliverAt=times)

    assert given.timed().tolist() == [True, False]
    ((queue, count, body),) = given.encode(in_queues(2, -1), alone=True).batches

    assert (queue, count) == (2, 1)
    ((_, carried),) = messages(body)
    assert carried["TIMER_DELIVER_MS"] == str(1_893_456_000_001)


def test_ids_come_from_rows_or_from_a_column() -> None:
    same = text("same", "same", "other")

    made = rows(body=same).encode(in_queues(0, 1, 2)).ids
    given = rows(body=same, id=pa.array([7, 8, None], pa.int64()), dedup_key="id")

    kinds = identities(made, given=False).to_pylist()
    assert kinds[0] == kinds[1] != kinds[2]
    assert len(set(made.to_pylist())) == 3
    assert rows(body=same, seed=b"another").encode(in_queues(0, 1, 2)).ids[0] != made[0]
    assert identities(given.encode(in_queues(0, 0, 0)).ids, given=True).to_pylist() == ["7", "8", None]
    assert given.without_id().tolist() == [2]
    assert rows(body=same, id=text("a", "", None), dedup_key="id").without_id().tolist() == [1, 2]


def test_rows_are_told_apart_by_topic() -> None:
    batch = pa.record_batch({"topic": text("a", None, "b", "a"), "body": text("1", "2", "3", "4")})

    assert {topic: numbers.tolist() for topic, numbers in split(batch, "").items()} == {"a": [0, 3], "b": [2], None: [1]}
    assert {topic: numbers.tolist() for topic, numbers in split(batch, "c").items()} == {"c": [0, 1, 2, 3]}


# Queues


def test_keys_choose_the_queue_that_javas_clients_choose() -> None:
    keys = ["", "a", "order-17", "标签", "polygenelubricants", "x" * 300]
    places = [Place(queue, str(queue.queue_id), queue.broker_name, "a:1") for queue in QUEUES]

    chosen, faults = Target("orders", QUEUES, 0).choose(rows(body=text(*keys), shardingKey=text(*keys)))

    assert [QUEUES[number] for number in chosen] == [hashed(key)(places, None).queue for key in keys]
    assert faults == []


def test_rows_without_a_key_take_turns_in_runs() -> None:
    target = Target("orders", QUEUES, 1)
    few, many = rows(body=text(*["b"] * 10)), rows(body=text(*["b"] * (8 * RUN_ROWS)))

    first, _ = target.choose(few)
    second, _ = target.choose(many)

    assert set(first) == {1}
    assert np.bincount(second).tolist() == [2 * RUN_ROWS] * 4
    assert second[0] == 2
    assert (np.diff(second) != 0).sum() == 3


def test_a_row_may_say_its_queue() -> None:
    given = rows(body=text("a", "b", "c", "d"), queue=pa.array([3, 4, -1, None], pa.int32()), shardingKey=text(*["k"] * 4))

    chosen, faults = Target("orders", QUEUES, 0).choose(given)

    places = [Place(queue, "", queue.broker_name, "") for queue in QUEUES]
    assert chosen.tolist() == [3, -1, -1, hashed("k")(places, None).queue.queue_id]
    assert faults == [(1, "queue 4 isn't among the 4 of orders"), (2, "queue -1 isn't among the 4 of orders")]


def test_of_equal_rows_as_many_are_found_as_are_stored() -> None:
    found = Found(Counter(a=2, b=1))

    assert found.take(text("x", None)).tolist() == [False, False]
    assert found.take(text("a", "c", "b")).tolist() == [True, False, True]
    assert found.take(text("a", "a", "b")).tolist() == [True, False, False]


# Schemas


def schema_of(ddl: str) -> StructType:
    """As Spark reads it, which needs a session."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


@pytest.mark.parametrize(
    ("ddl", "options", "words"),
    [
        ("value binary", {}, "a write has no column 'value'; the columns are: topic string, body binary or string"),
        ("body binary, keys int", {}, "column 'keys' is int: expected string or array<string>"),
        ("body binary, deliverAt bigint", {}, "column 'deliverAt' is bigint: expected timestamp"),
        ("body binary, properties map<string,int>", {}, "is map<string,int>: expected map<string,string>"),
        ("tags string", {}, "a write needs the column 'body'"),
        ("body binary", {"topic": ""}, "a write needs the option 'topic', or a column 'topic'"),
        (
            "body binary",
            {"dedup_key": "id"},
            "option 'dedupKey' names column 'id': expected one that is string",
        ),
        ("body binary, keys int", {"dedup_key": "keys"}, "column 'keys' is int: expected string or array<string>"),
        ("body binary, id double", {"dedup_key": "id"}, "column 'id' is double: expected string or int or bigint"),
        ("body binary, deliverAt timestamp", {"delivery": "transactional"}, "column 'deliverAt' can't be with"),
    ],
)
def test_a_schema_that_does_not_fit_names_the_column(
    spark: SparkSession, ddl: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        check_schema(schema_of(ddl), WriteOptions(name_server="a:1", **{"topic": "orders", **options}))

    assert words in str(raised.value)


def test_a_schema_that_fits(spark: SparkSession) -> None:
    whole = "topic string, body string, tags string, keys array<string>, shardingKey string, properties map<string,string>, "
    whole += "deliverAt timestamp, queue int, id bigint"
    check_schema(schema_of(whole), WriteOptions(name_server="a:1", dedup_key="id"))
