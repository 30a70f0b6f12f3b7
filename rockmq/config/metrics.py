"""Options of what servers tell operators by HTTP (BrokerConfig.java; the name server's are beyond Apache)."""

import re
from enum import StrEnum
from typing import Annotated

from rockmq.base.errors import ConfigError
from rockmq.config.key import INT_MAX, MASK, Key, Options

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HEADER = re.compile(r"[a-z0-9._-]+")
_VALUE = re.compile(r"[ -~]+")
_TARGET = re.compile(r"(https?://)?((?:[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}))/?")
POINTS_MAX = 5_000
"""Beyond that a request is more than a collector takes by default, which is 4 MiB."""
OWN_LABELS = frozenset({"cluster", "node_type", "node_id"})


class Exporter(StrEnum):
    """How metrics leave the process."""

    PROM = "PROM"
    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"


class MetricsOptions(Options, frozen=True, kw_only=True):
    # Apache's default is DISABLE, and all addresses of the machine otherwise.
    metrics_exporter_type: Annotated[
        Exporter,
        Key(
            "PROM: metrics and health checks by HTTP; OTLP_GRPC: sent to a collector too; LOG: logged too; DISABLE: none.",
            apache="DISABLE",
        ),
    ] = Exporter.PROM
    metrics_prom_exporter_host: Annotated[str, Key("Local address to listen on for them.", apache="")] = "127.0.0.1"
    metrics_label: Annotated[str, Key("Labels that each metric gets, `name:value`, separated by `,`.")] = ""
    metrics_otel_cardinality_limit: Annotated[
        int, Key("Series of one metric; over it they are counted together, or left out if they are gauges.", ge=1)
    ] = 50_000
    metrics_grpc_exporter_target: Annotated[str, Key("The collector, `http://host:port`; https if nothing is said.")] = ""
    metrics_grpc_exporter_header: Annotated[
        str, Key("Headers for the collector, `name:value`, separated by `,`.", secret=True)
    ] = ""
    metric_grpc_exporter_time_out_in_mills: Annotated[
        int, Key("Time that the collector has to answer.", unit="ms", ge=1, le=INT_MAX)
    ] = 3_000
    metric_grpc_exporter_interval_in_mills: Annotated[
        int, Key("Time between what the collector gets.", unit="ms", ge=100, le=INT_MAX)
    ] = 60_000
    metrics_export_batch_max_data_points: Annotated[
        int, Key("Series of one request to the collector.", ge=1, le=POINTS_MAX)
    ] = 1_000
    metric_logging_exporter_interval_in_mills: Annotated[
        int, Key("Time between what is logged.", unit="ms", ge=100, le=INT_MAX)
    ] = 10_000

    def __post_init__(self) -> None:
        for name, value in _pairs(self.metrics_label):
            if _NAME.fullmatch(name) is None or not value or name in OWN_LABELS:
                raise ConfigError(
                    f"metricsLabel={self.metrics_label}: expected name:value, separated by `,`; names have letters, digits "
                    f"and _, and are none of {', '.join(sorted(OWN_LABELS))}"
                )
        if self.metrics_exporter_type is Exporter.OTLP_GRPC:
            _ = self.collector, self.grpc_headers

    @property
    def labels(self) -> dict[str, str]:
        """`metricsLabel`, by name."""
        return dict(_pairs(self.metrics_label))

    @property
    def grpc_headers(self) -> list[tuple[str, str]]:
        """`metricsGrpcExporterHeader`, with names in lower case, as HTTP/2 has them. Raises ConfigError."""
        found = [(name.lower(), value) for name, value in _pairs(self.metrics_grpc_exporter_header)]
        for name, value in found:
            if _HEADER.fullmatch(name) is None or name.endswith("-bin") or _VALUE.fullmatch(value) is None:
                raise ConfigError(
                    f"metricsGrpcExporterHeader={MASK}: expected name:value, separated by `,`; names have letters, digits, "
                    "-, _ and ., and don't end with -bin, values are of ASCII"
                )
        return found

    @property
    def collector(self) -> tuple[str, bool]:
        """`metricsGrpcExporterTarget`: (host:port, whether it is spoken to by TLS). Raises ConfigError."""
        match = _TARGET.fullmatch(self.metrics_grpc_exporter_target)
        if match is None or not 0 < int(match[3]) < 65536:
            raise ConfigError(
                f"metricsGrpcExporterTarget={self.metrics_grpc_exporter_target}: expected the address of a collector, "
                "http://host:port, or https://host:port for TLS; ports are 1 to 65535"
            )
        return match[2], match[1] != "http://"


def _pairs(text: str) -> list[tuple[str, str]]:
    found = (each.partition(":") for each in text.split(",") if each.strip())
    return [(name.strip(), value.strip()) for name, _, value in found]


class BrokerMetricsOptions(MetricsOptions, frozen=True, kw_only=True):
    metrics_prom_exporter_port: (
        Annotated[int, Key("Port for them; 0: any.", default="5557, or another that is free", ge=0, le=65535)] | None
    ) = None


class NamesrvMetricsOptions(MetricsOptions, frozen=True, kw_only=True):
    """Apache's name server has no metrics; these are its broker's keys."""

    is_apaches = False
    # A key of its own: name server and broker may share a file, but no port.
    metrics_port: (
        Annotated[int, Key("Port for them; 0: any.", default="5558, or another that is free", ge=0, le=65535)] | None
    ) = None
