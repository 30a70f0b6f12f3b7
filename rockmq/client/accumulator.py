"""Messages that are sent one by one and travel together (ProduceAccumulator.java; clients' spec, 2.5).

Messages of one topic, queue (or any), WAIT and tag wait for each other for the linger, or until they fill a batch; each gets
its own receipt. The tag is the batch's too, as topics that keep batches together are filtered by it. What is cut off from
a batch goes on its own: see `Producer`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rockmq.base.errors import ClientClosed
from rockmq.client import batching
from rockmq.client.batching import Part
from rockmq.client.options import ProducerOptions
from rockmq.client.queues import Choice
from rockmq.client.sending import Sending, SendReceipt, of_its_own
from rockmq.protocol.bodies.common import MessageQueue


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
    choose: Choice
    deadline: float
    size: int
    """What it counts against the bound on bytes in flight."""
    result: "asyncio.Future[SendReceipt]"

    def start(self) -> None:
        """Begin to wait; room in flight was taken before."""
        self.accumulator.add(self)


class Batch:
    """Messages of one kind, from the first one on until they are sent."""

    __slots__ = ("held", "kind", "size", "timer")

    def __init__(self, kind: Kind, timer: asyncio.Handle) -> None:
        self.kind = kind
        self.timer = timer
        self.held: list[Held] = []
        self.size = 0


class Accumulator:
    """The batches of one producer that aren't sent yet; the bounds in flight are the bounds on what it holds.

    `make` turns parts of one kind into a sending by that deadline, `drop` gives back the room of messages that nobody
    waits for any more.
    """

    def __init__(
        self,
        options: ProducerOptions,
        make: Callable[[Kind, Sequence[Part], Choice, float], Sending],
        drop: Callable[[int, int], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.batch_bytes = min(options.batch_bytes, options.message_size_max)
        self.body_max = self.batch_bytes if options.compression is None else min(self.batch_bytes, options.compress_from)
        """Bodies of so many bytes go on their own."""
        self._linger = options.linger or 0.0
        self._make = make
        self._drop = drop
        self._batches: dict[Kind, Batch] = {}

    def add(self, held: Held) -> None:
        """Take a message into the batch of its kind, and send that when it is full."""
        kind = held.kind
        batch = self._batches.get(kind)
        if batch is not None and batch.size + held.size > self.batch_bytes:
            self._send(kind)
            batch = None
        if batch is None:
            loop = self.loop
            timer: asyncio.Handle = (
                loop.call_later(self._linger, self._send, kind) if self._linger > 0 else loop.call_soon(self._send, kind)
            )
            batch = self._batches[kind] = Batch(kind, timer)
        batch.held.append(held)
        batch.size = size = batch.size + held.size
        if size >= self.batch_bytes:
            self._send(kind)

    @property
    def empty(self) -> bool:
        return not self._batches

    def flush(self) -> None:
        """Send all that is held now."""
        for kind in list(self._batches):
            self._send(kind)

    def _send(self, kind: Kind) -> None:
        batch = self._batches.pop(kind)
        batch.timer.cancel()
        waited_for = [held for held in batch.held if not held.result.done()]
        if not waited_for:
            self._drop(batch.size, len(batch.held))
            return
        first = waited_for[0]
        sending = self._make(kind, waited_for, first.choose, first.deadline)
        sending.size, sending.count = batch.size, len(batch.held)
        sending.result.add_done_callback(lambda ended: _share(ended, waited_for))
        sending.start()


def _share(ended: "asyncio.Future[SendReceipt]", waited_for: list[Held]) -> None:
    """Give every message its part of what came of its batch."""
    error = ClientClosed("this client is closed") if ended.cancelled() else ended.exception()
    if error is not None:
        for held in waited_for:
            if not held.result.done():
                held.result.set_exception(of_its_own(error))
        return
    for held, receipt in zip(waited_for, batching.spread(ended.result(), waited_for), strict=True):
        result = held.result
        if not result.done():
            result.set_result(receipt)
