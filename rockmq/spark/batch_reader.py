"""Batch reads: ranges on planning, Arrow batches in the tasks."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rockmq.base.errors import ConfigError, ConnectError, ProtocolError, RemotingError
from rockmq.protocol.codec import decode_columns
from rockmq.protocol.flags import MessageFlag
from rockmq.protocol.message import INNER, unwrap
from rockmq.spark import cluster, store
from rockmq.spark.options import ReadOptions
from rockmq.spark.pulling import Part, RangePuller
from rockmq.spark.ranges import ADVICE, DataLoss, Range, cut, name, uncut
from rockmq.spark.schema import BrokenBody, Records, decompressed, stored_columns, with_json
from rockmq.spark.tries import Waiting
from rockmq.spark.worker import settle

BATCH_ROWS = 8_192
BATCH_BYTES = 1 << 20
"""A batch takes what has come as soon as it has so many rows or bytes of records."""


class BatchReader(DataSourceReader):
    """Reads what the topics hold at the time of planning."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return list(cluster.run(self._planned()))

    async def _planned(self) -> list[Range]:
        if not self._options.queues:
            # A broker that was away a moment ago isn't in the route now: of a topic nobody could tell what is missing.
            return await self._plan()
        return await Waiting(self._options.timeout).until(self._plan)

    async def _plan(self) -> list[Range]:
        async with cluster.asking(self._options) as origin:
            bounds = await cluster.bounds_of(origin, self._options)
            if not bounds and self._options.topic_pattern:
                raise ConfigError(f"option 'topicPattern': no topic with queues matches {self._options.topic_pattern!r}")
            whole = uncut(bounds, await cluster.resolved(origin, self._options, bounds))
            return cut(
                await self._narrowed(origin, whole), self._options.min_partitions, self._options.max_records_per_partition
            )

    async def _narrowed(self, origin: cluster.Origin, ranges: list[Range]) -> list[Range]:
        """What is left of the ranges by what else is known of the rows that are wanted."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        # An empty list of partitions reaches us as one InputPartition(None).
        return read_range(self._options, partition, self._schema) if isinstance(partition, Range) else iter(())


def read_range(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a range as Arrow batches of some 8,000 rows or 1 MiB, in order. Raises DataLoss, RockMQError."""
    if options.store is not None:
        for part in store.parts(options.store, options, wanted):
            yield from to_batches([part], wanted, options, schema)
        return
    cluster.refuse_static([wanted.queue], "read")  # a checkpoint of before they were refused may name one
    try:
        yield from _pulled(options, wanted, schema)
    except RemotingError as error:
        # It may be only here that a server can't be reached.
        raise ConnectError(f"on {socket.gethostname()}, reading {wanted}: {error}") from error


def _pulled(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The event loop runs only while more is waited for; answers that come meanwhile wait in the socket."""
    with asyncio.Runner() as runner:
        # Not Runner.run: each call of it sets a signal handler, which costs more than the step.
        run = runner.get_loop().run_until_complete
        parts = _parts(options, wanted)
        try:
            while gathered := run(_gather(parts)):
                yield from to_batches(gathered, wanted, options, schema)
        finally:
            run(_close(parts))


async def _parts(options: ReadOptions, wanted: Range) -> AsyncIterator[Part]:
    async with cluster.connected(options) as client:
        puller = RangePuller(
            cluster.pull_from(client, wanted.queue, options),
            wanted,
            batch_size=options.pull_batch_size,
            timeout=options.timeout,
            fail_on_data_loss=options.fail_on_data_loss,
            filtered=options.filtered,
        )
        async for part in puller.parts():
            yield part


async def _gather(parts: AsyncIterator[Part]) -> list[Part]:
    """Parts for one batch; empty at the end."""
    gathered: list[Part] = []
    rows = size = 0
    while rows < BATCH_ROWS and size < BATCH_BYTES and (part := await anext(parts, None)) is not None:
        gathered.append(part)
        rows += part.end - part.start
        size += len(part.records)
    return gathered


def to_batches(parts: list[Part], wanted: Range, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of consecutive parts as Arrow; nothing beyond the range, nothing twice, and no gap unnoticed."""
    data = b"".join([part.records for part in parts])
    stored = stored_columns(schema)
    columns = _needed(stored, options)
    records = _decoded(data, columns, parts[0], wanted)
    if records.any_has(INNER):
        if len(parts) > 1:  # decompressed they may be large
            for part in parts:
                yield from to_batches([part], wanted, options, schema)
            return
        try:
            data = unwrap(data, strict=options.fail_on_data_loss)
        except ProtocolError as error:
            raise ProtocolError(f"a message of {name(wanted.queue)}: {error}. {ADVICE}") from None
        records = _decoded(data, columns, parts[0], wanted)
    if not records.rows:
        return
    batch = records.batch(stored)
    flags = records.integers("sysFlag", pa.int32())
    keep = _kept(records, parts, wanted, options)
    if keep is not None:
        batch, flags = batch.filter(keep), flags.filter(keep)
    if "body" not in stored.names or not records.any_has(MessageFlag.COMPRESSED):
        yield with_json(batch, schema)
        return
    try:
        for plain in decompressed(batch, flags, options.fail_on_data_loss):
            yield with_json(plain, schema)
    except BrokenBody as error:
        where = f"row {error.row} from offset {parts[0].start} on"
        raise ProtocolError(f"a message of {name(wanted.queue)}, {where}: {error}. {ADVICE}") from None


def _needed(stored: pa.Schema, options: ReadOptions) -> list[str]:
    """The columns that the core has to decode: the others of records are left where they are."""
    others = {"queueOffset", "sysFlag"} | ({"tags"} if options.wanted_tags is not None else set())
    return sorted((others | set(stored.names)) - {"broker"})


def _decoded(data: bytes, columns: list[str], first: Part, wanted: Range) -> Records:
    try:
        return Records(decode_columns(data, columns), wanted.queue.broker_name)
    except ValueError as error:
        raise ProtocolError(f"{name(wanted.queue)} from {first.start} on: {error}") from None


def _kept(records: Records, parts: list[Part], wanted: Range, options: ReadOptions) -> pa.Array | None:
    """Which rows belong to the batch; None for all, the ordinary case. Raises DataLoss for a gap."""
    tags = options.wanted_tags
    offsets = records.offsets
    first, end = parts[0].start, min(parts[-1].end, wanted.end)
    if not options.filtered and records.rows == end - first and offsets[0] == first and offsets[-1] == end - 1:
        return None
    found = np.asarray(offsets)
    highest_before = np.concatenate(([first - 1], np.maximum.accumulate(found)[:-1]))
    keep = (found > highest_before) & (found >= first) & (found < end)
    if tags is not None:
        return pa.array(keep & records.tagged(tags).to_numpy(zero_copy_only=False))
    if options.fail_on_data_loss and not options.filtered and np.count_nonzero(keep) != end - first:
        here = found[keep]
        gaps = np.flatnonzero(here != np.arange(first, first + len(here)))
        missing = first + int(gaps[0]) if len(gaps) else first + len(here)
        raise DataLoss(f"{name(wanted.queue)} has no message at offset {missing}, others behind it are there. {ADVICE}")
    return pa.array(keep)


async def _close(parts: AsyncIterator[Part]) -> None:
    await parts.aclose()  # type: ignore[attr-defined]  # an async generator, as which Client's exit needs to end it
