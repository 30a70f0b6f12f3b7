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
from rockmq.client.pop_message import PopMessage
from rockmq.client.pull import Backoff
from rockmq.protocol import json, pop
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

    def __init__(self, instance: Instance, group: str, tasks: Tasks, ended: Callable[[PopMessage, bool], None]) -> None:
        self._instance = instance
        self._group = group
        self._tasks = tasks
        self._ended = ended
        self._waiting: dict[str, deque[PopMessage]] = {}
        """By broker; an entry is there as long as its task runs."""
        self._changing = 0
        self._one_by_one: set[str] = set()
        """Brokers from before BATCH_ACK_MESSAGE."""

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._changing

    def add(self, message: PopMessage) -> None:
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

    def _changed(self, message: PopMessage) -> None:
        self._changing -= 1
        self.add(message)

    async def _send(self, broker_name: str) -> None:
        waiting = self._waiting[broker_name]
        try:
            while waiting:
                gathered = [waiting.popleft() for _ in range(min(len(waiting), GATHERED_MAX))]
                told = await self._tell(broker_name, gathered)
                for message in gathered:
                    self._ended(message, told)
        finally:
            del self._waiting[broker_name]

    async def _tell(self, broker_name: str, gathered: Sequence[PopMessage]) -> bool:
        """Whether the broker has heard of them."""
        pauses = Backoff(0.1, 1.0)
        while True:
            try:
                await self._ask(broker_name, gathered)
                return True
            except RemotingError as error:
                if max(message.expires_at for message in gathered) < self._instance.clock.monotonic():
                    log.warning("%d acknowledgements didn't reach %s in time, the messages come again: %s",
                                len(gathered), broker_name, error)  # fmt: skip
                    return False
                self._instance.routes.refresh_soon(gathered[0].topic)
                await asyncio.sleep(pauses.pause())
            except RockMQError as error:
                log.warning("%s doesn't take %d acknowledgements, the messages come again: %s",
                            broker_name, len(gathered), error)  # fmt: skip
                return False
            except Exception:  # else nobody would be told, and the consumer would stop popping
                log.exception("acknowledging %d messages at %s failed, they come again", len(gathered), broker_name)
                return False

    async def _ask(self, broker_name: str, gathered: Sequence[PopMessage]) -> None:
        to = self._instance.routes.master(MessageQueue(gathered[0].topic, broker_name, 0))
        if to is None:
            raise RemotingError(f"broker {broker_name} has no master")
        near = [] if broker_name in self._one_by_one else [each for each in gathered if _has_bit(each)]
        together = len(near) > 1 and await self._ask_many(to, broker_name, near)
        for message in gathered:
            if not (together and _has_bit(message)):
                await self._ask_one(to, message)

    async def _ask_many(self, to: str, broker_name: str, messages: Sequence[PopMessage]) -> bool:
        """Whether the broker knows such requests."""
        body = BatchAckBody(broker_name=broker_name, acks=parts(self._group, messages))
        try:
            await self._instance.ask(to, RequestCode.BATCH_ACK_MESSAGE, BatchAck(), json.encode(body))
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            self._one_by_one.add(broker_name)
            return False
        return True

    async def _ask_one(self, to: str, message: PopMessage) -> None:
        handle = message.handle
        header = Ack(
            consumer_group=self._group,
            topic=pop.real_topic(message.topic, self._group, handle.retry_flag),
            queue_id=handle.queue_id,
            extra_info=handle.text,
            offset=handle.offset,
            bname=handle.broker_name,
        )
        await self._instance.ask(to, RequestCode.ACK_MESSAGE, header)


def _has_bit(message: PopMessage) -> bool:
    return 0 <= message.handle.offset - message.handle.start_offset < SPAN_MAX


def parts(group: str, messages: Sequence[PopMessage]) -> list[BatchAckPart]:
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
