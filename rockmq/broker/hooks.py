"""What an operator's own functions are told of sends and of consuming (SendMessageHook.java, ConsumeMessageHook.java).

`sendHooks=audit=shop.hooks:on_send` has `on_send` called with each `Send` before it is looked at. It may raise SendRefused;
it may answer with a function, which is called with the `Sent` when it is known what became of the send. `consumeHooks` names
functions that are called with each `Consumed`. All run on the event loop, so they have to be quick. Whatever else one raises
is logged and counted, and the request goes on as if there were no hook.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from rockmq.base.errors import ProtocolError
from rockmq.broker import functions
from rockmq.config.broker import Hooks as HookOptions
from rockmq.protocol import properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.client import SendMessageBack
from rockmq.protocol.headers.send import SendMessage
from rockmq.protocol.message import StoredMessage, decode_batch, decode_stored
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Handler, Refusal, refused

log = logging.getLogger(__name__)


class SendRefused(Exception):
    """What a send hook raises so that nothing is stored and the producer is told why. MESSAGE_ILLEGAL isn't tried again by
    producers; other codes may be, at another broker."""

    def __init__(self, reason: str, code: ResponseCode = ResponseCode.MESSAGE_ILLEGAL) -> None:
        super().__init__(reason)
        self.code = code


class Message(NamedTuple):
    """A message as its producer sent it; the body may be compressed (`Send.sys_flag`)."""

    properties: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """A request that sends a message, a batch, or the reply to a request. To change what it holds changes nothing."""

    group: str
    topic: str
    queue_id: int
    """-1 lets the broker choose."""
    peer: str
    """Who sends, `ip:port`."""
    born_timestamp: int
    sys_flag: int
    messages: Sequence[Message]


class Sent(NamedTuple):
    """What a producer is answered; `code` is None when the broker stopped before that was known. A one-way send has one
    too, which nobody is told."""

    code: int | None
    remark: str | None
    fields: Mapping[str, str]
    """As on the wire: msgId, queueId, queueOffset and more if the message was stored."""


class Way(StrEnum):
    """How messages come to a consumer, or from it."""

    PULLED = "pulled"
    POPPED = "popped"
    GIVEN_BACK = "given back"
    """It couldn't be consumed, and is to come again (CONSUMER_SEND_MSG_BACK)."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """Messages of a queue that a consumer is given, or one that it gave back; then `queue_id` is -1 and `stored` empty."""

    way: Way
    group: str
    topic: str
    queue_id: int
    peer: str
    """Who consumes, `ip:port`."""
    count: int
    stored: bytes
    """Their records, as the log has them. In a record of a batch several are counted as one."""

    def messages(self) -> list[StoredMessage]:
        """They, decoded. Raises ProtocolError for what can't be."""
        return decode_stored(self.stored)


class Hooks:
    """The functions that broker.conf names."""

    def __init__(self, options: HookOptions) -> None:
        """Raises ConfigError for functions that can't be loaded."""
        self.of_sends = functions.load("sendHooks", options.send_hooks)
        self.of_consuming = functions.load("consumeHooks", options.consume_hooks)
        self._failures = dict.fromkeys([*self.of_sends, *self.of_consuming], 0)

    def sends(self, handler: Handler) -> Handler:
        """A handler of sends that tells of them; the same where nobody is told."""
        return _Sends(self, handler) if self.of_sends else handler

    def give_backs(self, handler: Handler) -> Handler:
        """The same for messages that are given back."""
        if not self.of_consuming:
            return handler

        def told(header: SendMessageBack, request: Command, connection: Connection) -> "Answer | Awaitable[Answer]":
            topic = header.origin_topic or ""
            self.consumed(Consumed(Way.GIVEN_BACK, header.group, topic, -1, connection.peer, 1, b""))
            return handler(header, request, connection)

        return told

    def consumed(self, event: Consumed) -> None:
        for name, hook in self.of_consuming.items():
            self.call(name, hook, event)

    def call(self, name: str, hook: Callable[[Any], Any], event: object) -> object:
        """What a hook answers; None where it fails. Raises SendRefused, of a `Send`."""
        try:
            answer = hook(event)
            if isinstance(answer, Coroutine):
                answer.close()  # nobody runs it, and it would complain that it was never awaited
                raise TypeError("it is async; expected a plain function, as requests don't wait for hooks")
            return answer
        except Exception as error:  # whatever the operator's function raises
            if isinstance(error, SendRefused) and isinstance(event, Send):
                raise
            self._failures[name] += 1
            log.exception("a hook fails", extra={"hook": name})
            return None

    def figures(self) -> dict[str, int]:
        """How often each failed, for the runtime information."""
        return {f"hookFailures_{name}": count for name, count in self._failures.items()}


_End = tuple[str, Callable[[Any], Any]]
"""A hook's name, and what it answered."""


class _Sends:
    def __init__(self, hooks: Hooks, handler: Handler) -> None:
        self._hooks = hooks
        self._handler = handler

    def __call__(self, header: SendMessage, request: Command, connection: Connection) -> "Answer | Awaitable[Answer]":
        ends = self._begin(header, request, connection)
        if not ends:
            return self._handler(header, request, connection)
        try:
            answer = self._handler(header, request, connection)
        except Exception as error:  # as the dispatcher does, which answers with it  # noqa: BLE001
            answer = refused(request, error, connection)
        if isinstance(answer, Awaitable):
            return self._end_later(ends, answer, request, connection)
        self._end(ends, _sent(answer))
        return answer

    def _begin(self, header: SendMessage, request: Command, connection: Connection) -> list[_End]:
        """Those who want to know the end. Raises Refusal."""
        try:
            send = _send(header, request, connection)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        ends: list[_End] = []
        for name, hook in self._hooks.of_sends.items():
            try:
                answer = self._hooks.call(name, hook, send)
            except SendRefused as refusal:
                self._end(ends, Sent(refusal.code, str(refusal), {}))
                raise Refusal(refusal.code, str(refusal)) from None
            if callable(answer):
                ends.append((name, answer))
        return ends

    async def _end_later(
        self, ends: list[_End], answer: Awaitable[Answer], request: Command, connection: Connection
    ) -> Answer:
        found: Answer = None
        try:
            found = await answer
        except Exception as error:  # as above  # noqa: BLE001
            found = refused(request, error, connection)
        finally:
            self._end(ends, _sent(found))
        return found

    def _end(self, ends: list[_End], sent: Sent) -> None:
        for name, end in ends:
            self._hooks.call(name, end, sent)


def _sent(answer: Answer) -> Sent:
    return Sent(answer.code, answer.remark, answer.fields) if isinstance(answer, Command) else Sent(None, None, {})


def _send(header: SendMessage, request: Command, connection: Connection) -> Send:
    if header.batch:
        found = [(text, body) for _flag, body, text in decode_batch(request.body)]
    else:
        found = [((header.properties or "").encode(), request.body)]
    return Send(
        header.producer_group,
        header.topic,
        header.queue_id,
        connection.peer,
        header.born_timestamp,
        header.sys_flag,
        [Message(properties.decode(text), body) for text, body in found],
    )
