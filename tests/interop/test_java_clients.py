"""Java clients 4.9.8 and 5.5.0, unmodified, through our name server and broker."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.protocol.codes import RequestCode
from tests.interop.administrators import Told, ask, asked, reset
from tests.support import apache
from tests.support.cluster import Cluster, committed_offset, max_offset, wait_for_route
from tests.support.events import Event, events, last_queues, queues_are, wait_for, wait_for_keys
from tests.support.messages import content
from tests.support.process import Process, eventually

PER_MODE = 20
LARGE = 6_000  # above the 4 KiB from which a client compresses
MODES = ("sync", "async", "oneway", "batch", "selector", "large")
SINGLE_MODES = ("sync", "async", "selector", "large")  # one acknowledgement a message, which tells its place
QUEUES = 4
HEARTBEAT_V2 = {"com.rocketmq.heartbeat.v2": "true"}
CLIENTS = [
    pytest.param(("4.9.8", "JSON"), id="4.9.8-json"),
    pytest.param(("4.9.8", "ROCKETMQ"), id="4.9.8-rocketmq"),
    pytest.param(("5.5.0", "JSON"), id="5.5.0-json"),
    pytest.param(("5.5.0", "ROCKETMQ"), id="5.5.0-rocketmq"),
]


@dataclass(frozen=True)
class Exchange:
    """All modes sent to one topic by one producer, all of it seen by one consumer."""

    server: Cluster
    topic: str
    group: str
    prefix: str
    sent: list[Event]
    batches: list[Event]
    failed: list[Event]
    received: list[Event]

    def key(self, mode: str, index: int) -> str:
        return content(f"{self.prefix}-{mode}", index).key

    def messages(self, mode: str) -> list[Event]:
        return [message for message in self.received if message["keys"].startswith(f"{self.prefix}-{mode}-")]


@pytest.fixture(scope="module", params=CLIENTS)
def exchange(
    request: pytest.FixtureRequest,
    shared: Cluster,
    unique: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Exchange:
    client, serializer = request.param
    directory = tmp_path_factory.mktemp("exchange")
    topic, group, prefix = unique("exchange"), unique("exchange-group"), unique("m")
    system = {"rocketmq.serialize.type": serializer}
    where = f"namesrv={shared.namesrv}", f"topic={topic}"
    keys = {content(f"{prefix}-{mode}", i).key for mode in MODES for i in range(PER_MODE)}
    with ExitStack() as running:
        producer = running.enter_context(
            apache.program(
                client,
                "Producer",
                *where,
                f"prefix={prefix}",
                f"modes={','.join(MODES)}",
                f"count={PER_MODE}",
                f"size={LARGE}",
                directory=directory,
                system=system,
            )
        )
        assert producer.wait(120) == 0, producer.tail()
        consumer = running.enter_context(
            apache.program(client, "PushConsumer", *where, f"group={group}", directory=directory, system=system)
        )
        received = wait_for_keys(consumer, keys)
        consumer.terminate()
    return Exchange(
        shared,
        topic,
        group,
        prefix,
        sent=events(producer, "sent"),
        batches=events(producer, "sent-batch"),
        failed=events(producer, "failed"),
        received=received,
    )


@dataclass(frozen=True)
class BeginningAgain:
    """A consumer that has consumed these messages, has told of itself, and was then told to begin again."""

    topic: str
    group: str
    consumer: Process
    keys: set[str]
    told: Told
    given: list[str]
    """Keys of what it was given to work on at once."""


@pytest.fixture(scope="module")
def beginning_again(
    shared: Cluster, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BeginningAgain]]:
    """By client. Clients take their time for that, half a minute, in which other tests run. 5.5.0 says with most of its
    heartbeats only that nothing has changed (V2)."""
    found = {}
    with ExitStack() as running:
        for client in apache.CLIENTS:
            bench = Bench(shared, client, tmp_path_factory.mktemp("again"), running)
            topic, group = unique("again"), unique("again-group")
            producer = bench.program("Producer", f"topic={topic}", "prefix=again", "count=8")
            assert producer.wait(90) == 0, producer.tail()
            sent = events(producer, "sent")
            keys = {content("again-sync", event["index"]).key for event in sent}
            consumer = bench.program(
                "PushConsumer", f"topic={topic}", f"group={group}", "heartbeatMs=1000", system=HEARTBEAT_V2
            )
            before = [message["keys"] for message in wait_for_keys(consumer, keys)]
            told = asked(shared.broker, topic, group, sent[2]["offsetMsgId"])
            given = [message["keys"] for message in events(consumer, "message")][len(before) :]
            reset(shared.broker, topic, group)
            found[client] = BeginningAgain(topic, group, consumer, keys, told, given)
        yield found


@pytest.mark.usefixtures("beginning_again")
@pytest.mark.parametrize("mode", MODES)
def test_every_message_of_a_mode_arrives_as_it_was_sent(exchange: Exchange, mode: str) -> None:
    assert not exchange.failed
    seen: set[int] = set()
    for message in exchange.messages(mode):
        index = int(message["properties"]["index"])
        expected = content(f"{exchange.prefix}-{mode}", index, LARGE if mode == "large" else 0)
        assert message["sha256"] == expected.sha256
        assert (message["tags"], message["keys"]) == (expected.tag, expected.key)
        assert expected.properties.items() <= message["properties"].items()
        assert message["topic"] == exchange.topic
        seen.add(index)
    assert seen == set(range(PER_MODE))


def test_acknowledged_places_are_where_messages_are_found(exchange: Exchange) -> None:
    found = {(message["queueId"], message["queueOffset"]): message["keys"] for message in exchange.received}
    assert len(exchange.sent) == PER_MODE * len(SINGLE_MODES)
    for sent in exchange.sent:
        assert sent["status"] == "SEND_OK"
        assert found[sent["queueId"], sent["queueOffset"]] == exchange.key(sent["mode"], sent["index"])
    for batch in exchange.batches:
        for i in range(batch["count"]):
            place = batch["queueId"], batch["queueOffset"] + i
            assert found[place] == exchange.key("batch", batch["index"] + i)


def test_consumer_shows_the_id_the_producer_was_given(exchange: Exchange) -> None:
    ids = {message["keys"]: message["msgId"] for message in exchange.received}
    for sent in exchange.sent:
        assert ids[exchange.key(sent["mode"], sent["index"])] == sent["msgId"]


def test_offsets_of_a_queue_are_dense_and_in_order_of_sending(exchange: Exchange) -> None:
    for queue_id in range(QUEUES):
        in_queue = {m["queueOffset"]: m for m in exchange.received if m["queueId"] == queue_id}
        assert sorted(in_queue) == list(range(len(in_queue)))
        for mode in ("sync", "selector", "batch", "large"):
            indexes = [
                int(in_queue[offset]["properties"]["index"])
                for offset in sorted(in_queue)
                if in_queue[offset]["keys"].startswith(f"{exchange.prefix}-{mode}-")
            ]
            assert indexes == sorted(indexes)


def test_selector_decides_the_queue(exchange: Exchange) -> None:
    for message in exchange.messages("selector"):
        assert message["queueId"] == int(message["properties"]["index"]) % QUEUES


def test_consumer_offsets_are_persisted_by_shutdown(exchange: Exchange) -> None:
    server, group, topic = exchange.server, exchange.group, exchange.topic
    ends = {queue_id: max_offset(server, topic, queue_id) for queue_id in range(QUEUES)}
    assert sum(ends.values()) == PER_MODE * len(MODES)

    def kept() -> bool:  # the consumer commits by one-way requests
        return all(committed_offset(server, group, topic, queue_id) == end for queue_id, end in ends.items())

    eventually(kept, 60, f"committed offsets {ends}")


@dataclass
class Bench:
    """Starts clients of one version for one test and ends them with it."""

    server: Cluster
    client: str
    directory: Path
    running: ExitStack
    started: int = 0

    def program(self, main: str, *arguments: str, system: Mapping[str, str] | None = None) -> Process:
        self.started += 1
        return self.running.enter_context(
            apache.program(
                self.client,
                main,
                f"namesrv={self.server.namesrv}",
                *arguments,
                directory=self.directory,
                name=f"{main}-{self.started}",
                system=system,
            )
        )

    def send(self, topic: str, prefix: str, count: int, *arguments: str) -> set[str]:
        """Send and be done: the keys of the messages."""
        producer = self.program("Producer", f"topic={topic}", f"prefix={prefix}", f"count={count}", *arguments)
        assert producer.wait(90) == 0, producer.tail()
        assert not events(producer, "failed")
        return {content(f"{prefix}-{sent['mode']}", sent["index"]).key for sent in events(producer, "sent")}


@pytest.fixture(params=apache.CLIENTS)
def bench(request: pytest.FixtureRequest, shared: Cluster, tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as running:
        yield Bench(shared, request.param, tmp_path, running)


def test_two_consumers_of_a_group_share_the_queues(bench: Bench, unique: Callable[[str], str]) -> None:
    topic, group = unique("rebalance"), unique("rebalance-group")
    first_keys = bench.send(topic, "first", 1)
    wait_for_route(bench.server.namesrv, topic)
    where = f"topic={topic}", f"group={group}"

    left, right = bench.program("PushConsumer", *where), bench.program("PushConsumer", *where)

    def shared() -> set[str] | None:
        """The topic's queues, once each of the two has half of them: seen at one time, because they change hands before."""
        of_left, of_right = ({queue for queue in last_queues(one) if queue.startswith(f"{topic}@")} for one in (left, right))
        return of_left | of_right if len(of_left) == len(of_right) == QUEUES // 2 and not of_left & of_right else None

    of_topic = eventually(shared, 60, "half of the queues at each of the two consumers")

    keys = bench.send(topic, "shared", 40) | first_keys

    def both() -> bool:
        return keys <= {message["keys"] for one in (left, right) for message in events(one, "message")}

    eventually(both, 60, "all messages at one of the two consumers")
    assert all(any("shared" in message["keys"] for message in events(one, "message")) for one in (left, right))

    left.terminate()
    queues_are(right, lambda queues: of_topic <= queues)
    wait_for_keys(right, bench.send(topic, "alone", 12))


