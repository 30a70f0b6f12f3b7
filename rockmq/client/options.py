"""How a producer sends (DefaultMQProducer.java; clients' spec, 2.1)."""

from dataclasses import dataclass

from rockmq.base.errors import ClientError
from rockmq.client.durability import Wanted
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.compression import Compression

MESSAGE_SIZE_MAX = 4 * 1024 * 1024
COMPRESS_FROM = 4096
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
    }
)


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
    """How a producer sends; see `Client.producer`. Raises ClientError for what can't be."""

    timeout: float = 3.0
    retries: Retries = TWICE_MORE
    compression: Compression | None = Compression.ZLIB
    compress_from: int = COMPRESS_FROM
    message_size_max: int = MESSAGE_SIZE_MAX
    linger: float | None = None
    batch_bytes: int = BATCH_BYTES
    latency_fault_tolerance: bool = False
    durability: Wanted | None = None

    def __post_init__(self) -> None:
        if self.linger is not None and not 0 <= self.linger <= min(LINGER_MAX, self.timeout):
            raise ClientError(f"linger is {self.linger}: expected 0 … {min(LINGER_MAX, self.timeout)} seconds")
        if not 1 <= self.batch_bytes <= BATCH_BYTES_MAX:
            raise ClientError(f"batch_bytes is {self.batch_bytes}: expected 1 … {BATCH_BYTES_MAX}")
        if self.retries.times < 0:
            raise ClientError(f"retries is {self.retries.times}: expected 0 or more")
        if self.retries.timeout_per_attempt is not None and self.retries.timeout_per_attempt <= 0:
            raise ClientError(f"timeout_per_attempt is {self.retries.timeout_per_attempt}: expected some seconds, or None")
