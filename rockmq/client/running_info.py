"""What an administrator sees of a consumer (ConsumerRunningInfo.java, ProcessQueueInfo.java; spelling as there)."""

from collections.abc import Mapping, Sequence

from msgspec import field

from rockmq.client.process_queue import ProcessQueue
from rockmq.protocol import json
from rockmq.protocol.bodies.common import Body, SubscriptionData

VERSION_NAME = "V5_3_3"


class ProcessQueueInfo(Body):
    commit_offset: int
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body):
    wait_ack_count: int
    droped: bool = False
    last_pop_timestamp: int = 0


def encode(
    *,
    name_servers: Sequence[str],
    started_ms: int,
    subscriptions: Sequence[SubscriptionData],
    queues: Sequence[ProcessQueue],
) -> bytes:
    """The body; the table of queues has objects as keys, which no ordinary JSON writer writes."""
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(name_servers),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMEORDERLY": "false",
        "PROP_THREADPOOL_CORE_SIZE": "1",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": VERSION_NAME,
    }
    table = json.object_map({each.queue.key(): _info(each) for each in sorted(queues, key=lambda each: each.queue)})
    parts = {
        b"mqTable": table,
        b"properties": json.encode(properties),
        b"statusTable": b"{}",
        b"subscriptionSet": json.encode(subscriptions),
        b"userConsumerInfo": b"{}",
    }
    return b"{" + b",".join(b'"%s":%s' % part for part in parts.items()) + b"}"


def _info(process_queue: ProcessQueue) -> ProcessQueueInfo:
    return ProcessQueueInfo(
        commit_offset=process_queue.offset,
        cached_msg_min_offset=process_queue.offset if process_queue.count else 0,
        cached_msg_max_offset=process_queue.offset + process_queue.span if process_queue.count else 0,
        cached_msg_count=process_queue.count,
        cached_msg_size_in_mi_b=process_queue.bytes // (1024 * 1024),
        droped=process_queue.dropped,
    )


def encode_active(
    *,
    consume_type: str,
    name_servers: Sequence[str],
    started_ms: int,
    subscriptions: Sequence[SubscriptionData],
    queues: Mapping[str, ProcessQueueInfo],
    pops: Mapping[str, PopProcessQueueInfo],
) -> bytes:
    """The body for a consumer that pops, or of lite pull. Queues and pops by the texts of their keys."""
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(name_servers),
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": VERSION_NAME,
    }
    parts = {
        b"mqPopTable": json.object_map(dict(pops)),
        b"mqTable": json.object_map(dict(queues)),
        b"properties": json.encode(properties),
        b"statusTable": b"{}",
        b"subscriptionSet": json.encode(subscriptions),
        b"userConsumerInfo": b"{}",
    }
    return b"{" + b",".join(b'"%s":%s' % part for part in parts.items()) + b"}"
