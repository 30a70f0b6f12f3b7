"""What a broker tells at /metrics, /healthz and /readyz, beside what its clients did."""

import asyncio
import errno
import itertools
import json
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.clock import SystemClock
from rockmq.base.errors import ConfigError
from rockmq.base.logs import Flood
from rockmq.broker import metrics
from rockmq.broker import traffic as traffic_module
from rockmq.broker.lag import ConsumerLag
from rockmq.broker.server import Broker
from rockmq.broker.traffic import IDLE_LOOKS, Traffic
from rockmq.client import Client, Decision, Message
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.metrics import names
from rockmq.protocol import codec
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.route import GetRouteInfo
from rockmq.protocol.versions import description
from rockmq.remoting.client import RemotingClient
from rockmq.store import scrub
from rockmq.store.disk import Usage
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore
from tests.support.clock import FakeClock
from tests.support.metrics import get, scrape, value
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import create_request, send_request

ON = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0", "metricsPort": "0"}
BODY_SIZE_AT = 84
"""In a record."""


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_counts_are_what_clients_did() -> None:
    async with embedded.serve(properties=ON) as server, Client(server.namesrv) as mq:
        await mq.create_topic("orders", 1)
        async with mq.producer("shop", compression="none") as producer:
            for number in range(20):
                await producer.send(Message("orders", b"x" * (10 if number % 2 else 3000)))
            await producer.send(Message("orders", b"z", properties={"__SHARDINGKEY": "k"}))
            await producer.send(Message("orders", b"z", properties={"TIMER_DELAY_MS": "600000"}))

        async def placed() -> bool:
            return "rocketmq_timing_messages" in await scrape(server.metrics)

        await until(placed)
        found = await scrape(server.metrics)
        labels = {"cluster": "DefaultCluster", "node_type": "broker", "topic": "orders", "is_system": "false"}
        assert value(found, "rocketmq_messages_in_total", message_type="normal", **labels) == 20
        assert value(found, "rocketmq_messages_in_total", message_type="fifo", **labels) == 1
        assert value(found, "rocketmq_messages_in_total", message_type="delay", topic="rmq_sys_wheel_timer") == 1
        assert value(found, "rocketmq_message_size_bucket", le="1024.0", message_type="normal", topic="orders") == 10
        assert value(found, "rocketmq_message_size_bucket", le="4096.0", message_type="normal", topic="orders") == 20
        assert value(found, "rocketmq_delay_message_latency_seconds_bucket", le="600.0", topic="orders") == 1
        assert value(found, "rocketmq_timing_messages", topic="orders") == 1
        assert value(found, "rocketmq_timer_message_snapshot", timer_bound_s="900") == 1
        assert value(found, "rocketmq_timer_message_snapshot", timer_bound_s="300") == 0
        assert value(found, "rockmq_lane_requests_total", by="core") == 21, "all but the one for later"
        size_in = value(found, "rocketmq_throughput_in_total", message_type="normal", topic="orders")

        async with mq.consumer("billing", ["orders"], from_where="first") as consumer:
            messages = [await anext(consumer) for _ in range(21)]
            await messages[0].ack()
            await consumer.commit()
            found = await scrape(server.metrics)
            assert value(found, "rocketmq_messages_out_total", consumer_group="billing", topic="orders") == 21
            size_out = value(found, "rocketmq_throughput_out_total", consumer_group="billing", topic="orders")
            assert size_in < size_out < size_in + 1000
            assert value(found, "rocketmq_consumer_lag_messages", consumer_group="billing") == 20
            assert value(found, "rocketmq_consumer_inflight_messages", consumer_group="billing") == 20
            assert value(found, "rocketmq_consumer_ready_messages", consumer_group="billing") == 0
            assert value(found, "rocketmq_consumer_queueing_latency_milliseconds", consumer_group="billing") == 0
            assert value(found, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="billing") > 0
            assert value(found, "rocketmq_consumer_connections", consumer_group="billing", consume_mode="push") == 1
            await mq.admin.brokers.update_config(server.broker, {"brokerPermission": "0"})
            assert "rocketmq_consumer_lag_messages" not in await scrape(server.metrics), "nobody may read any of it"
            await mq.admin.brokers.update_config(server.broker, {"brokerPermission": "6"})
            for message in messages[1:]:
                await message.ack()
            await consumer.commit()
            found = await scrape(server.metrics)
            assert value(found, "rocketmq_consumer_lag_messages", consumer_group="billing") == 0
            assert value(found, "rocketmq_consumer_lag_latency_milliseconds", consumer_group="billing") == 0

        async def left() -> bool:
            return "rocketmq_consumer_lag_messages" not in await scrape(server.metrics)

        await until(left)  # a group without members has no series
        await mq.admin.topics.delete("orders")
        found = await scrape(server.metrics)
        assert not [labels for _, labels in found["rocketmq_messages_in_total"].samples if ("topic", "orders") in labels]
        assert "rocketmq_messages_out_total" not in found
        assert "rocketmq_delay_message_latency_seconds" not in found


