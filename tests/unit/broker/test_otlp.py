"""What a collector is sent: a gRPC server by OpenTelemetry's definitions, with the /metrics of the same server as judge."""

import asyncio
import logging
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import add_MetricsServiceServicer_to_server
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from rockmq import embedded
from rockmq.base.errors import ConfigError
from rockmq.broker.server import Broker
from rockmq.client import Client, Message
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import MASK, dump, load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.metrics import otlp
from rockmq.metrics.samples import Metric, Ranges, Reader, Sample
from tests.support.metrics import Labels, get, scrape
from tests.support.process import free_port
from tests.unit.broker.conftest import options, running

POINTS_MAX = 10


class Series(NamedTuple):
    """A sample as a scrape would show it."""

    name: str
    labels: Labels


class Exported(NamedTuple):
    kinds: dict[str, str]
    samples: dict[Series, float]


class Collector:
    """Keeps what it gets, by node and time of the export."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.rejects = ""
        self.answers = threading.Event()
        """Until it is set, nobody gets an answer."""
        self.answers.set()

    def Export(self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext) -> ExportMetricsServiceResponse:
        self.headers.append(dict(context.invocation_metadata()))
        self.requests.append(request)
        self.answers.wait(60)
        answer = ExportMetricsServiceResponse()
        if self.rejects:
            answer.partial_success.rejected_data_points = 1
            answer.partial_success.error_message = self.rejects
        return answer

    def instances(self, node_type: str) -> set[str]:
        """Who sends the metrics of a kind of node, as Prometheus has it in the label `instance`."""
        return {
            request.resource_metrics[0].resource.attributes[1].value.string_value
            for request in list(self.requests)
            if any(("node_type", node_type) in labels for _, _, _, labels, _ in _points(request))
        }

    def exports(self, node_type: str) -> dict[int, Exported]:
        """By time, in order; the last one may still be under way."""
        found: dict[int, Exported] = {}
        for request in list(self.requests):
            for kind, name, at, labels, samples in _points(request):
                if ("node_type", node_type) in labels:
                    export = found.setdefault(at, Exported({}, {}))
                    export.kinds[name] = kind
                    for series, value in samples:
                        assert series not in export.samples, f"{series} comes twice"
                        export.samples[series] = value
        return found


def _points(
    request: ExportMetricsServiceRequest,
) -> Iterator[tuple[str, str, int, Labels, list[tuple[Series, float]]]]:
    count = 0
    for resource in request.resource_metrics:
        name, instance = resource.resource.attributes
        assert (name.key, name.value.string_value, instance.key) == ("service.name", "rockmq", "service.instance.id")
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                form = metric.WhichOneof("data")
                data = getattr(metric, form)
                if form != "gauge":
                    assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
                assert form != "sum" or data.is_monotonic
                for point in data.data_points:
                    count += 1
                    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
                    labels = frozenset((each.key, each.value.string_value) for each in point.attributes)
                    assert len(labels) == len(point.attributes)
                    kind = {"sum": "counter"}.get(form, form)
                    yield kind, metric.name, point.time_unix_nano, labels, _as_scraped(metric.name, form, point, labels)
    assert 0 < count <= POINTS_MAX


def _as_scraped(name: str, form: str, point: Any, labels: Labels) -> list[tuple[Series, float]]:
    if form != "histogram":
        return [(Series(name, labels), getattr(point, point.WhichOneof("value")))]
    les = [*(repr(bound) for bound in point.explicit_bounds), "+Inf"]
    buckets = zip(les, accumulate(point.bucket_counts), strict=True)
    return [
        *((Series(f"{name}_bucket", labels | {("le", le)}), total) for le, total in buckets),
        (Series(f"{name}_count", labels), point.count),
        (Series(f"{name}_sum", labels), point.sum),
    ]


@contextmanager
def listening(collector: Collector, port: int = 0) -> Iterator[str]:
    """Its address."""
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    add_MetricsServiceServicer_to_server(collector, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        collector.answers.set()
        server.stop(None).wait()


def towards(address: str, **more: str) -> dict[str, str]:
    return {
        "metricsExporterType": "OTLP_GRPC",
        "metricsGrpcExporterTarget": f"http://{address}",
        "metricGrpcExporterIntervalInMills": "100",
        "metricsPromExporterPort": "0",
        **more,
    }


@asynccontextmanager
async def broker_towards(path: Path, address: str, **more: str) -> AsyncIterator[Broker]:
    async with running(path, **towards(address, **more)) as broker:
        yield broker


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1")


VARYING = ("disk", "storage_size", "latency", "milliseconds", "seconds", "behind", "waiters", "connections")
"""Parts of the names of gauges that don't stand still, whatever clients do."""


