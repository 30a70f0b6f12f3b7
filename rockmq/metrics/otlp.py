"""Metrics for an OpenTelemetry collector, by OTLP over gRPC (BrokerMetricsManager.java; `pip install 'rockmq[otlp]'`).

Counters and histograms tell of all since the start: what a collector missed is in what it gets next, so nothing is kept for
it and nothing sent twice. Requests are made on the event loop, in slices as all that reads samples, and sent from a thread,
one after the other; what takes longer than the interval delays the next export.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2

from rockmq.base.clock import Clock
from rockmq.base.tasks import Tasks
from rockmq.config.metrics import MetricsOptions
from rockmq.metrics.samples import OVERFLOW, Metric, Ranges, Reader, Samples, Value

log = logging.getLogger(__name__)

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
SERVICE = "rockmq"
"""`service.name` of the resource, and the name of the scope."""
_CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE


class OtlpExporter:
    """Sends what a reader reads, every `metricGrpcExporterIntervalInMills` from `start` to `close`; each sample has the
    labels `common` too. `instance` tells, once `start` was called, this server's name among all that the collector hears of
    (`service.instance.id`)."""

    def __init__(
        self, reader: Reader, common: Mapping[str, str], instance: Callable[[], str], options: MetricsOptions, clock: Clock
    ) -> None:
        self._reader = reader
        self._instance = instance
        self._common = [_attribute(name, value) for name, value in common.items()]
        self._options = options
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._tasks = Tasks()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._fault = ""
        """Why the last export failed."""
        self._target, is_tls = options.collector
        interval = options.metric_grpc_exporter_interval_in_mills
        # Each export tries to connect anew: else the pauses between tries grow to minutes.
        pauses = [("grpc.initial_reconnect_backoff_ms", interval), ("grpc.max_reconnect_backoff_ms", interval)]
        how = {"options": pauses, "compression": grpc.Compression.Gzip}
        if is_tls:
            self._channel = grpc.secure_channel(self._target, grpc.ssl_channel_credentials(), **how)
        else:
            self._channel = grpc.insecure_channel(self._target, **how)
        self._send = partial(
            self._channel.unary_unary(METHOD, response_deserializer=ExportMetricsServiceResponse.FromString),
            timeout=options.metric_grpc_exporter_time_out_in_mills / 1000,
            metadata=options.grpc_headers,
        )

    def start(self, samples: Samples) -> None:
        interval = self._options.metric_grpc_exporter_interval_in_mills / 1000
        self._tasks.every(interval, partial(self._export, samples), "export of metrics")

    async def _export(self, samples: Samples) -> None:
        found = samples()
        if found is None:
            return
        resource = [_attribute("service.name", SERVICE), _attribute("service.instance.id", self._instance())]
        points_max = self._options.metrics_export_batch_max_data_points
        requests = _Requests(resource, self._common, points_max, self._began_ms, self._clock.now_ms())
        await self._reader.read(found, requests.add)
        loop = asyncio.get_running_loop()
        for request in requests.all():
            try:
                answer = await loop.run_in_executor(self._sender, self._send, request)
            except grpc.RpcError as error:
                self._tell(f"{error.code().name}: {error.details()}")
                return
            refused = answer.partial_success
            if refused.rejected_data_points:
                self._tell(f"{refused.rejected_data_points} of them were rejected: {refused.error_message}")
                return
        self._tell("")

    def _tell(self, fault: str) -> None:
        """Of failures in a row the first is told, and the end."""
        if fault and not self._fault:
            log.warning("the collector %s doesn't get the metrics: %s", self._target, fault)
        elif self._fault and not fault:
            log.info("the collector %s gets the metrics again", self._target)
        self._fault = fault

    async def close(self) -> None:
        """Give up what is being sent."""
        try:
            await self._tasks.close()
        finally:
            self._channel.close()
            self._sender.shutdown(wait=False)


class _Requests:
    """An export, as requests of at most `points_max` points."""

    def __init__(
        self, resource: list[KeyValue], common: list[KeyValue], points_max: int, began_ms: int, now_ms: int
    ) -> None:
        self._resource = resource
        self._common = common
        self._points_max = points_max
        self._times = {"start_time_unix_nano": began_ms * 1_000_000, "time_unix_nano": now_ms * 1_000_000}
        self._done: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        self._request = ExportMetricsServiceRequest()
        resource = self._request.resource_metrics.add()
        resource.resource.attributes.extend(self._resource)
        self._scope = resource.scope_metrics.add()
        self._scope.scope.name = SERVICE
        self._metrics: dict[str, metrics_pb2.Metric] = {}
        self._points = 0

    def add(self, metric: Metric, values: tuple[str, ...] | None, value: Value) -> None:
        if self._points == self._points_max:
            self._end()
        self._points += 1
        told = self._metrics.get(metric.name)
        if told is None:
            told = self._metrics[metric.name] = _begun(self._scope.metrics.add(), metric)
        point = self._point(told, metric, value)
        point.attributes.extend(self._common)
        # One that is empty is as good as none in a scrape.
        labels = (OVERFLOW,) if values is None else zip(metric.labels, values, strict=True)
        point.attributes.extend([_attribute(name, text) for name, text in labels if text])

    def _point(
        self, told: metrics_pb2.Metric, metric: Metric, value: Value
    ) -> metrics_pb2.NumberDataPoint | metrics_pb2.HistogramDataPoint:
        if isinstance(value, Ranges):
            ranges: metrics_pb2.HistogramDataPoint = told.histogram.data_points.add(**self._times)
            ranges.count, ranges.sum = sum(value.counts), value.sum
            ranges.bucket_counts.extend(value.counts)
            ranges.explicit_bounds.extend(metric.bounds)
            return ranges
        data = told.gauge if metric.kind == "gauge" else told.sum
        number: metrics_pb2.NumberDataPoint = data.data_points.add(**self._times)
        if isinstance(value, int):
            number.as_int = value
        else:
            number.as_double = value
        return number

    def _end(self) -> None:
        self._done.append(self._request.SerializeToString())
        self._begin()

    def all(self) -> list[bytes]:
        self._end()
        return self._done


def _begun(told: metrics_pb2.Metric, metric: Metric) -> metrics_pb2.Metric:
    told.name, told.description = metric.name, metric.doc
    if metric.kind == "counter":
        told.sum.aggregation_temporality, told.sum.is_monotonic = _CUMULATIVE, True
    elif metric.kind == "histogram":
        told.histogram.aggregation_temporality = _CUMULATIVE
    return told


def _attribute(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))
