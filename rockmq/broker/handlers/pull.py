"""Pulling (PullMessageProcessor.java, DefaultPullMessageResultHandler.java; protocol spec, 4.2).

Checks who asks for what, asks the store, and answers with the stored records as they lie in the mapped log. Nothing there
yet: the pull is parked, and tried again when something arrives or its time is over.
"""

import asyncio
import os
import struct
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import structs

from rockmq.base.clock import Clock
from rockmq.base.errors import FilterError
from rockmq.broker.clients import ClientTables
from rockmq.broker.consumer_filters import ConsumerFilters, no_filtering
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.hooks import Consumed, Hooks, Way
from rockmq.broker.long_polling import LongPolling, Parked
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.python_filters import MESSAGES_MAX, PythonFilter
from rockmq.broker.slow_groups import SlowGroups
from rockmq.broker.stats import BrokerStats
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import Traffic
from rockmq.config.broker import BrokerOptions
from rockmq.filter import is_tag, tags
from rockmq.protocol import codec
from rockmq.protocol.bodies.common import GroupConfig, SubscriptionData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import Permission, PullFlag
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.topics import is_retry_or_dlq
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal, refused
from rockmq.store import Filter, GetResult, GetStatus
from rockmq.store.message_store import MessageStore

COUNT_MAX = 32
"""Messages per answer when the client asks for no sensible number."""

BYTES_MAX = 8 << 20
"""Bytes per answer, whatever the client asks: an answer must fit a frame and must not hold up the connection."""

SUSPEND_SECONDS_MAX = 60.0

SCANNED_AT_ONCE = 256
"""With an expression, and more messages than these before the queue's end, a thread looks at them: the loop has others."""

MASTER_ID = 0

