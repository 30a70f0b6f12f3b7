"""Forces the log to disk, in a thread of its own that holds no lock of Python's while the disk works.

Sync flush is a group commit: whoever waits asks for a position, and each force takes everything that was appended by
then, so one force answers all that arrived during the one before (GroupCommitService in CommitLog.java). Async flush
forces on its interval (FlushRealTimeService). A force that fails is never tried again: after an error the kernel may have
dropped the pages and would report success (the store stops instead).
"""

import asyncio
import threading
from collections.abc import Callable

from rockmq import _core
from rockmq.base.clock import Clock


class Flusher:
    """`flushed` is called in the loop with each new position that is on disk, `failed` once if a force fails."""

    def __init__(
        self,
        core: _core.Store,
        clock: Clock,
        *,
        interval_seconds: float | None,
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._interval = interval_seconds
        self._flushed = flushed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Event()
        self._closing = False
        self.forced_until = 0
        """Everything stored before this time (ms) is on disk."""
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Force what is in the log now, soon."""
        # Setting takes a lock. While it is set, the thread has yet to look how far the log has grown.
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._interval)
            self._wake.clear()
            if not self._force():
                return

    def _force(self) -> bool:
        before = self._clock.now_ms()
        if self._core.max_position > self._core.flushed_position:
            try:
                position = self._core.flush()
            except Exception as error:  # whatever it is, durability is gone  # noqa: BLE001
                self._tell(self._failed, error)
                return False
            self._tell(self._flushed, position)
        self.forced_until = before
        return True

    def _tell(self, callback: "Callable[..., None]", value: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, value)

    async def close(self) -> None:
        """Force a last time and end the thread."""
        self._closing = True
        self._wake.set()
        await self._loop.run_in_executor(None, self._thread.join)
