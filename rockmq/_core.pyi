"""The native core: what happens once per message, and nothing else.

The core knows buffers, files and sockets it is handed. It decides no policy, and knows no Python class of ours that it isn't
handed. Times are milliseconds since the epoch and always handed in; the core never asks a clock. A *position* is a physical
offset in the commit log, an *offset* an index in a consume queue. A *host* is the wire form of an address: 4 or 16 bytes of
IP and a big-endian 32-bit port, so 8 or 20 bytes.

Only `rockmq.protocol.codec`, `rockmq.remoting` and `rockmq.store` import this module.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, final

from typing_extensions import Buffer

M = TypeVar("M")

__version__: str

class StoreError(Exception):
    """A store directory that can't be opened or a file operation that failed; the text names the file."""

class StoreFull(StoreError):
    """A write found no room on its disk; the text names the file. What was there before is as it was."""

Command: TypeAlias = tuple[
    int,  # code of the request or response
    str,  # language, by its name ("JAVA", "GO", …; "OTHER" when unknown)
    int,  # version ordinal of the sender
    int,  # opaque
    int,  # flag: bit 0 response, bit 1 one-way
    int,  # serializer: 0 JSON, 1 ROCKETMQ
    str | None,  # remark
    dict[str, str],  # extFields; numbers and booleans given as text, null dropped; empty when there are none
    bytes,  # body, empty when there is none
]
Fed: TypeAlias = tuple[
    bytes,  # encoded replies of the ordinary sends and decisions in this chunk, back to back
    int,  # the position behind the last record appended by this chunk; 0 when it appended none
    list[Command],  # every frame the lane didn't answer itself, in order of arrival
    list[tuple[str, int]],  # watched (topic, queue id) that got messages from this chunk
    str | None,  # why the connection must be closed (a frame that can't be trusted), or None
]
Record: TypeAlias = tuple[
    int,  # total size in bytes
    int,  # body CRC as stored
    int,  # queue id
    int,  # flag
    int,  # queue offset
    int,  # position
    int,  # sysFlag
    int,  # born timestamp
    bytes,  # born host
    int,  # store timestamp
    bytes,  # store host
    int,  # reconsume times
    int,  # prepared transaction offset
    bytes,  # body as stored
    str,  # topic
    bytes,  # properties text
]
Text: TypeAlias = tuple[bytes | None, bytes, bytes]
"""An Arrow string or binary column: validity bitmap (None: no nulls), int32 offsets (n + 1), data."""

Column: TypeAlias = tuple[Buffer | None, Buffer, Buffer | None, int]
"""As Text, and the number of its first row: an Arrow column may be a piece of another one."""

Ranges: TypeAlias = tuple[int, list[int]]
"""A histogram: the sum of what was seen, and how often it was in each of 7 ranges, the last one without a bound."""

TopicTraffic: TypeAlias = tuple[
    str | None,  # topic; None for those that are counted together
    list[tuple[int, int, int, Ranges]],  # kind, messages, bytes, sizes (1 KiB, 4 KiB, 512 KiB, 1 MiB, 2 MiB, 4 MiB)
    tuple[int, int, Ranges] | None,  # transactions committed, rolled back; s to the commit (5, 60, 600, 1 h, 12 h, 24 h)
]

Fault: TypeAlias = tuple[
    str,  # kind: "record", "crc", "torn", "tail", "unreadable", "queue entry", "queue missing", "queue file", "index …"
    str,  # path of the file
    int,  # byte of the file
    int,  # bytes of the log, or entries, that have it
    str,  # what was expected
    str,  # what was found
    tuple[str, int] | None,  # (topic, queue id) if it is known
]
"""Something in a store that isn't as it should be. Calls that give faults give at most 1000, and how many more there are."""

@final
class Slice(Buffer):
    """A read-only piece of a mapped log file, by the buffer protocol; the mapping lives as long as the slice."""
    def __len__(self) -> int: ...

Operand: TypeAlias = str | int | float | bool | list[str] | None
Instruction: TypeAlias = tuple[str, Operand]

@final
class Filter:
    """A program that says whether a message is wanted by its properties (rockmq/filter/sql.py).

    It works on a stack. Instructions: `property` (operand: its name) and `constant` push; `=`, `<`, `<=`, `>`, `>=`, `and`
    and `or` take two values, `between` and `not between` three; `in` (a list of texts), `contains`, `startswith`, `endswith`
    and these with `not ` before (a text), `negate`, `not` and `condition` (what a property says as a condition) take one.
    `and skip` and `or skip` (a count) jump over as many instructions if what is on top decides. One value has to be left.
    ValueError for a program that can't run.
    """

    def __init__(self, program: Sequence[Instruction]) -> None: ...
    def matches(self, properties: Buffer) -> bool:
        """Whether it is true for a message with this properties text: neither false, nor null, nor an error."""

