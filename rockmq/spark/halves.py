"""Rows in transactions: nobody sees any of a batch before all of it is stored (`delivery=transactional`).

Tasks send half messages and note them in the ledger. What a failed attempt has sent doesn't count, so a task is just done
again. When all tasks have ended the driver notes whose messages count, and from there on the batch can't be sent again, only
gone on with. Then it commits one after the other. Apache's brokers store a message again that is committed again, so
where it is open whether one was, what is stored is read from where the queues ended before.

A half message that nobody decides about any more, as its task was killed, is parked by its broker in the end.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from rockmq.base.errors import ConfigError, ConnectError, RequestTimeout, RockMQError
from rockmq.client import Client, Decision, Message, MessageQueue, StoredMessage, TransactionProducer
from rockmq.client.transactions import Half
from rockmq.protocol import properties
from rockmq.spark import cluster
from rockmq.spark.ledger import Attempt, Ends, Ledger
from rockmq.spark.target import SETTLE_SECONDS, stored_between
from rockmq.spark.tries import Waiting, together, was_not_sent
from rockmq.spark.write_options import WriteOptions

log = logging.getLogger(__name__)

DECIDED_AT_ONCE = 64
"""Decisions on their way at a time."""

IMMUNITY_SECONDS = 24 * 3600
"""So long brokers don't ask what became of a message: a batch has to be over by then."""


class Halves:
    """Sends the half messages of one attempt, for use with `async with`."""

    def __init__(self, client: Client, options: WriteOptions, notes: Ledger, attempt: Attempt) -> None:
        self.producer = producer_of(client, options)
        self._path = notes.halves_of(attempt)

    async def __aenter__(self) -> Self:
        await self.producer.start()
        self._file = self._path.open("wb")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        await self.producer.close()

    async def send(self, message: Message, queue: MessageQueue, timeout: float) -> None:
        """Store a message where nobody sees it, and note where that is."""
        message.properties[properties.CHECK_IMMUNITY_TIME] = str(IMMUNITY_SECONDS)
        half = await self.producer.send_half(message, queue=queue, timeout=timeout)
        self._file.write(msgspec.json.encode(half) + b"\n")

    def keep(self) -> None:
        """Have all notes on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())


async def deliver(options: WriteOptions, notes: Ledger, attempts: Mapping[str, int]) -> None:
    """Commit what these attempts have sent, each so many messages, or what was decided before, and roll back the rest.

    Raises RockMQError, and OSError when the notes on an attempt can't be read.
    """
    async with cluster.connected(options) as client, producer_of(client, options) as producer:
        decided = notes.decided()
        if decided is None:
            pending = _sent_by(notes, attempts, attempts)
            ends = await _ends(client, options, pending)
            decided = notes.decide(sorted(attempts), ends)
        else:
            ends = decided.queues()
            pending = await _undelivered(client, options, _sent_by(notes, decided.attempts), ends)
        waiting = Waiting(options.timeout)
        while pending:
            doubtful = await _commit(producer, options, pending)
            left = await _undelivered(client, options, doubtful, ends) if doubtful else []
            if len(left) < len(pending):
                waiting = Waiting(options.timeout)
            if left:
                topics = ", ".join(sorted({half.topic for half in left}))
                await waiting.after(
                    RequestTimeout(
                        f"{len(left)} messages of {topics} aren't delivered yet: for {options.timeout:g} s brokers haven't "
                        "answered, nor stored any of them; the batch is gone on with when it comes again"
                    )
                )
            pending = left
        await _roll_back(producer, options, notes, without=decided.attempts)


async def give_up(options: WriteOptions, notes: Ledger) -> None:
    """Roll back all that was sent, if it wasn't decided to deliver it. Raises RockMQError."""
    if notes.decided() is None:
        async with cluster.connected(options) as client, producer_of(client, options) as producer:
            await _roll_back(producer, options, notes, without=())


def _sent_by(notes: Ledger, attempts: Iterable[str], counts: Mapping[str, int] | None = None) -> list[Half]:
    """What these have noted. By name, as a directory on another machine may not tell of a new file yet."""
    found: list[Half] = []
    for attempt in attempts:
        path = notes.halves_of(attempt)
        halves = noted(path)
        if counts is not None and len(halves) != counts[attempt]:
            raise ConfigError(
                f"{path} tells of {len(halves)} messages, and its task has sent {counts[attempt]}: expected a directory in "
                "which the driver sees what executors have written (option 'ledger')"
            )
        found += halves
    return found


