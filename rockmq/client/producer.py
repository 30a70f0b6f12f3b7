"""Sends messages (DefaultMQProducer.java; clients' spec, section 2)."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType

from msgspec.structs import replace

from rockmq.base.errors import (
    BatchIncomplete,
    ClientClosed,
    ConnectError,
    InvalidMessage,
    RequestTimeout,
    RockMQError,
    TooManyInFlight,
)
from rockmq.client import batching, hooks, queues, timers
from rockmq.client.accumulator import Accumulator, Held, Kind
from rockmq.client.batching import PART_OVERHEAD, Part
from rockmq.client.composing import DELAYS, REPLY, Composer, Topic
from rockmq.client.delivery import ConsumedMessage
from rockmq.client.durability import Promises
from rockmq.client.faults import Faults
from rockmq.client.instance import Instance
from rockmq.client.options import ONCE, ProducerOptions
from rockmq.client.queues import Choice, Selector
from rockmq.client.sending import Sender, Sending, SendReceipt
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message, StoredMessage

log = logging.getLogger(__name__)

BARE_OVERHEAD = PART_OVERHEAD + len(f"{names.UNIQ_KEY}{names.NAME_END}{names.PAIR_END}")
"""Bytes a message costs in a batch besides its body and its unique id, its only property."""
NOT_IN_BATCHES = frozenset({*DELAYS, names.PGROUP, names.MSG_TYPE, names.INNER_MULTI_DISPATCH})
"""Properties of messages that don't wait for others."""


