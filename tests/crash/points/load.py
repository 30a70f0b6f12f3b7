"""What a store is made to do, from a seed: appends and batches, flushes, upkeep, stops and kills.

Runs in the worker. Whoever listens is told beforehand what is going to be appended, and afterwards what was acknowledged.
"""

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rockmq import _core
from rockmq.store import recovery
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.files import AbortMark
from tests.support.model import Record, batch, parse
from tests.unit.core import stores

LOG_FILE, QUEUE_FILE, BATCH_QUEUE_FILE = 8 << 10, 20 * 12, 46 * 7
INDEX_SLOTS, INDEX_ENTRIES = 7, 40
BATCH_TOPIC = "batches"
"""Has batch queues: inner batches, and messages by themselves."""
INNER_BATCH = 0xC0
LIGHT_QUEUES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
TOPICS, QUEUES = ("orders", "T" * 130, BATCH_TOPIC), 2
OPERATIONS = 45
FIRST_TIME = 1_700_000_000_000

Tell = Callable[..., None]
Directories = tuple[str, ...]
"""Below the root: where the log's files are."""
ONE: Directories = ("commitlog",)
TWO: Directories = ("commitlog", "commitlog-b")


def opened(root: Path, directories: Directories) -> _core.Store:
    sizes = {"log_file_size": LOG_FILE, "queue_file_size": QUEUE_FILE, "batch_queue_file_size": BATCH_QUEUE_FILE}
    return stores.opened(root, **sizes, log_directories=directories, light_queues_max=100)


def index_of(store: _core.Store, root: Path, trusted_until: int | None) -> _core.Index:
    return _core.Index(store, str(root / "index"), slots=INDEX_SLOTS, entries=INDEX_ENTRIES, trusted_until=trusted_until)


def index_name(now: int) -> str:
    return f"{now:017}"


@dataclass
class Started:
    store: _core.Store
    index: _core.Index
    abort: AbortMark
    checkpoint: Checkpoint
    start: int
    end: int
    seen: int


def start(root: Path, directories: Directories) -> Started:
    """As `MessageStore` opens a store, by the same rule where to begin."""
    abort = AbortMark(root / "abort")
    checkpoint = Checkpoint.load(root / "checkpoint")
    store = opened(root, directories)
    begin = recovery.start(store.files(), checkpoint, was_killed=abort.was_there, now=1 << 62)
    end, seen = store.recover(begin, True, had_queues=checkpoint.had_queues, had_batch_queues=checkpoint.had_batch_queues)
    store.flush()
    store.set_batch(BATCH_TOPIC)
    index = index_of(store, root, checkpoint.index if abort.was_there else None)
    abort.set()
    return Started(store, index, abort, checkpoint, begin, end, seen)