@final
class Store:
    """A commit log and its consume queues, which follow it in log order.

    The log's files are in `log_directories`, which are made, and in `read_only_log_directories`, which have to be there and
    get no new ones; they are named by their first position in 20 digits and all `log_file_size` long.
    `queue_file_size` is in bytes and a multiple of 20. Batch queues lie in `batchconsumequeue` beside `consume_queue`, in
    files of `batch_queue_file_size`, a multiple of 46. `store_host` is the advertised address stamped on records.
    Raises StoreError when the directories can't be used: a file of another size, a gap between files, two of one position.
    Opening reads names and sizes only; call `recover` before anything else. With `append_crc_property` each record gets a
    CRC of the whole of it as its last property. With `light_queues_max` there may be so many light queues, topics `%LMQ%…`
    with one queue each, that messages may be in too; without, recovery keeps those that are there and makes no others.
    `delay_levels` are the milliseconds that each delay level means: entries of SCHEDULE_TOPIC_XXXX whose records say a level
    (property DELAY) have the time they are due at as their tags code.
    """

    def __init__(
        self,
        log_directories: list[str],
        consume_queue: str,
        *,
        log_file_size: int,
        queue_file_size: int,
        store_host: bytes,
        max_message_size: int,
        region: str,
        trace_on: bool,
        cluster: str,
        append_crc_property: bool = False,
        batch_queue_file_size: int = 13_800_000,
        light_queues_max: int = 0,
        read_only_log_directories: Sequence[str] = (),
        delay_levels: Sequence[int] = (),
    ) -> None: ...
    def files(self) -> list[tuple[int, int]]:
        """(first position, store timestamp of its first record, or -1 when that isn't a valid record) of each log file.

        A file made ahead by `prepare_next_file` isn't among them before it is used. Releases the GIL.
        """
    def recover(
        self,
        start: int,
        check_crc: bool,
        *,
        by_property: bool = False,
        had_queues: bool = True,
        had_batch_queues: bool = False,
        had_light_queues: bool = False,
        batch_topics: Sequence[str] = (),
        batch_topics_at: int | None = None,
    ) -> tuple[int, int]:
        """Find the end of the log by scanning from `start`, and make the queues agree with it.

        Below `start`, a file's first position or a place where a record ends, everything is on disk, in log and queues. A
        log that doesn't reach up to there any more is a StoreError that says what to do, and nothing was changed then.

        Every record is put again into its queue (a put that is already there changes nothing). The scan ends at the first
        record that isn't whole: wrong magic, size, position or CRC; the CRC is that of the body, or with `by_property` the
        one of the whole record in its property `__CRC32#`, which has to be there. What lies behind is removed from disk:
        log bytes are zeroed, later log files deleted, queue entries at or behind the end zeroed. Returns (end position,
        records seen). Releases the GIL.

        An entry that is there already keeps its tags code. Entries that point below `start` are trusted, the others
        follow the scan, and a queue ends behind the record of it that was put last. Where queues have lost entries below
        `start` that the log still has, the scan begins earlier, but the log doesn't end there. So it does where no queue
        of a kind is there at all that there was when `start` was on disk (`had_queues`, `had_batch_queues`). A hole that is
        left gets pre-blank entries. Light queues that have no directory are made if the store has some (`light_queues_max`),
        or had (`had_light_queues`). What was scanned isn't flushed yet.

        Which topics have batch queues, directories tell, and `batch_topics`, those of a document. Where there is no
        directory for batch queues, so do inner batches stored at or after `batch_topics_at` (ms), the time that the document
        is of: topics that it doesn't name were deleted before. Without that time all do.
        Once per store: StoreError the second time, ValueError when `start` is below the log.
        """
    @property
    def recovery(self) -> tuple[int, int]:
        """(bytes of log that `recover` has read, of so many that it may have to); (0, 0) before. Never waits."""
    def close(self) -> None:
        """Flush log and queues, drop the maps, delete a prepared file that was never used. Idempotent.

        Slices stay readable. A flush that fails is raised after all else is closed. Releases the GIL.
        """

    # What the lane may do by itself
    def set_ordinary(self, topic: str, write_queues: int, multi_tag: bool) -> None:
        """Let lanes append plain messages of `topic` to queues 0 … write_queues - 1 without asking.

        Topics that start with %RETRY% or %DLQ% are never ordinary. ValueError for a topic that can't name a directory,
        StoreError for one that has batch queues.
        """
    def clear_ordinary(self, topic: str) -> None: ...
    def set_batch(self, topic: str) -> None:
        """Let `topic` have batch queues, of which a directory tells from now on: a unit for each record, which may be an
        inner batch of many messages. It is never ordinary. StoreError when it has simple queues.
        """
    def set_log_targets(self, directories: list[str]) -> None:
        """Have new log files made in these directories in turn, file n in number n mod their count; at first they are all of
        `log_directories`. A file that was made ahead stays where it is. An append that found no room is tried again.
        ValueError for none."""
    def set_writable(self, writable: bool) -> None:
        """False makes every lane hand all sends to Python, and `append` raise StoreError.

        An append that found no room does the same by itself, and every later one raises the same StoreFull without
        trying; True lets them try again.
        """

    # Appending
    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        now: int,
        born_host: bytes,
        born_timestamp: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        light_queues: Sequence[str] = (),
        kind: int = 4,
    ) -> tuple[int, int, int, bool]:
        """Append one record as given: (position, size, queue offset, whether the queue is watched).

        V2 when the topic is over 127 bytes; host bits of sysFlag are set here. Prepared and rollback records (sysFlag bits
        0xC = 4 or 12) get queue offset 0 and no queue entry. Properties are stored as given; they may not begin or end in a
        zero byte nor hold 16 in a row, which is how recovery knows a torn record. ValueError names a bad argument,
        StoreError a file; nothing is appended then. The body's size isn't checked against `max_message_size`, only against
        the file's.

        An inner batch (both bits of sysFlag 0xC0), for a topic with batch queues only, has INNER_NUM among its properties,
        and gets INNER_BASE behind them: its queue offset, from which the next one's differs by INNER_NUM.

        `light_queues` are names `%LMQ%…` of queues that get an entry too, as INNER_MULTI_DISPATCH among the properties says;
        INNER_MULTI_QUEUE_OFFSET comes behind those, with the offset in each. One with a `/` has offset 0 and no queue, one
        that comes twice has one entry. Then the whole record is no longer than `max_message_size`. Whether these queues are
        watched isn't told.

        `kind` is what it is counted as, by its topic, if its queue got it: as 0 normal, 1 fifo, 2 delay, 3 transaction
        messages of producers, or as 4 what the broker itself stores. ValueError for another.
        """
    def append_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        now: int,
        born_host: bytes,
        born_timestamp: int,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        kind: int = 4,
    ) -> tuple[list[int], int, int, bool]:
        """Append a client batch body: (positions, end position, first queue offset, watched). ValueError names a bad field.

        All or nothing: the batch goes into one file, and nothing is appended when a part of it is malformed.
        """

    def deliver(
        self, level: int, offset: int, *, now: int, limit: int, count_max: int, bytes_max: int
    ) -> tuple[int, int, int | None, list[tuple[str, int]], list[tuple[int, str]]]:
        """Append once more, where they say they belong (REAL_TOPIC, REAL_QID), the messages of a delay level that are due.

        They are found in queue `level - 1` of SCHEDULE_TOPIC_XXXX from `offset` on, as far as their records end at or below
        `limit`; at most `count_max` entries are looked at, and about `bytes_max` of records appended. A message is due when
        its entry says so, and at once if that is further off than the level means. Properties stay as they are.

        (offset to go on with, end of the last record appended or 0, when to go on or None when nothing is left, watched
        (topic, queue id) that got messages, (position, why) of messages that can't be delivered and are passed over.)
        StoreError, as of `append`, when nothing could be done; what was done before an error counts. Releases the GIL.
        """

    # Durability
    @property
    def min_position(self) -> int: ...
    @property
    def max_position(self) -> int:
        """Where the next record goes."""
    @property
    def flushed_position(self) -> int: ...
    @property
    def appended(self) -> tuple[int, int]:
        """(messages, bytes) appended since the store was opened."""
    def note_end(self, topic: str, is_committed: bool, seconds: int) -> None:
        """Count the end of a transaction for `topic` that no lane ended, so many seconds after its beginning."""
    def traffic(self, begin: int, count_max: int) -> list[TopicTraffic]:
        """What producers sent by topic since the store was opened, of the topics numbered `begin` and up, with what delay
        levels delivered. Number 0 are all those over a bound of 50,000; the others have numbers without gaps, in any order,
        and keep them until one is deleted.
        """
    @property
    def delivered(self) -> tuple[int, int]:
        """(messages, bytes) of delay levels that `deliver` has stored where they belong."""
    @property
    def taken(self) -> int:
        """Requests that lanes have answered themselves."""
    def take_arrivals(self, count_max: int) -> list[tuple[str | None, int, int]]:
        """(topic, messages, bytes) that came to the queues of topics since this was called last, whoever stored it; of
        `count_max` topics at most, so call it until there is nothing. The topic is None for all those over the bound of
        `traffic`. What light queues get beside counts for the message's topic alone."""
    @property
    def forced_until(self) -> int:
        """Store timestamp (ms) of the last record when `flush` was last called, 0 before."""
    def request_flush(self) -> None:
        """Have the Flusher call `flush` soon."""
    def flush(self) -> int:
        """Force the log to disk up to where it was on entry and return that position.

        Releases the GIL; one caller at a time. After one failure every later call fails: the kernel may have
        dropped the pages that it couldn't write.
        """
    def flush_queues(self, force: bool) -> tuple[int, int]:
        """Write queue entries held in memory to their files: all when `force`, which fsyncs them as well; otherwise of more
        than 2,048 queues those that have waited longest. What comes back with `force` is (position, store timestamp) such
        that the queue entries of all records below that position are on disk; the timestamp is that of the last record
        below, 0 when recovery has seen none. Releases the GIL; one caller at a time. What failed is tried again by the next
        call; it is StoreFull when a file had no room, but never for a failed fsync. Also lets go of the tails of queues
        that have been idle for 8 calls, so call it about every second.
        """
    def prepare_next_file(self) -> bool:
        """Create and map the file behind the last one if it isn't there; True when it was made. Releases the GIL."""
    @property
    def has_next_file(self) -> bool:
        """Whether the log goes on in a file that is made already, as of `prepare_next_file`."""
    def tend_files(self, read_ahead: bool, sparing: bool, warm: bool, lock: bool) -> None:
        """Tell the kernel how log files are used: whether they are read ahead; with `sparing` not so the file written now
        and the one made ahead, which then lie in memory in small pages; `warm` brings the file made ahead into memory;
        `lock` keeps it and the file written now there (StoreError when the process may not). Call it from time to time:
        files that have come since are told then, and full ones are unlocked. Releases the GIL.
        """
    def delete_files_below(self, position: int) -> list[str]:
        """Delete log files that end at or below `position` (never the last), raise queue minima to match; their paths.

        Queue files wholly below their queue's minimum are deleted too. A file that can't be deleted stays in the log, with
        all that follow. Releases the GIL.
        """

    def count_bytes(self, start: int, end: int) -> list[tuple[str, int]]:
        """(topic, bytes of its records between two positions) as far as queues lead to them. Releases the GIL."""
    def raise_min(self, topic: str, position: int) -> None:
        """Let the queues of `topic` begin with their first message at or above `position`, until the store is opened again.
        What is on disk stays until the log that it leads to is gone. Releases the GIL.
        """
    @property
    def lowest_position(self) -> int:
        """The lowest position that a queue leads to, or lower; the log's end when all are empty. Releases the GIL."""

    # Reading
    def scrub(self, position: int, bytes_max: int) -> tuple[int, list[Fault], int]:
        """Check the records from `position` on, some `bytes_max` of log: (where to go on, faults, how many more).

        Only files before the one written now are read; where to go on is `position` (or the log's first, if that is
        behind it) when there is none. Pages that weren't in memory aren't afterwards either. Releases the GIL.
        """
    @property
    def has_queues(self) -> bool:
        """Whether there is a simple queue."""
    @property
    def has_batch_queues(self) -> bool: ...
    def queues(self) -> list[tuple[str, int, int, int]]:
        """(topic, queue id, min offset, max offset) of every queue that exists."""
    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """(min offset, max offset = next offset to be written), None when the queue doesn't exist."""
    def forget_queues(self, topic: str) -> None:
        """Forget the queues of `topic`; what is appended to it from now on begins anew.

        Its records stay in the log: a recovery that scans them puts them into queues again, until a newer life of the topic
        has taken the same offsets.

        Its files go with `delete_forgotten` or the next `flush_queues`; until then what is appended to it stays in memory.
        """
    def delete_forgotten(self) -> None:
        """Delete the files of all topics that were forgotten; those that can't be deleted yet stay. Releases the GIL."""
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        bytes_max: int,
        limit: int,
        tag_codes: Iterable[int] | None,
        filter: Filter | None = None,
        reply: tuple[int, int, int, int] | None = None,
        far: tuple[int, int, int] | None = None,
    ) -> tuple[int, int, int, int, int, list[bytes | Slice], int]:
        """Read messages from `offset` on: (status, next offset, min offset, max offset, count, buffers, behind). `behind`
        are the bytes from the last record that was examined to the log's end; 0 when none was.

        Only records that end at or below position `limit` are seen; the first one behind it is the queue's end for this
        call. At most `count_max` messages and `bytes_max` bytes, but always one message. `tag_codes` are Java hash codes
        of tags, None takes everything; where Apache's extension has the code of an entry, its record tells the tags. Of what
        they take, `filter` takes the messages that it matches. At most max(800, count_max) entries are examined, fewer when
        the filter takes long, but always one. Status values are those of `rockmq.store.GetStatus`. Neighbouring records come
        as one buffer; short runs are copied together, long ones (from
        16 KiB) are slices of the mapped file. The max offset returned is the queue's end for this call. Entries without a
        record (pre-blank, zero, or pointing at something else) are passed over like removed messages.

        With `far` = (distance, count_max, bytes_max) an answer doesn't go on with a message that is further than `distance`
        bytes behind the log's end if that makes it more than `count_max` messages, or `bytes_max` bytes.

        With `reply` = (serializer, opaque, broker id to suggest, the one to suggest instead when `behind` is over the
        distance of `far`) the buffers are a whole response to a pull when there are messages.

        Of a batch queue records go out whole: the first may begin before `offset`. Each counts as its messages.
        """
    def entries(self, topic: str, queue_id: int, offset: int, count_max: int, limit: int) -> list[tuple[int, int, int, int]]:
        """(offset, position, size, tags code) of the entries of a queue from `offset` on, `count_max` at most, as far as
        records end at or below `limit`. Of a batch queue each is a record, with the offset of its first message.

        Releases the GIL.
        """
    def read(self, position: int) -> bytes | None:
        """The whole record at `position`, None when there is none (checked: magic, size, embedded position)."""
    def first_timestamp(self) -> int | None:
        """When the log's first record was stored, None when there is none (checked as by `read`)."""
    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message was stored; -1 when it isn't there."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, upper: bool) -> int:
        """The queue offset for a time by the rules of Apache 5.x: LOWER (upper=False) is the first message stored at or
        after it, or the queue's end; UPPER the last one stored at or before it, or the queue's beginning; 0 without a queue.
        In a batch queue it is the first message of a record; and LOWER of a time behind all is that of the last record.
        """
    def watch(self, topic: str, queue_id: int) -> None:
        """Report this queue's next arrival once (in `Fed` or by `append`); reporting ends the watch. The queue needn't
        exist yet, and doesn't begin to by this."""

