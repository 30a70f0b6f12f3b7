"""The files of a store that hold no messages: who owns the directory, and whether its last owner left in order."""

import errno
import fcntl
import os
from pathlib import Path

from rockmq.base.errors import ConfigError


class StoreLock:
    """Excludes a second broker from a store: a record lock on byte 0 of `lock`, which an Apache broker respects.

    Record locks belong to the process, so a second store in the same process is kept out by `flock` on the same
    descriptor. The lock ends with the descriptor; nothing else here may open and close the file (store spec, pitfall 20).
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the store is in use."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise ConfigError(f"the store {path.parent} is in use by another broker") from None
            raise
        os.pwrite(self._descriptor, b"lock", 0)

    def release(self) -> None:
        os.close(self._descriptor)


class AbortMark:
    """The file `abort` stands while a broker runs; finding it at a start means that the last one was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.was_there = path.exists()

    def set(self) -> None:
        self._path.write_text(str(os.getpid()), encoding="ascii")

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
