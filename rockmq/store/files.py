"""The files of a store that hold no messages: who owns the directory, and whether its last owner left in order."""

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from rockmq.base.errors import ConfigError
from rockmq.base.files import sync_directory

_held: set[tuple[int, int]] = set()
"""(device, inode) of the lock files this process holds."""


class StoreLock:
    """Excludes a second broker from a store: a record lock on byte 0 of `lock`, which an Apache broker respects.

    Record locks belong to the process, and end when it closes *any* descriptor of the file (store spec, pitfall 20). So a
    second store in the same process is kept out before it opens the file.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the store is in use."""
        if not path.exists():
            path.touch()
        found = path.stat()
        self._key = (found.st_dev, found.st_ino)
        in_use = ConfigError(f"the store {path.parent} is in use by another broker")
        if self._key in _held:
            raise in_use
        self._descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise in_use from None
            raise
        _held.add(self._key)
        with contextlib.suppress(OSError):  # only a courtesy: it is the lock that counts, and a disk may be full
            os.pwrite(self._descriptor, b"lock", 0)

    def release(self) -> None:
        _held.discard(self._key)
        os.close(self._descriptor)


_FLOCK = struct.Struct("@hhqqi")


def is_locked(path: Path) -> bool:
    """Whether a broker holds the store whose `lock` this is; asks without taking the lock, and needs no right to write."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    if (found.st_dev, found.st_ino) in _held:
        return True  # and opening the file here would end the lock
    descriptor = os.open(path, os.O_RDONLY)
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    finally:
        os.close(descriptor)
    kind: int = _FLOCK.unpack(answer)[0]
    return kind != fcntl.F_UNLCK


class AbortMark:
    """The file `abort` stands while a broker runs; finding it at a start means that the last one was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.was_there = path.exists()

    def set(self) -> None:
        with open(self._path, "w", encoding="ascii") as mark, contextlib.suppress(OSError):
            # That it stands is what counts, and on a full disk there may be a name but no room for the number.
            os.write(mark.fileno(), b"%d" % os.getpid())
        # A power cut may not take the name away: the next start would trust what was never forced.
        sync_directory(self._path.parent)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
