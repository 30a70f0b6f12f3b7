"""Where messages are read from, as planning sees it: a cluster, or a store's directory; and pulls in the tasks."""

import asyncio
import contextlib
import logging
import re
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec

from rockmq.base.errors import ConfigError, NotSupported, RemotingError, RequestTimeout, ResponseError
from rockmq.client import Client, MessageQueue, Sql, environment
from rockmq.client.acl import Key
from rockmq.client.pull import PullResult, PullStatus
from rockmq.client.static_queues import is_static
from rockmq.protocol import topics
from rockmq.spark.options import GROUP, ConnectionOptions, Offsets, ReadOptions
from rockmq.spark.pulling import Pull
from rockmq.spark.ranges import Bounds, check_named, name, named, offsets_json
from rockmq.spark.store import StoreOrigin

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

PULL_BYTES_MAX = 1 << 20
"""Bytes asked for in one pull. Apache's brokers have a bound of their own, 256 KiB."""

ASKED_AT_ONCE = 64
"""Queues asked for their offsets at a time."""

SLAVE_ID = 1


class Origin(Protocol):
    """What planning asks. Everything raises RockMQError."""

    async def topic_names(self) -> list[str]: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...
    async def min_offset(self, queue: MessageQueue) -> int: ...
    async def max_offset(self, queue: MessageQueue) -> int: ...
    async def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int: ...
    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]: ...


class Brokers(Client):
    """A client, which is an origin but for one name."""

    async def __aenter__(self) -> "Brokers":
        await super().__aenter__()
        return self

    async def topic_names(self) -> list[str]:
        return await self.admin.topics.names()


def connected(options: ConnectionOptions) -> Brokers:
    """A client, for use with `async with`. Raises ConfigError for files of TLS and for keys that can't be used."""
    return Brokers(options.name_server, serializer="binary", tls=_tls(options), auth=_key(options))


def _key(options: ConnectionOptions) -> Key | None:
    """What requests are signed with: as the options say, else as this process's environment does."""
    if options.access_key:
        return Key(options.access_key, options.secret_key, options.security_token or None)
    return environment.key()


def _tls(options: ConnectionOptions) -> "ssl.SSLContext | bool":
    if options.tls is None:
        return environment.tls() or False
    if not options.tls:
        return False
    try:
        return environment.context(
            options.tls_ca, options.tls_certificate, options.tls_key, checks_name=options.tls_check_hostname
        )
    except OSError as error:
        text = (
            f"options 'tlsCa' ({options.tls_ca}), 'tlsCertificate' ({options.tls_certificate}), 'tlsKey' ({options.tls_key})"
        )
        raise ConfigError(f"{text}: {error}; the files have to be on driver and executors") from None


@contextlib.asynccontextmanager
async def asking(options: ReadOptions) -> AsyncIterator[Origin]:
    """The origin, to be asked for as long as `timeout` says. Raises RequestTimeout."""
    if options.store is not None:
        yield StoreOrigin(options.store, options.broker_name)
        return
    client = connected(options)
    try:
        async with asyncio.timeout(options.timeout), client:
            yield client
    except TimeoutError:
        what = options.topic_pattern or ", ".join(options.topics)
        text = f"{options.name_server} and its brokers didn't tell the offsets of {what} within {options.timeout:g} s"
        raise RequestTimeout(text) from None


async def topic_bounds(options: ReadOptions) -> dict[MessageQueue, Bounds]:
    """The ends of all queues that are to be read. Raises RouteNotFound, ResponseError, RemotingError, ConfigError."""
    async with asking(options) as origin:
        return await bounds_of(origin, options)


async def bounds_of(origin: Origin, options: ReadOptions) -> dict[MessageQueue, Bounds]:
    async def ask(queue: MessageQueue) -> Bounds:
        # In this order the first offset can't be behind the end, whatever comes or expires meanwhile.
        first = await origin.min_offset(queue)
        return Bounds(first, await origin.max_offset(queue))

    found = [queue for topic in await topics_of(origin, options) for queue in await origin.queues(topic)]
    refuse_static(found, "read")
    return await of_each(chosen(found, options), ask)


def refuse_static(queues: Iterable[MessageQueue], what: str) -> None:
    """Raises NotSupported if one is a static topic's, which can't be `what`: read, or written to.

    Records tell another offset than the queue's, and columns are made of records, as are the ids that a write reads back.
    """
    if static := {queue.topic for queue in queues if is_static(queue)}:
        raise NotSupported(f"static topics can't be {what}: {', '.join(sorted(static))}")


