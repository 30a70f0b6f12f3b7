"""What a run found out: each row's loads, and what they come to."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.support.loadgen import Load
from benchmarks.support.rows import Row
from benchmarks.support.servers import Memory


@dataclass(frozen=True)
class Pace:
    """How long everything takes, in seconds."""

    seconds: float
    warmup: float
    repeats: int
    jit_first: float
    """Load on a JVM just started, before anything is measured: it takes about a minute to get fast."""
    jit_row: float
    """Load on a JVM of each row's own kind, before the row."""


@dataclass(frozen=True)
class Standing:
    """A server doing nothing on an empty store: how fast it came, how much it holds, what it burns."""

    start_s: list[float]
    memory: list[Memory]
    idle_cores: list[float]


@dataclass(frozen=True)
class Restarts:
    """A server killed with SIGKILL and started again: seconds from exec to the first accepted message."""

    start_s: list[float]
    log_size: int
    """Bytes of the commit log's files in the end."""


@dataclass(frozen=True)
class Ratios:
    """Ours against one rival, medians of all repeats."""

    throughput: float
    cpu: float | None


@dataclass(frozen=True)
class Measured:
    """A row's runs by contestant, in the order they were made."""

    row: Row
    loads: Mapping[str, list[Load]]
    loopback: Load | None
    failures: Mapping[str, str]
    """What rivals said that couldn't do it at all."""

    def ratios(self, rival: str) -> Ratios | None:
        if rival not in self.loads or self.row.ours not in self.loads:
            return None
        ours, theirs = self.median(self.row.ours), self.median(rival)
        cpu = None
        if ours.server_cpu_us_per_message and theirs.server_cpu_us_per_message:
            cpu = theirs.server_cpu_us_per_message / ours.server_cpu_us_per_message
        return Ratios(ours.messages_per_second / theirs.messages_per_second, cpu)

    def median(self, contestant: str) -> Load:
        """The middle run by throughput, whole, so that its figures belong together; the lower of two middles."""
        ranked = sorted(self.loads[contestant], key=lambda load: load.messages_per_second)
        return ranked[(len(ranked) - 1) // 2]

    def verdict(self) -> bool | None:
        """Whether every promise was kept; None when nothing was promised or there was nobody to compare with."""
        goal = self.row.goal
        kept: list[bool] = []
        if goal.mb_per_second is not None and self.row.ours in self.loads:
            limit = self.loopback.mb_in_per_second if self.loopback else goal.mb_per_second
            kept.append(self.median(self.row.ours).mb_in_per_second >= min(goal.mb_per_second, limit))
        if ratios := self.ratios(goal.against):
            if goal.throughput_ratio is not None:
                kept.append(ratios.throughput >= goal.throughput_ratio)
            if goal.p999_ratio is not None:
                ours, theirs = self.median(self.row.ours), self.median(goal.against)
                kept.append(ours.p999_us <= goal.p999_ratio * theirs.p999_us)
            if goal.latency_ratio is not None:
                ours, theirs = self.median(self.row.ours), self.median(goal.against)
                kept.append(ours.p50_us <= goal.latency_ratio * theirs.p50_us)
                kept.append(ours.p99_us <= goal.latency_ratio * theirs.p99_us)
            if goal.cpu_ratio is not None and ratios.cpu is not None:
                kept.append(ratios.cpu >= goal.cpu_ratio)
        return all(kept) if kept else None
