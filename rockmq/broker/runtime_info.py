"""GET_BROKER_RUNTIME_INFO's table (protocol spec, 5.2). Tools parse some of it as numbers: all of that is always there, also
what there is nothing to say of here.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from rockmq.base.clock import Clock
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.stats import BrokerStats, Rate
from rockmq.config.key import INT_MAX
from rockmq.protocol import codec
from rockmq.store.disk import usage
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore

VERSION_DESCRIPTION = "V5_3_3"
"""Tools show this as the broker's version; it is the protocol's, ours stands in `rockmqVersion`."""

_PUT_TIMES = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s", "3~4s", "4~5s", "5~10s",
    "10s~",
)  # fmt: skip
_UNTIMED = {
    "putMessageEntireTimeMax": "0",
    "putMessageDistributeTime": "".join(f"[{each}]:0 " for each in _PUT_TIMES),
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "getMessageEntireTimeMax": "0",
}
"""How long it took to store or to get single messages, which nobody measures here: that would cost more than it tells."""


class RuntimeInfo:
    """Counts what the broker does, and tells it. `sample` is called every `stats.SAMPLE_SECONDS`."""

    def __init__(self, clock: Clock, store: MessageStore, long_polling: LongPolling, stats: BrokerStats) -> None:
        self._clock = clock
        self._store = store
        self._long_polling = long_polling
        self._stats = stats
        self.tellers: list[Callable[[], Mapping[str, object]]] = []
        """What other parts of the broker add to the table."""
        self._started = clock.now_ms()
        self.put = Rate(clock)
        self.got = Rate(clock)
        self.timers: TimerStore | None = None
        self.enqueued = Rate(clock)
        self.dequeued = Rate(clock)
        self._morning = self._midnight()
        self._put_morning = [0, 0]
        self._got_morning = [0, 0]
        """Totals at yesterday's and at today's midnight, as far as this process has seen them."""

    def sample(self) -> None:
        self._refresh()
        for rate in (self.put, self.got, self.enqueued, self.dequeued):
            rate.sample()
        midnight = self._midnight()
        if midnight != self._morning:
            self._morning = midnight
            self._put_morning = [self._put_morning[1], self.put.total]
            self._got_morning = [self._got_morning[1], self.got.total]

    def _refresh(self) -> None:
        self.put.total = self._store.core.appended[0]
        self.got.total = self._stats.got_total
        if self.timers is not None:
            self.enqueued.total, self.dequeued.total = self.timers.enqueued, self.timers.delivered

    def _timer_figures(self, now: int) -> dict[str, object]:
        timers = self.timers
        return {
            "timerReadBehind": max(0, now - timers.read_time) // 1000 if timers else 0,
            "timerOffsetBehind": timers.behind if timers else 0,
            "timerCongestNum": timers.pending if timers else 0,
            "timerEnqueueTps": self.enqueued.per_second()[0],
            "timerDequeueTps": self.dequeued.per_second()[0],
        }

    def _midnight(self) -> datetime:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone()
        return now.replace(hour=0, minute=0, second=0, microsecond=0)

    def table(self) -> dict[str, str]:
        self._refresh()
        store, core, now = self._store, self._store.core, self._clock.now_ms()
        messages, size = core.appended
        log_disks, queue_disk = [usage(each) for each in store.log_directories], usage(store.root)
        log_disk = min(log_disks, key=lambda each: each.percent)
        behind = core.max_position - core.flushed_position
        table: dict[str, object] = {
            "bootTimestamp": self._started,
            "runtime": "[ " + str(timedelta(milliseconds=now - self._started)).partition(".")[0] + " ]",
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_DESCRIPTION,
            "brokerVersion": codec.VERSION,  # of 4.9's, and read by Apache's exporter
            "rockmqVersion": codec.SOFTWARE_VERSION,
            "putMessageTimesTotal": messages,
            "putMessageSizeTotal": size,
            "putMessageAverageSize": size / messages if messages else 0,
            "putTps": self.put,
            "getFoundTps": self.got,
            "getTotalTps": self.got,
            "getMissTps": "0.0 0.0 0.0",
            "getTransferredTps": self.got,
            "getTransferedTps": self.got,  # as 4.x spells it, and its clusterList can't do without
            "commitLogMinOffset": core.min_position,
            "commitLogMaxOffset": core.max_position,
            **{f"commitLogDiskRatio_{each.path}": each.percent / 100 for each in log_disks},
            "commitLogDiskRatio": log_disk.percent / 100,
            "consumeQueueDiskRatio": queue_disk.percent / 100,
            "commitLogDirCapacity": f"Total : {_size(log_disk.total)}, Free : {_size(log_disk.free)}.",
            "takesMessages": "true" if store.refusal is None else "false",
            "remainHowManyDataToFlush": _size(behind),
            "remainTransientStoreBufferNumbs": INT_MAX,  # as without the pool that its size is of
            "dispatchBehindBytes": 0,
            "dispatchMaxBuffer": 0,
            "pageCacheLockTimeMills": 0,
            "earliestMessageTimeStamp": core.files()[0][1] if core.files() else -1,
            "startAcceptSendRequestTimeStamp": 0,
            "msgPutTotalYesterdayMorning": self._put_morning[0],
            "msgPutTotalTodayMorning": self._put_morning[1],
            "msgPutTotalTodayNow": messages,
            "msgGetTotalYesterdayMorning": self._got_morning[0],
            "msgGetTotalTodayMorning": self._got_morning[1],
            "msgGetTotalTodayNow": self.got.total,
            "suspendedPulls": self._long_polling.count,
            **self._timer_figures(now),
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 0,
        }
        if store.scrub is not None:
            table |= {
                "scrubbedBytes": store.scrub.scrubbed,
                "scrubFaults": store.scrub.faults,
                "scrubLastRound": store.scrub.last_round,
            }
        if store.refusal is not None:
            table["refusesMessagesBecause"] = store.refusal
        for teller in self.tellers:
            table |= teller()
        table |= _UNTIMED
        # Requests don't queue here: each is carried out when it is read. Tools want the figures all the same.
        for pool in ("send", "pull", "litePull", "query", "ack"):
            table |= {
                f"{pool}ThreadPoolQueueSize": 0,
                f"{pool}ThreadPoolQueueCapacity": 0,
                f"{pool}ThreadPoolQueueHeadWaitTimeMills": 0,
            }
        return {key: str(value) for key, value in table.items()}


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
