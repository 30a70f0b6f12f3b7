"""One case: a load in the worker, cut at its system calls and steps; each image recovered and checked.

A case follows from its seed. `LIVES` loads run one after the other, each but the first on an image of the one before.
"""

import errno
import os
import random
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crash.points import disk, syscalls, worker
from tests.crash.points.checker import Fault, check
from tests.crash.points.disk import Disk
from tests.crash.points.history import History
from tests.crash.points.load import FIRST_TIME, LOG_FILE

LIVES = 3
SHARE_OF_POINTS = 0.3
"""The part of the points that images are made at, so that a run sees more loads."""
IMAGES_PER_POINT = 3
HISTORY_OF_CALLS = 12


class Worker:
    """The process that is stopped at its system calls."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.crash.points.worker", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[3])
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(self.channel, 1, 1)
        if not descriptors:
            raise OSError("the worker gave no descriptor to listen at")
        [self._listener] = descriptors

    def close(self) -> None:
        # It may stand at a call that nobody answers any more.
        self._process.kill()
        self._process.wait()
        self.channel.close()
        os.close(self._listener)

    def run(self, arguments: tuple[object, ...], root: Path, seen: "Case") -> None:
        """Run a load; `seen` is asked at each call and told each step."""
        worker.send(self.channel, *arguments)
        while True:
            ready, _, _ = select.select([self._listener, self.channel], [], [], 60)
            if self._listener in ready:
                try:
                    call = syscalls.receive(self._listener)
                except OSError as error:
                    if error.errno == errno.ENOENT:
                        continue
                    raise
                self._at(call, root, seen)
            elif self.channel in ready:
                told = worker.receive(self.channel)
                assert told is not None, "the worker died"
                seen.told(*told)
                self.channel.sendall(b"x")
                if told[0] in ("done", "broken"):
                    return
            else:
                raise AssertionError("the worker does nothing")

    def _at(self, call: syscalls.Call, root: Path, seen: "Case") -> None:
        found = _target(call, root)
        if found is not None:
            seen.before(call.name, found.path)
        assert call.name not in syscalls.UNKNOWN_SYNCS, f"{call.name} is not known here"
        if found is not None and call.name in syscalls.SYNCS:
            seen.forced(found)
            syscalls.answer(self._listener, call)
        else:
            syscalls.let_go(self._listener, call)


@dataclass
class Target:
    """What a call is about: a path below the root ("" for the root), and for syncs what is forced."""

    path: str
    number: int = 0
    is_directory: bool = False
    start: int = 0
    end: int = 1 << 40


def _target(call: syscalls.Call, root: Path) -> Target | None:
    """None when it has nothing to do with the store."""
    if call.name == "msync":
        return _mapped(call, root)
    by_descriptor = "at" not in call.name and call.name not in (
        "open",
        "creat",
        "rename",
        "link",
        "unlink",
        "mkdir",
        "rmdir",
    )
    if not by_descriptor and call.name != "fdatasync":
        # It is about names, or makes a file. Whose they are is seen by its effect.
        return Target("")
    link = f"/proc/{call.thread}/fd/{call.arguments[0]}"
    try:
        path = os.readlink(link)
        found = os.stat(link)
    except OSError:
        return None
    if path != str(root) and not path.startswith(f"{root}/"):
        return None
    is_directory = os.path.isdir(link)
    return Target(path.removeprefix(str(root)).lstrip("/"), found.st_ino, is_directory)


def _mapped(call: syscalls.Call, root: Path) -> Target | None:
    address, length, _ = call.arguments[:3]
    with open(f"/proc/{call.thread}/maps", encoding="utf-8") as maps:
        for line in maps:
            span, _, offset, _, number, *path = line.split(maxsplit=5)
            low, high = (int(text, 16) for text in span.split("-"))
            if low <= address < high:
                name = path[0].rstrip("\n") if path else ""
                if not name.startswith(f"{root}/"):
                    return None
                at = int(offset, 16) + address - low
                assert address + length <= high, "an msync over several maps"
                return Target(name.removeprefix(f"{root}/"), int(number), start=at, end=at + length)
    return None


class Case:
    """`count` bounds the images; `only` is the point to look at, None for all."""

    def __init__(self, seed: int, directory: Path, count: Callable[[], bool], only: int | None = None) -> None:
        self.seed = seed
        self._live, self._image = directory / "live", directory / "image"
        self._count = count
        self._only = only
        self._choice = random.Random(f"{seed} points")
        self.point = 0
        self.images = 0
        self._calls: list[str] = []
        self._history = History(LOG_FILE)
        self._next_life: tuple[disk.Image, History] | None = None

    def run(self, process: Worker) -> None:
        _empty(self._live)
        for life in range(LIVES):
            self._disk = Disk.of(self._live, f"{self.seed}/{life} partly")
            self._next_life = None
            number, now = life * 10_000, FIRST_TIME + life * 10**7
            process.run(("core", str(self._live), f"{self.seed}/{life}", number, now), self._live, self)
            if self._next_life is None:
                return
            image, self._history = self._next_life
            _empty(self._live)
            disk.write(image, self._live)

    def before(self, call: str, path: str) -> None:
        changed = self._disk.look()
        self._calls.append(f"{call} {path}")
        del self._calls[:-HISTORY_OF_CALLS]
        if changed:
            self._cut()

    def forced(self, target: Target) -> None:
        if target.is_directory:
            self._disk.force_directory(target.path)
        else:
            self._disk.force_file(target.number, target.start, target.end)
        self._cut()

    def told(self, what: str, *values: "object") -> None:
        self._calls.append(what)
        changed = self._disk.look()
        match what, values:
            case "append", [list() as records]:
                self._appended = self._history.append(records)
            case "appended", [list() as positions, int() as offset]:
                wanted = [one.position for one in self._appended], self._appended[0].queue_offset
                if (positions, offset) != wanted:
                    self._fail(f"appended at {(positions, offset)}, not {wanted}", "")
            case "acknowledged", [int() as position]:
                self._history.acknowledged = max(self._history.acknowledged, position)
                changed = True
            case "recovered", [int() as end, int() as log_min]:
                history = self._history
                count = sum(one.position < end for one in history.records)
                if end not in history.ends(count) and end != history.end:
                    self._fail(f"the log ends at {end} in the next life", "")
                if self._kept_all and count < len(history.records):
                    self._fail(f"a kill left {count} of {len(history.records)} records", "")
                history.cut(count, end, log_min)
                changed = True
            case "deleting", [int() as position]:
                self._history.min_high = max(self._history.min_high, position)
            case "deleted", [int() as log_min]:
                self._history.min_low = self._history.min_high = log_min
                changed = True
            case "broken", [str() as trace]:
                self._fail(f"the load broke: {trace}", "")
        self._kept_all = what == "killed"
        if changed:
            self._cut()

    _kept_all = False

    def _cut(self) -> None:
        """The power goes here: make images, and recover them."""
        self.point += 1
        choice = random.Random(f"{self.seed} {self.point}")
        if self._only not in (None, self.point) or (self._only is None and choice.random() > SHARE_OF_POINTS):
            return
        for _ in range(IMAGES_PER_POINT):
            image, words = self._disk.image(choice)
            if not self._count():
                return
            self.images += 1
            _empty(self._image)
            disk.write(image, self._image)
            try:
                kept = check(self._image, self._history, choice)
            except Fault as fault:
                self._fail(str(fault), words)
            if choice.random() < 0.1:
                history = self._history.copy()
                history.cut(*kept)
                self._next_life = image, history

    def _fail(self, text: str, words: str) -> None:
        calls = "\n    ".join(self._calls)
        raise AssertionError(
            f"seed {self.seed}, point {self.point}: {text}\n  the cut left: {words}\n  before it:\n    {calls}\n"
            f"  again: ROCKMQ_CRASH_SEED={self.seed} ROCKMQ_CRASH_POINT={self.point} pytest tests/crash/test_points.py"
        )


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
