"""The server under test, behind one face: RockMQ, or Apache's own servers as proof that the tests judge rightly."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support import apache, server
from tests.support.process import eventually, free_broker_port, free_port

_GET_ROUTE = 105
HASTE = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000", "transactionOpBatchInterval": "100"}
"""What brokers of either kind are told so that tests don't take minutes. Apache's asks again for what it has committed, and
commits it again, when the next check comes before it has noted that."""

_TEMPLATE_TOPIC = "TBW102"  # every broker that creates topics on demand registers it


class Cluster(Protocol):
    """One name server with one broker. Addresses are host:port and stay the same over a restart."""

    kind: str
    namesrv: str
    broker: str

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def crash(self) -> None: ...


class RockMQ:
    """`rockmq serve`: one process for both roles, which a crash takes together."""

    kind = "rockmq"

    def __init__(self, directory: Path, stack: ExitStack, settings: Mapping[str, str]) -> None:
        self._directory, self._stack, self._settings = directory, stack, settings
        self._namesrv_port, self._broker_port = free_port(), free_broker_port()
        self._server: server.Server | None = None
        self.namesrv = self.broker = ""

    def start(self) -> None:
        keys = [word for key, value in (HASTE | self._settings).items() for word in ("--set", f"{key}={value}")]
        serve = server.serve(self._directory, *keys, namesrv_port=self._namesrv_port, broker_port=self._broker_port)
        self._server = self._stack.enter_context(serve)
        self.namesrv, self.broker = self._server.namesrv, self._server.broker

    @property
    def pid(self) -> int:
        """Of the process that a crash takes."""
        assert self._server
        return self._server.pid

    def crash(self) -> None:
        assert self._server
        self._server.kill()


class Apache:
    """Apache's name server and broker; a crash takes the broker alone, as the name server keeps nothing."""

    kind = "apache"

    def __init__(self, directory: Path, stack: ExitStack, settings: Mapping[str, str]) -> None:
        self._directory, self._stack, self._settings = directory, stack, settings
        self._names: apache.Peer | None = None
        self._broker: apache.Peer | None = None
        self._namesrv_port, self._broker_port = free_port(), free_broker_port()
        self.namesrv = self.broker = ""

    def start(self) -> None:
        if not self._names:
            self._names = self._stack.enter_context(apache.name_server(self._directory / "namesrv", self._namesrv_port))
            self.namesrv = self._names.address
        peer = apache.broker(self._directory / "broker", self._broker_port, self.namesrv, properties=HASTE | self._settings)
        self._broker = self._stack.enter_context(peer)
        self.broker = self._broker.address

    @property
    def pid(self) -> int:
        assert self._broker
        return self._broker.pid

    def crash(self) -> None:
        assert self._broker
        self._broker.kill()


KINDS: dict[str, type[RockMQ] | type[Apache]] = {"rockmq": RockMQ, "apache": Apache}


def require(kind: str) -> None:
    """Skip the test when servers of that kind can't be had here; in CI that is a failure."""
    if kind == "apache" and (missing := apache.available()):
        if os.environ.get("CI") == "true":
            pytest.fail(f"tests against Apache's broker can't run: {missing}", pytrace=False)
        pytest.skip(missing)


@contextmanager
def started(kind: str, directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A cluster of that kind that serves clients, for the length of a `with`; `settings` are keys of its broker.conf.

    Its log is gone at the end: many test files have a cluster, and a GiB each fills a disk until the last one is through.
    After a failure in the `with` it stays, as it may tell why.
    """
    with ExitStack() as stack:
        cluster: Cluster = KINDS[kind](directory, stack, settings or {})
        cluster.start()
        wait_for_route(cluster.namesrv, _TEMPLATE_TOPIC)
        yield cluster
    _remove_logs(directory)


def _remove_logs(directory: Path) -> None:
    for log in list(directory.rglob("commitlog")):
        shutil.rmtree(log)


def route(namesrv: str, topic: str) -> dict[str, Any] | None:
    """What the name server answers for a topic, None when it doesn't know it."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = apache.invoke(namesrv, _GET_ROUTE, fields)
    if answer.code:
        return None
    decoded: dict[str, Any] = json.loads(answer.body)
    return decoded


def wait_for_route(namesrv: str, topic: str, timeout_s: float = 40) -> dict[str, Any]:
    """The route of a topic as soon as there is one (a new topic takes its broker a moment to register)."""
    return eventually(lambda: route(namesrv, topic), timeout_s, f"route of {topic}")


def broker_name(cluster: Cluster) -> str:
    """What the broker calls itself."""
    name: str = wait_for_route(cluster.namesrv, _TEMPLATE_TOPIC)["brokerDatas"][0]["brokerName"]
    return name


def cluster_name(cluster: Cluster) -> str:
    name: str = wait_for_route(cluster.namesrv, _TEMPLATE_TOPIC)["brokerDatas"][0]["cluster"]
    return name


def committed_offset(cluster: Cluster, group: str, topic: str, queue_id: int) -> int | None:
    """The consumer offset the broker keeps, None when it keeps none."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
    answer = apache.invoke(cluster.broker, _QUERY_CONSUMER_OFFSET, fields)
    return None if answer.code else int(answer.fields["offset"])


def max_offset(cluster: Cluster, topic: str, queue_id: int) -> int:
    """Where the next message of a queue goes."""
    answer = apache.invoke(cluster.broker, _GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    return int(answer.fields["offset"])


def wait_until_dispatched(cluster: Cluster) -> None:
    """Until queues have what the broker has acknowledged: Apache's puts it there a little later."""

    def dispatched() -> bool:
        answer = apache.invoke(cluster.broker, _GET_BROKER_RUNTIME_INFO)
        return answer.code == 0 and str(json.loads(answer.body)["table"]["dispatchBehindBytes"]) == "0"

    eventually(dispatched, 60, "all in its queues")


_QUERY_CONSUMER_OFFSET = 14
_GET_BROKER_RUNTIME_INFO = 28
_GET_MAX_OFFSET = 30
