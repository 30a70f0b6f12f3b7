"""Consumes topics as a member of a group (DefaultMQPushConsumer.java in cluster mode; clients' spec, section 3).

Members share the queues. Pulled messages wait in an inbox until the application takes them; the group's offset in a queue
follows the oldest message that isn't finished, is told to the broker every 5 s and with every pull, and stored for
certain when a queue is given up and at the end. So a message is delivered at least once; again when a member dies or
queues change hands while it is worked on, and when it was refused.

A refused message is sent back to the broker it came from, which delivers it again after a delay that grows, and makes it a
dead letter after 16 times: one in `%DLQ%` and the group's name, a topic to subscribe to. If that fails, the message is
sent anew to the group's retry topic, wherever it is; and if that fails too, the consumer delivers it again itself after
5 s, as Java's does, and keeps it in its queue meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from types import TracebackType

from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client import running_info
from rockmq.client.delivery import ConsumedMessage, Handed, Inbox, State, consumed
from rockmq.client.instance import Instance
from rockmq.client.offsets import FromWhere, Offsets
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.producer import MESSAGE_SIZE_MAX, Producer
from rockmq.client.pull import PullLoop
from rockmq.client.rebalance import Rebalancer
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics, subscriptions
from rockmq.filter import is_tag
from rockmq.protocol import json
from rockmq.protocol import properties as names
from rockmq.protocol import topics as topic_names
from rockmq.protocol.bodies.client import CheckClientBody, ConsumerData
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.client import CheckClientConfig, SendMessageBack
from rockmq.protocol.message import Message, StoredMessage

log = logging.getLogger(__name__)

CACHE_MESSAGES_MAX = 16_000
CACHE_BYTES_MAX = 256 * 1024 * 1024
PERSIST_SECONDS = 5.0
START_TIMEOUT = 5.0
SEND_BACK_TIMEOUT = 5.0
REDELIVER_SECONDS = 5.0
RECONSUME_TIMES_MAX = 16
FIRST_LEVEL = 3
"""Delay level of the first try, as brokers choose it."""
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Java's, for what consumers send."""
_OF_THIS_DELIVERY = (
    names.TRAN_MSG,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
    names.REAL_TOPIC,
    names.REAL_QID,
    names.CRC32,
    names.MSG_REGION,
    names.TRACE_ON,
    names.CLUSTER,
    names.POP_CK,
)
"""Properties that are of the message as it was stored, not of the one that is sent anew."""
GIVE_UP_SECONDS = 0.3
"""How long handlers have to end when their queue is given up."""

Handler = Callable[[ConsumedMessage], Awaitable[object]]


