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
import typing
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from rockmq.base.errors import ClientError, ProtocolError
from rockmq.client import offsets as group_offsets
from rockmq.client import running_info
from rockmq.client.decoding import Body, Decode, Decoder
from rockmq.client.instance import Instance
from rockmq.client.lite_pull_options import LitePullOptions, Options
from rockmq.client.local_offsets import LocalOffsets
from rockmq.client.member import GroupMember
from rockmq.client.offsets import Offsets, OffsetStore
from rockmq.client.process_queue import SPAN_MAX, Cache, Limits, ProcessQueue
from rockmq.client.pull import PullLoop
from rockmq.client.rebalance import Rebalancer
from rockmq.client.received import Decodable
from rockmq.client.running_info import ProcessQueueInfo
from rockmq.client.stats import QueueStats
from rockmq.client.subscription import Topics, Wanted, subscription
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.dispatch import Refusal

log = logging.getLogger(__name__)

CACHE_BYTES_MAX = 256 * 1024 * 1024


class PulledMessage(Decodable[Body]):
    """A message as a lite pull consumer with `decode` gets it; `stored` is all that the broker keeps of it."""

    __slots__ = ("decoder",)

    def __init__(self, stored: StoredMessage, decoder: Decoder[Body]) -> None:
        self.stored = stored
        self.decoder = decoder


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=StoredMessage | PulledMessage[Any], default=StoredMessage, covariant=True)
    """What a poll returns."""
else:
    M = typing.TypeVar("M", covariant=True)


