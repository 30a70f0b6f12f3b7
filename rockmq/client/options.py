"""How a producer sends: the keywords of `Client.producer` (DefaultMQProducer.java; clients' spec, 2.1)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from rockmq.base.errors import ClientError
from rockmq.client.durability import Wanted
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.compression import Compression

MESSAGE_SIZE_MAX = 4 * 1024 * 1024
COMPRESS_FROM = 4096
COMPRESSION_LEVEL = 5
COMPRESSION_LEVELS_MAX = {Compression.ZLIB: 9, Compression.LZ4: 16, Compression.ZSTD: 22}
LINGER_MAX = 30.0
"""Seconds that a message may wait for others."""
BATCH_BYTES = 32 * 1024
BATCH_BYTES_MAX = 2 * 1024 * 1024
RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)

_COMPRESSIONS = {"zlib": Compression.ZLIB, "lz4": Compression.LZ4, "zstd": Compression.ZSTD, "none": None}


class SendOptions(TypedDict, total=False):
    """Keywords, all of which have a default."""

    timeout: float
    """Seconds for a whole send with its retries. 3."""
    retries: int
    """How often a send is tried again within its time, on another broker where there is one. 2."""
    timeout_per_attempt: float | None
    """Seconds for each attempt but the last."""
    retry_codes: Collection[int]
    """Refusals of brokers after which a send is tried again, besides those that Apache's client knows."""
    retry_another_broker_when_not_store_ok: bool
    """Try again, too, after a status other than OK if there is another broker; the message is stored twice then."""
    compression: Literal["zlib", "lz4", "zstd", "none"]
    """How bodies are compressed, if that makes them smaller. "zlib"."""
    compress_from: int
    """From how many bytes on. 4096."""
    compression_level: int
    """1 up to 9 with zlib, 16 with lz4, 22 with zstd. 5."""
    message_size_max: int
    """Bytes of a body, before it is compressed, and of a batch. 4 MiB."""
    linger: float | None
    """Seconds that messages wait for others to travel with; 0 is the current turn of the event loop. None: not at all."""
    batch_bytes: int
    """How large such a batch gets. 32 KiB."""
    latency_fault_tolerance: bool
    """Leave out brokers that are slow or fail for a time."""
    durability: Wanted | None
    """What a message must have survived when its send ends. Each broker is asked for its configuration before the first
    send to it; receipts state how durably messages are stored then, and a send that is, or would be, stored less durably
    fails (ClientError: nothing was sent; ResponseError: it is stored all the same)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """When a send is tried again (DefaultMQProducer.java's keys of these names).

    `times` more attempts within the time of a send, each but the last for at most `timeout_per_attempt` seconds. After an
    answer with one of `codes`, and with `another_broker_when_not_store_ok` after a status other than OK if there is another
    broker to go to; the message is stored twice then.
    """

    times: int = 2
    timeout_per_attempt: float | None = None
    codes: frozenset[int] = RETRIED
    another_broker_when_not_store_ok: bool = False


ONCE = Retries(times=0)
TWICE_MORE = Retries()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """SendOptions with their defaults. Raises ClientError for what can't be."""

    timeout: float = 3.0
    retries: Retries = TWICE_MORE
    compression: Compression | None = Compression.ZLIB
    compress_from: int = COMPRESS_FROM
    compression_level: int = COMPRESSION_LEVEL
    message_size_max: int = MESSAGE_SIZE_MAX
    linger: float | None = None
    batch_bytes: int = BATCH_BYTES
    latency_fault_tolerance: bool = False
    durability: Wanted | None = None

    def __post_init__(self) -> None:
        if self.compression is not None and not 1 <= self.compression_level <= COMPRESSION_LEVELS_MAX[self.compression]:
            most = COMPRESSION_LEVELS_MAX[self.compression]
            raise ClientError(f"compression_level is {self.compression_level}: expected 1 … {most} with this compression")
        if self.compress_from < 0:
            raise ClientError(f"compress_from is {self.compress_from}: expected 0 or more bytes")
        if self.message_size_max < 1:
            raise ClientError(f"message_size_max is {self.message_size_max}: expected 1 or more bytes")
        if self.timeout <= 0:
            raise ClientError(f"timeout is {self.timeout}: expected some seconds")
        if self.durability is not None and self.durability not in get_args(Wanted):
            raise ClientError(f"durability is {self.durability!r}: expected {', '.join(map(repr, get_args(Wanted)))}")
        if self.linger is not None and not 0 <= self.linger <= min(LINGER_MAX, self.timeout):
            raise ClientError(f"linger is {self.linger}: expected 0 … {min(LINGER_MAX, self.timeout)} seconds")
        if not 1 <= self.batch_bytes <= BATCH_BYTES_MAX:
            raise ClientError(f"batch_bytes is {self.batch_bytes}: expected 1 … {BATCH_BYTES_MAX}")
        if self.retries.times < 0:
            raise ClientError(f"retries is {self.retries.times}: expected 0 or more")
        if self.retries.timeout_per_attempt is not None and self.retries.timeout_per_attempt <= 0:
            raise ClientError(f"timeout_per_attempt is {self.retries.timeout_per_attempt}: expected some seconds, or None")


def options_of(
    *,
    retries: int = 2,
    timeout_per_attempt: float | None = None,
    retry_codes: Collection[int] = (),
    retry_another_broker_when_not_store_ok: bool = False,
    compression: str = "zlib",
    **others: Any,
) -> ProducerOptions:
    """Of the keywords of `SendOptions`. Raises ClientError for what can't be."""
    if compression not in _COMPRESSIONS:
        raise ClientError(f"compression is {compression!r}: expected {', '.join(map(repr, _COMPRESSIONS))}")
    retrying = Retries(
        times=retries,
        timeout_per_attempt=timeout_per_attempt,
        codes=RETRIED.union(retry_codes),
        another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
    )
    return ProducerOptions(retries=retrying, compression=_COMPRESSIONS[compression], **others)