@final
class Index:
    """The index files of a store's log: from the hash of a key to the positions of messages, byte for byte Apache's.

    They follow the log by `catch_up` only; appending notes hashes in memory while an Index is open. A message has an entry
    for its unique key, for each of its keys and for its tags, unless it is a rollback record. `slots` and `entries` are
    maxHashSlotNum and maxIndexNum.
    """

    def __init__(self, store: Store, directory: str, *, slots: int, entries: int, trusted_until: int | None) -> None:
        """Take up the files in `directory`, for a store that was recovered; the log is read from the last entry on.

        Deleted, with all behind it, is a file of another size, one whose header its entries contradict, and one that leads
        behind the log's end. After a crash `trusted_until` is the checkpoint's index timestamp, and what isn't full or ends
        after it is deleted too; None after a stop in order. ValueError for sizes that no file can have.
        """
    @property
    def position(self) -> int:
        """Everything in the log below it is in the index. Never waits."""
    @property
    def sealed_until(self) -> int:
        """End timestamp of the last file that `catch_up` has found or made full and forced, 0 before. Never waits."""
    def catch_up(self, limit: int, bytes_max: int, name: str) -> None:
        """Put the messages below `limit`, the end of a record: those whose hashes are noted at once, others by reading some
        `bytes_max` of log at most.

        `name` is the local time as yyyyMMddHHmmssSSS, for a file that is begun (or the number after the last file's). A full
        file is forced when the next one begins. After an error, which loses nothing, a later call goes on. Where an old log
        file holds no record, the rest of the file is passed over. Releases the GIL.
        """
    def find(
        self, topic: str, key: str, *, is_tag: bool, count_max: int, begin: int, end: int
    ) -> tuple[list[int], int, int]:
        """(positions, newest first; end timestamp and end position of the newest file, 0 without one).

        Of messages whose key has this one's hash, stored between `begin` and `end` as far as seconds tell. With `is_tag`, of
        messages with these tags. Releases the GIL.
        """
    def delete_below(self, position: int) -> list[str]:
        """Delete the files whose last entry leads below `position` (never the newest file); their paths.

        Releases the GIL.
        """
    def close(self) -> None:
        """Force the files; `catch_up` raises from then on. Idempotent. Releases the GIL."""

