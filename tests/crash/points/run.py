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
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from tests.crash.points import disk, syscalls, worker
from tests.crash.points.disk import Disk
from tests.crash.points.history import Fault
from tests.crash.points.load import FIRST_TIME

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
        self._given_up: tuple[object, ...] | None = None
        """Of a call that was looked at and comes again, all but its id."""

    def close(self) -> None:
        # It may stand at a call that nobody answers any more.
        self._process.kill()
        self._process.wait()
        self.channel.close()
        os.close(self._listener)

    def run(self, arguments: tuple[object, ...], root: Path, seen: "Case[Any]") -> None:
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

    def _at(self, call: syscalls.Call, root: Path, seen: "Case[Any]") -> None:
        assert call.name not in syscalls.UNKNOWN_SYNCS, f"{call.name} is not known here"
        found = _target(call, root)
        is_sync = found is not None and call.name in syscalls.SYNCS
        if found is not None and call[1:] != self._given_up:
            seen.before(call.name, found.path)
            if is_sync:
                seen.forced(found)
        taken = (syscalls.answer if is_sync else syscalls.let_go)(self._listener, call)
        self._given_up = None if taken else call[1:]


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


class Known(Protocol):
    """What has to be on disk, and what may be."""

    def told(self, what: str, *values: object) -> bool:
        """Take in what a load does; whether a cut may mean something else from now on. Raises Fault."""


K = TypeVar("K", bound=Known)


@dataclass
class Kind(Generic[K]):
    """Loads of a kind (see `worker.LOADS`). `check` recovers an image, raises Fault, and returns what is known of it."""

    name: str
    fresh: Callable[[], K]
    check: Callable[[Path, K, random.Random], K]


class Case(Generic[K]):
    """`count` bounds the images."""

    def __init__(self, kind: Kind[K], seed: int, directory: Path, count: Callable[[], bool]) -> None:
        self._kind = kind
        self.seed = seed
        self._live, self._image = directory / "live", directory / "image"
        self._count = count
        self.point = 0
        self._calls: list[str] = []
        self._known = kind.fresh()
        self._next_life: tuple[disk.Image, K] | None = None

    def run(self, process: Worker) -> None:
        _empty(self._live)
        for life in range(LIVES):
            self._disk = Disk.of(self._live, f"{self.seed}/{life} partly")
            self._next_life = None
            number, now = life * 10_000, FIRST_TIME + life * 10**7
            process.run((self._kind.name, str(self._live), f"{self.seed}/{life}", number, now), self._live, self)
            if self._next_life is None:
                return
            image, self._known = self._next_life
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

    def told(self, what: str, *values: object) -> None:
        self._calls.append(what)
        changed = self._disk.look()
        if what == "broken":
            self._fail(f"the load broke: {values[0]}", "")
        try:
            changed |= self._known.told(what, *values)
        except Fault as fault:
            self._fail(str(fault), "")
        if changed:
            self._cut()

    def _cut(self) -> None:
        """The power goes here: make images, and recover them."""
        self.point += 1
        choice = random.Random(f"{self.seed} {self.point}")
        if choice.random() > SHARE_OF_POINTS:
            return
        for _ in range(IMAGES_PER_POINT):
            image, words = self._disk.image(choice)
            if not self._count():
                return
            _empty(self._image)
            disk.write(image, self._image)
            try:
                known = self._kind.check(self._image, self._known, choice)
            except Fault as fault:
                self._fail(str(fault), words)
            if choice.random() < 0.1:
                self._next_life = image, known

    def _fail(self, text: str, words: str) -> NoReturn:
        calls = "\n    ".join(self._calls)
        raise AssertionError(
            f"seed {self.seed}, point {self.point}: {text}\n  the cut left: {words}\n  before it:\n    {calls}\n"
            f"  again: ROCKMQ_CRASH_SEED={self.seed} pytest tests/crash/test_points.py -k {self._kind.name}"
        )


def _empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
