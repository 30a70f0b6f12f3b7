"""A stream's offsets, limits and losses, asked of a reader as Spark does, with a real server but without Spark."""

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from rockmq.base.errors import ConnectError, RequestTimeout, RouteNotFound
from rockmq.client import Client, Message, MessageQueue
from rockmq.spark.ranges import DataLoss, OffsetTree, Range, from_tree, offset_tree, offsets_json
from rockmq.spark.schema import ARROW
from rockmq.spark.stream_options import parse_stream
from rockmq.spark.stream_reader import StreamReader
from rockmq.spark.watching import KEPT_SECONDS
from tests.spark.conftest import create, fill
from tests.spark.test_batch_read import numbered
from tests.spark.test_batch_reader import COUNT, Expired, expired, offsets
from tests.support import cluster, server
from tests.support.clock import FakeClock
from tests.support.cluster import Cluster
from tests.support.process import LOOPBACK, eventually, free_broker_port, free_port

__all__ = ["expired"]  # a fixture

ALL = ReadAllAvailable()
Topic = Callable[..., str]
Make = Callable[..., StreamReader]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reader(server: Cluster, clock: FakeClock) -> Iterator[Make]:
    """`reader(topic, startingOffsets="earliest", …)`"""
    made: list[StreamReader] = []

    def make(topic: str, namesrv: str = server.namesrv, **options: str) -> StreamReader:
        given = {"nameServer": namesrv, "topic": topic, "startingOffsets": "earliest", **options}
        made.append(StreamReader(parse_stream(given), ARROW, clock))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def queue_offsets(tree: OffsetTree) -> dict[int, int]:
    """Offsets by queue id, of one topic and broker."""
    ((brokers),) = tree.values()
    ((queues),) = brokers.values()
    return {int(queue_id): offset for queue_id, offset in queues.items()}


def ranges(found: StreamReader, start: OffsetTree, end: OffsetTree) -> list[tuple[int, int, int]]:
    wanted = found.partitions(start, end)
    return [(each.queue.queue_id, each.start, each.end) for each in wanted if isinstance(each, Range)]


def test_a_new_query_begins_where_it_is_told(topic: Topic, reader: Make, server: Cluster) -> None:
    name = topic({0: numbered(10), 1: numbered(5)})
    queue = MessageQueue(name, cluster.broker_name(server), 1)

    assert queue_offsets(reader(name).initialOffset()) == {0: 0, 1: 0}
    assert queue_offsets(reader(name, startingOffsets="latest").initialOffset()) == {0: 10, 1: 5}
    assert queue_offsets(reader(name, startingOffsets=offsets_json({queue: 3})).initialOffset()) == {0: 10, 1: 3}
    assert queue_offsets(reader(name, startingTimestamp="1").initialOffset()) == {0: 0, 1: 0}
    with pytest.raises(DataLoss, match=f"{name}/.*/1 ends at 5"):
        reader(name, startingOffsets=offsets_json({queue: 6})).initialOffset()


def test_a_new_query_begins_where_a_group_is(topic: Topic, reader: Make, server: Cluster) -> None:
    name = topic({0: numbered(10), 1: numbered(5)})
    asyncio.run(commit(server.namesrv, "stream-starts", name, {0: 7}))

    found = reader(name, startingOffsets="groupOffsets", group="stream-starts").initialOffset()

    assert queue_offsets(found) == {0: 7, 1: 0}


async def commit(namesrv: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    async with Client(namesrv) as mq:
        for queue in await mq.queues(topic):
            if queue.queue_id in offsets:
                await mq.commit(group, queue, offsets[queue.queue_id])


def test_offsets_have_one_text() -> None:
    one, two, ten = (MessageQueue("orders", "broker-a", number) for number in (1, 2, 10))

    assert offsets_json({ten: 3, one: 1, two: 2}) == '{"orders": {"broker-a": {"1": 1, "2": 2, "10": 3}}}'


def test_a_batch_is_what_came_since_the_last(topic: Topic, reader: Make, clock: FakeClock) -> None:
    name = topic({0: numbered(10), 1: numbered(5)})
    found = reader(name)
    start = found.initialOffset()

    first = found.latestOffset(start, ALL)
    assert found.latestOffset(first, ALL) is first, "nothing new"
    topic.send(name, {0: numbered(1)})  # type: ignore[attr-defined]
    clock.pass_ms(KEPT_SECONDS * 1_000)
    second = found.latestOffset(first, ALL)

    assert queue_offsets(first) == {0: 10, 1: 5}
    assert ranges(found, start, first) == [(0, 0, 10), (1, 0, 5)]
    assert ranges(found, first, second) == [(0, 10, 11)]
    assert ranges(found, first, first) == []


def test_brokers_are_asked_once_a_second(topic: Topic, reader: Make, clock: FakeClock) -> None:
    name = topic({0: numbered(1)})
    found = reader(name)
    start = found.initialOffset()

    topic.send(name, {0: numbered(1)})  # type: ignore[attr-defined]
    assert queue_offsets(found.latestOffset(start, ALL)) == {0: 1}
    assert queue_offsets(found.reportLatestOffset()) == {0: 1}
    clock.pass_ms(KEPT_SECONDS * 1_000)
    assert queue_offsets(found.reportLatestOffset()) == {0: 2}


def test_what_goes_to_the_tasks_has_no_connection(topic: Topic, reader: Make) -> None:
    name = topic({0: numbered(100)})
    found = reader(name)
    start = found.initialOffset()
    (wanted,) = found.partitions(start, found.latestOffset(start, ALL))

    copy = pickle.loads(pickle.dumps(reader(name)))

    assert offsets(copy.read(wanted)) == list(range(100))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "7"}, ReadMaxBytes(7)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "7", "minOffsetsPerTrigger": "3"}, ReadMaxRows(5)),
    ],
)
def test_spark_is_told_of_a_limit(reader: Make, options: dict[str, str], limit: ReadLimit) -> None:
    assert reader("orders", **options).getDefaultReadLimit() == limit


