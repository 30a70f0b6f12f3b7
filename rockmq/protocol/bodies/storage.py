"""How a broker stores, as administrators are told (TimerCheckpoint.java, TimerMetrics.java, ColdDataCgCtrService.java)."""

import struct

from msgspec import field

from rockmq.base.errors import ProtocolError
from rockmq.protocol.bodies.common import Body, DataVersion
from rockmq.protocol.header import Long

_TIMER_CHECKPOINT = struct.Struct(">7q")


class TimerCheckpoint(Body, kw_only=True):
    """How far timers are: up to which time (ms) they have come, where their log is forced to, and which queue offset of
    messages to be timed is next. It travels as seven 64-bit integers, big-endian: these four, and the version's."""

    read_until: Long
    flushed: Long
    queue_offset: Long
    master_queue_offset: Long
    version: DataVersion

    def encode(self) -> bytes:
        version = self.version
        numbers = (self.read_until, self.flushed, self.queue_offset, self.master_queue_offset)
        return _TIMER_CHECKPOINT.pack(*numbers, version.state_version, version.timestamp, version.counter)

    @classmethod
    def parse(cls, data: bytes) -> "TimerCheckpoint":
        """Raises ProtocolError."""
        if len(data) != _TIMER_CHECKPOINT.size:
            raise ProtocolError(f"timer checkpoint: expected {_TIMER_CHECKPOINT.size} bytes, not {len(data)}")
        until, flushed, offset, master_offset, state, timestamp, counter = _TIMER_CHECKPOINT.unpack(data)
        return cls(
            read_until=until,
            flushed=flushed,
            queue_offset=offset,
            master_queue_offset=master_offset,
            version=DataVersion(state_version=state, timestamp=timestamp, counter=counter),
        )


class TimerCount(Body, kw_only=True):
    """Messages of a topic that wait for their time, and when that number last changed (ms)."""

    count: Long
    changed: Long = field(default=0, name="timeStamp")


class TimerCounts(Body, kw_only=True):
    """By topic."""

    timing_count: dict[str, TimerCount] = field(default_factory=dict)


class DelayOffsets(Body, kw_only=True):
    """By delay level, the offset of the next message to deliver: the document `delayOffset.json`."""

    offset_table: dict[int, Long] = field(default_factory=dict)


class ColdRead(Body, kw_only=True):
    """Bytes that a group has read from disk since its last count, and when it did so last (ms)."""

    read: Long = field(default=0, name="coldAcc")
    last_read: Long = field(default=0, name="lastColdReadTimeMills")
    first_read: Long = field(default=0, name="createTimeMills")


class ColdReads(Body, kw_only=True):
    """What is read that isn't in memory any more, in bytes of some seconds: of groups now, the bounds of their own that
    groups have, the bound of all others, all groups' together, and the bound of that."""

    groups: dict[str, ColdRead] = field(default_factory=dict, name="runtimeTable")
    limits: dict[str, Long] = field(default_factory=dict, name="configTable")
    default_limit: Long = field(default=0, name="cgColdReadThreshold")
    read: Long = field(default=0, name="globalAcc")
    limit: Long = field(default=0, name="globalColdReadThreshold")


class RocksQueuesChecked(Body, kw_only=True):
    """CheckRocksdbCqWriteResult.java: `status` is 0 for equal, 1 for different, 2 while it goes on, 3 for an error."""

    status: int = field(name="checkStatus")
    text: str | None = field(default=None, name="checkResult")
