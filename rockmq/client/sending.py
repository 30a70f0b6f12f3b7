"""A send from its first attempt to its receipt (DefaultMQProducerImpl.sendDefaultImpl; clients' spec, 2.3).

    start ─> attempt ─> [route asked for] ─> [connecting] ─> written ─> answered ─> receipt
                ^                                                           │
                └──────── another broker, or after a pause the same <── failed ──> error

One deadline covers all attempts. An attempt may be repeated after a remoting error, or a refusal with a code that another
broker, or the same one a moment later, may not give. When the last attempt has found no connection, or a broker that has
given the queue away, and there were to be several, it goes on until the deadline: nothing was stored, and where the queue is
now the route tells soon. All of it runs in callbacks: no task, no timer and no future of its own per message; the connection
hands the answer to the sending itself.
A caller that goes away forgets its own send only; the room it took is given back when the answer comes or the time is over.
"""

import asyncio
import logging
from enum import IntEnum
from functools import partial

import msgspec

from rockmq.base.errors import (
    ClientClosed,
    ConnectError,
    ConnectionLost,
    RemotingError,
    RequestTimeout,
    ResponseError,
    RockMQError,
    TooManyInFlight,
)
from rockmq.client.channel import Channel
from rockmq.client.durability import Durability, Promises, suffices
from rockmq.client.faults import Faults
from rockmq.client.instance import Instance
from rockmq.client.options import Retries
from rockmq.client.queues import Choice, RoundRobin, target_of
from rockmq.client.routes import Target, TopicRoute
from rockmq.protocol import properties as names
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.header import decode, keys
from rockmq.protocol.headers.send import SendMessageV2, SendResponse
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)

ROUTE_IS_STALE = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.NOT_LEADER_FOR_QUEUE})
PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
WIRE = dict(keys(SendMessageV2))
"""Attributes of the send header and the letters they travel under."""

_QUEUE_ID = WIRE["queue_id"]
_BROKER_NAME = WIRE["bname"]
_PROPERTIES = WIRE["properties"]


class SendStatus(IntEnum):
    """How far the broker got; by whatever status, the message is stored."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    SendStatus.OK: "stored as durably as the broker is configured to",
    SendStatus.FLUSH_DISK_TIMEOUT: "the disk didn't confirm in time",
    SendStatus.SLAVE_NOT_AVAILABLE: "no replica was there",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "no replica confirmed in time",
}
_STATUSES = {int(status): status for status in SendStatus}
_NO_WAIT = f"{names.WAIT}{names.NAME_END}false{names.PAIR_END}"
"""In the properties of a message whose sender doesn't wait for disk or replicas."""


class SendReceipt(msgspec.Struct, frozen=True, gc=False):
    """What the broker said about a message it stored.

    `msg_id` is the id the client gave it, `offset_id` the one that tells where the broker put it. `recall_handle` is what
    `Producer.recall` takes the message back by; only one that waits for its time has it. `durability` is where the message
    is at least; "unknown" unless the producer was made with a durability, as only the broker's configuration tells.
    `queue_offset` is -1 while a static queue is being moved and its broker doesn't know it yet.
    """

    msg_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None
    durability: Durability = "unknown"


def reached(promise: Durability, status: SendStatus, *, waited: bool) -> Durability:
    """Where a message is at least, of which a broker with that promise told that status. A replica's failure hides whether
    the disk has confirmed."""
    if status is SendStatus.OK and (waited or promise == "unknown"):
        return promise
    if status is SendStatus.FLUSH_DISK_TIMEOUT and promise == "replicated+disk":
        return "replicated"
    return "memory"


