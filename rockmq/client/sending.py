"""A send from its first attempt to its receipt (DefaultMQProducerImpl.sendDefaultImpl; clients' spec, 2.3).

    start ─> attempt ─> [route asked for] ─> [connecting] ─> written ─> answered ─> receipt
                ^                                                           │
                └──────── another broker, or after a pause the same <── failed ──> error

One deadline covers all attempts. An attempt may be repeated after a remoting error, or a refusal with a code that another
broker, or the same one a moment later, may not give. All of it runs in callbacks: no task and no timer per message.
A caller that goes away forgets its own send only; the room it took is given back when the answer comes or the time is over.
"""

import asyncio
import logging
from enum import IntEnum

import msgspec

from rockmq.base.errors import (
    ClientClosed,
    ConnectError,
    ConnectionLost,
    RemotingError,
    RequestTimeout,
    ResponseError,
    RockMQError,
)
from rockmq.client.channel import Channel
from rockmq.client.instance import Instance
from rockmq.client.queues import Choice, RoundRobin
from rockmq.client.routes import Target, TopicRoute
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.header import decode, keys
from rockmq.protocol.headers.send import SendMessageV2, SendResponse

log = logging.getLogger(__name__)

RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
ROUTE_IS_STALE = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION})
PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 1.0
WIRE = dict(keys(SendMessageV2))
"""Attributes of the send header and the letters they travel under."""

_QUEUE_ID = WIRE["queue_id"]
_BROKER_NAME = WIRE["bname"]


