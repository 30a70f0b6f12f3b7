"""The client against real servers: RockMQ's, and Apache's as proof that it does what brokers of either kind expect.

Each test has both by the fixture `peer`, which all share: use topics and groups of your own (`new_topic`, `unique`), and a
cluster of your own (`cluster.started`) for what would disturb others.
"""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from rockmq.client import Client, MessageQueue
from tests.support import apache, cluster

SETTINGS = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}

NewTopic = Callable[..., Awaitable[list[MessageQueue]]]


# Not for the whole session: an Apache broker keeps a processor busy also when it has nothing to do.
@pytest.fixture(scope="package", params=["rockmq", "apache"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """A name server with a broker, RockMQ's and then Apache's."""
    if request.param == "apache" and (missing := apache.available()):
        if os.environ.get("CI") == "true":
            pytest.fail(f"tests against Apache's broker can't run: {missing}", pytrace=False)
        pytest.skip(missing)
    with cluster.started(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as started:
        yield started


@pytest.fixture
async def mq(peer: cluster.Cluster) -> AsyncIterator[Client]:
    async with Client(peer.namesrv) as client:
        yield client


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    counter = itertools.count(1)
    return lambda name: f"{name}-{next(counter)}"


@pytest.fixture
def new_topic(mq: Client, unique: Callable[[str], str]) -> NewTopic:
    """Makes a topic that no other test uses, with so many queues; its queues."""

    async def make(queues: int = 4, name: str = "orders") -> list[MessageQueue]:
        return await mq.create_topic(unique(name), queues)

    return make