@final
class Timers:
    """The wheel of timers and its log, byte for byte Apache's: what is in the queue 0 of rmq_sys_wheel_timer, by time.

    A slot is `step_ms` of time (times are rounded down to it); a message due in more than `window` slots is put into an
    earlier one, to be stored anew. `file_size` is mappedFileSizeTimerLog. StoreError for files that can't be read or
    written, StoreFull for a disk without room; nothing has changed then.
    """

    def __init__(self, store: Store, wheel: str, log_directory: str, *, file_size: int, step_ms: int, window: int) -> None:
        """Read the files, of a store that was recovered. Nothing is written."""
    def recover(self, flushed: int, read_time: int) -> tuple[int, int | None, bool]:
        """Find the log's end from `flushed` on, where it was forced, and bring the wheel to it: (end, offset behind the
        message of the last unit, None when that isn't known; whether they agree). If they don't, `remake` them.

        Files that don't make one log are deleted. Units whose messages the commit log has lost are cut off. What was before
        `read_time` isn't pending. Releases the GIL.
        """
    def late(self, read_time: int) -> int | None:
        """Find the messages that came late and wait in slots from `read_time` on: the earliest time one of them was due,
        None without any. `enqueue` doesn't take them for delivered then. Releases the GIL."""
    def remake(self) -> None:
        """Empty wheel and log; the messages are to be given units again. Releases the GIL."""
    def enqueue(
        self, offset: int, count_max: int, limit: int, *, read_time: int, write_time: int, delivered: tuple[int, int]
    ) -> tuple[int, int, int, list[tuple[str, int]]]:
        """Give the messages from `offset` on units in the wheel, of records that end at or below `limit`: (where to go on,
        how many, how many say no time, by topic how many more are pending).

        What is late goes into the slot of `read_time`, which is read next. Of `delivered` = (offset, time), messages below
        the offset that were due before the time are passed over, but not those that `late` found. Stops at one that the
        wheel has no slot for yet. Releases the GIL.
        """
    def look_ahead(self, offset: int, end: int, limit: int) -> None:
        """Before messages `offset` to `end` are read again: find those that were stored anew, of which `enqueue` gives only
        the last copies units. Releases the GIL."""
    def count(self, time: int) -> int:
        """Messages of a slot; one that deletes another counts -1."""
    def count_between(self, from_time: int, to_time: int) -> int | None:
        """Messages of the slots from `from_time` to below `to_time`; None while another thread is at work on the wheel."""
    def next_time(self, from_time: int, to_time: int) -> int:
        """The first time of a slot that isn't empty, or `to_time`."""
    def open_slot(self, time: int) -> tuple[int, bool]:
        """Hand out the messages of a slot: (units, whether the log has all of them). Releases the GIL."""
    def due(self, count_max: int, bytes_max: int) -> tuple[list[tuple[bytes, int, bool]], bool, int, list[tuple[str, int]]]:
        """The next messages of the slot that is open, in order: (record, time when it came to the wheel, whether it is to be
        stored anew), without those that others delete; whether these are the last; how many the commit log hasn't got any
        more; and by topic how many more are pending than was counted. Releases the GIL."""
    def give_back(self, undelivered: int, write_time: int) -> None:
        """Leave in the open slot only what wasn't handed out, and the last `undelivered` of what was. Releases the GIL."""
    def erase(self, from_time: int, to_time: int) -> None:
        """Make slots empty. Releases the GIL."""
    def flush(self) -> int:
        """Force the log, write the wheel behind it, and force that: where the log ended. What failed is tried again by the
        next call. Releases the GIL."""
    def delete_below(self, position: int) -> list[str]:
        """Delete log files (never the last) all of whose messages are below a position of the commit log; their paths.
        Releases the GIL."""