async def test_a_collector_gets_what_a_scrape_shows() -> None:
    collector = Collector()
    with listening(collector) as address:
        properties = towards(
            address,
            metricsExportBatchMaxDataPoints=str(POINTS_MAX),
            metricsGrpcExporterHeader="Tenant:a,authorization:Bearer x:y",
            metricsLabel="zone:b1",
            metricsPort="0",
        )
        async with embedded.serve(properties=properties) as server, Client(server.namesrv) as mq:
            await mq.create_topic("orders", 1)
            async with mq.producer("shop") as producer, mq.consumer("billing", ["orders"], from_where="first") as consumer:
                for number in range(20):
                    await producer.send(Message("orders", b"x" * (1 + 100 * number)))
                await producer.send(Message("orders", b"z", properties={"TIMER_DELAY_MS": "600000"}))
                await anext(consumer)
                for node, metrics in (("broker", server.metrics), ("namesrv", server.namesrv_metrics)):
                    before = await scrape(metrics)
                    seen = max(collector.exports(node), default=0)
                    # The first of three may have been read before, and the last may lack its end.
                    await until(lambda node=node, seen=seen: sum(at > seen for at in collector.exports(node)) >= 3)
                    export = [found for at, found in collector.exports(node).items() if at > seen][1]
                    after = await scrape(metrics)

                    kinds = {name: family.kind for name, family in after.items()}
                    assert export.kinds.items() <= kinds.items()
                    first = {Series(*key): value for family in before.values() for key, value in family.samples.items()}
                    last = {Series(*key): value for family in after.values() for key, value in family.samples.items()}
                    assert first.keys() <= export.samples.keys() <= last.keys()
                    same = 0
                    for series, value in export.samples.items():
                        kind = export.kinds.get(series.name, "histogram")
                        if kind != "gauge":
                            assert first.get(series, 0) <= value <= last[series], series
                        elif not any(part in series.name for part in VARYING):
                            assert value in (first.get(series), last[series]), series
                        same += value == last[series]
                    assert same > len(last) / 2
                    assert collector.instances(node) == {f"{socket.gethostname()}:{metrics.rpartition(':')[2]}"}
            name = next(series for series in export.samples if series.name == "rockmq_namesrv_topics")
            assert name.labels == {("zone", "b1"), ("node_type", "namesrv")}
    got = collector.headers[0]
    assert (got["tenant"], got["authorization"]) == ("a", "Bearer x:y")


async def test_a_collector_that_is_away_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "rockmq.metrics.otlp")
    tell, ends = otlp.OtlpExporter._tell, []

    def told(exporter: otlp.OtlpExporter, fault: str) -> None:
        tell(exporter, fault)
        ends.append(fault)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "rockmq.metrics.otlp"]

    monkeypatch.setattr(otlp.OtlpExporter, "_tell", told)
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with broker_towards(tmp_path, address):
        await until(lambda: len(ends) >= 3)
        assert all(ends)
        assert len(said()) == 1
        assert said()[0].startswith(f"the collector {address} doesn't get the metrics: UNAVAILABLE: ")
        collector = Collector()
        with listening(collector, port):
            await until(lambda: not ends[-1])
            assert said()[1:] == [f"the collector {address} gets the metrics again"]
            collector.rejects = "no room"
            await until(lambda: ends[-1])
            assert said()[2:] == [f"the collector {address} doesn't get the metrics: 1 of them were rejected: no room"]
        count = len(ends)
        await until(lambda: len(ends) >= count + 2)
        assert len(said()) == 3


