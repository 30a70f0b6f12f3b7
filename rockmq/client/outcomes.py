"""What becomes of the messages an application has ended: one class for each way of consuming (processConsumeResult in
ConsumeMessageConcurrentlyService.java and ConsumeMessageOrderlyService.java; clients' spec, 3.6 and 3.7).

- Acknowledged: the offset may move on; in an orderly group the queue's next message is handed out.
- Refused, concurrent: the broker keeps it for a later try. If it can't be told, the message comes again here after 5 s.
- Refused, orderly: its queue waits, then it is handed out again. After the last try it goes to the group's retry topic, from
  where the broker makes it a dead letter.
- Refused, broadcast: it is dropped, with a log line. Nobody keeps it for one of many members.
- Committed by hand, orderly: what is acknowledged stays unfinished, so that the offset can't move, until a message is
  committed, or rolled back with all of these (ConsumeOrderlyContext.setAutoCommit(false)). The bounds on what a queue holds
  count it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rockmq.base.errors import RockMQError
from rockmq.client import retries
from rockmq.client.delivery import AnyMessage, ConsumedMessage, Inbox
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.received import State
from rockmq.client.send_back import SendBack
from rockmq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

REDELIVER_SECONDS = 5.0
SUSPEND_MIN_SECONDS, SUSPEND_MAX_SECONDS = 0.01, 30.0


class Ended(ABC):
    """What all ways have in common."""

    def __init__(self, inbox: Inbox, cache: Cache) -> None:
        self._inbox = inbox
        self._cache = cache

    def acknowledged(self, message: AnyMessage) -> None:
        self._count(message, done=1)
        self.finish([message])

    @abstractmethod
    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None: ...

    def returned(self, message: AnyMessage) -> None:
        self._inbox.ended(message.process_queue)
        if not message.process_queue.dropped:
            self._inbox.put_first(_again(message))

    def _count(self, message: AnyMessage, *, done: int = 0, failed: int = 0) -> None:
        seconds = self._inbox.clock.monotonic() - message.taken
        message.process_queue.topic_stats.work.ended(seconds, done=done, failed=failed)

    def finish(self, messages: Sequence[AnyMessage]) -> None:
        """Messages of one queue are done with, and are counted."""
        process_queue = messages[0].process_queue
        stored = [message.stored for message in messages]
        self._cache.finish(process_queue, [each.queue_offset for each in stored], sum([each.size for each in stored]))
        self._inbox.ended(process_queue, len(messages))

    def lost(self, process_queue: ProcessQueue) -> None:  # noqa: B027 - most have nothing to do
        """The queue isn't ours any more."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Nothing comes again from here."""


def _again(message: AnyMessage) -> AnyMessage:
    """The message for its next delivery. Whoever still has the object of this one can't end that."""
    return ConsumedMessage(message.stored, message.process_queue, message.outcome)


class Concurrent(Ended):
    def __init__(self, inbox: Inbox, cache: Cache, send_back: SendBack) -> None:
        super().__init__(inbox, cache)
        self._send_back = send_back
        self._again: dict[AnyMessage, asyncio.TimerHandle] = {}
        self._told_unsupported = False

    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None:
        process_queue = message.process_queue
        self._count(message, failed=1)
        if process_queue.dropped:
            return  # its new owner gets it
        try:
            await self._send_back(message, delay_level)
        except RockMQError as error:
            self._tell_unsent(message, error)
            self._inbox.ended(process_queue)
            if not self._inbox.closed and not process_queue.dropped:
                message.stored.reconsume_times += 1
                loop = asyncio.get_running_loop()
                self._again[message] = loop.call_later(REDELIVER_SECONDS, self._redeliver, message)
        except BaseException:
            self.returned(message)
            raise
        else:
            self.finish([message])

    def _tell_unsent(self, message: AnyMessage, error: RockMQError) -> None:
        unsupported = getattr(error, "code", None) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if not unsupported:
            log.warning("%r couldn't be sent back, it is delivered again here: %s", message, error)
        elif not self._told_unsupported:
            self._told_unsupported = True
            log.info("the broker doesn't take refused messages back; they are delivered again here after %g s",
                     REDELIVER_SECONDS)  # fmt: skip

    def _redeliver(self, message: AnyMessage) -> None:
        del self._again[message]
        if message.process_queue.leaving_since is None and not self._inbox.closed:
            self._inbox.put([_again(message)])

    def close(self) -> None:
        for timer in self._again.values():
            timer.cancel()


