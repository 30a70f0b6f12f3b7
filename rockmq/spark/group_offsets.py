"""A streaming query's offsets as those of a consumer group, so that brokers, and all who ask them, know its lag.

Spark tells listeners of each batch that has ended, the last one too, with the offsets it went up to. These are committed
from the process of the user's program. Spark goes on with its own checkpoint whatever becomes of them.

To brokers this is a consumer of the group that has assigned itself the queues and pulls nothing: so the group has what
`consumerProgress` asks for (its retry topic), and is shown as online. A group must be one query's own, then: consumers
that share queues with each other would leave some of them to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from rockmq.base.clock import Clock, SystemClock, sleep
from rockmq.base.errors import ConfigError, RockMQError, RouteNotFound
from rockmq.base.tasks import Tasks
from rockmq.blocking.bridge import Portal
from rockmq.client import LitePullConsumer, MessageQueue
from rockmq.protocol import topics
from rockmq.spark import cluster
from rockmq.spark.options import ConnectionOptions, check_connection, convert
from rockmq.spark.ranges import OffsetTree, from_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
REPEAT_SECONDS = 30.0
"""Brokers are told again what they were told: one that was killed may have forgotten it, while the query is idle."""
CLOSE_SECONDS = 10.0
"""How long `close` waits for the last events of queries that have ended, and for brokers that are away."""


def commit_offsets(
    spark: "SparkSession", group: str, *, query: str | None = None, clock: Clock | None = None, **options: str
) -> "GroupOffsets":
    """From now on commit to the group how far streaming queries of this session have come; `close` the result.

        with commit_offsets(spark, "reports", nameServer="localhost:9876"):
            orders.writeStream.start(…).awaitTermination()

    `options` are those of the source that say how to reach brokers. `query` is the name or id of one query; without it every
    query's RockMQ sources are meant. A group must be of one query alone. Brokers that are away are told later; if this
    process ends before, they learn it when the query runs again. With Spark Connect it is the client that listens and
    commits, so it must reach the brokers, and events that come while it isn't connected are lost.

    Raises ConfigError. Servers that can't be reached are a warning in the log.
    """
    if (fault := topics.group_fault(group)) is not None:
        raise ConfigError(fault)
    connection = convert(ConnectionOptions, options)
    check_connection(connection)
    return GroupOffsets(spark, group, connection, query, clock or SystemClock())


async def commit_once(options: ConnectionOptions, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Commit offsets of a group, which brokers needn't know; they have them when this returns. Raises RockMQError; some may
    be committed then."""
    async with cluster.connected(options) as client:
        # So that the group is known, with the retry topic that who asks for its progress looks for.
        consumer = client.lite_pull_consumer(group, auto_commit=False, from_where="first")
        await consumer.start()
        await cluster.of_each(offsets, lambda queue: client.commit(group, queue, offsets[queue]))


class GroupOffsets:
    """Made by `commit_offsets`, for use with `with`; any thread may call it."""

    def __init__(
        self, spark: "SparkSession", group: str, options: ConnectionOptions, query: str | None, clock: Clock
    ) -> None:
        self._streams = spark.streams
        self._query = query
        self._committer = Committer(group, options, clock)
        self._running: set[str] = set()
        self._portal = Portal()
        try:
            self._portal.run(self._committer.start)
            self._listener = _Listener(self)
            self._streams.addListener(self._listener)
        except BaseException:
            self._portal.close()
            raise

    def close(self) -> None:
        """Commit what has been done, and leave the group. Returns after some seconds even if brokers don't answer; what they
        weren't told is logged."""
        if self._portal.closed:
            return
        try:
            self._portal.run(self._last_events)
            self._streams.removeListener(self._listener)
            self._portal.run(self._committer.close)
        finally:
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _last_events(self) -> None:
        """Spark tells of the end of a query some time after who waits for it has gone on."""
        active = {str(each.runId) for each in await asyncio.to_thread(lambda: self._streams.active)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                # Polled: this is once, while an event would have to come from another thread.
                while self._running - active:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    # What the listener hears, in a thread of Spark's

    def started(self, run: str, query: str, name: str | None) -> None:
        if self._query in (None, query, name):
            self._running.add(run)

    def ended(self, run: str) -> None:
        self._running.discard(run)

    def progressed(self, query: str, name: str | None, offsets: list[str]) -> None:
        if self._query in (None, query, name) and not self._portal.closed:
            for text in offsets:
                if found := parse_source_offset(text):
                    self._portal.call(self._committer.want, found)


def parse_source_offset(text: str) -> dict[MessageQueue, int]:
    """The offsets in a query's progress; none when they are another kind of source's."""
    try:
        tree: OffsetTree = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, int]]])
        return from_tree(tree)
    except (msgspec.DecodeError, ValueError):
        return {}