class SendStatus(IntEnum):
    """How far the broker got; by whatever status, the message is stored."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


_DURABILITY = {
    SendStatus.OK: "stored as durably as the broker is configured to",
    SendStatus.FLUSH_DISK_TIMEOUT: "in the broker's memory: the disk didn't confirm in time",
    SendStatus.SLAVE_NOT_AVAILABLE: "on the master only: no replica was there",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "on the master only: no replica confirmed in time",
}
_STATUSES = {int(status): status for status in SendStatus}


class SendReceipt(msgspec.Struct, frozen=True):
    """What the broker said about a message it stored.

    `msg_id` is the id the client gave it, `offset_id` the one that tells where the broker put it. `recall_handle` is what
    `Producer.recall` takes the message back by; only one that waits for its time has it.
    """

    msg_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus = SendStatus.OK
    recall_handle: str | None = None

    @property
    def durability(self) -> str:
        """What the status says about the message surviving a failure."""
        return _DURABILITY[self.status]


class Sending:
    """One message, or one batch, on its way. `size` is what it counts against the bound on bytes in flight."""

    __slots__ = (
        "answer", "attempts_left", "avoid", "body", "channel", "choose", "code", "deadline", "failures", "fields",
        "msg_id", "opaque", "pending", "result", "sender", "size", "started", "target", "topic",
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
        timeout: float,
        retries: int,
    ) -> None:
        self.sender = sender
        self.code = code
        self.topic = topic
        self.fields = fields
        self.body = body
        self.msg_id = msg_id
        self.choose = choose
        self.deadline = sender.loop.time() + timeout
        self.attempts_left = 1 + retries
        self.size = len(body) + len(fields[WIRE["properties"]])
        self.result: asyncio.Future[SendReceipt] = sender.loop.create_future()
        self.failures: list[str] = []
        self.avoid: str | None = None
        self.started = 0.0
        self.target: Target
        self.answer: dict[str, str] = {}
        self.channel: Channel | None = None
        self.pending: asyncio.Future[Command] | None = None
        self.opaque = 0

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
            if not route.targets:
                raise ConnectError(f"no broker of topic {self.topic!r} takes messages: none is writable and has a master")
            self.target = target = self.choose(route.targets, self.avoid)
        except Exception as error:  # a selector is the user's code; its error is the send's  # noqa: BLE001
            self._failed(error, None)
            return
        channel = self.sender.instance.channel(target.address)
        if channel is not None:
            self._write(channel)
        else:
            self.sender.instance.connect(target.address).add_done_callback(self._connected)

    def _connected(self, attempt: "asyncio.Future[Channel]") -> None:
        if self._is_over():
            return
        if attempt.cancelled():
            self.fail(ClientClosed("this client is closed"))
        elif (error := attempt.exception()) is not None:
            self._failed(error, self.target)
        else:
            self._write(attempt.result())

    def request(self, target: Target) -> Command:
        fields = self.fields
        fields[_QUEUE_ID] = target.queue_id
        fields[_BROKER_NAME] = target.queue.broker_name
        return Command(self.code, 0, fields=fields, body=self.body, serializer=self.sender.instance.serializer)

    def _write(self, channel: Channel) -> None:
        request = self.request(self.target)
        try:
            pending = channel.start(request)
        except ConnectionLost as error:
            self._failed(error, self.target)
            return
        self.pending = pending
        self.channel = channel
        self.opaque = request.opaque
        pending.add_done_callback(self._answered)

    def _answered(self, pending: "asyncio.Future[Command]") -> None:
        if self.pending is not pending:
            return  # given up meanwhile
        self.pending = None
        if self.result.done():
            self.sender.ended(self)
            return
        error = pending.exception()
        if error is not None:
            self._failed(error, self.target)
            return
        answer = pending.result()
        self.answer = answer.fields
        status = _STATUSES.get(answer.code)
        if status is None:
            retriable = answer.code in RETRIED
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
        self.result.set_result(receipt)
        self.sender.count(self, succeeded=True)
        self.sender.ended(self)

    def _failed(self, error: BaseException, at: Target | None) -> None:
        """An attempt failed: try again if that can help and attempts and time are left."""
        if isinstance(error, RockMQError) and not isinstance(error, ResponseError):
            # Many sends wait for one route or connection; each raises an error of its own.
            error = type(error)(*error.args)
        instance = self.sender.instance
        self.failures.append(str(error))
        again = isinstance(error, RemotingError) or (isinstance(error, ResponseError) and error.retriable)
        if at is not None and again:
            code = error.code if isinstance(error, ResponseError) else None
            if code is None or code in ROUTE_IS_STALE:
                instance.routes.refresh_soon(self.topic)
            if code == ResponseCode.GO_AWAY:
                instance.remoting.disconnect(at.address)
        if not again or self.attempts_left <= 0 or self.sender.closed:
            self.fail(error)
            return
        self.avoid = at.queue.broker_name if at is not None else None
        if at is not None and self._has_other_broker():
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

    def expire(self) -> None:
        """The deadline has passed."""
        where = f" from {self.target.address}" if self.pending is not None else ""
        self.fail(RequestTimeout(f"no answer{where} to a send to {self.topic!r} in time; it may have been stored"))

    def fail(self, error: BaseException) -> None:
        if self.pending is not None and self.channel is not None:
            self.pending = None
            self.channel.forget(self.opaque)
        if not self.result.done():
            if len(self.failures) > 1:
                error.add_note(f"{len(self.failures)} attempts: " + "; ".join(self.failures))
            self.result.set_exception(error)
            self.sender.count(self, succeeded=False)
        self.sender.ended(self)


class Sender:
    """The sends of one producer: starts them, watches their deadlines, knows when all are done."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._active: set[Sending] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = float("inf")
        self._idle: list[asyncio.Future[None]] = []

    @property
    def active(self) -> int:
        return len(self._active)

    def start(self, sending: Sending) -> None:
        """Begin; room in flight was taken before."""
        if self.instance.hooks is not None:
            self.instance.hooks.sending(sending)
        self._active.add(sending)
        sending.started = self.loop.time()
        if sending.deadline < self._sweep_at:
            self._sweep_by(sending.deadline)
        sending.attempt()

    def count(self, sending: Sending, *, succeeded: bool) -> None:
        """Note a result that is there."""
        messages = sending.msg_id.count(",") + 1
        work = self.instance.stats.sent(sending.topic)
        seconds = self.loop.time() - sending.started
        work.ended(seconds, done=messages if succeeded else 0, failed=0 if succeeded else messages)

    def ended(self, sending: Sending) -> None:
        """Whatever came of it, it takes no more room."""
        if sending not in self._active:
            return
        self._active.remove(sending)
        self.instance.in_flight.give_back(sending.size)
        if not self._active and self._idle:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def idle(self) -> None:
        """Wait until nothing is on its way; every send ends by its deadline."""
        while self._active:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._idle.append(waiter)
            await waiter

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
        expired = [sending for sending in self._active if sending.deadline <= now]
        for sending in sorted(expired, key=lambda each: each.deadline):
            sending.expire()
        if expired:
            self.instance.heartbeat_soon()  # which finds out whether the connection is dead
        if self._active:
            self._sweep_by(min(sending.deadline for sending in self._active))
