"""Reads topics when asked to, from wherever it is told (DefaultLitePullConsumer.java; clients' spec, 3.13).

Queues are pulled in the background, as far as the bounds allow; `poll` hands out what is there. The queues are the group's,
shared with its other members, or those that `assign` names. The position in a queue is that of the next message a poll will
return; it is in memory, and `commit` makes it the group's offset, from which whoever reads the queue next begins.

`auto_commit` takes a message for done when the next poll is called, not when it was worked on: like Apache's consumer, it
knows no better. What the last poll returned isn't committed if the queue goes to another member then, or if the `async with`
ends by an exception, so it comes again. Who hands messages to other tasks commits explicitly.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import TracebackType

from rockmq.base.errors import ClientClosed, ClientError
from rockmq.base.tasks import Tasks
from rockmq.client import offsets as group_offsets
from rockmq.client import running_info
from rockmq.client.check_client import check_filters
from rockmq.client.instance import Instance
from rockmq.client.offsets import FromWhere, Offsets
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.pull import PullLoop
from rockmq.client.rebalance import Rebalancer
from rockmq.client.running_info import ProcessQueueInfo
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics, Wanted, subscription, subscriptions
from rockmq.protocol import topics as topic_names
from rockmq.protocol.bodies.client import ConsumerData, DirectResult
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.dispatch import Refusal

log = logging.getLogger(__name__)

CACHE_MESSAGES_MAX = 10_000
CACHE_BYTES_MAX = 256 * 1024 * 1024
START_TIMEOUT = 5.0

QueuesChanged = Callable[[str, list[MessageQueue]], object]
"""Told a topic and the queues that it has now."""


class LitePullConsumer:
    """Made by `Client.lite_pull_consumer`, used with `async with`.

    One task polls at a time; other methods may be called meanwhile.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics | None,
        *,
        from_where: FromWhere,
        auto_commit: bool,
        auto_commit_interval: float,
        on_queues: QueuesChanged | None,
    ) -> None:
        if auto_commit_interval < 1:
            raise ClientError(f"auto_commit_interval is {auto_commit_interval:g} s, and must be 1 s at least")
        self.group = group
        self._instance = instance
        self._from_where = from_where
        self._auto_commit = auto_commit
        self._auto_commit_interval = auto_commit_interval
        self._on_queues = on_queues
        self._offsets = Offsets(instance, group, from_where)
        self._cache = Cache(CACHE_MESSAGES_MAX, CACHE_BYTES_MAX)
        self._tasks = Tasks()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._rebalancer: Rebalancer | None = None
        if topics is not None:
            self._subscriptions = subscriptions(topics, group, instance.clock.now_ms())
            del self._subscriptions[topic_names.retry_topic(group)]  # nothing is sent back here
            self._rebalancer = Rebalancer(
                instance, group, self._subscriptions, self._offsets, opened=self._open, give_up=self._give_up
            )
            self._queues = self._rebalancer.queues
        self._pulls: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._leaving: set[ProcessQueue] = set()
        self._paused: set[MessageQueue] = set()
        self._holds: dict[ProcessQueue, asyncio.Future[None]] = {}
        """What the pulls of paused queues wait for."""
        self._waiting: dict[ProcessQueue, deque[StoredMessage]] = {}
        """What was pulled and not polled; the queues in turn."""
        self._arrived = asyncio.Event()
        self._before: dict[ProcessQueue, int] = {}
        """Where queues were before the last poll took from them."""
        self._told: dict[MessageQueue, int] = {}
        self._next_commit = 0.0
        self._polling = False
        self._routes: dict[str, list[MessageQueue]] = {}
        self._started_ms = 0
        self.closed = False

    async def start(self) -> None:
        """Join the group; returns when the first queues are ours, or after 5 s without; `async with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to.
        """
        self._instance.check_open()
        if self.closed or self._started_ms:
            raise ClientClosed("a consumer can be started once")
        self._started_ms = self._instance.clock.now_ms()
        self._next_commit = self._instance.clock.monotonic() + self._auto_commit_interval
        self._instance.add_consumer(self)
        if self._rebalancer is None:
            return
        try:
            await asyncio.gather(*map(self._instance.routes.get, self._subscriptions), return_exceptions=True)
            await check_filters(self._instance, self.group, self._subscriptions.values())
            await self._instance.heartbeat()
            self._tasks.start(self._rebalancer.run(), f"rebalance of {self.group}")
            async with asyncio.timeout(START_TIMEOUT):
                await self._rebalancer.settled.wait()
        except TimeoutError:
            log.warning("group %s has no queues yet, going on trying", self.group)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop pulling, commit if that is automatic, leave the group; a poll that waits returns nothing."""
        if self.closed:
            return
        self.closed = True
        self._arrived.set()
        try:
            await self._tasks.close()
            if self._auto_commit:
                await self._offsets.commit(self._done(self._queues.values()))
        finally:
            await self._instance.remove(consumer=self.group)

    async def __aenter__(self) -> "LitePullConsumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._before.clear()  # what the last poll returned was worked on
        await self.close()

    # Queues

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self._queues)

    async def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Share the queues of a topic, too, or read other messages of one; returns when its queues are shared out.

        What was pulled before is still polled. Raises ClientError for a consumer that was made without topics, ResponseError
        when a broker can't filter so.
        """
        rebalancer = self._sharing()
        chosen = subscription(topic, wanted, self._instance.clock.now_ms())
        await check_filters(self._instance, self.group, [chosen])
        self._subscriptions[topic] = chosen
        await self._instance.heartbeat()
        for process_queue in [each for each in self._pulls if each.queue.topic == topic and each not in self._leaving]:
            self._pulls[process_queue].cancel()
            self._open(process_queue)
        await rebalancer.now()

    async def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; returns when its queues are given up. Raises ClientError when it isn't read."""
        rebalancer = self._sharing()
        if topic not in self._subscriptions:
            raise ClientError(f"group {self.group} isn't subscribed to {topic!r}")
        del self._subscriptions[topic]
        await rebalancer.now()
        await self._instance.heartbeat()

    def _sharing(self) -> Rebalancer:
        self._check_open()
        if self._rebalancer is None:
            raise ClientError("this consumer was made without topics: it is assigned queues, and shares none")
        return self._rebalancer

    async def assign(self, queues: Iterable[MessageQueue], tags: Wanted = "*") -> None:
        """Read these queues and no others, whoever else reads them; each from where the group is in it, or where it is now.

        Raises ClientError for a consumer with topics, whose queues are shared out, RouteNotFound, RemotingError.
        """
        self._check_open()
        if self._rebalancer is not None:
            raise ClientError(
                "this consumer has topics, whose queues are shared out; without topics it can be assigned some"
            )
        wanted = set(queues)
        chosen = {each: subscription(each, tags, self._instance.clock.now_ms()) for each in {q.topic for q in wanted}}
        kept = {
            queue for queue in wanted & self._queues.keys() if _same(self._subscriptions[queue.topic], chosen[queue.topic])
        }
        await check_filters(self._instance, self.group, chosen.values())
        begins = sorted(wanted - kept)
        await asyncio.gather(*(self._instance.routes.get(topic) for topic in chosen))
        await self._instance.heartbeat()  # brokers pull only for groups they know
        found = await asyncio.gather(*map(self._begin_at, begins))
        if self.closed:
            return
        for queue in list(self._queues):
            if queue not in kept:
                self._drop(self._queues.pop(queue))
        self._subscriptions = chosen
        self._routes = {topic: self._readable(topic) for topic in chosen}
        for queue, offset in zip(begins, found, strict=True):
            self._begin(queue, offset)

    async def _begin_at(self, queue: MessageQueue) -> int:
        held = self._queues.get(queue)
        return held.offset if held is not None else await self._offsets.start_of(queue)

    def pause(self, *queues: MessageQueue) -> None:
        """Neither pull nor return anything of these queues until they are resumed; what was pulled stays.

        Raises ClientError for a queue that isn't ours.
        """
        for queue in queues:
            self._mine(queue)
        self._paused.update(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues."""
        self._paused.difference_update(queues)
        for process_queue in [each for each in self._holds if each.queue not in self._paused]:
            hold = self._holds.pop(process_queue)
            if not hold.done():
                hold.set_result(None)
        self._arrived.set()

    @property
    def paused(self) -> list[MessageQueue]:
        return sorted(self._paused)

    def _mine(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self._queues.get(queue)
        if process_queue is None or process_queue in self._leaving:
            which = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
            raise ClientError(f"{which} isn't assigned to this consumer, perhaps since members of the group changed")
        return process_queue

    def _check_open(self) -> None:
        if not self._started_ms or self.closed:
            raise ClientClosed(
                "this consumer is closed" if self.closed else "this consumer was not started: use `async with`"
            )

    # Reading

    async def poll(self, timeout: float | None = 5.0, max_messages: int = 32) -> list[StoredMessage]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long).

        Messages of a queue come in order. With `auto_commit` all that polls before this one returned is taken for done.
        """
        self._check_open()
        if self._polling:
            raise ClientError("another task is polling: give each a consumer of its own, or share out what one polls")
        if max_messages < 1:
            raise ClientError(f"max_messages is {max_messages}, and must be 1 at least")
        self._before.clear()
        self._polling = True
        try:
            if self._auto_commit and self._instance.clock.monotonic() >= self._next_commit:
                self._next_commit = self._instance.clock.monotonic() + self._auto_commit_interval
                await self._offsets.tell({queue: each.offset for queue, each in self._queues.items()})
            async with asyncio.timeout(timeout):
                while not (found := self._take(max_messages)) and not self.closed:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        finally:
            self._polling = False
        return found

    def __aiter__(self) -> "LitePullConsumer":
        return self

    async def __anext__(self) -> StoredMessage:
        """One message after the other, as by `poll`."""
        found = await self.poll(None, 1)
        if not found:
            raise StopAsyncIteration
        return found[0]

    def _take(self, max_messages: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for process_queue in list(self._waiting):
            if process_queue.queue in self._paused:
                continue
            self._before[process_queue] = process_queue.offset
            waiting = self._waiting.pop(process_queue)
            while waiting and len(found) < max_messages:
                message = waiting.popleft()
                found.append(message)
                self._cache.finish(process_queue, message.queue_offset, message.size)
            if waiting:
                self._waiting[process_queue] = waiting  # behind the others
            if len(found) == max_messages:
                break
        return found

    # Positions

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll will return. Raises ClientError for a queue that isn't ours."""
        return self._mine(queue).offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset at the broker; None when it has none."""
        return await group_offsets.committed(self._instance, self.group, queue, zero_if_young=False)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Make these the group's offsets, or the positions of all our queues; the brokers have them when this returns.

        Raises ResponseError, RemotingError; some queues may be committed then.
        """
        self._check_open()
        if offsets is None:
            positions = {queue: each.offset for queue, each in self._queues.items()}
            offsets = {queue: offset for queue, offset in positions.items() if self._told.get(queue) != offset}
        await asyncio.gather(
            *(group_offsets.commit(self._instance, self.group, queue, offset) for queue, offset in offsets.items())
        )
        self._told.update(offsets)

    def _done(self, process_queues: Collection[ProcessQueue]) -> dict[MessageQueue, int]:
        """Where those queues are, without what the last poll returned."""
        return {each.queue: self._before.get(each, each.offset) for each in process_queues}

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at that offset, from the oldest that is kept to the one behind the last. Raises ClientError otherwise."""
        self._mine(queue)
        low, high = await asyncio.gather(
            group_offsets.min_offset(self._instance, queue), group_offsets.max_offset(self._instance, queue)
        )
        if not low <= offset <= high:
            which = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
            raise ClientError(f"{which} has the offsets {low} to {high}, not {offset}")
        self._seek(queue, offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on at the oldest messages that are kept, of these queues or of all."""
        for queue in queues or self.queues:
            self._seek(queue, await group_offsets.min_offset(self._instance, queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last messages that are there now, of these queues or of all."""
        for queue in queues or self.queues:
            self._seek(queue, await group_offsets.max_offset(self._instance, queue))

    async def seek_to_time(self, time: datetime, *queues: MessageQueue) -> None:
        """Go on at the first messages stored then or later, of these queues or of all."""
        if time.tzinfo is None:
            raise ClientError(f"{time} has no time zone: which time is meant?")
        timestamp = int(time.timestamp() * 1000)
        for queue in queues or self.queues:
            self._seek(queue, await group_offsets.offset_by_time(self._instance, queue, timestamp))

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._check_open()
        self._drop(self._mine(queue))
        self._begin(queue, offset)

    # Pulling

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self._queues[queue] = ProcessQueue(queue, offset)
        self._open(process_queue)

    def _open(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        loop = PullLoop(
            self._instance,
            self.group,
            self._subscriptions[queue.topic],
            process_queue,
            room=self._room,
            deliver=self._deliver,
            moved=self._moved,
            commits=False,
            lite=True,
        )
        name = f"lite pull of {queue.topic} {queue.queue_id} on {queue.broker_name}"
        self._pulls[process_queue] = self._tasks.start(loop.run(), name)

    def _room(self, process_queue: ProcessQueue) -> "asyncio.Future[None] | None":
        if process_queue.queue not in self._paused:
            return self._cache.room(process_queue)
        hold = self._holds[process_queue] = asyncio.get_running_loop().create_future()
        return hold

    def _deliver(self, process_queue: ProcessQueue, found: list[StoredMessage]) -> None:
        for message in found:
            self._cache.add(process_queue, message.queue_offset, message.size)
        self._waiting.setdefault(process_queue, deque()).extend(found)
        self._arrived.set()

    def _moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has nothing at our offset: go on at the one it named."""
        self._drop(process_queue)
        self._begin(process_queue.queue, offset)

    async def _give_up(self, process_queues: Collection[ProcessQueue]) -> None:
        self._leaving.update(process_queues)
        for process_queue in process_queues:
            self._pulls[process_queue].cancel()
            self._waiting.pop(process_queue, None)
        if self._auto_commit:
            await self._offsets.commit(self._done(process_queues))
        for process_queue in process_queues:
            self._drop(process_queue)
            self._paused.discard(process_queue.queue)
        self._leaving.difference_update(process_queues)

    def _drop(self, process_queue: ProcessQueue) -> None:
        pull = self._pulls.pop(process_queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()
        self._cache.drop(process_queue)
        process_queue.dropped = True
        self._waiting.pop(process_queue, None)
        self._holds.pop(process_queue, None)
        self._before.pop(process_queue, None)
        self._told.pop(process_queue.queue, None)

    # What the runtime asks and tells

    def heartbeat_data(self) -> ConsumerData:
        where = str(self._from_where).upper() if self._from_where in ("first", "last") else ""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            consume_from_where=f"CONSUME_FROM_{where}_OFFSET" if where else "CONSUME_FROM_TIMESTAMP",
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        if self._rebalancer is not None:
            self._rebalancer.wake()
        for topic in self._subscriptions:
            queues = self._readable(topic)
            before = self._routes.get(topic)
            self._routes[topic] = queues
            if before is not None and before != queues and self._on_queues is not None:
                try:
                    self._on_queues(topic, queues)
                except Exception:
                    log.exception("on_queues failed for %s", topic)

    def _readable(self, topic: str) -> list[MessageQueue]:
        route = self._instance.routes.known(topic)
        return sorted(route.readable) if route is not None else []

    def reconnected(self) -> None:
        self._offsets.forget()
        if self._rebalancer is not None:
            self._rebalancer.hold()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: each.offset for queue, each in self._queues.items() if queue.topic == topic}

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue in offsets.keys() & self._queues.keys():
            if self._queues[queue] not in self._leaving:
                self._seek(queue, offsets[queue])

    async def consume_directly(self, message: StoredMessage) -> DirectResult:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the lite pull consumer {self.group} has no handler to try a message with")

    def queue_stats(self) -> tuple[QueueStats, ...]:
        return tuple(each.stats() for _, each in sorted(self._queues.items()))

    def running_info(self, *, stacks: bool = False) -> bytes:
        return running_info.encode_active(
            consume_type="CONSUME_ACTIVELY",
            name_servers=self._instance.names.addresses,
            started_ms=self._started_ms,
            subscriptions=list(self._subscriptions.values()),
            queues={
                queue.key(): ProcessQueueInfo(
                    commit_offset=each.offset, cached_msg_count=each.count, cached_msg_size_in_mi_b=each.bytes >> 20
                )
                for queue, each in sorted(self._queues.items())
            },
            pops={},
            stacks=stacks,
        )


def _same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.expression_type, one.sub_string) == (other.expression_type, other.sub_string)
