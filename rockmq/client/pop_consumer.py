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
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence

from rockmq.base.errors import ClientError, NotSupported, RemotingError, RockMQError, RouteNotFound
from rockmq.client import running_info
from rockmq.client.assignment import assignments
from rockmq.client.decoding import Body, Decode
from rockmq.client.delivery import YIELD_EVERY
from rockmq.client.handlers import Workers
from rockmq.client.instance import Instance
from rockmq.client.member import until
from rockmq.client.offsets import FromWhere
from rockmq.client.pop import FROM_BEGINNING, FROM_END, PopLoop, Popped, topic_of
from rockmq.client.pop_acks import Acks
from rockmq.client.pop_message import AnyPop, HandedPop, PopMessage, PopProcessing
from rockmq.client.pull import Backoff
from rockmq.client.received import State
from rockmq.client.retries import Retry
from rockmq.client.routes import TopicRoute
from rockmq.client.running_info import PopProcessQueueInfo
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics
from rockmq.client.taking import Taking
from rockmq.protocol.bodies.client import DirectResult
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
SEND_BACK_TIMEOUT = 5.0
INVISIBLE_SECONDS_MAX = 12 * 3600
BACKOFF_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""By the number of tries before (popDelayLevel)."""

PopHandler = Callable[[PopMessage[Body]], Awaitable[object] | object]
"""Works on a message: a coroutine function, or a function that may block. Its result doesn't matter."""

PopBatchHandler = Callable[[list[PopMessage[Body]]], Awaitable[object] | object]
"""The same for some messages of one topic."""

PopKeyOf = Callable[[PopMessage[Body]], Hashable]
"""What messages have in common that are worked on one after the other; None for those that needn't wait."""


