"""When refused messages come again."""

from datetime import timedelta

import pytest

from rockmq.base.errors import ClientError
from rockmq.client import backoff, retries


@pytest.mark.parametrize(
    ("wanted", "level"), [(0, 1), (0.2, 1), (1, 1), (1.001, 2), (5, 2), (11, 4), (60, 5), (7200, 18), (7201, 18), (1e9, 18)]
)
def test_the_level_that_is_not_shorter(wanted: float, level: int) -> None:
    assert retries.level_of(wanted) == level
    assert retries.seconds_of(level) >= min(wanted, 7200)


def test_times_to_wait() -> None:
    assert retries.seconds(timedelta(minutes=2)) == 120
    assert retries.seconds_of(40) == 7200
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ClientError, match="expected 0 or more"):
            retries.seconds(wrong)


def test_backoff_doubles_up_to_its_most() -> None:
    pause = backoff(1, 60)
    assert [pause(times) for times in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause(10_000) == 60
    with pytest.raises(ClientError, match="0 < first <= most"):
        backoff(5, 1)


def test_backoff_with_jitter_stays_between_half_and_all() -> None:
    pause = backoff(2, 60, jitter=True)
    found = {pause(3) for _ in range(100)}
    assert len(found) > 50
    assert all(8 <= each <= 16 for each in found)