class Sending:
    """One message, or one batch, on its way. `size` is what it counts against the bound on bytes in flight, `count` what it
    counts against that on messages."""

    __slots__ = (
        "answer", "attempts_left", "avoid", "begun", "body", "channel", "choose", "code", "count", "deadline", "failures",
        "fields", "messages", "msg_id", "opaque", "result", "retries", "sender", "size", "started", "stored", "target",
        "topic", "until",
    )  # fmt: skip

    def __init__(
        self,
        sender: "Sender",
        code: int,
        topic: str,
        fields: dict[str, str],
        body: bytes,
        msg_id: str,
        choose: Choice,
        deadline: float,
        retries: Retries,
        *,
        messages: int = 1,
    ) -> None:
        self.sender = sender
        self.code = code
        self.topic = topic
        self.fields = fields
        self.body = body
        self.msg_id = msg_id
        self.messages = messages
        """How many are in it, for the statistics."""
        self.choose = choose
        self.deadline = deadline
        self.until = deadline
        """When the attempt under way ends."""
        self.retries = retries
        self.attempts_left = 1 + retries.times
        self.size = len(body) + len(fields[_PROPERTIES])
        self.count = 1
        self.result: asyncio.Future[SendReceipt] = sender.loop.create_future()
        self.failures: list[str] = []
        self.avoid: str | None = None
        self.stored: SendReceipt | None = None
        """What an attempt came to that is repeated although the message is stored."""
        self.started = 0.0
        self.target: Target
        self.answer: dict[str, str] = {}
        self.channel: Channel | None = None
        """Where an answer is waited for."""
        self.opaque = 0
        self.begun = 0.0

    def start(self) -> None:
        """Begin; room in flight was taken before."""
        self.sender.start(self)

    @property
    def broker(self) -> str:
        """Address of the broker that was asked last."""
        target = getattr(self, "target", None)
        return target.address if target is not None else ""

    def attempt(self) -> None:
        """Choose a queue and write the request, now or when route and connection are there."""
        self.attempts_left -= 1
        route = self.sender.instance.routes.for_sending(self.topic)
        if route is None:
            self.sender.instance.routes.lookup_for_sending(self.topic).add_done_callback(self._routed)
        else:
            self._choose(route)

    def _routed(self, route: "asyncio.Future[TopicRoute]") -> None:
        if self._is_over():
            return
        if route.cancelled():
            self.fail(ClientClosed("this client is closed"))
        elif (error := route.exception()) is not None:
            self._failed(error, None)
        else:
            self._choose(route.result())

    def _choose(self, route: TopicRoute) -> None:
        try:
            self.target = target = target_of(route, self.choose, self.avoid)
        except Exception as error:  # a selector is the user's code; its error is the send's  # noqa: BLE001
            if isinstance(error, ConnectError):
                self.sender.instance.routes.refresh_soon(self.topic)
            self._failed(error, None)
            return
        channel = self.sender.instance.channel(target.address)
        if channel is not None:
            self._write(channel)
        else:
            self.sender.instance.remoting.attempt(target.address).add_done_callback(self._connected)

    def _connected(self, attempt: "asyncio.Future[Connection]") -> None:
        if self._is_over():
            return
        if attempt.cancelled():
            self.fail(ClientClosed("this client is closed"))
        elif (error := attempt.exception()) is not None:
            self._failed(error, self.target)
        elif (channel := self.sender.instance.channel(self.target.address)) is not None:
            self._write(channel)
        else:
            self._failed(ConnectionLost(f"the connection to {self.target.address} was lost at once"), self.target)

    def request(self, target: Target) -> Command:
        fields = self.fields
        fields[_QUEUE_ID] = target.queue_id
        fields[_BROKER_NAME] = target.broker_name
        return Command(self.code, 0, fields=fields, body=self.body, serializer=self.sender.instance.serializer)

    def _write(self, channel: Channel) -> None:
        promises = self.sender.promises
        if promises is not None:
            if not promises.is_known(channel):
                promises.ask(self.target.address, channel).add_done_callback(partial(self._promised, channel))
                return
            if (shortfall := promises.shortfall(self.target.address, channel)) is not None:
                self._failed(shortfall, None)
                return
        request = self.request(self.target)
        try:
            channel.send(request, self)
        except ConnectionLost as error:
            self._failed(error, self.target)
            return
        self.channel = channel
        self.opaque = request.opaque
        sender = self.sender
        if sender.faults is not None:
            self.begun = sender.instance.clock.monotonic()
        if self.retries.timeout_per_attempt is not None and self.attempts_left > 0:
            self.until = min(self.deadline, sender.loop.time() + self.retries.timeout_per_attempt)
            sender.watch(self)

    def _promised(self, channel: Channel, asked: "asyncio.Future[RemotingError | None]") -> None:
        if self._is_over():
            return
        if asked.cancelled():
            self.fail(ClientClosed("this client is closed"))
        elif (error := asked.result()) is not None:
            self._failed(error, self.target)
        else:
            self._write(channel)

    # What the connection tells: a sending is to it what the future of an answer would be.

    def done(self) -> bool:
        return self.channel is None

    def set_exception(self, error: BaseException) -> None:
        self.channel = None
        if not self._is_over():
            self._failed(error, self.target)

    def set_result(self, answer: Command) -> None:
        channel, self.channel = self.channel, None
        if self._is_over():
            return
        self.answer = answer.fields
        status = _STATUSES.get(answer.code)
        if status is None:
            retriable = answer.code in self.retries.codes
            self._failed(ResponseError(answer.code, answer.remark, self.target.address, retriable=retriable), self.target)
            return
        try:
            header = decode(SendResponse, answer.fields)
        except RockMQError as fault:
            self.fail(fault)
            return
        queue = self.target.queue
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        receipt = SendReceipt(self.msg_id, header.msg_id, queue, header.queue_offset, status, header.recall_handle)
        sender = self.sender
        if sender.promises is not None:
            durability = reached(sender.promises.of(channel), status, waited=_NO_WAIT not in self.fields[_PROPERTIES])
            receipt = msgspec.structs.replace(receipt, durability=durability)
        if sender.faults is not None:
            sender.faults.answered(self.target, sender.instance.clock.monotonic() - self.begun)
        if status is not SendStatus.OK and self._is_to_be_stored_again():
            self.stored = receipt
            self.until = self.deadline
            self.avoid = self.target.broker_name
            self.attempt()
            return
        self._stored(receipt)

    def _stored(self, receipt: SendReceipt) -> None:
        """The end, if the message isn't stored less durably than it is to be."""
        promises = self.sender.promises
        if promises is None or suffices(receipt.durability, promises.wanted):
            self.result.set_result(receipt)
        else:
            remark = f"the message is stored, but its durability is {receipt.durability!r}: {receipt.status.meaning}"
            self.result.set_exception(ResponseError(receipt.status, remark, self.target.address, retriable=True))
        self.sender.count(self, succeeded=True)
        self.sender.ended(self)

    def _is_to_be_stored_again(self) -> bool:
        return (
            self.retries.another_broker_when_not_store_ok
            and self.attempts_left > 0
            and not self.sender.closed
            and self._has_other_broker()
        )

    def _failed(self, error: BaseException, at: Target | None) -> None:
        """An attempt failed: try again if that can help and attempts and time are left."""
        error = of_its_own(error)
        self.until = self.deadline
        instance = self.sender.instance
        self.failures.append(str(error))
        again = isinstance(error, RemotingError) or (isinstance(error, ResponseError) and error.retriable)
        if at is not None and again:
            code = error.code if isinstance(error, ResponseError) else None
            if code is None or code in ROUTE_IS_STALE:
                instance.routes.refresh_soon(self.topic)
            if self.sender.faults is not None:
                self.sender.faults.failed(at)
            if code == ResponseCode.GO_AWAY:
                instance.remoting.retire(at.address)
        is_spent = self.attempts_left <= 0
        if not again or self.sender.closed or (is_spent and not (_is_elsewhere(error) and self.retries.times)):
            self.fail(error)
            return
        self.avoid = at.broker_name if at is not None else None
        if at is not None and not is_spent and self._has_other_broker():
            self.attempt()
            return
        pause = min(PAUSE_SECONDS * 2 ** (len(self.failures) - 1), PAUSE_SECONDS_MAX)
        if self.sender.loop.time() + pause >= self.deadline:
            self.fail(error)
        else:
            self.sender.loop.call_later(pause, self._again)

    def _has_other_broker(self) -> bool:
        route = self.sender.instance.routes.for_sending(self.topic)
        return isinstance(self.choose, RoundRobin) and route is not None and len(route.masters()) > 1

    def _again(self) -> None:
        if not self._is_over():
            self.attempt()

    def _is_over(self) -> bool:
        """Whether nobody waits for the result any more; gives back the room then."""
        if self.result.done():
            self.sender.ended(self)
            return True
        return False

    def expire(self, now: float) -> None:
        """The time of the attempt, or of the whole send, has passed."""
        where = f" from {self.target.address}" if self.channel is not None else ""
        error = RequestTimeout(f"no answer{where} to a send to {self.topic!r} in time; it may have been stored")
        if now >= self.deadline:
            self.fail(error)
        else:
            self._forget()
            if not self._is_over():
                self._failed(error, self.target)

    def fail(self, error: BaseException) -> None:
        self._forget()
        if not self.result.done():
            if self.stored is not None:
                self._stored(self.stored)
            else:
                if len(self.failures) > 1:
                    error.add_note(f"{len(self.failures)} attempts: " + "; ".join(dict.fromkeys(self.failures)))
                self.result.set_exception(error)
                self.sender.count(self, succeeded=False)
        self.sender.ended(self)

    def _forget(self) -> None:
        if self.channel is not None:
            self.channel.forget(self.opaque)
            self.channel = None