def record(choice: random.Random, number: int, now: int, *, queue: tuple[str, int] | None = None) -> Record:
    """Body and properties of many sizes: less than a sector, some sectors, over a page."""
    topic, queue_id = queue or (choice.choice(TOPICS), choice.randrange(QUEUES))
    size = choice.choice((0, 20, 200, 600, 1500, choice.randrange(5000)))
    rest = choice.choice((0, 0, 30, 700))
    properties = f"UNIQ_KEY\x01{number:06}\x02KEYS\x01k{number % 50} j{number}\x02TAGS\x01tag{number % 3}\x02"
    if rest:
        properties += "note\x01" + "n" * rest + "\x02"
    body, sys_flag = choice.randbytes(size), 0
    if queue is None:
        sys_flag = choice.choice((0, 0, 0, 0, 0, 0, 0, 4, 8, 12))
        if topic == BATCH_TOPIC and choice.random() < 0.5:
            count = choice.choice((1, 2, 5, 30))
            body = batch((number, choice.randbytes(min(size // count, 100)), b"") for _ in range(count))
            properties, sys_flag = f"{properties}INNER_NUM\x01{count}\x02", INNER_BATCH
        elif topic == "orders" and sys_flag == 0 and choice.random() < 0.3:
            names = choice.sample(LIGHT_QUEUES, choice.randint(1, 2))
            properties = f"{properties}INNER_MULTI_DISPATCH\x01{','.join(names)}\x02"
    return Record(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties.encode(),
        flag=number,
        sys_flag=sys_flag,
        born_timestamp=now - 5,
        born_host=stores.PEER,
        store_timestamp=now,
        store_host=stores.HOST,
    )


def light_queues(one: Record) -> list[str]:
    """Those that a record that wasn't stored yet is to be in."""
    names = parse(one.properties).get("INNER_MULTI_DISPATCH")
    return names.split(",") if names else []


def append(store: _core.Store, one: Record) -> tuple[int, int, int, bool]:
    return stores.append(store, one, light_queues=light_queues(one))


class CoreLoad:
    """The core's classes, driven as `MessageStore` drives them but one step after the other."""

    directories = ONE

    def __init__(self, root: Path, seed: str, first_number: int, now: int, tell: Tell) -> None:
        self._root = root
        self._choice = random.Random(seed)
        self._number = first_number
        self._now = max(now, FIRST_TIME)
        self._forced_until = 0
        self._tell = tell

    def run(self) -> None:
        self._start()
        steps = {
            self._append: 40,
            self._batch: 8,
            self._flush: 16,
            self._flush_queues: 8,
            self._save_checkpoint: 4,
            self._prepare: 6,
            self._delete: 4,
            **({self._retarget: 6} if len(self.directories) > 1 else {}),
            self._catch_up: 8,
            self._kill: 1,
            self._stop: 1,
        }
        for step in self._choice.choices(list(steps), list(steps.values()), k=OPERATIONS):
            self._now += self._choice.choice((0, 1, 700, 2500))
            step()
        self._close()

    def _start(self) -> None:
        self._up = start(self._root, self.directories)
        self._tell("recovered", self._up.end, self._up.store.min_position)

    def _fresh(self, queue: tuple[str, int] | None = None) -> Record:
        self._number += 1
        return record(self._choice, self._number, self._now, queue=queue)

    def _append(self) -> None:
        one = self._fresh()
        self._tell("append", [one])
        position, _, offset, _ = append(self._up.store, one)
        self._tell("appended", [position], offset)

    def _batch(self) -> None:
        queue = self._choice.choice(TOPICS), self._choice.randrange(QUEUES)
        many = [self._fresh(queue) for _ in range(self._choice.randint(1, 4))]
        while sum(one.size for one in many) + 8 > LOG_FILE:
            many.pop()
        self._tell("append", many)
        body = batch((one.flag, one.body, one.properties) for one in many)
        born = {"now": self._now, "born_host": stores.PEER, "born_timestamp": self._now - 5}
        positions, _, offset, _ = self._up.store.append_batch(*queue, body, **born)
        self._tell("appended", positions, offset)

    def _flush(self) -> None:
        before = self._now
        position = self._up.store.flush()
        self._forced_until = before
        self._tell("acknowledged", position)

    def _flush_queues(self) -> None:
        self._up.store.flush_queues(self._choice.random() < 0.3)

    def _save_checkpoint(self) -> None:
        position, stored = self._up.store.flush_queues(True)
        self._up.checkpoint.physic, self._up.checkpoint.logics = self._forced_until, stored
        self._up.checkpoint.position = min(position, self._up.store.flushed_position)
        self._up.checkpoint.had_queues = self._up.store.has_queues
        self._up.checkpoint.had_batch_queues = self._up.store.has_batch_queues
        self._up.checkpoint.save(self._root / "checkpoint")

    def _prepare(self) -> None:
        self._up.store.prepare_next_file()

    def _retarget(self) -> None:
        """Disks become full and have room again."""
        targets = self._choice.sample(self.directories, self._choice.randint(1, len(self.directories)))
        self._up.store.set_log_targets([str(self._root / each) for each in targets])

    def _delete(self) -> None:
        store = self._up.store
        # Retention never takes what isn't flushed.
        files = [base for base, _ in store.files() if base <= store.flushed_position]
        if len(files) > 1:
            below = self._choice.choice(files[1:])
            self._tell("deleting", below)
            store.delete_files_below(below)
            self._tell("deleted", store.min_position)
            self._up.index.delete_below(store.min_position)

    def _catch_up(self) -> None:
        # What isn't on disk may not be read, by the index neither.
        self._up.index.catch_up(
            self._up.store.flushed_position, self._choice.choice((1, 3000, 1 << 20)), index_name(self._now)
        )
        sealed = self._up.index.sealed_until
        if sealed != self._up.checkpoint.index:
            self._up.checkpoint.index = sealed
            self._up.checkpoint.save(self._root / "checkpoint")

    def _kill(self) -> None:
        """The process is gone, the page cache is not."""
        del self._up
        gc.collect()
        self._tell("killed")
        self._start()

    def _stop(self) -> None:
        self._close()
        self._start()

    def _close(self) -> None:
        """In the order of `MessageStore.close`."""
        up = self._up
        self._flush()
        up.index.catch_up(up.store.flushed_position, 1 << 30, index_name(self._now))
        up.index.close()
        self._save_checkpoint()
        up.store.close()
        up.abort.clear()
        self._tell("closed")


class SpreadLoad(CoreLoad):
    """The same with a log in two directories."""

    directories = TWO
