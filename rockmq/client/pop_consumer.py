"""Consumes topics by popping (ConsumeMessagePopConcurrentlyService.java, DefaultMQPushConsumerImpl.java; spec, 3.12).

A broker gives each message of any queue to one member of the group for a time, its invisible time. Members share messages,
not queues: there may be more of them than queues, and a slow one holds up nobody. Who is done with a message acknowledges
just that one; what isn't acknowledged when its time is over comes again, to whoever pops it, by way of a retry topic which
brokers look into by themselves. No order is kept, unless it is asked for: then brokers give the messages of a queue to one
member at a time, and this consumer delivers one of them after the other.

A refused message comes again after 10 s, 30 s, 1 min … 2 h, by the number of its tries, and becomes a dead letter after
the last, as Apache's proxy does it: sent back as one, then acknowledged. (Apache's own pop client acknowledges such a
message when it is four hours old, and it is gone.)
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import TracebackType

from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RockMQError, RouteNotFound
from rockmq.base.tasks import Tasks
from rockmq.client import running_info
from rockmq.client.assignment import assignments
from rockmq.client.check_client import check_filters
from rockmq.client.delivery import YIELD_EVERY
from rockmq.client.instance import Instance
from rockmq.client.pop import FROM_BEGINNING, FROM_END, PopLoop, Popped
from rockmq.client.pop_acks import Acks
from rockmq.client.pop_message import HandedPop, PopMessage
from rockmq.client.pull import Backoff
from rockmq.client.received import State
from rockmq.client.running_info import PopProcessQueueInfo
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics, Wanted, subscription, subscriptions
from rockmq.protocol import pop
from rockmq.protocol import topics as topic_names
from rockmq.protocol.bodies.client import ConsumerData, DirectResult
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.client import SendMessageBack
from rockmq.protocol.headers.pop import ChangeInvisibleTime, ChangeInvisibleTimeResponse
from rockmq.protocol.message import StoredMessage
from rockmq.protocol.pop import ReceiptHandle

log = logging.getLogger(__name__)

PERIOD_SECONDS = 20.0
UNSETTLED_SECONDS = 1.0
START_TIMEOUT = 5.0
SEND_BACK_TIMEOUT = 5.0
INVISIBLE_SECONDS_MAX = 12 * 3600
BACKOFF_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""By the number of tries before (popDelayLevel)."""

PopHandler = Callable[[PopMessage], Awaitable[object]]


