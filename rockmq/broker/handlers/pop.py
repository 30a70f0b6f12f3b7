"""Pop and what belongs to it (PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java,
PeekMessageProcessor.java, NotificationProcessor.java, PollingInfoProcessor.java; protocol spec, 4.7)."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from rockmq.base.clock import Clock
from rockmq.base.errors import FilterError, ProtocolError, StoreUnavailable
from rockmq.broker.consumer_filters import ConsumerFilters, no_filtering
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.hooks import Consumed, Hooks, Way
from rockmq.broker.long_polling import LongPolling, Parked
from rockmq.broker.ordered_pops import Key
from rockmq.broker.pop import ANYTHING, INVISIBLE_MS_MAX, Popped, Pops, Wanted
from rockmq.broker.pop_revive import PopRevive
from rockmq.broker.python_filters import PythonFilter
from rockmq.broker.stats import BrokerStats
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import Traffic
from rockmq.config.broker import BrokerOptions
from rockmq.filter import is_tag, tags
from rockmq.protocol import codec, json, pop, topics
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.bodies.pop import BatchAckBody, BatchAckPart
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.pop import (
    Ack,
    BatchAck,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
    Notification,
    NotificationResponse,
    Peek,
    PollingInfo,
    PollingInfoResponse,
    Pop,
    PopResponse,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

COUNT_MAX = 32
PEEKED_MAX = 1024
POLL_SECONDS_MAX = 60.0
BATCH_ACKS_MAX = 1024
BITS_MAX = 8192
"""Bytes of the bit set of a batch of acknowledgements: a pop gives 32 messages, from a range that filters may make wide."""
ANSWER_BYTES_MAX = 4 << 20
"""When so much is found no other queue is looked at: clients take frames up to 16 MiB."""


class PopHandlers:
    def __init__(
        self,
        options: BrokerOptions,
        clock: Clock,
        topic_table: TopicTable,
        groups: GroupTable,
        filters: ConsumerFilters | None,
        store: MessageStore,
        gate: DurabilityGate,
        long_polling: LongPolling,
        pops: Pops,
        revive: PopRevive,
        stats: BrokerStats,
        traffic: Traffic,
        hooks: Hooks,
    ) -> None:
        self._topic_options = options.topics
        self._retry_first = options.pop.pop_from_retry_probability / 100
        self._clock = clock
        self._topics = topic_table
        self._groups = groups
        self._filters = filters
        self._store = store
        self._gate = gate
        self._long_polling = long_polling
        self._pops = pops
        self._revive = revive
        self._stats = stats
        self._traffic = traffic
        self._hooks = hooks
        self._polling: Counter[Key] = Counter()

    # POP_MESSAGE

    def take(self, header: Pop, request: Command, connection: Connection) -> Answer:
        config = self._check(header)
        if not 1 <= header.max_msg_nums <= COUNT_MAX:
            remark = f"maxMsgNums is {header.max_msg_nums}, the bounds are 1 and {COUNT_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 < header.invisible_time <= INVISIBLE_MS_MAX:
            remark = f"invisibleTime is {header.invisible_time}, the bounds are 1 and {INVISIBLE_MS_MAX} ms"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if header.init_mode not in (0, 1):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"initMode is {header.init_mode}, neither 0 nor 1")
        wanted = self._wanted(header.exp, header.exp_type)
        retries = [] if header.order else self._retries(header.topic, header.consumer_group, make=True)
        answer = self._try(header, request, config, retries, wanted, connection)
        if answer is not None:
            return answer

        def again(last: bool) -> Command | None:
            found = self._try(header, request, config, retries, wanted, connection)
            if found is None and last:
                return self._none(header, request, ResponseCode.POLLING_TIMEOUT)
            return found

        queues = _queues(header.queue_id, config) + retries
        if header.poll_time <= 0:
            return self._none(header, request, ResponseCode.POLLING_TIMEOUT)
        if not self._park(header, queues, again, request, connection):
            return self._none(header, request, ResponseCode.POLLING_FULL)
        return None

    def _retries(self, topic: str, group: str, *, make: bool) -> list[tuple[str, int]]:
        """The queues of a group's retry topics, which are popped from too. With `make` there is one from the first pop on,
        so that it is there when it is needed."""
        if topics.is_retry(topic):
            return []
        name = pop.retry_topic(topic, group)
        fault = topics.topic_fault(name)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"no retry topic can be of this group and topic: {fault}")
        if make and not self._topics.is_light(topic):  # there may be any number of light queues
            with suppress(StoreUnavailable):  # it is tried again when it is needed
                self._pops.is_ready(name)
        queues = [(name, 0)]
        # Apache's broker may have left messages in topics and queues that ours doesn't use.
        for each in (name, pop.retry_topic_v2(topic, group)):
            config = self._topics.get(each)
            if config is not None:
                queues += _queues(-1, config)
        return list(dict.fromkeys(queues))

    def _try(
        self,
        header: Pop,
        request: Command,
        config: TopicConfig,
        retries: list[tuple[str, int]],
        wanted: Wanted,
        connection: Connection,
    ) -> Command | None:
        now, left, rest = self._clock.now_ms(), header.max_msg_nums, 0
        found: list[tuple[str, int, Popped]] = []
        for topic, queue_id in self._in_turn(_queues(header.queue_id, config), retries):
            if left == 0 or sum(len(popped.data) for _, _, popped in found) >= ANSWER_BYTES_MAX:
                break
            key = (topic, header.consumer_group, queue_id)
            selection = wanted if topic == header.topic else ANYTHING
            from_end = header.init_mode == 1
            if header.order:
                popped = self._pops.pop_in_order(
                    key, left, now, header.invisible_time, selection, from_end=from_end, attempt_id=header.attempt_id
                )
            else:
                popped = self._pops.pop(key, left, now, header.invisible_time, selection, from_end=from_end)
            if popped is not None:
                found.append((topic, queue_id, popped))
                left -= len(popped.offsets)
                rest += popped.rest
                self._traffic.popped(
                    header.consumer_group,
                    header.topic,
                    len(popped.offsets),
                    len(popped.data),
                    is_retry=topic != header.topic,
                )
        if not found:
            return None
        for topic, _, popped in found:
            self._stats.got(header.consumer_group, topic, len(popped.offsets), len(popped.data))
        if self._hooks.of_consuming:
            for topic, queue_id, each in found:
                where = header.consumer_group, topic, queue_id, connection.peer
                self._hooks.consumed(Consumed(Way.POPPED, *where, len(each.offsets), each.data))
        told = PopResponse(
            pop_time=now,
            invisible_time=header.invisible_time,
            revive_qid=pop.ORDERED if header.order else 0,
            rest_num=rest,
            start_offset_info=pop.start_offsets((topic, queue_id, each.offsets[0]) for topic, queue_id, each in found),
            msg_offset_info=pop.message_offsets((topic, queue_id, each.offsets) for topic, queue_id, each in found),
            order_count_info=pop.order_counts((topic, queue_id, each.counts) for topic, queue_id, each in found)
            if header.order
            else None,
        )
        body = b"".join(each.data for _, _, each in found)
        return codec.reply(request, ResponseCode.SUCCESS, "FOUND", told, body)

    def _in_turn(self, queues: list[tuple[str, int]], retries: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """The queues to look into, one after the other."""
        random.shuffle(queues)
        return retries + queues if random.random() < self._retry_first else queues + retries

    def _wanted(self, expression: str | None, kind: str | None) -> Wanted:
        try:
            if is_tag(kind):
                return tags.codes(expression or tags.ALL), None
            if self._filters is None:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, no_filtering(kind))
            found = self._filters.compiled(kind, expression)
        except FilterError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        if isinstance(found, PythonFilter):
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"filters of type {kind} are for pulls, not for pops")
        return None, found

    # PEEK_MESSAGE

    def peek(self, header: Peek, request: Command, connection: Connection) -> Command:
        """What the group would pop next; it stays where it is."""
        config = self._check(header)
        if header.max_msg_nums < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"maxMsgNums is {header.max_msg_nums}, below 0")
        left, rest, body = min(header.max_msg_nums, PEEKED_MAX), 0, b""
        retries = self._retries(header.topic, header.consumer_group, make=False)
        for topic, queue_id in self._in_turn(_queues(header.queue_id, config), retries):
            count_max = left if len(body) < ANSWER_BYTES_MAX else 0
            data, count, there = self._pops.peek((topic, header.consumer_group, queue_id), count_max)
            body, left, rest = body + data, left - count, rest + there
            if count and topic == header.topic:
                self._traffic.peeked(header.consumer_group, topic, count, len(data))
        told = PopResponse(pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest)
        if not body:
            return codec.reply(request, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", told)
        return codec.reply(request, ResponseCode.SUCCESS, "FOUND", told, body)

    def _none(self, header: Pop, request: Command, code: ResponseCode) -> Command:
        told = PopResponse(pop_time=self._clock.now_ms(), invisible_time=header.invisible_time, revive_qid=0, rest_num=0)
        return codec.reply(request, code, "NO_MESSAGE_IN_QUEUE", told)

    def _park(
        self,
        header: Pop | Notification,
        queues: list[tuple[str, int]],
        again: Callable[[bool], Command | None],
        request: Command,
        connection: Connection,
    ) -> bool:
        """Try again when something arrives, and answer at the latest when the poll time is over."""
        wait = min(header.poll_time / 1000, POLL_SECONDS_MAX)
        polling = (header.topic, header.consumer_group, header.queue_id)

        def attempt(last: bool) -> bool:
            passes = self._pops.passes
            answer = self._refusal(header, request) or again(last)
            if answer is None:
                self._is_more(header, queues)
                if self._pops.passes != passes:
                    loop.call_soon(self._long_polling.again, parked)
                return False
            connection.answer(request, answer)
            return True

        def ended() -> None:
            timer.cancel()
            self._polling[polling] -= 1
            if not self._polling[polling]:
                del self._polling[polling]

        loop = asyncio.get_running_loop()
        parked = Parked(self._clock.monotonic() + wait, attempt, lambda: connection.lost, ended)
        if not self._long_polling.park(queues, parked):
            return False
        self._polling[polling] += 1
        # Parked pulls are looked at every 5 s, which is late for who polls for one.
        timer = loop.call_later(wait, self._long_polling.end, parked)
        if self._is_more(header, queues):
            self._long_polling.again(parked)
        return True

    def _refusal(self, header: Pop | Notification, request: Command) -> Command | None:
        """The topic may have gone meanwhile."""
        try:
            self._check(header)
        except Refusal as refusal:
            return codec.reply(request, refusal.code, refusal.remark)
        return None

    def _is_more(self, header: Pop | Notification, queues: list[tuple[str, int]]) -> bool:
        """Whether there are messages to pop which came before anybody waited; the pop is woken for those that aren't durable
        yet. Where all is out that may be, an acknowledgement wakes it."""
        end, more = self._store.core.max_position, False
        for topic, queue_id in queues:
            key = (topic, header.consumer_group, queue_id)
            if self._store.bounds(topic, queue_id)[1] <= self._pops.next_offset(key):
                continue
            if self._pops.is_open(key, order=bool(header.order), attempt_id=header.attempt_id):
                more |= not self._gate.wake_later(topic, queue_id, end)
        return more

    def _check(self, header: Pop | Peek | Notification | PollingInfo) -> TopicConfig:
        if not self._topic_options.broker_permission & Permission.READ:
            raise Refusal(ResponseCode.NO_PERMISSION, "the broker is not readable")
        config = self._topic(header.topic)
        if not config.perm & Permission.READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {header.topic} is not readable (perm {config.perm})")
        if not -1 <= header.queue_id < config.read_queue_nums:
            remark = (
                f"queueId {header.queue_id} is out of range: topic {header.topic} has read queues "
                f"0 to {config.read_queue_nums - 1}, and -1 is all of them"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        group = self._groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return config

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        return config

    # ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME

    def ack(self, header: Ack, request: Command, connection: Connection) -> Command:
        """An acknowledgement that comes too late is none: the message is on its way again. It is answered as in Apache."""
        handle = self._handle(header)
        key = (header.topic, header.consumer_group, header.queue_id)
        self._ack(key, [header.offset], handle)
        return codec.reply(request)

    def _ack(self, key: Key, offsets: Iterable[int], handle: pop.Handle) -> None:
        ack = self._pops.ack_in_order if handle.revive_queue == pop.ORDERED else self._pops.ack
        unknown = [offset for offset in offsets if not ack(key, offset, handle.pop_time)]
        if unknown:
            self._revive.ack(key, unknown, handle)

    def batch_ack(self, header: BatchAck, request: Command, connection: Connection) -> Command:
        body = json.decode(request.body, BatchAckBody, "acknowledgements")
        if not body.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
        if len(body.acks) > BATCH_ACKS_MAX:
            remark = f"the batch has {len(body.acks)} parts, the bound is {BATCH_ACKS_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        for part in body.acks:
            if len(part.bits) > BITS_MAX:
                remark = f"the bit set has {len(part.bits)} bytes, the bound is {BITS_MAX}"
                raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
            pop.real_topic(part.topic, part.consumer_group, part.retry)
        acknowledged = sum(int.from_bytes(part.bits, "little").bit_count() for part in body.acks)
        if acknowledged > BATCH_ACKS_MAX * COUNT_MAX:
            remark = f"the batch acknowledges {acknowledged} messages, the bound is {BATCH_ACKS_MAX * COUNT_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        for part in body.acks:
            self._ack_part(part)
        return codec.reply(request)

    def _ack_part(self, part: BatchAckPart) -> None:
        topic = pop.real_topic(part.topic, part.consumer_group, part.retry)
        key = (topic, part.consumer_group, part.queue_id)
        handle = pop.Handle(part.start_offset, part.pop_time, part.invisible_time, part.revive_queue_id)
        self._ack(key, (part.start_offset + bit for bit in _bits(part.bits)), handle)

    def change(self, header: ChangeInvisibleTime, request: Command, connection: Connection) -> Command:
        handle = self._handle(header)
        if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            remark = f"invisibleTime is {header.invisible_time}, the bounds are 0 and {INVISIBLE_MS_MAX} ms"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        key = (header.topic, header.consumer_group, header.queue_id)
        now = self._clock.now_ms()
        if handle.revive_queue == pop.ORDERED:
            changed = self._pops.change_in_order(key, header.offset, handle.pop_time, now + header.invisible_time)
            told = (handle.pop_time, now + header.invisible_time - handle.pop_time)
        else:
            changed = self._pops.change(
                key, header.offset, handle.pop_time, now, header.invisible_time, suspend=header.suspend
            )
            told = (now, header.invisible_time)
        if not changed:
            remark = f"offset {header.offset} isn't out by this handle any more: it is, or was, delivered again"
            raise Refusal(ResponseCode.NO_MESSAGE, remark)
        answer = ChangeInvisibleTimeResponse(pop_time=told[0], invisible_time=told[1], revive_qid=handle.revive_queue)
        return codec.reply(request, header=answer)

    def _handle(self, header: Ack | ChangeInvisibleTime) -> pop.Handle:
        config = self._topic(header.topic)
        if not 0 <= header.queue_id < config.read_queue_nums:
            remark = f"queueId {header.queue_id} is out of range: {header.topic} has {config.read_queue_nums} read queues"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        low, high = self._store.bounds(header.topic, header.queue_id)
        if not low <= header.offset < high:
            remark = f"offset {header.offset} is out of range: {header.topic}:{header.queue_id} has {low} to {high - 1}"
            raise Refusal(ResponseCode.NO_MESSAGE, remark)
        try:
            return pop.parse_handle(header.extra_info)
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None

    # NOTIFICATION, POLLING_INFO

    def notification(self, header: Notification, request: Command, connection: Connection) -> Answer:
        """Whether there is something to pop; waits for it as a pop does."""
        config = self._check(header)
        queues = _queues(header.queue_id, config)
        if not header.order:
            queues += self._retries(header.topic, header.consumer_group, make=False)

        def again(last: bool) -> Command | None:
            there = any(
                self._pops.has_messages(
                    (topic, header.consumer_group, queue_id), order=bool(header.order), attempt_id=header.attempt_id
                )
                for topic, queue_id in queues
            )
            return codec.reply(request, header=NotificationResponse(has_msg=there)) if there or last else None

        answer = again(header.poll_time <= 0)
        if answer is not None:
            return answer
        if not self._park(header, queues, again, request, connection):
            return codec.reply(request, header=NotificationResponse(has_msg=False, polling_full=True))
        return None

    def polling_info(self, header: PollingInfo, request: Command, connection: Connection) -> Command:
        """How many pops and notifications of a group wait with just this queue id."""
        self._check(header)
        waiting = self._polling[header.topic, header.consumer_group, header.queue_id]
        return codec.reply(request, header=PollingInfoResponse(waiting))


def _bits(data: bytes) -> Iterator[int]:
    """The bits that are set, the lowest first."""
    bits = int.from_bytes(data, "little")
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _queues(queue_id: int, config: TopicConfig) -> list[tuple[str, int]]:
    wanted = range(config.read_queue_nums) if queue_id < 0 else [queue_id]
    return [(config.topic_name, each) for each in wanted]
