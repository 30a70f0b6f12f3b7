"""What one task of a write does: rows in, batches out, and with fences nothing twice (spark spec, section 6).

Rows come as Arrow batches in a thread of their own. While the requests of one are on their way, the next one is fetched
and encoded. At each queue there is one request at a time, so that rows of a key stay in order; different queues don't
wait for each other.

With fences the task notes where the queues of a topic end before it sends anything there. If it finds notes of attempts
before it, it reads from the oldest of them what is stored already, and sends the rest. It does the same with a single
request that nobody knows the outcome of. Else such a request is sent again.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rockmq.base.clock import SystemClock
from rockmq.base.errors import ConnectError, RockMQError
from rockmq.client import Client, Message, MessageQueue, Producer
from rockmq.protocol import properties
from rockmq.protocol.message import decode_batch
from rockmq.spark import cluster
from rockmq.spark.bad_rows import BadRows
from rockmq.spark.halves import Halves
from rockmq.spark.ledger import Done, Ledger, Work
from rockmq.spark.pace import Pace
from rockmq.spark.ranges import name
from rockmq.spark.target import SETTLE_SECONDS, Faults, Found, Target, stored_between
from rockmq.spark.tries import ToDo, Waiting, ended, is_in_doubt, together, was_not_sent
from rockmq.spark.write_columns import Rows, identities, split
from rockmq.spark.write_options import topic_fault

log = logging.getLogger(__name__)

SINGLES_AT_ONCE = 64
"""Messages that can't be in batches, timed ones and those in transactions, on their way at a time."""


class Request(NamedTuple):
    """Some rows of one queue, and the body they are in."""

    rows: Rows
    numbers: "npt.NDArray[np.int64]"
    body: bytes


Requests = dict[int, list[Request]]
"""By the number of the queue."""


def write(work: Work, batches: Iterator[pa.RecordBatch]) -> Done:
    """Write the rows of a partition. Raises RockMQError, OSError."""
    notes = None
    if work.ledger:
        notes = work.notes()
        notes.open(work.ledger)
        if notes.done() is not None or notes.decided() is not None:
            rows = sum(batch.num_rows for batch in batches)
            return Done(rows, 0, rows, 0)
    return asyncio.run(_write(work, notes, batches))


async def _write(work: Work, notes: Ledger | None, batches: Iterator[pa.RecordBatch]) -> Done:
    options = work.options
    bad = BadRows(options.bad_rows, f"{work.scope}-{work.batch}-{work.attempt.partition}")
    try:
        async with cluster.connected(options) as client:
            if options.transactional:
                assert notes is not None
                async with Halves(client, options, notes, work.attempt) as halves:
                    task = Task(work, notes, client, halves.producer, bad, halves)
                    await task.run(batches)
                    halves.keep()
            else:
                # Tries after the first are made here, where it is known what became of it.
                async with client.producer(
                    options.producer_group,
                    retries=0,
                    compression="none",
                    message_size_max=options.max_message_size,
                    timeout=options.timeout,
                ) as producer:
                    task = Task(work, notes, client, producer, bad, None)
                    await task.run(batches)
        bad.finish()
    except BaseException:
        bad.abandon()
        raise
    return Done(task.rows, task.sent, task.found, bad.count)


