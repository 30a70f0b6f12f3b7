"""Apache's own broker 5.5.0 lives under our name server and serves Java clients found through it."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import SAME, dump, keys, load
from tests.interop.conftest import SERVERS
from tests.support import apache, server
from tests.support.cluster import route, wait_for_route
from tests.support.events import events, wait_for_keys
from tests.support.messages import content
from tests.support.process import eventually, free_broker_port, free_port

NAME = "apache-under-rockmq"
GET_BROKER_CONFIG = 26


@dataclass(frozen=True)
class Registered:
    namesrv: str
    broker: apache.Peer


@pytest.fixture(scope="module", params=SERVERS)
def registered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registered]:
    directory = tmp_path_factory.mktemp("apache-broker")
    with ExitStack() as running:
        if request.param == "rockmq":
            namesrv = running.enter_context(server.name_server(directory / "namesrv")).namesrv
        else:
            namesrv = running.enter_context(apache.name_server(directory / "namesrv", free_port())).address
        broker = apache.broker(directory / "broker", free_broker_port(), namesrv, name=NAME, cluster="Mixed")
        yield Registered(namesrv, running.enter_context(broker))


def test_route_shows_what_the_broker_registered(registered: Registered) -> None:
    known = wait_for_route(registered.namesrv, "TBW102")
    (broker,) = known["brokerDatas"]
    assert (broker["brokerName"], broker["cluster"]) == (NAME, "Mixed")
    assert broker["brokerAddrs"] == {"0": registered.broker.address}
    assert known["queueDatas"] == [
        {"brokerName": NAME, "perm": 7, "readQueueNums": 8, "writeQueueNums": 8, "topicSysFlag": 0}
    ]


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_java_clients_find_the_broker(registered: Registered, client: str, tmp_path: Path) -> None:
    topic = f"found-by-{client.replace('.', '-')}"
    where = f"namesrv={registered.namesrv}", f"topic={topic}"
    with apache.program(client, "Producer", *where, "count=20", directory=tmp_path) as producer:
        assert producer.wait(60) == 0, producer.tail()
        assert len(events(producer, "sent")) == 20
    with apache.program(client, "PushConsumer", *where, f"group=group-{topic}", directory=tmp_path) as consumer:
        wait_for_keys(consumer, {content("message-sync", i).key for i in range(20)})


def test_new_topic_is_registered_with_the_queues_asked_for(registered: Registered, tmp_path: Path) -> None:
    arguments = "-b", registered.broker.address, "-t", "six", "-r", "6", "-w", "6"
    apache.mqadmin("updateTopic", *arguments, namesrv=registered.namesrv, directory=tmp_path)
    (queues,) = wait_for_route(registered.namesrv, "six")["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["brokerName"]) == (6, 6, NAME)


def test_every_key_of_the_broker_is_known_here(registered: Registered) -> None:
    """Row 8.1: what Apache's broker says of its configuration is one that ours starts with."""
    answer = apache.invoke(registered.broker.address, GET_BROKER_CONFIG)
    configured = properties.read_bytes(answer.body)
    assert len(configured) > 400
    assert load(BrokerOptions, configured).identity.broker_name == NAME


def test_defaults_are_those_that_are_said_to_be_apaches(registered: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ours is another one, the declaration says Apache's, or that there is none."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    told = properties.read_bytes(apache.invoke(registered.broker.address, GET_BROKER_CONFIG).body)
    chosen = properties.read_file(registered.broker.log.with_name("broker.conf"))
    ours = dump(BrokerOptions())
    expected = {
        key: ours.get(key, "") if each.apache == SAME else each.apache
        for key, each in keys(BrokerOptions).items()
        if key in told and key not in chosen and not each.default  # which is in words where it is found out
    }
    assert {key: told[key] for key in expected} == expected
    assert len(expected) > 70


def test_broker_that_stops_leaves_the_route(registered: Registered) -> None:
    assert route(registered.namesrv, "TBW102")
    registered.broker.terminate()
    eventually(lambda: route(registered.namesrv, "TBW102") is None, 60, "broker gone from the route")
