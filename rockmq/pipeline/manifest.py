"""What an archived topic's directory holds, and which of its files count.

    <topic>/dt=<day of storing, UTC>/<broker>-<queue>-<from>-<to>.parquet     offsets from … to - 1
    <topic>/_manifest/_<run>.plan             the tasks of a run, written before it starts: `Plan`
    <topic>/_manifest/_<run>.<task>.part      what a task has written: `ArchivedFile`, a line per file
    <topic>/_manifest/<run>.jsonl             what the run has added: the lines of all its parts, which go then
    <topic>/_manifest/<run>.all.jsonl         what there is after the run: it puts files together, and lists all that count
    <topic>/_lost/<run>.<task>.jsonl          what couldn't be archived, with failOnDataLoss=false: `LostRange`

Runs are numbered, and one follows the other: a plan without a manifest is of a run that was broken off, and the next one
finishes it first. Plan, part and manifest appear whole or not at all, files before the line that names them. So what counts
at any time are the files of the newest `.all.jsonl` and of the runs behind it, each message once; what else there is are
files of a run that isn't done, and those that were put together into others, which stay for who still reads them.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from rockmq.base import files
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.spark import schema

T = TypeVar("T")

_FOLDER = "_manifest"
_LOST = "_lost"
_ALL = ".all"
TEMPORARY_S = 86_400
"""Files without a final name that nobody has written to for so long are of tasks that were killed."""


class ArchivedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the manifest. `path` is below the topic's directory, times are milliseconds, `crc` is the file's CRC-32."""

    path: str
    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    rows: int
    bytes: int
    min_store_timestamp: int
    max_store_timestamp: int
    crc: int
    schema_version: int = schema.VERSION

    @property
    def day(self) -> str:
        return self.path.partition("/")[0].removeprefix("dt=")


class LostRange(msgspec.Struct, frozen=True, rename="camel"):
    """Offsets that no message was archived of, and what was said while they were read."""

    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    reason: str