class LitePullConsumer(GroupMember, Generic[M]):
    """Made by `Client.lite_pull_consumer`, used with `async with`.

    One task polls at a time; other methods may be called meanwhile. In a broadcast every member has all queues of the
    topics, and keeps its offsets in a file, the one that Java's consumers have. With `decode` it returns
    `PulledMessage[...]` instead of `StoredMessage`.
    """

    _consume_type = "CONSUME_ACTIVELY"

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics | None,
        decode: Decode[Any] | None,
        **options: Unpack[LitePullOptions],
    ) -> None:
        said = Options(**options)
        if topics is None and said.on_rebalance is not None:
            raise ClientError("on_rebalance is for consumers with topics, whose queues are shared out")
        super().__init__(instance, group, topics, from_where=said.from_where, broadcast=said.broadcast)
        self._decoder = Decoder(decode) if decode is not None else None
        self._auto_commit = said.auto_commit
        self._auto_commit_interval = said.auto_commit_interval
        self._on_queues = said.on_queues
        self._offsets: OffsetStore = (
            LocalOffsets(instance, group, said.from_where, said.offsets_directory)
            if said.broadcast
            else Offsets(instance, group, said.from_where)
        )
        self._cache = Cache(said.messages_max, CACHE_BYTES_MAX)
        self._limits = Limits(said.queue_messages_max, said.queue_bytes_max, max(SPAN_MAX, said.queue_messages_max))
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._rebalancer: Rebalancer | None = None
        if topics is not None:
            self._rebalancer = Rebalancer(
                instance,
                group,
                self._subscriptions,
                self._offsets,
                opened=self._open,
                give_up=self._give_up,
                strategy=None if said.broadcast else said.allocate,
                listener=said.on_rebalance,
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
        """What was committed explicitly, and no broker can have lost since."""
        self._next_commit = 0.0
        self._polling = False
        self._routes: dict[str, list[MessageQueue]] = {}
        self._assigning = asyncio.Lock()

    async def _begin(self) -> asyncio.Event:
        self._offsets.open()
        self._next_commit = self._instance.clock.monotonic() + self._auto_commit_interval
        if self._rebalancer is None:
            settled = asyncio.Event()
            settled.set()
            return settled
        self._tasks.start(self._rebalancer.run(), f"rebalance of {self.group}")
        return self._rebalancer.settled

    async def _end(self) -> None:
        """Commit if that is automatic; a poll that waits returns nothing."""
        self._arrived.set()
        try:
            await self._tasks.close()
            if self._auto_commit:
                await self._offsets.commit(self._done(self._queues.values()))
        finally:
            self._offsets.close()

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

    async def _resubscribed(self, topic: str) -> None:
        assert self._rebalancer is not None
        if topic in self._subscriptions:
            for process_queue in [each for each in self._pulls if each.queue.topic == topic and each not in self._leaving]:
                self._pulls[process_queue].cancel()
                self._open(process_queue)
        await self._rebalancer.now()

    def _check_subscribes(self) -> None:
        self._check_open()
        if self._rebalancer is None:
            raise ClientError("this consumer was made without topics: it is assigned queues, and shares none")

    async def assign(self, queues: Iterable[MessageQueue], tags: Wanted = "*") -> None:
        """Read these queues and no others, whoever else reads them; each from where the group is in it, or where it is now.

        Cancelled, it still commits what it has given up, which a broker that doesn't answer holds up for 5 s; cancelled once
        more it doesn't. Raises ClientError for a consumer with topics, whose queues are shared out, RouteNotFound,
        RemotingError.
        """
        self._check_open()
        if self._rebalancer is not None:
            raise ClientError(
                "this consumer has topics, whose queues are shared out; without topics it can be assigned some"
            )
        wanted = set(queues)
        chosen = {each: subscription(each, tags, self._instance.clock.now_ms()) for each in {q.topic for q in wanted}}
        async with self._assigning:
            await self._look_up(chosen.values())
            await self._instance.heartbeat()  # brokers pull only for groups they know
            new = sorted(wanted - self._queues.keys())
            begin_at = dict(zip(new, await asyncio.gather(*map(self._offsets.start_of, new)), strict=True))
            leaving = [each for queue, each in self._queues.items() if queue not in wanted]
            try:
                await _to_its_end(self._give_up(leaving))
            finally:  # also when this is cancelled: they aren't pulled any more
                for each in leaving:
                    if not each.dropped:
                        self._drop(each)
                        self._paused.discard(each.queue)
                    del self._queues[each.queue]
            self._check_open()
            for queue, held in self._queues.items():
                if not _same(self._subscriptions[queue.topic], chosen[queue.topic]):
                    begin_at[queue] = held.offset
                    self._drop(held)
            self._subscriptions = chosen
            self._routes = {topic: self._instance.routes.readable(topic) for topic in chosen}
            for queue, offset in begin_at.items():
                self._begin_at(queue, offset)

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

    def _ours(self, queue: MessageQueue) -> ProcessQueue | None:
        process_queue = self._queues.get(queue)
        return None if process_queue in self._leaving else process_queue

    def _mine(self, queue: MessageQueue) -> ProcessQueue:
        process_queue = self._ours(queue)
        if process_queue is None:
            which = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
            raise ClientError(f"{which} isn't assigned to this consumer, perhaps since members of the group changed")
        return process_queue

    # Reading

    async def poll(self, timeout: float | None = 5.0, max_messages: int = 32) -> list[M]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long).

        Messages of a queue come in order. With `auto_commit` all that polls before this one returned is taken for done.
        Raises ProtocolError, which names the message, for one that can't be decompressed; the next poll goes on behind it.
        With `decode` it is its `body` that raises that.
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
        decoder = self._decoder
        handed: list[Any] = found if decoder is None else [PulledMessage(each, decoder) for each in found]
        return handed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
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
            waiting = self._waiting[process_queue]
            taken = list(islice(takewhile(self._can_hand_out, waiting), max_messages - len(found)))
            if not taken and found:
                break  # the next poll begins with what it can't hand out
            fault = None if taken else waiting[0].fault
            taken = taken or [waiting[0]]
            self._before[process_queue] = process_queue.offset
            del self._waiting[process_queue]
            for _ in taken:
                waiting.popleft()
            self._cache.finish(process_queue, [each.queue_offset for each in taken], sum(each.size for each in taken))
            if waiting:
                self._waiting[process_queue] = waiting  # behind the others
            if fault is not None:
                raise ProtocolError(fault)
            found += taken
            if len(found) == max_messages:
                break
        return found

    def _can_hand_out(self, message: StoredMessage) -> bool:
        """With `decode` it is the message that says what is wrong, when it is asked for its body."""
        return message.fault is None or self._decoder is not None

    # Positions

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll will return. Raises ClientError for a queue that isn't ours."""
        return self._mine(queue).offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset at the broker, or in a broadcast that in our file; None when there is none."""
        return await self._offsets.committed(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Make these the group's offsets, or the positions of all our queues; the brokers have them when this returns, or
        our file, if it is a broadcast.

        Raises ResponseError, RemotingError, ClientError; some queues may be committed then.
        """
        self._check_open()
        if offsets is None:
            positions = {queue: each.offset for queue, each in self._queues.items()}
            offsets = {queue: offset for queue, offset in positions.items() if self._told.get(queue) != offset}
        await self._offsets.store(offsets)
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
        await self._seek_all(queues, group_offsets.min_offset)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last messages that are there now, of these queues or of all."""
        await self._seek_all(queues, group_offsets.max_offset)

    async def seek_to_time(self, time: datetime, *queues: MessageQueue) -> None:
        """Go on at the first messages stored then or later, of these queues or of all."""
        if time.tzinfo is None:
            raise ClientError(f"{time} has no time zone: which time is meant?")
        await self._seek_all(queues, partial(group_offsets.offset_by_time, timestamp=int(time.timestamp() * 1000)))

    async def _seek_all(
        self, named: Collection[MessageQueue], ask: Callable[[Instance, MessageQueue], Awaitable[int]]
    ) -> None:
        for queue in named:
            self._mine(queue)
        queues = named or self.queues
        found = await asyncio.gather(*(ask(self._instance, queue) for queue in queues))
        for queue, offset in zip(queues, found, strict=True):
            if named or self._ours(queue) is not None:  # of all, some may have gone to another member meanwhile
                self._seek(queue, offset)

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._check_open()
        self._drop(self._mine(queue))
        self._begin_at(queue, offset)

    # Pulling

    def _begin_at(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self._queues[queue] = ProcessQueue(queue, offset)
        self._open(process_queue)

    def _open(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        process_queue.limits = self._limits
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
        self._cache.add(process_queue, [each.queue_offset for each in found], sum([each.size for each in found]))
        self._waiting.setdefault(process_queue, deque()).extend(found)
        self._arrived.set()

    def _moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has nothing at our offset: go on at the one it named."""
        if self.closed:
            return
        self._drop(process_queue)
        self._begin_at(process_queue.queue, offset)

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

    def _drop(self, process_queue: ProcessQueue) -> None:
        pull = self._pulls.pop(process_queue, None)
        if pull is not None and pull is not asyncio.current_task():
            pull.cancel()
        self._cache.drop(process_queue)
        process_queue.dropped = True
        self._leaving.discard(process_queue)
        self._waiting.pop(process_queue, None)
        self._holds.pop(process_queue, None)
        self._before.pop(process_queue, None)
        self._told.pop(process_queue.queue, None)

    # What the runtime asks and tells

    def members_changed(self) -> None:
        if self._rebalancer is not None:
            self._rebalancer.wake()
        for topic in self._subscriptions:
            queues = self._instance.routes.readable(topic)
            before = self._routes.get(topic)
            self._routes[topic] = queues
            if before is not None and before != queues and self._on_queues is not None:
                try:
                    self._on_queues(topic, queues)
                except Exception:
                    log.exception("on_queues failed for %s", topic)

    def reconnected(self) -> None:
        self._told.clear()
        self._offsets.forget()
        if self._rebalancer is not None:
            self._rebalancer.hold()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: each.offset for queue, each in self._queues.items() if queue.topic == topic}

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if self._ours(queue) is not None:
                self._seek(queue, offset)

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


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that goes on when who waits for it is cancelled, and is cancelled itself when he is once more."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    finally:
        try:
            await asyncio.wait([working])
        finally:
            working.cancel()


def _same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.expression_type, one.sub_string) == (other.expression_type, other.sub_string)