async def test_the_name_server_tells_of_its_routes_and_requests(remote: RemotingClient) -> None:
    async with embedded.serve(properties=ON) as server, Client(server.namesrv) as mq:
        await mq.create_topic("orders", 1)
        asked = await remote.invoke(
            server.namesrv, codec.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic="nowhere")), 5
        )
        assert asked.code == ResponseCode.TOPIC_NOT_EXIST

        async def routed() -> bool:
            found = await scrape(server.namesrv_metrics)
            requests = found["rocketmq_rpc_latency_milliseconds"].samples
            return any(("request_code", "register_broker") in labels for _, labels in requests)

        await until(routed)
        found = await scrape(server.namesrv_metrics)
        assert value(found, "rockmq_namesrv_brokers", cluster="DefaultCluster", node_type="namesrv") == 1
        assert value(found, "rockmq_namesrv_topics") > 1
        assert value(found, "rockmq_ready") == 1
        assert "rockmq_refusals_total" not in found, "that a topic has no route is none"
        assert (await get(server.namesrv_metrics, "/readyz"))[0] == 200


async def test_transactions_are_counted_wherever_they_are_decided() -> None:
    async def undecided(message: object) -> Decision:
        return Decision.UNKNOWN

    async with embedded.serve(properties=ON) as server, Client(server.namesrv) as mq:
        await mq.create_topic("bookings", 1)
        async with mq.transaction_producer("shop", undecided) as producer:
            for decision in (Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN):

                async def decide(receipt: object, decision: Decision = decision) -> Decision:
                    return decision

                await producer.send_in_transaction(Message("bookings", b"room"), decide)

            async def told() -> bool:
                found = await scrape(server.metrics)
                return "rocketmq_rollback_messages_total" in found

            await until(told)
            found = await scrape(server.metrics)
            assert value(found, "rocketmq_half_messages", topic="bookings") == 1
            assert value(found, "rocketmq_commit_messages_total", topic="bookings") == 2
            assert value(found, "rocketmq_rollback_messages_total", topic="bookings") == 1
            assert value(found, "rocketmq_finish_message_latency_milliseconds_count", topic="bookings") == 2
            assert value(found, "rocketmq_messages_in_total", message_type="transaction") == 4


async def test_refusals_and_requests_are_told_by_code(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, metricsPromExporterPort="0", metricsLabel="zone:b1, rack:7") as broker:
        await remote.ask(broker.address, create_request("Bound"), 5)
        unknown = codec.request(9_999)
        for request in (send_request(b"", topic="Bound"), send_request(b"", topic="Bound"), unknown):
            await remote.invoke(broker.address, request, 5)
        found = await scrape(broker.metrics_address)
        assert value(found, "rockmq_refusals_total", response_code="message_illegal", zone="b1", rack="7") == 2
        assert value(found, "rockmq_refusals_total", response_code="request_code_not_supported") == 1
        counted = "rocketmq_rpc_latency_milliseconds_count"
        assert value(found, counted, request_code="unsupported", result="success") == 1
        assert value(found, counted, request_code="update_and_create_topic", response_code="success") == 1
        made = "rocketmq_topic_create_execution_time_milliseconds_count"
        assert value(found, made, invocation_status="success", is_system="false") == 1
        assert value(found, "rockmq_disk_free_bytes", path=str(tmp_path)) > 0


