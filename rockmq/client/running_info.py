"""What an administrator sees of a consumer (ConsumerRunningInfo.java, ProcessQueueInfo.java; spelling as there)."""

import asyncio
import math
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from msgspec import field

from rockmq.client.consume_stats import ConsumeStatus
from rockmq.client.consumer_options import Options
from rockmq.client.locks import VALID_SECONDS
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
    options: Options,
    name_servers: Sequence[str],
    concurrency: int,
    started_ms: int,
    since_loop_time_ms: int,
    subscriptions: Sequence[SubscriptionData],
    queues: Sequence[ProcessQueue],
    status: Mapping[str, ConsumeStatus],
    stacks: bool,
) -> bytes:
    """The body; the table of queues has objects as keys, which no ordinary JSON writer writes.

    `since_loop_time_ms` is the wall clock's time at which that of the event loop was 0.
    """
    properties = {key: str(value) for key, value in vars(options).items() if not callable(value)} | {
        "PROP_NAMESERVER_ADDR": ";".join(name_servers),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMEORDERLY": str(options.order).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": VERSION_NAME,
    }
    table = {each.queue.key(): _info(each, since_loop_time_ms) for each in sorted(queues, key=lambda each: each.queue)}
    return _document(properties, subscriptions, table, {}, status, stacks=stacks)


def encode_active(
    *,
    consume_type: str,
    name_servers: Sequence[str],
    started_ms: int,
    subscriptions: Sequence[SubscriptionData],
    queues: Mapping[str, ProcessQueueInfo],
    pops: Mapping[str, PopProcessQueueInfo],
    stacks: bool,
) -> bytes:
    """The body for a consumer that pops, or of lite pull. Queues and pops by the texts of their keys."""
    properties = {
        "PROP_NAMESERVER_ADDR": ";".join(name_servers),
        "PROP_CONSUME_TYPE": consume_type,
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": VERSION_NAME,
    }
    return _document(properties, subscriptions, queues, pops, {}, stacks=stacks)


def _document(
    properties: Mapping[str, str],
    subscriptions: Sequence[SubscriptionData],
    queues: Mapping[str, ProcessQueueInfo],
    pops: Mapping[str, PopProcessQueueInfo],
    status: Mapping[str, ConsumeStatus],
    *,
    stacks: bool,
) -> bytes:
    parts = {
        b"mqPopTable": json.object_map(dict(pops)),
        b"mqTable": json.object_map(dict(queues)),
        b"properties": json.encode(properties),
        b"statusTable": json.encode(status),
        b"subscriptionSet": json.encode(subscriptions),
        b"userConsumerInfo": b"{}",
    }
    if stacks:
        parts[b"jstack"] = json.encode(all_stacks())
    return b"{" + b",".join(b'"%s":%s' % part for part in parts.items()) + b"}"


def _info(process_queue: ProcessQueue, since_ms: int) -> ProcessQueueInfo:
    def stamp(loop_time: float) -> int:
        return since_ms + round(loop_time * 1000) if math.isfinite(loop_time) else 0

    locked = math.isfinite(process_queue.locked_until)
    return ProcessQueueInfo(
        commit_offset=process_queue.offset,
        cached_msg_min_offset=process_queue.offset if process_queue.count else 0,
        cached_msg_max_offset=process_queue.offset + process_queue.span if process_queue.count else 0,
        cached_msg_count=process_queue.count,
        cached_msg_size_in_mi_b=process_queue.bytes // (1024 * 1024),
        transaction_msg_count=process_queue.delivered if locked else 0,
        locked=locked,
        last_lock_timestamp=stamp(process_queue.locked_until - VALID_SECONDS),
        droped=process_queue.dropped,
        last_pull_timestamp=stamp(process_queue.pulled_at),
        last_consume_timestamp=stamp(process_queue.consumed_at),
    )


def all_stacks() -> str:
    """What every task and thread of this process is doing, in the layout of UtilAll.jstack; those who do the same (a pull
    for each queue) are told once, with their number."""
    found: dict[tuple[str, ...], list[str]] = {}
    for task in asyncio.all_tasks():
        found.setdefault(("TASK", *reversed(_awaited(task))), []).append(task.get_name())
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, top in sys._current_frames().items():
        lines = [_line(frame) for frame, _ in traceback.walk_stack(top)]
        found.setdefault(("THREAD", *lines), []).append(threads.get(number, str(number)))
    text = []
    for (kind, *lines), names in found.items():
        names.sort()
        name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        text.append(f"{name:<40}{kind}\n" + "".join(f"{name:<40}{line}\n" for line in lines))
    return "\n".join(text)


def _awaited(task: "asyncio.Task[Any]") -> list[str]:
    """Where a task is, from its beginning on; `Task.get_stack` tells no more than the first line of one that waits."""
    lines: list[str] = []
    awaited: object = task.get_coro()
    while awaited is not None:
        frame = (
            getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None) or getattr(awaited, "ag_frame", None)
        )
        if frame is not None:
            lines.append(_line(frame))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return lines


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_qualname}({code.co_filename}:{frame.f_lineno})"