def pending_timers(
    wheel: str, log_directory: str, file_size: int, step_ms: int, from_time: int, count_max: int
) -> tuple[list[tuple[int, int, int, int, int]], int]:
    """(time of the slot, position, size, when it came to the wheel, flags: 2 is stored anew, 4 deletes) of units from a time
    on, and how many more there are. For a store that nobody has open; writes nothing. Releases the GIL."""

@final
class LogReader:
    """Reads the records of a log that nobody need have opened; writes nothing. A bad sector is a fault, not an end."""

    def __init__(self, directories: list[str], *, file_size: int) -> None: ...
    def read(
        self, position: int, to: int, *, bytes_max: int, topic: str | None = None, queue_id: int | None = None
    ) -> tuple[int, bool, list[Record], list[Fault], int]:
        """Records of one log file from `position` on, until one ends at or behind `to`: (where to go on, whether nothing
        is behind that in the file, records, faults, how many more faults).

        Only those of the topic and queue, if given; about `bytes_max` of them, found in 64 MiB of log at most. `position`
        is a record's, or a file's first. Where no record is, the next one in the file is searched for. Releases the GIL.
        """

@final
class QueueReader:
    """Reads one queue of a store that nobody need have opened; writes nothing.

    `queues` is the directory of all simple queues, or of all batch queues if `is_batch`, and `queue_file_size` the size of
    their files. Log files are read, not mapped, and pages that weren't in memory before are let go of. StoreError for a file
    that can't be read. Everything releases the GIL.
    """

    def __init__(
        self,
        log_directories: list[str],
        queues: str,
        topic: str,
        queue_id: int,
        *,
        log_file_size: int,
        queue_file_size: int,
        is_batch: bool,
    ) -> None: ...
    def bounds(self, log_min: int, limit: int) -> tuple[int, int]:
        """The offset of the first message at or above position `log_min`, and the one behind the last message whose record
        ends at or below `limit`; the same twice when there is none."""
    def offset_by_time(self, timestamp: int, begin: int, end: int) -> int:
        """The first of begin … end - 1 that was stored at that time or later, `end` if none was. In a batch queue it is the
        first message of a record, or `begin`. What has no log file counts as stored long ago, and what lies behind the log's
        end as not yet. StoreError for a place where another record is, or none."""
    def hold(self, offset: int, end: int) -> None:
        """Open the log files that have these messages (the first 256 of them), so that they may be deleted meanwhile."""
    def read(
        self,
        offset: int,
        end: int,
        *,
        count_max: int,
        bytes_max: int,
        tag_codes: Sequence[int] | None = None,
        filter: Filter | None = None,
    ) -> tuple[int, bytes, list[str], int | None]:
        """(where to go on, whole records, faults, position of a record whose log file isn't there).

        At most `count_max` entries of the queue are looked at, and about `bytes_max` of records are given, of those that
        `tag_codes` and `filter` take, as for `Store.get`. Each record is checked: its size and position, topic, queue and
        offset, the CRC of its body and, if it has one, of the whole. One that fails is left out and told in `faults` by file
        and byte. Entries without a record are passed over. Where to go on is `offset` when the queue has nothing there, and
        the record whose log file isn't there. Of a batch queue records are given whole.
        """