async def test_a_failing_disk_and_a_damaged_record_leave_the_rest(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> Usage:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with running(tmp_path, metricsPromExporterPort="0") as broker:
        await remote.ask(broker.address, send_request(b"x"), 5)
        assert value(await scrape(broker.metrics_address), "rocketmq_storage_message_reserve_time_milliseconds") >= 0
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(BODY_SIZE_AT)
            log.write(b"\x7f\xff\xff\xff")
        assert value(await scrape(broker.metrics_address), "rocketmq_storage_message_reserve_time_milliseconds") >= 0
        monkeypatch.setattr(metrics, "usage", failing)
        found = await scrape(broker.metrics_address)
        assert value(found, "rockmq_takes_messages") == 1
        assert found.keys() & {"rocketmq_storage_size_bytes", "rockmq_disk_free_bytes"} == set()


async def test_the_scrub_tells_what_it_has_read_and_found(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "IDLE_SECONDS", 0.02)
    size = "65536"
    async with running(tmp_path, metricsPromExporterPort="0", mappedFileSizeCommitLog=size) as broker:
        found = await scrape(broker.metrics_address)
        shown = ("rockmq_scrub_bytes_total", "rockmq_scrub_faults_total", "rockmq_scrub_last_round_timestamp_seconds")
        assert [value(found, name) for name in shown] == [0, 0, 0]
        await remote.ask(broker.address, send_request(b"damaged"), 5)
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(BODY_SIZE_AT + 4)
            log.write(b"D")
        for _ in range(3):
            await remote.ask(broker.address, send_request(b"x" * 40_000), 5)

        async def ended() -> bool:
            return value(await scrape(broker.metrics_address), shown[2]) > 0

        await until(ended)
        found = await scrape(broker.metrics_address)
        assert value(found, shown[0]) > 40_000
        assert value(found, shown[1]) == 1
        assert abs(value(found, shown[2]) - SystemClock().now_ms() / 1000) < 60
    settings = {"metricsPromExporterPort": "0", "mappedFileSizeCommitLog": size, "scrubBytesPerSecond": "0"}
    async with running(tmp_path, **settings) as broker:
        assert not [name for name in await scrape(broker.metrics_address) if name.startswith("rockmq_scrub")]


async def test_a_wheel_at_work_holds_up_no_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, busy = TimerStore.count_between, iter([True] * 3)

    def count(timers: TimerStore, begin: int, end: int) -> int | None:
        return None if next(busy, False) else counted(timers, begin, end)

    async with running(tmp_path, metricsPromExporterPort="0") as broker:
        monkeypatch.setattr(TimerStore, "count_between", count)
        found = await scrape(broker.metrics_address)
        assert len(found["rocketmq_timer_message_snapshot"].samples) == len(names.TIMER_BOUNDS_SECONDS)
        busy = itertools.repeat(True)
        found = await scrape(broker.metrics_address)
        assert "rocketmq_timer_message_snapshot" not in found
        assert value(found, "rocketmq_timer_dequeue_lag") == 0


async def test_lag_is_that_of_messages_that_there_are() -> None:
    """The group has committed 2, and what is there begins at 5; its last pull ended behind a topic that was made anew."""
    clock, config = FakeClock(), TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1)

    class Store:
        def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
            return 5, 8

        def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
            return clock.now_ms() - (8 - offset) * 1000 if offset >= 5 else -1

    class Offsets:
        def query(self, group: str, topic: str, queue_id: int) -> int:
            return 2

    for pulled, queueing, in_flight in ((3, 3000, 1), (99, 0, 6)):
        traffic = Traffic(_Names("t"), _Names("g"))
        traffic.pulled("g", "t", 0, 1, 100, pulled)
        lag = ConsumerLag(clock, _Names("t"), _Names("g"), None, Offsets(), None, Store(), traffic, 6)
        samples = filter(None, lag._of("g", "t", config, is_pop=False, retry_of=None))
        found = {metric: number for metric, _, number in samples}
        assert (found[names.LAG], found[names.LAG_MS]) == (6, 3000)
        assert (found[names.QUEUEING_MS], found[names.IN_FLIGHT]) == (queueing, in_flight)


