"""How brokers store: timers, what is read from disk, and engines that one can go over to (AdminBrokerProcessor.java)."""

from collections.abc import Iterable, Mapping
from typing import Literal

from rockmq.base.errors import ClientError
from rockmq.client.admin.cluster import Cluster
from rockmq.config import properties
from rockmq.protocol import json
from rockmq.protocol.bodies.storage import (
    ColdReads,
    DelayOffsets,
    RocksQueuesChecked,
    TimerCheckpoint,
    TimerCount,
    TimerCounts,
)
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import GetAllDelayOffset
from rockmq.protocol.headers.storage import (
    CheckRocksQueues,
    ExportRocksTables,
    GetColdReads,
    GetTimerCheckpoint,
    GetTimerCounts,
    LimitColdReads,
    PopsToFiles,
    SetReadAhead,
    SwitchTimerEngine,
    UnlimitColdReads,
)

POPS_TIMEOUT = 30.0
"""All that is popped is written before the answer comes."""
RocksTable = Literal["topics", "subscriptionGroups", "consumerOffsets"]
RocksCheck = Literal["equal", "different", "going on", "failed"]
_CHECKS: dict[int, RocksCheck] = {0: "equal", 1: "different", 2: "going on", 3: "failed"}
READ_AHEAD, RANDOM = "0", "1"
_ENGINES = {"files": "F", "rocksdb": "R"}


class StorageAdmin:
    """`broker` is the name of one, which means its master, or `host:port`. What concerns RocksDB means nothing to brokers
    that don't use it; RockMQ's never do."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Timers

    async def timer_checkpoint(self, broker: str) -> TimerCheckpoint:
        """How far timers are."""
        answer = await self._cluster.ask(broker, RequestCode.GET_TIMER_CHECK_POINT, GetTimerCheckpoint())
        return TimerCheckpoint.parse(answer.body)

    async def timer_counts(self, broker: str) -> dict[str, TimerCount]:
        """How many messages wait for their time, by topic."""
        answer = await self._cluster.ask(broker, RequestCode.GET_TIMER_METRICS, GetTimerCounts())
        return json.decode(answer.body, TimerCounts, "messages that wait for their time").timing_count

    async def delay_offsets(self, broker: str) -> dict[int, int]:
        """By delay level, the offset of the next message to deliver."""
        answer = await self._cluster.ask(broker, RequestCode.GET_ALL_DELAY_OFFSET, GetAllDelayOffset())
        return json.decode(answer.body, DelayOffsets, "offsets of delay levels").offset_table

    async def switch_timer_engine(self, broker: str, engine: Literal["files", "rocksdb"]) -> None:
        """Have timers kept in RocksDB from now on, or in files. Raises ResponseError when the broker wasn't started so that
        it could."""
        if engine not in _ENGINES:
            raise ClientError(f"engine is {engine!r}: expected {' or '.join(map(repr, _ENGINES))}")
        header = SwitchTimerEngine(engine=_ENGINES[engine])
        await self._cluster.ask(broker, RequestCode.SWITCH_TIMER_ENGINE, header)

    # What is read from disk

    async def cold_reads(self, broker: str) -> ColdReads:
        """Who reads messages that aren't in memory any more, and how much of it groups may."""
        answer = await self._cluster.ask(broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, GetColdReads())
        return json.decode(answer.body, ColdReads, "cold reads")

    async def limit_cold_reads(self, broker: str, limits: Mapping[str, int]) -> None:
        """Give groups bounds of their own, in bytes (`ColdReads`), until the broker ends."""
        text = properties.write({self._cluster.at_servers(group): str(limit) for group, limit in limits.items()})
        await self._cluster.ask(broker, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, LimitColdReads(), text.encode())

    async def unlimit_cold_reads(self, broker: str, group: str) -> None:
        """Let the bound of all others be that of the group again."""
        name = self._cluster.at_servers(group).encode()
        await self._cluster.ask(broker, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, UnlimitColdReads(), name)

    async def set_read_ahead(self, broker: str, on: bool) -> None:
        """Whether the system is to read ahead in the commit log."""
        header = SetReadAhead(mode=READ_AHEAD if on else RANDOM)
        await self._cluster.ask(broker, RequestCode.SET_COMMITLOG_READ_MODE, header)

    # RocksDB

    async def check_rocksdb_queues(self, broker: str, topic: str | None = None, *, since: int = 0) -> tuple[RocksCheck, str]:
        """Begin to compare queues in files with those in RocksDB, of a topic or of all, from messages stored at `since` (ms)
        on; how far that is, with the broker's words. Apache's broker always says "going on", and the rest in its log."""
        header = CheckRocksQueues(topic=topic or "", check_store_time=since)
        answer = await self._cluster.ask(broker, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, header)
        checked = json.decode(answer.body, RocksQueuesChecked, "queues in RocksDB")
        return _CHECKS.get(checked.status, "failed"), checked.text or ""

    async def export_rocksdb_tables(
        self, broker: str, tables: Iterable[RocksTable] = ("topics", "subscriptionGroups", "consumerOffsets")
    ) -> None:
        """Write tables that are in RocksDB into their JSON files, which a broker without it can read."""
        chosen = [tables] if isinstance(tables, str) else list(tables)
        header = ExportRocksTables(config_type=";".join(chosen))
        await self._cluster.ask(broker, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, header)

    async def move_pops_to_files(self, broker: str) -> None:
        """Write what is popped and not acknowledged from RocksDB into the log, where a broker without it finds it."""
        await self._cluster.ask(broker, RequestCode.POP_ROLLBACK, PopsToFiles(), timeout=POPS_TIMEOUT)
