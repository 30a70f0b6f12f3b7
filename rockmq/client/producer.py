"""Sends messages (DefaultMQProducer.java; clients' spec, section 2)."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType

from rockmq.base.errors import (
    BatchIncomplete,
    ClientClosed,
    ConnectError,
    InvalidMessage,
    ProtocolError,
    RequestTimeout,
    RockMQError,
    TooManyInFlight,
)
from rockmq.client import batching, hooks, queues, timers
from rockmq.client.batching import Part
from rockmq.client.delivery import ConsumedMessage
from rockmq.client.instance import Instance
from rockmq.client.queues import Choice, RoundRobin, Selector
from rockmq.client.sending import WIRE, Sender, Sending, SendReceipt
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import Compression, compress
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.header import encode
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.protocol.message import Message, StoredMessage, encode_batch

log = logging.getLogger(__name__)

MESSAGE_SIZE_MAX = 4 * 1024 * 1024
COMPRESS_FROM = 4096
COMPRESSION_LEVEL = 5
TEMPLATE_QUEUES = 4
REPLY = "reply"
"""The message type of a reply, which brokers push to who asked."""
DELAYS = (names.DELAY, *names.TIMER_WISHES)
"""Properties that put a delivery off."""
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = (WIRE[name] for name in ("sys_flag", "born_timestamp", "flag", "properties"))
_RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = WIRE["reconsume_times"], WIRE["max_reconsume_times"], WIRE["batch"]


class Producer:
    """Sends messages for a producer group; made by `Client.producer`, used with `async with`.

    A send is tried up to `1 + retries` times within its timeout, on another broker where there is one, else again after a
    short pause (0.1 s, 0.2 s, … 1 s). Raises RequestTimeout, ConnectionLost, ConnectError (the message may have been
    stored), ResponseError (a broker refused it), RouteNotFound, InvalidMessage (nothing was sent).
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        timeout: float,
        retries: int,
        compression: Compression | None,
        compress_from: int,
        message_size_max: int,
    ) -> None:
        self.group = group
        self._instance = instance
        self._timeout = timeout
        self._retries = retries
        self._compression = compression
        self._compress_from = compress_from
        self._message_size_max = message_size_max
        self._sender: Sender | None = None
        self._closed = False
        self._topics: dict[str, tuple[dict[str, str], RoundRobin]] = {}

    async def start(self) -> None:
        """Make ready to send; `async with` does it."""
        self._instance.check_open()
        if self._closed:
            raise ClientClosed("this producer is closed")
        if self._sender is None:
            self._sender = Sender(self._instance)
            self._instance.add_producer(self.group)

    async def close(self) -> None:
        """Wait for what is on its way, then leave the group."""
        if self._sender is None or self._closed:
            self._closed = True
            return
        self._closed = True
        try:
            await self._sender.idle()
        finally:
            self._sender.close()
        await self._instance.remove(producer=self.group)

    async def __aenter__(self) -> "Producer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        return self._closed

    # Sending

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send and wait until the broker has stored the message.

        Messages with the same `key` go to the same queue, in the order of their sends if each is awaited; `queue` names
        the queue, `selector` picks one; otherwise queues take turns. While too much is in flight, waits for room.

        With `delay` (seconds) or `deliver_at` (a time with its zone, or seconds since the epoch) consumers get it then, at
        the end of the broker's step of time (`timerPrecisionMs`), never earlier; a time that is past means now. Up to then
        the receipt's `recall_handle` takes it back.
        """
        message = timers.timed(message, delay, deliver_at)
        sending = self._prepare(message, self._choice(message, key, queue, selector), key, timeout)
        return await self._finish(sending)

    def send_nowait(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Future[SendReceipt]":
        """As `send`, but returns the future of the receipt. Raises TooManyInFlight when there is no room."""
        message = timers.timed(message, delay, deliver_at)
        sending = self._prepare(message, self._choice(message, key, queue, selector), key, timeout)
        if not self._instance.in_flight.take_nowait(sending.size):
            raise TooManyInFlight(f"no room to send: {self._instance.in_flight} are in flight")
        sending.sender.start(sending)
        return sending.result

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic together; a receipt for each, in order.

        They go to one queue in one request, as far as they fit into the size bound of a message; a larger batch becomes
        several requests, one after the other, each by its own choice of queue. Raises BatchIncomplete when some but not
        all of those requests succeeded.
        """
        if not messages:
            return []
        first = messages[0]
        choose = self._choice(first, key, queue, selector)
        parts = [self._part(message, first, key) for message in messages]
        receipts: list[SendReceipt] = []
        for run in batching.split(parts, self._message_size_max):
            sending = self._prepare_batch(first, run, choose, timeout)
            try:
                receipts += batching.spread(await self._finish(sending), run)
            except RockMQError as error:
                if not receipts:
                    raise
                raise BatchIncomplete(len(receipts), len(messages), error) from error
        return receipts

    async def send_oneway(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without asking whether it arrived: one attempt, no receipt."""
        instance = self._instance
        sending = self._prepare(message, self._choice(message, key, queue, selector), key, None)
        try:
            async with asyncio.timeout(self._timeout):
                route = await instance.routes.get_for_sending(message.topic)
                if not route.targets:
                    raise ConnectError(f"no broker of topic {message.topic!r} takes messages")
                sending.target = target = sending.choose(route.targets, None)
                if instance.hooks is not None:
                    instance.hooks.sending(sending)
                await instance.remoting.send_oneway(target.address, sending.request(target))
        except TimeoutError:
            raise RequestTimeout(f"a one-way send to {message.topic!r} couldn't leave in time") from None
        finally:
            sending.result.cancel()  # nobody waits for one

    async def request(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a message that asks for a reply, and wait for the reply; `timeout` is for both.

        Raises RequestTimeout when none comes in time, and what `send` raises.
        """
        seconds = self._timeout if timeout is None else timeout
        with self._instance.requests.expect() as (correlation_id, reply):
            asking = {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: self._instance.client_id,
                names.TTL: str(round(seconds * 1000)),
            }
            asked = replace(message, properties=message.properties | asking)
            try:
                async with asyncio.timeout(seconds):
                    await self.send(asked, key=key, queue=queue, selector=selector, timeout=seconds)
                    return await reply
            except TimeoutError:
                raise RequestTimeout(f"no reply to a request in {message.topic!r} within {seconds:.2g} s") from None

    async def reply(self, to: ConsumedMessage | StoredMessage, body: bytes, *, timeout: float | None = None) -> SendReceipt:
        """Answer a message that was sent as a request (MessageUtil.createReplyMessage). Raises InvalidMessage when it
        wasn't, and ResponseError when who asked isn't there any more."""
        asked = to.properties
        missing = [name for name in (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT) if name not in asked]
        if missing:
            raise InvalidMessage(f"{to.msg_id} asks for no reply: it lacks {', '.join(missing)}")
        carried = {name: asked[name] for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL) if name in asked}
        message = Message(topics.reply_topic(asked[names.CLUSTER]), body, properties=carried | {names.MSG_TYPE: REPLY})
        return await self.send(message, timeout=timeout)

    async def recall(self, handle: str, *, timeout: float | None = None) -> str:
        """Take back a message that waits for its time: its id.

        The broker has stored the wish then; it can't tell whether the message was still there. Raises InvalidMessage for
        what is no handle, ResponseError when the broker refuses: its time has come, or the broker has
        `recallMessageEnable=false` (the default).
        """
        self._sender_now()
        seconds = self._timeout if timeout is None else timeout
        with hooks.recalling(self._instance.hooks, self.group, handle):
            return await timers.recall(self._instance, self.group, handle, seconds)

    async def flush(self) -> None:
        """Wait until nothing that was sent before is still on its way."""
        if self._sender is not None:
            await self._sender.idle()

    async def _finish(self, sending: Sending) -> SendReceipt:
        in_flight = self._instance.in_flight
        if not in_flight.take_nowait(sending.size):
            try:
                async with asyncio.timeout_at(sending.deadline):
                    await in_flight.take(sending.size)
            except TimeoutError:
                raise TooManyInFlight(f"no room to send came in time: {in_flight} are in flight") from None
        sending.sender.start(sending)
        return await sending.result

    # Preparing

    def _choice(self, message: Message, key: str | None, queue: MessageQueue | None, selector: Selector | None) -> Choice:
        if key is None and queue is None and selector is None:
            return self._topic(message.topic)[1]
        if (key is not None) + (queue is not None) + (selector is not None) > 1:
            raise InvalidMessage("give one of key, queue and selector, not several")
        if key is not None:
            return queues.hashed(key)
        if queue is not None:
            if queue.topic != message.topic:
                raise InvalidMessage(f"a message to {message.topic!r} can't go to a queue of {queue.topic!r}")
            return queues.fixed(queue)
        assert selector is not None
        return queues.selected(selector, message)

    def _topic(self, topic: str) -> tuple[dict[str, str], RoundRobin]:
        """What all sends to a topic have in common: header fields, and whose turn it is."""
        found = self._topics.get(topic)
        if found is None:
            fault = topics.topic_fault(topic)
            if fault is None and topic in topics.SEND_FORBIDDEN:
                fault = f"{topic} is the broker's own topic"
            if fault is not None:
                raise InvalidMessage(fault)
            header = SendMessageV2(
                producer_group=self.group,
                topic=topic,
                default_topic=topics.TEMPLATE,
                default_topic_queue_nums=TEMPLATE_QUEUES,
                queue_id=0,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=False,
                batch=False,
                bname="",
            )
            found = self._topics[topic] = (encode(header), RoundRobin())
        return found

    def _sender_now(self) -> Sender:
        if self._closed:
            raise ClientClosed("this producer is closed")
        if self._sender is None:
            raise ClientClosed("this producer was not started: use `async with`")
        return self._sender

    def _prepare(
        self, message: Message, choose: Choice, key: str | None, timeout: float | None, *, in_transaction: bool = False
    ) -> Sending:
        sender = self._sender_now()
        body = self._check_body(message.body)
        fields = self._topic(message.topic)[0].copy()
        carried, msg_id = self._properties(message, key)
        if topics.is_retry(message.topic):
            # The broker wants these in the header, not among the properties.
            if (times := carried.pop(names.RECONSUME_TIME, None)) is not None:
                fields[_RECONSUME_TIMES] = times
            if (most := carried.pop(names.MAX_RECONSUME_TIMES, None)) is not None:
                fields[_MAX_RECONSUME_TIMES] = most
        if len(body) >= self._compress_from and self._compression is not None:
            smaller = compress(self._compression, body, COMPRESSION_LEVEL)
            if len(smaller) < len(body):
                body = smaller
                fields[_SYS_FLAG] = str(int(self._compression.flags))
        if in_transaction:
            carried |= {names.TRAN_MSG: "true", names.PGROUP: self.group}
            fields[_SYS_FLAG] = str(int(fields[_SYS_FLAG]) | TransactionState.PREPARED)
        fields[_BORN] = str(self._instance.clock.now_ms())
        if message.flag:
            fields[_FLAG] = str(message.flag)
        fields[_PROPERTIES] = _text(carried).decode()
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if carried.get(names.MSG_TYPE) == REPLY else RequestCode.SEND_MESSAGE_V2
        return Sending(
            sender, code, message.topic, fields, body, msg_id, choose,
            self._timeout if timeout is None else timeout, 0 if in_transaction else self._retries,
        )  # fmt: skip

    def _part(self, message: Message, first: Message, key: str | None) -> Part:
        """A message as a part of the batch that `first` begins."""
        if message.topic != first.topic:
            raise InvalidMessage(f"a batch goes to one topic, not to {first.topic!r} and {message.topic!r}")
        if topics.is_retry(message.topic):
            raise InvalidMessage("a batch can't go to a retry topic")
        carried, msg_id = self._properties(message, key)
        for name in DELAYS:
            if name in carried:
                raise InvalidMessage(f"a message in a batch can't have the property {name}")
        if self._instance.hooks is not None:
            self._instance.hooks.batching(message.topic, carried)
        if carried.get(names.WAIT) != first.properties.get(names.WAIT):
            raise InvalidMessage(f"messages of a batch must agree on the property {names.WAIT}")
        return Part(msg_id, message.flag, self._check_body(message.body), _text(carried))

    def _prepare_batch(self, first: Message, run: list[Part], choose: Choice, timeout: float | None) -> Sending:
        sender = self._sender_now()
        fields = self._topic(first.topic)[0].copy()
        fields[_BATCH] = "true"
        fields[_BORN] = str(self._instance.clock.now_ms())
        if names.WAIT in first.properties:
            fields[_PROPERTIES] = _text({names.WAIT: first.properties[names.WAIT]}).decode()
        body = encode_batch((part.flag, part.body, part.properties) for part in run)
        return Sending(
            sender, RequestCode.SEND_BATCH_MESSAGE, first.topic, fields, body, ",".join(part.msg_id for part in run),
            choose, self._timeout if timeout is None else timeout, self._retries,
        )  # fmt: skip

    def _properties(self, message: Message, key: str | None) -> tuple[dict[str, str], str]:
        """What travels with the message, and its unique id, which is among it."""
        if not 0 <= message.delay_level < 2**31:
            raise InvalidMessage(f"delay_level is {message.delay_level}: expected 0, for no delay, or more")
        carried = message.all_properties()
        if key is not None:
            carried[names.SHARDING_KEY] = key
        msg_id = carried.get(names.UNIQ_KEY)
        if msg_id is None:
            msg_id = carried[names.UNIQ_KEY] = self._instance.unique_ids.make()
        if carried.get(names.TRAN_MSG) == "true":
            raise InvalidMessage("TRAN_MSG is for transactions, which TransactionProducer.send_in_transaction sends")
        return carried, msg_id

    def _check_body(self, body: bytes) -> bytes:
        if not isinstance(body, bytes):
            raise InvalidMessage(f"the body must be bytes, not {type(body).__name__}")
        if not body:
            raise InvalidMessage("the body is empty")
        if len(body) > self._message_size_max:
            raise InvalidMessage(f"the body has {len(body)} bytes, the bound is {self._message_size_max}")
        return body


def _text(carried: dict[str, str]) -> bytes:
    try:
        return names.encode(carried)
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
