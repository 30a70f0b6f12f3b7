"""Reading from a queue: one request, and the loop that keeps one request waiting at the broker (PullAPIWrapper.java,
DefaultMQPushConsumerImpl.pullMessage; clients' spec, 3.4)."""

import asyncio
import logging
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rockmq.base.errors import HeaderError, ProtocolError, RemotingError, ResponseError
from rockmq.client.instance import Instance
from rockmq.client.namespaces import Prefix
from rockmq.client.process_queue import ProcessQueue
from rockmq.client.static_queues import is_static
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import PullFlag
from rockmq.protocol.header import decode
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.message import StoredMessage, decode_stored

log = logging.getLogger(__name__)

SUSPEND_MS = 15_000
TIMEOUT = 30.0
COUNT_MAX = 256
"""Messages asked for at once; brokers answer with as many as their own bound allows, usually 32."""

BYTES_MAX = 256 * 1024
QUICK_SECONDS = 0.05
"""An answer without messages that comes sooner than this means a broker that doesn't hold pulls: asking at once again
would spin."""

MOVED_SECONDS = 0.1
"""Pause before a queue is begun anew at another offset: a broker that always moves us must not make us spin."""


class PullStatus(Enum):
    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


_STATUSES = {int(status.value): status for status in PullStatus}


@dataclass(slots=True, frozen=True)
class PullResult:
    """What a broker had at an offset. `data` are the stored records as they lie in its log, `next_offset` is where to go
    on whatever the status; `suggested_broker_id` is the replica to ask next."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    data: bytes
    broker_name: str
    suggested_broker_id: int
    prefix: Prefix | None = None
    """The namespace that stands before the names in `data`."""
    light_queue: str | None = None
    """The light queue that was read, if it is one."""
    static_queue: tuple[int, int] | None = None
    """Of a queue of a static topic its number, and how far its offsets are ahead of those in `data`."""

    @property
    def messages(self) -> list[StoredMessage]:
        """The records decoded. Raises ProtocolError."""
        stored = self.placed(decode_stored(self.data, self.broker_name))
        return stored if self.prefix is None else self.prefix.stored(stored)

    def placed(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """What was decoded of `data`, with the place that it has in the queue that was read: the records tell that in the
        queue where the broker wrote them. Raises ProtocolError."""
        if self.light_queue is not None:
            place(messages, self.light_queue)
        elif self.static_queue is not None:
            queue_id, ahead = self.static_queue
            for message in messages:
                message.queue_id, message.queue_offset = queue_id, message.queue_offset + ahead
        return messages


def place(messages: list[StoredMessage], light_queue: str) -> None:
    """Give messages that were read from a light queue the id and the offset that they have there, as the records tell those
    of their own queue. Raises ProtocolError for one that doesn't say that it is there."""
    for message in messages:
        if message.topic == light_queue:
            continue  # sent straight to it
        offset = message.light_queues.get(light_queue.removeprefix(topics.LIGHT_PREFIX))
        if offset is None:
            raise ProtocolError(f"message {message.msg_id} of {message.topic} doesn't say where it is in {light_queue}")
        message.queue_id, message.queue_offset = 0, offset


async def pull(instance: Instance, to: str, broker_name: str, header: Pull, timeout: float) -> PullResult:
    """Ask once. Raises ResponseError for a refusal, RemotingError."""
    code = RequestCode.LITE_PULL_MESSAGE if header.sys_flag & PullFlag.LITE_PULL else RequestCode.PULL_MESSAGE
    answer = await instance.remoting.invoke(to, instance.request(code, header), timeout)
    status = _STATUSES.get(answer.code)
    if status is None:
        raise ResponseError(answer.code, answer.remark, to)
    found = decode(PullResponse, answer.fields)
    return PullResult(
        status,
        found.next_begin_offset,
        found.min_offset,
        found.max_offset,
        answer.body if status is PullStatus.FOUND else b"",
        broker_name,
        found.suggest_which_broker_id,
        instance.prefix,
        header.topic if topics.is_light(header.topic) else None,
        (header.queue_id, found.offset_delta) if found.offset_delta is not None else None,
    )


