"""The bound of each topic by bytes, retentionBytesPerTopic (beyond Apache; docs/adr/0010).

All topics share the log, so a topic has a share in each of its files, and goes file by file: its messages in the oldest one
are hidden, by raising the minimum of its queues, while all its shares together are over the bound; never those in the newest
it has. The bytes come back when a file holds nothing that any topic keeps (`Retention`). Until then hidden messages are
found by id and by key. Which are hidden follows from the log alone, so a start finds the same ones again. Topics of the
system, where delayed and half messages wait for their time, have no bound.
"""

import logging
from itertools import pairwise

from rockmq import _core
from rockmq.protocol import topics

log = logging.getLogger(__name__)


class TopicBounds:
    """Counts what each topic has in each log file, and hides what is over the bound."""

    def __init__(self, core: _core.Store, bytes_max: int) -> None:
        self._core = core
        self._bytes_max = bytes_max
        self._counted = self._first = 0
        self._shares: dict[str, dict[int, int]] = {}
        """Bytes by topic and by the first position of a file; only what isn't hidden."""

    def apply(self, bases: list[int], end: int) -> None:
        """Count what came since the last call, at the first one all, and hide what is over the bound. It may take long.

        `bases` are the first positions of the log's files, `end` is a position up to which they reach.
        """
        changed: set[str] = set()
        for base, behind in zip(bases, [*bases[1:], end], strict=False):
            start, stop = max(base, self._counted), min(behind, end)
            if start >= stop:
                continue
            for topic, size in self._core.count_bytes(start, stop):
                shares = self._shares.setdefault(topic, {})
                shares[base] = shares.get(base, 0) + size
                changed.add(topic)
            self._counted = stop
        if bases and bases[0] > self._first:
            self._first = bases[0]
            self._forget(bases)
        for topic in changed:
            if not topics.is_system(topic):
                self._hide(topic, self._shares.get(topic, {}))

    def delete(self, topic: str) -> None:
        """The topic was deleted, with its queues."""
        self._shares.pop(topic, None)

    def _forget(self, bases: list[int]) -> None:
        """Drop what was counted in files that are gone."""
        there = set(bases)
        for topic, shares in list(self._shares.items()):
            for base in shares.keys() - there:
                del shares[base]
            if not shares:
                del self._shares[topic]

    def _hide(self, topic: str, shares: dict[int, int]) -> None:
        kept = 0
        for newer, base in pairwise(sorted(shares, reverse=True)):
            kept += shares[newer]
            if kept + shares[base] > self._bytes_max:
                self._core.raise_min(topic, newer)
                hidden = sum(shares.pop(each) for each in list(shares) if each <= base)
                log.info("%d bytes of topic %s below %d are hidden: over retentionBytesPerTopic", hidden, topic, newer)
                return
