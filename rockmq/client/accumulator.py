"""Messages that are sent one by one and travel together (ProduceAccumulator.java; clients' spec, 2.5).

Messages of one topic, queue (or any), WAIT and tag wait for each other for the linger, or until they fill a batch; each gets
its own receipt. The tag is the batch's too, as topics that keep batches together are filtered by it. What is cut off from
a batch goes on its own: see `Producer`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rockmq.base.errors import ClientClosed
from rockmq.client import batching
from rockmq.client.batching import Part
from rockmq.client.instance import Instance
from rockmq.client.options import ProducerOptions
from rockmq.client.sending import Sending, SendReceipt, of_its_own
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message


class Kind(NamedTuple):
    """What messages of a batch have in common."""

    topic: str
    queue: MessageQueue | None
    wait: str | None
    tag: str | None


class Held(Part, frozen=True, eq=False):
    """A message that waits for others."""

    accumulator: "Accumulator"
    kind: Kind
    deadline: float
    size: int
    """What it counts against the bound on bytes in flight."""
    result: "asyncio.Future[SendReceipt]"
    is_bare: bool = False
    """Whether it is nothing but its body."""

    def start(self) -> None:
        """Begin to wait; room in flight was taken before."""
        self.accumulator.add(self)


class Batch:
    """Messages of one kind, from the first one on until they are sent. Of those that are nothing but a body it has that."""

    __slots__ = ("deadline", "kind", "messages", "results", "size", "timer")

    def __init__(self, kind: Kind, deadline: float, timer: asyncio.Handle) -> None:
        self.kind = kind
        self.deadline = deadline
        self.timer = timer
        self.messages: list[Part | bytes] = []
        self.results: list[asyncio.Future[SendReceipt]] = []
        self.size = 0


class Accumulator:
    """The batches of one producer that aren't sent yet; the bounds in flight are the bounds on what it holds.

    `make` turns messages of one kind into a sending by that deadline, and tells their ids. `bare_overhead` is what a message
    that is nothing but a body costs besides that; None if more than an id may be added to it.
    """

    def __init__(
        self,
        options: ProducerOptions,
        make: Callable[[Kind, Sequence[Part | bytes], float], tuple[Sending, list[str]]],
        instance: Instance,
        *,
        bare_overhead: int | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.batch_bytes = min(options.batch_bytes, options.message_size_max)
        self.body_max = self.batch_bytes if options.compression is None else min(self.batch_bytes, options.compress_from)
        """Bodies of so many bytes go on their own."""
        self._linger = options.linger or 0.0
        self._timeout = options.timeout
        self._make = make
        self._instance = instance
        self._in_flight = instance.in_flight
        self.bare_overhead = bare_overhead or 0
        self.knows_bare = bare_overhead is not None
        self._batches: dict[Kind, Batch] = {}
        self._open: dict[str, Batch] = {}
        """By topic, the batches that messages join which are nothing but a body."""

    def add(self, held: Held) -> None:
        """Take a message into the batch of its kind, and send that when it is full."""
        kind = held.kind
        batch = self._batches.get(kind)
        if batch is not None and batch.size + held.size > self.batch_bytes:
            self._send(kind)
            batch = None
        if batch is None:
            batch = self._begin(kind, max(held.deadline, self.loop.time() + self._timeout))
        batch.messages.append(held.body if held.is_bare else held)
        batch.results.append(held.result)
        batch.size = size = batch.size + held.size
        if size >= self.batch_bytes:
            self._send(kind)

    def _begin(self, kind: Kind, deadline: float) -> Batch:
        loop = self.loop
        timer: asyncio.Handle = (
            loop.call_later(self._linger, self._send, kind) if self._linger > 0 else loop.call_soon(self._send, kind)
        )
        batch = self._batches[kind] = Batch(kind, deadline, timer)
        if self.knows_bare and kind == Kind(kind.topic, None, None, None):
            self._open[kind.topic] = batch
        return batch

    def join(self, message: Message) -> "asyncio.Future[SendReceipt] | None":
        """Take a bare message, and room in flight for it, into a batch that has begun: the shortest way, which most of those
        go that wait for others. None for any other message, and when there is no room."""
        batch, body = self._open.get(message.topic), message.body
        if (
            batch is None
            or message.properties
            or message.keys
            or message.tag
            or message.delay_level
            or message.flag
            or type(body) is not bytes
            or not 0 < len(body) < self.body_max
            or self._instance.forked
        ):
            return None
        size = self.bare_overhead + len(body)
        filled = batch.size + size
        if filled >= self.batch_bytes or not self._in_flight.take_nowait(size):
            return None
        batch.size = filled
        batch.messages.append(body)
        result: asyncio.Future[SendReceipt] = self.loop.create_future()
        batch.results.append(result)
        return result

    @property
    def empty(self) -> bool:
        return not self._batches

    def flush(self) -> None:
        """Send all that is held now."""
        for kind in list(self._batches):
            self._send(kind)

    def _send(self, kind: Kind) -> None:
        batch = self._batches.pop(kind)
        if self._open.get(kind.topic) is batch:
            del self._open[kind.topic]
        batch.timer.cancel()
        count, messages, results = len(batch.results), batch.messages, batch.results
        if any(map(asyncio.Future.done, results)):  # nobody waits for those any more
            waited_for = [each for each in zip(messages, results, strict=True) if not each[1].done()]
            messages, results = [message for message, _ in waited_for], [result for _, result in waited_for]
        if not results:
            self._in_flight.give_back(batch.size, count)
            return
        try:
            sending, msg_ids = self._make(kind, messages, batch.deadline)
        except Exception as error:  # whatever it is, these can't be sent  # noqa: BLE001
            self._in_flight.give_back(batch.size, count)
            for result in results:
                result.set_exception(of_its_own(error))
            return
        sending.size, sending.count = batch.size, count
        sending.result.add_done_callback(lambda ended: _share(ended, msg_ids, results))
        sending.start()


def _share(
    ended: "asyncio.Future[SendReceipt]", msg_ids: list[str], results: "Sequence[asyncio.Future[SendReceipt]]"
) -> None:
    """Give every message its part of what came of its batch."""
    error = ClientClosed("this client is closed") if ended.cancelled() else ended.exception()
    if error is not None:
        for result in results:
            if not result.done():
                result.set_exception(of_its_own(error))
        return
    receipts = batching.spread(ended.result(), msg_ids)
    if any(map(asyncio.Future.done, results)):  # nobody waits for those any more
        for result, receipt in zip(results, receipts, strict=True):
            if not result.done():
                result.set_result(receipt)
    else:
        deque(map(asyncio.Future.set_result, results, receipts), maxlen=0)  # no turn of Python's each
