"""The queues of a stream's topics and their ends, asked for again and again through one client that stays open.

Spark asks a stream for its latest offsets every 10 ms while there is nothing new, in one process next to the driver and one
call at a time (spark spec, 1.2), so an answer of the brokers is used for a second. Queues and topics that come into being
are seen with the next one. Servers that can't be reached are done without for some time: their queues just don't go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from rockmq.base.clock import Clock, sleep
from rockmq.base.errors import RequestTimeout, RockMQError, RouteNotFound
from rockmq.blocking.bridge import Portal
from rockmq.client import MessageQueue
from rockmq.spark import cluster
from rockmq.spark.options import ReadOptions
from rockmq.spark.patience import Patience
from rockmq.spark.ranges import Bounds
from rockmq.spark.stream_options import StreamOptions

K = TypeVar("K")
T = TypeVar("T")

KEPT_SECONDS = 1.0
"""How long the ends of queues are used before brokers are asked again."""
RETRY_SECONDS = 0.5
"""Wait before asking again, when an answer can't be done without."""
SAMPLE_COUNT = 32
"""Messages whose sizes are looked at in one place of a queue."""


class QueueWatch:
    """What brokers say of the queues of the topics. Belongs to one thread; `close` it."""

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._portal = Portal()
        self._client: cluster.Brokers | None = None
        self._patience = Patience(clock, options.timeout)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._chosen: list[MessageQueue] = []
        self._is_whole = False
        """Whether the last answer left nobody out."""
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._kept_until = float("-inf")
        self.last_known: dict[MessageQueue, Bounds] = {}
        """Of all queues that ever answered, also of those that don't now."""

    def close(self) -> None:
        if self._client is not None and not self._portal.closed:
            self._portal.run(self._client.close)
        self._portal.close()

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """The ends of the queues whose brokers answer, a second old at most.

        Raises RequestTimeout when a server has been away for longer than the option `timeout` says; at once what waiting
        can't mend, and RouteNotFound or RemotingError for a topic that was never found.
        """
        if self._clock.monotonic() >= self._kept_until:
            self._bounds = self._portal.run(self._ask)
            self._kept_until = self._clock.monotonic() + KEPT_SECONDS
        return self._bounds

    def all_bounds(self) -> dict[MessageQueue, Bounds]:
        """The ends of all queues as they are now; waits for brokers that are away. Raises as `bounds` does."""
        self._bounds = self._portal.run(self._ask_all)
        self._kept_until = self._clock.monotonic() + KEPT_SECONDS
        return self._bounds

    def resolved(self, bounds: Mapping[MessageQueue, Bounds]) -> ReadOptions:
        """The options with offsets instead of times and of a group. Raises ConfigError, RockMQError."""
        return self._portal.run(self._resolved, bounds)

    def is_listed(self, queue: MessageQueue) -> bool:
        """Whether the queue is in the last route of its topic that was heard."""
        return queue in self._queues.get(queue.topic, ())

    def sizes(self, places: Mapping[MessageQueue, list[int]]) -> dict[MessageQueue, float]:
        """The bytes per offset behind these places, of what isn't filtered out; without queues that don't tell."""
        return self._portal.run(self._sizes, places)

    async def _opened(self) -> cluster.Brokers:
        if self._client is None:
            client = cluster.connected(self._options)
            await client.start()
            self._client = client
        return self._client

    async def _resolved(self, bounds: Mapping[MessageQueue, Bounds]) -> ReadOptions:
        return await cluster.resolved(await self._opened(), self._options, bounds)

    async def _ask_all(self) -> dict[MessageQueue, Bounds]:
        while True:
            found = await self._ask()
            if self._is_whole:
                return found
            await sleep(self._clock, RETRY_SECONDS)

    async def _ask(self) -> dict[MessageQueue, Bounds]:
        client = await self._opened()

        async def bounds_of(queue: MessageQueue) -> Bounds:
            # In this order the first offset can't be behind the end, whatever comes or expires meanwhile.
            return Bounds(await client.min_offset(queue), await client.max_offset(queue))

        answers = await _answers(await self._look_up(client), bounds_of)
        found = {queue: answer for queue, answer in answers.items() if isinstance(answer, Bounds)}
        silent = {queue.broker_name: answer for queue, answer in answers.items() if isinstance(answer, RockMQError)}
        for broker, error in silent.items():
            self._failed(f"broker {broker}", error)
        self.last_known |= found
        self._is_whole = self._patience.end_round()
        return found

    async def _look_up(self, client: cluster.Brokers) -> list[MessageQueue]:
        """The queues to be read, as far as known those of routes that can't be had, too."""
        topics = await self._topics(client)
        self._queues = {topic: self._queues[topic] for topic in topics if topic in self._queues}
        for topic, answer in (await _answers(topics, client.queues)).items():
            if isinstance(answer, list):
                self._queues[topic] = answer
            elif topic in self._queues:
                self._failed(f"the route of {topic}", answer)
            elif not (self._options.topic_pattern and isinstance(answer, RouteNotFound)):
                raise answer  # never found: a wrong name rather than a server that will be back
        listed = [queue for topic in sorted(self._queues) for queue in self._queues[topic]]
        cluster.refuse_static(listed, "read")
        if not self._options.queues:
            return listed
        if not self._chosen:
            self._chosen = cluster.chosen(listed, self._options)
        return [queue for queue in self._chosen if queue in listed]

    async def _topics(self, client: cluster.Brokers) -> list[str]:
        """With a pattern those that match it now, or did when a name server was last heard."""
        try:
            return await cluster.topics_of(client, self._options)
        except RockMQError as error:
            if not self._queues:
                raise
            self._failed("the list of topics", error)
            return list(self._queues)

    def _failed(self, what: str, error: RockMQError) -> None:
        if not error.retriable:
            raise error
        if self._patience.is_over(what, str(error)):
            text = f"{what} couldn't be had for {self._options.timeout:g} s (option timeout), the last answer was: {error}"
            raise RequestTimeout(text) from error

    async def _sizes(self, places: Mapping[MessageQueue, list[int]]) -> dict[MessageQueue, float]:
        client = await self._opened()

        async def average(queue: MessageQueue) -> float | None:
            pull = cluster.pull_from(client, queue, self._options)
            passed = size = 0
            for offset in places[queue]:
                answer = await pull(offset, SAMPLE_COUNT)
                passed += max(answer.next_offset - offset, 0)
                size += len(answer.data)
            return size / passed if passed else None

        answers = await _answers(places, average)
        return {queue: answer for queue, answer in answers.items() if isinstance(answer, float)}


async def _answers(asked: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | RockMQError]:
    """What each got for an answer, with some asked at a time."""
    turns = asyncio.Semaphore(cluster.ASKED_AT_ONCE)

    async def one(each: K) -> T | RockMQError:
        async with turns:
            try:
                return await ask(each)
            except RockMQError as error:
                return error

    each = list(asked)
    return dict(zip(each, await asyncio.gather(*map(one, each)), strict=True))