async def test_health_and_readiness_say_why_not(tmp_path: Path) -> None:
    broker = Broker(options(tmp_path, metricsPromExporterPort="0", namesrvAddr="127.0.0.1:1"))
    await broker.start()
    try:
        assert (await get(broker.metrics_address, "/healthz"))[::2] == (200, '{"healthy": true, "because": []}\n')
        status, fields, body = await get(broker.metrics_address, "/readyz")
        assert (status, fields["Content-Type"]) == (503, "application/json")
        assert json.loads(body) == {"ready": False, "because": ["no name server knows it: 127.0.0.1:1"]}
        assert value(await scrape(broker.metrics_address), "rockmq_ready") == 0
    finally:
        await broker.close()
    async with running(tmp_path, metricsPromExporterPort="0") as broker:
        assert (await get(broker.metrics_address, "/readyz"))[0] == 200
        broker._failed(OSError("the disk is gone"))
        because = ["the store has failed; see the broker's log"]
        status, _, body = await get(broker.metrics_address, "/healthz")
        assert (status, json.loads(body)) == (503, {"healthy": False, "because": because})
    async with running(tmp_path, metricsPromExporterPort="0", diskSpaceWarningLevelRatio="1") as broker:
        status, _, body = await get(broker.metrics_address, "/readyz")
        assert status == 503
        assert "diskSpaceWarningLevelRatio=1" in json.loads(body)["because"][0]
        assert value(await scrape(broker.metrics_address), "rockmq_takes_messages") == 0


async def test_a_broker_that_starts_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []
    start = MessageStore.start

    async def looked_at(store: MessageStore) -> None:
        assert broker._site is not None
        for path in ("/readyz", "/metrics", "/healthz"):
            status, _, body = await get(broker.metrics_address, path)
            seen.append((status, body))
        await start(store)

    monkeypatch.setattr(MessageStore, "start", looked_at)
    broker = Broker(options(tmp_path, metricsPromExporterPort="0"))
    await broker.start()
    await broker.close()
    assert [status for status, _ in seen] == [503, 503, 200]
    assert "recovering its store: 0 of 0 bytes read" in seen[0][1]


async def test_without_metrics_nothing_listens(tmp_path: Path) -> None:
    async with running(tmp_path, metricsExporterType="DISABLE") as broker:
        assert broker.metrics_address == ""


async def test_the_log_gets_what_a_scrape_shows(caplog: pytest.LogCaptureFixture) -> None:
    """All of it, though the log is of warnings, and cut where one place logs much."""
    settings = {**ON, "metricsExporterType": "LOG", "metricLoggingExporterIntervalInMills": "100"}
    flood = Flood(SystemClock())

    def logged(node: str) -> list[str]:
        records = [each for each in caplog.records if each.name == "rockmq_metrics"]
        assert all(map(flood.filter, records))
        return [line for line in map(logging.LogRecord.getMessage, records) if f'node_type="{node}"' in line]

    def series(lines: list[str]) -> set[str]:
        return {line.rpartition(" ")[0] for line in lines if line and not line.startswith("#")}

    async with embedded.serve(properties=settings) as server:
        for node, address in (("broker", server.metrics), ("namesrv", server.namesrv_metrics)):
            first = series((await get(address, "/metrics"))[2].split("\n"))
            seen = len(logged(node))
            async with asyncio.timeout(30):
                # The first of two may have been read before.
                while sum(line.startswith("rockmq_metrics_dropped_series{") for line in logged(node)[seen:]) < 2:
                    await asyncio.sleep(0.02)
            found = series(logged(node)[seen:])
            last = series((await get(address, "/metrics"))[2].split("\n"))
            assert first <= found <= last
            assert len(found) > 20


