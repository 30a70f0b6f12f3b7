"""Charts as SVG: text that any browser shows, alone or within a page, in light and dark, without a program beside it.

A chart has a title that says what is counted in which unit, few grid lines, and colours that people who are colour-blind can
tell apart (Okabe and Ito's). Points have their values as tool tips, as long as there are few of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

WIDTH, HEIGHT = 860, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 54, 34
TIPS_MAX = 150
"""Points of a chart that have tool tips; more of them would be most of the page."""
POINTS_MAX = 600
"""Points of a line; of more, each point is the largest of some that are next to each other."""
_LABEL_MAX = 34
"""Letters of a bar's name."""

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a800")
_STYLE = """
.chart{font:12px system-ui,sans-serif}
.chart text{fill:#3b3f46}.chart .title{font-weight:600;font-size:13px;fill:#16181d}
.chart .grid{stroke:#e3e5e9}.chart .axis{stroke:#9aa0aa}
.chart .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.chart .tip{fill-opacity:0;stroke:none}.chart .tip:hover{fill-opacity:.9}
@media (prefers-color-scheme:dark){.chart text{fill:#b9bec7}.chart .title{fill:#eceef2}
.chart .grid{stroke:#33373f}.chart .axis{stroke:#6b717c}}
"""

Points = Sequence[tuple[float, float | None]]
"""x and y; where y is None the line has a gap."""


def lines(title: str, series: Mapping[str, Points], *, times: bool = True, unit: str = "") -> str:
    """A line for each series. x are milliseconds since the epoch if `times`, else numbers."""
    series = {name: thinned(points) for name, points in series.items()}
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points if y is not None]
    if not ys:
        return _empty(title)
    low, high = min(xs), max(xs)
    ticks = _ticks(ys)
    right, top = _scale(low, high, _LEFT, WIDTH - _RIGHT), _scale(0.0, ticks[-1], HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(ticks, top), *(_time_axis(low, high, right) if times else _number_axis(low, high, right))]
    tips = sum(len(points) for points in series.values()) <= TIPS_MAX
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path, drawing = [], False
        for x, y in points:
            if y is not None:
                path.append(f"{'L' if drawing else 'M'}{right(x):.1f} {top(y):.1f}")
            drawing = y is not None
        parts.append(f'<path class="line" stroke="{colour}" d="{"".join(path)}"/>')
        shown = [(x, y) for x, y in points if y is not None]
        if len(shown) == 1:
            parts.append(f'<circle cx="{right(shown[0][0]):.1f}" cy="{top(shown[0][1]):.1f}" r="3" fill="{colour}"/>')
        for x, y in shown if tips else ():
            where = clock(x) if times else short(x)
            tip = escape(f"{name}, {where}: {short(y)}{unit}")
            place = f'cx="{right(x):.1f}" cy="{top(y):.1f}"'
            parts.append(f'<circle class="tip" {place} r="5" fill="{colour}"><title>{tip}</title></circle>')
    return _chart(title, list(series), parts)