class Task:
    """The rows of one partition on their way."""

    def __init__(
        self,
        work: Work,
        notes: Ledger | None,
        client: Client,
        producer: Producer,
        bad: BadRows,
        halves: Halves | None,
    ) -> None:
        self.rows = self.sent = self.found = 0
        self._work = work
        self._options = work.options
        self._notes = notes if work.options.fenced else None
        self._numbered = notes.queues() if notes is not None else None
        self._client = client
        self._producer = producer
        self._bad = bad
        self._halves = halves
        self._targets: dict[str, Target] = {}
        self._singles = asyncio.Semaphore(SINGLES_AT_ONCE)
        self._pace = Pace(SystemClock(), work.options.rows_per_second)

    @property
    def _given_ids(self) -> bool:
        return bool(self._options.dedup_key)

    async def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all of them."""
        on_their_way: asyncio.Task[None] | None = None
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                for part in self._pace.parts(batch):
                    not_sent = self.found + self._bad.count
                    work = await self._prepared(part)
                    await self._pace.turn(part.num_rows - (self.found + self._bad.count - not_sent))
                    if on_their_way is not None:
                        await on_their_way
                    on_their_way = asyncio.create_task(together(work))
            if on_their_way is not None:
                await on_their_way
        finally:
            if on_their_way is not None:
                await ended(on_their_way)

    async def _prepared(self, batch: pa.RecordBatch) -> list[ToDo]:
        """What is to be done for a batch: for each queue its requests, and the messages that go alone."""
        faults: Faults = []
        work: list[ToDo] = []
        for topic, numbers in split(batch, self._options.topic).items():
            fault = "it has no topic" if topic is None else topic_fault(topic)
            if topic is None or fault is not None:
                faults += [(int(number), fault or "") for number in numbers]
                continue
            target = await self._target(topic)
            rows = Rows(
                batch if len(numbers) == batch.num_rows else batch.take(pa.array(numbers)),
                seed=f"{self._work.scope}/{self._work.batch}/{self._work.attempt.partition}/{topic}".encode(),
                first=target.rows,
                dedup_key=self._options.dedup_key,
                size_max=self._options.max_message_size,
            )
            target.rows += rows.count
            works, wrong = self._encoded(target, rows)
            work += works
            faults += [(int(numbers[row]), reason) for row, reason in wrong]
        self._bad.add(batch, self.rows, faults)
        self.rows += batch.num_rows
        return work

    def _encoded(self, target: Target, rows: Rows) -> tuple[list[ToDo], Faults]:
        queues, faults = target.choose(rows)
        nameless = rows.without_id()
        fault = f"its column {self._options.dedup_key!r} is null or empty"
        faults += [(int(row), fault) for row in nameless if queues[row] >= 0]
        queues[nameless] = -1
        alone = np.ones(rows.count, np.bool_) if self._halves is not None else rows.timed()
        work: list[ToDo] = []
        if not alone.all():
            in_batches = np.where(alone, np.int32(-1), queues)
            encoded = rows.encode(in_batches)
            faults += encoded.faults
            in_batches[[row for row, _ in encoded.faults]] = -1
            if target.found is not None:
                sent = target.found.take(identities(encoded.ids, given=self._given_ids)) & (in_batches >= 0)
                self.found += int(np.count_nonzero(sent))
                in_batches[sent] = -1
                encoded = rows.encode(in_batches)
            requests = _requests(rows, in_batches, encoded.batches)
            work += [partial(self._send_in_order, target, queue, each) for queue, each in requests.items()]
        if alone.any():
            encoded = rows.encode(np.where(alone, queues, np.int32(-1)), alone=True)
            faults += encoded.faults
            work += [partial(self._send_alone, target, queue, body) for queue, _, body in encoded.batches]
        return work, faults

    async def _target(self, topic: str) -> Target:
        """The topic, ready to be written to: fenced, and read as far as an attempt before may have written to it."""
        target = self._targets.get(topic)
        if target is not None:
            return target
        queues = await Waiting(self._options.timeout).until(lambda: self._queues(topic))
        target = self._targets[topic] = Target(topic, queues, self._work.attempt.partition)
        if self._notes is not None:
            fences = self._notes.fences(topic, self._work.attempt)
            if fences:
                await asyncio.sleep(SETTLE_SECONDS)
            # Attempts before may have sent to queues, too, that the route doesn't have now, and there it can be read.
            known = [*queues, *sorted({queue for fence in fences for queue in fence}.difference(queues))]
            for queue, end in zip(known, await gathered(map(self._end, known)), strict=True):
                target.ends[queue] = end
            self._notes.fence(topic, self._work.attempt, target.ends)
            if fences:
                stored: Counter[str] = Counter()
                for queue in known:
                    # One that came after a fence is read from its beginning.
                    starts = [fence[queue] for fence in fences if queue in fence]
                    start = min(starts) if len(starts) == len(fences) else await self._begin(queue)
                    stored += await self._stored(queue, start, target.ends[queue])
                target.found = Found(stored)
        return target

    async def _queues(self, topic: str) -> list[MessageQueue]:
        queues = await self._client.writable_queues(topic)
        if not queues:
            raise ConnectError(f"no queue of topic {topic!r} can be written to: none is writable and has a master")
        cluster.refuse_static(queues, "written to")
        if self._numbered is None:
            return queues
        if away := [queue for queue in self._numbered if queue not in queues]:
            raise ConnectError(f"queue {name(away[0])}, one of those that rows are for, can't be written to now")
        return self._numbered

    async def _begin(self, queue: MessageQueue) -> int:
        return await Waiting(self._options.timeout).until(lambda: self._client.min_offset(queue))

    async def _end(self, queue: MessageQueue) -> int:
        return await Waiting(self._options.timeout).until(lambda: self._client.max_offset(queue))

    async def _stored(self, queue: MessageQueue, start: int, end: int) -> Counter[str]:
        """What is stored from one offset up to another."""
        log.info("reading what may have been sent before: %s from %d to %d", name(queue), start, end)
        read = partial(asyncio.to_thread, stored_between, self._options, queue, start, end, given=self._given_ids)
        return await Waiting(self._options.timeout).until(read)

    # Sending

    async def _send_in_order(self, target: Target, number: int, requests: list[Request]) -> None:
        queue = target.queues[number]
        for request in requests:
            await self._send(target, queue, request)

    async def _send(self, target: Target, queue: MessageQueue, request: Request) -> None:
        """Send until it is stored, each message once if there is a fence."""
        waiting = Waiting(self._options.timeout)
        rows, numbers, body = request
        while True:
            try:
                receipt = await self._producer.send_encoded(body, queue, count=len(numbers), timeout=waiting.left)
            except RockMQError as error:
                if not (was_not_sent(error) or is_in_doubt(error)):
                    raise
                log.warning("%d messages to %s: %s; trying again", len(numbers), name(queue), error)
                await waiting.after(error)
                if self._notes is None or was_not_sent(error):
                    continue
                numbers = await self._missing(target, queue, rows, numbers)
                if not len(numbers):
                    self.sent += len(request.numbers)
                    return
                ((_, _, body),) = rows.encode(_only(rows, numbers)).batches
            else:
                target.ends[queue] = receipt.queue_offset + len(numbers)
                self.sent += len(request.numbers)
                return

    async def _missing(
        self, target: Target, queue: MessageQueue, rows: Rows, numbers: "npt.NDArray[np.int64]"
    ) -> "npt.NDArray[np.int64]":
        """Of rows that may have been stored those that weren't."""
        await asyncio.sleep(SETTLE_SECONDS)
        end = await self._end(queue)
        stored = await self._stored(queue, target.ends[queue], end)
        ids = rows.encode(_only(rows, numbers)).ids.take(pa.array(numbers))
        target.ends[queue] = end
        return numbers[~Found(stored).take(identities(ids, given=self._given_ids))]

    async def _send_alone(self, target: Target, number: int, body: bytes) -> None:
        """One message, which a batch can't have: for later, or in a transaction."""
        ((_, plain, text),) = decode_batch(body)
        message = Message(target.topic, plain, properties=properties.decode(text))
        queue = target.queues[number]
        async with self._singles:
            if self._halves is not None:
                halves = self._halves
                await patiently(self._options.timeout, lambda seconds: halves.send(message, queue, seconds))
            else:
                await patiently(
                    self._options.timeout, lambda seconds: self._producer.send(message, queue=queue, timeout=seconds)
                )
        self.sent += 1


