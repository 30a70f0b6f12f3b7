"""What a server tells operators: by HTTP `/metrics`, `/healthz` and `/readyz`, and the first to a collector or in the log.

The two checks answer with 200 or 503, and a JSON body that says why not: `{"ready": false, "because": ["..."]}`. Who gets
any answer knows that the event loop turns.
"""

import json
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.config.metrics import Exporter, MetricsOptions
from rockmq.metrics import names
from rockmq.metrics.exposition import OPEN, PLAIN, Exposition, is_openmetrics
from rockmq.metrics.http import Answer, HttpServer, text
from rockmq.metrics.logged import LogExporter
from rockmq.metrics.loop_lag import LoopLag
from rockmq.metrics.samples import Metric, Reader, Sample

if TYPE_CHECKING:
    from rockmq.metrics.otlp import OtlpExporter

log = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"


class Site:
    """From `start` to `close`; whoever owns it says how things are by setting `samples`, `faults` and `hindrances`.

    Without `port` it is the default one, or another when that isn't free. `own` are labels for each metric beside those of
    the options; ConfigError for one that a metric has itself, as scrapes with a label twice are thrown away, and when the
    packages for a collector are missing.
    """

    def __init__(
        self,
        metrics: Sequence[Metric],
        options: MetricsOptions,
        *,
        port: int | None,
        default_port: int,
        own: Mapping[str, str],
        clock: Clock,
    ) -> None:
        labels = {**options.labels, **own}
        taken = {"le", *(label for metric in metrics for label in metric.labels)} & labels.keys()
        if taken:
            raise ConfigError(f"metricsLabel: metrics have labels of their own that are named {', '.join(sorted(taken))}")
        reader = Reader(metrics, names.DROPPED, options.metrics_otel_cardinality_limit)
        self._exposition = Exposition(reader, labels)
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._readiness}
        host = options.metrics_prom_exporter_host
        self._server = HttpServer(host, default_port if port is None else port, pages, any_port=port is None)
        self._exporter = _exporter(reader, labels, self._instance, options, clock)
        self._lag = LoopLag()
        self.samples: Callable[[], Iterable[Sample | None]] | None = None
        """None as long as there is nothing to tell."""
        self.faults: Callable[[], list[str]] = list
        """Why the process should be replaced."""
        self.hindrances: Callable[[], list[str]] = lambda: ["it is starting"]
        """Why it shouldn't be sent requests now."""

    async def start(self) -> None:
        """Raises ConfigError when it can't listen."""
        await self._server.start()
        self._lag.start()
        if self._exporter is not None:
            self._exporter.start(lambda: None if self.samples is None else self._all(self.samples))
        log.info("metrics are at http://%s/metrics", self.address)

    @property
    def address(self) -> str:
        """`host:port`, after `start`."""
        return self._server.address

    def _instance(self) -> str:
        """Names of brokers may be the same in two clusters, and name servers have none; a machine's port is one server's."""
        return f"{socket.gethostname()}:{self._server.port}"

    async def _metrics(self, accept: str) -> Answer:
        if self.samples is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "; ".join(self.hindrances()))
        openmetrics = is_openmetrics(accept)
        body = await self._exposition.render(self._all(self.samples), openmetrics=openmetrics)
        return Answer(HTTPStatus.OK, OPEN if openmetrics else PLAIN, body)

    def _all(self, samples: Callable[[], Iterable[Sample | None]]) -> Iterator[Sample | None]:
        """No more once `samples` were taken away."""
        yield names.READY_STATE, (), int(not (self.faults() or self.hindrances()))
        yield names.LOOP_LAG, (), self._lag.histogram.ranges
        for sample in samples():
            yield sample
            if self.samples is None:
                return

    async def _health(self, accept: str) -> Answer:
        return _verdict("healthy", self.faults())

    async def _readiness(self, accept: str) -> Answer:
        return _verdict("ready", self.faults() + self.hindrances())

    async def close(self) -> None:
        self._lag.close()
        try:
            if self._exporter is not None:
                await self._exporter.close()
        finally:
            await self._server.close()


def _exporter(
    reader: Reader, labels: Mapping[str, str], instance: Callable[[], str], options: MetricsOptions, clock: Clock
) -> "LogExporter | OtlpExporter | None":
    if options.metrics_exporter_type is Exporter.LOG:
        return LogExporter(reader, labels, options)
    if options.metrics_exporter_type is not Exporter.OTLP_GRPC:
        return None
    try:
        from rockmq.metrics.otlp import OtlpExporter
    except ImportError as error:
        why = f"metricsExporterType=OTLP_GRPC needs packages that can't be imported ({error}): pip install 'rockmq[otlp]'"
        raise ConfigError(why) from None
    return OtlpExporter(reader, labels, instance, options, clock)


def _verdict(word: str, because: list[str]) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if because else HTTPStatus.OK
    return Answer(status, "application/json", [json.dumps({word: not because, "because": because}).encode() + b"\n"])
