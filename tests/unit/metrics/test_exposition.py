"""Samples as text."""

import asyncio
import time
from collections.abc import Iterable, Iterator

import pytest

from rockmq.metrics import samples as samples_module
from rockmq.metrics.exposition import Exposition
from rockmq.metrics.histogram import Histogram
from rockmq.metrics.samples import Metric, Ranges, Reader, Sample
from tests.support import metrics

COUNTER = Metric("done_total", "counter", "What was done.", ("by",))
GAUGE = Metric("open", "gauge", "What is\nopen.", ("by", "kind"))
PLAIN = Metric("up", "gauge", "Whether it is.")
SIZES = Metric("size", "histogram", "Sizes.", ("by",), bounds=(1, 2.5))
DROPPED = Metric("dropped", "gauge", "Left out.")
ALL = (COUNTER, GAUGE, PLAIN, SIZES)


async def rendered(
    samples: Iterable[Sample | None],
    *,
    openmetrics: bool = False,
    common: dict[str, str] | None = None,
    series_max: int = 100,
) -> str:
    written = Exposition(Reader(ALL, DROPPED, series_max), {"node": "a"} if common is None else common)
    return b"".join(await written.render(samples, openmetrics=openmetrics)).decode()


async def test_the_text_is_prometheus_own() -> None:
    samples: list[Sample | None] = [
        (GAUGE, ('"x"\\\n', "b"), 1.5),
        None,
        (COUNTER, ("me",), 2),
        (SIZES, ("me",), Ranges([1, 0, 3], 14.5)),
        (GAUGE, ("y", ""), 2),
    ]
    assert await rendered(samples) == (
        "# HELP done_total What was done.\n# TYPE done_total counter\n"
        'done_total{node="a",by="me"} 2\n'
        "# HELP open What is\\nopen.\n# TYPE open gauge\n"
        'open{node="a",by="\\"x\\"\\\\\\n",kind="b"} 1.5\n'
        'open{node="a",by="y"} 2\n'
        "# HELP size Sizes.\n# TYPE size histogram\n"
        'size_bucket{node="a",by="me",le="1.0"} 1\n'
        'size_bucket{node="a",by="me",le="2.5"} 1\n'
        'size_bucket{node="a",by="me",le="+Inf"} 4\n'
        'size_count{node="a",by="me"} 4\n'
        'size_sum{node="a",by="me"} 14.5\n'
        "# HELP dropped Left out.\n# TYPE dropped gauge\n"
        'dropped{node="a"} 0\n'
    )


async def test_openmetrics_has_counters_without_their_suffix_and_an_end() -> None:
    text = await rendered([(COUNTER, ("me",), 2), (PLAIN, (), 1)], openmetrics=True, common={})
    assert text == (
        "# HELP done What was done.\n# TYPE done counter\n"
        'done_total{by="me"} 2\n'
        "# HELP up Whether it is.\n# TYPE up gauge\n"
        "up 1\n"
        "# HELP dropped Left out.\n# TYPE dropped gauge\n"
        "dropped 0\n"
        "# EOF\n"
    )


async def test_series_over_the_bound_are_counted_together_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def samples() -> Iterator[Sample]:
        for number in range(5):
            yield COUNTER, (str(number),), 10**number
            yield GAUGE, (str(number), ""), number
            yield SIZES, (str(number),), Ranges([1, number, 0], number)

    written = Exposition(Reader(ALL, DROPPED, 2), {"node": "a"})
    for _ in range(2):
        found = metrics.read(b"".join(await written.render(samples(), openmetrics=False)).decode())
    assert len(found["done_total"].samples) == 3
    assert metrics.value(found, "done_total", otel_metric_overflow="true") == 11_100
    assert metrics.value(found, "size_count", otel_metric_overflow="true") == 3 + 9
    assert metrics.value(found, "size_sum", otel_metric_overflow="true") == 9
    assert {dict(labels)["by"] for _, labels in found["open"].samples} == {"0", "1"}
    assert metrics.value(found, "dropped") == 9
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3, "once for each metric"
    assert "open has more than 2 series (metricsOtelCardinalityLimit): the others are left out" in said


async def test_others_have_their_turns_while_much_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample takes as long as a slice may, by a clock that only the writing moves."""
    now = [0.0]

    def samples() -> Iterator[Sample]:
        for number in range(100):
            now[0] += samples_module.SLICE_SECONDS * 1.5
            yield COUNTER, (str(number),), 1

    monkeypatch.setattr(samples_module, "monotonic", lambda: now[0])
    turns = 0
    writing = asyncio.ensure_future(rendered(samples()))
    while not writing.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(metrics.read(writing.result())["done_total"].samples) == 100
    assert turns >= 100


def test_a_value_at_a_bound_is_below_it() -> None:
    histogram = Histogram((1, 10))
    for each in (0, 1, 1.1, 10, 11):
        histogram.note(each)
    assert histogram.ranges == Ranges([2, 2, 1], 23.1)


async def test_what_is_asked_at_the_same_time_is_written_one_after_the_other() -> None:
    written, open_now, most = Exposition(Reader(ALL, DROPPED, 9), {}), 0, 0

    def samples() -> Iterator[Sample | None]:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        time.sleep(samples_module.SLICE_SECONDS)
        yield None
        yield PLAIN, (), 1
        open_now -= 1

    texts = await asyncio.gather(*(written.render(samples(), openmetrics=False) for _ in range(3)))
    assert most == 1
    assert texts[0] == texts[1] == texts[2]