async def test_a_collector_that_hangs_holds_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    collector.answers.clear()
    with listening(collector) as address:
        async with broker_towards(tmp_path, address, metricGrpcExporterTimeOutInMills="200") as broker:
            await until(lambda: "doesn't get the metrics: DEADLINE_EXCEEDED" in caplog.text)
            assert (await get(broker.metrics_address, "/readyz"))[0] == 200


async def test_a_stop_waits_for_no_collector(tmp_path: Path) -> None:
    collector = Collector()
    collector.answers.clear()
    with listening(collector) as address:
        async with asyncio.timeout(30), broker_towards(tmp_path, address, metricGrpcExporterTimeOutInMills="600000"):
            await until(lambda: collector.requests)
        assert not collector.answers.is_set()


async def test_what_is_counted_together_has_its_label() -> None:
    counter = Metric("done_total", "counter", "What was done.", ("by",))
    sizes = Metric("size", "histogram", "Sizes.", (), bounds=(1, 2.5))
    rate = Metric("rate", "gauge", "How fast.", ("of",))
    samples: list[Sample] = [(counter, (name,), 2) for name in "abc"]
    samples += [(sizes, (), Ranges([1, 0, 3], 14.5)), (rate, ("",), 0.5)]
    resource = [otlp._attribute("service.name", "rockmq"), otlp._attribute("service.instance.id", "here:1")]
    requests = otlp._Requests(resource, [otlp._attribute("node", "x")], POINTS_MAX, 1, 2)
    await Reader([counter, sizes, rate], Metric("dropped", "gauge", ""), 1).read(samples, requests.add)
    (request,) = map(ExportMetricsServiceRequest.FromString, requests.all())
    found = {series: value for *_, samples in _points(request) for series, value in samples}
    node = ("node", "x")
    assert found == {
        Series("done_total", frozenset({node, ("by", "a")})): 2,
        Series("done_total", frozenset({node, ("otel_metric_overflow", "true")})): 4,
        Series("size_bucket", frozenset({node, ("le", "1.0")})): 1,
        Series("size_bucket", frozenset({node, ("le", "2.5")})): 1,
        Series("size_bucket", frozenset({node, ("le", "+Inf")})): 4,
        Series("size_count", frozenset({node})): 4,
        Series("size_sum", frozenset({node})): 14.5,
        Series("rate", frozenset({node})): 0.5,
        Series("dropped", frozenset({node})): 2,
    }


async def test_without_the_packages_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "rockmq.metrics.otlp")
    with pytest.raises(ConfigError, match=r"OTLP_GRPC needs .*grpc.*pip install 'rockmq\[otlp\]'"):
        await Broker(options(tmp_path, **towards("127.0.0.1:1"))).start()


@pytest.mark.parametrize("role", [BrokerOptions, NamesrvOptions])
def test_addresses_and_headers_are_checked(role: type[BrokerOptions] | type[NamesrvOptions]) -> None:
    for target, collector in {
        "collector:4317": ("collector:4317", True),
        "https://10.0.0.1:4317/": ("10.0.0.1:4317", True),
        "http://[::1]:4317": ("[::1]:4317", False),
    }.items():
        keys = {"metricsExporterType": "OTLP_GRPC", "metricsGrpcExporterTarget": target}
        assert load(role, keys).metrics.collector == collector
    no_targets = "", "collector", "ftp://collector:1", "http://collector:4317/v1/metrics", "http://a b:1", "http://:1"
    for target in (*no_targets, "http://collector:0", "http://collector:65536"):
        with pytest.raises(ConfigError, match="metricsGrpcExporterTarget="):
            load(role, {**keys, "metricsGrpcExporterTarget": target})
    for header in ("tenant", "tenant:", "ten ant:a", "trace-bin:a", "tenant:ä", "a:b,:c"):
        with pytest.raises(ConfigError, match=f"metricsGrpcExporterHeader={re.escape(MASK)}: "):
            load(role, {**keys, "metricsGrpcExporterHeader": header})
    assert dump(load(role, {**keys, "metricsGrpcExporterHeader": "key:secret"}))["metricsGrpcExporterHeader"] == MASK
