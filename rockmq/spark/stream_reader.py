"""Streaming reads: micro-batches from offsets to offsets, which Spark keeps in the query's checkpoint.

An offset of the stream is {"topic": {"broker": {"queue id": offset}}} and names the queues it knows with the next message
to read of each. What a batch holds follows from its two offsets alone, so a batch that is run again is the same.
Hence a queue that comes into being is first only named, at its minimum, and read from the batch after that.

Spark runs all of this but `read` in one process next to the driver, for the whole query; `read` runs in the tasks, on a
copy of the reader which nothing else was called on (spark spec, 1.2). What a query has done is told by its progress, not by
`commit`, which comes a batch late and not for the last one: see `rockmq.spark.group_offsets`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rockmq.base.clock import Clock, SystemClock
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.admission import Amounts, share, share_bytes
from rockmq.spark.batch_reader import read_range
from rockmq.spark.options import LATEST
from rockmq.spark.patience import Patience
from rockmq.spark.ranges import ADVICE, Bounds, DataLoss, OffsetTree, Range, cut, from_tree, name, offset_tree, starts
from rockmq.spark.stream_options import StreamOptions
from rockmq.spark.watching import SAMPLE_COUNT, QueueWatch
from rockmq.spark.worker import settle

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. Methods are called by Spark, and raise DataLoss and RockMQError."""

    def __init__(self, options: StreamOptions, schema: pa.Schema, clock: Clock | None = None) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock or SystemClock()
        self._missing = Patience(self._clock, options.timeout)
        self._opened: QueueWatch | None = None  # by the first question, so that what is sent to the tasks has none
        self._target: dict[MessageQueue, Bounds] | None = None
        self._held_since: float | None = None

    @property
    def _watch(self) -> QueueWatch:
        if self._opened is None:
            self._opened = QueueWatch(self._options, self._clock)
        return self._opened

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()

    # Where to begin, where it ends

    def initialOffset(self) -> OffsetTree:
        """Where a query begins that has no checkpoint."""
        # What comes while availableNow begins is beyond its target.
        bounds = self._watch.all_bounds() if self._target is None else self._target
        return offset_tree(starts(bounds, self._watch.resolved(bounds), LATEST))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one kind of limit at a time; `latestOffset` keeps to all that the options say, unless it is told to
        give everything."""
        options = self._options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMinRows(options.min_offsets_per_trigger) if options.min_offsets_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now and no more."""
        self._target = self._watch.all_bounds()

    def reportLatestOffset(self) -> OffsetTree:
        """The ends of all queues, which a query's progress shows as `latestOffset`: less `endOffset` it is the lag."""
        self._watch.bounds()
        return offset_tree({queue: bounds.end for queue, bounds in self._watch.last_known.items()})

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:
        """How far the next batch goes; `start` itself when there is none."""
        at = from_tree(start)
        there = self._readable(at)
        taken = self._taken({queue: bounds.end - bounds.first for queue, bounds in there.items()}, there, limit)
        ends = {queue: bounds.first + taken[queue] for queue, bounds in there.items()}
        return start if ends == at else offset_tree(ends)

    def partitions(self, start: OffsetTree, end: OffsetTree) -> Sequence[InputPartition]:
        """A task for each queue that goes on, or more of them when asked for."""
        begin = from_tree(start)
        whole = [Range(queue, begin.get(queue, at), at) for queue, at in sorted(from_tree(end).items())]
        there = [each for each in whole if each.size > 0]
        return cut(there, self._options.min_partitions, self._options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        # An empty list of partitions reaches us as one InputPartition(None).
        return read_range(self._options, partition, self._schema) if isinstance(partition, Range) else iter(())

    # What may be read

    def _readable(self, at: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        """From where to where each queue can be read; nothing of new ones, which begin, and of those that are away."""
        seen = self._watch.bounds() if self._target is None else self._target
        there = {queue: Bounds(bounds.first, bounds.first) for queue, bounds in seen.items() if queue not in at}
        for queue, offset in at.items():
            bounds = seen.get(queue)
            if bounds is None:
                there[queue] = self._absent(queue, offset)
            elif bounds.end < offset:
                there[queue] = self._shortened(queue, offset, bounds)
            else:
                there[queue] = self._expired(queue, offset, bounds) if bounds.first > offset else Bounds(offset, bounds.end)
        self._missing.end_round()
        return there

    def _expired(self, queue: MessageQueue, offset: int, bounds: Bounds) -> Bounds:
        lost = Range(queue, offset, bounds.first)
        fault = f"{lost} has expired before it was read: the queue starts at {bounds.first} now"
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{fault}. {ADVICE}")
        log.warning("%s; going on without it", fault)
        return bounds

    def _shortened(self, queue: MessageQueue, offset: int, bounds: Bounds) -> Bounds:
        """The queue ends before what was read: perhaps just at a slave that is behind its master."""
        fault = f"ends at {bounds.end}, and was read up to {offset}"
        if not self._given_up(queue, fault):
            return Bounds(offset, offset)
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{name(queue)} {fault}: it was made anew or has lost messages. {ADVICE}")
        log.warning("%s %s; going on from its end", name(queue), fault)
        return Bounds(bounds.end, bounds.end)

    def _absent(self, queue: MessageQueue, offset: int) -> Bounds:
        """Nobody tells of the queue. Its offset stays, so if it comes back nothing is lost."""
        if self._target is None and self._watch.is_listed(queue):
            return Bounds(offset, offset)  # its broker is away, over which the watch has patience
        fault = f"was read up to {offset}, and is in no route of its topic any more"
        if self._given_up(queue, fault) and self._options.fail_on_data_loss:
            raise DataLoss(f"{name(queue)} {fault}. With option failOnDataLoss=false the others are read on.")
        return Bounds(offset, offset)

    def _given_up(self, queue: MessageQueue, fault: str) -> bool:
        # What is read to its end by availableNow isn't asked for again, so there is nothing to wait for.
        return self._missing.is_over(name(queue), fault) or self._target is not None

    # How much of it is read

    def _taken(self, there: Amounts, places: Mapping[MessageQueue, Bounds], limit: ReadLimit) -> Amounts:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return there
        if self._target is None and self._holds_back(sum(there.values())):
            return dict.fromkeys(there, 0)
        if options.max_offsets_per_trigger:
            there = share(there, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            there = self._within_bytes(there, places, options.max_bytes_per_trigger)
        return there

    def _holds_back(self, count: int) -> bool:
        """Whether to wait for more messages than that. As with Kafka the first batch of a start doesn't."""
        now = self._clock.monotonic()
        since, self._held_since = self._held_since, now
        if since is None or count >= self._options.min_offsets_per_trigger:
            return False
        if now - since >= self._options.trigger_delay_seconds:
            return False
        self._held_since = since
        return True

    def _within_bytes(self, there: Amounts, places: Mapping[MessageQueue, Bounds], limit: int) -> Amounts:
        """Brokers don't tell how many bytes lie between two offsets, so some messages of each queue stand for the others:
        first those at its beginning, then, once it is known how far a batch might go, those half way and at the end, too."""
        some = {queue: count for queue, count in there.items() if count}
        for in_between in (False, True):
            spots = {}
            for queue, count in some.items():
                first = places[queue].first
                spots[queue] = [first, first + count // 2, first + max(count - SAMPLE_COUNT, 0)][: 3 if in_between else 1]
            # A queue that doesn't tell is taken for one of large messages; whether they can be had its task will see.
            sizes = dict.fromkeys(some, float(limit)) | self._watch.sizes(spots)
            some = share_bytes(some, sizes, limit)
        return dict.fromkeys(there, 0) | some