class Consumer:
    """A member of a consumer group; made by `Client.consumer`, used with `async with`.

    Take messages by `async for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `async with` stops pulling, waits for messages that are being worked on, stores offsets and leaves the group.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics,
        *,
        max_in_flight: int,
        from_where: FromWhere,
        drain_timeout: float,
    ) -> None:
        fault = topic_names.group_fault(group)
        if fault is not None:
            raise ClientError(fault)
        self.group = group
        self._instance = instance
        self._from_where = from_where
        self._drain_timeout = drain_timeout
        self._subscriptions = subscriptions(topics, group, instance.clock.now_ms())
        self._offsets = Offsets(instance, group, from_where)
        watch = partial(instance.hooks.consuming, group) if instance.hooks is not None else None
        self._inbox = Inbox(max_in_flight, instance.clock, watch)
        self._cache = Cache(CACHE_MESSAGES_MAX, CACHE_BYTES_MAX)
        self._rebalancer = Rebalancer(
            instance, group, self._subscriptions, self._offsets, opened=self._open, give_up=self._give_up
        )
        self._tasks = Tasks()
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._again: dict[ConsumedMessage, asyncio.TimerHandle] = {}
        self._started_ms = 0
        self._told_unsupported = False
        self._producer: Producer | None = None
        """For messages that couldn't be sent back."""

    async def start(self) -> None:
        """Join the group; returns when the first queues are ours, or after 5 s without; `async with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to.
        """
        self._instance.check_open()
        if self._inbox.closed or self._started_ms:
            raise ClientClosed("a consumer can be started once")
        self._started_ms = self._instance.clock.now_ms()
        self._instance.add_consumer(self)
        try:
            await asyncio.gather(*map(self._look_up, self._subscriptions.values()))
            await self._instance.heartbeat()
            self._tasks.start(self._rebalancer.run(), f"rebalance of {self.group}")
            self._tasks.every(PERSIST_SECONDS, self._persist, f"offsets of {self.group}")
            async with asyncio.timeout(START_TIMEOUT):
                await self._rebalancer.settled.wait()
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
        try:
            await self._tasks.close()
            for timer in self._again.values():
                timer.cancel()
            queues = self._rebalancer.queues.values()
            timeout = self._drain_timeout if drain_timeout is None else drain_timeout
            if not await _until(lambda: not any(each.processing for each in queues), timeout):
                log.warning("group %s: messages are still being worked on after %g s; they will come again",
                            self.group, timeout)  # fmt: skip
            await self._offsets.commit(self._positions(queues))
            if self._producer is not None:
                await self._producer.close()
        finally:
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
        return sorted(self._rebalancer.queues)

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
        if not self._started_ms:
            raise ClientClosed("this consumer was not started: use `async with`")
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

    async def run(self, handler: Handler, concurrency: int = 20) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises.
        """
        async with asyncio.TaskGroup() as workers:
            for number in range(concurrency):
                workers.create_task(self._work(handler), name=f"{self.group} handler {number}")

    async def _work(self, handler: Handler) -> None:
        while (message := await self._take()) is not None:
            async with message.process(suppress=True):
                await handler(message)

    async def _take(self) -> ConsumedMessage | None:
        if not self._started_ms:
            raise ClientClosed("this consumer was not started: use `async with`")
        return await self._inbox.take()

    # What becomes of a message

    def acknowledged(self, message: ConsumedMessage) -> None:
        self._count(message, done=1)
        self._finish(message)

    def _count(self, message: ConsumedMessage, *, done: int = 0, failed: int = 0) -> None:
        seconds = self._instance.clock.monotonic() - message.taken
        self._instance.stats.consumed(self.group, message.topic).ended(seconds, done=done, failed=failed)

    def _finish(self, message: ConsumedMessage) -> None:
        self._cache.finish(message.process_queue, message.queue_offset, message.stored.size)
        self._inbox.ended(message.process_queue)

    def returned(self, message: ConsumedMessage) -> None:
        self._inbox.ended(message.process_queue)
        if not message.process_queue.dropped and not self._inbox.closed:
            self._inbox.put_first(message)

    async def refused(self, message: ConsumedMessage, delay_level: int) -> None:
        self._count(message, failed=1)
        process_queue = message.process_queue
        if process_queue.dropped:
            return  # its new owner gets it
        try:
            try:
                await self._send_back(message, delay_level)
            except RockMQError as error:
                log.info("%r couldn't be sent back, it is sent to the retry topic: %s", message, error)
                await self._send_anew(message, delay_level)
        except RockMQError as error:
            self._tell_unsent(message, error)
            self._inbox.ended(process_queue)
            if not self._inbox.closed and not process_queue.dropped:
                message.stored.reconsume_times += 1
                loop = asyncio.get_running_loop()
                self._again[message] = loop.call_later(REDELIVER_SECONDS, self._redeliver, message)
        except BaseException:
            message.state = State.WAITING
            self.returned(message)
            raise
        else:
            self._finish(message)

    async def _send_back(self, message: ConsumedMessage, delay_level: int) -> None:
        stored = message.stored
        to = self._instance.routes.master(message.queue)
        if to is None:
            raise ClientError(f"broker {message.queue.broker_name} has no master")
        header = SendMessageBack(
            offset=stored.position,
            group=self.group,
            delay_level=delay_level,
            origin_msg_id=stored.msg_id,
            origin_topic=stored.topic,
            max_reconsume_times=RECONSUME_TIMES_MAX,
            bname=message.queue.broker_name,
        )
        await self._instance.ask(to, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=SEND_BACK_TIMEOUT)

    async def _send_anew(self, message: ConsumedMessage, delay_level: int) -> None:
        """Send a refused message to the group's retry topic (DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage)."""
        stored = message.stored
        if self._producer is None:
            self._producer = Producer(
                self._instance, PRODUCER_GROUP, timeout=SEND_BACK_TIMEOUT, retries=2, compression=None, compress_from=0,
                message_size_max=MESSAGE_SIZE_MAX,
            )  # fmt: skip
            await self._producer.start()
        carried = {key: value for key, value in stored.properties.items() if key not in _OF_THIS_DELIVERY}
        carried[names.RETRY_TOPIC] = stored.topic
        carried.setdefault(names.ORIGIN_MESSAGE_ID, stored.offset_id)
        carried[names.RECONSUME_TIME] = str(stored.reconsume_times + 1)
        # A negative level is for the broker alone to understand: there, none is left.
        carried[names.MAX_RECONSUME_TIMES] = str(RECONSUME_TIMES_MAX if delay_level >= 0 else 0)
        carried[names.DELAY] = str(max(delay_level, 0) or FIRST_LEVEL + stored.reconsume_times)
        topic = topic_names.retry_topic(self.group)
        await self._producer.send(Message(topic, stored.body, properties=carried, flag=stored.flag))

    def _tell_unsent(self, message: ConsumedMessage, error: RockMQError) -> None:
        unsupported = getattr(error, "code", None) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if not unsupported:
            log.warning("%r couldn't be sent back, it is delivered again here: %s", message, error)
        elif not self._told_unsupported:
            self._told_unsupported = True
            log.info("the broker doesn't take refused messages back; they are delivered again here after %g s",
                     REDELIVER_SECONDS)  # fmt: skip

    def _redeliver(self, message: ConsumedMessage) -> None:
        del self._again[message]
        if not message.process_queue.dropped and not self._inbox.closed:
            message.state = State.WAITING
            self._inbox.put([message])

    # Queues

    def _open(self, process_queue: ProcessQueue) -> None:
        loop = PullLoop(
            self._instance,
            self.group,
            self._subscriptions[process_queue.queue.topic],
            process_queue,
            room=self._cache.room,
            deliver=self._deliver,
            moved=self._moved,
        )
        queue = process_queue.queue
        name = f"pull of {queue.topic} {queue.queue_id} on {queue.broker_name}"
        self._pulls[process_queue] = self._tasks.start(loop.run(), name)

    def _deliver(self, process_queue: ProcessQueue, found: list[StoredMessage]) -> None:
        for stored in found:
            self._cache.add(process_queue, stored.queue_offset, stored.size)
        self._inbox.put([consumed(stored, process_queue, self) for stored in found])

    def _moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has nothing at our offset: begin anew at the one it named, and make that the group's."""
        self._drop(process_queue)
        self._rebalancer.open(process_queue.queue, offset)
        self._offsets.tell({process_queue.queue: offset})

    async def _give_up(self, process_queues: Collection[ProcessQueue]) -> None:
        for process_queue in process_queues:
            self._pulls[process_queue].cancel()
            self._inbox.withhold(process_queue)
        await _until(lambda: not any(each.delivered for each in process_queues), GIVE_UP_SECONDS)
        positions = self._positions(process_queues)
        for process_queue in process_queues:
            self._drop(process_queue)
        await self._offsets.commit(positions)

    def _drop(self, process_queue: ProcessQueue) -> None:
        self._pulls.pop(process_queue, None)
        self._cache.drop(process_queue)
        self._inbox.lost(process_queue)

    @staticmethod
    def _positions(process_queues: Collection[ProcessQueue]) -> dict[MessageQueue, int]:
        return {each.queue: each.offset for each in process_queues}

    def _persist(self) -> None:
        self._offsets.tell(self._positions(self._rebalancer.queues.values()))

    async def commit(self) -> None:
        """Store offsets now, and wait until the brokers have them."""
        await self._offsets.commit(self._positions(self._rebalancer.queues.values()))

    # What the runtime asks and tells

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_from_where=_FROM_WHERE.get(str(self._from_where), "CONSUME_FROM_TIMESTAMP"),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        self._rebalancer.wake()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return self._positions([each for queue, each in self._rebalancer.queues.items() if queue.topic == topic])

    async def consume_directly(self, message: StoredMessage) -> str:
        handed = Handed(self._inbox)
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        self._inbox.put([consumed(message, ProcessQueue(queue, message.queue_offset), handed)])
        return await handed.result

    def queue_stats(self) -> tuple[QueueStats, ...]:
        return tuple(each.stats() for _, each in sorted(self._rebalancer.queues.items()))

    def reconnected(self) -> None:
        self._rebalancer.hold()

    def running_info(self) -> bytes:
        return running_info.encode(
            name_servers=self._instance.names.addresses,
            started_ms=self._started_ms,
            subscriptions=list(self._subscriptions.values()),
            queues=list(self._rebalancer.queues.values()),
        )


_FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


async def _until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait for a condition that changes now and then; whether it came true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    # Polled: this is rare and short, while an event would burden every message.
    while not (met := condition()) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # rare and short; an event would burden every message
    return met