def _is_elsewhere(error: BaseException) -> bool:
    """Whether it says nothing but that the queue isn't where the route says."""
    return isinstance(error, ConnectError) or getattr(error, "code", None) == ResponseCode.NOT_LEADER_FOR_QUEUE


def of_its_own(error: BaseException) -> BaseException:
    """The error once more: many sends wait for one route, connection or batch, and each raises its own."""
    if isinstance(error, ResponseError):
        return ResponseError(error.code, error.remark, error.address, retriable=error.retriable)
    return type(error)(*error.args) if isinstance(error, RockMQError) else error


class Sender:
    """The sends of one producer: starts them, watches their deadlines, knows when all are done."""

    def __init__(self, instance: Instance, faults: Faults | None = None, promises: Promises | None = None) -> None:
        self.instance = instance
        self.faults = faults
        self.promises = promises
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._active: set[Sending] = set()
        self._to_come = 0
        """Sends that wait for room."""
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = float("inf")
        self._idle: list[asyncio.Future[None]] = []

    @property
    def active(self) -> int:
        return len(self._active)

    def start(self, sending: Sending) -> None:
        """See `Sending.start`."""
        if self.instance.hooks is not None:
            self.instance.hooks.sending(sending)
        self._active.add(sending)
        sending.started = self.loop.time()
        if sending.deadline < self._sweep_at:
            self._sweep_by(sending.deadline)
        sending.attempt()

    def count(self, sending: Sending, *, succeeded: bool) -> None:
        """Note a result that is there."""
        messages = sending.messages
        work = self.instance.stats.sent(sending.topic)
        seconds = self.loop.time() - sending.started
        work.ended(seconds, done=messages if succeeded else 0, failed=0 if succeeded else messages)

    async def room_for(self, size: int, deadline: float) -> None:
        """Wait for room in flight and take it. Raises TooManyInFlight, ClientClosed."""
        in_flight = self.instance.in_flight
        self._to_come += 1
        try:
            async with asyncio.timeout_at(deadline):
                await in_flight.take(size)
        except TimeoutError:
            raise TooManyInFlight(f"no room to send came in time: {in_flight} are in flight") from None
        finally:
            self._to_come -= 1
            self._wake_if_idle()
        if self.closed:
            in_flight.give_back(size)
            raise ClientClosed("the producer was closed while the message waited for room; it wasn't sent")

    def watch(self, sending: Sending) -> None:
        """Its attempt ends before its deadline."""
        if sending.until < self._sweep_at:
            self._sweep_by(sending.until)

    def ended(self, sending: Sending) -> None:
        """Whatever came of it, it takes no more room."""
        if sending not in self._active:
            return
        self._active.remove(sending)
        self.instance.in_flight.give_back(sending.size, sending.count)
        if self._idle:
            self._wake_if_idle()

    async def idle(self) -> None:
        """Wait until nothing is on its way; every send ends by its deadline."""
        while self._active or self._to_come:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._idle.append(waiter)
            await waiter

    def _wake_if_idle(self) -> None:
        if not self._active and not self._to_come:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    def close(self) -> None:
        """Fail what is still on its way."""
        self.closed = True
        for sending in list(self._active):
            sending.fail(ClientClosed("the producer was closed before the answer came; the message may have been stored"))
        if self._sweep is not None:
            self._sweep.cancel()

    # One timer for all deadlines: almost all sends are done long before theirs.

    def _sweep_by(self, when: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = when
        self._sweep = self.loop.call_at(when, self._expire)

    def _expire(self) -> None:
        now = self.loop.time()
        self._sweep, self._sweep_at = None, float("inf")
        expired = [sending for sending in self._active if sending.until <= now]
        for sending in sorted(expired, key=lambda each: each.until):
            sending.expire(now)
        if expired:
            self.instance.heartbeat_soon()  # which finds out whether the connection is dead
        if self._active:
            self._sweep_by(min(sending.until for sending in self._active))
