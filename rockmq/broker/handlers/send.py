"""Sends that need a decision (SendMessageProcessor.java; protocol spec, 4.1).

Ordinary sends never come here: the core's lane appends them. What does come: topics that don't exist yet, queue ids to be
chosen, retry topics, special properties, and everything that is wrong, which gets its error in words.
"""

import random
from collections.abc import Awaitable

from rockmq.base.errors import ProtocolError
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import TIMEOUT_REMARK, DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.queue_locks import QueueLocks
from rockmq.broker.quotas import Quotas
from rockmq.broker.replies import after
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import Traffic, kind_of
from rockmq.broker.transactions import Transactions
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, ids, properties, topics
from rockmq.protocol.bodies.common import GroupConfig, TopicConfig
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import MessageFlag, Permission, TransactionState
from rockmq.protocol.headers.recall import RecallHandle
from rockmq.protocol.headers.send import SendMessage, SendResponse
from rockmq.protocol.message import decode_batch
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import INNER, MessageStore, Put

INNER_MAX = 32_767
"""Messages of an inner batch: a unit of a batch queue counts them in 16 bits."""
LIGHT_QUEUES_MAX = 1000
"""Light queues of a message: each costs an entry, and a directory if it is new. Apache bounds only the properties here."""


class SendHandler:
    """Answers SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        groups: GroupTable,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
        quotas: Quotas,
        locks: QueueLocks,
        transactions: Transactions,
        traffic: Traffic,
    ) -> None:
        self._options = options
        self._topics = topic_table
        self._groups = groups
        self._locks = locks
        self._store = store
        self._writer = writer
        self._quotas = quotas
        self._transactions = transactions
        self._traffic = traffic
        self._gate = gate
        self._unique_ids = ids.UniqueIds(store.store_host[:-4])
        self._extra = {
            properties.MSG_REGION: options.identity.region_id,
            properties.TRACE_ON: "true" if options.identity.trace_on else "false",
        }

    def __call__(self, header: SendMessage, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        fault = topics.topic_fault(header.topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if header.topic in topics.SEND_FORBIDDEN or header.topic.startswith(topics.REVIVE_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {header.topic} takes no messages from clients")
        refusal = self._store.refusal
        if refusal is not None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
        over = self._quotas.refusal(header.topic)
        if over is not None:
            raise Refusal(ResponseCode.FLOW_CONTROL, over)
        if not self._options.topics.broker_permission & Permission.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker {self._options.identity.broker_name} is not writable")
        dead_letters = self._dead_letters(header)
        config = self._topics.get(header.topic)
        needed = [header.topic] if dead_letters is None else [header.topic, dead_letters.topic_name]
        if config is None or not all(map(self._topics.is_saved, needed)):
            return self._create_then_send(header, request, connection, dead_letters)
        return self._send(config, header, request, connection, dead_letters)

    def _dead_letters(self, header: SendMessage) -> TopicConfig | None:
        """Where a message for a retry topic goes that isn't to be tried again (SendMessageProcessor.handleRetryAndDLQ), else
        None. Raises Refusal when there is no such group."""
        if not topics.is_retry(header.topic) or header.batch:
            return None
        group = self._retrying_group(header.topic)
        most = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        # Who consumes in order has tried it as often as it may.
        if (header.reconsume_times or 0) > most or self._locks.is_held(group.group_name):
            return self._topics.dead_letters(group.group_name)
        return None

    def _retrying_group(self, topic: str) -> GroupConfig:
        name = topic.removeprefix(topics.RETRY_PREFIX)
        found = self._groups.find(name)
        if found is None:
            remark = f"the group {name} of topic {topic} doesn't exist"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return found

    async def _create_then_send(
        self, header: SendMessage, request: Command, connection: Connection, dead_letters: TopicConfig | None
    ) -> Answer:
        for each in (self._topics.get(header.topic) or self._missing_topic(header), dead_letters):
            saved = self._topics.saved(each) if each is not None else None
            if saved is not None:
                await saved
        # Somebody else may have created it with other settings while this waited.
        config = self._topics.get(header.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"the topic {header.topic} was deleted meanwhile")
        answer = self._send(config, header, request, connection, dead_letters)
        return await answer if isinstance(answer, Awaitable) else answer

    def _missing_topic(self, header: SendMessage) -> TopicConfig:
        if topics.is_retry(header.topic):
            group = self._retrying_group(header.topic)
            return self._topics.retry(group.group_name, max(1, group.retry_queue_nums))
        config = self._topics.inherit(header.topic, header.default_topic, header.default_topic_queue_nums)
        if config is None:
            remark = (
                f"topic[{header.topic}] not exist, apply first please! It is not created by itself, because "
                f"autoCreateTopicEnable is off or the template topic {header.default_topic!r} doesn't allow it"
            )
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return config

    def _send(
        self,
        config: TopicConfig,
        header: SendMessage,
        request: Command,
        connection: Connection,
        dead_letters: TopicConfig | None,
    ) -> Answer | Awaitable[Answer]:
        if not config.perm & Permission.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {header.topic} is not writable (perm {config.perm})")
        queues = max(config.write_queue_nums, config.read_queue_nums)
        if header.queue_id >= queues:
            remark = f"queueId {header.queue_id} is out of range: topic {header.topic} has queues 0 to {queues - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if header.sys_flag & (MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {header.sys_flag:#x} marks an inner batch, which only the broker makes, of a batch",
            )
        if not request.body:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the body is empty")
        size_max = self._options.store.max_message_size
        if len(request.body) > size_max:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the body is {len(request.body)} bytes, maxMessageSize is {size_max}"
            )
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(config.write_queue_nums)
        sys_flag = header.sys_flag
        if config.topic_filter_type == "MULTI_TAG":
            sys_flag |= MessageFlag.MULTI_TAGS
        try:
            if header.batch:
                return self._append_batch(config, header, request, connection, queue_id, sys_flag)
            return self._append(header, request, connection, queue_id, sys_flag, dead_letters)
        except ProtocolError as error:  # properties, or a batch, that can't be stored
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None

    def _append(
        self,
        header: SendMessage,
        request: Command,
        connection: Connection,
        queue_id: int,
        sys_flag: int,
        dead_letters: TopicConfig | None,
    ) -> Awaitable[Answer]:
        found = properties.decode((header.properties or "").encode())
        if properties.INNER_NUM in found:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"property {properties.INNER_NUM}, but sysFlag marks no inner batch")
        light_queues = self._light_queues(header.topic, found)
        if light_queues:
            found.pop(properties.INNER_MULTI_QUEUE_OFFSET, None)
        unique_key = found.setdefault(properties.UNIQ_KEY, self._unique_ids.make())
        kind = kind_of(found)
        draft = self._draft(header, request, connection, queue_id, sys_flag, found)
        draft.light_queues = light_queues
        if dead_letters is not None:
            draft.topic, draft.queue_id = dead_letters.topic_name, 0
            draft.properties[properties.DELAY] = "-1"
        # Clients before 4.6.1 send back what they consumed of a transaction as if one were to begin.
        is_half = _is_half(draft) and not topics.is_retry(header.topic)
        put = self._transactions.prepare(draft, kind) if is_half else self._writer.put(draft, kind)
        if dead_letters is not None:
            self._traffic.died(header.producer_group, header.topic)
        if draft.topic == topics.TIMER:
            delay = int(draft.properties[properties.TIMER_OUT_MS]) - draft.born_timestamp
            self._traffic.delayed(draft.properties[properties.REAL_TOPIC], max(0, delay) // 1000)
        msg_id = ids.offset_id(self._store.store_host, put.position)
        return self._stored(request, queue_id, put, msg_id, unique_key, recall_handle=self._recall_handle(header, draft))

    def _recall_handle(self, header: SendMessage, draft: Draft) -> str | None:
        """What takes the message back, if it has to wait for its time."""
        if draft.topic != topics.TIMER or topics.is_retry(header.topic):
            return None
        due = int(draft.properties[properties.TIMER_OUT_MS])
        unique_key = draft.properties[properties.UNIQ_KEY]
        # A time is rounded down, unless it is that of a step.
        return RecallHandle(header.topic, self._options.identity.broker_name, due + 1, unique_key).encode()

    def _draft(
        self,
        header: SendMessage,
        request: Command,
        connection: Connection,
        queue_id: int,
        sys_flag: int,
        found: dict[str, str],
    ) -> Draft:
        """What a client sent, with the properties `found` less what clients may not say and with what the broker says."""
        for key in list(found):
            if key in (properties.POP_CK, properties.CRC32) or key.startswith(properties.TRANSIENT_PREFIX):
                del found[key]
        found |= self._extra
        found[properties.CLUSTER] = self._options.identity.broker_cluster_name
        return Draft(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            properties=found,
            born_host=connection.peer_host,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )

    def _light_queues(self, topic: str, found: dict[str, str]) -> list[str]:
        """The light queues that a message names (LmqDispatch.java). Raises Refusal when they can't be had."""
        text = found.get(properties.INNER_MULTI_DISPATCH, "")
        if not text.strip() or not topics.allows_light_queues(topic):
            return []
        if not self._options.store.light_queues:
            remark = "light queues (property INNER_MULTI_DISPATCH) need enableLmq=true and enableMultiDispatch=true"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        names = text.rstrip(",").split(",")
        if len(names) > LIGHT_QUEUES_MAX:
            remark = f"property INNER_MULTI_DISPATCH names {len(names)} light queues, the bound is {LIGHT_QUEUES_MAX}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        # The core says so too, but of a message that waits only when it is delivered.
        for name in names:
            if not topics.is_light(name):
                remark = f"property INNER_MULTI_DISPATCH: light queue '{name}' doesn't begin with {topics.LIGHT_PREFIX}"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        return names

    def _append_batch(
        self,
        config: TopicConfig,
        header: SendMessage,
        request: Command,
        connection: Connection,
        queue_id: int,
        sys_flag: int,
    ) -> Awaitable[Answer]:
        if topics.is_retry(header.topic):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"retry topics take no batches: {header.topic}")
        found = properties.decode((header.properties or "").encode())
        if sys_flag & MessageFlag.TRANSACTION or _asks_for_transaction(found):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be transactional")
        if found.get(properties.DELAY, "0") != "0":
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch can't be delayed (property {properties.DELAY})")
        for key in properties.TIMER_WISHES:
            if key in found:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch can't have a time (property {key})")
        if config.has_batch_queues and properties.UNIQ_KEY in found:
            return self._append_inner_batch(header, request, connection, queue_id, sys_flag, found)
        positions, put = self._store.append_batch(
            header.topic,
            queue_id,
            request.body,
            born_host=connection.peer_host,
            born_timestamp=header.born_timestamp,
            sys_flag=sys_flag,
            reconsume_times=header.reconsume_times or 0,
            kind=INNER if topics.is_retry_or_dlq(header.topic) else kind_of(found),
        )
        if put.watched:
            self._gate.wake_when_durable(header.topic, queue_id, put.end)
        msg_ids = ",".join(ids.offset_id(self._store.store_host, position) for position in positions)
        return self._stored(request, queue_id, put, msg_ids, found.get(properties.UNIQ_KEY))

    def _append_inner_batch(
        self,
        header: SendMessage,
        request: Command,
        connection: Connection,
        queue_id: int,
        sys_flag: int,
        found: dict[str, str],
    ) -> Awaitable[Answer]:
        """Store a batch as one record, which consumers take apart (SendMessageProcessor.sendBatchMessage)."""
        if sys_flag & MessageFlag.COMPRESSED:
            # They would decompress it whole, and find no batch.
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"sysFlag {sys_flag:#x}: a batch for batch queues can't be compressed"
            )
        count = len(decode_batch(request.body))
        if count > INNER_MAX:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch has {count} messages, the bound is {INNER_MAX}")
        if properties.INNER_MULTI_DISPATCH in found:
            remark = f"a batch can't be in light queues (property {properties.INNER_MULTI_DISPATCH})"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        found.pop(properties.INNER_BASE, None)
        found[properties.INNER_NUM] = str(count)
        sys_flag |= MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH
        kind, draft = kind_of(found), self._draft(header, request, connection, queue_id, sys_flag, found)
        put = self._writer.put(draft, kind)
        msg_id, key = ids.offset_id(self._store.store_host, put.position), found[properties.UNIQ_KEY]
        return self._stored(request, queue_id, put, msg_id, key, batch_unique_key=key)

    def _stored(
        self,
        request: Command,
        queue_id: int,
        put: Put,
        msg_id: str,
        unique_key: str | None,
        *,
        batch_unique_key: str | None = None,
        recall_handle: str | None = None,
    ) -> Awaitable[Answer]:
        header = SendResponse(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=put.queue_offset,
            transaction_id=unique_key,
            batch_uniq_id=batch_unique_key,
            recall_handle=recall_handle,
        )

        def answer(durable: bool) -> Command:
            if durable:
                return codec.reply(request, header=header, extra=self._extra)
            return codec.reply(request, ResponseCode.FLUSH_DISK_TIMEOUT, TIMEOUT_REMARK, header, extra=self._extra)

        return after(self._gate, put.end, answer)


def _asks_for_transaction(found: dict[str, str]) -> bool:
    return found.get(properties.TRAN_MSG, "").lower() == "true"


def _is_half(draft: Draft) -> bool:
    """Whether a message is half a transaction, of which its sysFlag tells no more then. Raises Refusal."""
    state = draft.sys_flag & MessageFlag.TRANSACTION
    wanted = _asks_for_transaction(draft.properties)
    if state not in (TransactionState.NONE, TransactionState.PREPARED) or (state and not wanted):
        said = f"sysFlag {draft.sys_flag:#x} and property {properties.TRAN_MSG} {'true' if wanted else 'not true'}"
        remark = f"{said}: expected both of a prepared message, 4 and true, or neither"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    draft.sys_flag &= ~MessageFlag.TRANSACTION
    return wanted
