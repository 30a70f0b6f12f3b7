"""Sums over a minute, an hour and a day, against what a list of all that was counted says."""

import random

import pytest

from rockmq.broker.stats import DAY, HOUR, MINUTE, SAMPLE_SECONDS, BrokerStats, Series, Unit
from tests.support.clock import FakeClock


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_the_window(seed: int) -> None:
    """To within two samples' distance at the window's beginning."""
    dice = random.Random(seed)
    series, events, now = Series(0.0), [(0.0, 0)], 0.0
    while now < 2 * DAY.size:
        # Busy for some time, idle for some time.
        busy = dice.choice([True, False])
        end = now + dice.choice([30.0, 600.0, 7200.0])
        while now < end:
            now += SAMPLE_SECONDS
            if busy:
                count = dice.randrange(1, 9)
                series.totals[Unit.MESSAGES] += count
                series.totals[Unit.TIMES] += 1
                events.append((now - 0.001, count))
                series.sample(now)
        for window in (MINUTE, HOUR, DAY):
            grown = series.grown(Unit.MESSAGES, window, now)
            least, most = (_sum(events, now - window.size + each * window.period) for each in (1, -2))
            assert least <= grown.sum <= most, (window, now)
            assert grown.per_second == pytest.approx(grown.sum / max(min(window.size, now), SAMPLE_SECONDS))


def _sum(events: list[tuple[float, int]], since: float) -> int:
    return sum(count for at, count in events if at > since)


def test_a_series_that_began_just_now() -> None:
    series = Series(1000.0)
    series.totals[:] = [30, 3000, 3]
    for window in (MINUTE, HOUR, DAY):
        grown = series.grown(Unit.BYTES, window, 1001.0)
        assert (grown.sum, grown.per_second, grown.average) == (3000, 300.0, 1000.0)


def test_an_idle_series_holds_little_and_is_forgotten() -> None:
    series = Series(0.0)
    series.totals[Unit.MESSAGES] = 5
    series.sample(10.0)
    assert [series.grown(Unit.MESSAGES, each, 10.0).sum for each in (MINUTE, HOUR, DAY)] == [5, 5, 5]
    later = 10.0 + HOUR.size + HOUR.period
    assert [series.grown(Unit.MESSAGES, each, later).sum for each in (MINUTE, HOUR, DAY)] == [0, 0, 5]
    assert not series.is_idle(later)
    assert series.is_idle(11.0 + DAY.size)


def test_a_busy_series_keeps_a_bound_of_samples() -> None:
    series = Series(0.0)
    for number in range(20_000):
        series.totals[Unit.MESSAGES] += 1
        series.sample(number * SAMPLE_SECONDS)
    for window, samples in series._samples.items():
        assert len(samples) / 4 <= window.size / window.period + 3
    # At worst it is idle for just so long that each time it isn't is told by two samples.
    for number in range(1000):
        series.totals[Unit.MESSAGES] += 1
        series.sample(200_000 + number * 3600.0)
    assert sum(map(len, series._samples.values())) * 8 < 2500


async def test_topics_that_are_counted_together_are_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    class Core:
        def take_arrivals(self, count_max: int) -> list[tuple[str | None, int, int]]:
            return [("T", 2, 20), (None, 3, 300), ("rmq_sys_x", 1, 5)]

    class Store:
        core = Core()

    stats = BrokerStats(FakeClock(), Store(), "C")
    await stats.refresh()
    await stats.refresh()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    found = {name: stats.find(name, key) for name, key in (("BROKER_PUT_NUMS", "C"), ("TOPIC_PUT_NUMS", "T"))}
    found["others"] = stats.find("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "C")
    totals = {name: series.totals for name, (series, _) in found.items()}
    assert totals == {"BROKER_PUT_NUMS": [12, 650, 12], "TOPIC_PUT_NUMS": [4, 40, 4], "others": [10, 640, 10]}