class Backoff:
    """Pauses that double, with a little chance in them so that many waiters don't come back together."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    @property
    def fresh(self) -> bool:
        return self._next == self._first

    def pause(self) -> float:
        seconds = self._next
        self._next = min(self._next * 2, self._most)
        return seconds * random.uniform(0.8, 1.2)


class PullLoop:
    """Pulls one queue until cancelled. `deliver` takes what was found, `room` waits until more may be pulled, `moved` is
    told an offset to begin anew from when the broker no longer has ours.

    A pull asks for `batch` messages, comes `interval` seconds after one that found some, and tells the group's offset unless
    that isn't the broker's (`commits`), or the queue is a static topic's. A `lite` one says itself what it wants
    (DefaultLitePullConsumerImpl.PullTaskImpl).
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscription: SubscriptionData,
        process_queue: ProcessQueue,
        *,
        room: Callable[[ProcessQueue], "asyncio.Future[None] | None"],
        deliver: Callable[[ProcessQueue, list[StoredMessage]], None],
        moved: Callable[[ProcessQueue, int], None],
        batch: int = COUNT_MAX,
        interval: float = 0.0,
        commits: bool = True,
        lite: bool = False,
    ) -> None:
        self._instance = instance
        self._subscription = subscription
        self._process_queue = process_queue
        self._room = room
        self._deliver = deliver
        self._moved = moved
        self._interval = interval
        # Apache's brokers store what a pull tells as an offset of the queue in which they keep the messages, and don't work
        # that out of a static queue's offset (PullMessageProcessor.rewriteRequestForStaticTopic).
        self._commits = commits and not is_static(process_queue.queue)
        self._lite = lite
        self._broker_id = 0
        self._tags = frozenset(subscription.tags_set)
        self._errors = Backoff(0.1, 1.0)
        self._quick = Backoff(0.01, 1.0)
        self._header = Pull(
            consumer_group=group,
            topic=process_queue.queue.topic,
            queue_id=process_queue.queue.queue_id,
            queue_offset=0,
            max_msg_nums=batch,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=SUSPEND_MS,
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string if lite else None,
            expression_type=subscription.expression_type,
            max_msg_bytes=BYTES_MAX,
            bname=process_queue.queue.broker_name,
        )

    async def run(self) -> None:
        process_queue = self._process_queue
        while not process_queue.dropped:
            while (wait := self._room(process_queue)) is not None:
                await wait
            try:
                await self._turn()
            except RemotingError as error:
                self._complain(error, logging.INFO)  # the loss of the broker itself is told once, with a warning
                self._instance.routes.refresh_soon(process_queue.queue.topic)
                await asyncio.sleep(self._errors.pause())
            except ResponseError as error:
                await self._refused(error)
            except (ProtocolError, HeaderError) as error:
                log.error("what %s answered can't be read, trying again: %s", _named(process_queue.queue), error)
                await asyncio.sleep(self._errors.pause())
            except Exception:  # a queue that silently stops is worse than a fault that is told again and again
                log.exception("pulling %s failed, trying again", _named(process_queue.queue))
                await asyncio.sleep(self._errors.pause())
            else:
                if not self._errors.fresh:
                    log.info("pulling %s again", _named(process_queue.queue))
                    self._errors.reset()

    async def _turn(self) -> None:
        process_queue = self._process_queue
        to = self._instance.routes.address(process_queue.queue, self._broker_id)
        if to is None:
            raise self._instance.routes.nowhere(process_queue.queue)
        header = self._header
        header.queue_offset = process_queue.next_offset
        header.sys_flag = PullFlag.SUSPEND
        offset = process_queue.offset
        if self._lite:
            header.sys_flag |= PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL
        if self._commits and offset > 0 and to == self._instance.routes.master(process_queue.queue):
            header.sys_flag |= PullFlag.COMMIT_OFFSET
            header.commit_offset = offset
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        result = await pull(self._instance, to, process_queue.queue.broker_name, header, TIMEOUT)
        if process_queue.dropped:
            return
        self._broker_id = result.suggested_broker_id
        process_queue.pulled_at = loop.time()
        process_queue.max_offset = result.max_offset
        advanced = result.next_offset > process_queue.next_offset
        if result.status is PullStatus.FOUND:
            pulls = process_queue.topic_stats.pulls
            pulls.count += 1
            pulls.seconds += process_queue.pulled_at - asked_at
            self._take(result)
            if not advanced:  # none of Apache's brokers answers so; one that does mustn't make us spin
                await asyncio.sleep(self._quick.pause())
                return
            self._quick.reset()
            if self._interval:
                await asyncio.sleep(self._interval)
        elif result.status is PullStatus.OFFSET_MOVED:
            log.warning("%s has no offset %d (it has %d to %d), going on at %d", _named(process_queue.queue),
                        process_queue.next_offset, result.min_offset, result.max_offset, result.next_offset)  # fmt: skip
            await asyncio.sleep(MOVED_SECONDS)
            if not process_queue.dropped:
                self._moved(process_queue, result.next_offset)
        else:
            process_queue.next_offset = max(result.next_offset, process_queue.next_offset)
            if advanced or loop.time() - asked_at >= QUICK_SECONDS:
                self._quick.reset()
            else:
                await asyncio.sleep(self._quick.pause())

    def _take(self, result: PullResult) -> None:
        process_queue = self._process_queue
        found = result.placed(self._instance.stored(result.data, result.broker_name, keep_faulty=True))
        offsets = [each.queue_offset for each in found]
        if any(map(operator.ge, offsets, offsets[1:])):
            raise ProtocolError(f"the offsets of the messages don't rise: {offsets}")
        if offsets and offsets[0] < process_queue.next_offset:
            # An answer may begin before what was asked for when the broker keeps several messages in one record.
            found = [each for each in found if each.queue_offset >= process_queue.next_offset]
        process_queue.next_offset = max(result.next_offset, process_queue.next_offset)
        if self._tags:
            # Brokers compare hash codes; two tags can share one.
            found = [each for each in found if each.tag in self._tags]
        process_queue.topic_stats.pulls.messages += len(found)
        if found:
            self._deliver(process_queue, found)

    async def _refused(self, error: ResponseError) -> None:
        queue = self._process_queue.queue
        if error.code in (ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY):
            await asyncio.sleep(0.02 if self._errors.fresh else self._errors.pause())
            return
        if error.code in _UNKNOWN_SUBSCRIPTION:
            self._instance.heartbeat_soon()
        else:
            self._instance.routes.refresh_soon(queue.topic)
        self._complain(error)
        await asyncio.sleep(self._errors.pause())

    def _complain(self, error: Exception, level: int = logging.WARNING) -> None:
        """The first of a row of errors is told; the rest are the same story."""
        if self._errors.fresh:
            log.log(level, "%s can't be pulled, trying again: %s", _named(self._process_queue.queue), error)


_UNKNOWN_SUBSCRIPTION = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
"""What the next heartbeat tells."""


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