def columns(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], *, unit: str = "") -> str:
    """Upright bars, the series' values on top of each other."""
    sums = [sum(values) for values in zip(*series.values(), strict=True)]
    if not sums or not max(sums):
        return _empty(title)
    ticks = _ticks(sums)
    top = _scale(0.0, ticks[-1], HEIGHT - _BOTTOM, _TOP)
    width = (WIDTH - _LEFT - _RIGHT) / len(names)
    parts = _grid(ticks, top)
    every = math.ceil(len(names) / max((WIDTH - _LEFT - _RIGHT) // (9 * max(map(len, names)) + 12), 1))
    for place, name in enumerate(names):
        x, below = _LEFT + place * width, 0.0
        for number, (series_name, values) in enumerate(series.items()):
            value = values[place]
            if value:
                y, height = top(below + value), top(below) - top(below + value)
                tip = escape(f"{name}, {series_name}: {short(value)}{unit}")
                box = f'x="{x + width * 0.1:.1f}" y="{y:.1f}" width="{width * 0.8:.1f}" height="{height:.1f}"'
                parts.append(f'<rect {box} fill="{_COLOURS[number % len(_COLOURS)]}"><title>{tip}</title></rect>')
            below += value
        if place % every == 0:
            parts.append(_text(x + width / 2, HEIGHT - _BOTTOM + 18, name, "middle"))
    return _chart(title, list(series) if len(series) > 1 else [], parts)


def bars(title: str, values: Mapping[str, float], *, unit: str = "") -> str:
    """Lying bars with their names on the left and their values behind them."""
    if not values or not max(values.values()):
        return _empty(title)
    left, row = 250, 22
    height = 44 + row * len(values)
    right = _scale(0.0, max(values.values()), left, WIDTH - 90)
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y = 36 + number * row
        label = name if len(name) <= _LABEL_MAX else name[: _LABEL_MAX - 1] + "…"
        parts.append(f"<g><title>{escape(name)}</title>{_text(left - 8, y + 13, label, 'end')}</g>")
        width = max(right(value) - left, 0.5)
        parts.append(f'<rect x="{left}" y="{y + 2}" width="{width:.1f}" height="{row - 7}" fill="{_COLOURS[0]}"/>')
        parts.append(_text(right(value) + 6, y + 13, short(value) + unit, "start"))
    return _svg(title, parts, height)


def thinned(points: Points) -> Points:
    """At most `POINTS_MAX` points; the highest of those that fall together stays, since it is what one looks for."""
    if len(points) <= POINTS_MAX:
        return points
    size = math.ceil(len(points) / POINTS_MAX)
    runs = [points[at : at + size] for at in range(0, len(points), size)]
    return [max(run, key=lambda point: -math.inf if point[1] is None else point[1]) for run in runs]


def steps(low: float, high: float, count: int = 4, *, whole: bool = False) -> list[float]:
    """Round numbers from `low` on, the last of which isn't below `high`; `whole` ones stand for what is counted."""
    if high - low < 1e-9:
        high = low + 1
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    sizes = (size * magnitude for size in (1, 2, 2.5, 5, 10, 20, 50, 100) if size * magnitude >= rough * 0.999)
    step = next(size for size in sizes if not whole or size == int(size))
    return [low + number * step for number in range(math.ceil((high - low) / step * 0.999) + 1)]


def short(value: float) -> str:
    """A number as people read it: 1,234, 1.5k, 3.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.1f}".removesuffix(".0") + letter
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1_000 else f"{value:,.0f}"


def clock(time_ms: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime(form)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    if high == low:
        return lambda _: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _ticks(values: Sequence[float]) -> list[float]:
    """Of an axis from nothing up to the largest of these."""
    return steps(0.0, max(values), whole=all(value == int(value) for value in values))


def _grid(ticks: Sequence[float], top: Callable[[float], float]) -> list[str]:
    parts = []
    for tick in ticks:
        y = top(tick)
        kind = "axis" if tick == ticks[0] else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 8, y + 4, short(tick), "end"))
    return parts


_TIME_STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)
_DAY_S = 86_400


def _time_axis(low_ms: float, high_ms: float, right: Callable[[float], float]) -> list[str]:
    span_s = (high_ms - low_ms) / 1_000
    step_s = next((each for each in _TIME_STEPS_S if span_s / each <= 8), _DAY_S * math.ceil(span_s / _DAY_S / 8))
    form = "%m-%d" if step_s >= _DAY_S else "%H:%M" if step_s >= 60 else "%H:%M:%S"
    first = math.ceil(low_ms / 1_000 / step_s) * step_s
    times = [first + number * step_s for number in range(int((high_ms / 1_000 - first) // step_s) + 1)]
    marks = [_text(right(time * 1_000), HEIGHT - _BOTTOM + 18, clock(time * 1_000, form), "middle") for time in times]
    when = clock(low_ms) if low_ms == high_ms else f"{clock(low_ms)} to {clock(high_ms)}"
    return [*marks, _text(_LEFT, HEIGHT - 2, f"{when} UTC", "start")]


def _number_axis(low: float, high: float, right: Callable[[float], float]) -> list[str]:
    ticks = [tick for tick in steps(low, high, 8) if tick <= high]
    return [_text(right(tick), HEIGHT - _BOTTOM + 18, short(tick), "middle") for tick in ticks]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _chart(title: str, names: Sequence[str], parts: Sequence[str]) -> str:
    legend, x = [], float(_LEFT)
    for number, name in enumerate(names):
        colour = _COLOURS[number % len(_COLOURS)]
        legend.append(f'<rect x="{x:.0f}" y="32" width="11" height="11" rx="2" fill="{colour}"/>')
        legend.append(_text(x + 16, 42, name, "start"))
        x += 36 + 7 * len(name)
    return _svg(title, [*legend, *parts], HEIGHT)


def _empty(title: str) -> str:
    return _svg(title, [_text(16, 48, "nothing to show", "start")], 64)


def _svg(title: str, parts: Sequence[str], height: int) -> str:
    heading = f'<text class="title" x="16" y="20">{escape(title)}</text>'
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{escape(title)}" {size}>'
        f"<style>{_STYLE}</style>{heading}{''.join(parts)}</svg>\n"
    )