class _Listener(StreamingQueryListener):
    """Hands on what counts, without making Spark wait."""

    def __init__(self, told: GroupOffsets) -> None:
        self._told = told

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        self._told.started(str(event.runId), str(event.id), event.name)

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        progress = event.progress
        self._told.progressed(str(progress.id), progress.name, [source.endOffset for source in progress.sources])

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        self._told.ended(str(event.runId))


class Committer:
    """Brings offsets to brokers until they have them; lives in one event loop."""

    def __init__(self, group: str, options: ConnectionOptions, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._client = cluster.connected(options)
        self._consumer: LitePullConsumer | None = None
        self._tasks = Tasks()
        self._wanted: dict[MessageQueue, int] = {}
        self._told: dict[MessageQueue, int] = {}
        self._unrouted: set[str] = set()
        """Topics that name servers don't know, perhaps deleted ones: asked for again with the next repetition."""
        self._changed = asyncio.Event()
        self._fault = ""

    async def start(self) -> None:
        await self._client.start()
        # Without topics: it is assigned queues, and shares none.
        self._consumer = self._client.lite_pull_consumer(self._group, auto_commit=False, from_where="first")
        await self._consumer.start()
        self._tasks.start(self._run(), f"offsets of {self._group}")
        self._tasks.every(REPEAT_SECONDS, self.repeat, f"repeated offsets of {self._group}")

    def want(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._wanted |= offsets
        self._changed.set()

    @property
    def _untold(self) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._wanted.items() if self._told.get(queue) != offset}

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._commit(self._routed(self._untold))
                if not self._unrouted:
                    self._fault = ""
            except RockMQError as error:
                if not (isinstance(error, RouteNotFound) and await self._leave_out()):
                    self._failed(str(error))
                    await sleep(self._clock, RETRY_SECONDS)
                self._changed.set()

    def _failed(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            log.warning("offsets of group %s aren't committed yet: %s", self._group, fault)

    def _routed(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in offsets.items() if queue.topic not in self._unrouted}

    async def _leave_out(self) -> bool:
        """Whether there are topics without a route, so that the others can do without them."""
        found: set[str] = set()
        every = {queue.topic for queue in self._wanted}
        for topic in every:
            try:
                await self._client.queues(topic)
            except RouteNotFound:
                found.add(topic)
            except RockMQError:
                return False
        if found == every or found <= self._unrouted:
            return False
        self._unrouted = found
        self._failed(f"no name server has a route for {', '.join(sorted(found))}")
        return True

    async def _commit(self, offsets: dict[MessageQueue, int]) -> None:
        assert self._consumer is not None
        if not offsets.keys() <= set(self._consumer.queues):
            queues = [*self._routed(self._wanted)]
            await self._consumer.assign(queues)
            self._consumer.pause(*queues)  # before it has begun to pull
        await self._consumer.commit(offsets)
        self._told |= offsets

    def repeat(self) -> None:
        """Tell all offsets again."""
        self._unrouted.clear()
        self._told.clear()
        self._changed.set()

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._routed(self._untold):  # noqa: ASYNC110  (as in `_last_events`)
                    await asyncio.sleep(0.02)
        if self._untold:
            log.warning("group %s leaves without committing %d offsets: %s", self._group, len(self._untold), self._fault)
        await self._tasks.close()
        await self._client.close()
