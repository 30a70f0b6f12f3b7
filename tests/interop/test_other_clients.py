"""Apache's Go client and the Node client ali-ons, each thing they can ask for once, and what administrators ask of them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rockmq.protocol.codes import RequestCode
from tests.interop.administrators import Told, ask, asked, clone_offset, make_topic, reset
from tests.support import others, server
from tests.support.cluster import wait_for_route
from tests.support.events import events, wait_for
from tests.support.process import Process

GO: dict[str, object] = {
    "send": "send-7 ü",
    "async": "async-0 ü, async-1 ü, async-2 ü",
    "oneway": "oneway-0 ü, oneway-1 ü",
    "batch": "batch-0 ü, batch-1 ü, batch-2 ü",
    "tags": "tags-1 ü, tags-3 ü",
    "orderly": "orderly-0 ü, orderly-1 ü, orderly-2 ü, orderly-3 ü, orderly-4 ü",
    "broadcast": "true",
    "delay": "delay-0 ü, delay-1 ü, early false",
    "retry": "[0 1 2]",
    "deadLetter": "dead-0 ü",
    "transaction": "transaction-0 ü, transaction-2 ü, transaction-9 ü",
    "request": "answer to request-1 ü",
    "sql": "sql-1 ü, sql-2 ü",
    "large": "whole true, compressed true",
    "pull": "pull-0 ü, pull-1 ü, pull-2 ü",
    "namespace": "namespace-0 ü; namespace-0 ü",
    "trace": "Pub, go-traced, go-trace, tag0, key-0",
    "cloned": "cloned-2",
    "told": "each anew",
    "quota": True,
    "order": "map[0:true 1:true 2:true 3:true]",  # it reads routes without their order configuration
}
NODE: dict[str, object] = {
    "send": "send-0 ü, send-1 ü, send-2 ü",
    "tags": "tags-1 ü, tags-3 ü",
    "broadcast": "broadcast-0 ü, broadcast-1 ü; broadcast-0 ü, broadcast-1 ü",
    "properties": "tag0/key-0/0",
    "delay": "delay-0 ü, early false",
    "retry": "0, 1",
    "sql": "sql-1 ü, sql-2 ü",
    "large": "whole true, compressed true",
    "deadLetter": "deadLetter-0 ü",
    "namespace": "namespace-0 ü; namespace-0 ü",
    "cloned": "cloned-2",
    "told": "each anew",
    "quota": True,
    "order": "0, 1, 2",
}
# A transaction that nobody decides is asked about after two seconds, not after half a minute, and the server's first retry
# (level 3) comes after one, not after ten.
QUICK = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
    "messageDelayLevel": "1s 5s 1s 1s 2s",
    "traceTopicEnable": "true",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    settings = [argument for key, value in QUICK.items() for argument in ("--set", f"{key}={value}")]
    with server.serve(tmp_path_factory.mktemp("others"), *settings) as started:
        yield started


def _steps(process: Process) -> dict[str, object]:
    """What came of each step, when all are taken."""
    assert process.wait(300) == 0, process.tail()
    return {event["name"]: event.get("result", event.get("fault")) for event in events(process, "step")}


def _prepared(broker: server.Server, client: str, group: str) -> list[str]:
    """The topics of the steps told, cloned, whose group is given, quota, and order, three of whose four queues are to be
    used; ids of the messages of the first."""
    make_topic(broker.namesrv, broker.broker, f"{client}-quota", 1, attributes="+send.quota=5")
    ordered = f"{client}-order"
    make_topic(broker.namesrv, broker.broker, ordered, 4)
    (of_route,) = wait_for_route(broker.namesrv, ordered)["brokerDatas"]
    configuration = {"namespace": "ORDER_TOPIC_CONFIG", "key": ordered, "value": f"{of_route['brokerName']}:3"}
    ask(broker.namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true")
    ask(broker.namesrv, RequestCode.PUT_KV_CONFIG, configuration)
    make_topic(broker.namesrv, broker.broker, f"{client}-cloned", 1, ["seen", "seen", "cloned-2"])
    clone_offset(broker.broker, f"{client}-cloned", group, 2)
    return make_topic(broker.namesrv, broker.broker, f"{client}-told", 1, ["told-0", "told-1", "told-2"])


class Go(NamedTuple):
    """What came of the steps; what its consumer has told, and the messages it was given to work on at once."""

    steps: dict[str, object]
    told: Told
    given: list[str]


@pytest.fixture(scope="module")
def go(broker: server.Server, tmp_path_factory: pytest.TempPathFactory) -> Go:
    others.need("go")
    ids = _prepared(broker, "go", "go-cloned")
    with others.go_steps(tmp_path_factory.mktemp("go"), broker.namesrv, "go", *GO) as process:
        before = [event["text"] for event in wait_for(process, "told", 3)]
        told = asked(broker.broker, "go-told", "go-told", ids[1])
        given = [event["text"] for event in events(process, "told")][len(before) :]
        reset(broker.broker, "go-told", "go-told")
        return Go(_steps(process), told, given)


@pytest.mark.parametrize("step", GO)
def test_go(go: Go, step: str) -> None:
    assert go.steps[step] == GO[step]


def test_a_consumer_of_go_is_asked_through_the_broker(go: Go) -> None:
    """What it holds, how far it is, and to work on a message at once."""
    assert re.search(r'"mqTable":\{.*\{"topic":"go-told","brokerName":', go.told.running)
    assert re.search(r'"topic":"go-told".*\}:3\}', go.told.status)
    assert go.told.directly["consumeResult"] == 0, "its number of success"
    assert go.given == ["told-1"]


@pytest.fixture(scope="module")
def node(broker: server.Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    others.need("npm")
    topics = {f"node-{step}" for step in NODE.keys() - {"told", "cloned", "quota", "order", "namespace"}}
    for topic in topics | {"node-tenant%node-namespace"}:  # this client makes none
        make_topic(broker.namesrv, broker.broker, topic, 2)
    _prepared(broker, "node", "node-cloned-group")
    with others.node_steps(tmp_path_factory.mktemp("node"), broker.namesrv, "node") as process:
        wait_for(process, "told", 3)
        reset(broker.broker, "node-told", "node-told-group")
        return _steps(process)


@pytest.mark.parametrize("step", NODE)
def test_node(node: dict[str, object], step: str) -> None:
    assert node[step] == NODE[step]