async def test_a_port_that_was_asked_for_has_to_be_free(tmp_path: Path) -> None:
    async with running(tmp_path / "a", metricsPromExporterPort="0") as broker:
        port = broker.metrics_address.rpartition(":")[2]
        second = Broker(options(tmp_path / "b", metricsPromExporterPort=port))
        with pytest.raises(ConfigError, match=f"{port} for metrics"):
            await second.start()


@pytest.mark.parametrize("role", [BrokerOptions, NamesrvOptions])
def test_labels_have_to_be_some(role: type[BrokerOptions] | type[NamesrvOptions]) -> None:
    for labels in ("zone", "zone:", "2x:y", "cluster:c", "a b:c"):
        with pytest.raises(ConfigError, match="metricsLabel="):
            load(role, {"metricsLabel": labels})


@pytest.mark.parametrize("label", ["topic", "le"])
async def test_labels_that_metrics_have_are_refused(tmp_path: Path, label: str) -> None:
    broker = Broker(options(tmp_path, metricsPromExporterPort="0", metricsLabel=f"zone:b1,{label}:x"))
    with pytest.raises(ConfigError, match=f"metricsLabel: .* named {label}"):
        await broker.start()


class _Names:
    def __init__(self, *there: str) -> None:
        self.there = set(there)

    def get(self, name: str) -> str | None:
        return name if name in self.there else None

    def exists(self, name: str) -> bool:
        return name in self.there


def test_series_expire() -> None:
    topics, groups = _Names("t", "u"), _Names("g", "h")
    traffic = Traffic(topics, groups)
    traffic.pulled("g", "t", 0, 5, 500, 5)
    traffic.popped("h", "t", 1, 100, is_retry=False)
    traffic.pulled("g", "u", 0, 1, 100, 1)
    traffic.died("h", "t")
    traffic.delayed("u", 5)
    groups.there.remove("h")
    topics.there.remove("u")
    traffic.expire()
    assert list(traffic.given) == [("t", "g", None)]
    assert (traffic.dead_letters, traffic.delays) == ({}, {})
    for _ in range(IDLE_LOOKS - 1):
        traffic.expire()
    traffic.pulled("g", "t", 0, 1, 100, 6)
    for _ in range(IDLE_LOOKS):
        traffic.expire()
        assert traffic.given["t", "g", None].messages == 6
    traffic.expire()
    assert traffic.given == {}


def test_series_end_with_their_topic_or_group() -> None:
    traffic = Traffic(_Names("t", "u"), _Names("g", "h"))
    for group, topic in (("g", "t"), ("h", "t"), ("g", "u"), ("h", "u")):
        traffic.pulled(group, topic, 0, 5, 500, 5)
        traffic.died(group, topic)
    traffic.delayed("t", 5)
    traffic.forget_topic("t")
    assert list(traffic.given) == [("u", "g", None), ("u", "h", None)]
    assert (list(traffic.dead_letters), traffic.delays) == ([("g", "u"), ("h", "u")], {})
    traffic.forget_group("g")
    assert (list(traffic.given), list(traffic.dead_letters)) == ([("u", "h", None)], [("h", "u")])


def test_pairs_over_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "PAIRS_MAX", 2)
    traffic = Traffic(_Names("t"), _Names("g", "h", "i"))
    for group in ("g", "h", "i"):
        for _ in range(2):
            traffic.pulled(group, "t", 0, 5, 500, 5)
            traffic.died(group, "t")
    assert [group for _, group, _ in traffic.given] == ["g", "h"]
    assert (traffic.others.messages, traffic.others.next_offsets) == (10, {})
    assert traffic.dead_letters == {("g", "t"): 2, ("h", "t"): 2, ("", ""): 2}
    traffic.expire()
    assert traffic.dead_letters["", ""] == 2


def test_versions_have_apaches_names() -> None:
    told = {0: "V3", 211: "V3", 212: "V4_0_0_SNAPSHOT", 399: "V4_9_3", 479: "V5_3_3", 611: "V5_9_9", 612: "HIGHER_VERSION"}
    assert {ordinal: description(ordinal) for ordinal in told} == told
