"""Consumes topics as a member of a group (DefaultMQPushConsumer.java; clients' spec, section 3).

Members share the queues. Pulled messages wait in an inbox until the application takes them; the group's offset in a queue
follows the oldest message that isn't finished, is told to the broker every 5 s and, but for orderly groups, with every
pull, and stored for certain when a queue is given up and at the end. So a message is delivered at least once; again when a
member dies or queues change hands while it is worked on, and when it was refused.

A refused message is sent back to the broker it came from, which delivers it again after a delay that grows, and makes it a
dead letter after 16 times: one in `%DLQ%` and the group's name, a topic to subscribe to. If that fails, the message is
sent anew to the group's retry topic, wherever it is; and if that fails too, the consumer delivers it again itself after
5 s, as Java's does, and keeps it in its queue meanwhile. What differs in orderly groups and broadcasts is in `outcomes.py`.

A queue costs a task and a waiting pull: on a virtual machine with two cores 10,000 queues in one consumer take 2 s to start
and 100 MiB, of which some is the embedded broker's that served them in the same process.
"""

import asyncio
import logging
from functools import partial
from typing import Any, Unpack

from rockmq.client import running_info
from rockmq.client.assignment import warn_if_popping
from rockmq.client.consume_stats import SAMPLE_SECONDS
from rockmq.client.consumer_options import ConsumerOptions, Options
from rockmq.client.decoding import Body, Decode
from rockmq.client.delivery import ConsumedMessage, Handed, Inbox, Processing, consumed
from rockmq.client.handlers import BatchHandler, Call, Handler, KeyOf, Workers
from rockmq.client.instance import Instance
from rockmq.client.local_offsets import LocalOffsets
from rockmq.client.locks import Locks
from rockmq.client.member import until
from rockmq.client.offsets import Offsets, OffsetStore
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.outcomes import Broadcast, ByHand, Concurrent, Ended, Orderly
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.received import State
from rockmq.client.retries import Retry
from rockmq.client.runs import work
from rockmq.client.send_back import SendBack
from rockmq.client.share import Share, positions_of
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics
from rockmq.client.taking import Taking
from rockmq.client.transactions import Decision
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

CACHE_MESSAGES_MAX = 16_000
CACHE_BYTES_MAX = 256 * 1024 * 1024
PERSIST_SECONDS = 5.0
RECONSUME_TIMES_MAX = 16
UNLIMITED = 0x7FFF_FFFF
"""How often an orderly group tries, unless told otherwise."""
EXPIRY_CHECKS = 10
"""How often in a consume timeout it is looked for handlers that hang."""


