"""Reading a store's files instead of its broker (`readFrom=store:DIR`): what planning asks, and the messages of a range."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

from rockmq.base.clock import SystemClock
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.filter import sql, tags
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.options import ReadOptions
from rockmq.spark.pulling import Part
from rockmq.spark.ranges import ADVICE, DataLoss, Range, name
from rockmq.store import Filter
from rockmq.store.store_reader import QueueReader, StoreReader

log = logging.getLogger(__name__)

READ_ROWS = 8_192
READ_BYTES = 1 << 20
"""A part has about so many messages or bytes at most: it is copied some times on its way to Spark, from a cache of the
processor as long as it fits in one."""


class StoreOrigin:
    """A store as planning sees it; its one broker has the name that the options give it."""

    def __init__(self, root: Path, broker_name: str) -> None:
        """Raises ConfigError when there is no store."""
        self._store = StoreReader(root)
        self._broker_name = broker_name

    async def topic_names(self) -> list[str]:
        return self._store.topics()

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, self._broker_name, queue_id) for queue_id in self._store.queues(topic)]

    async def min_offset(self, queue: MessageQueue) -> int:
        return self._queue(queue).bounds()[0]

    async def max_offset(self, queue: MessageQueue) -> int:
        return self._queue(queue).bounds()[1]

    async def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        return self._queue(queue).offset_by_time(timestamp)

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """As the broker has saved them last."""
        offsets = ConsumerOffsets(self._store.root / "config", SystemClock())
        return {queue: offsets.query(group, topic, queue.queue_id) for queue in await self.queues(topic)}

    def _queue(self, queue: MessageQueue) -> QueueReader:
        return self._store.queue(queue.topic, queue.queue_id)


def parts(root: Path, options: ReadOptions, wanted: Range) -> Iterator[Part]:
    """What a range holds, in order. Raises DataLoss, ProtocolError for damaged records, ConfigError."""
    queue = _opened(root, wanted)
    codes = tags.codes(options.tags)
    filter = Filter(sql.program(options.sql)) if options.sql else None
    at = wanted.start
    while at < wanted.end:
        read = queue.read(at, wanted.end, count_max=READ_ROWS, bytes_max=READ_BYTES, tag_codes=codes, filter=filter)
        _tell(read.faults, wanted, options)
        end = min(read.next_offset, wanted.end)
        if read.records:
            yield Part(at, end, read.records)
        elif end > at and not options.filtered:
            _lost(Range(wanted.queue, at, end), "the queue leads to no messages there", options)
        before, at = at, end
        if at < wanted.end and (read.gone is not None or at == before):
            at = _behind_gap(queue, read.gone, Range(wanted.queue, at, wanted.end), options)


def _opened(root: Path, wanted: Range) -> QueueReader:
    try:
        queue = StoreReader(root).queue(wanted.queue.topic, wanted.queue.queue_id)
        queue.hold(wanted.start, wanted.end)
    except ConfigError as error:
        raise ConfigError(f"on {socket.gethostname()}: {error}; each executor has to see the store's files") from None
    return queue


def _tell(faults: list[str], wanted: Range, options: ReadOptions) -> None:
    for fault in faults:
        if options.fail_on_data_loss:
            raise ProtocolError(f"a message of {name(wanted.queue)} is damaged: {fault}. {ADVICE}")
        log.warning("a message of %s is damaged and left out: %s", name(wanted.queue), fault)


def _behind_gap(queue: QueueReader, gone: int | None, rest: Range, options: ReadOptions) -> int:
    """Where to go on behind what isn't there."""
    first = min(queue.bounds()[0], rest.end)
    if first > rest.start:
        _lost(Range(rest.queue, rest.start, first), f"its files are deleted, the queue starts at {first} now", options)
        return first
    if gone is not None:
        behind = min(max(queue.behind(gone), rest.start + 1), rest.end)
        _lost(Range(rest.queue, rest.start, behind), f"the log file with position {gone} isn't there", options)
        return behind
    _lost(rest, "the queue's files end before", options)
    return rest.end


def _lost(lost: Range, why: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{lost} is lost: {why}. {ADVICE}")
    log.warning("%s is lost: %s; going on without it", lost, why)
