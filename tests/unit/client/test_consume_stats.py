"""Figures of a consumer over the last minute."""

import pytest

from rockmq.client.consume_stats import SAMPLE_SECONDS, TopicStats
from rockmq.client.stats import Work


def test_rates_are_those_of_the_last_minute() -> None:
    stats = TopicStats(Work())
    for number in range(61):
        stats.sample(number * SAMPLE_SECONDS)
        stats.work.ended(0.042, done=20, failed=1)
        stats.pulls.messages += 32
        stats.pulls.count += 1
        stats.pulls.seconds += 0.005
    found = stats.status(61 * SAMPLE_SECONDS)
    assert (found.consume_ok_tps, found.consume_failed_tps, found.pull_tps) == pytest.approx((2, 0.1, 3.2))
    assert (found.consume_rt, found.pull_rt) == pytest.approx((2, 5))
    assert found.consume_failed_msgs == 61


def test_before_the_first_sample() -> None:
    stats = TopicStats(Work())
    stats.work.done = 5
    found = stats.status(0.5)
    assert (found.consume_ok_tps, found.consume_rt, found.consume_failed_msgs) == (5, 0, 0)


def test_failures_are_those_of_the_last_hour() -> None:
    stats = TopicStats(Work())
    for number in range(2 * 360):
        stats.work.failed += 1
        stats.sample(number * SAMPLE_SECONDS)
    assert 360 <= stats.status(2 * 3600).consume_failed_msgs <= 366
