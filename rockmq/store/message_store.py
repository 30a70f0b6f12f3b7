"""The message store: the only door to what is on disk (DefaultMessageStore.java; store spec, 1-5).

Below the root: `commitlog/`, `consumequeue/`, `batchconsumequeue/` and `index/` (the core's), `checkpoint`, `abort`, `lock`,
and `config/` with the documents of whoever owns them. Opening takes the lock, recovers, and only then marks the store as
running with `abort`; closing flushes everything and takes the mark away last, so whatever happens in between is found out at
the next start.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from rockmq import _core
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError, ProtocolError, StoreUnavailable
from rockmq.base.tasks import Tasks
from rockmq.config.broker import Flush
from rockmq.config.broker import Retention as RetentionOptions
from rockmq.config.broker import Store as StoreOptions
from rockmq.store import batch_topics, memory, recovery
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.disk import LOOK_SECONDS, ROOM, DiskWatch, is_full
from rockmq.store.files import AbortMark, StoreLock
from rockmq.store.flush import Flusher
from rockmq.store.get_result import GetResult
from rockmq.store.held import GroupOffsets
from rockmq.store.index import Found, MessageIndex
from rockmq.store.log_places import LogPlaces
from rockmq.store.retention import Retention
from rockmq.store.scrub import Scrub

log = logging.getLogger(__name__)

ENTRY_SIZE = 20
INNER = 4
"""The kind of messages that no producer sends just now (`_core.Store.append`)."""
CHECKPOINT_BYTES = 256 << 20
"""Growth of the log after which queues are forced and the checkpoint is saved before its time: what a start after a kill
has to read, beside what arrives while they are forced."""
FORCE_PAUSE_PER_COST = 20
"""How many times as long as queues took to be forced they aren't because of that growth: 400,000 of them take seconds."""

T = TypeVar("T")


class Put(NamedTuple):
    """Where a message went. `end` is the position behind it, which durability waits for."""

    position: int
    end: int
    queue_offset: int
    watched: bool


class Delivered(NamedTuple):
    """What came of a delay level's messages: where to go on and when (ms; None: nothing is left), the end of the last record
    (0: none), watched (topic, queue id) that got some, and (position, why) of those that can't be delivered."""

    next_offset: int
    end: int
    due: int | None
    arrivals: list[tuple[str, int]]
    passed_over: list[tuple[int, str]]


