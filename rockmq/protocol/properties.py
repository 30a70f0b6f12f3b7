"""Message properties: their names, and the text `key 0x01 value 0x02 …` (MessageConst.java, MessageDecoder.java)."""

from rockmq.base.errors import ProtocolError

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
ARRIVE_TIME = "ARRIVE_TIME"
POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
SHARDING_KEY = "__SHARDINGKEY"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_WISHES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""What asks for delivery at a time; the first that is there counts."""
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CRC32 = "__CRC32#"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

NAME_END = "\x01"
PAIR_END = "\x02"
NUMBER_DIGITS_MAX = 19
SIZE_MAX = 32_767
"""Bytes of the whole text: its length is a signed 16-bit field."""


def encode(properties: dict[str, str]) -> bytes:
    """The text of the properties. Raises ProtocolError for separators inside and for a text that is too long."""
    parts = []
    for key, value in properties.items():
        if NAME_END in key or PAIR_END in key or NAME_END in value or PAIR_END in value:
            raise ProtocolError(f"property {key!r} holds a separator byte (0x01 or 0x02)")
        parts.append(f"{key}{NAME_END}{value}{PAIR_END}")
    text = "".join(parts).encode()
    if len(text) > SIZE_MAX:
        raise ProtocolError(f"properties are {len(text)} bytes, the bound is {SIZE_MAX}")
    return text


def decode(text: bytes) -> dict[str, str]:
    """The properties in a text; items without a separator, and empty keys or values, are skipped as in Java."""
    properties = {}
    for item in text.decode(errors="replace").split(PAIR_END):
        key, found, value = item.partition(NAME_END)
        if found and key and value:
            properties[key] = value
    return properties


def number(text: str | None) -> int | None:
    """A whole number from 0 on, None for what isn't one; such as thousands of digits, which `int` refuses."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX else None


def tag_code(tags: str) -> int:
    """Java's `String.hashCode` of the tag text: 32-bit, signed, over UTF-16 units."""
    wide = tags.encode("utf-16-be", errors="surrogatepass")
    code = 0
    for high, low in zip(wide[::2], wide[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return code - (1 << 32) if code >= 1 << 31 else code
