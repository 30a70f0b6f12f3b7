"""`mqadmin` 5.5.0 against our name server and broker: what it prints must be what is so."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import apache
from tests.support.cluster import Cluster, broker_name, cluster_name, route, wait_for_route
from tests.support.events import Event, events, wait_for_keys
from tests.support.messages import content
from tests.support.process import eventually
from tests.support.server import serve

QUEUES = 3
_KEY_WITHOUT_QUOTES = re.compile(r"(?<=[{,])\s*(\d+)\s*:")


@dataclass(frozen=True)
class Mqadmin:
    server: Cluster
    directory: Path

    def __call__(self, command: str, *arguments: str) -> str:
        """What a command prints; its errors go to standard error with exit code 0."""
        done = apache.mqadmin(command, *arguments, namesrv=self.server.namesrv, directory=self.directory)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def mqadmin(shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Mqadmin:
    return Mqadmin(shared, tmp_path_factory.mktemp("mqadmin"))


@dataclass(frozen=True)
class Used:
    """A topic made by `updateTopic`, with messages a producer was told the places of and a group consumed."""

    topic: str
    group: str
    printed: str
    sent: list[Event]

    def count(self, queue_id: int) -> int:
        return sum(event["queueId"] == queue_id for event in self.sent)


@pytest.fixture(scope="module")
def used(mqadmin: Mqadmin, unique: Callable[[str], str]) -> Used:
    server, topic, group = mqadmin.server, unique("admin"), unique("admin-group")
    printed = mqadmin("updateTopic", "-b", server.broker, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
    wait_for_route(server.namesrv, topic)
    where = f"namesrv={server.namesrv}", f"topic={topic}"
    with apache.program("5.5.0", "Producer", *where, "count=14", "modes=selector", directory=mqadmin.directory) as producer:
        assert producer.wait(60) == 0, producer.tail()
        sent = events(producer, "sent")
    with apache.program("5.5.0", "PushConsumer", *where, f"group={group}", directory=mqadmin.directory) as consumer:
        wait_for_keys(consumer, {content("message-selector", i).key for i in range(14)})
    return Used(topic, group, printed, sent)


def table(printed: str) -> list[dict[str, str]]:
    """The rows below a line of `#Titles`, until an empty line; columns are separated by spaces."""
    lines = printed.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("#")), None)
    assert start is not None, printed
    titles = re.split(r"\s{2,}|\s(?=#)", lines[start].strip())
    rows = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        rows.append(dict(zip(titles, re.split(r"\s{2,}", line.strip()), strict=False)))
    return rows


def test_update_topic_reports_and_makes_what_was_asked(mqadmin: Mqadmin, used: Used) -> None:
    assert f"create topic to {mqadmin.server.broker} success." in used.printed
    assert f"topicName={used.topic}, readQueueNums={QUEUES}, writeQueueNums={QUEUES}, perm=RW-" in used.printed
    known = route(mqadmin.server.namesrv, used.topic)
    assert known
    queues = known["queueDatas"]
    assert [(q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in queues] == [(QUEUES, QUEUES, 6)]


def test_update_topic_by_cluster_changes_a_topic(mqadmin: Mqadmin, unique: Callable[[str], str]) -> None:
    server, topic = mqadmin.server, unique("admin-changed")
    for queues, permission in (("2", "6"), ("5", "4")):
        printed = mqadmin(
            "updateTopic", "-c", cluster_name(server), "-t", topic, "-r", queues, "-w", queues, "-p", permission
        )
        assert f"create topic to {server.broker} success." in printed

        def changed(expected: tuple[int, int, int] = (int(queues), int(queues), int(permission))) -> bool:
            known = route(server.namesrv, topic)
            found = known["queueDatas"] if known else []
            return [(q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in found] == [expected]

        eventually(changed, 60, f"{queues} queues with permission {permission} in the route")


def test_topic_route_prints_the_route(mqadmin: Mqadmin, used: Used) -> None:
    printed = mqadmin("topicRoute", "-t", used.topic)
    shown = json.loads(_KEY_WITHOUT_QUOTES.sub(r'"\1":', printed))
    assert [broker["brokerAddrs"] for broker in shown["brokerDatas"]] == [{"0": mqadmin.server.broker}]
    assert [broker["cluster"] for broker in shown["brokerDatas"]] == [cluster_name(mqadmin.server)]
    name = broker_name(mqadmin.server)
    assert [(q["brokerName"], q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in shown["queueDatas"]] == [
        (name, QUEUES, QUEUES, 6)
    ]


def test_topic_route_of_an_unknown_topic_says_so(mqadmin: Mqadmin) -> None:
    assert "CODE: 17" in mqadmin("topicRoute", "-t", "no-such-topic")


def test_topic_status_counts_what_was_sent(mqadmin: Mqadmin, used: Used) -> None:
    rows = table(mqadmin("topicStatus", "-t", used.topic))
    assert {int(row["#QID"]): (int(row["#Min Offset"]), int(row["#Max Offset"])) for row in rows} == {
        queue_id: (0, used.count(queue_id)) for queue_id in range(QUEUES)
    }
    assert {row["#Broker Name"] for row in rows} == {broker_name(mqadmin.server)}
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:", row["#Last Updated"]) for row in rows)


def test_cluster_list_shows_the_broker(mqadmin: Mqadmin, used: Used) -> None:
    (row,) = table(mqadmin("clusterList"))
    server = mqadmin.server
    assert row["#Cluster Name"] == cluster_name(server)
    assert row["#Broker Name"] == broker_name(server)
    assert (row["#BID"], row["#Addr"]) == ("0", server.broker)
    assert re.fullmatch(r"V[45]_\d+_\d+(_SNAPSHOT)?", row["#Version"])
    assert re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\)", row["#InTPS(LOAD)"])
    assert re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\|\d+,\d+ms\)", row["#OutTPS(LOAD)"])
    assert 0 < float(row["#SPACE"]) < 1
    assert 0 <= float(row["#Hour"]) < 24, "the oldest message is of this test run"
    assert row["#ACTIVATED"] == "true"


def test_cluster_list_counts_todays_messages(mqadmin: Mqadmin, used: Used) -> None:
    (row,) = table(mqadmin("clusterList", "-m"))
    assert int(row["#InTotalToday"]) >= len(used.sent)
    assert int(row["#OutTotalToday"]) >= len(used.sent)


def test_topic_list_names_the_topic(mqadmin: Mqadmin, used: Used) -> None:
    assert used.topic in mqadmin("topicList").splitlines()


def test_topic_list_names_100_000_topics(tmp_path: Path) -> None:
    """Of a broker that starts with them; each has four queues."""
    names = {f"topic-{number:06}" for number in range(100_000)}
    document = tmp_path / "data" / "config" / "topics.json"
    document.parent.mkdir(parents=True)
    config = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    document.write_text(json.dumps({"topicConfigTable": {name: config | {"topicName": name} for name in names}}))
    with serve(tmp_path) as server:
        wait_for_route(server.namesrv, max(names), 120)
        done = apache.mqadmin("topicList", namesrv=server.namesrv, directory=tmp_path)
        assert names <= set(done.stdout.splitlines()), done.stderr


def test_consumer_progress_shows_that_all_was_consumed(mqadmin: Mqadmin, used: Used) -> None:
    def progress() -> dict[int, tuple[int, int, int]] | None:  # offsets are committed by one-way requests
        rows = table(mqadmin("consumerProgress", "-g", used.group))
        shown = {
            int(row["#QID"]): (int(row["#Broker Offset"]), int(row["#Consumer Offset"]), int(row["#Diff"]))
            for row in rows
            if row["#Topic"] == used.topic
        }
        return shown if all(difference == 0 for _, _, difference in shown.values()) else None

    assert eventually(progress, 60, "no difference left") == {
        queue_id: (used.count(queue_id), used.count(queue_id), 0) for queue_id in range(QUEUES)
    }


def test_delete_topic_takes_it_from_the_route(mqadmin: Mqadmin, unique: Callable[[str], str]) -> None:
    server, topic = mqadmin.server, unique("admin-deleted")
    mqadmin("updateTopic", "-b", server.broker, "-t", topic)
    wait_for_route(server.namesrv, topic)
    printed = mqadmin("deleteTopic", "-c", cluster_name(server), "-t", topic)
    assert f"delete topic [{topic}] from cluster [{cluster_name(server)}] success." in printed
    assert f"delete topic [{topic}] from NameServer success." in printed
    eventually(lambda: route(server.namesrv, topic) is None, 60, "topic gone from the route")


def test_messages_are_found_by_key_unique_key_and_id(mqadmin: Mqadmin, used: Used) -> None:
    event = used.sent[5]
    key = content("message-selector", event["index"]).key
    (row,) = table(mqadmin("queryMsgByKey", "-t", used.topic, "-k", key))
    assert (row["#Message ID"], row["#QID"], row["#Offset"].split()[0]) == (
        event["msgId"],
        str(event["queueId"]),
        str(event["queueOffset"]),
    )
    for command, identity in (("queryMsgByUniqueKey", event["msgId"]), ("queryMsgById", event["offsetMsgId"])):
        printed = mqadmin(command, "-t", used.topic, "-i", identity)
        shown = dict(re.findall(r"^([A-Z][\w ]+):\s+(.*)$", printed, re.MULTILINE))
        assert (shown["Keys"], shown["Queue ID"], shown["Queue Offset"]) == (
            f"[{key}]",
            str(event["queueId"]),
            str(event["queueOffset"]),
        )


def test_message_that_was_never_sent_is_not_found(mqadmin: Mqadmin, used: Used) -> None:
    assert "query message by key finished, but no message" in mqadmin("queryMsgByKey", "-t", used.topic, "-k", "no-such-key")