class PopConsumer:
    """A member of a group that pops; made by `Client.pop_consumer`, used with `async with`.

    Take messages by `async for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `async with` stops popping, waits for messages that are being worked on, has acknowledgements arrive and gives back
    what nobody has taken.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics,
        *,
        invisible: float,
        max_in_flight: int,
        from_where: str,
        order: bool,
        assigned: bool,
        max_reconsume_times: int,
        drain_timeout: float,
    ) -> None:
        if not 0 < invisible <= INVISIBLE_SECONDS_MAX:
            raise ClientError(f"invisible is {invisible:g} s, the bounds are 0 and {INVISIBLE_SECONDS_MAX} s")
        if max_in_flight < 1:
            raise ClientError(f"max_in_flight is {max_in_flight}, and must be 1 at least")
        if from_where not in ("first", "last"):
            raise ClientError(f'from_where is {from_where!r}; popping begins at the "first" message or behind the "last"')
        self.group = group
        self._instance = instance
        self._invisible = invisible
        self._max_in_flight = max_in_flight
        self._from_where = from_where
        self._order = order
        self._assigned = assigned
        self._max_reconsume_times = max_reconsume_times
        self._drain_timeout = drain_timeout
        self._subscriptions = subscriptions(topics, group, instance.clock.now_ms())
        del self._subscriptions[topic_names.retry_topic(group)]  # brokers look into the retry topics by themselves
        self._tasks = Tasks()
        # The client's tasks, not ours: what is acknowledged after we are closed counts, too.
        self._acks = Acks(instance, group, instance.tasks, self._acknowledged)
        self._loops: dict[MessageQueue, PopLoop] = {}
        self._ready: asyncio.Queue[PopMessage | None] = asyncio.Queue()
        """Bounded by the loops, which pop no more than is acknowledged; None is the end."""
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._missing = Backoff(UNSETTLED_SECONDS, PERIOD_SECONDS)
        self._told: set[str] = set()
        """Topics of which it was said that they can't be popped."""
        self._processing = 0
        self._taken = 0
        self._started_ms = 0
        self.closed = False

    async def start(self) -> None:
        """Join the group; returns when popping has begun, or after 5 s without; `async with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when queues
        shall be assigned and the group is to pull.
        """
        self._instance.check_open()
        if self.closed or self._started_ms:
            raise ClientClosed("a consumer can be started once")
        self._started_ms = self._instance.clock.now_ms()
        self._instance.add_consumer(self)
        try:
            await check_filters(self._instance, self.group, self._subscriptions.values())
            await asyncio.gather(*map(self._instance.routes.get, self._subscriptions), return_exceptions=True)
            await self._instance.heartbeat()
            if self._assigned:
                await self._check_mode()
            self._tasks.start(self._keep_popping(), f"pops of {self.group}")
            async with asyncio.timeout(START_TIMEOUT):
                await self._settled.wait()
        except TimeoutError:
            log.warning("group %s has nothing to pop from yet, going on trying", self.group)
        except BaseException:
            await self.close(0)
            raise

    async def _check_mode(self) -> None:
        for topic in self._subscriptions:
            try:
                found = await assignments(self._instance, self.group, topic)
            except (RemotingError, RouteNotFound) as error:
                log.info("%s", error)  # asked again, and told, when it comes to popping
                continue
            if any(each.mode == "PULL" for each in found or ()):
                raise ClientError(
                    f"brokers say that group {self.group} is to pull {topic}, not to pop: an administrator changes that "
                    f"(admin.groups.set_request_mode), or leave `assigned` out and pop from all queues"
                )

    async def close(self, drain_timeout: float | None = None) -> None:
        """Stop popping, wait for what is being worked on, give back the rest, leave the group."""
        if self.closed:
            return
        self.closed = True
        timeout = self._drain_timeout if drain_timeout is None else drain_timeout
        try:
            for loop in self._loops.values():
                loop.stop()
            waiting = self._take_back()
            self._ready.put_nowait(None)
            await self._give_back(waiting)
            if not await _until(lambda: not self._processing, timeout):
                log.warning("group %s: messages are still being worked on after %g s; they will come again",
                            self.group, timeout)  # fmt: skip
            if not await _until(lambda: self._acks.idle, timeout):
                log.warning("group %s: acknowledgements didn't arrive within %g s; the messages will come again",
                            self.group, timeout)  # fmt: skip
            await self._tasks.close()
        finally:
            await self._instance.remove(consumer=self.group)

    async def __aenter__(self) -> "PopConsumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """What is popped from; queue id -1 is all of a topic at a broker."""
        return sorted(self._loops)

    @property
    def in_flight(self) -> int:
        """Messages that were popped and aren't ended."""
        return sum(loop.unacknowledged for loop in self._loops.values())

    async def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Pop this topic from now on, too, or by another expression. Raises ResponseError when a broker can't filter so."""
        if not self._started_ms or self.closed:
            raise ClientClosed("this consumer is closed, or was not started: use `async with`")
        data = subscription(topic, wanted, self._instance.clock.now_ms())
        await check_filters(self._instance, self.group, [data])
        self._subscriptions[topic] = data
        await self._instance.heartbeat()
        self._stop_popping(topic)
        self._wanted.set()

    async def unsubscribe(self, topic: str) -> None:
        """Pop this topic no more. Messages of it that were popped are delivered. Raises ClientError when it isn't popped."""
        if self._subscriptions.pop(topic, None) is None:
            raise ClientError(f"group {self.group} isn't subscribed to {topic!r}")
        self._stop_popping(topic)
        await self._instance.heartbeat()

    def _stop_popping(self, topic: str, wanted: Collection[MessageQueue] = ()) -> None:
        for queue in [each for each in self._loops if each.topic == topic and each not in wanted]:
            log.info("group %s pops no more from %s", self.group, self._loops[queue].name)
            self._loops.pop(queue).stop()

    # Taking messages

    def __aiter__(self) -> "PopConsumer":
        return self

    async def __anext__(self) -> PopMessage:
        message = await self._take()
        if message is None:
            raise StopAsyncIteration
        return message

    async def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[PopMessage]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        found = []
        try:
            async with asyncio.timeout(timeout):
                first = await self._take()
        except TimeoutError:
            return []
        if first is not None:
            found.append(first)
            while len(found) < max_messages and (message := self._take_nowait()) is not None:
                found.append(message)
        return found

    async def run(self, handler: PopHandler, concurrency: int = 20) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises.
        """
        async with asyncio.TaskGroup() as workers:
            for number in range(concurrency):
                workers.create_task(self._work(handler), name=f"{self.group} handler {number}")

    async def _work(self, handler: PopHandler) -> None:
        while (message := await self._take()) is not None:
            async with message.process(suppress=True):
                await handler(message)

    async def _take(self) -> PopMessage | None:
        if not self._started_ms:
            raise ClientClosed("this consumer was not started: use `async with`")
        self._taken += 1
        if self._taken % YIELD_EVERY == 0:
            await asyncio.sleep(0)  # handlers that never wait mustn't starve the pops
        while True:
            message = await self._ready.get()
            if message is None:
                self._ready.put_nowait(None)  # for the next who waits
                return None
            if self._in_time(message):
                return message

    def _take_nowait(self) -> PopMessage | None:
        while not self._ready.empty() and not self.closed:
            message = self._ready.get_nowait()
            if message is not None and self._in_time(message):
                return message
        return None

    def _in_time(self, message: PopMessage) -> bool:
        """Whether the message may be delivered; one whose invisible time is over is on its way to somebody else."""
        if message.expires_at <= self._instance.clock.monotonic():
            log.info("%r waited here until its invisible time was over, and comes again", message)
            self._drop(message)
            return False
        message.state = State.DELIVERED
        message.taken = self._instance.clock.monotonic()
        if self._instance.hooks is not None:
            message.watched = self._instance.hooks.consuming(self.group, message.stored, message.queue)
        return True

    def _take_back(self) -> list[PopMessage]:
        """All that waits for the application."""
        found = []
        while not self._ready.empty():
            message = self._ready.get_nowait()
            if message is not None and message.loop is not None:
                found += _chain(message)
        return found

    # What becomes of a message

    def _count(self, message: PopMessage, *, done: int = 0, failed: int = 0) -> None:
        seconds = self._instance.clock.monotonic() - message.taken
        self._instance.stats.consumed(self.group, message.topic).ended(seconds, done=done, failed=failed)

    def acknowledged(self, message: PopMessage) -> None:
        self._count(message, done=1)
        self._acks.add(message)

    def _acknowledged(self, message: PopMessage, told: bool) -> None:
        if message.loop is not None:
            message.loop.ended()
        following = message.following
        if following is None:
            return
        message.following = None
        if told and not self.closed:
            self._ready.put_nowait(following)
        else:
            self._drop(following)  # else it would be before the one that comes again

    def _drop(self, message: PopMessage | None) -> None:
        """Forget a message, and those that would come after it."""
        while message is not None:
            if message.loop is not None:
                message.loop.ended()
            following, message.following = message.following, None
            message = following

    def returned(self, message: PopMessage) -> None:
        if not self.closed:
            self._ready.put_nowait(message)
        else:
            self._drop(message)

    async def refused(self, message: PopMessage, delay: float | None) -> None:
        if message.reconsume_times >= self._max_reconsume_times:
            await self.given_up(message)
            return
        self._count(message, failed=1)
        await self._postpone(message, _backoff(message) if delay is None else delay)

    async def _postpone(self, message: PopMessage, delay: float) -> None:
        """Have it come again then, and with it those that are to come after it; then they are no longer ours."""
        try:
            if message.changing is not None and not message.changing.done():
                await asyncio.wait([message.changing])
            for each in _chain(message):
                await self._change(each, delay)
        except RockMQError as error:
            log.info("%r comes again when its invisible time is over: %s", message, error)
        finally:
            self._drop(message)

    async def given_up(self, message: PopMessage) -> None:
        """Have the broker make it a dead letter, then acknowledge it (ConsumerProcessor.forwardMessageToDeadLetterQueue)."""
        self._count(message, failed=1)
        stored = message.stored
        header = SendMessageBack(
            offset=stored.position,
            group=self.group,
            delay_level=-1,
            origin_msg_id=stored.msg_id,
            origin_topic=stored.topic,
            max_reconsume_times=0,
            bname=stored.broker_name,
        )
        try:
            to = self._master(message)
            await self._instance.ask(to, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=SEND_BACK_TIMEOUT)
        except RockMQError as error:
            log.warning("%r couldn't be made a dead letter, it comes again: %s", message, error)
            await self._postpone(message, _backoff(message))
        except BaseException:
            self._drop(message)
            raise
        else:
            log.warning("%r was tried %d times, it is a dead letter now", message, stored.reconsume_times + 1)
            self._acks.add(message)

    async def extended(self, message: PopMessage, seconds: float) -> None:
        for each in _chain(message):
            await self._change(each, seconds)

    async def _change(self, message: PopMessage, seconds: float, *, suspend: bool = False) -> None:
        """Have the message's invisible time end so many seconds from now; `suspend` is for one that wasn't tried.

        Raises ResponseError when it isn't ours any more, RemotingError.
        """
        old = message.handle
        topic = pop.real_topic(message.topic, self.group, old.retry_flag)
        header = ChangeInvisibleTime(
            consumer_group=self.group,
            topic=topic,
            queue_id=old.queue_id,
            extra_info=old.text,
            offset=old.offset,
            invisible_time=round(seconds * 1000),
            suspend=suspend,
            bname=old.broker_name,
        )
        expires_at = self._instance.clock.monotonic() + seconds
        answer = await self._instance.ask(self._master(message), RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        told = decode(ChangeInvisibleTimeResponse, answer.fields)
        message.expires_at = expires_at
        message.handle = ReceiptHandle(
            old.offset, told.pop_time, told.invisible_time, told.revive_qid, old.retry_flag, old.broker_name, old.queue_id,
            old.offset,
        )  # fmt: skip

    def _master(self, message: PopMessage) -> str:
        to = self._instance.routes.master(message.queue)
        if to is None:
            raise RemotingError(f"broker {message.handle.broker_name} has no master")
        return to

    async def _give_back(self, messages: Sequence[PopMessage]) -> None:
        """Have messages that nobody took come again at once, elsewhere."""
        for message in messages:
            message.following = None
        await asyncio.gather(*map(self._give_back_one, messages))

    async def _give_back_one(self, message: PopMessage) -> None:
        try:
            await self._change(message, 0, suspend=True)
        except RockMQError as error:
            log.info("%r, which nobody took, comes again when its invisible time is over: %s", message, error)
        finally:
            self._drop(message)

    def working(self, step: int) -> None:
        self._processing += step

    # Popping

    async def _keep_popping(self) -> None:
        while True:
            self._wanted.clear()
            try:
                pause = await self._round()
            except Exception:  # without rounds a consumer stands still and nobody knows
                log.exception("finding what group %s pops from failed, trying again", self.group)
                pause = UNSETTLED_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def _round(self) -> float:
        """Pop from what should be popped from, and nothing else; seconds until the next round."""
        failed = missing = False
        for topic, subscribed in list(self._subscriptions.items()):
            try:
                wanted = await self._queues(topic)
            except RockMQError as error:
                absent = isinstance(error, RouteNotFound)
                missing |= absent
                failed |= not absent
                if topic not in self._told:
                    self._told.add(topic)
                    log.warning("what group %s pops of %s stays as it is: %s", self.group, topic, error)
                continue
            self._told.discard(topic)
            if self._subscriptions.get(topic) is not subscribed:
                continue  # it changed meanwhile, and the next round is due
            self._stop_popping(topic, wanted)
            for queue in sorted(wanted - self._loops.keys()):
                self._open(queue, subscribed)
        if failed:
            return UNSETTLED_SECONDS
        self._settled.set()
        if missing:
            return self._missing.pause()
        self._missing.reset()
        return PERIOD_SECONDS

    async def _queues(self, topic: str) -> set[MessageQueue]:
        if self._assigned:
            found = await assignments(self._instance, self.group, topic)
            if found is None:
                raise RemotingError(f"the broker doesn't know the members of {self.group} yet")
            if all(each.mode == "POP" for each in found):
                return {each.message_queue for each in found}
            raise ClientError(f"brokers say that the group is to pull {topic}, not to pop")
        route = await self._instance.routes.get(topic)
        names = {queue.broker_name for queue in route.readable}
        return {MessageQueue(topic, name, -1) for name in names if route.master(name) is not None}

    def _open(self, queue: MessageQueue, subscribed: SubscriptionData) -> None:
        loop = self._loops[queue] = PopLoop(
            self._instance,
            self.group,
            subscribed,
            queue,
            invisible_ms=round(self._invisible * 1000),
            init_mode=FROM_BEGINNING if self._from_where == "first" else FROM_END,
            order=self._order,
            unacknowledged_max=self._max_in_flight,
            deliver=self._deliver,
        )
        log.info("group %s pops from %s", self.group, loop.name)
        # The client's, not ours: a pop that waits when we close may still bring messages, which are to be given back.
        self._instance.tasks.start(loop.run(), f"pops of {self.group} from {loop.name}")

    def _deliver(self, loop: PopLoop, found: list[Popped]) -> None:
        expires_at = self._instance.clock.monotonic() + self._invisible
        messages = [PopMessage(stored, handle, loop, expires_at, self) for stored, handle in found]
        subscribed = self._subscriptions.get(loop.queue.topic)
        if self.closed or subscribed is None:
            self._instance.tasks.start(self._give_back(messages), f"messages that {self.group} gives back")
            return
        tags = set(subscribed.tags_set)
        last: dict[int, PopMessage] = {}
        for message in messages:
            if tags and message.tag not in tags:
                self._acks.add(message)  # brokers compare hash codes; two tags can share one
            elif message.reconsume_times > self._max_reconsume_times:
                self._tasks.start(self.given_up(message), f"dead letter of {self.group}")
            elif self._order and message.handle.queue_id in last:
                last[message.handle.queue_id].following = message
                last[message.handle.queue_id] = message
            else:
                last[message.handle.queue_id] = message
                self._ready.put_nowait(message)

    # What the runtime asks and tells

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            consume_from_where=f"CONSUME_FROM_{self._from_where.upper()}_OFFSET",
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        self._wanted.set()

    def reconnected(self) -> None:
        self._wanted.set()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}  # where the group is, brokers know

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Nothing to do: where the group is, brokers know."""

    async def consume_directly(self, message: StoredMessage) -> DirectResult:
        handed = HandedPop()
        handle = ReceiptHandle(0, 0, 0, 0, "0", message.broker_name, message.queue_id, message.queue_offset)
        self._ready.put_nowait(PopMessage(message, handle, None, float("inf"), handed))
        return DirectResult(order=self._order, consume_result=await handed.result, spent_time_mills=0)

    def queue_stats(self) -> tuple[QueueStats, ...]:
        return ()  # brokers know

    def running_info(self, *, stacks: bool = False) -> bytes:
        return running_info.encode_active(
            consume_type="CONSUME_POP",
            name_servers=self._instance.names.addresses,
            started_ms=self._started_ms,
            subscriptions=list(self._subscriptions.values()),
            queues={},
            pops={
                queue.key(): PopProcessQueueInfo(wait_ack_count=loop.unacknowledged, last_pop_timestamp=loop.last_pop_ms)
                for queue, loop in self._loops.items()
            },
            stacks=stacks,
        )


def _backoff(message: PopMessage) -> float:
    return BACKOFF_SECONDS[min(message.reconsume_times, len(BACKOFF_SECONDS) - 1)]


def _chain(message: PopMessage) -> list[PopMessage]:
    """The message and those that are delivered after it."""
    found = [message]
    while (following := found[-1].following) is not None:
        found.append(following)
    return found


async def _until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait for a condition that changes now and then; whether it came true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    # Polled: this is rare and short, while an event would burden every message.
    while not (met := condition()) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return met