async def patiently(seconds: float, send: Callable[[float], Awaitable[object]]) -> None:
    """Send until it is stored, perhaps more than once."""
    waiting = Waiting(seconds)
    while True:
        try:
            await send(waiting.left)
        except RockMQError as error:
            if not (was_not_sent(error) or is_in_doubt(error)):
                raise
            await waiting.after(error)
        else:
            return


def _requests(rows: Rows, queues: "npt.NDArray[np.int32]", batches: list[tuple[int, int, bytes]]) -> Requests:
    """Which rows are in which batch: those of a queue in their order."""
    members: dict[int, npt.NDArray[np.int64]] = {}
    requests: Requests = defaultdict(list)
    for queue, count, body in batches:
        waiting = members.get(queue)
        if waiting is None:
            waiting = np.flatnonzero(queues == queue)
        requests[queue].append(Request(rows, waiting[:count], body))
        members[queue] = waiting[count:]
    return requests


def _only(rows: Rows, numbers: "npt.NDArray[np.int64]") -> "npt.NDArray[np.int32]":
    """These rows, and no others, all in one queue."""
    queues = np.full(rows.count, -1, np.int32)
    queues[numbers] = 0
    return queues


async def gathered(work: "Iterable[Coroutine[Any, Any, int]]") -> list[int]:
    return await asyncio.gather(*work)