def test_a_batch_has_so_many_messages(topic: Topic, reader: Make) -> None:
    name = topic({0: numbered(300), 1: numbered(100), 2: numbered(1)})
    found = reader(name, maxOffsetsPerTrigger="41")
    limit = found.getDefaultReadLimit()
    at = found.initialOffset()
    sizes = []
    while (ahead := found.latestOffset(at, limit)) is not at:
        sizes.append(sum(end - start for _, start, end in ranges(found, at, ahead)))
        at = ahead

    assert sizes == [41] * 9 + [32]
    assert queue_offsets(at) == {0: 300, 1: 100, 2: 1}
    assert queue_offsets(found.latestOffset(found.initialOffset(), ALL)) == {0: 300, 1: 100, 2: 1}


def test_a_batch_has_about_so_many_bytes(topic: Topic, reader: Make) -> None:
    name = topic({0: numbered(400, size=100), 1: numbered(20, size=3_000), 2: numbered(400) + numbered(50, size=3_000)})
    found = reader(name, maxBytesPerTrigger="50000")
    at = found.initialOffset()
    ahead = found.latestOffset(at, found.getDefaultReadLimit())
    whole = [batch for each in found.partitions(at, ahead) for batch in found.read(each)]

    size = sum(len(body.as_buffer()) for batch in whole for body in batch.column("body"))
    assert 10_000 < size < 60_000
    assert {each for batch in whole for each in batch.column("queueId").to_pylist()} == {0, 1, 2}


def test_a_message_over_the_limit_of_bytes_is_read(topic: Topic, reader: Make) -> None:
    found = reader(topic({0: numbered(3, size=3_500)}), maxBytesPerTrigger="100")
    at = found.initialOffset()

    assert queue_offsets(found.latestOffset(at, found.getDefaultReadLimit())) == {0: 1}


