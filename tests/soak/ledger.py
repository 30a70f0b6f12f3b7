"""What was sent and what came of it, in memory that doesn't grow with the number of messages."""

from enum import Flag


class Known(Flag):
    NOTHING = 0
    STORED = 1
    RECEIVED = 2


BOTH = Known.STORED | Known.RECEIVED


class Ledger:
    """Messages by number. One that is stored and was received is forgotten; whether it comes again doesn't matter."""

    def __init__(self) -> None:
        self.stored = 0
        self.failed = 0
        self.received = 0
        self._next = 0
        self._open: dict[int, Known] = {}

    def begin(self) -> int:
        """The number of a message that is about to be sent."""
        number = self._next
        self._next += 1
        self._open[number] = Known.NOTHING
        return number

    def sent(self, number: int) -> None:
        self.stored += 1
        self._now(number, Known.STORED)

    def not_sent(self, number: int) -> None:
        """It may be stored all the same, so it may come."""
        self.failed += 1
        self._open.pop(number, None)

    def came(self, number: int) -> None:
        if number in self._open:
            self._now(number, Known.RECEIVED)

    def _now(self, number: int, fresh: Known) -> None:
        known = self._open[number] | fresh
        if known == BOTH:
            del self._open[number]
            self.received += 1
        else:
            self._open[number] = known

    @property
    def missing(self) -> list[int]:
        """Stored for certain, and not received."""
        return [number for number, known in self._open.items() if known is Known.STORED]