def test_restarted_consumer_continues_behind_what_it_consumed(bench: Bench, unique: Callable[[str], str]) -> None:
    topic, group = unique("resume"), unique("resume-group")
    where = f"topic={topic}", f"group={group}"
    before = bench.send(topic, "before", 20)
    first = bench.program("PushConsumer", *where)
    wait_for_keys(first, before)
    first.terminate()
    after = bench.send(topic, "after", 20)
    second = bench.program("PushConsumer", *where)
    received = wait_for_keys(second, after)
    assert {message["keys"] for message in received} == after


def test_fast_port_serves_clients_that_use_the_vip_channel(bench: Bench, unique: Callable[[str], str]) -> None:
    topic = unique("vip")
    keys = bench.send(topic, "vip", 10, "vip=true", "modes=sync,async")
    consumer = bench.program("PushConsumer", f"topic={topic}", f"group={unique('vip-group')}", "vip=true")
    wait_for_keys(consumer, keys)


def test_orderly_consumer_gets_each_queue_in_order(bench: Bench, unique: Callable[[str], str]) -> None:
    topic = unique("orderly")
    keys = bench.send(topic, "orderly", 60, "modes=selector")
    consumer = bench.program("PushConsumer", f"topic={topic}", f"group={unique('orderly-group')}", "orderly=true")
    received = wait_for_keys(consumer, keys)
    for queue_id in range(QUEUES):
        offsets = [message["queueOffset"] for message in received if message["queueId"] == queue_id]
        assert offsets == sorted(offsets)


