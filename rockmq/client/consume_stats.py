"""How fast a consumer is, per topic, as administrators see it (ConsumerStatsManager.java, ConsumeStatus.java).

Counters only ever grow; every 10 s they are written down, failures every minute, and rates are differences between what was
written a minute or an hour ago and now.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import field

from rockmq.client.stats import Work
from rockmq.protocol.bodies.common import Body

SAMPLE_SECONDS = 10.0
SAMPLES_A_MINUTE = 6
MINUTES = 60


@dataclass(slots=True)
class Pulls:
    """Those that found messages."""

    count: int = 0
    messages: int = 0
    seconds: float = 0.0


class ConsumeStatus(Body, kw_only=True):
    """Times in ms, rates a second, all over the last minute; failures over the last hour."""

    pull_rt: float = field(name="pullRT")
    pull_tps: float = field(name="pullTPS")
    consume_rt: float = field(name="consumeRT")
    consume_ok_tps: float = field(name="consumeOKTPS")
    consume_failed_tps: float = field(name="consumeFailedTPS")
    consume_failed_msgs: int


class TopicStats:
    """The counters of one topic; `work` is what the group has done in it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.pulls = Pulls()
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_A_MINUTE)
        self._failed: deque[int] = deque([work.failed], maxlen=MINUTES + 1)
        self._sampled = 0
        self._began = self._now(0)

    def sample(self, time: float) -> None:
        """Write down the counters; `time` is monotonic."""
        self._samples.append(self._now(time))
        self._sampled += 1
        if self._sampled % SAMPLES_A_MINUTE == 0:
            self._failed.append(self.work.failed)

    def status(self, time: float) -> ConsumeStatus:
        now = self._now(time)
        then = self._samples[0] if self._samples else self._began._replace(time=time)
        passed = max(time - then.time, 1.0)
        work = max(now.done + now.failed - then.done - then.failed, 1)
        return ConsumeStatus(
            pull_rt=1000 * (now.pull_seconds - then.pull_seconds) / max(now.pulls - then.pulls, 1),
            pull_tps=(now.pulled - then.pulled) / passed,
            consume_rt=1000 * (now.work_seconds - then.work_seconds) / work,
            consume_ok_tps=(now.done - then.done) / passed,
            consume_failed_tps=(now.failed - then.failed) / passed,
            consume_failed_msgs=now.failed - self._failed[0],
        )

    def _now(self, time: float) -> "_Sample":
        work, pulls = self.work, self.pulls
        return _Sample(time, work.done, work.failed, work.seconds, pulls.count, pulls.messages, pulls.seconds)


class _Sample(NamedTuple):
    """The counters at a time."""

    time: float
    done: int
    failed: int
    work_seconds: float
    pulls: int
    pulled: int
    pull_seconds: float
