"""What a writer notes in a directory that driver and executors share, so that nothing is sent twice (spark spec, 6).

    <ledger>/ledger.json                                        who it is, to tell machines that see another directory
    <ledger>/<scope>/<batch>/                                   scope: the query's id, or the job's
        <partition>.<run>.<attempt>.<topic>.fence               where the topic's queues ended before that attempt sent
        <partition>.<run>.<attempt>.halves                      what it sent in transactions (`rockmq.spark.halves`)
        queues.json                                             which queues rows name by numbers, if that was decided before
        decided.json                                            which of these count, and where the queues ended then
        done.json                                               all of the batch is sent

A run is one planning of a batch: a replay is another one. Files appear whole. When a batch is done, those before it can't
come again, and are removed.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rockmq.base import files
from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.common import MessageQueue

if TYPE_CHECKING:
    from rockmq.spark.write_options import WriteOptions

T = TypeVar("T")

HALVES = ".halves"

Ends = dict[MessageQueue, int]
"""Where queues end."""


class Identity(msgspec.Struct, frozen=True):
    id: str


class Done(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a batch's rows; those that were `found` had been sent by an attempt before."""

    rows: int
    sent: int
    found: int
    bad: int


class Decided(msgspec.Struct, frozen=True):
    """Attempts whose messages count, and by topic, broker and queue where queues ended when that was decided."""

    attempts: list[str]
    ends: dict[str, dict[str, dict[int, int]]]

    def queues(self) -> Ends:
        return {queue: end for topic, tree in self.ends.items() for queue, end in _ends(tree, topic).items()}


class Attempt(msgspec.Struct, frozen=True):
    """One try of one partition."""

    partition: int
    run: str
    number: int

    def __str__(self) -> str:
        return f"{self.partition}.{self.run}.{self.number}"


@dataclass(frozen=True)
class Work:
    """Whose rows a task writes: the query or job, its batch, and the attempt. `ledger` is the ledger's id, or nothing."""

    options: "WriteOptions"
    scope: str
    batch: str
    attempt: Attempt
    ledger: str

    def notes(self) -> "Ledger":
        return Ledger(Path(self.options.ledger), self.scope, self.batch)


def identify(ledger: Path) -> str:
    """The ledger's id, which a new one gets. Raises ConfigError."""
    path = ledger / "ledger.json"
    try:
        if not path.exists():
            ledger.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f"{uuid.uuid4().hex}.tmp")
            fresh.write_bytes(msgspec.json.encode(Identity(uuid.uuid4().hex)))
            with contextlib.suppress(FileExistsError):  # somebody else was quicker
                os.link(fresh, path)
            fresh.unlink()
        return _read(path, Identity).id
    except OSError as error:
        raise ConfigError(f"option 'ledger': {error}; expected a directory that driver and executors can write") from None


class Ledger:
    """The notes on one batch."""

    def __init__(self, root: Path, scope: str, batch: str) -> None:
        self._scope = root / scope
        self.directory = self._scope / batch

    def open(self, identity: str) -> None:
        """Make ready to note. Raises ConfigError when this machine doesn't see the driver's ledger."""
        root = self._scope.parent
        path = root / "ledger.json"
        found = _read(path, Identity).id if path.exists() else None
        if found != identity:
            raise ConfigError(
                f"option 'ledger': {root} isn't the same directory on this machine as on the driver; expected one that all "
                "of them share"
            )
        self.directory.mkdir(parents=True, exist_ok=True)

    # Fences

    def fences(self, topic: str, attempt: Attempt) -> list[Ends]:
        """Of attempts that may have sent what this one is to send: an earlier run's, or this partition's."""
        found = []
        for path in self.directory.glob("*.fence"):
            partition, run, number, of_topic = path.name.removesuffix(".fence").split(".", 3)
            other = Attempt(int(partition), run, int(number))
            if of_topic == topic and other != attempt and (run != attempt.run or other.partition == attempt.partition):
                found.append(_ends(_read(path, dict[str, dict[int, int]]), topic))
        return found

    def fence(self, topic: str, attempt: Attempt, ends: Ends) -> None:
        """Note where the topic's queues end, before the attempt sends its first message."""
        self._save(f"{attempt}.{topic}.fence", _by_broker(ends))

    # Queues

    def queues(self) -> list[MessageQueue] | None:
        """The queues that rows name by their numbers, None for those that are writable when a task begins."""
        path = self.directory / "queues.json"
        return _read(path, list[MessageQueue]) if path.exists() else None

    def number(self, queues: Sequence[MessageQueue]) -> None:
        """Note which queues rows name by their numbers, before the first task begins."""
        self._save("queues.json", queues)

    # Transactions

    def halves(self) -> dict[str, Path]:
        """What was sent in transactions, by attempt, as far as the directory tells."""
        return {path.name.removesuffix(HALVES): path for path in self.directory.glob(f"*{HALVES}")}

    def halves_of(self, attempt: Attempt | str) -> Path:
        return self.directory / f"{attempt}{HALVES}"

    def decided(self) -> Decided | None:
        path = self.directory / "decided.json"
        return _read(path, Decided) if path.exists() else None

    def decide(self, attempts: list[str], ends: Ends) -> Decided:
        """Note which attempts count, before the first of their messages is committed."""
        tree: dict[str, dict[str, dict[int, int]]] = {}
        for queue, end in ends.items():
            tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[queue.queue_id] = end
        decided = Decided(attempts, tree)
        self._save("decided.json", decided)
        return decided

    # Marks

    def done(self) -> Done | None:
        path = self.directory / "done.json"
        return _read(path, Done) if path.exists() else None

    def mark_done(self, done: Done) -> None:
        """All is sent. Notes on the stream's batches before it are removed, as those can't come again."""
        self._save("done.json", done)
        batch = self.directory.name
        for other in self._scope.iterdir():
            if batch.isdecimal() and other.name.isdecimal() and int(other.name) < int(batch):
                shutil.rmtree(other, ignore_errors=True)

    def forget(self) -> None:
        """Remove all notes of a scope that can't come again."""
        shutil.rmtree(self._scope, ignore_errors=True)

    def _save(self, name: str, note: object) -> None:
        files.save(self.directory / name, msgspec.json.encode(note).decode())


def _by_broker(ends: Ends) -> Mapping[str, Mapping[int, int]]:
    tree: dict[str, dict[int, int]] = {}
    for queue, end in ends.items():
        tree.setdefault(queue.broker_name, {})[queue.queue_id] = end
    return tree


def _ends(tree: Mapping[str, Mapping[int, int]], topic: str) -> Ends:
    return {MessageQueue(topic, broker, queue): end for broker, ends in tree.items() for queue, end in ends.items()}


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} is no note of a ledger: {error}") from None
