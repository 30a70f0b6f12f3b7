"""What becomes of the messages an application has ended: one class for each way of consuming (processConsumeResult in
ConsumeMessageConcurrentlyService.java and ConsumeMessageOrderlyService.java; clients' spec, 3.6 and 3.7).

- Acknowledged: the offset may move on; in an orderly group the queue's next message is handed out.
- Refused, concurrent: the broker keeps it for a later try. If it can't be told, the message comes again here after 5 s.
- Refused, orderly: its queue waits, then it is handed out again. After the last try it goes to the group's retry topic, from
  where the broker makes it a dead letter.
- Refused, broadcast: it is dropped, with a log line. Nobody keeps it for one of many members.
"""

import asyncio
import logging
from abc import ABC, abstractmethod

from rockmq.base.errors import RockMQError
from rockmq.client import retries
from rockmq.client.delivery import ConsumedMessage, Inbox
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.process_queue import Cache
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

    def acknowledged(self, message: ConsumedMessage) -> None:
        self._count(message, done=1)
        self._finish(message)

    @abstractmethod
    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None: ...

    def returned(self, message: ConsumedMessage) -> None:
        message.state = State.WAITING
        self._inbox.ended(message.process_queue)
        if not message.process_queue.dropped:
            self._inbox.put_first(message)

    def _count(self, message: ConsumedMessage, *, done: int = 0, failed: int = 0) -> None:
        process_queue = message.process_queue
        process_queue.counts.done += done
        process_queue.counts.failed += failed
        process_queue.work.ended(self._inbox.clock.monotonic() - message.taken, done=done, failed=failed)

    def _finish(self, message: ConsumedMessage) -> None:
        process_queue = message.process_queue
        self._cache.finish(process_queue, message.queue_offset, message.stored.size)
        self._inbox.ended(process_queue)

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Nothing comes again from here."""


class Concurrent(Ended):
    def __init__(self, inbox: Inbox, cache: Cache, send_back: SendBack) -> None:
        super().__init__(inbox, cache)
        self._send_back = send_back
        self._again: dict[ConsumedMessage, asyncio.TimerHandle] = {}
        self._told_unsupported = False

    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None:
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
            self._finish(message)

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

    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None:
        self._count(message, failed=1)
        last = self._times_max is not None and message.reconsume_times >= self._times_max
        if message.process_queue.dropped:
            self._inbox.ended(message.process_queue)
        elif (last or delay_level < 0) and await self._is_given_up(message, delay_level):
            self._finish(message)
        else:
            self._wait(message, self._pause(delay_level, delay))

    async def _is_given_up(self, message: ConsumedMessage, delay_level: int) -> bool:
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

    def _wait(self, message: ConsumedMessage, seconds: float) -> None:
        message.stored.reconsume_times += 1
        self._line.pause(message.process_queue, seconds)
        self.returned(message)


class Broadcast(Ended):
    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None:
        self._count(message, failed=1)
        log.warning("%r failed and is dropped, as the group is a broadcast", message)
        self._finish(message)
