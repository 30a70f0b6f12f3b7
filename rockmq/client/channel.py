"""Many requests on one connection: what is sent in one turn of the event loop leaves in one write.

A send costs no task and no timer here: `start` gives a plain future, and who waits for many keeps one clock for all.
"""

import asyncio

from rockmq.protocol.codec import Command
from rockmq.remoting.connection import Connection, Waiter

FLUSH_BYTES = 256 * 1024
"""Bytes that are written at once instead of at the end of the turn."""


class Channel:
    """The sending side of an open connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._size = 0

    @property
    def open(self) -> bool:
        return not self.connection.lost and not self.connection.transport.is_closing()

    def start(self, request: Command) -> "asyncio.Future[Command]":
        """Send a request; the future gets its response or ConnectionLost. Raises ConnectionLost.

        Who stops waiting must `forget` the request.
        """
        future: asyncio.Future[Command] = self._loop.create_future()
        self.send(request, future)
        return future

    def send(self, request: Command, waiter: Waiter) -> None:
        """As `start`, but the answer goes to the waiter."""
        self.connection.expect_for(request, waiter)
        self._add(request.encode())

    def forget(self, opaque: int) -> None:
        """Drop the answer of this request should it come."""
        self.connection.forget(opaque)

    def _add(self, frame: bytes) -> None:
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        frames, self._frames, self._size = self._frames, [], 0
        if frames:
            self.connection.write(frames[0] if len(frames) == 1 else b"".join(frames))
