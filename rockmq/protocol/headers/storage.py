"""What administrators ask of how a broker stores: timers, what is read from disk, engines (AdminBrokerProcessor.java)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header, Long, Topic, request


@request(RequestCode.GET_TIMER_CHECK_POINT)
class GetTimerCheckpoint(Header):
    """The answer's body is that of `rockmq.protocol.bodies.storage.TimerCheckpoint`."""


@request(RequestCode.GET_TIMER_METRICS)
class GetTimerCounts(Header):
    """The answer's body is the document `timermetrics`."""


@request(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
class LimitColdReads(Header):
    """The body has a property for each group, with the bytes that it may read."""


@request(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG)
class UnlimitColdReads(Header):
    """The body is the group's name."""


@request(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
class GetColdReads(Header):
    pass


@request(RequestCode.SET_COMMITLOG_READ_MODE)
class SetReadAhead(Header, kw_only=True):
    """`mode` is that of madvise: 0 for reading ahead, 1 for not."""

    mode: str = field(name="READ_AHEAD_MODE")


@request(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)
class CheckRocksQueues(Header, kw_only=True):
    """No text as topic means all; `check_store_time` in ms, from messages stored then on."""

    topic: Topic
    check_store_time: Long


@request(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
class ExportRocksTables(Header, kw_only=True):
    """Tables (topics, subscriptionGroups, consumerOffsets), with `;` between them."""

    config_type: str


@request(RequestCode.SWITCH_TIMER_ENGINE)
class SwitchTimerEngine(Header, kw_only=True):
    """`engine` is F for the wheel in files, R for RocksDB."""

    engine: str = field(name="E_T")


@request(RequestCode.POP_ROLLBACK)
class PopsToFiles(Header):
    pass
