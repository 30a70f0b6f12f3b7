"""Java consumers that filter by SQL92 expressions."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import SERVERS
from tests.support import apache, cluster
from tests.support.cluster import Cluster
from tests.support.events import events, queues_are, wait_for, wait_for_keys
from tests.support.messages import content

COUNT = 20
EXPRESSION = "index BETWEEN 3 AND 7 AND TAGS <> 'tag1' AND greeting CONTAINS '你好'"
WANTED = (3, 5, 6)


@pytest.fixture(scope="module", params=SERVERS)
def filtering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("filtering")
    with cluster.started(request.param, directory, {"enablePropertyFilter": "true"}) as started:
        yield started


def produce(client: str, server: Cluster, topic: str, prefix: str, directory: Path) -> set[str]:
    """Send messages; the keys of those that are wanted."""
    arguments = f"namesrv={server.namesrv}", f"topic={topic}", f"prefix={prefix}", "modes=sync", f"count={COUNT}"
    with apache.program(client, "Producer", *arguments, directory=directory, name=f"Producer-{prefix}") as producer:
        assert producer.wait(60) == 0, producer.tail()
    return {content(f"{prefix}-sync", index).key for index in WANTED}


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_a_consumer_gets_what_its_expression_is_true_for(
    filtering: Cluster, unique: Callable[[str], str], tmp_path: Path, client: str
) -> None:
    """What was there before, and what comes while it waits."""
    topic, group, before, after = map(unique, ("filtered", "filtered-group", "before", "after"))
    wanted = produce(client, filtering, topic, before, tmp_path)
    where = f"namesrv={filtering.namesrv}", f"topic={topic}", f"group={group}"
    with apache.program(client, "PushConsumer", *where, f"sql={EXPRESSION}", directory=tmp_path) as consumer:
        wait_for(consumer, "started")
        queues_are(consumer, lambda queues: any(topic in queue for queue in queues))
        wait_for_keys(consumer, wanted)
        wanted |= produce(client, filtering, topic, after, tmp_path)
        wait_for_keys(consumer, wanted)
        consumer.terminate()
        assert [message["keys"] for message in events(consumer, "message") if message["keys"] not in wanted] == []


@pytest.mark.parametrize("client", apache.CLIENTS)
@pytest.mark.parametrize(("expression", "code"), [("index > 'x'", 23), ("index > 5", 1)])
def test_a_consumer_that_cannot_filter_so_does_not_start(
    filtering: Cluster,
    shared: Cluster,
    unique: Callable[[str], str],
    tmp_path: Path,
    client: str,
    expression: str,
    code: int,
) -> None:
    """For a wrong expression, or a broker that doesn't filter."""
    server = filtering if code == 23 else shared
    topic = unique("unfiltered")
    produce(client, server, topic, unique("m"), tmp_path)
    where = f"namesrv={server.namesrv}", f"topic={topic}", f"group={unique('unfiltered-group')}", f"sql={expression}"
    with apache.program(client, "PushConsumer", *where, "timeoutMs=20000", directory=tmp_path) as consumer:
        consumer.wait_until(lambda: f"CODE: {code} " in consumer.tail(), 30, f"an error with code {code}")
        assert events(consumer, "started") == []
        consumer.kill()  # its hook would wait for what never started
