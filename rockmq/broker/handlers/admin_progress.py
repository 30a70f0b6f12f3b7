"""How far groups are, as administrators ask for it (AdminBrokerProcessor.java; protocol spec, 5)."""

import asyncio
from collections.abc import Iterable, Mapping

from rockmq.base.clock import Clock
from rockmq.broker.clients import ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import LONG_MAX, ConsumerOffsets
from rockmq.broker.stats import SEPARATOR, BrokerStats
from rockmq.broker.topics import TopicTable
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.admin import LowestOffsets, TimeSpan, TimeSpans
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import (
    GetAllConsumerOffsets,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetLowestOffsets,
    GetTimeSpans,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

SLICE = 100
"""Queues that are looked at before others get the loop."""


class _Progress:
    """What is told of a group in some topics, as JSON; `lag` is how many messages it hasn't consumed."""

    def __init__(self) -> None:
        self.table: dict[str, object] = {}
        self.per_second = 0.0
        self.lag = 0

    def encode(self) -> bytes:
        return b'{"consumeTps":%f,"offsetTable":%b}' % (self.per_second, json.object_map(self.table))


class ProgressHandlers:
    def __init__(
        self,
        broker_name: str,
        address: str,
        topic_table: TopicTable,
        groups: GroupTable,
        clients: ClientTables,
        offsets: ConsumerOffsets,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._address = address
        self._topics = topic_table
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._clock = clock

    def consume_stats(self, header: GetConsumeStats, request: Command, connection: Connection) -> Command:
        group, progress = header.consumer_group, _Progress()
        for topic in self._wanted(header):
            queues = self._offsets.by_topic(topic).get(group, {})
            self._look(progress, group, topic, queues, write_queues=False)
        return codec.reply(request, body=progress.encode())

    def _wanted(self, header: GetConsumeStats) -> Iterable[str]:
        """Topics that are named in a list, or the one that is named, or all that the group has offsets in; of these two
        those that its members, if there are some, subscribe to."""
        group = header.consumer_group
        listed = dict.fromkeys(each for each in (header.topic_list or "").split(";") if each)
        if listed:
            return listed
        named = [header.topic] if header.topic else self._offsets.by_group(group)
        return [topic for topic in named if self._may_consume(group, topic)]

    def _may_consume(self, group: str, topic: str) -> bool:
        members = self._clients.consumers.get(group)
        return members is None or not members.subscriptions or topic in members.subscriptions

    def _look(self, progress: _Progress, group: str, topic: str, queues: Mapping[int, int], *, write_queues: bool) -> int:
        """Note how far the group is in a topic; the number of its queues."""
        config = self._topics.get(topic)
        if config is None:
            return 0
        count = config.write_queue_nums if write_queues else config.read_queue_nums
        for queue_id in range(count):
            low, high = self._store.bounds(topic, queue_id)
            consumed = max(queues.get(queue_id, -1), 0)
            stored = self._store.store_timestamp(topic, queue_id, consumed - 1) if consumed > low else 0
            progress.table[MessageQueue(topic, self._broker_name, queue_id).key()] = {
                "brokerOffset": high,
                "consumerOffset": consumed,
                "lastTimestamp": max(stored, 0),
                "pullOffset": consumed,
            }
            progress.lag += high - consumed
        progress.per_second += self._stats.per_second("GROUP_GET_NUMS", f"{topic}{SEPARATOR}{group}")
        return count

    async def broker_consume_stats(self, header: GetBrokerConsumeStats, request: Command, connection: Connection) -> Answer:
        """Of all groups, for each topic apart; with `is_order` only of topics that say so."""
        found: dict[str, list[bytes]] = {group: [] for group in self._groups.all()}
        lag = looked = size = 0
        for topic in self._offsets.topics():
            config = self._topics.get(topic)
            if config is None or (header.is_order and not config.order):
                continue
            for group, queues in list(self._offsets.by_topic(topic).items()):
                if group not in found or not self._may_consume(group, topic):
                    continue
                progress = _Progress()
                looked += self._look(progress, group, topic, queues, write_queues=True)
                found[group].append(progress.encode())
                size += len(found[group][-1])
                if size > codec.FRAME_SIZE_MAX:
                    remark = f"what groups have consumed is over {codec.FRAME_SIZE_MAX} bytes: ask for each group"
                    raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
                lag += progress.lag
                if looked >= SLICE:
                    looked = 0
                    await asyncio.sleep(0)
        groups = (b"{%b:[%b]}" % (json.encode(group), b",".join(each)) for group, each in found.items())
        body = b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":0}' % (
            json.encode(self._address),
            b",".join(groups),
            lag,
        )
        return codec.reply(request, body=body)

    def time_spans(self, header: GetTimeSpans, request: Command, connection: Connection) -> Command:
        """When messages of each queue were stored: the first, the last, the last consumed; how far behind the next is."""
        topic, store = header.topic, self._store
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = []
        for queue_id in range(config.write_queue_nums):
            low, high = store.bounds(topic, queue_id)
            first = store.store_timestamp(topic, queue_id, low)
            consumed = self._offsets.query(header.group, topic, queue_id) or 0
            behind = store.store_timestamp(topic, queue_id, max(consumed, low)) if consumed < high else -1
            spans.append(
                TimeSpan(
                    message_queue=MessageQueue(topic, self._broker_name, queue_id),
                    min_time_stamp=first,
                    max_time_stamp=store.store_timestamp(topic, queue_id, high - 1),
                    consume_time_stamp=store.store_timestamp(topic, queue_id, consumed - 1) if consumed > 0 else first,
                    delay_time=self._clock.now_ms() - behind if behind >= 0 else 0,
                )
            )
        return codec.reply(request, body=json.encode(TimeSpans(consume_time_span_set=spans)))

    def lowest_offsets(self, header: GetLowestOffsets, request: Command, connection: Connection) -> Command:
        """The lowest offset of any group in each queue, of those that the queue still has; LONG_MAX where `compare_group` is
        behind it. Apache's broker deletes the offsets of `filter_groups`; here they are only left out."""
        topic = header.topic
        left_out = {each.strip() for each in (header.filter_groups or "").split(",")}
        lowest: dict[int, int] = {}
        groups = self._offsets.by_topic(topic)
        for group, queues in groups.items():
            for queue_id, offset in queues.items():
                if group not in left_out and offset >= self._store.bounds(topic, queue_id)[0]:
                    lowest[queue_id] = min(offset, lowest.get(queue_id, LONG_MAX))
        for queue_id, offset in groups.get(header.compare_group, {}).items():
            if lowest.get(queue_id, LONG_MAX) > offset:
                lowest[queue_id] = LONG_MAX
        body = LowestOffsets(correction_offsets=dict(sorted(lowest.items())))
        return codec.reply(request, body=json.encode(body))

    async def all_offsets(self, header: GetAllConsumerOffsets, request: Command, connection: Connection) -> Answer:
        pieces = self._offsets.pieces()
        return codec.reply(request, body=await asyncio.to_thread(b"".join, pieces))
