"""Message trace: what became of each message, told in messages of a topic that dashboards and `mqadmin` read
(TraceDataEncoder.java, AsyncTraceDispatcher.java; clients' spec, 2.10).

A record is text: its fields with 0x01 between them and 0x02 behind the last. A trace message has up to 10 records, and as
keys the ids and keys of the messages they are about, by which it is found. What Java does otherwise: it has a producer of
traces for each of its own, and tells a batch in one record, which no id finds.

Nothing waits for a trace: records over `RECORDS_MAX` that wait to be sent are dropped and counted, and so are those
that can't be sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rockmq.base.clock import Clock
from rockmq.base.errors import RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client.composing import DELAYS
from rockmq.client.hooks import Consumption, Ended, Hook, Outgoing, Recall, Send, TransactionEnd
from rockmq.client.instance import Instance
from rockmq.client.options import ProducerOptions
from rockmq.client.producer import Producer
from rockmq.client.sending import SendStatus
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.ids import UniqueIds
from rockmq.protocol.message import Message

log = logging.getLogger(__name__)

TOPIC = topics.TRACE
PRODUCER_GROUP = "_INNER_TRACE_PRODUCER-ROCKMQ"
RECORDS_MAX = 2048
BATCH = 10
"""Records in a trace message."""
FLUSH_SECONDS = 5.0
MESSAGE_SIZE_MAX = 128_000
SEND_TIMEOUT = 5.0
CLOSE_SECONDS = 5.0
DEFAULT_REGION = "DefaultRegion"

FIELD_END = "\x01"
RECORD_END = "\x02"

NORMAL, HALF, COMMIT, DELAY = range(4)
"""Kinds of message (MessageType.java)."""
SUCCESS, _TIME_OUT, EXCEPTION, _RETURN_NULL, FAILED = range(5)
"""What a listener did (ConsumeReturnType.java)."""
_STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}
"""Decisions as LocalTransactionState.java spells them."""


class Record(NamedTuple):
    """A record with what it is found by. `topic` is that of the message it is about: topics don't share a trace message."""

    topic: str
    text: str
    keys: tuple[str, ...]


def record(kind: str, *fields: object) -> str:
    return FIELD_END.join([kind, *map(_text, fields)]) + RECORD_END


def _text(field: object) -> str:
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)


def sent(send: Send, message: Outgoing, offset_id: str, cost_ms: int) -> Record:
    """A message that a broker has stored."""
    assert send.receipt is not None
    found = message.properties
    text = record(
        "Pub", send.began_ms, send.answer.get(names.MSG_REGION, DEFAULT_REGION), send.group, send.topic, message.msg_id,
        found.get(names.TAGS), found.get(names.KEYS), send.broker, message.size, cost_ms, _kind(found), offset_id,
        send.receipt.status is SendStatus.OK,
    )  # fmt: skip
    return Record(send.topic, text, _keys(message.msg_id, found))


def _kind(found: Mapping[str, str]) -> int:
    """As Java's client has told it since timers are there (DefaultMQProducerImpl.sendKernelImpl of 5.5.0)."""
    if any(name in found for name in DELAYS):
        return DELAY
    return HALF if found.get(names.TRAN_MSG) == "true" else NORMAL


def consuming(consumption: Consumption, request_id: str) -> Record:
    """A message that a handler gets."""
    message = consumption.message
    text = record(
        "SubBefore", consumption.began_ms, message.properties.get(names.MSG_REGION), consumption.group, request_id,
        message.msg_id, message.reconsume_times, message.properties.get(names.KEYS),
    )  # fmt: skip
    return Record(message.topic, text, _keys(message.msg_id, message.properties))


def consumed(consumption: Consumption, request_id: str, now_ms: int) -> Record:
    """What the handler made of it."""
    message = consumption.message
    code = SUCCESS if consumption.succeeded else FAILED if consumption.error is None else EXCEPTION
    text = record(
        "SubAfter", request_id, message.msg_id, now_ms - consumption.began_ms, consumption.succeeded,
        message.properties.get(names.KEYS), code, now_ms, consumption.group,
    )  # fmt: skip
    return Record(message.topic, text, _keys(message.msg_id, message.properties))


def transaction_end(end: TransactionEnd, now_ms: int) -> Record:
    """What a producer has decided."""
    found = end.properties
    text = record(
        "EndTransaction", now_ms, found.get(names.MSG_REGION) or DEFAULT_REGION, end.group, end.topic, end.msg_id,
        found.get(names.TAGS), found.get(names.KEYS), end.broker, COMMIT, end.msg_id, _STATES[end.state], end.from_check,
    )  # fmt: skip
    return Record(end.topic, text, _keys(end.msg_id, found))


