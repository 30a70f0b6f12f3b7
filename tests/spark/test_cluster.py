"""What planning asks, and what it makes of the answers."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError, NotSupported
from rockmq.client import MessageQueue
from rockmq.client.environment import KEY_VARIABLES, TLS_FILES
from rockmq.client.pull import PullStatus
from rockmq.protocol import codec
from rockmq.protocol.bodies.route import BrokerData
from rockmq.protocol.bodies.static_topic import QueuePlacement
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.pull import PullResponse
from rockmq.spark import cluster
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Bounds, Range
from rockmq.spark.schema import ARROW
from rockmq.spark.stream_options import parse_stream
from rockmq.spark.stream_reader import StreamReader
from tests.unit.client.conftest import broker, names, other
from tests.unit.client.fakes import FakeBroker, FakeNames, empty, refusal
from tests.unit.client.test_acl import KEY, is_signed
from tests.unit.client.test_tls import AUTHORITY, encrypted

__all__ = ["broker", "names", "other"]

EVERY = 100
"""Milliseconds between two messages of a queue."""


class Topics:
    """An origin: offsets first … end - 1 of each queue, of which offset n was stored at n * EVERY."""

    def __init__(self, **topics: Sequence[tuple[int, int]]) -> None:
        self.bounds = {
            MessageQueue(topic, "a", queue_id): Bounds(first, end)
            for topic, queues in topics.items()
            for queue_id, (first, end) in enumerate(queues)
        }
        self.more: list[str] = []
        self.committed: dict[MessageQueue, int] = {}

    async def topic_names(self) -> list[str]:
        return [*dict.fromkeys(queue.topic for queue in self.bounds), *self.more]

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self.bounds if queue.topic == topic]

    async def min_offset(self, queue: MessageQueue) -> int:
        return self.bounds[queue].first

    async def max_offset(self, queue: MessageQueue) -> int:
        return self.bounds[queue].end

    async def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        first, end = self.bounds[queue]
        return min(max(first, -(-timestamp // EVERY)), end)

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        assert group == "billing"
        return {queue: self.committed.get(queue) for queue in await self.queues(topic)}


def options(**more: str) -> ReadOptions:
    return parse({"nameServer": "a:1", **({} if {"topicPattern", "queues"} & more.keys() else {"topic": "t"}), **more})


async def places(origin: Topics, read: ReadOptions) -> tuple[object, object]:
    """(starting offsets, ending offsets) by queue id of topic t, as planning resolves them."""
    found = await cluster.resolved(origin, read, await cluster.bounds_of(origin, read))
    assert (found.starting_times, found.ending_times) == (None, None)
    return tuple(edge["t"]["a"] if isinstance(edge, dict) else edge for edge in (found.starting, found.ending))  # type: ignore[return-value]


def by_queue(**numbers: int) -> str:
    return json.dumps({"t": {"a": {queue[1:]: number for queue, number in numbers.items()}}})


async def test_a_pattern_chooses_whole_names_and_none_of_the_system() -> None:
    origin = Topics(orders=[(0, 5)], orders_eu=[(0, 5), (2, 2)], reorders=[(0, 5)])
    origin.more = ["rmq_sys_orders", "%RETRY%orders", "SCHEDULE_TOPIC_XXXX"]

    found = await cluster.bounds_of(origin, options(topicPattern="orders.*"))
    every = await cluster.bounds_of(origin, options(topicPattern=".*"))

    assert [(queue.topic, queue.queue_id, *ends) for queue, ends in found.items()] == [
        ("orders", 0, 0, 5),
        ("orders_eu", 0, 0, 5),
        ("orders_eu", 1, 2, 2),
    ]
    assert every.keys() == origin.bounds.keys()


async def test_static_topics_are_refused() -> None:
    origin = Topics(orders=[(0, 5)])
    origin.bounds[MessageQueue("logical", "__syslo__global__", 0)] = Bounds(0, 5)
    with pytest.raises(NotSupported, match="static topics can't be read: logical"):
        await cluster.bounds_of(origin, options(topicPattern=".*"))


async def test_a_stream_refuses_static_topics(names: FakeNames, broker: FakeBroker) -> None:
    reader = StreamReader(parse_stream({"nameServer": names.address, "topic": "T"}), ARROW)
    make_static(names, "T", "a")
    try:
        with pytest.raises(NotSupported, match="static topics can't be read: T"):
            await asyncio.to_thread(reader.initialOffset)
    finally:
        await asyncio.to_thread(reader.stop)
    # One of which a checkpoint tells, from before it was refused.
    with pytest.raises(NotSupported, match="static topics can't be read: T"):
        list(reader.read(Range(MessageQueue("T", "__syslo__global__", 0), 0, 5)))


def make_static(names: FakeNames, topic: str, broker: str) -> None:
    """Of one queue, which that broker has."""
    placement = QueuePlacement(topic=topic, queues=1, broker_name=broker, epoch=1, current={0: 0}, scope="__global__")
    names.routes[topic].topic_queue_mapping_by_broker = {broker: placement}


async def test_retry_and_dead_letter_topics_are_for_patterns_that_mean_them() -> None:
    origin = Topics(orders=[(0, 5)])
    dead, light = MessageQueue("%DLQ%billing", "a", 0), MessageQueue("%LMQ%orders", "a", 0)
    origin.bounds[dead] = origin.bounds[light] = Bounds(0, 3)

    assert (await cluster.bounds_of(origin, options(topicPattern="%DLQ%.*"))).keys() == {dead}
    assert (await cluster.bounds_of(origin, options(topicPattern="%.*"))).keys() == {dead}


async def test_queues_are_chosen_one_by_one() -> None:
    origin = Topics(t=[(0, 5), (0, 6), (0, 7)])

    found = await cluster.bounds_of(origin, options(queues='{"t": {"a": [2, 0]}}'))

    assert {queue.queue_id: ends.end for queue, ends in found.items()} == {0: 5, 2: 7}
    with pytest.raises(ConfigError, match="option 'queues' names queue t/b/1; there are: t/a/0, t/a/1, t/a/2"):
        await cluster.bounds_of(origin, options(queues='{"t": {"b": [1]}}'))


async def test_a_time_is_the_first_message_then_or_later() -> None:
    origin = Topics(t=[(0, 50), (20, 50)])

    assert await places(origin, options(startingTimestamp="1001", endingTimestamp="2000")) == (
        {0: 11, 1: 20},
        {0: 20, 1: 20},
    )


async def test_times_by_queue_leave_the_others_as_they_are() -> None:
    origin = Topics(t=[(0, 50), (20, 50)])
    read = options(startingOffsetsByTimestamp=by_queue(q1=3_000), endingOffsetsByTimestamp=by_queue(q0=100))

    assert await places(origin, read) == ({1: 30}, {0: 1})
    with pytest.raises(ConfigError, match="'endingOffsetsByTimestamp' names queue t/a/7"):
        await places(origin, options(endingOffsetsByTimestamp=by_queue(q7=1)))


async def test_a_time_goes_before_offsets_as_with_kafka() -> None:
    origin = Topics(t=[(0, 50)])
    said = {"startingOffsetsByTimestamp": by_queue(q0=700), "startingOffsets": by_queue(q0=1)}

    assert await places(origin, options(**said)) == ({0: 7}, -1)
    assert await places(origin, options(**said, startingTimestamp="300")) == ({0: 3}, -1)


async def test_a_queue_without_a_message_to_start_at() -> None:
    origin = Topics(t=[(0, 50), (0, 5)])
    late = {"startingTimestamp": "4000", "endingTimestamp": "99000"}

    with pytest.raises(
        ConfigError, match=r"t/a/1 has no message stored at 4000 \(1970-01-01T00:00:04.000\+00:00\) or later"
    ):
        await places(origin, options(**late))
    assert await places(origin, options(**late, startingOffsetsByTimestampStrategy="latest")) == (
        {0: 40, 1: 5},
        {0: 50, 1: 5},
    )


async def test_a_group_s_offsets_are_where_to_start_or_to_end() -> None:
    origin = Topics(t=[(0, 50), (20, 50)])
    origin.committed = {MessageQueue("t", "a", 0): 17}

    assert await places(origin, options(startingOffsets="groupOffsets", group="billing")) == ({0: 17, 1: 20}, -1)
    assert await places(origin, options(endingOffsets="groupOffsets", group="billing")) == (-2, {0: 17, 1: 20})


# A client as the options say


@pytest.fixture
def tls_files(tmp_path: Path) -> dict[str, str]:
    """Options of a client with a certificate."""
    issued = AUTHORITY.issue_cert("spark@example")
    paths = {"tlsCa": tmp_path / "ca.pem", "tlsCertificate": tmp_path / "cert.pem", "tlsKey": tmp_path / "key.pem"}
    AUTHORITY.cert_pem.write_to_path(str(paths["tlsCa"]))
    paths["tlsCertificate"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(paths["tlsKey"]))
    return {"tls": "true"} | {option: str(path) for option, path in paths.items()}


async def test_connections_are_encrypted_with_certificates_of_both_sides(
    names: FakeNames, broker: FakeBroker, tls_files: dict[str, str]
) -> None:
    for identity, more in (("127.0.0.1", {}), ("mq.example", {"tlsCheckHostname": "false"})):
        async with encrypted(names, broker, identity, mutual=True) as address:
            read = parse({"nameServer": address, "topic": "T", **tls_files, **more})
            async with cluster.connected(read) as client:
                assert len(await client.queues("T")) == 4


async def test_the_environment_says_how_to_encrypt_unless_an_option_does(
    names: FakeNames, broker: FakeBroker, tls_files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, option in zip(("ROCKMQ_TLS", *TLS_FILES), tls_files, strict=True):
        monkeypatch.setenv(variable, tls_files[option])

    async with encrypted(names, broker, "127.0.0.1", mutual=True) as address:
        async with cluster.connected(parse({"nameServer": address, "topic": "T"})) as client:
            assert len(await client.queues("T")) == 4
        names.add("T", broker)
        async with cluster.connected(parse({"nameServer": names.address, "topic": "T", "tls": "false"})) as client:
            assert len(await client.queues("T")) == 4


async def test_files_of_tls_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")

    for missing in (other, tmp_path / "nowhere.pem"):
        with pytest.raises(ConfigError, match=f"'tlsCa' \\({missing}\\)"):
            cluster.connected(parse({"nameServer": "a:1", "topic": "T", "tls": "true", "tlsCa": str(missing)}))


async def test_requests_are_signed(names: FakeNames, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"one"]
    read = parse({"nameServer": names.address, "topic": "T", "accessKey": KEY.access, "secretKey": KEY.secret})

    async with cluster.connected(read) as client:
        (queue, *_) = await client.queues("T")
        await cluster.pull_from(client, queue, read)(0, 1)

    asked = [*names.asked, *broker.asked]
    assert asked
    assert all(is_signed(request) for request in asked)
    assert KEY.secret not in repr(read)


async def test_a_key_of_the_environment_signs_and_an_option_goes_before_it(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, text in zip(KEY_VARIABLES, (KEY.access, KEY.secret), strict=False):
        monkeypatch.setenv(variable, text)
    read = {"nameServer": names.address, "topic": "T"}

    for options in (parse(read), parse(read | {"accessKey": "other", "secretKey": "other"})):
        async with cluster.connected(options) as client:
            await client.max_offset((await client.queues("T"))[0])

    asked = [*names.asked, *broker.asked]
    assert {request.fields["AccessKey"] for request in asked} == {KEY.access, "other"}
    assert all(is_signed(request) for request in asked if request.fields["AccessKey"] == KEY.access)


def test_half_a_key_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKMQ_ACCESS_KEY", "me")

    with pytest.raises(ConfigError, match="ROCKMQ_ACCESS_KEY and ROCKMQ_SECRET_KEY go together"):
        cluster.connected(parse({"nameServer": "a:1", "topic": "T"}))


async def test_a_slave_is_asked_first_and_its_master_for_what_it_has_not(
    names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    names.add("T", broker, queues=1)
    names.routes["T"].broker_datas = [
        BrokerData(broker_name="a", cluster="c", broker_addrs={"0": broker.address, "1": other.address})
    ]
    read = parse({"nameServer": names.address, "topic": "T", "preferSlaves": "true"})
    broker.stored["T", 0] = [b"one", b"two"]
    other.stored["T", 0] = [b"one"]
    other.on_pull = lambda header, request, connection: (
        empty(request, ResponseCode.PULL_NOT_FOUND, 1) if header.queue_offset == 1 else None
    )

    async with cluster.connected(read) as client:
        (queue,) = await client.queues("T")
        pull = cluster.pull_from(client, queue, read)
        first, second = await pull(0, 1), await pull(1, 1)
        await other.stop()
        third = await asyncio.wait_for(pull(0, 1), 20)

    assert [answer.status for answer in (first, second, third)] == [PullStatus.FOUND] * 3
    assert [answer.next_offset for answer in (first, second, third)] == [1, 2, 1]
    assert other.count(RequestCode.PULL_MESSAGE) == 2
    assert broker.count(RequestCode.PULL_MESSAGE) == 2


async def test_a_slave_that_refuses_or_passes_over_messages_is_done_without(
    names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    names.add("T", broker, queues=1)
    names.routes["T"].broker_datas = [
        BrokerData(broker_name="a", cluster="c", broker_addrs={"0": broker.address, "1": other.address})
    ]
    said = {"nameServer": names.address, "topic": "T", "preferSlaves": "true"}
    broker.stored["T", 0] = [b"one"]
    passes_over, expired = PullResponse(0, 1, 0, 1), PullResponse(0, 1, 1, 1)
    answers = {
        "refused": lambda request: refusal(request, ResponseCode.SYSTEM_ERROR),
        "lost": lambda request: codec.reply(request, ResponseCode.PULL_RETRY_IMMEDIATELY, None, passes_over),
        "expired": lambda request: codec.reply(request, ResponseCode.PULL_RETRY_IMMEDIATELY, None, expired),
        "filtered": lambda request: codec.reply(request, ResponseCode.PULL_RETRY_IMMEDIATELY, None, passes_over),
    }
    statuses: dict[str, PullStatus] = {}
    for case, answer in answers.items():
        other.on_pull = lambda header, request, connection, answer=answer: answer(request)
        read = parse(said | ({"tags": "a"} if case in ("expired", "filtered") else {}))
        async with cluster.connected(read) as client:
            (queue,) = await client.queues("T")
            statuses[case] = (await cluster.pull_from(client, queue, read)(0, 1)).status

    assert statuses.pop("filtered") is PullStatus.NO_MATCHED
    assert set(statuses.values()) == {PullStatus.FOUND}