class Consumer(Taking[ConsumedMessage[Body]]):
    """A member of a consumer group; made by `Client.consumer`, used with `async with`.

    Take messages by `async for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `async with` stops pulling, waits for messages that are being worked on, stores offsets and leaves the group.
    """

    _consume_type = "CONSUME_PASSIVELY"
    _sends_back = True

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics,
        decode: Decode[Body] | None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._options = said = Options(**options)
        super().__init__(
            instance,
            group,
            topics,
            decode=decode,
            from_where=said.from_where,
            drain_timeout=said.drain_timeout,
            broadcast=said.broadcast,
        )
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
            way = Orderly if said.auto_commit else ByHand
            self._decide = None if said.auto_commit else _decide
            self._outcome = way(inbox, self._cache, send_back, times_max=said.max_reconsume_times, suspend=said.suspend)
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
            decoder=self._decoder,
        )

    @property
    def _times_max(self) -> int:
        said = self._options.max_reconsume_times
        return said if said is not None else UNLIMITED if self._options.order else RECONSUME_TIMES_MAX

    async def _begin(self) -> asyncio.Event:
        self._offsets.open()
        self._share.start()
        self._tasks.every(PERSIST_SECONDS, self._persist, f"offsets of {self.group}")
        self._tasks.start(warn_if_popping(self._instance, self.group, list(self._subscriptions)), "request mode")
        self._tasks.every(SAMPLE_SECONDS, self._sample, f"figures of {self.group}")
        if not self._options.order:
            every = self._options.consume_timeout / EXPIRY_CHECKS
            self._tasks.every(every, self._expire, f"handlers of {self.group} that hang")
        return self._share.rebalancer.settled

    async def _end(self) -> None:
        self._inbox.close()
        try:
            try:
                await self._tasks.close()
            finally:  # nothing goes on when who closes is cancelled
                await self._share.close()
                self._outcome.close()
            queues = list(self._share.queues.values())
            self._inbox.withhold(*queues)
            if not await until(lambda: not any(each.blocks for each in queues), self._drain_timeout):
                log.warning("group %s: messages are still being worked on after %g s; they will come again",
                            self.group, self._drain_timeout)  # fmt: skip
            await self._offsets.commit(positions_of(queues))
            if self._locks is not None:
                await self._locks.unlock_all()
            await self._send_back.close()
        finally:
            self._offsets.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the group's retry topic among them."""
        return sorted(self._share.queues)

    async def _resubscribed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._share.pull_anew(topic)
        await self._share.rebalancer.now()

    # Taking messages

    async def __anext__(self) -> ConsumedMessage[Body]:
        return await self._next()

    async def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[ConsumedMessage[Body]]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        return await self._fetch(max_messages, timeout)

    async def run(
        self,
        handler: Handler[Body],
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: KeyOf[Body] | None = None,
    ) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises; `retry` says after
        how many seconds it comes again then (`backoff(1, 60)`). With `auto_commit=False` a handler may return a `Decision`:
        COMMIT commits its message, ROLLBACK rolls back.

        A handler that is no coroutine function is called on one of as many threads; or, for work that needs a processor, in
        one of as many `processes`: handler and messages are pickled then, and each process imports the program's main
        module, which needs its `if __name__ == "__main__":`.

        With `ordered_by` messages of the same key are worked on one after the other, also of different queues, as long as
        they don't fail; for more than that use a consumer with `order`.
        """
        await self._run_each(handler, concurrency, workers, retry, ordered_by)

    async def run_batches(
        self,
        handler: BatchHandler[Body],
        max_messages: int = 32,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
    ) -> None:
        """As `run`, but call `handler` for up to so many messages of one queue at a time, as many as are there.

        They are acknowledged when it returns, but for those that it has ended itself (`await message.nack()`). When it
        raises all are refused, when it raises `PartDone(n)` all but the first n. A `Decision` is for the whole batch.
        """
        await self._run_batches(handler, max_messages, concurrency, workers, retry)

    async def _work(self, call: Call[ConsumedMessage[Body]], retry: Retry | None) -> None:
        # Hooks want to see each message by itself, and in order there is never more than one.
        if self._options.order or self._instance.hooks is not None:
            await super()._work(call, retry)
        else:
            self._check_started()
            await work(self._inbox, self._outcome, call, retry)

    async def _take(self) -> ConsumedMessage[Body] | None:
        self._check_started()
        return await self._inbox.take()

    def _take_nowait(self) -> ConsumedMessage[Body] | None:
        return self._inbox.take_nowait()

    async def _take_batch(self, count: int) -> list[ConsumedMessage[Body]]:
        self._check_started()
        return await self._inbox.take_batch(count)

    def _working(self, batch: list[ConsumedMessage[Body]], retry: Retry | None) -> Processing[Body]:
        return Processing(batch, retry, suppress=True)

    def _hand(self, message: StoredMessage) -> "asyncio.Future[DirectResult]":
        handed = Handed(self._inbox, self._options.order)
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        self._inbox.put(consumed([message], ProcessQueue(queue, message.queue_offset, self._decoder), handed))
        return handed.result

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
        result = await super().consume_directly(message)
        result.auto_commit = self._options.auto_commit
        return result

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


async def _decide(consumed: ConsumedMessage[Any] | list[ConsumedMessage[Any]], decision: object) -> None:
    """Commit or roll back a message or a batch, as its handler has said (ConsumeOrderlyStatus.java)."""
    batch = consumed if isinstance(consumed, list) else [consumed]
    unended = [message for message in batch if message.state is State.DELIVERED]
    if unended and decision is Decision.COMMIT:
        await unended[-1].commit()
    elif unended and decision is Decision.ROLLBACK:
        await unended[-1].rollback()