def recall_end(recall: Recall, now_ms: int) -> Record:
    """A message that was taken back."""
    text = record("Recall", now_ms, DEFAULT_REGION, recall.group, recall.topic, recall.msg_id, recall.succeeded)
    return Record(recall.topic, text, (recall.msg_id,))


def _keys(msg_id: str, found: Mapping[str, str]) -> tuple[str, ...]:
    return (msg_id, *found.get(names.KEYS, "").split())


def messages(records: Iterable[Record], topic: str) -> list[Message]:
    """The trace messages for some records: one for each topic they are about, or more where they are too long."""
    by_topic: dict[str, list[Record]] = {}
    for each in records:
        by_topic.setdefault(each.topic, []).append(each)
    return [_message(run, topic) for together in by_topic.values() for run in _runs(together)]


def _message(run: list[Record], topic: str) -> Message:
    keys = dict.fromkeys(key for each in run for key in each.keys)
    return Message(topic, "".join(each.text for each in run).encode(), keys=list(keys))


def _runs(records: Iterable[Record]) -> Iterable[list[Record]]:
    run: list[Record] = []
    size = 0
    for each in records:
        length = len(each.text.encode())
        if run and size + length > MESSAGE_SIZE_MAX:
            yield run
            run, size = [], 0
        run.append(each)
        size += length
    if run:
        yield run


class MessageTrace(Hook):
    """Keeps records and sends them, ten at a time or after 5 s."""

    def __init__(self, producer: Producer, topic: str, unique_ids: UniqueIds, clock: Clock) -> None:
        self._producer = producer
        self.topic = topic
        self._unique_ids = unique_ids
        self._clock = clock
        self._records: deque[Record] = deque()
        self._enough = asyncio.Event()
        self._sending = asyncio.Lock()
        self._tasks = Tasks()
        self.dropped = 0
        """Records that nobody will read."""

    async def start(self) -> None:
        await self._producer.start()
        self._tasks.start(self._run(), "message trace")

    async def close(self) -> None:
        """Send what is left; what can't be sent within `CLOSE_SECONDS` is dropped."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                async with self._sending:  # what is on its way isn't broken off
                    await self._tasks.close()
                await self._flush()
        except TimeoutError:
            self._drop(len(self._records), f"not all could be sent within {CLOSE_SECONDS:g} s")
            self._records.clear()
        finally:
            await self._tasks.close()
            await self._producer.drain(0)

    def sending(self, send: Send) -> Ended | None:
        def ended() -> None:
            receipt = send.receipt
            if receipt is None or send.answer.get(names.TRACE_ON) == "false":
                return
            offset_ids = receipt.offset_id.split(",")
            if len(offset_ids) != len(send.messages):
                offset_ids = [receipt.offset_id] * len(send.messages)
            cost_ms = self._clock.now_ms() - send.began_ms
            for message, offset_id in zip(send.messages, offset_ids, strict=True):
                self._add(sent(send, message, offset_id, cost_ms))

        return ended

    def consuming(self, consumption: Consumption) -> Ended | None:
        if consumption.message.properties.get(names.TRACE_ON) == "false" or consumption.message.topic == self.topic:
            return None
        request_id = self._unique_ids.make()
        self._add(consuming(consumption, request_id))
        return lambda: self._add(consumed(consumption, request_id, self._clock.now_ms()))

    def transaction_ended(self, end: TransactionEnd) -> None:
        self._add(transaction_end(end, self._clock.now_ms()))

    def recalled(self, recall: Recall) -> None:
        self._add(recall_end(recall, self._clock.now_ms()))

    def _add(self, added: Record) -> None:
        if len(self._records) >= RECORDS_MAX:
            self._drop(1, f"{RECORDS_MAX} records wait to be sent")
            return
        self._records.append(added)
        if len(self._records) >= BATCH:
            self._enough.set()

    def _drop(self, count: int, why: object) -> None:
        if not self.dropped:
            log.warning("message trace isn't complete: %s", why)
        self.dropped += count

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._enough.wait()
            except TimeoutError:
                pass  # what is there goes now
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            self._enough.clear()
            while self._records:
                batch = [self._records.popleft() for _ in range(min(BATCH, len(self._records)))]
                try:
                    await asyncio.gather(*map(self._producer.send, messages(batch, self.topic)))
                except RockMQError as error:
                    self._drop(len(batch), error)
                except asyncio.CancelledError:
                    self._drop(len(batch), "the client is closed")
                    raise


def message_trace(instance: Instance, topic: str) -> MessageTrace:
    """The trace of a client, with a producer of its own."""
    options = ProducerOptions(timeout=SEND_TIMEOUT, compression=None, message_size_max=MESSAGE_SIZE_MAX)
    return MessageTrace(Producer(instance, PRODUCER_GROUP, options), topic, instance.unique_ids, instance.clock)
