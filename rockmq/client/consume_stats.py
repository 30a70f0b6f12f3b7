"""How fast a consumer is, per topic, as administrators see it (ConsumerStatsManager.java, ConsumeStatus.java).

Counters only ever grow; every 10 s they are written down, failures every minute, and rates are differences between what was
written a minute or an hour ago and now.
"""

from collections import deque
from dataclasses import astuple, dataclass

from msgspec import field

from rockmq.protocol.bodies.common import Body

SAMPLE_SECONDS = 10.0
SAMPLES_A_MINUTE = 6
MINUTES = 60


@dataclass(slots=True)
class Counts:
    done: int = 0
    failed: int = 0
    ended: int = 0
    """Blocks of work that ended, well or not, and how long they took."""
    work_seconds: float = 0.0
    pulled: int = 0
    pulls: int = 0
    pull_seconds: float = 0.0


class ConsumeStatus(Body, kw_only=True):
    """Times in ms, rates a second, all over the last minute; failures over the last hour."""

    pull_rt: float = field(name="pullRT")
    pull_tps: float = field(name="pullTPS")
    consume_rt: float = field(name="consumeRT")
    consume_ok_tps: float = field(name="consumeOKTPS")
    consume_failed_tps: float = field(name="consumeFailedTPS")
    consume_failed_msgs: int


class TopicStats:
    """The counters of one topic."""

    def __init__(self) -> None:
        self.now = Counts()
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=SAMPLES_A_MINUTE)
        self._failed: deque[int] = deque([0], maxlen=MINUTES + 1)
        self._sampled = 0

    def sample(self, time: float) -> None:
        """Write down the counters; `time` is monotonic."""
        self._samples.append((time, Counts(*astuple(self.now))))
        self._sampled += 1
        if self._sampled % SAMPLES_A_MINUTE == 0:
            self._failed.append(self.now.failed)

    def status(self, time: float) -> ConsumeStatus:
        now = self.now
        at, then = self._samples[0] if self._samples else (time, Counts())
        passed = max(time - at, 1.0)
        return ConsumeStatus(
            pull_rt=1000 * (now.pull_seconds - then.pull_seconds) / max(now.pulls - then.pulls, 1),
            pull_tps=(now.pulled - then.pulled) / passed,
            consume_rt=1000 * (now.work_seconds - then.work_seconds) / max(now.ended - then.ended, 1),
            consume_ok_tps=(now.done - then.done) / passed,
            consume_failed_tps=(now.failed - then.failed) / passed,
            consume_failed_msgs=now.failed - self._failed[0],
        )
