"""What watches the messages of a client: message trace and OpenTelemetry stand on it, and so may a user's own.

A hook is told when something begins, and may answer with what to call when it has ended. All of it runs in the event
loop, between two steps of the client, and mustn't wait. What a hook raises is logged and goes no further. A client without
hooks does nothing for them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import keys
from rockmq.protocol.headers.recall import RecallHandle
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.protocol.message import StoredMessage, decode_batch

if TYPE_CHECKING:
    from rockmq.client.sending import Sending, SendReceipt

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_WIRE = dict(keys(SendMessageV2))
_GROUP, _PROPERTIES = _WIRE["producer_group"], _WIRE["properties"]

Ended = Callable[[], None]
"""Called once, when what began has ended and its result is known."""


class Outgoing(NamedTuple):
    """A message that is sent; `size` is that of the body as it travels."""

    msg_id: str
    properties: dict[str, str]
    size: int


@dataclass(slots=True)
class Send:
    """A request that sends a message, or several as a batch. What is below `began_ms` is known at the end; a send that asks
    for no answer, or that nobody waits for any more, has neither receipt nor error."""

    group: str
    topic: str
    messages: Sequence[Outgoing]
    is_batch: bool
    began_ms: int
    broker: str = ""
    """Address of the broker that was asked last."""
    answer: Mapping[str, str] = field(default_factory=dict)
    """All fields of the broker's answer."""
    receipt: "SendReceipt | None" = None
    error: BaseException | None = None


@dataclass(slots=True)
class Consumption:
    """A message that was handed to the application; `succeeded` and `error` are known at the end. `notes` is what hooks keep
    of it for later."""

    group: str
    message: StoredMessage
    queue: MessageQueue
    began_ms: int
    succeeded: bool = False
    error: BaseException | None = None
    notes: dict["Hook", Any] = field(default_factory=dict)


class TransactionEnd(NamedTuple):
    """A decision that is told to a broker; `state` is COMMIT, ROLLBACK or UNKNOWN."""

    group: str
    topic: str
    msg_id: str
    properties: Mapping[str, str]
    broker: str
    state: str
    from_check: bool


class Recall(NamedTuple):
    """A message that was to be taken back, and whether the broker took the wish."""

    group: str
    topic: str
    msg_id: str
    succeeded: bool


class Hook:
    """Override what you want to know of; see the module for the rules."""

    def batching(self, topic: str, properties: dict[str, str]) -> None:
        """A message becomes part of a batch, whose `sending` comes later. Properties may be added here."""

    def sending(self, send: Send) -> Ended | None:
        """A request is about to be sent. Properties may be added to its message, but not to those of a batch."""
        return None

    def consuming(self, consumption: Consumption) -> Ended | None:
        """The application gets a message; it has ended when it is acknowledged, refused or given back."""
        return None

    def processing(self, consumption: Consumption) -> Ended | None:
        """A handler, or a `process` block, begins; the context variables set here are its own."""
        return None

    def transaction_ended(self, end: TransactionEnd) -> None:
        """The producer has decided."""

    def recalled(self, recall: Recall) -> None:
        """A broker has answered a recall."""


class Hooks:
    """The hooks of one client. What it sends for itself isn't told to them: to retry topics, and to those `unwatched`."""

    def __init__(self, hooks: Sequence[Hook], clock: Clock, *, unwatched: Iterable[str] = ()) -> None:
        self._hooks = tuple(hooks)
        self._clock = clock
        self._unwatched = frozenset(unwatched)

    def batching(self, topic: str, properties: dict[str, str]) -> None:
        for hook in self._hooks:
            _guarded(hook.batching, topic, properties)

    def sending(self, sending: "Sending") -> None:
        """Watch a send that starts now until its result is there."""
        topic = sending.topic
        if topic in self._unwatched or topics.is_retry_or_dlq(topic):
            return
        is_batch = sending.code == RequestCode.SEND_BATCH_MESSAGE
        send = Send(sending.fields[_GROUP], topic, _messages(sending), is_batch, self._clock.now_ms())
        ended = _begun([hook.sending for hook in self._hooks], send)
        if not is_batch:
            try:
                sending.fields[_PROPERTIES] = names.encode(send.messages[0].properties).decode()
            except ProtocolError as error:
                log.warning("a message goes without what hooks have added to it: %s", error)

        def done(result: "asyncio.Future[SendReceipt]") -> None:
            if not result.cancelled():
                send.error = result.exception()
                send.receipt = result.result() if send.error is None else None
            send.broker, send.answer = sending.broker, sending.answer
            _finished(ended)

        sending.result.add_done_callback(done)

    def consuming(self, group: str, message: StoredMessage, queue: MessageQueue) -> "Watched":
        consumption = Consumption(group, message, queue, self._clock.now_ms())
        return Watched(self._hooks, consumption, _begun([hook.consuming for hook in self._hooks], consumption))

    def transaction_ended(self, end: TransactionEnd) -> None:
        for hook in self._hooks:
            _guarded(hook.transaction_ended, end)

    def recalled(self, recall: Recall) -> None:
        for hook in self._hooks:
            _guarded(hook.recalled, recall)


def _messages(sending: "Sending") -> list[Outgoing]:
    """What is in a request, read from what travels."""
    if sending.code != RequestCode.SEND_BATCH_MESSAGE:
        return [Outgoing(sending.msg_id, names.decode(sending.fields[_PROPERTIES].encode()), len(sending.body))]
    parts = zip(sending.msg_id.split(","), decode_batch(sending.body), strict=False)
    return [Outgoing(msg_id, names.decode(text), len(body)) for msg_id, (_, body, text) in parts]


class Watched:
    """A message that the application has."""

    __slots__ = ("_ended", "_hooks", "_left", "consumption")

    def __init__(self, hooks: Sequence[Hook], consumption: Consumption, ended: list[Ended]) -> None:
        self.consumption = consumption
        self._hooks = hooks
        self._ended = ended
        self._left: list[Ended] = []

    def enter(self) -> None:
        """A handler begins."""
        self._left = _begun([hook.processing for hook in self._hooks], self.consumption)

    def leave(self, error: BaseException | None) -> None:
        self.consumption.error = error
        left, self._left = self._left, []
        _finished(left)

    def end(self, *, succeeded: bool) -> None:
        self.consumption.succeeded = succeeded
        ended, self._ended = self._ended, []
        _finished(ended)


@contextlib.contextmanager
def recalling(hooks: Hooks | None, group: str, handle: str) -> Iterator[None]:
    """Around a recall. What is no handle is nobody's concern."""
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        if hooks is not None:
            with contextlib.suppress(ProtocolError):
                said = RecallHandle.decode(handle)
                hooks.recalled(Recall(group, said.topic, said.unique_key, succeeded))


def _begun(methods: Iterable[Callable[[T], Ended | None]], operation: T) -> list[Ended]:
    return [ended for method in methods if (ended := _guarded(method, operation)) is not None]


def _finished(ended: Iterable[Ended]) -> None:
    """The last that began ends first."""
    for each in reversed(list(ended)):
        _guarded(each)


def _guarded(hook: Callable[..., R], *arguments: object) -> R | None:
    try:
        return hook(*arguments)
    except Exception:
        log.exception("a hook failed: %r", hook)
        return None