_CODES = {
    GetStatus.NO_MATCHED_MESSAGE.value: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING.value: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL.value: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE.value: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY.value: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL.value: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET.value: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE.value: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE.value: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY = frozenset({GetStatus.NO_MESSAGE_IN_QUEUE.value, GetStatus.NO_MATCHED_LOGIC_QUEUE.value})
_NAMES = {status.value: status.name for status in GetStatus}


class _Wanted(msgspec.Struct):
    """A pull that passed its checks."""

    header: Pull
    tag_codes: tuple[int, ...] | None
    filter: Filter | PythonFilter | None
    count_max: int
    bytes_max: int
    offset: int
    suggested: tuple[int, int]
    """The broker to pull from next, and the one for when this pull is far behind (composeResponseHeader)."""


class PullHandler:
    """Answers PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(
        self,
        options: BrokerOptions,
        clock: Clock,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTables,
        filters: ConsumerFilters | None,
        offsets: ConsumerOffsets,
        store: MessageStore,
        gate: DurabilityGate,
        long_polling: LongPolling,
        slow: SlowGroups | None,
        stats: BrokerStats,
        traffic: Traffic,
        hooks: Hooks,
    ) -> None:
        self._limits = options.consumers
        self._topic_options = options.topics
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        self._offsets = offsets
        self._store = store
        self._gate = gate
        self._long_polling = long_polling
        self._slow = slow
        self._behind_max = store.cached_bytes
        self._stats = stats
        self._traffic = traffic
        self._hooks = hooks
        self._scanners = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="filters")

    def close(self) -> None:
        """Ends what is being scanned, which takes milliseconds."""
        self._scanners.shutdown(cancel_futures=True)

    def __call__(self, header: Pull, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        wanted = self._check(header)
        moved = self._moved(wanted, request)
        if moved is not None:
            return moved
        if header.sys_flag & PullFlag.COMMIT_OFFSET:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if isinstance(wanted.filter, Filter):
            ahead = self._store.bounds(header.topic, header.queue_id)[1] - wanted.offset
            if ahead > SCANNED_AT_ONCE:
                return self._scan(wanted, request, connection)
        return self._answer(self._get(wanted, request), wanted, request, connection)

    async def _scan(self, wanted: _Wanted, request: Command, connection: Connection) -> Answer:
        """The answer of a pull that looks at many messages by an expression, in a thread."""
        result = await asyncio.get_running_loop().run_in_executor(self._scanners, self._read, wanted, request)
        self._count(result, wanted)
        return self._answer(result, wanted, request, connection)

    def _answer(self, result: GetResult, wanted: _Wanted, request: Command, connection: Connection) -> Answer:
        header = wanted.header
        if result.messages:
            return self._found(result, wanted, connection)
        code = _response_code(result, wanted.offset)
        may_wait = code is ResponseCode.PULL_NOT_FOUND and header.sys_flag & PullFlag.SUSPEND
        if may_wait and self._park(wanted, request, connection):
            return None
        return self._not_found(wanted, request, result, code)

    def _moved(self, wanted: _Wanted, request: Command) -> Command | None:
        """The answer to a pull whose group is to go on elsewhere; None for all others."""
        header = wanted.header
        offset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            return None
        low, high = self._store.bounds(header.topic, header.queue_id)
        told = PullResponse(
            suggest_which_broker_id=wanted.suggested[0], next_begin_offset=offset, min_offset=low, max_offset=high
        )
        return codec.reply(request, ResponseCode.PULL_OFFSET_MOVED, GetStatus.OFFSET_RESET.name, told)

    def _check(self, header: Pull) -> _Wanted:
        if not self._topic_options.broker_permission & Permission.READ:
            raise _refused(ResponseCode.NO_PERMISSION, "the broker is not readable", forbidden=1)
        group = self._group(header.consumer_group)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise _no_topic(header.topic)
        if not topic.perm & Permission.READ:
            remark = f"the topic {header.topic} is not readable (perm {topic.perm})"
            raise _refused(ResponseCode.NO_PERMISSION, remark, forbidden=3)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId {header.queue_id} is out of range: topic {header.topic} has read queues "
                f"0 to {topic.read_queue_nums - 1}"
            )
            raise _refused(ResponseCode.INVALID_PARAMETER, remark)
        if self._groups.is_forbidden(header.consumer_group, header.topic):
            remark = f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]"
            raise _refused(ResponseCode.NO_PERMISSION, remark, forbidden=5)
        limits = self._limits
        count = header.max_msg_nums if header.max_msg_nums > 0 else COUNT_MAX
        size = header.max_msg_bytes if header.max_msg_bytes and header.max_msg_bytes > 0 else None
        tag_codes, filter = self._selection(header, group)
        suggested = (MASTER_ID, MASTER_ID)
        if limits.slave_read_enable:
            suggested = (group.broker_id, group.which_broker_when_consume_slowly)
        return _Wanted(
            header,
            tag_codes,
            filter,
            min(count, limits.max_transfer_count_on_message_in_memory),
            min(size or limits.max_transfer_bytes_on_message_in_memory, BYTES_MAX),
            header.queue_offset,
            suggested,
        )

    def _group(self, name: str) -> GroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise _refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")
        if not group.consume_enable:
            raise _refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}", forbidden=2)
        return group

    def _selection(self, header: Pull, group: GroupConfig) -> tuple[tuple[int, ...] | None, Filter | PythonFilter | None]:
        """Codes of the tags that are wanted, or the filter; None where anything is."""
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            try:
                if is_tag(header.expression_type):
                    return tags.codes(header.subscription or tags.ALL), None
                filters = self._enabled(header.expression_type)
                return None, filters.compiled(header.expression_type, header.subscription)
            except FilterError as error:
                remark = f"parse the consumer's subscription failed: {error}"
                raise _refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        subscription = self._subscription(header, group)
        if not is_tag(subscription.expression_type):
            return None, self._registered(header, subscription)
        if subscription.sub_string in ("", tags.ALL):
            return None, None
        if len(subscription.code_set) > tags.CODES_MAX:
            remark = f"the subscription has {len(subscription.code_set)} tags; the bound is {tags.CODES_MAX}"
            raise _refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        return tuple(subscription.code_set) or None, None

    def _enabled(self, kind: str | None) -> ConsumerFilters:
        if self._filters is None:
            raise _refused(ResponseCode.SYSTEM_ERROR, no_filtering(kind))
        return self._filters

    def _registered(self, header: Pull, subscription: SubscriptionData) -> Filter | PythonFilter | None:
        """The filter that the group's heartbeats have brought."""
        filters = self._enabled(subscription.expression_type)
        data = filters.find(header.consumer_group, header.topic)
        try:
            if data is not None:
                if data.client_version < header.sub_version:
                    remark = f"the consumer's consumer filter data not latest: {data.client_version} < {header.sub_version}"
                    raise _refused(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
                return filters.filter(data)
            filters.compiled(subscription.expression_type, subscription.sub_string)
            reason = "it isn't taken yet, or there are too many"
        except FilterError as error:
            reason = str(error)
        raise _refused(ResponseCode.FILTER_DATA_NOT_EXIST, f"the broker's consumer filter data is not exist: {reason}")

    def _subscription(self, header: Pull, group: GroupConfig) -> SubscriptionData:
        members = self._clients.consumers.get(header.consumer_group)
        if members is None:
            remark = f"the consumer's group info not exist: {header.consumer_group} has sent no heartbeat yet"
            raise _refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if members.message_model == "BROADCASTING" and not group.consume_broadcast_enable:
            remark = f"the group {group.group_name} may not consume by broadcast"
            raise _refused(ResponseCode.NO_PERMISSION, remark, forbidden=4)
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist: {header.consumer_group} doesn't subscribe to {header.topic}"
            raise _refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.sub_version < header.sub_version:
            members.ask_anew()
            remark = f"the consumer's subscription not latest: {subscription.sub_version} < {header.sub_version}"
            raise _refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        return subscription

    def _get(self, wanted: _Wanted, request: Command) -> GetResult:
        result = self._read(wanted, request)
        self._count(result, wanted)
        return result

    def _read(self, wanted: _Wanted, request: Command) -> GetResult:
        if isinstance(wanted.filter, PythonFilter):
            return self._select(wanted.filter, wanted, request)
        return self._store.get(
            wanted.header.topic,
            wanted.header.queue_id,
            wanted.offset,
            wanted.count_max,
            wanted.bytes_max,
            wanted.tag_codes,
            wanted.filter,
            (request.serializer, request.opaque, *wanted.suggested),
        )

    def _count(self, result: GetResult, wanted: _Wanted) -> None:
        header = wanted.header
        if self._slow is not None:
            self._slow.note(header.consumer_group, header.topic, header.queue_id, result.behind)
        if result.status not in _EMPTY and not is_retry_or_dlq(header.topic):
            size = _body_size(result) if result.messages else 0
            self._traffic.pulled(
                header.consumer_group, header.topic, header.queue_id, result.messages, size, result.next_offset
            )

    def _select(self, filter: PythonFilter, wanted: _Wanted, request: Command) -> GetResult:
        """What a function wants of the next messages."""
        header, count_max = wanted.header, min(wanted.count_max, MESSAGES_MAX)
        found = self._store.get(header.topic, header.queue_id, wanted.offset, count_max, wanted.bytes_max, None)
        if not found.messages:
            return found
        records = filter.select(b"".join(map(bytes, found.buffers)))
        if not records:
            return structs.replace(found, status=GetStatus.NO_MATCHED_MESSAGE.value, messages=0, buffers=[])
        answer = codec.reply(request, ResponseCode.SUCCESS, "FOUND", self._where(wanted, found), b"".join(records))
        return structs.replace(found, messages=len(records), buffers=[answer.encode()])

    def _found(self, result: GetResult, wanted: _Wanted, connection: Connection) -> Answer:
        header = wanted.header
        self._stats.got(header.consumer_group, header.topic, result.messages, _body_size(result))
        if self._hooks.of_consuming:
            stored = codec.body(b"".join(map(bytes, result.buffers)))
            where = header.consumer_group, header.topic, header.queue_id, connection.peer
            self._hooks.consumed(Consumed(Way.PULLED, *where, result.messages, stored))
        return result.buffers

    def _park(self, wanted: _Wanted, request: Command, connection: Connection) -> bool:
        header, limits = wanted.header, self._limits
        wait_ms = header.suspend_timeout_millis if limits.long_polling_enable else limits.short_polling_time_mills
        if wait_ms <= 0:
            return False

        def attempt(last: bool) -> bool:
            try:
                self._group(header.consumer_group)
                if self._topics.get(header.topic) is None:
                    raise _no_topic(header.topic)
            except Refusal as refusal:
                connection.answer(request, refused(request, refusal, connection))
                return True
            moved = self._moved(wanted, request)
            if moved is not None:
                connection.answer(request, moved)
                return True
            result = self._get(wanted, request)
            if result.messages:
                connection.answer(request, self._found(result, wanted, connection))
                return True
            code = _response_code(result, wanted.offset)
            goes_on = code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
            if not last and goes_on and result.next_offset >= result.max_offset:
                # What was looked at and doesn't match needn't be looked at again.
                wanted.offset = result.next_offset
                self._is_more(wanted)
                return False
            connection.answer(request, self._not_found(wanted, request, result, code))
            return True

        wait = min(wait_ms / 1000, SUSPEND_SECONDS_MAX)
        parked = Parked(self._clock.monotonic() + wait, attempt, lambda: connection.lost)
        if not self._long_polling.park([(header.topic, header.queue_id)], parked):
            return False
        if self._is_more(wanted):
            self._long_polling.again(parked)
        return True

    def _not_found(self, wanted: _Wanted, request: Command, result: GetResult, code: ResponseCode) -> Command:
        return codec.reply(request, code, _NAMES[result.status], self._where(wanted, result))

    def _where(self, wanted: _Wanted, result: GetResult) -> PullResponse:
        return PullResponse(
            suggest_which_broker_id=wanted.suggested[result.behind > self._behind_max],
            next_begin_offset=0 if result.status in _EMPTY else result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )

    def _is_more(self, wanted: _Wanted) -> bool:
        """Whether there are messages that may be read, which came before anybody waited; the pull is woken for those that
        aren't durable yet."""
        topic, queue_id = wanted.header.topic, wanted.header.queue_id
        if self._store.bounds(topic, queue_id)[1] <= wanted.offset:
            return False
        return not self._gate.wake_later(topic, queue_id, self._store.core.max_position)


def _body_size(answer: GetResult) -> int:
    """Of the records in a whole response, whose head says how long that is and how long its header."""
    frame, header = struct.unpack_from(">ii", answer.buffers[0])
    return int(frame - 4 - (header & 0xFF_FFFF))


def _response_code(result: GetResult, offset: int) -> ResponseCode:
    if result.status in _EMPTY and offset == 0:
        return ResponseCode.PULL_NOT_FOUND
    return _CODES[result.status]


def _no_topic(topic: str) -> Refusal:
    return _refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")


def _refused(code: ResponseCode, remark: str, forbidden: int | None = None) -> Refusal:
    header = PullResponse(
        suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=0, forbidden_type=forbidden
    )
    return Refusal(code, remark, header)
