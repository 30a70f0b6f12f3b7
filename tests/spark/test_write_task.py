"""What one task of a write does against a real server: without Spark, so that it can fail wherever it is to fail."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockmq.base.errors import (
    ClientError,
    ConfigError,
    ConnectError,
    InvalidMessage,
    NotSupported,
    RequestTimeout,
    ResponseError,
    RouteNotFound,
)
from rockmq.client import Client, Decision, MessageQueue, TransactionProducer
from rockmq.client.transactions import Half
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.remoting.client import RemotingClient
from rockmq.spark import halves
from rockmq.spark.ledger import Attempt, Done, Ledger, Work, identify
from rockmq.spark.pace import Pace
from rockmq.spark.write_options import Delivery, WriteOptions
from rockmq.spark.write_task import write
from tests.spark.test_cluster import make_static
from tests.spark.written import NONE, bodies, faults, stored
from tests.support import cluster
from tests.support.cluster import Cluster
from tests.support.process import eventually
from tests.unit.client.conftest import broker, names
from tests.unit.client.fakes import FakeBroker, FakeNames

__all__ = ["broker", "names"]

Topic = Callable[..., str]
KEYS = 7
QUEUES = 4


class Failed(Exception):
    """What an attempt ends with in these tests."""


@pytest.fixture
def work(server: Cluster, tmp_path: Path) -> Callable[..., Work]:
    """Some attempt's work; those of one test are of one batch."""
    return lambda topic, *attempt, **more: make_work(server, tmp_path, topic, *attempt, **more)


def make_work(
    server: Cluster,
    directory: Path,
    topic: str,
    run: str = "run",
    partition: int = 0,
    number: int = 0,
    delivery: Delivery = "fenced",
    **options: Any,
) -> Work:
    ledger = "" if delivery == "atLeastOnce" else str(directory / "ledger")
    given = WriteOptions(name_server=server.namesrv, topic=topic, delivery=delivery, ledger=ledger, **options)
    return Work(given, "query", "7", Attempt(partition, run, number), identify(Path(ledger)) if ledger else "")


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"k{number % KEYS}:{number}" for number in range(first, first + count)]


def batch(texts: list[str], **more: pa.Array) -> pa.RecordBatch:
    keys = [text.partition(":")[0] for text in texts]
    return pa.record_batch({"body": pa.array(texts, pa.string()), "shardingKey": pa.array(keys, pa.string()), **more})


def batches(texts: list[str], size: int = 100, fail_after: int | None = None) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(texts), size):
        if fail_after is not None and at >= fail_after:
            raise Failed
        yield batch(texts[at : at + size])