class Producer:
    """Sends messages for a producer group; made by `Client.producer`, used with `async with`.

    A send is tried up to `1 + retries` times within its timeout, on another broker where there is one, else again after a
    short pause (0.1 s, 0.2 s, … 1 s). Raises RequestTimeout, ConnectionLost, ConnectError (the message may have been
    stored), ResponseError (a broker refused it), RouteNotFound, InvalidMessage (nothing was sent).

    With a `linger` messages travel in batches, except those with a delay, a time or a `timeout` of their own, replies,
    messages to retry topics or to light queues, and bodies that would be compressed or fill a batch alone.
    """

    def __init__(self, instance: Instance, group: str, options: ProducerOptions) -> None:
        self.group = group
        self._instance = instance
        self._options = options
        self._faults = Faults(instance) if options.latency_fault_tolerance else None
        self._sender: Sender | None = None
        self._accumulator: Accumulator | None = None
        self._closed = False
        self._composer = Composer(instance, group, options, self._faults)

    async def start(self) -> None:
        """Make ready to send; `async with` does it."""
        self._instance.check_open()
        if self._closed:
            raise ClientClosed("this producer is closed")
        if self._sender is not None:
            return
        options = self._options
        promises = Promises(self._instance, options.durability) if options.durability is not None else None
        self._sender = Sender(self._instance, self._faults, promises)
        if options.linger is not None:
            instance = self._instance
            overhead = BARE_OVERHEAD + instance.unique_ids.length if instance.hooks is None else None
            self._accumulator = Accumulator(options, self._make_batch, instance, bare_overhead=overhead)
        if self._faults is not None:
            self._faults.start()
        self._instance.add_producer(self.group)

    async def close(self) -> None:
        """Wait for what is on its way, then leave the group."""
        await self.drain()

    async def drain(self, timeout: float | None = None) -> None:
        """Take no more messages, wait for what is on its way, then leave the group.

        Every send ends by its deadline; those that haven't ended `timeout` seconds from now fail with ClientClosed, and may
        have been stored.
        """
        if self._sender is None or self._closed:
            self._closed = True
            return
        self._closed = True
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except TimeoutError:
            log.warning("%d sends of group %s hadn't ended after %s s", self._sender.active, self.group, timeout)
        finally:
            if self._accumulator is not None:
                self._accumulator.flush()
            self._sender.close()
            # Also when who closes has been cancelled: else brokers would go on to hear of the group.
            if self._faults is not None:
                await self._faults.close()
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
        if delay is not None or deliver_at is not None:
            message = timers.timed(message, delay, deliver_at)
        elif self._accumulator is not None and key is None and queue is None and selector is None and timeout is None:
            joined = self._accumulator.join(message)
            if joined is not None:
                return await joined
        return await self._finish(self._prepared(message, key, queue, selector, timeout))

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
        if delay is not None or deliver_at is not None:
            message = timers.timed(message, delay, deliver_at)
        elif self._accumulator is not None and key is None and queue is None and selector is None and timeout is None:
            joined = self._accumulator.join(message)
            if joined is not None:
                return joined
        sending = self._prepared(message, key, queue, selector, timeout)
        if not self._instance.in_flight.take_nowait(sending.size):
            self._make_room()
            raise TooManyInFlight(f"no room to send: {self._instance.in_flight} are in flight")
        sending.start()
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
        sender = self._sender_now()
        first = messages[0]
        choose = self._choice(first, key, queue, selector)
        kind = Kind(first.topic, None, first.properties.get(names.WAIT), None)
        parts = [self._composer.part_of(kind, message, key) for message in messages]
        receipts: list[SendReceipt] = []
        for run in batching.split(parts, self._options.message_size_max):
            deadline = self._deadline(sender, timeout)
            sending, msg_ids = self._composer.batch(sender, kind, run, choose, deadline, self._options.retries)
            try:
                receipts += batching.spread(await self._finish(sending), msg_ids)
            except RockMQError as error:
                if not receipts:
                    raise
                raise BatchIncomplete(len(receipts), len(messages), error) from error
        return receipts

    async def send_encoded(
        self, body: bytes, queue: MessageQueue, *, count: int = 1, timeout: float | None = None
    ) -> SendReceipt:
        """Send messages that are encoded as a batch already (MessageDecoder.encodeMessages) to a queue, in one attempt.

        The receipt is that of the whole batch: its first offset, and no `msg_id`. Whoever encoded it has checked it, too.
        `count` is how many messages `Client.stats` takes it for.
        """
        kind = self._composer.topic(queue.topic).kind
        choose = queues.fixed(queue)
        sender = self._sender_now()
        return await self._finish(
            self._composer.encoded(sender, kind, body, "", count, choose, self._deadline(sender, timeout), ONCE)
        )

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
        choose = self._choice(message, key, queue, selector)
        sender = self._sender_now()
        topic = self._composer.topic(message.topic)
        sending = self._composer.sending(sender, topic, message, choose, key, self._deadline(sender, None), ONCE)
        try:
            async with asyncio.timeout(self._options.timeout):
                route = await instance.routes.get_for_sending(message.topic)
                try:
                    sending.target = target = queues.target_of(route, sending.choose)
                except ConnectError:
                    instance.routes.refresh_soon(message.topic)
                    raise
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

        Raises RequestTimeout when none comes in time, ProtocolError when it can't be decompressed, and what `send` raises.
        """
        seconds = self._options.timeout if timeout is None else timeout
        instance = self._instance
        with instance.requests.expect() as (correlation_id, reply):
            asking = {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: instance.client_id,
                names.TTL: str(round(seconds * 1000)),
            }
            asked = replace(message, properties=message.properties | asking)
            try:
                async with asyncio.timeout(seconds):
                    if instance.routes.for_sending(message.topic) is None:
                        # Each of its brokers may be the one that brings the reply, and must know this client.
                        await instance.routes.get_for_sending(message.topic)
                        await instance.heartbeat()
                    await self.send(asked, key=key, queue=queue, selector=selector, timeout=seconds)
                    return await reply
            except TimeoutError:
                if reply.done() and not reply.cancelled():
                    return reply.result()  # the loop stood still, and found reply and timeout in the same moment
                raise RequestTimeout(f"no reply to a request in {message.topic!r} within {seconds:.2g} s") from None

    async def reply(
        self, to: ConsumedMessage[object] | StoredMessage, body: bytes, *, timeout: float | None = None
    ) -> SendReceipt:
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
        seconds = self._options.timeout if timeout is None else timeout
        with hooks.recalling(self._instance.hooks, self.group, handle):
            return await timers.recall(self._instance, self.group, handle, seconds)

    async def flush(self) -> None:
        """Send what waits for others, and wait until nothing is on its way any more."""
        if self._sender is None:
            return
        while True:
            if self._accumulator is not None:
                self._accumulator.flush()
            await self._sender.idle()
            # What has waited for room may wait for others now.
            if self._accumulator is None or self._accumulator.empty:
                return

    def _make_room(self) -> None:
        """Somebody waits for room: what takes it and waits for others goes at the end of this turn."""
        if self._accumulator is not None:
            self._accumulator.loop.call_soon(self._accumulator.flush)

    async def _finish(self, sending: Sending | Held) -> SendReceipt:
        in_flight = self._instance.in_flight
        if not in_flight.take_nowait(sending.size):
            self._make_room()
            await self._sender_now().room_for(sending.size, sending.deadline)
            if in_flight.waited_for:
                self._make_room()
        sending.start()
        return await sending.result

    # Preparing

    def _choice(self, message: Message, key: str | None, queue: MessageQueue | None, selector: Selector | None) -> Choice:
        if key is None and queue is None and selector is None:
            return self._composer.topic(message.topic).turns
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

    def _sender_now(self) -> Sender:
        if self._instance.forked:
            self._instance.check_open()
        if self._closed:
            raise ClientClosed("this producer is closed")
        if self._sender is None:
            raise ClientClosed("this producer was not started: use `async with`")
        return self._sender

    def _deadline(self, sender: Sender, timeout: float | None) -> float:
        return sender.loop.time() + (self._options.timeout if timeout is None else timeout)

    def _prepared(
        self, message: Message, key: str | None, queue: MessageQueue | None, selector: Selector | None, timeout: float | None
    ) -> Sending | Held:
        sender = self._sender_now()
        topic = self._composer.topic(message.topic)
        choose: Choice = topic.turns
        if key is not None or queue is not None or selector is not None:
            choose = self._choice(message, key, queue, selector)
        if self._accumulator is not None and timeout is None:
            held = self._held(self._accumulator, topic, message, choose, key)
            if held is not None:
                return held
        deadline = self._deadline(sender, timeout)
        return self._composer.sending(sender, topic, message, choose, key, deadline, self._options.retries)

    def _held(
        self, accumulator: Accumulator, topic: Topic, message: Message, choose: Choice, key: str | None
    ) -> Held | None:
        """The message as one that waits for others, None if it goes by itself; what is wrong with it is found out then."""
        body, carried = message.body, message.properties
        if (
            topic.is_retry
            or message.delay_level
            or type(body) is not bytes
            or not 0 < len(body) < accumulator.body_max
            or type(message.flag) is not int
            or not -(2**31) <= message.flag < 2**31
            or (carried and not NOT_IN_BATCHES.isdisjoint(carried))
        ):
            return None
        kind = topic.kind
        deadline = accumulator.loop.time() + self._options.timeout
        if accumulator.knows_bare and choose is topic.turns and not (carried or message.tag or message.keys or message.flag):
            size = accumulator.bare_overhead + len(body)
            if size > accumulator.batch_bytes:
                return None
            return Held("", 0, body, b"", accumulator, kind, deadline, size, accumulator.loop.create_future(), True)
        if carried or message.tag:
            kind = Kind(message.topic, None, carried.get(names.WAIT), message.tag or carried.get(names.TAGS))
        if choose is not topic.turns:
            route = self._instance.routes.for_sending(message.topic)
            if route is None or not route.targets:
                return None
            try:
                kind = kind._replace(queue=choose(route.targets, None).queue)
            except Exception:  # the user's selector, or a queue that isn't there  # noqa: BLE001
                return None
        text, msg_id = self._composer.text_in_batch(message, key)
        properties = text.encode()
        size = PART_OVERHEAD + len(body) + len(properties)
        if size > accumulator.batch_bytes:
            return None
        result = accumulator.loop.create_future()
        return Held(msg_id, message.flag, body, properties, accumulator, kind, deadline, size, result)

    def _make_batch(self, kind: Kind, messages: Sequence[Part | bytes], deadline: float) -> tuple[Sending, list[str]]:
        """What the accumulator sends."""
        assert self._sender is not None
        choose = queues.fixed(kind.queue) if kind.queue is not None else self._composer.topic(kind.topic).turns
        return self._composer.batch(self._sender, kind, messages, choose, deadline, self._options.retries)
