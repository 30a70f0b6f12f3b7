"""Reports and charts: what is in them, whatever the numbers, and that a browser could read them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.pipeline import plots
from rockmq.pipeline.report import ROWS_MAX, Report

START = 1_800_000_000_000


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [text.strip() for text in parsed(svg).itertext() if text.strip()]


def test_lines_have_names_ticks_and_tips() -> None:
    svg = plots.lines("Lag of <all>", {"a & b": [(START, 0.0), (START + 60_000, 1_250.0)], "c": [(START, None)]})

    shown = texts(svg)
    assert {"Lag of <all>", "a & b", "c", "0", "500", "1,000", "1,500"} <= set(shown)
    assert "a & b, 2027-01-15 08:01:00: 1,250" in shown
    assert any("2027-01-15 08:00:00 to 2027-01-15 08:01:00 UTC" in text for text in shown)


def test_a_gap_breaks_a_line() -> None:
    svg = plots.lines("x", {"a": [(0, 1), (1, 2), (2, None), (3, 4), (4, 5)]}, times=False)
    (path,) = (each for each in parsed(svg).iter() if each.tag.endswith("path"))
    assert path.attrib["d"].count("M") == 2


def test_columns_and_bars() -> None:
    svg = plots.columns("Faults", ["one", "two"], {"lost": [1, 0], "late": [2, 5]})
    assert {"one, lost: 1", "one, late: 2", "two, late: 5"} <= set(texts(svg))
    assert "two, lost: 0" not in texts(svg)
    assert {"a-name-that-is-much-longer-than-w…", "a-name-that-is-much-longer-than-what-fits", "1.2M"} <= set(
        texts(plots.bars("Keys", {"a-name-that-is-much-longer-than-what-fits": 1_200_000}))
    )


@pytest.mark.parametrize(
    "svg",
    [
        plots.lines("t", {}),
        plots.lines("t", {"a": [(0, None)]}),
        plots.columns("t", [], {}),
        plots.columns("t", ["a"], {"b": [0]}),
        plots.bars("t", {}),
        plots.bars("t", {"a": 0}),
    ],
)
def test_nothing_says_so(svg: str) -> None:
    assert texts(svg)[-1] == "nothing to show"


@given(st.floats(0, 1e12), st.integers(2, 9))
def test_ticks_are_few_and_reach_the_highest(high: float, count: int) -> None:
    ticks = plots.steps(0.0, high, count)
    assert ticks[0] == 0.0
    assert ticks[-1] >= high * 0.999
    assert 2 <= len(ticks) <= count * 2 + 2


@given(st.integers(0, 10**12), st.integers(2, 9))
def test_ticks_of_what_is_counted_are_whole(high: int, count: int) -> None:
    ticks = plots.steps(0.0, high, count, whole=True)
    assert all(tick == int(tick) for tick in ticks)
    assert ticks[-1] >= high * 0.999
    assert len(ticks) <= count * 2 + 2


def test_a_chart_of_counts_has_whole_ticks_and_one_of_rates_has_not() -> None:
    for values, ticks in (([1.0, 3.0], ["0", "1", "2", "3"]), ([0.5, 1.0], ["0", "0.25", "0.5", "0.75", "1"])):
        points = [*enumerate(values)]
        assert [text for text in texts(plots.lines("t", {"": points}, times=False)) if text in ticks][: len(ticks)] == ticks


@given(st.lists(st.tuples(st.floats(0, 1e15), st.one_of(st.none(), st.floats(0, 1e15))), max_size=50))
def test_any_points_make_a_chart(points: list[tuple[float, float | None]]) -> None:
    points = sorted(points * 20, key=lambda point: point[0])
    thin = plots.thinned(points)
    assert len(thin) <= plots.POINTS_MAX
    assert max((y for _, y in thin if y is not None), default=None) == max(
        (y for _, y in points if y is not None), default=None
    )
    parsed(plots.lines("t", {"a": thin}, times=False))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12, "12"), (1_234, "1,234"), (0.1234, "0.123"), (15_000, "15k"), (2.5e6, "2.5M"), (3e9, "3G")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert plots.short(value) == text


def test_a_report_needs_nothing_else(tmp_path: Path) -> None:
    report = Report("Orders <of> May", "some words")
    report.verdict("2 lost", good=False)
    report.heading("Table", "a note")
    report.table([{"id": "<script>", "n": number, "part": 0.12345, "none": None} for number in range(ROWS_MAX + 7)])
    report.chart(plots.bars("Keys", {"a": 1}))
    path = report.save(tmp_path / "deep" / "report.html")
    report.save(path)

    text = path.read_text()
    assert "Orders &lt;of&gt; May" in text
    assert "&lt;script&gt;" in text
    assert "<td class=n>0.123</td>" in text
    assert "and 7 more" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