def test_a_batch_waits_for_messages_but_not_for_ever(topic: Topic, reader: Make, clock: FakeClock) -> None:
    name = topic({0: numbered(3)})
    found = reader(name, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit = found.getDefaultReadLimit()
    at = found.latestOffset(found.initialOffset(), limit)
    assert queue_offsets(at) == {0: 3}, "the first one after a start doesn't wait"

    topic.send(name, {0: numbered(3)})  # type: ignore[attr-defined]
    clock.pass_ms(30_000)
    assert found.latestOffset(at, limit) is at
    clock.pass_ms(31_000)
    at = found.latestOffset(at, limit)
    assert queue_offsets(at) == {0: 6}
    topic.send(name, {0: numbered(10)})  # type: ignore[attr-defined]
    clock.pass_ms(2_000)
    assert queue_offsets(found.latestOffset(at, limit)) == {0: 16}


def test_available_now_is_what_is_there_when_it_begins(topic: Topic, reader: Make, clock: FakeClock) -> None:
    name = topic({0: numbered(10)})
    found = reader(name, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7")
    found.prepareForTriggerAvailableNow()
    limit = found.getDefaultReadLimit()
    first = found.latestOffset(found.initialOffset(), limit)
    topic.send(name, {0: numbered(10)})  # type: ignore[attr-defined]
    clock.pass_ms(5_000)
    second = found.latestOffset(first, limit)

    assert [queue_offsets(each) for each in (first, second)] == [{0: 7}, {0: 10}]
    assert found.latestOffset(second, limit) is second


def test_a_queue_that_comes_later_begins_at_its_minimum(
    topic: Topic, reader: Make, clock: FakeClock, server: Cluster
) -> None:
    name = topic({0: numbered(2)})
    found = reader(name)
    at = found.latestOffset(found.initialOffset(), ALL)

    asyncio.run(create(server.namesrv, name, 2))
    topic.send(name, {1: numbered(3)})  # type: ignore[attr-defined]
    clock.pass_ms(KEPT_SECONDS * 1_000)
    named = found.latestOffset(at, ALL)
    read = found.latestOffset(named, ALL)

    assert (queue_offsets(named), queue_offsets(read)) == ({0: 2, 1: 0}, {0: 2, 1: 3})
    assert ranges(found, at, named) == []
    assert ranges(found, named, read) == [(1, 0, 3)]


def test_a_broker_that_comes_later_is_read(tmp_path: Path, reader: Make, clock: FakeClock) -> None:
    with server.serve(tmp_path / "first") as first, ExitStack() as later:
        asyncio.run(create(first.namesrv, "grown", 1))
        asyncio.run(fill(first.namesrv, "grown", {0: numbered(2)}))
        found = reader("grown", namesrv=first.namesrv)
        at = found.latestOffset(found.initialOffset(), ALL)

        configuration = tmp_path / "second.conf"
        values = {"brokerName": "second", "namesrvAddr": first.namesrv, "brokerIP1": LOOPBACK}
        values |= {"listenPort": str(free_broker_port()), "storePathRootDir": str(tmp_path / "second" / "store")}
        configuration.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        later.enter_context(server.broker(tmp_path / "second", configuration))
        eventually(lambda: len(cluster.wait_for_route(first.namesrv, "TBW102")["brokerDatas"]) == 2, 60, "a second broker")
        asyncio.run(create(first.namesrv, "grown", 1))
        new = MessageQueue("grown", "second", 0)
        asyncio.run(send(first.namesrv, new, numbered(3)))
        clock.pass_ms(KEPT_SECONDS * 1_000)
        named = found.latestOffset(at, ALL)
        read = found.latestOffset(named, ALL)

        assert (from_tree(named)[new], from_tree(read)[new]) == (0, 3)
        (wanted,) = found.partitions(named, read)
        assert offsets(found.read(wanted)) == [0, 1, 2]


async def send(namesrv: str, queue: MessageQueue, messages: list[Message]) -> None:
    async with Client(namesrv) as mq, mq.producer("spark-tests", timeout=10) as producer:
        for message in messages:
            message.topic = queue.topic
            await producer.send(message, queue=queue)


def test_a_topic_of_a_pattern_that_comes_later_is_read(
    topic: Topic, reader: Make, clock: FakeClock, unique: Callable[[str], str], server: Cluster
) -> None:
    prefix = unique("pattern")
    asyncio.run(create(server.namesrv, f"{prefix}-a", 1))
    found = reader("", topicPattern=f"{prefix}-.*")
    at = found.initialOffset()
    assert at.keys() == {f"{prefix}-a"}

    asyncio.run(create(server.namesrv, f"{prefix}-b", 1))
    asyncio.run(fill(server.namesrv, f"{prefix}-b", {0: numbered(4)}))
    clock.pass_ms(KEPT_SECONDS * 1_000)
    named = found.latestOffset(at, ALL)
    read = found.latestOffset(named, ALL)

    assert queue_offsets({f"{prefix}-b": named[f"{prefix}-b"]}) == {0: 0}
    assert ranges(found, named, read) == [(0, 0, 4)]


def test_tasks_may_be_more_than_queues(topic: Topic, reader: Make) -> None:
    found = reader(topic({0: numbered(100), 1: numbered(10)}), minPartitions="4")
    at = found.initialOffset()

    pieces = ranges(found, at, found.latestOffset(at, ALL))

    assert len(pieces) >= 4
    assert sum(end - start for _, start, end in pieces) == 110


def test_a_filter_leaves_messages_out(topic: Topic, reader: Make) -> None:
    messages = numbered(10, tag="a") + numbered(10, tag="b")
    found = reader(topic({0: messages}), tags="b")
    at = found.initialOffset()

    (wanted,) = found.partitions(at, found.latestOffset(at, ALL))

    assert offsets(found.read(wanted)) == list(range(10, 20))


# What is lost


def old(expired: Expired, reader: Make, **options: str) -> StreamReader:
    return reader("old", namesrv=expired[0].namesrv, **options)


def test_what_expires_before_it_is_read_is_an_error(expired: Expired, reader: Make) -> None:
    _, queue, first = expired
    with pytest.raises(
        DataLoss, match=rf"old/.*/0 \[5, {first}\) has expired before it was read: the queue starts at {first}"
    ):
        old(expired, reader).latestOffset(offset_tree({queue: 5}), ALL)


def test_what_expires_before_it_is_read_may_be_passed_over(
    expired: Expired, reader: Make, caplog: pytest.LogCaptureFixture
) -> None:
    _, queue, first = expired
    found = old(expired, reader, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    start = offset_tree({queue: 5})

    with caplog.at_level(logging.WARNING):
        end = found.latestOffset(start, found.getDefaultReadLimit())
        read = [offset for each in found.partitions(start, end) for offset in offsets(found.read(each))]

    assert read == list(range(first, first + 10))
    assert f"[5, {first}) has expired before it was read" in caplog.text


def test_a_queue_that_ends_before_what_was_read_is_waited_for(expired: Expired, reader: Make, clock: FakeClock) -> None:
    """A slave may just be behind; but not for ever."""
    _, queue, _ = expired
    start = offset_tree({queue: COUNT + 5})
    found = old(expired, reader, timeout="30")

    assert found.latestOffset(start, ALL) is start
    clock.pass_ms(31_000)
    with pytest.raises(DataLoss, match=rf"old/.*/0 ends at {COUNT}, and was read up to {COUNT + 5}: it was made anew"):
        found.latestOffset(start, ALL)


def test_a_queue_that_was_made_anew_may_be_read_on(expired: Expired, reader: Make, clock: FakeClock) -> None:
    _, queue, _ = expired
    found = old(expired, reader, timeout="30", failOnDataLoss="false")
    start = offset_tree({queue: COUNT + 5})
    found.latestOffset(start, ALL)
    clock.pass_ms(31_000)

    end = found.latestOffset(start, ALL)

    assert queue_offsets(end) == {0: COUNT}
    assert ranges(found, start, end) == []


def test_a_queue_that_is_gone_is_an_error_after_some_time(expired: Expired, reader: Make, clock: FakeClock) -> None:
    _, queue, _ = expired
    gone = MessageQueue("old", "broker-that-was", 3)
    start = offset_tree({queue: COUNT, gone: 17})
    strict, lax = (old(expired, reader, timeout="30", failOnDataLoss=each) for each in ("true", "false"))

    assert strict.latestOffset(start, ALL) is start
    assert lax.latestOffset(start, ALL) is start
    clock.pass_ms(31_000)
    with pytest.raises(DataLoss, match="old/broker-that-was/3 was read up to 17, and is in no route of its topic any more"):
        strict.latestOffset(start, ALL)
    assert lax.latestOffset(start, ALL) is start, "its offset is kept, in case it comes back"


def test_all_that_is_available_includes_what_cannot_be_had(expired: Expired, reader: Make) -> None:
    _, queue, _ = expired
    gone = MessageQueue("old", "broker-that-was", 3)
    found = old(expired, reader)
    found.prepareForTriggerAvailableNow()

    with pytest.raises(DataLoss, match="old/broker-that-was/3"):
        found.latestOffset(offset_tree({queue: COUNT, gone: 17}), ALL)


# Who is away


def test_a_topic_that_was_never_there_is_an_error_at_once(reader: Make) -> None:
    with pytest.raises(RouteNotFound, match="no-such-topic"):
        reader("no-such-topic").initialOffset()


def test_no_server_is_an_error_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    found = StreamReader(parse_stream({"nameServer": nobody, "topic": "orders"}), ARROW)

    with pytest.raises(ConnectError, match=nobody):
        found.initialOffset()
    found.stop()


def test_a_broker_may_be_away_for_a_moment(
    tmp_path: Path, reader: Make, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    serve = partial(server.serve, tmp_path, namesrv_port=free_port(), broker_port=free_broker_port())
    with serve() as started:
        asyncio.run(create(started.namesrv, "away", 1))
        asyncio.run(fill(started.namesrv, "away", {0: numbered(10)}))
        found = reader("away", namesrv=started.namesrv, timeout="60")
        at = found.latestOffset(found.initialOffset(), ALL)
        started.kill()
    with caplog.at_level(logging.WARNING):
        clock.pass_ms(2_000)
        assert found.latestOffset(at, ALL) is at
        assert queue_offsets(found.reportLatestOffset()) == {0: 10}, "what was known"
        clock.pass_ms(57_000)
        assert found.latestOffset(at, ALL) is at
        with serve() as started:
            asyncio.run(fill(started.namesrv, "away", {0: numbered(5)}))
            clock.pass_ms(2_000)
            at = found.latestOffset(at, ALL)
            assert queue_offsets(at) == {0: 15}
            started.kill()
        clock.pass_ms(2_000)
        assert found.latestOffset(at, ALL) is at
    clock.pass_ms(61_000)
    with pytest.raises(RequestTimeout, match=r"couldn't be had for 60 s \(option timeout\), the last answer was: "):
        found.latestOffset(at, ALL)
    assert "going on without it for up to 60 s" in caplog.text
    assert "fails no longer" in caplog.text