@final
class Check:
    """Checks that a store's log is whole and that queues and index agree with it; writes nothing.

    `index_layout` is (maxHashSlotNum, maxIndexNum), None to leave the index out. `min` is the log's first position. With
    `behind` the store's owner is at work: what leads there or further is of a time after the check began.
    Memory doesn't grow with the log, apart from a name and some numbers for each queue, and 4 bytes for each index slot.
    `delay_levels` as for `Store`; a time that other levels would give is no fault.
    """

    def __init__(
        self,
        log_directories: list[str],
        consume_queue: str,
        index: str,
        *,
        log_file_size: int,
        queue_file_size: int,
        batch_queue_file_size: int,
        index_layout: tuple[int, int] | None,
        min: int,
        behind: int | None,
        delay_levels: Sequence[int] = (),
    ) -> None: ...
    def step(self, position: int, to: int) -> tuple[int, bool, int, list[Fault], int]:
        """Check the records of one log file from `position` on, until one ends at or behind `to`, and what leads to them:
        (where to go on, whether nothing is behind that in the file, records, faults, how many more faults).

        StoreError for a file that can't be opened. Releases the GIL.
        """
    def finish(self) -> tuple[tuple[int, int, int, int], list[Fault], int]:
        """The log has ended: check what no record has claimed. (queues, their entries, index files, their entries), faults,
        how many more. Releases the GIL.
        """

@final
class Rebuild:
    """Makes queues and index anew from a log, in directories of their own; the log and the old ones are only read.

    Tags codes that the log doesn't tell (extension addresses, due times by other delay levels) are taken over from `queues`.
    Queues of which the log has no record any more are taken over, as they alone tell the offset to go on at. Which topics
    have batch queues is known as by `Store.recover`. Light queues that have no directory are made with `all_light`.
    `name` is the local time as yyyyMMddHHmmssSSS, for the first index file. Without `index_layout` no index is made.
    `delay_levels` as for `Store`.
    """

    def __init__(
        self,
        log_directories: list[str],
        queues: str,
        new_queues: str,
        batch_queues: str,
        new_batch_queues: str,
        new_index: str,
        *,
        log_file_size: int,
        queue_file_size: int,
        batch_queue_file_size: int,
        index_layout: tuple[int, int] | None,
        name: str,
        delay_levels: Sequence[int] = (),
        all_light: bool = False,
        batch_topics: Sequence[str] = (),
        batch_topics_at: int | None = None,
    ) -> None: ...
    def step(self, position: int, to: int) -> tuple[int, bool, int, list[Fault], int]:
        """Put the records of one log file, as `Check.step` finds them. Releases the GIL."""
    def finish(self, log_min: int) -> tuple[int, int, int]:
        """End the queues and force everything to disk: (simple queues, batch queues, index files). Releases the GIL."""

def exchange(one: str, other: str) -> None:
    """Let two directories of one parent take each other's place: at once where the file system can, else by three renames.

    Releases the GIL.
    """

@final
class Lane:
    """Cuts one connection's byte stream into frames and, with a store, appends ordinary sends itself.

    A send is ordinary when its code is 10, 310 or 320, its topic was given to `set_ordinary`, the store is writable, the
    queue id is in range, sizes are within bounds, the header is complete and numeric, and the properties ask for nothing
    special (no TIMER_*, POP_CK, INNER_*, __CRC32#, `__RMQ.TRANSIENT.` prefix, MSG_REGION, TRACE_ON,
    CLUSTER). Anything else is handed over as a command, so that Python gives the error its words. A message with a delay
    level that there is (DELAY) is parked: it goes to queue level - 1 of SCHEDULE_TOPIC_XXXX, with REAL_TOPIC and REAL_QID.

    One with TRAN_MSG=true becomes a half message, pending in the store's Transactions: these begin some, there is room for
    one more, it has PGROUP, an immunity of up to 9 digits or none, no delay, and nothing that a broker writes. A request 37
    ends a transaction that is pending for certain: it names position, offset and group of a half message and says 8 or 12,
    in time; a commit appends the message, whose topic was given to `set_ordinary`, and that has no delay, time or light
    queue. It is answered without fields, unless it is one-way; a rollback that is answered stands in an op message. None
    goes before another request 37 that is handed over.
    `peer` is the host stamped as born host. `frame_size_max` counts the whole frame with its first word.
    """

    def __init__(self, store: Store | None, peer: bytes, frame_size_max: int) -> None: ...
    def feed(self, chunk: Buffer, now: int) -> Fed:
        """Take what arrived. After a reason to close was returned every later call returns it again.

        A mutable chunk may be used again as soon as this returns.
        """
    @property
    def buffered(self) -> int:
        """Bytes of an unfinished frame held."""

