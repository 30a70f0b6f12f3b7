"""Acknowledgements of popped messages on their way (BatchAck.java; protocol spec, section 6).

One request at a time goes to a broker, and takes with it all that has gathered while the one before was under way: a first
acknowledgement isn't delayed, and many don't cost a request each. What can't be sent is tried again until the message's
time is over; then the message comes again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from rockmq.base.errors import RemotingError, ResponseError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client.instance import Instance
from rockmq.client.pop import topic_of
from rockmq.client.pop_message import AnyPop
from rockmq.client.pull import Backoff
from rockmq.protocol import json
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.pop import BatchAckBody, BatchAckPart
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.pop import Ack, BatchAck

log = logging.getLogger(__name__)

GATHERED_MAX = 1024
"""Messages in one request."""
SPAN_MAX = 4096
"""Offsets that the bits of one part of a request cover; a pop whose filter jumps farther is acknowledged by itself."""


class Acks:
    """The acknowledgements of one group. `ended` is told each message and whether the broker has heard of it."""

    def __init__(self, instance: Instance, group: str, tasks: Tasks, ended: Callable[[AnyPop, bool], None]) -> None:
        self._instance = instance
        self._group = group
        self._tasks = tasks
        self._ended = ended
        self._waiting: dict[str, deque[AnyPop]] = {}
        """By broker; an entry is there as long as its task runs."""
        self._changing = 0
        self._one_by_one: set[str] = set()
        """Brokers from before BATCH_ACK_MESSAGE."""

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._changing

    def add(self, message: AnyPop) -> None:
        if message.changing is not None and not message.changing.done():
            self._changing += 1
            message.changing.add_done_callback(lambda _: self._changed(message))
            return
        waiting = self._waiting.get(message.handle.broker_name)
        if waiting is not None:
            waiting.append(message)
            return
        broker_name = message.handle.broker_name
        self._waiting[broker_name] = deque([message])
        self._tasks.start(self._send(broker_name), f"acknowledgements of {self._group} to {broker_name}")

    def _changed(self, message: AnyPop) -> None:
        self._changing -= 1
        self.add(message)

    async def _send(self, broker_name: str) -> None:
        waiting = self._waiting[broker_name]
        try:
            while waiting:
                requests = self._requests(broker_name, [waiting.popleft() for _ in range(min(len(waiting), GATHERED_MAX))])
                while requests:
                    messages = requests.popleft()
                    told = await self._tell(broker_name, messages)
                    if not told and len(messages) > 1:
                        requests.extend([each] for each in messages)  # one that is refused mustn't keep the others back
                        continue
                    for message in messages:
                        self._ended(message, told)
        finally:
            del self._waiting[broker_name]

    def _requests(self, broker_name: str, gathered: Sequence[AnyPop]) -> deque[list[AnyPop]]:
        """What goes into one request each."""
        near = [] if broker_name in self._one_by_one else [each for each in gathered if _has_bit(each)]
        if len(near) < 2:
            return deque([each] for each in gathered)
        return deque([near, *([each] for each in gathered if not _has_bit(each))])

    async def _tell(self, broker_name: str, messages: Sequence[AnyPop]) -> bool:
        """Whether the broker has heard of them."""
        pauses = Backoff(0.1, 1.0)
        while True:
            try:
                await self._ask(broker_name, messages)
                return True
            except RemotingError as error:
                if max(message.expires_at for message in messages) < self._instance.clock.monotonic():
                    log.warning("acknowledgements didn't reach %s in time, messages come again: %s", broker_name, error)
                    return False
                self._instance.routes.refresh_soon(messages[0].topic)
                await asyncio.sleep(pauses.pause())
            except RockMQError as error:
                if len(messages) == 1:
                    log.warning("%s doesn't take an acknowledgement, %r comes again: %s", broker_name, messages[0], error)
                elif isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._one_by_one.add(broker_name)
                return False
            except Exception:  # else nobody would be told, and the consumer would stop popping
                log.exception("acknowledging %d messages at %s failed", len(messages), broker_name)
                return False

    async def _ask(self, broker_name: str, messages: Sequence[AnyPop]) -> None:
        first = messages[0]
        to = self._instance.routes.master(MessageQueue(first.topic, broker_name, 0))
        if to is None:
            raise RemotingError(f"broker {broker_name} has no master")
        if len(messages) > 1:
            body = BatchAckBody(broker_name=broker_name, acks=parts(self._group, messages))
            await self._instance.ask(to, RequestCode.BATCH_ACK_MESSAGE, BatchAck(), json.encode(body))
            return
        handle = first.handle
        header = Ack(
            consumer_group=self._group,
            topic=topic_of(self._instance, self._group, first.topic, handle),
            queue_id=handle.queue_id,
            extra_info=handle.text,
            offset=handle.offset,
            bname=handle.broker_name,
        )
        await self._instance.ask(to, RequestCode.ACK_MESSAGE, header)


def _has_bit(message: AnyPop) -> bool:
    return 0 <= message.handle.offset - message.handle.start_offset < SPAN_MAX


def parts(group: str, messages: Sequence[AnyPop]) -> list[BatchAckPart]:
    """One part for each queue of each pop, with a bit for each message."""
    bits: dict[tuple[str, str, int, int, int, int, int], int] = {}
    for message in messages:
        handle = message.handle
        key = (message.topic, handle.retry_flag, handle.queue_id, handle.start_offset, handle.revive_queue, handle.pop_time,
               handle.invisible_time)  # fmt: skip
        bits[key] = bits.get(key, 0) | 1 << (handle.offset - handle.start_offset)
    return [
        BatchAckPart(
            consumer_group=group,
            topic=topic,
            retry=retry_flag,
            queue_id=queue_id,
            start_offset=start,
            revive_queue_id=revive,
            pop_time=pop_time,
            invisible_time=invisible_time,
            bits=set_bits.to_bytes((set_bits.bit_length() + 7) // 8, "little"),
        )
        for (topic, retry_flag, queue_id, start, revive, pop_time, invisible_time), set_bits in bits.items()
    ]
