"""What fails may come back; a stream ends only for what has failed for long."""

import logging

from rockmq.base.clock import Clock

log = logging.getLogger(__name__)


class Patience:
    """What fails, and since when; looked at in rounds. Things are told apart by texts that name them."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._failing: set[str] = set()

    def is_over(self, what: str, fault: str) -> bool:
        """`what` fails in this round: whether it has for long enough now. The first time there is a warning."""
        self._failing.add(what)
        now = self._clock.monotonic()
        if what not in self._since:
            log.warning("%s: %s; going on without it for up to %g s", what, fault, self._seconds)
            self._since[what] = now
        return now - self._since[what] >= self._seconds

    def end_round(self) -> bool:
        """Whether nothing has failed in it. What didn't fail is well again, or isn't asked for any more."""
        for what in self._since.keys() - self._failing:
            log.warning("%s: fails no longer", what)
            del self._since[what]
        self._failing.clear()
        return not self._since
