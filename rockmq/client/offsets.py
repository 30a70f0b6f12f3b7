"""Where a group stands in its queues, kept by brokers (RemoteBrokerOffsetStore.java; clients' spec, 3.9)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Literal, Protocol

from rockmq.base.errors import RequestTimeout, ResponseError, RockMQError
from rockmq.client.channel import Channel
from rockmq.client.instance import Instance
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header, decode
from rockmq.protocol.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)

log = logging.getLogger(__name__)

COMMIT_TIMEOUT = 5.0
ASKING_MAX = 64
"""Queues that brokers are asked about, or told of, at a time, so that the last of many isn't late before it has its turn."""

FromWhere = Literal["first", "last"] | datetime
"""Where a group begins in a queue in which it has no offset yet."""


async def ask_offset(instance: Instance, queue: MessageQueue, code: int, header: Header) -> int:
    """Ask the queue's broker for an offset. Raises RouteNotFound, ResponseError, RemotingError."""
    await instance.routes.get(queue.topic)
    answer = await instance.ask(_master(instance, queue), code, header)
    return decode(OffsetResponse, answer.fields).offset


async def max_offset(instance: Instance, queue: MessageQueue) -> int:
    header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    return await ask_offset(instance, queue, RequestCode.GET_MAX_OFFSET, header)


async def min_offset(instance: Instance, queue: MessageQueue) -> int:
    header = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    return await ask_offset(instance, queue, RequestCode.GET_MIN_OFFSET, header)