class Orderly(Ended):
    """`send_back` is None in a broadcast: what was tried often enough is dropped there."""

    def __init__(
        self, inbox: OrderlyInbox, cache: Cache, send_back: SendBack | None, *, times_max: int | None, suspend: float
    ) -> None:
        super().__init__(inbox, cache)
        self._line = inbox
        self._send_back = send_back
        self._times_max = times_max
        self._suspend = suspend

    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None:
        self._count(message, failed=1)
        last = self._times_max is not None and message.reconsume_times >= self._times_max
        if message.process_queue.dropped:
            self._inbox.ended(message.process_queue)
        elif (last or delay_level < 0) and await self._is_given_up(message, delay_level):
            self.finish([message])
        else:
            self._wait(message, self._pause(delay_level, delay))

    async def _is_given_up(self, message: AnyMessage, delay_level: int) -> bool:
        """Have it made a dead letter; False if that failed."""
        try:
            if self._send_back is None:
                log.warning("%r failed %d times and is dropped", message, message.reconsume_times + 1)
            else:
                await self._send_back.anew(message, min(delay_level, 0))
        except RockMQError as error:
            log.warning("%r can't be made a dead letter, its queue waits: %s", message, error)
            return False
        except BaseException:
            self.returned(message)
            raise
        return True

    def _pause(self, delay_level: int, delay: float | None) -> float:
        if delay is None:
            delay = retries.seconds_of(delay_level) if delay_level > 0 else self._suspend
        return min(max(delay, SUSPEND_MIN_SECONDS), SUSPEND_MAX_SECONDS)

    def _wait(self, message: AnyMessage, seconds: float) -> None:
        message.stored.reconsume_times += 1
        self._line.pause(message.process_queue, seconds)
        self.returned(message)


class ByHand(Orderly):
    """Orderly, where the offset moves only by `commit`."""

    def __init__(
        self, inbox: OrderlyInbox, cache: Cache, send_back: SendBack | None, *, times_max: int | None, suspend: float
    ) -> None:
        super().__init__(inbox, cache, send_back, times_max=times_max, suspend=suspend)
        self._uncommitted: dict[ProcessQueue, list[AnyMessage]] = {}
        """What was acknowledged since the last commit."""

    def acknowledged(self, message: AnyMessage) -> None:
        self._count(message, done=1)
        process_queue = message.process_queue
        if not process_queue.dropped:
            kept = self._uncommitted.setdefault(process_queue, [])
            kept.append(message)
            if self._stands_still(process_queue):
                log.warning("nothing more is pulled until some of what is acknowledged up to %r is committed", message)
        self._inbox.ended(process_queue)

    def _stands_still(self, process_queue: ProcessQueue) -> bool:
        """Whether all that may be held is waiting for a commit."""
        if process_queue.full:
            return len(self._uncommitted[process_queue]) == process_queue.count
        return self._cache.full and sum(map(len, self._uncommitted.values())) == self._cache.messages

    def committed(self, message: AnyMessage) -> None:
        process_queue = message.process_queue
        for each in [message, *_others(message)]:
            if each.queue_offset <= message.queue_offset:
                each.end(State.DONE)
                self._count(each, done=1)
                self.finish([each])
        left = []
        for each in self._uncommitted.pop(process_queue, ()):
            if each.queue_offset < message.queue_offset:
                self._cache.finish(process_queue, [each.queue_offset], each.stored.size)
            else:
                left.append(each)
        if left:
            self._uncommitted[process_queue] = left

    def rolled_back(self, message: AnyMessage, delay: float | None) -> None:
        process_queue = message.process_queue
        taken = [message, *_others(message)]
        for each in taken:
            each.end(State.REFUSED)
            self._count(each, failed=1)
        self._line.pause(process_queue, self._pause(0, delay))
        for each in taken:
            self.returned(each)
        for each in self._uncommitted.pop(process_queue, ()):
            self._inbox.put_first(_again(each))

    def lost(self, process_queue: ProcessQueue) -> None:
        self._uncommitted.pop(process_queue, None)


def _others(message: AnyMessage) -> list[AnyMessage]:
    """What else of its queue the application has: more than one it has only as a batch."""
    return [each for block in message.process_queue.blocks for each in block.unfinished if each is not message]


class Broadcast(Ended):
    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None:
        self._count(message, failed=1)
        log.warning("%r failed and is dropped, as the group is a broadcast", message)
        self.finish([message])
