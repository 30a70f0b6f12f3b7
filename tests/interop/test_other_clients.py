"""Apache's Go client and the Node client ali-ons, each thing they can ask for once."""

import os
from collections.abc import Iterator

import pytest

from rockmq.protocol.codes import RequestCode
from tests.support import apache, others, server
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events

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
}
NODE: dict[str, object] = {
    "send": "send-0 ü, send-1 ü, send-2 ü",
    "tags": "tags-1 ü, tags-3 ü",
    "properties": "tag0/key-0/0",
    "delay": "delay-0 ü, early false",
    "retry": "0, 1",
    "sql": "sql-1 ü, sql-2 ü",
}
# A transaction that nobody decides is asked about after this time, not after half a minute.
QUICK = {"enablePropertyFilter": "true", "transactionCheckInterval": "2000", "transactionTimeOut": "2000"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    settings = [argument for key, value in QUICK.items() for argument in ("--set", f"{key}={value}")]
    with server.serve(tmp_path_factory.mktemp("others"), *settings) as started:
        yield started


def _need(tool: str) -> None:
    why = others.missing(tool)
    if why is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


def _answers(process: others.Process, seconds: int) -> dict[str, Event]:
    with process:
        assert process.wait(seconds) == 0, process.tail()
        return {event["name"]: event for event in events(process, "step")}


@pytest.fixture(scope="module")
def go(broker: server.Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Event]:
    _need("go")
    return _answers(others.go_steps(tmp_path_factory.mktemp("go"), broker.namesrv, "go"), 300)


@pytest.mark.parametrize("step", GO)
def test_go(go: dict[str, Event], step: str) -> None:
    assert go[step].get("result", go[step].get("fault")) == GO[step]


@pytest.fixture(scope="module")
def node(broker: server.Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Event]:
    _need("npm")
    for step in NODE:  # this client makes no topics
        fields = {
            "topic": f"node-{step}", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        assert apache.invoke(broker.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
        wait_for_route(broker.namesrv, f"node-{step}")
    return _answers(others.node_steps(tmp_path_factory.mktemp("node"), broker.namesrv, "node"), 300)


@pytest.mark.parametrize("step", NODE)
def test_node(node: dict[str, Event], step: str) -> None:
    assert node[step].get("result", node[step].get("fault")) == NODE[step]
