"""Reading topics of a real server with Spark."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rockmq.base.errors import RouteNotFound
from rockmq.client import Client, Message
from rockmq.protocol import codec
from rockmq.protocol.codec import encode_batch
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.remoting.client import RemotingClient
from rockmq.spark.schema import COLUMNS
from tests.support import cluster
from tests.support.cluster import Cluster

Topic = Callable[..., str]
Read = Callable[..., DataFrame]


def numbered(count: int, size: int = 0, **more: Any) -> list[Message]:
    """Messages whose bodies begin with their number."""
    return [Message("", b"%d " % number + b"x" * size, **more) for number in range(count)]


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """(queue id, offset) of every row, sorted."""
    return sorted((row.queueId, row.queueOffset) for row in frame.select("queueId", "queueOffset").collect())


def every(**counts: int) -> list[tuple[int, int]]:
    return [(int(queue[1:]), offset) for queue, count in counts.items() for offset in range(count)]


def test_a_message_becomes_a_row(topic: Topic, read: Read, server: Cluster) -> None:
    sent = Message("", b"\x00\xff", tag="paid", keys=["a", "b"], properties={"grüße": "dich 你好", "__SHARDINGKEY": "s1"})
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=60)

    name = topic({1: [sent]})
    frame = read(name)
    (row,) = frame.collect()

    assert frame.columns == list(COLUMNS)
    assert (row.topic, row.broker, row.queueId, row.queueOffset) == (name, cluster.broker_name(server), 1, 0)
    assert (bytes(row.body), row.tags, row["keys"], row.shardingKey) == (b"\x00\xff", "paid", "a b", "s1")
    assert row.properties["grüße"] == "dich 你好"
    assert row.msgId == row.properties["UNIQ_KEY"]
    assert (row.reconsumeTimes, row.sysFlag) == (0, 0)
    assert row.bornHost.startswith("127.0.0.1:")
    assert before < row.bornTimestamp <= row.storeTimestamp + timedelta(seconds=1)
    assert row.commitLogOffset >= 0


def test_every_message_is_read_once(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(3_000), 1: numbered(1), 3: numbered(12_345)})

    frame = read(name)

    assert places(frame) == every(q0=3_000, q1=1, q3=12_345)
    assert frame.where("int(split(decode(body, 'utf-8'), ' ')[0]) != queueOffset").count() == 0


def test_a_queue_is_read_in_order_by_one_task(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(2_000), 1: numbered(2_000)})

    frame = read(name)

    assert frame.rdd.getNumPartitions() == 2
    offsets = [row.queueOffset for row in frame.select("queueOffset").collect()]
    assert offsets == [*range(2_000), *range(2_000)]


def test_offsets_in_json_are_exact(topic: Topic, read: Read, server: Cluster) -> None:
    name = topic({0: numbered(100), 1: numbered(100)})
    broker = cluster.broker_name(server)

    frame = read(
        name,
        startingOffsets=json.dumps({name: {broker: {"0": 10, "1": -1}}}),
        endingOffsets=json.dumps({name: {broker: {"0": 60}}}),
    )

    assert places(frame) == [(0, offset) for offset in range(10, 60)]


def test_batches_that_are_stored_whole_are_read_as_their_messages(
    read: Read, server: Cluster, unique: Callable[[str], str]
) -> None:
    """queue.type=BatchCQ: pulls give whole records, also to who begins or ends within one."""
    name = unique("spark")
    asyncio.run(fill_batch_queue(server, name, sizes=[3, 1, 250, 40, 7] * 8))

    frame = read(name)
    small = read(name, maxRecordsPerPartition="17", pullBatchSize="10")
    wanted = {"startingOffsets": 2, "endingOffsets": 300}
    part = read(name, **{key: json.dumps({name: {cluster.broker_name(server): {"0": at}}}) for key, at in wanted.items()})

    assert [(row.queueOffset, bytes(row.body), row.msgId) for row in frame.collect()] == [
        (number, b"%d" % number, f"U{number}") for number in range(8 * 301)
    ]
    assert places(small) == places(frame) == every(q0=8 * 301)
    assert places(part) == [(0, offset) for offset in range(2, 300)]


async def fill_batch_queue(server: Cluster, topic: str, sizes: list[int]) -> None:
    """Create the topic with one batch queue, and send inner batches of numbered messages."""
    async with Client(server.namesrv) as mq:
        remote = RemotingClient()
        create = CreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            attributes="+queue.type=BatchCQ",
        )
        await remote.ask(server.broker, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, create), 10)
        number = 0
        for size in sizes:
            parts = ((0, b"%d" % each, b"UNIQ_KEY\x01U%d\x02" % each) for each in range(number, number + size))
            header = SendMessageV2(
                producer_group="spark-tests",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=1,
                queue_id=0,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties=f"UNIQ_KEY\x01whole {number}\x02",
                batch=True,
            )
            request = codec.request(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(parts))
            await remote.ask(server.broker, request, 10)
            number += size
        await remote.close()
        async with asyncio.timeout(60):
            while not await routed(mq, topic):
                await asyncio.sleep(0.2)


async def routed(mq: Client, topic: str) -> bool:
    try:
        return bool(await mq.queues(topic))
    except RouteNotFound:
        return False


def test_latest_to_latest_is_nothing(topic: Topic, read: Read) -> None:
    assert read(topic({0: numbered(10)}), startingOffsets="latest").count() == 0


def test_an_empty_topic_is_an_empty_table(topic: Topic, read: Read) -> None:
    assert read(topic(queues=3)).collect() == []


def test_queues_are_cut_when_more_tasks_are_asked_for(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(1_000), 1: numbered(100)})

    many = read(name, minPartitions="8")
    small = read(name, maxRecordsPerPartition="300")

    assert many.rdd.getNumPartitions() >= 8
    assert small.rdd.getNumPartitions() == 5
    assert places(many) == places(small) == every(q0=1_000, q1=100)


def test_several_topics_at_once(topic: Topic, read: Read) -> None:
    one, two = topic({0: numbered(3)}), topic({0: numbered(4)})

    counts = {row.topic: row["count"] for row in read(f"{one},{two}").groupBy("topic").count().collect()}

    assert counts == {one: 3, two: 4}


def test_tags_are_compared_by_their_text(topic: Topic, read: Read) -> None:
    # "Aa" and "BB" have the same Java hash code, by which a broker compares.
    tags = ["Aa", "BB", "other", None]
    name = topic({0: [Message("", b"%d" % number, tag=tags[number % 4]) for number in range(4_000)]})

    assert places(read(name, tags="Aa")) == [(0, offset) for offset in range(0, 4_000, 4)]
    assert read(name, tags="Aa || other", maxRecordsPerPartition="123").count() == 2_000


def test_compressed_bodies_are_read_as_sent(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(20, size=10_000)})

    rows = read(name).orderBy("queueOffset").collect()

    assert [bytes(row.body) for row in rows] == [b"%d " % number + b"x" * 10_000 for number in range(20)]
    assert all(row.sysFlag & 1 for row in rows)


def test_large_messages_fill_several_batches(topic: Topic, read: Read) -> None:
    noise = bytes(number * 7919 % 251 for number in range(700_000))
    name = topic({0: [Message("", b"%d " % number + noise) for number in range(30)]})

    rows = read(name).selectExpr("queueOffset", "length(body) size").collect()

    assert [row.queueOffset for row in rows] == list(range(30))
    assert all(row.size >= 700_000 for row in rows)


def test_pulls_may_be_small(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(500)})

    assert places(read(name, pullBatchSize="7")) == every(q0=500)


def test_fewer_columns_in_any_order(spark: SparkSession, topic: Topic, server: Cluster) -> None:
    name = topic({0: numbered(10)})

    reader = spark.read.format("rockmq").schema("body binary, queueOffset long, tags string")
    frame = reader.option("nameServer", server.namesrv).option("topic", name).load()

    assert frame.columns == ["body", "queueOffset", "tags"]
    assert [row.queueOffset for row in frame.collect()] == list(range(10))


def test_columns_that_are_chosen_are_the_table(topic: Topic, read: Read) -> None:
    name = topic({0: [*numbered(5, tag="a"), *numbered(5, tag="b")], 1: numbered(3, size=10_000)})

    frame = read(name, columns="storeTimestamp, queueOffset,queueId", tags="b")

    assert frame.columns == ["storeTimestamp", "queueOffset", "queueId"]
    assert places(frame) == [(0, offset) for offset in range(5, 10)]
    assert read(name, columns="queueId").count() == 13
    with pytest.raises(PySparkException, match="option 'columns': there is no column 'offset'"):
        read(name, columns="offset")


def test_json_bodies_become_columns(topic: Topic, read: Read) -> None:
    said = [b'{"id": 1, "who": {"name": "a"}}', b"no json", b'{"id": 2, "tags": ["x", "y"]}', b'{"id": "three"}']
    name = topic({0: [Message("", body) for body in said], 1: [Message("", b'{"id": 9, "x": "%s"}' % (b"long" * 5_000))]})
    asked = "id bigint, who struct<name: string>, tags array<string>"

    frame = read(name, jsonSchema=asked, columns="queueId,queueOffset")

    assert frame.columns == ["queueId", "queueOffset", "json"]
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert [row.json and row.json.id for row in rows] == [1, None, 2, None, 9]
    assert (rows[0].json.who.name, rows[2].json.tags) == ("a", ["x", "y"])
    assert frame.where("json.id > 1").count() == 2
    with pytest.raises(PySparkException, match=r"option 'jsonSchema': json\.id is binary"):
        read(name, jsonSchema="id binary").count()


def test_topics_are_found_by_a_pattern(
    spark: SparkSession, topic: Topic, server: Cluster, unique: Callable[[str], str]
) -> None:
    one, two, _ = topic({0: numbered(3)}), topic({0: numbered(4)}), topic({0: numbered(5)})
    reader = spark.read.format("rockmq").option("nameServer", server.namesrv)

    counts = reader.option("topicPattern", f"{one}|{two}").load().groupBy("topic").count().collect()

    assert {row.topic: row["count"] for row in counts} == {one: 3, two: 4}
    with pytest.raises(PySparkException, match=f"option 'topicPattern': no topic with queues matches '{one}.none'"):
        reader.option("topicPattern", f"{one}.none").load().count()


def test_queues_are_chosen(spark: SparkSession, topic: Topic, server: Cluster) -> None:
    name = topic({0: numbered(3), 1: numbered(4), 2: numbered(5)})
    chosen = json.dumps({name: {cluster.broker_name(server): [0, 2]}})

    frame = spark.read.format("rockmq").option("nameServer", server.namesrv).option("queues", chosen).load()

    assert places(frame) == every(q0=3, q2=5)


def test_a_group_s_offsets_are_where_to_begin_and_to_end(topic: Topic, read: Read, server: Cluster) -> None:
    name = topic({0: numbered(10), 1: numbered(10)})
    asyncio.run(commit(server.namesrv, "spark-billing", name, {0: 4}))

    rest = read(name, startingOffsets="groupOffsets", group="spark-billing")
    done = read(name, endingOffsets="groupOffsets", group="spark-billing")

    assert places(rest) == [(0, offset) for offset in range(4, 10)] + [(1, offset) for offset in range(10)]
    assert places(done) == every(q0=4)


async def commit(namesrv: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    async with Client(namesrv) as mq:
        for queue in await mq.queues(topic):
            if queue.queue_id in offsets:
                await mq.commit(group, queue, offsets[queue.queue_id])


def test_times_are_where_to_begin_and_to_end(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(5)})
    time.sleep(0.01)  # so that the others have another time
    topic.send(name, {0: numbered(5)})  # type: ignore[attr-defined]
    stored = [
        round(row.storeTimestamp.replace(tzinfo=UTC).timestamp() * 1000)
        for row in read(name).orderBy("queueOffset").collect()
    ]
    assert stored[4] < stored[5]

    assert places(read(name, startingTimestamp=str(stored[5]))) == [(0, offset) for offset in range(5, 10)]
    assert places(read(name, endingTimestamp=str(stored[5]))) == every(q0=5)
    with pytest.raises(PySparkException, match=f"{name}/.*/0 has no message stored at {stored[9] + 60_000}"):
        read(name, startingTimestamp=str(stored[9] + 60_000)).count()


def test_expressions_select_where_the_messages_are(topic: Topic, read: Read) -> None:
    name = topic({0: [Message("", b"x", properties={"amount": str(number)}) for number in range(3_000)]})

    assert places(read(name, sql="amount BETWEEN 100 AND 110 OR amount = 2999", maxRecordsPerPartition="1000")) == [
        (0, offset) for offset in [*range(100, 111), 2_999]
    ]
    with pytest.raises(PySparkException, match="option 'sql'"):
        read(name, sql="amount >")


def test_filters_are_pushed_into_the_plan(spark: SparkSession, topic: Topic, read: Read) -> None:
    name = topic({0: numbered(1_000), 1: numbered(1_000)})
    setting = "spark.sql.python.filterPushdown.enabled"

    with pytest.raises(PySparkException, match=setting):
        read(name, pushFilters="true").count()
    spark.conf.set(setting, "true")
    try:
        frame = read(name, pushFilters="true").where("queueId = 1 and queueOffset >= 990 and queueOffset != 995")
        times = read(name, pushFilters="true").selectExpr("min(storeTimestamp) low", "max(storeTimestamp) high").first()
        assert times is not None
        some = read(name, pushFilters="true").where(f"storeTimestamp >= timestamp'{times.low}' and queueId in (0, 7)")

        assert places(frame) == [(1, offset) for offset in range(990, 1_000) if offset != 995]
        assert frame.rdd.getNumPartitions() == 1
        assert places(some) == every(q0=1_000)
        assert read(name, pushFilters="true").where(f"storeTimestamp > timestamp'{times.high}'").count() == 0
    finally:
        spark.conf.unset(setting)


def test_a_limit_ends_the_read_early(topic: Topic, read: Read) -> None:
    name = topic({0: numbered(30_000)})

    assert len(read(name).limit(3).collect()) == 3


def test_keys_of_options_have_no_case(spark: SparkSession, topic: Topic, server: Cluster) -> None:
    name = topic({0: numbered(5)})

    assert spark.read.format("RockMQ").option("NAMESERVER", server.namesrv).option("Topic", name).load().count() == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "latest"}, "unknown option 'startingOffset'; did you mean 'startingOffsets'?"),
        ({"minPartitions": "x"}, "option 'minPartitions' is 'x'"),
        ({"topicPattern": "x"}, "options 'topic', 'topicPattern' and 'queues' exclude each other"),
    ],
)
def test_a_wrong_option_fails_at_load(topic: Topic, read: Read, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as raised:
        read("misread", **options)

    assert words.lower() in str(raised.value).lower()


def test_a_topic_that_is_not_there_is_named(read: Read) -> None:
    with pytest.raises(PySparkException, match="no-such-topic"):
        read("no-such-topic").count()


def test_lost_messages_are_an_error_that_names_them(topic: Topic, read: Read, server: Cluster) -> None:
    name = topic({0: numbered(10)})
    beyond = json.dumps({name: {cluster.broker_name(server): {"0": 15}}})

    with pytest.raises(PySparkException, match=f"{name}/.*/0 ends at 10"):
        read(name, endingOffsets=beyond).count()
    assert read(name, endingOffsets=beyond, failOnDataLoss="false").count() == 10
