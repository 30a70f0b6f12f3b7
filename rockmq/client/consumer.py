"""Consumes topics as a member of a group (DefaultMQPushConsumer.java; clients' spec, section 3).

Members share the queues. Pulled messages wait in an inbox until the application takes them; the group's offset in a queue
follows the oldest message that isn't finished, is told to the broker every 5 s and with every pull, and stored for
certain when a queue is given up and at the end. So a message is delivered at least once; again when a member dies or
queues change hands while it is worked on, and when it was refused.

A refused message is sent back to the broker it came from, which delivers it again after a delay that grows, and makes it a
dead letter after 16 times: one in `%DLQ%` and the group's name, a topic to subscribe to. If that fails, the message is
sent anew to the group's retry topic, wherever it is; and if that fails too, the consumer delivers it again itself after
5 s, as Java's does, and keeps it in its queue meanwhile. What differs in orderly groups and broadcasts is in `outcomes.py`.

A queue costs a task and a waiting pull: on a virtual machine with two cores 10,000 queues in one consumer take 2 s to start
and 100 MiB, of which some is the embedded broker's that served them in the same process.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Unpack

from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client import running_info
from rockmq.client.assignment import warn_if_popping
from rockmq.client.consume_stats import SAMPLE_SECONDS
from rockmq.client.consumer_options import ConsumerOptions, Options
from rockmq.client.delivery import ConsumedMessage, Handed, Inbox, consumed
from rockmq.client.handlers import BatchHandler, Handler, KeyOf, Lines, Workers, callable_in_loop, work_on_batch
from rockmq.client.instance import Instance
from rockmq.client.local_offsets import LocalOffsets
from rockmq.client.locks import Locks
from rockmq.client.offsets import Offsets, OffsetStore
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.outcomes import Broadcast, Concurrent, Ended, Orderly
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.retries import Retry
from rockmq.client.send_back import SendBack
from rockmq.client.share import Share, positions_of, until
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics, Wanted, subscription, subscriptions
from rockmq.filter import is_tag
from rockmq.protocol import json
from rockmq.protocol import topics as topic_names
from rockmq.protocol.bodies.client import CheckClientBody, ConsumerData, DirectResult
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import CheckClientConfig
from rockmq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

CACHE_MESSAGES_MAX = 16_000
CACHE_BYTES_MAX = 256 * 1024 * 1024
PERSIST_SECONDS = 5.0
START_TIMEOUT = 5.0
RECONSUME_TIMES_MAX = 16
UNLIMITED = 0x7FFF_FFFF
"""How often an orderly group tries, unless told otherwise."""
EXPIRY_CHECKS = 10
"""How often in a consume timeout it is looked for handlers that hang."""


class Consumer:
    """A member of a consumer group; made by `Client.consumer`, used with `async with`.

    Take messages by `async for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `async with` stops pulling, waits for messages that are being worked on, stores offsets and leaves the group.
    """

    def __init__(self, instance: Instance, group: str, topics: Topics, **options: Unpack[ConsumerOptions]) -> None:
        fault = topic_names.group_fault(group)
        if fault is not None:
            raise ClientError(fault)
        self.group = group
        self._instance = instance
        self._options = said = Options(**options)
        self._subscriptions = subscriptions(topics, group, instance.clock.now_ms())
        if said.broadcast:
            del self._subscriptions[topic_names.retry_topic(group)]
        self._offsets: OffsetStore = (
            LocalOffsets(instance, group, said.from_where, said.offsets_directory)
            if said.broadcast
            else Offsets(instance, group, said.from_where)
        )
        self._cache = Cache(CACHE_MESSAGES_MAX, CACHE_BYTES_MAX)
        self._locks = Locks(instance, group) if said.order and not said.broadcast else None
        self._send_back = SendBack(instance, group, self._times_max)
        watch = partial(instance.hooks.consuming, group) if instance.hooks is not None else None
        self._inbox: Inbox
        self._outcome: Ended
        if said.order:
            inbox = self._inbox = OrderlyInbox(said.max_in_flight, instance.clock, watch)
            send_back = None if said.broadcast else self._send_back
            self._outcome = Orderly(inbox, self._cache, send_back, times_max=said.max_reconsume_times, suspend=said.suspend)
        else:
            self._inbox = Inbox(said.max_in_flight, instance.clock, watch)
            self._outcome = (
                Broadcast(self._inbox, self._cache)
                if said.broadcast
                else Concurrent(self._inbox, self._cache, self._send_back)
            )
        self._share = Share(
            instance,
            group,
            self._subscriptions,
            said,
            offsets=self._offsets,
            inbox=self._inbox,
            cache=self._cache,
            outcome=self._outcome,
            locks=self._locks,
        )
        self._tasks = Tasks()
        self._started_ms = 0
        self._concurrency = 0

    @property
    def _times_max(self) -> int:
        said = self._options.max_reconsume_times
        return said if said is not None else UNLIMITED if self._options.order else RECONSUME_TIMES_MAX

    async def start(self) -> None:
        """Join the group; returns when the first queues are ours, or after 5 s without; `async with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when a
        broadcast's file of offsets can't be used.
        """
        self._instance.check_open()
        if self._inbox.closed or self._started_ms:
            raise ClientClosed("a consumer can be started once")
        self._offsets.open()
        try:
            self._instance.add_consumer(self)
        except BaseException:
            self._offsets.close()
            raise
        self._started_ms = self._instance.clock.now_ms()
        try:
            await asyncio.gather(*map(self._look_up, self._subscriptions.values()))
            await self._instance.heartbeat()
            self._share.start()
            self._tasks.every(PERSIST_SECONDS, self._persist, f"offsets of {self.group}")
            self._tasks.start(warn_if_popping(self._instance, self.group, list(self._subscriptions)), "request mode")
            self._tasks.every(SAMPLE_SECONDS, self._sample, f"figures of {self.group}")
            if not self._options.order:
                every = self._options.consume_timeout / EXPIRY_CHECKS
                self._tasks.every(every, self._expire, f"handlers of {self.group} that hang")
            async with asyncio.timeout(START_TIMEOUT):
                await self._share.rebalancer.settled.wait()
        except TimeoutError:
            log.warning("group %s has no queues yet, going on trying", self.group)
        except BaseException:
            await self.close(0)
            raise

    async def _look_up(self, subscription: SubscriptionData) -> None:
        try:
            route = await self._instance.routes.get(subscription.topic)
        except RockMQError as error:
            log.info("%s", error)  # the rebalancer asks again, and complains
            return
        if not is_tag(subscription.expression_type):
            for master in route.masters():
                await self._check(subscription, master)

    async def _check(self, subscription: SubscriptionData, master: str) -> None:
        """Have a broker say whether it can filter so (MQClientInstance.checkClientInBroker). Raises ResponseError."""
        body = CheckClientBody(client_id=self._instance.client_id, group=self.group, subscription_data=subscription)
        try:
            await self._instance.ask(master, RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfig(), json.encode(body))
        except RemotingError as error:
            log.info("%s", error)  # it may come back

    async def close(self, drain_timeout: float | None = None) -> None:
        """Stop pulling, wait for what is being worked on, store offsets, leave the group."""
        if self._inbox.closed:
            return
        self._inbox.close()
        if not self._started_ms:
            return
        try:
            await self._tasks.close()
            await self._share.close()
            self._outcome.close()
            queues = list(self._share.queues.values())
            self._inbox.withhold(*queues)
            timeout = self._options.drain_timeout if drain_timeout is None else drain_timeout
            if not await until(lambda: not any(each.blocks for each in queues), timeout):
                log.warning("group %s: messages are still being worked on after %g s; they will come again",
                            self.group, timeout)  # fmt: skip
            await self._offsets.commit(positions_of(queues))
            if self._locks is not None:
                await self._locks.unlock_all()
            await self._send_back.close()
        finally:
            self._offsets.close()
            await self._instance.remove(consumer=self.group)

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        return self._inbox.closed

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the group's retry topic among them."""
        return sorted(self._share.queues)

    # Subscribing

    async def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Consume a topic too, or other messages of one that is consumed; returns when its queues are shared out.

        Messages that were pulled before still come. All members of a group must subscribe alike. Raises ClientError, and
        ResponseError when a broker can't filter so.
        """
        self._check_started()
        fresh = subscription(topic, wanted, self._instance.clock.now_ms())
        await self._look_up(fresh)
        self._subscriptions[topic] = fresh
        await self._instance.heartbeat()
        self._share.pull_anew(topic)
        await self._share.rebalancer.now()

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; returns when its queues are given up. Raises ClientError when it isn't consumed."""
        self._check_started()
        if topic not in self._subscriptions or topic_names.is_retry(topic):
            raise ClientError(f"group {self.group} isn't subscribed to {topic!r}")
        del self._subscriptions[topic]
        await self._share.rebalancer.now()
        await self._instance.heartbeat()

    def _check_started(self) -> None:
        if self._instance.forked:
            self._instance.check_open()
        if not self._started_ms:
            raise ClientClosed("this consumer was not started: use `async with`")

    # Taking messages

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ConsumedMessage:
        message = await self._take()
        if message is None:
            raise StopAsyncIteration
        return message

    async def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[ConsumedMessage]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        self._check_started()
        found = []
        try:
            async with asyncio.timeout(timeout):
                first = await self._take()
        except TimeoutError:
            return []
        if first is not None:
            found.append(first)
            while len(found) < max_messages and (message := self._inbox.take_nowait()) is not None:
                found.append(message)
        return found

    async def run(
        self,
        handler: Handler,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: KeyOf | None = None,
    ) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises; `retry` says after
        how many seconds it comes again then (`backoff(1, 60)`).

        A handler that is no coroutine function is called on one of as many threads; or, for work that needs a processor, in
        one of as many `processes`: handler and messages are pickled then, and each process imports the program's main
        module, which needs its `if __name__ == "__main__":`.

        With `ordered_by` messages of the same key are worked on one after the other, also of different queues, as long as
        they don't fail; for more than that use a consumer with `order`.
        """
        async with callable_in_loop(handler, workers, concurrency, self.group) as call:
            lines = Lines(call, retry, ordered_by) if ordered_by is not None else None

            async def worker() -> None:
                while (message := await self._take()) is not None:
                    if lines is not None:
                        await lines.work(message)
                    else:
                        async with message.process(retry=retry, suppress=True):
                            await call(message)

            await self._run(worker, concurrency)

    async def run_batches(
        self,
        handler: BatchHandler,
        max_messages: int = 32,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
    ) -> None:
        """As `run`, but call `handler` for up to so many messages of one queue at a time, as many as are there.

        They are acknowledged when it returns, but for those that it has ended itself (`await message.nack()`). When it
        raises all are refused, when it raises `PartDone(n)` all but the first n.
        """

        async with callable_in_loop(handler, workers, concurrency, self.group) as call:

            async def worker() -> None:
                self._check_started()
                while batch := await self._inbox.take_batch(max_messages):
                    await work_on_batch(batch, call, retry)

            await self._run(worker, concurrency)

    async def _run(self, worker: Callable[[], Coroutine[None, None, None]], concurrency: int) -> None:
        self._concurrency += concurrency
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(concurrency):
                    group.create_task(worker(), name=f"{self.group} handler {number}")
        finally:
            self._concurrency -= concurrency

    async def _take(self) -> ConsumedMessage | None:
        self._check_started()
        return await self._inbox.take()

    async def _expire(self) -> None:
        """Refuse what is worked on for too long (ProcessQueue.cleanExpiredMsg)."""
        begun_before = asyncio.get_running_loop().time() - self._options.consume_timeout
        late = [block for each in self._share.queues.values() for block in each.blocks if block.begun < begun_before]
        await asyncio.gather(*(block.expire() for block in late))

    # Offsets and figures

    async def _persist(self) -> None:
        await self._offsets.tell(positions_of(self._share.queues.values()))

    async def commit(self) -> None:
        """Store offsets now, and wait until the brokers have them."""
        await self._offsets.commit(positions_of(self._share.queues.values()))

    def _sample(self) -> None:
        now = self._instance.clock.monotonic()
        for stats in self._share.stats.values():
            stats.sample(now)

    # What the runtime asks and tells

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            message_model="BROADCASTING" if self._options.broadcast else "CLUSTERING",
            consume_from_where=_FROM_WHERE.get(str(self._options.from_where), "CONSUME_FROM_TIMESTAMP"),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        self._share.rebalancer.wake()

    def reconnected(self) -> None:
        self._share.rebalancer.hold()
        self._offsets.forget()
        if self._locks is not None:
            self._locks.renew_soon()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return positions_of([each for queue, each in self._share.queues.items() if queue.topic == topic])

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        found = {each: offsets[queue] for queue, each in self._share.queues.items()
                 if queue.topic == topic and queue in offsets}  # fmt: skip
        log.info("group %s: an administrator has %d queues of %s go on elsewhere", self.group, len(found), topic)
        self._share.begin_anew(found)

    async def consume_directly(self, message: StoredMessage) -> DirectResult:
        handed = Handed(self._inbox, self._options.order)
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        self._inbox.put([consumed(message, ProcessQueue(queue, message.queue_offset), handed)])
        return await handed.result

    def queue_stats(self) -> tuple[QueueStats, ...]:
        return tuple(each.stats() for _, each in sorted(self._share.queues.items()))

    def running_info(self, *, stacks: bool = False) -> bytes:
        loop_time = asyncio.get_running_loop().time()
        now = self._instance.clock.monotonic()
        return running_info.encode(
            options=self._options,
            name_servers=self._instance.names.addresses,
            concurrency=self._concurrency,
            started_ms=self._started_ms,
            since_loop_time_ms=self._instance.clock.now_ms() - round(loop_time * 1000),
            subscriptions=list(self._subscriptions.values()),
            queues=list(self._share.queues.values()),
            status={topic: stats.status(now) for topic, stats in self._share.stats.items() if topic in self._subscriptions},
            stacks=stacks,
        )


_FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}