def producer_of(client: Client, options: WriteOptions) -> TransactionProducer:
    return client.transaction_producer(
        options.producer_group,
        _unknown,
        retries=0,
        compression="none",
        message_size_max=options.max_message_size,
        timeout=options.timeout,
    )


async def _unknown(_: StoredMessage) -> Decision:
    """What came of a message only the driver knows, and it tells without being asked."""
    return Decision.UNKNOWN


async def _ends(client: Client, options: WriteOptions, halves: list[Half]) -> Ends:
    """Where the queues end that these may be delivered to. Raises ConnectError when the queues of one aren't known."""
    brokers: dict[str, set[str]] = {}
    for half in halves:
        brokers.setdefault(half.topic, set()).add(half.broker_name)
    ends: Ends = {}
    for topic, concerned in brokers.items():
        for queue in await Waiting(options.timeout).until(partial(_queues, client, topic, concerned)):
            ends[queue] = await Waiting(options.timeout).until(partial(client.max_offset, queue))
    return ends


async def _queues(client: Client, topic: str, brokers: set[str]) -> list[MessageQueue]:
    """The topic's queues at these brokers, also those that have become read-only since."""
    known = {*await client.writable_queues(topic), *await client.queues(topic)}
    if gone := brokers.difference(queue.broker_name for queue in known):
        names = ", ".join(sorted(gone))
        raise ConnectError(f"messages of {topic} wait for their delivery at {names}, which stands in no route of it now")
    return sorted(queue for queue in known if queue.broker_name in brokers)


async def _undelivered(client: Client, options: WriteOptions, halves: list[Half], ends: Ends) -> list[Half]:
    """Of those that may have been delivered those that weren't."""
    await asyncio.sleep(SETTLE_SECONDS)
    stored: Counter[str] = Counter()
    for queue, start in ends.items():
        end = await Waiting(options.timeout).until(partial(client.max_offset, queue))
        read = partial(asyncio.to_thread, stored_between, options, queue, start, end, given=True)
        stored += await Waiting(options.timeout).until(read)
    return [half for half in halves if not stored[half.msg_id]]


async def _commit(producer: TransactionProducer, options: WriteOptions, halves: list[Half]) -> list[Half]:
    """Have them delivered; those of which brokers didn't answer."""
    doubtful: list[Half] = []

    async def commit(half: Half) -> None:
        if not await _decide(producer, half, Decision.COMMIT, Waiting(options.timeout)):
            doubtful.append(half)

    await _each(halves, commit)
    return doubtful


async def _roll_back(
    producer: TransactionProducer, options: WriteOptions, notes: Ledger, *, without: Collection[str]
) -> None:
    """As far as it can be done within the timeout: brokers park the others in the end, and nobody sees them."""
    waiting = Waiting(options.timeout)

    async def roll_back(half: Half) -> None:
        try:
            await _decide(producer, half, Decision.ROLLBACK, waiting)
        except RockMQError as error:
            log.warning("message %s of %s isn't rolled back: %s", half.msg_id, half.topic, error)

    leftovers = (path for attempt, path in notes.halves().items() if attempt not in without)
    await _each((half for path in leftovers for half in noted(path)), roll_back)


async def _decide(producer: TransactionProducer, half: Half, decision: Decision, waiting: Waiting) -> bool:
    """Tell the broker; whether it has answered."""
    while True:
        try:
            return await producer.decide(half, decision)
        except RockMQError as error:
            if not was_not_sent(error):
                raise
            await waiting.after(error)


async def _each(halves: Iterable[Half], do: Callable[[Half], Awaitable[None]]) -> None:
    """Some at a time."""
    turns = iter(halves)

    async def work() -> None:
        for half in turns:
            await do(half)

    await together([work] * DECIDED_AT_ONCE)


def noted(path: Path) -> list[Half]:
    """What an attempt has noted; a last line that was cut off is passed over, as that attempt has failed."""
    lines = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=Half) for line in lines[:-1]]