class PopConsumer(Taking[PopMessage[Body]]):
    """A member of a group that pops; made by `Client.pop_consumer`, used with `async with`.

    Take messages by `async for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `async with` stops popping, waits for messages that are being worked on, has acknowledgements arrive and gives back
    what nobody has taken.
    """

    _consume_type = "CONSUME_POP"

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics,
        decode: Decode[Body] | None,
        *,
        invisible: float,
        max_in_flight: int,
        from_where: FromWhere,
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
        super().__init__(instance, group, topics, decode=decode, from_where=from_where, drain_timeout=drain_timeout)
        self._invisible = invisible
        self._max_in_flight = max_in_flight
        self._order = order
        self._assigned = assigned
        self._max_reconsume_times = max_reconsume_times
        # The client's tasks, not ours: what is acknowledged after we are closed counts, too.
        self._acks = Acks(instance, group, instance.tasks, self._acknowledged)
        self._loops: dict[MessageQueue, PopLoop] = {}
        self._ready: asyncio.Queue[PopMessage[Body] | None] = asyncio.Queue()
        """Bounded by the loops, which pop no more than is acknowledged; None is the end."""
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._missing = Backoff(UNSETTLED_SECONDS, PERIOD_SECONDS)
        self._told: set[str] = set()
        """Topics of which it was said that they can't be popped."""
        self._processing = 0
        self._taken = 0

    async def _look_up_one(self, wanted: SubscriptionData) -> None:
        await super()._look_up_one(wanted)
        for route in self._instance.routes.known(wanted.topic):
            _check_pops(route)

    async def _begin(self) -> asyncio.Event:
        if self._assigned:
            await self._check_mode()
        self._tasks.start(self._keep_popping(), f"pops of {self.group}")
        return self._settled

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

    async def _end(self) -> None:
        """Give back, too, what nobody has taken."""
        for loop in self._loops.values():
            loop.stop()
        waiting = self._take_back()
        self._ready.put_nowait(None)
        try:
            await self._give_back(waiting)
            if not await until(lambda: not self._processing, self._drain_timeout):
                log.warning("group %s: messages are still being worked on after %g s; they will come again",
                            self.group, self._drain_timeout)  # fmt: skip
            if not await until(lambda: self._acks.idle, self._drain_timeout):
                log.warning("group %s: acknowledgements didn't arrive within %g s; the messages will come again",
                            self.group, self._drain_timeout)  # fmt: skip
        finally:  # nothing goes on when who closes is cancelled
            await self._tasks.close()

    @property
    def queues(self) -> list[MessageQueue]:
        """What is popped from; queue id -1 is all of a topic at a broker."""
        return sorted(self._loops)

    @property
    def in_flight(self) -> int:
        """Messages that were popped and aren't ended."""
        return sum(loop.unacknowledged for loop in self._loops.values())

    async def _resubscribed(self, topic: str) -> None:
        self._stop_popping(topic)
        self._wanted.set()

    def _stop_popping(self, topic: str, wanted: Collection[MessageQueue] = ()) -> None:
        for queue in [each for each in self._loops if each.topic == topic and each not in wanted]:
            log.info("group %s pops no more from %s", self.group, self._loops[queue].name)
            self._loops.pop(queue).stop()

    # Taking messages

    async def __anext__(self) -> PopMessage[Body]:
        return await self._next()

    async def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[PopMessage[Body]]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        return await self._fetch(max_messages, timeout)

    async def run(
        self,
        handler: PopHandler[Body],
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: PopKeyOf[Body] | None = None,
    ) -> None:
        """Call `handler` for each message, as `Consumer.run`: it is acknowledged when its handler returns, and refused, with
        a log line, when it raises. One that waits behind others of its key until its invisible time is over comes again."""
        await self._run_each(handler, concurrency, workers, retry, ordered_by)

    async def run_batches(
        self,
        handler: PopBatchHandler[Body],
        max_messages: int = 32,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
    ) -> None:
        """As `run`, but call `handler` for up to so many messages of one topic at a time, as many as are there; with `order`
        they are of one queue. What fails of a batch is refused as by `Consumer.run_batches`."""
        await self._run_batches(handler, max_messages, concurrency, workers, retry)

    async def _take(self) -> PopMessage[Body] | None:
        self._check_started()
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

    def _take_nowait(self) -> PopMessage[Body] | None:
        while not self._ready.empty() and not self.closed:
            message = self._ready.get_nowait()
            if message is not None and self._in_time(message):
                return message
        return None

    async def _take_batch(self, count: int) -> list[PopMessage[Body]]:
        batch = [first] if (first := await self._take()) is not None else []
        while batch and len(batch) < count and (message := self._next_of(batch[-1])) is not None and self._in_time(message):
            batch.append(message)
        return batch

    def _next_of(self, message: PopMessage[Body]) -> PopMessage[Body] | None:
        """What may stand behind a message in a batch, no longer waiting."""
        if self._order:
            following, message.following = message.following, None
            return following
        if message.loop is None or self._ready.empty():
            return None
        found = self._ready.get_nowait()
        if found is not None and found.loop is not None and found.topic == message.topic:
            return found
        self._ready.put_nowait(found)
        return None

    def _working(self, batch: list[PopMessage[Body]], retry: Retry | None) -> PopProcessing[Body]:
        return PopProcessing(batch, retry, suppress=True)

    def is_late(self, message: AnyPop) -> bool:
        return message.expires_at <= self._instance.clock.monotonic()

    def _in_time(self, message: AnyPop) -> bool:
        """Whether the message may be delivered; one whose invisible time is over is on its way to somebody else."""
        if self.is_late(message):
            log.info("%r waited here until its invisible time was over, and comes again", message)
            self._drop(message)
            return False
        message.state = State.DELIVERED
        message.taken = self._instance.clock.monotonic()
        if self._instance.hooks is not None:
            message.watched = self._instance.hooks.consuming(self.group, message.stored, message.queue)
        return True

    def _take_back(self) -> list[AnyPop]:
        """All that waits for the application."""
        found = []
        while not self._ready.empty():
            message = self._ready.get_nowait()
            if message is not None and message.loop is not None:
                found += _chain(message)
        return found

    # What becomes of a message

    def _count(self, message: AnyPop, *, done: int = 0, failed: int = 0) -> None:
        if message.state is State.WAITING:
            return  # the application hasn't had it
        seconds = self._instance.clock.monotonic() - message.taken
        self._instance.stats.consumed(self.group, message.topic).ended(seconds, done=done, failed=failed)

    def acknowledged(self, message: AnyPop) -> None:
        self._count(message, done=1)
        self._acks.add(message)

    def _acknowledged(self, message: AnyPop, told: bool) -> None:
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

    def _drop(self, message: AnyPop | None) -> None:
        """Forget a message, and those that would come after it."""
        while message is not None:
            if message.loop is not None:
                message.loop.ended()
            following, message.following = message.following, None
            message = following

    def returned(self, messages: Sequence[AnyPop]) -> None:
        if self._order:
            for message, following in itertools.pairwise(messages):
                message.following = following
            messages = messages[:1]
        for message in messages:
            if not self.closed:
                self._ready.put_nowait(message)
            else:
                self._drop(message)

    async def refused(self, message: AnyPop, delay: float | None) -> None:
        if message.reconsume_times >= self._max_reconsume_times:
            await self.given_up(message)
            return
        self._count(message, failed=1)
        await self._postpone(message, _backoff(message) if delay is None else delay)

    async def _postpone(self, message: AnyPop, delay: float) -> None:
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

    async def given_up(self, message: AnyPop) -> None:
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

    async def extended(self, message: AnyPop, seconds: float) -> None:
        for each in _chain(message):
            await self._change(each, seconds)

    async def _change(self, message: AnyPop, seconds: float, *, suspend: bool = False) -> None:
        """Have the message's invisible time end so many seconds from now; `suspend` is for one that wasn't tried.

        Raises ResponseError when it isn't ours any more, RemotingError.
        """
        old = message.handle
        topic = topic_of(self._instance, self.group, message.topic, old)
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

    def _master(self, message: AnyPop) -> str:
        to = self._instance.routes.master(message.queue)
        if to is None:
            raise RemotingError(f"broker {message.handle.broker_name} has no master")
        return to

    async def _give_back(self, messages: Sequence[AnyPop]) -> None:
        """Have messages that nobody took come again at once, elsewhere."""
        for message in messages:
            message.following = None
        await asyncio.gather(*map(self._give_back_one, messages))

    async def _give_back_one(self, message: AnyPop) -> None:
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
            if self.closed or self._subscriptions.get(topic) is not subscribed:
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
        route = await self._instance.routes.get(topic)
        _check_pops(route)
        if self._assigned:
            found = await assignments(self._instance, self.group, topic)
            if found is None:
                raise RemotingError(f"the broker doesn't know the members of {self.group} yet")
            if all(each.mode == "POP" for each in found):
                return {each.message_queue for each in found}
            raise ClientError(f"brokers say that the group is to pull {topic}, not to pop")
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
        messages = [PopMessage(stored, handle, loop, expires_at, self, self._decoder) for stored, handle in found]
        subscribed = self._subscriptions.get(loop.queue.topic)
        if self.closed or subscribed is None:
            self._instance.tasks.start(self._give_back(messages), f"messages that {self.group} gives back")
            return
        tags = set(subscribed.tags_set)
        last: dict[int, AnyPop] = {}
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

    def members_changed(self) -> None:
        self._wanted.set()

    def reconnected(self) -> None:
        self._wanted.set()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}  # where the group is, brokers know

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Nothing to do: where the group is, brokers know."""

    def _hand(self, message: StoredMessage) -> "asyncio.Future[DirectResult]":
        handed = HandedPop(self._order)
        handle = ReceiptHandle(0, 0, 0, 0, "0", message.broker_name, message.queue_id, message.queue_offset)
        self._ready.put_nowait(PopMessage(message, handle, None, float("inf"), handed, self._decoder))
        return handed.result

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


def _check_pops(route: TopicRoute) -> None:
    """Raises NotSupported for a topic that can't be popped."""
    if route.is_static:
        raise NotSupported(f"{route.topic!r} is a static topic: brokers give its messages by pulls only")


def _backoff(message: AnyPop) -> float:
    return BACKOFF_SECONDS[min(message.reconsume_times, len(BACKOFF_SECONDS) - 1)]


def _chain(message: AnyPop) -> list[AnyPop]:
    """The message and those that are delivered after it."""
    found = [message]
    while (following := found[-1].following) is not None:
        found.append(following)
    return found