def chosen(found: list[MessageQueue], options: ReadOptions) -> list[MessageQueue]:
    """Of these queues those that are named, or all. Raises ConfigError for one that isn't there."""
    if not options.named_queues:
        return found
    wanted = {
        MessageQueue(topic, broker, queue_id)
        for topic, brokers in options.named_queues.items()
        for broker, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if missing := sorted(wanted.difference(found)):
        there = ", ".join(name(queue) for queue in found if queue.topic == missing[0].topic)
        raise ConfigError(f"option 'queues' names queue {name(missing[0])}; there are: {there}")
    return sorted(wanted)


async def topics_of(origin: Origin, options: ReadOptions) -> list[str]:
    """The topics that are named, or that match the pattern now."""
    if not options.topic_pattern:
        return options.topics
    pattern = re.compile(options.topic_pattern)
    return [
        each for each in await origin.topic_names() if pattern.fullmatch(each) and _is_meant(each, options.topic_pattern)
    ]


def _is_meant(topic: str, pattern: str) -> bool:
    """Retry and dead-letter topics are read by a pattern that says so, those of the system only by name; no light queue."""
    if topics.is_system(topic) or topics.is_light(topic):
        return False
    return not topic.startswith("%") or pattern.startswith("%")


async def resolved(origin: Origin, options: ReadOptions, bounds: Mapping[MessageQueue, Bounds]) -> ReadOptions:
    """The options with offsets instead of times, and instead of the group's offsets. Raises ConfigError."""
    check_named("startingOffsetsByTimestamp", options.starting_times, bounds)
    check_named("endingOffsetsByTimestamp", options.ending_times, bounds)
    changes: dict[str, object] = {}
    if (times := options.starting_times) is not None:
        starts = await _at_times(origin, times, bounds)
        if options.starting_offsets_by_timestamp_strategy == "error":
            _check_starts(starts, times, bounds)
        changes["starting_offsets"] = offsets_json(starts)
        changes |= {"starting_timestamp": None, "starting_offsets_by_timestamp": ""}
    elif options.starting == GROUP:
        changes["starting_offsets"] = offsets_json(await _of_group(origin, options.group, bounds))
    if (times := options.ending_times) is not None:
        changes["ending_offsets"] = offsets_json(await _at_times(origin, times, bounds))
        changes |= {"ending_timestamp": None, "ending_offsets_by_timestamp": ""}
    elif options.ending == GROUP:
        changes["ending_offsets"] = offsets_json(await _of_group(origin, options.group, bounds))
    return msgspec.structs.replace(options, **changes)


async def _at_times(
    origin: Origin, times: "int | Offsets", bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    """The first offset stored at a queue's time or later, the queue's end if there is none; of queues that have a time."""
    wanted = {queue: time for queue in bounds if (time := named(times, queue)) is not None}

    async def ask(queue: MessageQueue) -> int:
        found = await origin.offset_by_time(queue, wanted[queue])
        return min(max(found, bounds[queue].first), bounds[queue].end)

    return await of_each(wanted, ask)


def _check_starts(starts: Mapping[MessageQueue, int], times: "int | Offsets", bounds: Mapping[MessageQueue, Bounds]) -> None:
    for queue, start in starts.items():
        time = named(times, queue)
        if start == bounds[queue].end and time is not None:
            raise ConfigError(
                f"{name(queue)} has no message stored at {_shown(time)} or later, to start at; with option "
                f"startingOffsetsByTimestampStrategy=latest nothing is read of such a queue"
            )


def _shown(time: int) -> str:
    try:
        return f"{time} ({datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec='milliseconds')})"
    except (OverflowError, ValueError, OSError):
        return str(time)


async def _of_group(origin: Origin, group: str, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    """Where the group is; a queue that it never committed is at its beginning."""
    found: dict[MessageQueue, int | None] = {}
    for topic in {queue.topic: None for queue in bounds}:
        found |= await origin.committed_offsets(group, topic)
    offsets = {queue: found.get(queue) for queue in bounds}
    return {queue: bounds[queue].first if offset is None else offset for queue, offset in offsets.items()}


async def of_each(queues: Collection[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """The answers for all queues, or topics, some asked at a time."""
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(queue: K) -> T:
        async with turns:
            return await ask(queue)

    answers = await asyncio.gather(*map(one, queues))
    return dict(zip(queues, answers, strict=True))


def pull_from(client: Client, queue: MessageQueue, options: ReadOptions) -> Pull:
    """How to pull that queue: of its master, or of a slave as far as that has it."""
    wanted = Sql(options.sql) if options.sql else options.tags

    async def pull(offset: int, count: int, broker_id: int = 0) -> PullResult:
        return await client.pull(queue, offset, count, PULL_BYTES_MAX, options.timeout, tags=wanted, broker_id=broker_id)

    async def pull_slave(offset: int, count: int) -> PullResult:
        try:
            answer = await pull(offset, count, SLAVE_ID)
        except (RemotingError, ResponseError) as error:
            log.warning("a slave of %s can't be asked, so its master is: %s", queue.broker_name, error)
        else:
            # That nothing matches is also how brokers pass over what their log has lost.
            passed = answer.status is PullStatus.NO_MATCHED and options.filtered and answer.min_offset <= offset
            if answer.next_offset > offset and (answer.status is PullStatus.FOUND or passed):
                return answer
        return await pull(offset, count)

    return pull_slave if options.prefer_slaves else pull


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also for callers inside a running event loop (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    results: list[T] = []
    errors: list[BaseException] = []

    def apart() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            errors.append(error)

    thread = threading.Thread(target=apart, name="rockmq plan")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
