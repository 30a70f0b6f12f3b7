"""Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0."""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import accumulate

from rockmq.metrics.samples import OVERFLOW, Metric, Ranges, Reader, Sample, Value

BLOCK_LINES = 200
"""Lines that are joined at a time."""
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Exposition:
    """Writes what a reader reads; each sample has the labels `common` too."""

    def __init__(self, reader: Reader, common: Mapping[str, str]) -> None:
        self._reader = reader
        self._common = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in common.items())

    async def render(self, samples: Iterable[Sample | None], *, openmetrics: bool) -> list[bytes]:
        """The text, in pieces."""
        families = {metric.name: _Family(metric, openmetrics, self._common) for metric in self._reader.metrics}
        await self._reader.read(samples, lambda metric, values, value: families[metric.name].add(values, value))
        text = []
        for family in families.values():
            text += family.text()
            await asyncio.sleep(0)
        return [*text, b"# EOF\n"] if openmetrics else text


class _Family:
    """The lines of a metric."""

    def __init__(self, metric: Metric, openmetrics: bool, common: str) -> None:
        self._metric = metric
        self._common = common
        self._prefixes = tuple(f',{label}="' for label in metric.labels)
        title = metric.name.removesuffix("_total") if openmetrics and metric.kind == "counter" else metric.name
        doc = metric.doc.replace("\\", "\\\\").replace("\n", "\\n")
        self._head = f"# HELP {title} {doc}\n# TYPE {title} {metric.kind}\n".encode()
        self._les = [repr(float(bound)) for bound in metric.bounds] + ["+Inf"]
        self._lines: list[str] = []
        self._blocks: list[bytes] = []

    def add(self, values: tuple[str, ...] | None, value: Value) -> None:
        if values is None:
            labels = ',{}="{}"'.format(*OVERFLOW)
        else:
            # One that is empty is as good as none there.
            pairs = zip(self._prefixes, values, strict=True)
            labels = "".join([prefix + text.translate(_ESCAPED) + '"' for prefix, text in pairs if text])
        self._write(self._common + labels if self._common else labels[1:], value)

    def _write(self, labels: str, value: Value) -> None:
        name, lines = self._metric.name, self._lines
        if isinstance(value, Ranges):
            separator = "," if labels else ""
            total = 0
            for le, total in zip(self._les, accumulate(value.counts), strict=True):
                lines.append(f'{name}_bucket{{{labels}{separator}le="{le}"}} {total}\n')
            lines.append(f"{name}_count{{{labels}}} {total}\n")
            lines.append(f"{name}_sum{{{labels}}} {value.sum}\n")
        else:
            lines.append(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n")
        if len(lines) >= BLOCK_LINES:
            self._join()

    def _join(self) -> None:
        self._blocks.append("".join(self._lines).encode())
        self._lines.clear()

    def text(self) -> list[bytes]:
        """Nothing for a metric that has no series now."""
        self._join()
        return [self._head, *self._blocks] if any(self._blocks) else []


def is_openmetrics(accept: str) -> bool:
    """Whether a request's Accept asks for OpenMetrics."""
    return "application/openmetrics-text" in accept