Told: TypeAlias = tuple[
    Any,  # the connection given to `add`
    Fed | None,  # what its lane has for Python
    str | None,  # why the transport has ended, empty when it was closed in good order; None while it has not
]

@final
class Transport:
    """One socket of a reactor, with the methods of asyncio.Transport that a connection uses.

    What is written leaves at once as far as the kernel takes it; the rest waits, by reference and not copied, so buffers
    may not change afterwards. Every end, by either side, is told by `Reactor.poll`.
    """

    def write(self, data: Buffer) -> None: ...
    def writelines(self, data: list[Any]) -> None:
        """Write buffers back to back."""
    def vouch(self, code: int, access_key: str, topic: str, secret: bytes) -> None:
        """Let sends with this code of this access key to this topic be ordinary if they are signed with the secret, until
        `Reactor.revoke`. Of names up to 255 bytes; the last 64 such permissions count. Without `is_guarded` nothing is done.
        """
    def get_write_buffer_size(self) -> int: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None:
        """Read no more, and end when what waits was written."""
    def abort(self) -> None:
        """End without writing what waits."""
    @property
    def traffic(self) -> int:
        """Bytes that were read, and one for each write."""
    @property
    def progress(self) -> int:
        """Whole frames that were read, writes, and calls of `pause_reading`: what a peer that sends a frame byte by byte has
        none of."""
    @property
    def is_handshaking(self) -> bool:
        """Whether a TLS handshake has begun and isn't over."""
    @property
    def refusal(self) -> str | None:
        """Why it was closed, if the peer broke TLS, may not speak it or has to, or isn't whom it may be."""

@final
class Tls:
    """What a server shows who wants TLS (1.2 and 1.3): a certificate with its chain, and its key, not encrypted; all is PEM.

    With `asks` clients are asked for a certificate, with `requires` they need one. It must be signed by one of `trust`, and
    not be in the lists `revoked`, which have to cover all authorities between; without `trust` whoever has signed it is
    believed. ValueError says which of these is wrong.
    """

    def __init__(
        self,
        chain: bytes,
        key: bytes,
        *,
        asks: bool = False,
        requires: bool = False,
        trust: bytes | None = None,
        revoked: bytes | None = None,
    ) -> None: ...
    @staticmethod
    def self_signed() -> Tls:
        """A new certificate that nobody but itself vouches for."""

Pending: TypeAlias = tuple[
    int,  # root: the queue offset of the transaction's first half message
    int,  # queue offset of its last one
    int,  # position of that
    int,  # since when it is pending
    int,  # immunity (ms)
    bool,  # whether no earlier life of the broker can have finished it
]

@final
class Transactions:
    """The transactions of a store: who is pending, in the order of their last half messages, how the last `recent_max` ended
    (0 committed, 1 rolled back, other numbers up to 255 are the caller's), and half messages that are finished but not told.

    Connections begin and end ordinary ones in the one that was made last, see Lane: begin with `begins`, as long as fewer
    than `pending_max` are pending, with an immunity of `time_out_ms` at least. When the untold take `op_size_max` bytes they
    are told in an op message. Its length is the number of those pending.
    """

    def __init__(
        self, store: Store, *, begins: bool, time_out_ms: int, pending_max: int, recent_max: int, op_size_max: int
    ) -> None: ...
    def __len__(self) -> int: ...
    def get(self, root: int) -> Pending | None: ...
    def add(self, root: int, offset: int, position: int, since: int, immunity_ms: int, sure: bool) -> None:
        """A half message was stored; an earlier one of the same transaction is finished then."""
    def confirm(self, root: int) -> None:
        """It is sure that it is pending."""
    def forget(self, root: int) -> None:
        """Its half message is finished; it goes on under another root."""
    def finish(self, root: int, outcome: int) -> None:
        """It has ended, and its half message is finished."""
    def remember(self, root: int, outcome: int) -> None:
        """It has ended before."""
    def outcome(self, root: int) -> int | None:
        """How it has ended, if that was lately."""
    def due(self, begin: int, end: int, now: int, carry_below: int, count_max: int) -> tuple[list[Pending], int]:
        """Those with offsets in begin … end - 1 that are older than their immunity, or below `carry_below`: some, and where
        to go on."""
    def topics(self, begin: int, count_max: int) -> tuple[list[tuple[str, int]], int | None]:
        """How many are pending for each topic ("" for what can't be read any more), among those with last half messages from
        offset `begin` on: so many are looked at; and where to go on, None for the end."""
    @property
    def oldest(self) -> int | None:
        """Since when the oldest is pending."""
    @property
    def untold(self) -> int: ...
    def tell(self, now: int) -> tuple[int, bool]:
        """Append op messages of all that is untold: (end of the last one, 0 for none; whether their queue was watched).
        StoreError as of `append`."""
    def note_told(self, op_offset: int, largest: int) -> None:
        """An op message that was found tells of half messages up to `largest`."""
    @property
    def progress(self) -> tuple[int, int]:
        """(half, op): offsets below which no half message is pending, and no op message is of interest."""

@final
class Flusher:
    """A thread that calls `Store.flush` when that is asked for and every `interval_ms`, until a flush fails.

    An event loop watches `fileno()` for reading, and calls `take` then.
    """

    def __init__(self, store: Store, interval_ms: int | None) -> None: ...
    def fileno(self) -> int: ...
    def take(self) -> int:
        """The position below which the log is forced. StoreError when a flush has failed."""
    def close(self) -> None:
        """Flush a last time and end the thread. Releases the GIL."""