def test_tag_subscription_gets_these_tags_only(bench: Bench, unique: Callable[[str], str]) -> None:
    topic = unique("tags")
    keys = bench.send(topic, "tags", 30)
    wanted = {content("tags-sync", i).key for i in range(30) if i % 3 != 1}
    consumer = bench.program("PushConsumer", f"topic={topic}", f"group={unique('tag-group')}", "tags=tag0 || tag2")
    received = wait_for_keys(consumer, keys & wanted)
    assert {message["tags"] for message in received} == {"tag0", "tag2"}


def test_message_that_failed_comes_again(bench: Bench, unique: Callable[[str], str]) -> None:
    topic, group = unique("retry"), unique("retry-group")
    keys = bench.send(topic, "retry", 4)
    consumer = bench.program("PushConsumer", f"topic={topic}", f"group={group}", "failOnce=2")

    def again() -> Event | None:
        repeated = (message for message in events(consumer, "message") if message["reconsumeTimes"] == 1)
        return next(repeated, None)

    repeated = consumer.wait_until(again, 90, "a second delivery")
    assert repeated["keys"] == content("retry-sync", 2).key
    assert repeated["sha256"] == content("retry-sync", 2).sha256
    wait_for_keys(consumer, keys)


@pytest.mark.parametrize("bench", ["5.5.0"], indirect=True)
def test_pop_consumers_share_messages_and_get_again_what_failed(bench: Bench, unique: Callable[[str], str]) -> None:
    """The broker assigns the queues, and the client pops from all of them."""
    topic, group = unique("pop"), unique("pop-group")
    keys = bench.send(topic, "pop", 40)
    wait_for_route(bench.server.namesrv, topic)
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}

    def is_set() -> bool:  # the group comes to be with its first consumer
        answer = apache.invoke(bench.server.broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())
        return answer.code == 0

    where = f"topic={topic}", f"group={group}", "pop=true"
    eventually(is_set, 60, "POP as the group's mode")
    left, right = bench.program("PushConsumer", *where, "failOnce=7"), bench.program("PushConsumer", *where, "failOnce=7")

    def received() -> list[Event]:
        return [message for one in (left, right) for message in events(one, "message")]

    eventually(lambda: keys <= {message["keys"] for message in received()}, 60, "all messages")

    def again() -> list[Event]:
        return [message for message in received() if message["reconsumeTimes"] > 0]

    eventually(again, 60, "a second delivery")
    ((repeated),) = again()
    assert repeated["keys"] == content("pop-sync", 7).key
    assert repeated["sha256"] == content("pop-sync", 7).sha256
    assert repeated["topic"] == topic
    assert len(received()) == 41, "each once, and one twice"
    assert "POP_CK" in repeated["properties"]


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_a_consumer_is_asked_through_the_broker(client: str, beginning_again: dict[str, BeginningAgain]) -> None:
    """What it holds, how far it is, and to work on a message at once."""
    found = beginning_again[client]
    assert '"mqTable":{{"brokerName":' in found.told.running
    assert sum(map(int, re.findall(r"\}:(\d+)", found.told.status))) == len(found.keys)
    assert found.told.directly["consumeResult"] == "CR_SUCCESS"
    assert found.given == [content("again-sync", 2).key]


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_members_are_known_by_either_heartbeat(
    client: str, shared: Cluster, beginning_again: dict[str, BeginningAgain]
) -> None:
    """5.5.0's says most times only that nothing has changed."""
    found = beginning_again[client]
    answer = ask(shared.broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": found.group})
    assert f'"topic":"{found.topic}"' in answer.body.decode()


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_a_consumer_goes_on_where_it_is_told(client: str, beginning_again: dict[str, BeginningAgain]) -> None:
    found = beginning_again[client]

    def anew() -> bool:
        counts = Counter(message["keys"] for message in events(found.consumer, "message"))
        counts.subtract(found.given)
        return all(counts[key] > 1 for key in found.keys)

    found.consumer.wait_until(anew, 90, "everything once more")


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_quickstart(client: str, shared: Cluster, tmp_path: Path) -> None:
    system = {"rocketmq.namesrv.addr": shared.namesrv}
    with apache.program(client, "QuickstartProducer", directory=tmp_path, system=system) as producer:
        assert producer.wait(120) == 0, producer.tail()
    results = [line for line in producer.lines() if line.startswith("SendResult [sendStatus=SEND_OK")]
    assert len(results) == 1_000, producer.tail()
    ids = {line.split("msgId=")[1].split(",")[0] for line in results}
    with apache.program(client, "QuickstartConsumer", directory=tmp_path, system=system) as consumer:

        def all_of_them() -> bool:
            text = consumer.out.read_text(encoding="utf-8")
            return all(f"UNIQ_KEY={message_id}," in text for message_id in ids)

        consumer.wait_until(all_of_them, 60, "all 1000 messages")


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("client", apache.CLIENTS)
def test_nothing_acknowledged_is_lost_by_a_crash(own: Cluster, client: str, tmp_path: Path) -> None:
    count = 8_000
    where = f"namesrv={own.namesrv}", "topic=crash"
    with ExitStack() as running:
        producer = running.enter_context(
            apache.program(
                client,
                "Producer",
                *where,
                "modes=sync,async",
                f"count={count}",
                "prefix=crash",
                "retry=true",
                "inFlight=4",
                "timeoutMs=2000",
                directory=tmp_path,
            )
        )
        for acknowledged in (500, count + 500):  # amid the sync, then amid the async sends
            wait_for(producer, "sent", acknowledged)
            own.crash()
            assert len(events(producer, "sent")) < 2 * count, "it was over before the crash"
            own.start()
        assert producer.wait(180) == 0, producer.tail()
        sent = events(producer, "sent")
        keys = {content(f"crash-{event['mode']}", event["index"]).key for event in sent}
        assert len(keys) == 2 * count
        consumer = running.enter_context(
            apache.program(client, "PushConsumer", *where, "group=crash-group", directory=tmp_path)
        )
        received = wait_for_keys(consumer, keys, 120)
    places = {(message["queueId"], message["queueOffset"]): message["keys"] for message in received}
    for event in sent:
        assert places[event["queueId"], event["queueOffset"]] == content(f"crash-{event['mode']}", event["index"]).key
