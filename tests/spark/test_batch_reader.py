"""Reading ranges of a real server as the tasks do, without Spark around it."""

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from rockmq.base.errors import ConnectError, RockMQError, RouteNotFound
from rockmq.client import MessageQueue
from rockmq.spark import cluster
from rockmq.spark.batch_reader import BATCH_BYTES, BATCH_ROWS, BatchReader, read_range
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import DataLoss, Range, offsets_json
from rockmq.spark.schema import ARROW
from tests.spark.conftest import create, fill
from tests.spark.test_batch_read import numbered
from tests.support import server
from tests.support.process import free_broker_port, free_port
from tests.support.server import Server

SMALL_FILES = ("--set", "mappedFileSizeCommitLog=1048576")
COUNT = 3_000


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def options(namesrv: str, **more: str) -> ReadOptions:
    return parse({"nameServer": namesrv, "topic": "old", "timeout": "1", **more})


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, MessageQueue, int]]:
    """A server whose topic `old` has lost its first log file: with the queue and its new first offset."""
    directory = tmp_path_factory.mktemp("expired")
    with server.serve(directory, *SMALL_FILES) as started:
        asyncio.run(create(started.namesrv, "old", 1))
        asyncio.run(fill(started.namesrv, "old", {0: numbered(COUNT, size=1_000)}))
    min(started.data.joinpath("commitlog").iterdir()).unlink()
    with server.serve(directory, *SMALL_FILES) as started:
        ((queue, bounds),) = cluster.run(cluster.topic_bounds(options(started.namesrv))).items()
        assert 0 < bounds.first < bounds.end == COUNT
        yield started, queue, bounds.first


Expired = tuple[Server, MessageQueue, int]


def test_earliest_is_what_is_left(expired: Expired) -> None:
    started, queue, first = expired

    reader = BatchReader(options(started.namesrv), ARROW)

    assert reader.partitions() == [Range(queue, first, COUNT)]
    assert offsets(reader.read(reader.partitions()[0])) == list(range(first, COUNT))


def test_expired_offsets_fail_the_planning(expired: Expired) -> None:
    started, queue, first = expired
    named = offsets_json({queue: 5})

    with pytest.raises(DataLoss, match=rf"old/.*/0 \[5, {first}\) has expired: the queue starts at {first} now"):
        BatchReader(options(started.namesrv, startingOffsets=named), ARROW).partitions()


def test_what_expires_after_planning_fails_the_task(expired: Expired) -> None:
    started, queue, first = expired

    with pytest.raises(DataLoss, match=rf"old/.*/0 \[5, {first}\) is lost: the queue starts at {first} now"):
        offsets(read_range(options(started.namesrv), Range(queue, 5, COUNT), ARROW))


def test_what_expires_after_planning_may_be_passed_over(expired: Expired) -> None:
    started, queue, first = expired

    found = offsets(read_range(options(started.namesrv, failOnDataLoss="false"), Range(queue, 5, COUNT), ARROW))

    assert found == list(range(first, COUNT))


def test_an_end_that_is_gone_fails_the_task(expired: Expired) -> None:
    started, queue, _ = expired

    with pytest.raises(DataLoss, match=rf"\[{COUNT}, {COUNT + 5}\) is lost: .* the queue ends at {COUNT}"):
        offsets(read_range(options(started.namesrv), Range(queue, COUNT - 5, COUNT + 5), ARROW))


def test_batches_are_as_large_as_they_should_be(expired: Expired) -> None:
    started, queue, first = expired

    batches = list(read_range(options(started.namesrv), Range(queue, first, COUNT), ARROW))

    assert sum(batch.num_rows for batch in batches) == COUNT - first
    assert all(batch.nbytes >= BATCH_BYTES and batch.num_rows < BATCH_ROWS for batch in batches[:-1])
    assert len(batches) > 1


def test_a_read_and_a_plan_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    serve = partial(server.serve, tmp_path, namesrv_port=free_port(), broker_port=free_broker_port())
    with serve() as started:
        asyncio.run(create(started.namesrv, "old", 1))
        asyncio.run(fill(started.namesrv, "old", {0: numbered(20_000, size=1_000)}))
        (wanted,) = BatchReader(options(started.namesrv), ARROW).partitions()
        assert isinstance(wanted, Range)
        named = json.dumps({"old": {wanted.queue.broker_name: [0]}})
        reader = BatchReader(options(started.namesrv, topic="", queues=named, timeout="60"), ARROW)
        assert reader.partitions() == [wanted]
        batches = reader.read(wanted)
        found = next(batches).column("queueOffset").to_pylist()
        started.kill()
    with ThreadPoolExecutor(1) as beside:
        planned = beside.submit(reader.partitions)
        with serve():
            found += offsets(batches)
            assert planned.result() == [wanted]

    assert found == list(range(20_000))


def test_an_unknown_topic_is_named(expired: Expired) -> None:
    with pytest.raises(RouteNotFound, match="no-such-topic"):
        BatchReader(options(expired[0].namesrv, topic="no-such-topic"), ARROW).partitions()


def test_no_server_is_told_with_its_address() -> None:
    nobody = f"127.0.0.1:{free_port()}"

    with pytest.raises(ConnectError, match=nobody):
        BatchReader(options(nobody), ARROW).partitions()


def test_a_server_that_only_a_task_can_not_reach_is_told_with_the_host() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    wanted = Range(MessageQueue("old", "broker-a", 0), 0, 5)

    with pytest.raises(ConnectError, match=rf"on {socket.gethostname()}, reading old/broker-a/0 \[0, 5\): .*{nobody}"):
        list(read_range(options(nobody, timeout="0.1"), wanted, ARROW))


async def test_planning_works_inside_a_running_loop(expired: Expired) -> None:
    """As in a notebook."""
    assert len(cluster.run(cluster.topic_bounds(options(expired[0].namesrv)))) == 1


async def test_errors_come_out_of_a_running_loop() -> None:
    with pytest.raises(RockMQError):
        cluster.run(cluster.topic_bounds(options(f"127.0.0.1:{free_port()}")))