def test_rows_arrive_once_and_keys_in_order(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name, rows = topic(queues=QUEUES), numbered(2_500)

    done = write(work(name), batches(rows, 1_000))

    assert done == Done(rows=2_500, sent=2_500, found=0, bad=0)
    assert faults(server, name, QUEUES, rows) == NONE
    messages = [message for queue in stored(server, name, QUEUES) for message in queue]
    assert all(message.properties["__SHARDINGKEY"] == message.body.decode().partition(":")[0] for message in messages)
    assert len({message.msg_id for message in messages}) == 2_500


def test_rows_go_in_parts_at_a_pace(
    topic: Topic, work: Callable[..., Work], server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, rows, turns = topic(queues=QUEUES), numbered(45), list[int]()

    async def turn(self: Pace, count: int) -> None:
        turns.append(count)

    monkeypatch.setattr(Pace, "turn", turn)
    told = pa.array([[("body", row)] for row in rows], pa.map_(pa.string(), pa.string()))
    keys = pa.array([[row, "x"] for row in rows], pa.list_(pa.string()))

    done = write(work(name, rows_per_second=100.0), iter([batch(rows, properties=told, keys=keys)]))

    assert turns == [10, 10, 10, 10, 5]
    assert done == Done(rows=45, sent=45, found=0, bad=0)
    assert faults(server, name, QUEUES, rows) == NONE
    for message in (message for queue in stored(server, name, QUEUES) for message in queue):
        assert message.properties["body"] == message.body.decode()
        assert message.properties["KEYS"] == f"{message.body.decode()} x"


def test_what_was_sent_before_takes_no_turn(
    topic: Topic, work: Callable[..., Work], server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, rows, turns = topic(queues=QUEUES), numbered(45), list[int]()
    write(work(name), batches(rows[:25]))

    async def turn(self: Pace, count: int) -> None:
        turns.append(count)

    monkeypatch.setattr(Pace, "turn", turn)
    assert write(work(name, "another", rows_per_second=100.0), batches(rows)) == Done(45, 20, 25, 0)
    assert turns == [0, 0, 5, 10, 5]


@pytest.mark.parametrize("dedup_key", ["", "body"])
@pytest.mark.parametrize("again", [("run", 0, 1), ("another", 0, 0)], ids=["task retried", "batch replayed"])
def test_an_attempt_sends_what_those_before_it_have_not(
    topic: Topic, work: Callable[..., Work], server: Cluster, again: tuple[str, int, int], dedup_key: str
) -> None:
    name, rows = topic(queues=QUEUES), numbered(1_000)
    with pytest.raises(Failed):
        write(work(name, dedup_key=dedup_key), batches(rows, fail_after=600))
    before = sum(bodies(server, name, QUEUES).values())

    done = write(work(name, *again, dedup_key=dedup_key), batches(rows, 170))

    assert 500 <= before <= 600
    assert done == Done(rows=1_000, sent=1_000 - before, found=before, bad=0)
    assert faults(server, name, QUEUES, rows) == NONE


def test_what_was_sent_to_queues_that_are_read_only_now_is_not_sent_again(
    topic: Topic, work: Callable[..., Work], server: Cluster
) -> None:
    name, rows = topic(queues=QUEUES), numbered(1_000)
    with pytest.raises(Failed):
        write(work(name), batches(rows, fail_after=600))
    before = sum(bodies(server, name, QUEUES).values())
    write_to_fewer(server, name, 1)

    for run in ("another", "third"):
        assert write(work(name, run), batches(rows)).found == before
        before = 1_000

    assert bodies(server, name, QUEUES) == dict.fromkeys(rows, 1)


def test_partitions_of_one_run_do_not_read_each_other(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name = topic(queues=QUEUES)

    counts = [write(work(name, "run", partition), batches(["k0:0"])) for partition in range(3)]

    assert counts == [Done(1, 1, 0, 0)] * 3
    assert bodies(server, name, QUEUES) == {"k0:0": 3}


def test_equal_rows_are_different_messages(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name, rows = topic(queues=QUEUES), ["k0:0"] * 250 + ["k1:1"]
    with pytest.raises(Failed):
        write(work(name), batches(rows, 100, fail_after=200))

    write(work(name, "another"), batches(rows, 100))

    assert bodies(server, name, QUEUES) == {"k0:0": 250, "k1:1": 1}


def test_a_batch_that_is_done_is_not_sent_again(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name = topic(queues=QUEUES)
    first = work(name)
    first.notes().open(first.ledger)
    first.notes().mark_done(write(first, batches(numbered(10))))

    assert write(work(name, "another"), batches(numbered(10))) == Done(rows=10, sent=0, found=10, bad=0)
    assert sum(bodies(server, name, QUEUES).values()) == 10


def test_without_fences_an_attempt_sends_all_again(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name, rows = topic(queues=QUEUES), numbered(300)
    with pytest.raises(Failed):
        write(work(name, delivery="atLeastOnce"), batches(rows, fail_after=200))

    write(work(name, "run", 0, 1, delivery="atLeastOnce"), batches(rows))

    found = bodies(server, name, QUEUES)
    assert set(found) == set(rows)
    assert found.total() > 300


def test_messages_that_expired_behind_a_fence_are_an_error_that_says_what_to_do(
    topic: Topic, work: Callable[..., Work]
) -> None:
    name = topic(queues=1)
    fenced = work(name)
    fenced.notes().open(fenced.ledger)
    queue = asyncio.run(queues_of(fenced.options.name_server, name))[0]
    fenced.notes().fence(name, fenced.attempt, {queue: -5})

    with pytest.raises(ClientError, match="delivery=atLeastOnce all of it is sent again"):
        write(work(name, "another"), batches(numbered(10)))


async def queues_of(namesrv: str, topic: str) -> list[Any]:
    async with Client(namesrv) as client:
        return await client.writable_queues(topic)


def test_each_row_may_go_to_a_topic_of_its_own(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    one, two = topic(queues=1), topic(queues=2)
    rows = pa.record_batch({"topic": [one, two, two, one], "body": ["1", "2", "3", "4"]})

    write(work(""), iter([rows]))

    assert (bodies(server, one, 1), bodies(server, two, 2)) == ({"1": 1, "4": 1}, {"2": 1, "3": 1})


def test_a_row_that_cannot_be_sent_fails_the_task_by_its_name(topic: Topic, work: Callable[..., Work]) -> None:
    rows = pa.record_batch({"body": ["a", "b", None], "keys": ["x", "y", "order-9"]})

    with pytest.raises(InvalidMessage) as raised:
        write(work(topic(queues=1)), iter([rows.slice(0, 1), rows.slice(1)]))

    assert "row 2 of the partition (keys 'order-9') can't be sent: the body is null" in str(raised.value)


def test_rows_that_cannot_be_sent_go_to_a_side_table(
    topic: Topic, work: Callable[..., Work], server: Cluster, tmp_path: Path
) -> None:
    name = topic(queues=2)
    rows = pa.record_batch(
        {
            "topic": [name, None, "a b", name, name, name],
            "body": ["1", "2", "3", "x" * 3_000, "5", "6"],
            "queue": pa.array([None, None, None, None, 2, 1], pa.int32()),
            "id": ["1", "2", "3", "4", "5", None],
        }
    )
    options = {"bad_rows": str(tmp_path / "bad"), "max_message_size": 2_000, "dedup_key": "id"}

    for run in ("run", "another"):
        done = write(work("", run, **options), iter([rows]))

    assert (done.rows, done.found, done.bad) == (6, 1, 5)
    assert bodies(server, name, 2) == {"1": 1}
    table = pq.read_table(tmp_path / "bad").to_pylist()
    assert [row["id"] for row in table] == ["2", "3", "4", "5", None]
    for row, words in zip(table, ["no topic", "a b", "bound is 2000", "queue 2", "'id' is null"], strict=True):
        assert words in row["reason"]
    assert len(list((tmp_path / "bad").iterdir())) == 1


def test_a_topic_that_is_not_there_is_named(work: Callable[..., Work]) -> None:
    with pytest.raises(RouteNotFound, match="no-such-topic"):
        write(work("no-such-topic", timeout=0.3), batches(numbered(1)))


async def test_a_static_topic_is_refused_and_not_asked_for_again(names: FakeNames, broker: FakeBroker) -> None:
    make_static(names, "T", "a")
    options = WriteOptions(name_server=names.address, topic="T", delivery="atLeastOnce")
    work = Work(options, "query", "7", Attempt(0, "run", 0), "")

    with pytest.raises(NotSupported, match="static topics can't be written to: T"):
        await asyncio.to_thread(write, work, batches(numbered(1)))

    assert names.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
    assert not broker.stored


def test_a_name_server_that_is_not_there_is_named(work: Callable[..., Work]) -> None:
    given = work("orders", timeout=0.3)
    elsewhere = msgspec.structs.replace(given.options, name_server="127.0.0.1:1")

    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        write(replace(given, options=elsewhere), batches(numbered(1)))


def test_a_broker_that_takes_no_more_is_waited_for(
    unique: Callable[[str], str], work: Callable[..., Work], server: Cluster
) -> None:
    if server.kind != "rockmq":
        pytest.skip("topics have no quotas there")
    name, rows = unique("quota"), numbered(600)
    asyncio.run(create_with_quota(server, name, 300))

    done = write(work(name), batches(rows, 50))

    assert done.sent == 600
    assert faults(server, name, 1, rows) == NONE


async def create_with_quota(server: Cluster, topic: str, quota: int) -> None:
    await change(server, topic, read_queue_nums=1, write_queue_nums=1, attributes=f"+send.quota={quota}")
    cluster.wait_for_route(server.namesrv, topic)


def test_rows_for_certain_queues_wait_for_these(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    """A row isn't bad because its queue is away, nor goes another way because there are more."""
    name = topic(queues=2)
    there, more = asyncio.run(queues_of(server.namesrv, name)), MessageQueue(name, "gone", 0)
    rows = pa.record_batch({"body": ["1", "2"], "queue": pa.array([0, 2], pa.int32())})
    given = work(name, timeout=0.5, bad_rows="bad")
    given.notes().open(given.ledger)
    given.notes().number([*there[::-1], more])

    with pytest.raises(ConnectError, match=f"queue {name}/gone/0, one of those that rows are for, can't be written to now"):
        write(given, iter([rows]))
    given.notes().number(there[1:])

    assert write(given, iter([rows.slice(0, 1)])) == Done(1, 1, 0, 0)
    assert [len(queue) for queue in stored(server, name, 2)] == [0, 1]


async def change(server: Cluster, topic: str, **fields: Any) -> None:
    remote = RemotingClient()
    header = CreateTopic(topic=topic, default_topic="TBW102", perm=6, **fields)
    await remote.ask(server.broker, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 10)
    await remote.close()


def write_to_fewer(server: Cluster, topic: str, queues: int) -> None:
    """Of a topic with QUEUES queues the others can only be read from now on."""
    asyncio.run(change(server, topic, read_queue_nums=QUEUES, write_queue_nums=queues))
    eventually(lambda: len(asyncio.run(queues_of(server.namesrv, topic))) == queues, 60, "the other route")


def test_a_row_for_later_comes_later(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name = topic(queues=1)
    soon = datetime.now(UTC) + timedelta(seconds=1)
    times = pa.array([soon, None], pa.timestamp("us", tz="UTC"))
    rows = pa.record_batch({"body": ["later", "now"], "deliverAt": times, "tags": ["t", "t"]})

    assert write(work(name), iter([rows])) == Done(2, 2, 0, 0)

    eventually(lambda: len(bodies(server, name, 1)) == 2, 60, "the message for later")
    (now, late) = stored(server, name, 1)[0]
    assert (now.body, late.body, late.tag) == (b"now", b"later", "t")
    assert late.store_timestamp >= soon.timestamp() * 1000 - 1


@pytest.mark.parametrize("delivery", ["atLeastOnce", "transactional"])
def test_how_large_a_message_may_be_is_up_to_option_and_broker(
    topic: Topic, work: Callable[..., Work], delivery: Delivery
) -> None:
    times = pa.array([None if delivery == "transactional" else datetime.now(UTC)], pa.timestamp("us", tz="UTC"))
    rows = pa.record_batch({"body": ["x" * (5 << 20)], "deliverAt": times})

    with pytest.raises(ResponseError):
        write(work(topic(queues=1), delivery=delivery, max_message_size=6 << 20), iter([rows]))


@pytest.mark.flaky(reruns=0)
def test_a_broker_that_is_killed_and_comes_back_has_each_row_once(tmp_path: Path) -> None:
    """Requests that nobody knows the outcome of are looked for."""
    rows = numbered(30_000)
    with cluster.started("rockmq", tmp_path / "server") as server:
        asyncio.run(create(server.namesrv, "orders"))
        result: list[Done] = []
        given = make_work(server, tmp_path, "orders", timeout=120)
        task = threading.Thread(target=lambda: result.append(write(given, batches(rows, 200))))
        task.start()
        for share in (4, 2):
            eventually(
                lambda share=share: cluster.max_offset(server, "orders", 0) >= 30_000 // QUEUES // share, 60, "some rows"
            )
            server.crash()
            server.start()
        task.join(120)

        assert result == [Done(30_000, 30_000, 0, 0)]
        assert faults(server, "orders", QUEUES, rows) == NONE


async def create(namesrv: str, topic: str) -> None:
    async with Client(namesrv) as client:
        await client.create_topic(topic, QUEUES)


# Transactions


def test_what_is_in_a_transaction_is_seen_when_all_of_it_is_stored(
    topic: Topic, work: Callable[..., Work], server: Cluster
) -> None:
    name, rows = topic(queues=QUEUES), numbered(60)
    one, two = (work(name, "run", partition, delivery="transactional") for partition in range(2))
    with pytest.raises(Failed):
        write(one, batches(rows[:30], 10, fail_after=20))
    retried = work(name, "run", 0, 1, delivery="transactional")

    for part, texts in ((retried, rows[:30]), (two, rows[30:])):
        assert write(part, batches(texts, 10)) == Done(30, 30, 0, 0)
    assert bodies(server, name, QUEUES) == Counter()
    asyncio.run(halves.deliver(one.options, one.notes(), {str(retried.attempt): 30, str(two.attempt): 30}))

    assert bodies(server, name, QUEUES) == dict.fromkeys(rows, 1)


def test_a_delivery_that_was_broken_off_is_gone_on_with(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name, rows = topic(queues=QUEUES), numbered(20)
    part = work(name, delivery="transactional")
    write(part, batches(rows))
    # As if the driver had died between the note and the last commit: some are delivered.
    decided = asyncio.run(begin_delivery(part, 8))
    assert sum(bodies(server, name, QUEUES).values()) == 8

    replay = work(name, "another", delivery="transactional")
    assert write(replay, batches(rows)) == Done(20, 0, 20, 0)
    asyncio.run(halves.deliver(replay.options, replay.notes(), {}))

    assert decided == [str(part.attempt)]
    assert bodies(server, name, QUEUES) == dict.fromkeys(rows, 1)


def test_leftovers_that_cannot_be_rolled_back_hold_nothing_up(
    topic: Topic, work: Callable[..., Work], server: Cluster
) -> None:
    name = topic(queues=QUEUES)
    part, failed = (work(name, "run", 0, number, delivery="transactional", timeout=2) for number in range(2))
    write(part, batches(numbered(5)))
    (one, *_) = noted = halves.noted(part.notes().halves_of(part.attempt))
    lost = [msgspec.structs.replace(one, broker_name="gone"), msgspec.structs.replace(one, position=1 << 40)]
    note(failed, [*lost, *lost])

    asyncio.run(halves.deliver(part.options, part.notes(), {str(part.attempt): 5}))
    assert bodies(server, name, QUEUES) == dict.fromkeys(numbered(5), 1)

    other = work(name, delivery="transactional", timeout=2)
    other = replace(other, batch="8")
    other.notes().open(other.ledger)
    note(other, [*lost, *noted])
    asyncio.run(halves.give_up(other.options, other.notes()))


def note(work: Work, noted: list[Half]) -> None:
    work.notes().halves_of(work.attempt).write_bytes(b"".join(msgspec.json.encode(half) + b"\n" for half in noted))


def test_nothing_is_delivered_before_the_driver_sees_all_notes(
    topic: Topic, work: Callable[..., Work], server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(queues=QUEUES)
    part = work(name, delivery="transactional")
    write(part, batches(numbered(5)))
    path, counts = part.notes().halves_of(part.attempt), {str(part.attempt): 5}
    whole = path.read_bytes()

    path.write_bytes(whole[:-3])
    with pytest.raises(ConfigError, match="tells of 4 messages, and its task has sent 5"):
        asyncio.run(halves.deliver(part.options, part.notes(), counts))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        asyncio.run(halves.deliver(part.options, part.notes(), counts))
    assert part.notes().decided() is None

    path.write_bytes(whole)
    monkeypatch.setattr(Ledger, "halves", lambda _: {})  # as a directory that isn't up to date
    asyncio.run(halves.deliver(part.options, part.notes(), counts))
    assert bodies(server, name, QUEUES) == dict.fromkeys(numbered(5), 1)


def test_nothing_is_delivered_while_a_broker_of_it_is_away(topic: Topic, work: Callable[..., Work]) -> None:
    part = work(topic(queues=1), delivery="transactional", timeout=1)
    write(part, batches(numbered(2)))
    one, two = halves.noted(part.notes().halves_of(part.attempt))
    note(part, [one, msgspec.structs.replace(two, broker_name="gone")])

    with pytest.raises(ConnectError, match="wait for their delivery at gone"):
        asyncio.run(halves.deliver(part.options, part.notes(), {str(part.attempt): 2}))

    assert part.notes().decided() is None


def test_a_delivery_knows_where_queues_end_that_are_read_only_now(
    topic: Topic, work: Callable[..., Work], server: Cluster
) -> None:
    name = topic(queues=QUEUES)
    part = work(name, delivery="transactional")
    write(part, batches(numbered(20)))
    write_to_fewer(server, name, 1)

    asyncio.run(halves.deliver(part.options, part.notes(), {str(part.attempt): 20}))

    decided = part.notes().decided()
    assert decided is not None
    assert sorted(queue.queue_id for queue in decided.queues()) == list(range(QUEUES))
    assert bodies(server, name, QUEUES) == dict.fromkeys(numbered(20), 1)


def test_a_delivery_that_nobody_answers_to_ends_and_is_gone_on_with(
    topic: Topic, work: Callable[..., Work], server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(queues=QUEUES)
    part = work(name, delivery="transactional", timeout=2)
    write(part, batches(numbered(5)))

    async def silence(*_: object) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(TransactionProducer, "decide", silence)
        with pytest.raises(RequestTimeout, match="5 messages of spark-"):
            asyncio.run(halves.deliver(part.options, part.notes(), {str(part.attempt): 5}))
    assert bodies(server, name, QUEUES) == Counter()

    asyncio.run(halves.deliver(part.options, part.notes(), {}))
    assert bodies(server, name, QUEUES) == dict.fromkeys(numbered(5), 1)


def test_each_message_has_its_own_time_to_be_delivered(
    topic: Topic, work: Callable[..., Work], server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(queues=QUEUES)
    part = work(name, delivery="transactional", timeout=2)
    write(part, batches(numbered(10)))
    last = halves.noted(part.notes().halves_of(part.attempt))[-1]
    away = [ConnectError("it is away for a moment")]
    decide = TransactionProducer.decide

    async def slowly(producer: TransactionProducer, half: Half, decision: Decision) -> bool:
        await asyncio.sleep(0.25)
        if half == last and away:
            raise away.pop()
        return await decide(producer, half, decision)

    monkeypatch.setattr(TransactionProducer, "decide", slowly)
    monkeypatch.setattr(halves, "DECIDED_AT_ONCE", 1)
    asyncio.run(halves.deliver(part.options, part.notes(), {str(part.attempt): 10}))

    assert away == []
    assert bodies(server, name, QUEUES) == dict.fromkeys(numbered(10), 1)


async def begin_delivery(part: Work, count: int) -> list[str]:
    """What `deliver` does first, up to so many messages."""
    notes = part.notes()
    async with Client(part.options.name_server) as client, halves.producer_of(client, part.options) as producer:
        ends = {queue: await client.max_offset(queue) for queue in await client.writable_queues(part.options.topic)}
        attempts = notes.decide([str(part.attempt)], ends).attempts
        for half in list(halves.noted(notes.halves()[str(part.attempt)]))[:count]:
            assert await producer.decide(half, Decision.COMMIT)
    return attempts


def test_what_is_given_up_is_never_seen(topic: Topic, work: Callable[..., Work], server: Cluster) -> None:
    name = topic(queues=QUEUES)
    part = work(name, delivery="transactional")
    write(part, batches(numbered(20)))

    asyncio.run(halves.give_up(part.options, part.notes()))

    assert bodies(server, name, QUEUES) == Counter()
    if server.kind == "rockmq":  # Apache's forgets what it has rolled back
        with pytest.raises(ResponseError, match="rolled back"):
            asyncio.run(commit_all(part))


async def commit_all(part: Work) -> None:
    async with Client(part.options.name_server) as client, halves.producer_of(client, part.options) as producer:
        for half in halves.noted(part.notes().halves()[str(part.attempt)]):
            await producer.decide(half, Decision.COMMIT)