class Task(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A range of a run's plan: to be read from the queue, or, with `files`, from these, which it puts together."""

    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    files: list[ArchivedFile] = []


class Plan(msgspec.Struct, frozen=True):
    """`ends` is how far all queues are archived when the run is done: {broker: {queue id: offset}}; `expired` is what had to
    be passed over for that."""

    tasks: list[Task]
    ends: dict[str, dict[int, int]]
    expired: list[LostRange] = []


def manifest(directory: str | os.PathLike[str], topic: str) -> list[ArchivedFile]:
    """The files that count, those of older runs first; none if there is no such archive. Raises ConfigError for a manifest
    that can't be read."""
    return ArchivedTopic(Path(directory) / topic).files()


def paths(directory: str | os.PathLike[str], topic: str) -> list[str]:
    """Where the files that count are, from the root on, for any reader of Parquet."""
    root = Path(directory).resolve() / topic
    return [str(root / each.path) for each in manifest(directory, topic)]


class ArchivedTopic:
    """The plans and manifests of one topic; `root` is its directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / _FOLDER

    def files(self) -> list[ArchivedFile]:
        """What counts. Raises ConfigError."""
        return self._counting(self._runs())

    def _counting(self, runs: list[tuple[int, Path]]) -> list[ArchivedFile]:
        """What counts, were these all manifests."""
        first = max((number for number, path in runs if _is_all(path)), default=0)
        return [line for number, path in runs if number >= first for line in self._lines(path)]

    def runs(self, behind: int) -> list[tuple[int, bool, list[ArchivedFile]]]:
        """(number, whether these are all that count, files) of the finished runs behind that one. Raises ConfigError."""
        return [(number, _is_all(path), self._lines(path)) for number, path in self._runs() if number > behind]

    def last(self) -> tuple[int, Plan, bool]:
        """The last run's number, its plan, and whether it is done; (0, an empty plan, True) before the first."""
        plans = sorted(self.folder.glob("_*.plan"))
        if not plans:
            return 0, Plan([], {}), True
        number = int(plans[-1].stem.removeprefix("_"))
        (plan,) = _decoded(plans[-1], Plan)
        return number, plan, any(done == number for done, _ in self._runs())

    def ends(self) -> dict[str, dict[int, int]]:
        """How far all queues are archived, by the plan of the newest run that is done. Raises ConfigError."""
        if not (done := self._runs()):
            return {}
        (plan,) = _decoded(self.plan_path(done[-1][0]), Plan)
        return plan.ends

    def begin(self, number: int, plan: Plan) -> bool:
        """Save the plan of the next run; False when another program has done so first. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".{uuid.uuid4().hex}.tmp"
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(plan))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, self.plan_path(number))
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        files.sync_directory(self.folder)
        return True

    def plan_path(self, number: int) -> Path:
        return self.folder / f"_{number:08}.plan"

    def save_part(self, number: int, index: int, lines: Iterable[ArchivedFile]) -> None:
        """What a task has written: its files have to be on disk. Raises OSError."""
        _save(self._part_path(number, index), lines)

    def parts(self, number: int) -> set[int]:
        """The run's tasks that are done."""
        return {int(path.name.split(".")[1]) for path in self.folder.glob(f"_{number:08}.*.part")}

    def save_lost(self, number: int, index: int | str, lost: Iterable[LostRange]) -> None:
        """What a task of the run hasn't found. Raises OSError."""
        folder = self.root / _LOST
        folder.mkdir(parents=True, exist_ok=True)
        _save(folder / f"{number:08}.{index}.jsonl", lost)

    def lost(self) -> list[LostRange]:
        """What couldn't be archived, by runs. Raises ConfigError."""
        found = []
        for path in sorted((self.root / _LOST).glob("*.jsonl")):
            found += _decoded(path, LostRange)
        return found

    def part(self, number: int, index: int) -> list[ArchivedFile]:
        """What a task that is done has written. Raises ConfigError."""
        return self._lines(self._part_path(number, index))

    def finish(self, number: int, plan: Plan, parts: Iterable[list[ArchivedFile]]) -> list[ArchivedFile]:
        """Have the run count, whose tasks have written these files. Raises OSError, ConfigError."""
        added = sorted([line for part in parts for line in part], key=_place)
        if plan.expired:
            self.save_lost(number, "expired", plan.expired)
        if gone := {each.path for task in plan.tasks for each in task.files}:
            # Another program may have finished the run before, and others behind it: these count besides.
            if not (done := self.folder / f"{number:08}{_ALL}.jsonl").exists():
                before = self._counting([(run, path) for run, path in self._runs() if run < number])
                every: list[ArchivedFile] = [*(each for each in before if each.path not in gone), *added]
                every.sort(key=_place)
                _save(done, every)
        else:
            _save(self.folder / f"{number:08}.jsonl", added)
        self._forget_parts(number)
        return added

    def tidy(self, keep_s: float, clock: Clock) -> int:
        """Remove what was put together into other files, when that was `keep_s` seconds ago, and what killed tasks have
        left: how many files. Raises OSError, ConfigError."""
        now = clock.now_ms()
        removed = 0
        for left in self.root.rglob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if now - _changed_ms(left) > TEMPORARY_S * 1_000:
                    left.unlink()
                    removed += 1
        runs = self._runs()
        settled = [number for number, path in runs if _is_all(path) and now - _changed_ms(path) >= keep_s * 1_000]
        if not settled:
            return removed
        # What a younger run has put together counted until then.
        kept = {each.path for number, path in runs if number >= settled[-1] for each in self._lines(path)}
        old = [(number, path) for number, path in runs if number < settled[-1]]
        for gone in {each.path for _, path in old for each in self._lines(path)} - kept:
            if (self.root / gone).exists():
                (self.root / gone).unlink()
                removed += 1
        # Only now: they say what is to be removed, if this is broken off.
        for number, path in old:
            self.plan_path(number).unlink(missing_ok=True)
            self._forget_parts(number)
            path.unlink()
        return removed

    def _forget_parts(self, number: int) -> None:
        for path in self.folder.glob(f"_{number:08}.*.part"):
            path.unlink(missing_ok=True)

    def _part_path(self, number: int, index: int) -> Path:
        return self.folder / f"_{number:08}.{index}.part"

    def _runs(self) -> list[tuple[int, Path]]:
        """The manifests in their order."""
        return sorted((int(path.name.partition(".")[0]), path) for path in self.folder.glob("*.jsonl"))

    def _lines(self, path: Path) -> list[ArchivedFile]:
        return _decoded(path, ArchivedFile)


def _decoded(path: Path, kind: type[T]) -> list[T]:
    try:
        return msgspec.json.Decoder(kind).decode_lines(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no list of an archive: {error}") from None


def _changed_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def _place(line: ArchivedFile) -> tuple[str, int, int]:
    return line.broker, line.queue_id, line.start


def _is_all(path: Path) -> bool:
    return path.stem.endswith(_ALL)


def _save(path: Path, lines: Iterable[msgspec.Struct]) -> None:
    # Under another name than its like: two attempts of a task may be at it.
    fresh = path.with_name(f".{uuid.uuid4().hex}.tmp")
    with fresh.open("wb") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    files.sync_directory(path.parent)