class MessageStore:
    """A commit log with its consume queues, opened by `start` and closed by `close`.

    `flushed` is told each position that reached the disk, `failed` of a disk error after which nothing more is accepted.
    A disk that is full is no such error: messages are refused (`refusal`) until it has room again.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        retention: RetentionOptions,
        store_host: bytes,
        region: str,
        trace_on: bool,
        cluster: str,
        clock: Clock,
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._options = options
        self._retention_options = retention
        self.root = Path(options.store_path_root_dir)
        self.config_directory = self.root / "config"
        self.log_directories = [Path(each) for each in options.log_directories]
        """Those that get new files."""
        self.store_host = store_host
        self._region = region
        self._trace_on = trace_on
        self._cluster = cluster
        self._clock = clock
        self._flushed = flushed
        self._failed = failed
        self._tasks = Tasks()
        # One thread for slow file work, apart from the loop's own pool, which a blocked disk would fill.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._next_force = 0.0
        self._next_force_position = 0
        self._force_pause_end = 0.0
        self._cramped = False
        self._lock_in_memory = options.lock_log_in_memory
        self.failed = False
        self.is_sync = options.flush_disk_type is Flush.SYNC_FLUSH
        """Whether messages are acknowledged, and seen by consumers, only when they are on disk."""
        self.core: _core.Store
        self._index: MessageIndex | None = None
        self.scrub: Scrub | None = None

    @property
    def readable_limit(self) -> int:
        """The position up to which messages may be read: what a crash could still take away isn't shown to anybody."""
        return self.core.flushed_position if self.is_sync else self.core.max_position

    @property
    def cached_bytes(self) -> int:
        """How far behind the log's end what is read is taken to be in memory still."""
        return memory.size() * self._options.access_message_in_memory_max_ratio // 100

    @property
    def recovered(self) -> tuple[int, int]:
        """(bytes of the log that `start` has read, of so many that it may have to); (0, 0) before."""
        return self.core.recovery if hasattr(self, "core") else (0, 0)

    @property
    def refusal(self) -> str | None:
        """Why no messages are taken now; None when they are."""
        return "the store has failed; see the broker's log" if self.failed else self.disk.refusal

    async def start(self) -> None:
        """Open and recover. Raises ConfigError when the store is in use or can't be opened; cancelled, it ends only when the
        worker has left the store."""
        self.config_directory.mkdir(parents=True, exist_ok=True)
        self._lock = StoreLock(self.root / "lock")
        try:
            self.core = await self._in_worker(self._opened_core)
            await recovery.telling(self._in_worker(self._open), lambda: self.core.recovery)
            self._retention = Retention(self._retention_options, self.core, self.disk, self._clock, self._in_worker)
            await self._retention.bound_topics()
        except BaseException as error:
            # Who gives up waiting doesn't end what the worker has begun, and the lock has to outlast that.
            await asyncio.shield(self._in_worker(self._lock.release))
            if isinstance(error, (_core.StoreError, OSError)):
                raise ConfigError(f"the store {self.root} can't be opened: {error}") from None
            raise
        options = self._options
        if options.transient_store_pool_enable:
            log.warning(
                "transientStorePoolEnable is not needed and does nothing: what a pool holds dies with the process, messages "
                "go straight into the page cache here (docs/adr/0005)"
            )
        self.disk.look()
        self._flusher = Flusher(
            self.core,
            interval_seconds=None if self.is_sync else options.flush_interval_commit_log / 1000,
            flushed=self._flushed,
            failed=self._fail,
        )
        self._next_force = self._clock.monotonic() + options.flush_consume_queue_thorough_interval / 1000
        self._tasks.every(options.flush_interval_consume_queue / 1000, self._maintain, "consume queue flush")
        if self._index is not None:
            self._index.start()
        self._tasks.every(LOOK_SECONDS, self.disk.look, "disk space")
        self._tasks.every(self._retention_options.clean_resource_interval / 1000, self._retention.clean, "retention")
        if options.scrub_bytes_per_second:
            self.scrub = Scrub(
                self.core,
                self.config_directory / "scrub.json",
                options.scrub_bytes_per_second,
                self._clock,
                self._in_worker,
            )
            self._tasks.start(self.scrub.run(), "scrub")

    def _opened_core(self) -> _core.Store:
        options = self._options
        directories = [*options.log_directories, *options.read_only_log_directories]
        places = self.config_directory / "logDirectories.json"
        self._places = LogPlaces(places, directories, options.mapped_file_size_commit_log)
        self._places.check()
        return _core.Store(
            options.log_directories,
            str(self.root / "consumequeue"),
            log_file_size=options.mapped_file_size_commit_log,
            queue_file_size=-(-options.mapped_file_size_consume_queue // ENTRY_SIZE) * ENTRY_SIZE,
            store_host=self.store_host,
            max_message_size=options.max_message_size,
            region=self._region,
            trace_on=self._trace_on,
            cluster=self._cluster,
            append_crc_property=options.enabled_append_prop_crc,
            batch_queue_file_size=options.mapper_file_size_batch_consume_queue,
            light_queues_max=options.max_lmq_consume_queue_num if options.light_queues else 0,
            read_only_log_directories=options.read_only_log_directories,
            delay_levels=options.delay_levels,
        )

    def _open(self) -> None:
        started = time.monotonic()
        options = self._options
        self._abort = AbortMark(self.root / "abort")
        self._checkpoint_path = self.root / "checkpoint"
        self._checkpoint = Checkpoint.load(self._checkpoint_path)
        start = recovery.start(
            self.core.files(), self._checkpoint, was_killed=self._abort.was_there, now=self._clock.now_ms()
        )
        named = batch_topics.to_recover(self.root)
        end, records = self.core.recover(
            start,
            options.check_crc_on_recover,
            by_property=options.force_verify_prop_crc,
            had_queues=self._checkpoint.had_queues,
            had_batch_queues=self._checkpoint.had_batch_queues,
            had_light_queues=self._checkpoint.had_light_queues,
            batch_topics=named.names,
            batch_topics_at=named.at,
        )
        log.info(
            "store %s opened after %s: log from %d to %d, %d records checked in %.1f GiB, %.2f s",
            self.root,
            "a kill" if self._abort.was_there else "a clean stop",
            self.core.min_position,
            end,
            records,
            self.core.recovery[0] / recovery.GIB,
            time.monotonic() - started,
        )
        self._places.note(end)
        self._next_force_position = start + CHECKPOINT_BYTES
        if self.is_sync:
            # A kill leaves records that are only in the page cache. Nobody may see them there; there are few.
            self.core.flush()
        if options.light_queues != self._checkpoint.had_light_queues:
            # Should this be killed, and light queues not be wanted at the next start, that must know of those there are now.
            self.core.flush()
            self._save_checkpoint(*self.core.flush_queues(True))
        if options.message_index_enable:
            self._index = MessageIndex(
                self.core,
                self.root / "index",
                options,
                trusted_until=self._checkpoint.index if self._abort.was_there else None,
                clock=self._clock,
                limit=lambda: self.readable_limit,
                read=self.read,
                sealed=self._index_sealed,
            )
        self.disk = DiskWatch(
            self._retention_options,
            self.log_directories,
            self.root,
            options.mapped_file_size_commit_log + ROOM,
            changed=self._writability_changed,
            retarget=lambda directories: self.core.set_log_targets(list(map(str, directories))),
            has_next_log_file=lambda: self.core.has_next_file,
        )
        self._abort.set()

    def hold_for_groups(self, offsets: GroupOffsets) -> None:
        """Where the groups of retentionGroups are, which deletion waits for."""
        self._retention.hold_for_groups(offsets)

    def delete_expired_files(self) -> None:
        """Have log files that have expired deleted now, whatever the hour."""
        self._retention.delete_expired()

    async def delete_expired_queues(self) -> list[str]:
        """Delete queue files whose messages are gone; the log files that were deleted before, which are none."""
        return await self._in_worker(partial(self.core.delete_files_below, self.core.min_position))

    # Writing

    def set_ordinary(self, topic: str, write_queues: int, multi_tag: bool) -> None:
        """Let connections append plain messages of a topic without asking (see `_core.Lane`)."""
        try:
            self.core.set_ordinary(topic, write_queues, multi_tag)
        except _core.StoreError as error:
            # Its messages are safe there; but Apache's broker wouldn't start on such a store.
            log.error("%s; topics.json says otherwise", error)

    def set_batch(self, topic: str) -> None:
        """Let a topic have batch queues (queue.type=BatchCQ). Raises ConfigError when it has simple ones."""
        try:
            self.core.set_batch(topic)
        except _core.StoreError as error:
            raise ConfigError(f"queue.type=BatchCQ can't be: {error}") from None

    def clear_ordinary(self, topic: str) -> None:
        self.core.clear_ordinary(topic)

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        born_host: bytes,
        born_timestamp: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        light_queues: Sequence[str] = (),
        kind: int = INNER,
    ) -> Put:
        """Append one message as given, into `light_queues` too; it isn't durable yet. It is counted as of `kind`. Raises
        StoreUnavailable, and ProtocolError for properties or names that can't be stored."""
        self._check_refusal()
        try:
            position, size, queue_offset, watched = self.core.append(
                topic,
                queue_id,
                body,
                properties,
                now=self._clock.now_ms(),
                born_host=born_host,
                born_timestamp=born_timestamp,
                flag=flag,
                sys_flag=sys_flag,
                reconsume_times=reconsume_times,
                prepared_transaction_offset=prepared_transaction_offset,
                light_queues=light_queues,
                kind=kind,
            )
        except _core.StoreError as error:
            raise self._unavailable(error) from None
        except ValueError as error:
            raise ProtocolError(str(error)) from None
        return Put(position, position + size, queue_offset, watched)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        born_host: bytes,
        born_timestamp: int,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        kind: int = INNER,
    ) -> tuple[list[int], Put]:
        """Append a client batch, all of it or nothing: (position of each message, the whole). Raises StoreUnavailable,
        and ProtocolError when the batch can't be read."""
        self._check_refusal()
        try:
            positions, end, queue_offset, watched = self.core.append_batch(
                topic,
                queue_id,
                body,
                now=self._clock.now_ms(),
                born_host=born_host,
                born_timestamp=born_timestamp,
                sys_flag=sys_flag,
                reconsume_times=reconsume_times,
                kind=kind,
            )
        except _core.StoreError as error:
            raise self._unavailable(error) from None
        except ValueError as error:
            raise ProtocolError(f"the batch can't be read: {error}") from None
        return positions, Put(positions[0], end, queue_offset, watched)

    def deliver(self, level: int, offset: int, count_max: int, bytes_max: int) -> Delivered:
        """Append the messages of a delay level that are due, and may be read, to where they belong; they aren't durable
        there yet. Looks at `count_max` of them at most, from `offset` on. Raises StoreUnavailable when nothing was done."""
        self._check_refusal()
        now = self._clock.now_ms()
        try:
            return Delivered(
                *self.core.deliver(
                    level, offset, now=now, limit=self.readable_limit, count_max=count_max, bytes_max=bytes_max
                )
            )
        except _core.StoreError as error:
            raise self._unavailable(error) from None

    def transactions(
        self, *, begins: bool, time_out_ms: int, pending_max: int, recent_max: int, op_size_max: int
    ) -> _core.Transactions:
        """A new table of transactions, in which connections begin and end ordinary ones without asking."""
        return _core.Transactions(
            self.core,
            begins=begins,
            time_out_ms=time_out_ms,
            pending_max=pending_max,
            recent_max=recent_max,
            op_size_max=op_size_max,
        )

    def tell_finished(self, table: _core.Transactions) -> tuple[int, bool]:
        """Append op messages of all half messages that are finished and untold: (end of the last one or 0, whether their
        queue is watched). Raises StoreUnavailable."""
        try:
            return table.tell(self._clock.now_ms())
        except _core.StoreError as error:
            raise self._unavailable(error) from None

    def _check_refusal(self) -> None:
        refusal = self.refusal
        if refusal is not None:
            raise StoreUnavailable(refusal)

    def _unavailable(self, error: _core.StoreError) -> StoreUnavailable:
        if is_full(error):
            self.disk.ran_out(error, self._options.mapped_file_size_commit_log + ROOM)
        return StoreUnavailable(self.refusal or str(error))

    def request_flush(self) -> None:
        """Have everything appended so far forced soon."""
        self.core.request_flush()

    async def force(self) -> None:
        """Force everything appended so far. Raises StoreUnavailable when that can't be done."""
        try:
            await self._in_worker(self.core.flush)
        except _core.StoreError as error:
            raise StoreUnavailable(str(error)) from None

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_codes: Iterable[int] | None,
        filter: _core.Filter | None = None,
        reply: tuple[int, int, int, int] | None = None,
    ) -> GetResult:
        """Messages of a queue from `offset` on, as far as they may be read; `filter` and `reply` as for the core's `get`."""
        limit, options = self.readable_limit, self._options
        count_far, bytes_far = options.max_transfer_count_on_message_in_disk, options.max_transfer_bytes_on_message_in_disk
        far = self.cached_bytes, count_far, bytes_far
        return GetResult(*self.core.get(topic, queue_id, offset, count_max, bytes_max, limit, tag_codes, filter, reply, far))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min offset, offset of the next message) of a queue; (0, 0) when nothing was ever put into it."""
        return self.core.queue_bounds(topic, queue_id) or (0, 0)

    def read(self, position: int) -> bytes | None:
        """The stored record at a position, None when no record begins there or it may not be read yet."""
        record = self.core.read(position) if position >= 0 else None
        return record if record is not None and position + len(record) <= self.readable_limit else None

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored (ms), -1 when it isn't there."""
        return self.core.store_timestamp(topic, queue_id, offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool) -> int:
        """The offset in a queue for a time (store spec, 3.6)."""
        return self.core.offset_by_time(topic, queue_id, timestamp, upper)

    async def query(self, topic: str, key: str, count_max: int, begin: int, end: int, *, is_tag: bool) -> Found:
        """Messages by key, or by tags (see `MessageIndex.query`); none when this store keeps no index."""
        if self._index is None:
            return Found([], 0, 0)
        return await self._index.query(topic, key, count_max, begin, end, is_tag=is_tag)

    async def index_reaches(self, position: int) -> bool:
        """Whether `query` finds all that is below a position that may be read by now; False when this store keeps no index.
        Raises StoreUnavailable."""
        return self._index is not None and await self._index.reaches(position)

    def watch(self, topic: str, queue_id: int) -> None:
        """Have the queue's next message reported, once."""
        self.core.watch(topic, queue_id)

    async def delete_queues(self, topic: str) -> None:
        """Forget a topic's queues at once, and delete their files."""
        self.core.forget_queues(topic)

        def delete() -> None:
            self._retention.topic_deleted(topic)
            self.core.delete_forgotten()

        # Who gives up waiting doesn't end it: until it is done nothing is written for a new topic of that name.
        await asyncio.shield(self._in_worker(delete))

    # Upkeep

    async def _maintain(self) -> None:
        """Write queue entries out, make the next log file ready, and from time to time force queues and checkpoint."""
        if self.failed:
            return
        try:
            await self._in_worker(self._write_queues)
        except (_core.StoreError, OSError) as error:
            # Entries that found no room stay in memory, where readers find them; no more come while messages are refused.
            if is_full(error):
                self.disk.ran_out(error)
            else:
                self._fail(error)

    def _write_queues(self) -> None:
        began = self._clock.monotonic()
        has_grown = self.core.max_position >= self._next_force_position and began >= self._force_pause_end
        force = has_grown or began >= self._next_force
        position, stored = self.core.flush_queues(force)
        if force:
            ended = self._clock.monotonic()
            self.core.flush()  # or the checkpoint would lag by what async flush hasn't forced yet
            self._next_force = ended + self._options.flush_consume_queue_thorough_interval / 1000
            self._force_pause_end = ended + FORCE_PAUSE_PER_COST * (ended - began)
            self._next_force_position = position + CHECKPOINT_BYTES
            self._save_checkpoint(position, stored)
        self._places.note(self.core.max_position)
        self._prepare_next_file()

    def _prepare_next_file(self) -> None:
        options = self._options
        size = options.mapped_file_size_commit_log
        if self.core.max_position % size > size // 2:
            try:
                if self.disk.has_log_room():
                    self.core.prepare_next_file()
                    self._cramped = False
                elif not self._cramped:
                    self._cramped = True
                    directories = " or ".join(map(str, self.log_directories))
                    log.error("the disk of %s has no room for the log's next %d bytes", directories, size)
            except _core.StoreFull as error:
                # Somebody else was quicker. The file in use isn't full yet, so messages may still be taken.
                log.warning("the log's next file can't be made ready: %s", error)
        try:
            # Read ahead, a file lies in memory in large pages, and a force writes all of a page that was touched (ADR 0009).
            self.core.tend_files(
                options.data_read_ahead_enable, self.is_sync, options.warm_maped_file_enable, self._lock_in_memory
            )
        except _core.StoreError as error:
            self._lock_in_memory = False
            log.warning("lockLogInMemory is given up: %s; is the limit of locked memory too low?", error)

    def _save_checkpoint(self, position: int, logics: int) -> None:
        # The core knows no time before it has read or stored a record. What the checkpoint said is on disk all the same, and
        # without times Apache's broker would read the whole log.
        self._checkpoint.physic = self.core.forced_until or self._checkpoint.physic
        self._checkpoint.logics = logics or self._checkpoint.logics
        self._checkpoint.position = min(position, self.core.flushed_position)
        self._checkpoint.had_queues = self.core.has_queues
        self._checkpoint.had_batch_queues = self.core.has_batch_queues
        self._checkpoint.had_light_queues = self._options.light_queues
        self._checkpoint.save(self._checkpoint_path)

    async def _index_sealed(self, timestamp: int) -> None:
        def save() -> None:
            self._checkpoint.index = timestamp
            self._checkpoint.save(self._checkpoint_path)

        await self._in_worker(save)

    def _writability_changed(self) -> None:
        self.core.set_writable(self.refusal is None)

    def _fail(self, error: BaseException) -> None:
        """Accept nothing more: an acknowledgement could be a lie from here on."""
        if self.failed:
            return
        self.failed = True
        self._writability_changed()
        log.critical("the store %s failed and takes no more messages", self.root, exc_info=error)
        self._failed(error)

    async def close(self) -> None:
        """Flush everything and release the store. If that can't be done `abort` stays, so the next start checks the log."""
        await self._tasks.close()
        if self.scrub is not None:
            await self.scrub.save()
        self.core.set_writable(False)  # what comes from now on is refused, since nobody would answer it
        await self._flusher.close()
        if self._index is not None:
            await self._index.close(complete=not self.failed)
        if not self.failed:
            try:
                await self._in_worker(self._close_core)
                self._abort.clear()
            except (_core.StoreError, OSError) as error:
                if is_full(error):
                    log.error("the store %s is left as if killed, the next start repairs it: %s", self.root, error)
                else:
                    self._fail(error)
        self._worker.shutdown(wait=True)
        self._lock.release()

    def _close_core(self) -> None:
        try:
            self._places.note(self.core.max_position)
            self._save_checkpoint(*self.core.flush_queues(True))
        finally:
            self.core.close()

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(work))