@final
class Reactor:
    """The sockets of a server, each with a lane. An event loop watches `fileno()` for reading, and calls `poll` then.

    With `replies_at_once` the replies of ordinary sends are written as soon as their messages are appended. Otherwise a
    flush of the store is asked for, and they are held until `release`, or told where Python has something else to do as
    well; while over 1 MiB of replies is held for a socket, nothing more is read from it. `frame_size_max` as for Lane.

    Refused is who has the longest unfinished frame, of over 16 KiB, when those of all sockets hold over 256 MiB, and who
    begins a TLS handshake while 4,096 are under way.
    With `is_guarded` a send isn't ordinary unless `Transport.vouch` says so, and no end of a transaction is.
    """

    def __init__(
        self, store: Store | None, frame_size_max: int, replies_at_once: bool, is_guarded: bool = False
    ) -> None: ...
    def fileno(self) -> int: ...
    @property
    def held(self) -> int:
        """Chunks of replies that are held."""
    def secure(self, tls: Tls | None, takes_plain: bool) -> None:
        """How connections speak from now on whose first byte comes after this: as they like, or with TLS, or without. At the
        beginning: without."""
    def add(self, fd: int, peer: bytes, connection: object) -> Transport:
        """Take over a connected TCP socket, which is ours to close from now on. OSError when it can't be watched."""
    def poll(self, now: int) -> list[Told] | None:
        """Serve the sockets that are ready, some of them; the rest are still ready afterwards. None when none was.

        Tells of those that need Python: frames or replies for it, something that waits or waited to be written, an end.
        """
    def release(self, position: int) -> None:
        """Write the held replies of messages below `position`."""
    def revoke(self) -> None:
        """End all that `Transport.vouch` was told."""
    def overdue(self, sweeps: int) -> list[tuple[Any, bytes]]:
        """Let go of the replies that were held before the last `sweeps` calls of this: connections and what was for them."""

def encode_frame(
    serializer: int, code: int, opaque: int, flag: int, remark: str | None, fields: dict[str, str], body: bytes
) -> bytes:
    """One frame with language PYTHON and our version ordinal."""

def encode_batch(messages: Iterable[tuple[int, bytes, bytes | str]]) -> bytes:
    """The body of a batch, from flag, body and properties text of each message; in place of that the unique id, if it is the
    only property. ValueError for one that is too large."""

def encode_bodies(bodies: Iterable[bytes], prefix: str, first: int) -> tuple[bytes, list[str]]:
    """The body of a batch of messages that are nothing but these bodies, and their unique ids: the prefix and 12 hex digits,
    which count from `first`. ValueError as `encode_batch`."""

def decode_records(data: Buffer) -> list[Record]:
    """Cut stored records (V1 and V2). ValueError tells the byte at which the data stops making sense."""

def decode_messages(data: Buffer, broker_name: str, make: Callable[..., M], check_crc: bool) -> tuple[list[M], int]:
    """What `make` makes of each stored record, and the bits that are set in any of their sysFlags.

    It gets topic, `broker_name`, queue id, queue offset, position, body (as stored), properties (of one that comes twice the
    last value), flag, sysFlag, born timestamp, born host, store timestamp, store host, reconsume times, prepared transaction
    offset and size. ValueError as decode_records, and for a body that fails its CRC if that is to be checked.
    """

def decode_columns(data: Buffer, names: Sequence[str] | None = None) -> dict[str, bytes | Text]:
    """Stored records as Arrow buffers, native byte order: all columns, or those of these names.

    int64: queueOffset, commitLogOffset, bornTimestamp, storeTimestamp (ms); int32: queueId, flag, sysFlag, reconsumeTimes.
    Text: topic, msgId (UNIQ_KEY, else the offset id), keys, tags, shardingKey (null when absent), bornHost ("ip:port",
    "[ip]:port" for IPv6), body (as stored, may be compressed: see sysFlag). Bytes that aren't UTF-8 are replaced, except in
    the body. Of a property that comes twice the last value counts. The properties map: `propertiesOffsets` (int32, n + 1)
    over `propertiesKeys` and `propertiesValues` (Text). `rows` is the number of rows as 8 bytes, always there. ValueError as
    decode_records, and for a name that isn't one of these.
    """

def encode_columns(
    queues: Buffer,
    body: Column,
    columns: Sequence[tuple[str, Column]],
    properties: tuple[Column, Column, Column] | None,
    *,
    left_out: Sequence[str],
    refused: Sequence[str],
    size_max: int,
    batch_bytes: int,
    ids: tuple[bytes, int] | None = None,
) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, str]], Text]:
    """Rows as batches: (queue, messages, body) of each, then (row, why) of what can't be sent, then the ids.

    `queues` are int32, one for each row: a number up to 65,535 by which rows join batches, in their order, or -1 for a row
    to leave out. A batch has as many messages as fit into `batch_bytes`, and at least one, which takes `size_max` at most.
    `columns` are properties by name. `properties` is a map: rows (only its offsets count), names, values. Of the names in it
    some are `left_out`, some make that row a fault (`refused`), and one that a column has too counts where that is null.
    What is null or empty is no property.

    With `ids`, a seed and the number of the first row, each message gets UNIQ_KEY: 32 hexadecimal digits that come from the
    seed and all else that the message is, `-`, and the row's number in hexadecimal. The ids are empty for rows that were
    left out, or failed before. ValueError for columns that don't hold so many rows.
    """

def java_hashes(column: Column, rows: int) -> bytes:
    """Java's `String.hashCode` of each row as int32, native byte order; 0 for null."""