async def offset_by_time(instance: Instance, queue: MessageQueue, timestamp: int) -> int:
    header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp, bname=queue.broker_name)
    return await ask_offset(instance, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def committed(instance: Instance, group: str, queue: MessageQueue, *, zero_if_young: bool) -> int | None:
    """The group's offset, None when it has none; `zero_if_young` lets the broker say 0 for a queue that still has all."""
    header = QueryConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        bname=queue.broker_name,
        set_zero_if_not_found=None if zero_if_young else False,
    )
    try:
        offset = await ask_offset(instance, queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except ResponseError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return None
    return offset if offset >= 0 else None


async def commit(instance: Instance, group: str, queue: MessageQueue, offset: int) -> None:
    """Store the group's offset and wait until the broker has it. Raises ResponseError, RemotingError."""
    await instance.routes.get(queue.topic)
    await instance.ask(
        _master(instance, queue), RequestCode.UPDATE_CONSUMER_OFFSET, _update(group, queue, offset), timeout=COMMIT_TIMEOUT
    )


async def first_start(instance: Instance, queue: MessageQueue, from_where: FromWhere) -> int:
    """Where a group begins that has no offset. Raises ResponseError, RemotingError."""
    retry = topics.is_retry(queue.topic)
    if isinstance(from_where, datetime):
        if retry:
            return await max_offset(instance, queue)
        return await offset_by_time(instance, queue, int(from_where.timestamp() * 1000))
    if retry or from_where == "first":
        return 0
    return await max_offset(instance, queue)


def _master(instance: Instance, queue: MessageQueue) -> str:
    address = instance.routes.master(queue) or instance.routes.address(queue)
    if address is None:
        raise instance.routes.nowhere(queue)
    return address


def _update(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        bname=queue.broker_name,
    )


class OffsetStore(Protocol):
    """Where a consumer's offsets are kept."""

    def open(self) -> None:
        """Begin. Raises ClientError."""

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to begin. Raises RockMQError."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """What is stored, None when nothing is. Raises RockMQError."""

    async def store(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets for certain. Raises RockMQError; some may be stored then."""

    async def tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Offsets as they are now; called every few seconds."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets, for certain if at all possible; what fails is logged."""

    def forget(self) -> None:
        """A broker was lost."""

    def close(self) -> None:
        """Nothing is stored any more."""


class Offsets:
    """The offsets of one group, at the brokers."""

    def __init__(self, instance: Instance, group: str, from_where: FromWhere) -> None:
        self._instance = instance
        self._group = group
        self._from_where = from_where
        self._told: dict[MessageQueue, int] = {}
        self._telling: dict[MessageQueue, asyncio.Future[Command]] = {}
        """What brokers were told and haven't confirmed. They may carry out requests in another order than they came: what is
        stored for certain waits for these, or the group would go back behind it; `COMMIT_TIMEOUT` is how long."""
        self._complained = False

    def open(self) -> None:
        """Nothing is to be read."""

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to begin: the stored offset, else what `from_where` says. Raises ResponseError, RemotingError."""
        stored = await committed(self._instance, self._group, queue, zero_if_young=True)
        return stored if stored is not None else await first_start(self._instance, queue, self._from_where)

    async def committed(self, queue: MessageQueue) -> int | None:
        return await committed(self._instance, self._group, queue, zero_if_young=False)

    async def store(self, offsets: Mapping[MessageQueue, int]) -> None:
        await _some_at_a_time(offsets, self._store)

    async def _store(self, queue: MessageQueue, offset: int) -> None:
        if queue in self._telling:
            await asyncio.wait([self._telling[queue]])
        await commit(self._instance, self._group, queue, offset)
        self._told[queue] = offset

    def forget(self) -> None:
        """A broker was lost, perhaps with offsets that it was told: tell all again."""
        self._told.clear()

    async def tell(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Send offsets that have changed, without waiting for answers, on the connections that are there."""
        asked: list[tuple[Channel, int, asyncio.Future[Command]]] = []
        for queue, offset in offsets.items():
            if self._told.get(queue) == offset or queue in self._telling:
                continue
            to = self._instance.routes.master(queue)
            channel = self._instance.channel(to) if to is not None else None
            if channel is not None:
                request = self._instance.request(RequestCode.UPDATE_CONSUMER_OFFSET, _update(self._group, queue, offset))
                confirmed = self._telling[queue] = channel.start(request)
                confirmed.add_done_callback(partial(self._confirmed, queue))
                asked.append((channel, request.opaque, confirmed))
                self._told[queue] = offset
        if asked:
            asyncio.get_running_loop().call_later(COMMIT_TIMEOUT, _give_up, asked)
        for queue in self._told.keys() - offsets.keys():
            del self._told[queue]

    def _confirmed(self, queue: MessageQueue, confirmed: "asyncio.Future[Command]") -> None:
        del self._telling[queue]
        if confirmed.exception() is None:
            answer = confirmed.result()
            if answer.code == ResponseCode.SUCCESS:
                return
            if not self._complained:
                self._complained = True
                log.warning("broker %s refuses offsets of group %s, as that of queue %d of %s, and is told them again: %s",
                            queue.broker_name, self._group, queue.queue_id, queue.topic, answer.remark)  # fmt: skip
        self._told.pop(queue, None)  # it is told again, or comes to be stored

    async def commit(self, offsets: Mapping[MessageQueue, int], timeout: float = COMMIT_TIMEOUT) -> None:
        """Store offsets and wait until the brokers have them; what fails is logged: those messages will come again."""
        failed: dict[MessageQueue, str] = {}
        silent: set[str] = set()

        async def commit(queue: MessageQueue, offset: int) -> None:
            broker = self._instance.routes.broker(queue)
            if broker in silent:
                failed[queue] = f"broker {broker} doesn't answer"
                return
            try:
                async with asyncio.timeout(timeout):
                    await self._store(queue, offset)
            except ResponseError as error:
                failed[queue] = str(error)
            except (RockMQError, TimeoutError) as error:
                silent.add(broker)  # nor will the others be stored there, each after so many seconds
                failed[queue] = str(error) or f"no answer within {timeout:g} s"

        await _some_at_a_time(offsets, commit)
        if failed:
            queue, reason = next(iter(failed.items()))
            which = f"offset {offsets[queue]} of queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
            log.warning("the offsets of %d queues aren't stored, messages behind them may come again: %s (%s)",
                        len(failed), which, reason)  # fmt: skip

    def close(self) -> None:
        """Nothing is held here."""


def _give_up(asked: list[tuple[Channel, int, "asyncio.Future[Command]"]]) -> None:
    """Wait no longer for answers that haven't come."""
    for channel, opaque, confirmed in asked:
        if not confirmed.done():
            channel.forget(opaque)
            confirmed.set_exception(RequestTimeout(f"no answer to an offset within {COMMIT_TIMEOUT:g} s"))


async def _some_at_a_time(offsets: Mapping[MessageQueue, int], work: Callable[[MessageQueue, int], Awaitable[None]]) -> None:
    turns = asyncio.Semaphore(ASKING_MAX)

    async def one(queue: MessageQueue, offset: int) -> None:
        async with turns:
            await work(queue, offset)

    await asyncio.gather(*(one(queue, offset) for queue, offset in offsets.items()))
