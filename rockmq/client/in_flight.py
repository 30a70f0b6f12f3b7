"""The bound on what was sent and not yet answered: messages and bytes over all producers of a client."""

import asyncio
import contextlib
from collections import deque


class InFlight:
    """Takes are served in the order of asking. One that alone is over the bytes goes when nothing else is in flight."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        assert messages_max > 0, messages_max
        assert bytes_max > 0, bytes_max
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def take_nowait(self, size: int) -> bool:
        """Take room for a message of so many bytes if there is some and nobody waits for it."""
        taken = self.bytes + size
        if self._waiting or self.messages >= self.messages_max or (taken > self.bytes_max and self.messages):
            return False
        self.messages += 1
        self.bytes = taken
        return True

    async def take(self, size: int) -> None:
        """Wait for room and take it."""
        if self.take_nowait(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)  # the turn had come in the same moment
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(entry)
                self._serve()
            raise

    def give_back(self, size: int, messages: int = 1) -> None:
        """So many messages, of so many bytes together, are answered."""
        self.messages -= messages
        self.bytes -= size
        if self._waiting:
            self._serve()

    def _fits(self, size: int) -> bool:
        return self.messages < self.messages_max and (self.bytes + size <= self.bytes_max or self.messages == 0)

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.messages += 1
                self.bytes += size
                turn.set_result(None)

    def __str__(self) -> str:
        return f"{self.messages} of {self.messages_max} messages, {self.bytes} of {self.bytes_max} bytes"
