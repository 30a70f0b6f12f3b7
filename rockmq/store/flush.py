"""Forces the log to disk, in a thread of the core that holds no lock of Python's.

Sync flush is a group commit: whoever waits asks for it, and each force takes everything that was appended by then, so one
force answers all that arrived during the one before (GroupCommitService in CommitLog.java). Async flush forces on its
interval (FlushRealTimeService). A force that fails is never tried again: after an error the kernel may have dropped the
pages and would report success (the store stops instead).
"""

import asyncio
from collections.abc import Callable

from rockmq import _core


class Flusher:
    """`flushed` is called in the loop with new positions that are on disk, `failed` once if a force fails."""

    def __init__(
        self,
        core: _core.Store,
        *,
        interval_seconds: float | None,
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._store = core
        self._core = _core.Flusher(core, None if interval_seconds is None else max(1, round(interval_seconds * 1000)))
        self._flushed = flushed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._core.fileno(), self._tell)

    def _tell(self) -> None:
        try:
            position = self._core.take()
        except _core.StoreError as error:
            self._loop.remove_reader(self._core.fileno())
            self._flushed(self._store.flushed_position)  # by the one before, if that wasn't told yet
            self._failed(error)
        else:
            self._flushed(position)

    async def close(self) -> None:
        """Force a last time and end the thread."""
        await self._loop.run_in_executor(None, self._core.close)
        if self._loop.remove_reader(self._core.fileno()):
            self._tell()
