"""Metrics in the log, as samples of Prometheus' text format, one in a line (BrokerMetricsManager.java, whose
OtlpJsonLoggingMetricExporter writes JSON to a file).

The logger isn't below `rockmq`: whoever asks for metrics gets them whatever the log's level is, and all of them, as no flood
is cut short there.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from time import monotonic

from rockmq.base.tasks import Tasks
from rockmq.config.metrics import MetricsOptions
from rockmq.metrics.exposition import Exposition
from rockmq.metrics.samples import SLICE_SECONDS, Reader, Samples

log = logging.getLogger("rockmq_metrics")
log.setLevel(logging.INFO)


class LogExporter:
    """Logs what a reader reads, every `metricLoggingExporterIntervalInMills` from `start` to `close`; each sample has the
    labels `common` too."""

    def __init__(self, reader: Reader, common: Mapping[str, str], options: MetricsOptions) -> None:
        self._exposition = Exposition(reader, common)
        self._interval = options.metric_logging_exporter_interval_in_mills / 1000
        self._tasks = Tasks()

    def start(self, samples: Samples) -> None:
        self._tasks.every(self._interval, partial(self._log, samples), "metrics for the log")

    async def _log(self, samples: Samples) -> None:
        found = samples()
        if found is None:
            return
        text = await self._exposition.render(found, openmetrics=False)
        began = monotonic()
        for line in (each for part in text for each in part.decode().split("\n")):
            if line and not line.startswith("#"):
                log.info("%s", line)
            if monotonic() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = monotonic()

    async def close(self) -> None:
        await self._tasks.close()
