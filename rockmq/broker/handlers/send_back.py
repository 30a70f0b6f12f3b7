"""Messages that a consumer gives back (AbstractSendMessageProcessor.consumerSendMsgBack; store spec, 6.4).

What comes back is stored anew: for the group's retry topic, with a delay level that grows with each try, or, after too many
tries, for its dead-letter topic, which is a topic like others and read by subscribing to it.
"""

import logging
import random
from collections.abc import Awaitable

from rockmq.base.errors import ProtocolError
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.replies import after
from rockmq.broker.stats import BrokerStats
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import Traffic
from rockmq.config.broker import INT_MAX, BrokerOptions
from rockmq.protocol import codec, ids, properties, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import MessageFlag, Permission, TransactionState
from rockmq.protocol.headers.client import SendMessageBack
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal, about
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

FIRST_LEVEL = 3
"""Of the first try, when the consumer lets the broker choose."""
_CONSUMABLE = (TransactionState.NONE, TransactionState.COMMIT)


class SendBackHandler:
    """Answers CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        groups: GroupTable,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
        stats: BrokerStats,
        traffic: Traffic,
    ) -> None:
        self._options = options
        self._topics = topic_table
        self._groups = groups
        self._store = store
        self._gate = gate
        self._writer = writer
        self._stats = stats
        self._traffic = traffic

    def __call__(self, header: SendMessageBack, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        group = self._groups.find(header.group)
        if group is None:
            remark = topics.group_fault(header.group) or f"subscription group not exist, {header.group}"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._options.topics.broker_permission & Permission.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker {self._options.identity.broker_name} is not writable")
        if group.retry_queue_nums <= 0:
            return codec.reply(request)  # the group wants nothing back
        refusal = self._store.refusal
        if refusal is not None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
        retry = self._topics.retry(group.group_name, group.retry_queue_nums, is_unit=header.unit_mode)
        if not retry.perm & Permission.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {retry.topic_name} is not writable (perm {retry.perm})")
        draft = self._draft(header)
        if self._options.access.is_on and draft.topic not in (header.origin_topic, topics.RETRY_PREFIX + group.group_name):
            # Whoever asks was let through for the topic that they named.
            remark = f"the message at {header.offset} is neither one of {header.origin_topic} nor the group's to be retried"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        most = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        is_dead = draft.reconsume_times >= most or header.delay_level < 0
        config = self._topics.dead_letters(group.group_name) if is_dead else retry
        level = 0 if is_dead else header.delay_level or min(FIRST_LEVEL + draft.reconsume_times, INT_MAX)
        draft.topic = config.topic_name
        # The topic may have been made when the group wanted fewer queues.
        draft.queue_id = random.randrange(max(1, min(group.retry_queue_nums, config.read_queue_nums)))
        draft.count_try()
        draft.properties[properties.DELAY] = str(level)
        if is_dead:
            dead = {
                "group": group.group_name,
                "topic": draft.properties[properties.RETRY_TOPIC],
                "message_id": draft.properties[properties.ORIGIN_MESSAGE_ID],
            }
            tries = draft.reconsume_times
            log.warning("a message is a dead letter after %d tries", tries, extra={**dead, **about(request, connection)})
        saved = self._topics.saved(config)
        if saved is not None:
            return self._put_later(saved, draft, header, request, is_dead=is_dead)
        return self._put(draft, header, request, is_dead=is_dead)

    def _draft(self, header: SendMessageBack) -> Draft:
        """The message that is given back, as it will be stored but for topic, queue and level."""
        record = self._store.read(header.offset) if header.offset >= 0 else None
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        draft = Draft.of(record)
        if draft.sys_flag & MessageFlag.INNER_BATCH or draft.sys_flag & MessageFlag.TRANSACTION not in _CONSUMABLE:
            remark = (
                f"the record at {header.offset} is no single message that could be consumed (sysFlag {draft.sys_flag:#x})"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        draft.prepared_transaction_offset = 0
        found = draft.properties
        found.setdefault(properties.RETRY_TOPIC, draft.topic)
        found[properties.WAIT] = "false"
        if not found.get(properties.ORIGIN_MESSAGE_ID, "").strip():
            found[properties.ORIGIN_MESSAGE_ID] = ids.offset_id(self._store.store_host, header.offset)
        return draft

    async def _put_later(
        self, saved: Awaitable[None], draft: Draft, header: SendMessageBack, request: Command, *, is_dead: bool
    ) -> Answer:
        await saved
        return await self._put(draft, header, request, is_dead=is_dead)

    def _put(self, draft: Draft, header: SendMessageBack, request: Command, *, is_dead: bool) -> Awaitable[Answer]:
        try:
            put = self._writer.put(draft)
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        topic = draft.properties[properties.RETRY_TOPIC]
        if is_dead:
            self._traffic.died(header.group, header.origin_topic or topic)
        self._stats.sent_back(header.group, topic)
        # What isn't on disk in time is stored all the same; told anything else, a Java consumer sends it itself, once more.
        return after(self._gate, put.end, lambda durable: codec.reply(request))
