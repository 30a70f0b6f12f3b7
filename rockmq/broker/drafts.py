"""The way into the log, for all that handlers and services store (MessageExtBrokerInner.java, the hooks of HookUtils.java).

A draft says where its message is to go. Before it is stored each hook may send it elsewhere for now, as those of delayed
messages do; whoever delivers it later makes a new draft of the stored record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rockmq.broker.durability import DurabilityGate
from rockmq.config.key import INT_MAX
from rockmq.protocol import codec, properties, topics
from rockmq.store.message_store import INNER, MessageStore, Put

if TYPE_CHECKING:
    from rockmq import _core


@dataclass(slots=True, kw_only=True)
class Draft:
    """A message that isn't stored yet; `body` is as it will be stored, compressed if `sys_flag` says so."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_host: bytes
    born_timestamp: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    light_queues: Sequence[str] = ()

    @classmethod
    def of(cls, record: bytes) -> "Draft":
        """A draft of what a stored record says, for the queue it is in. Raises ValueError when it can't be read."""
        (found,) = codec.decode_records(record)
        return cls.of_decoded(found)

    @classmethod
    def of_decoded(cls, found: "_core.Record") -> "Draft":
        """As `of`, of a record that `codec.decode_records` has read."""
        _size, _crc, queue_id, flag, _queue_offset, _position, sys_flag, born_timestamp, born_host = found[:9]
        _stored, _store_host, reconsume_times, prepared, body, topic, text = found[9:]
        told = properties.decode(text)
        told.pop(properties.CRC32, None)  # it is of that record only
        return cls(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=told,
            born_host=born_host,
            born_timestamp=born_timestamp,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared,
        )

    def count_try(self) -> None:
        """It is to be consumed once more. Producers may say any count, so it can be at its end."""
        self.reconsume_times = min(self.reconsume_times + 1, INT_MAX)


Hook = Callable[[Draft], None]
"""Changes a draft in place, or raises Refusal."""


class DraftWriter:
    """Stores drafts, and has those woken who wait for them."""

    def __init__(self, store: MessageStore, gate: DurabilityGate, hooks: Sequence[Hook]) -> None:
        self._store = store
        self._gate = gate
        self._hooks = hooks

    def check(self, draft: Draft) -> None:
        """Raise Refusal if a hook would refuse this draft, which stays as it is."""
        tried = replace(draft, properties=dict(draft.properties))
        for hook in self._hooks:
            hook(tried)

    def put(self, draft: Draft, kind: int = INNER) -> Put:
        """Store a message, of a kind of `rockmq.broker.traffic` if a producer has sent it just now; it isn't durable yet.
        Raises Refusal, StoreUnavailable, and ProtocolError for properties or names that can't be stored."""
        for hook in self._hooks:
            hook(draft)
        return self.append(draft, kind)

    def append(self, draft: Draft, kind: int = INNER) -> Put:
        """As `put`, where the draft says and nowhere else: for messages only the broker itself reads, or kept before."""
        if topics.is_retry_or_dlq(draft.topic):
            kind = INNER  # sent back, which is no send of a producer's (SendMessageProcessor.handlePutMessageResult)
        put = self._store.append(
            draft.topic,
            draft.queue_id,
            draft.body,
            properties.encode(draft.properties),
            born_host=draft.born_host,
            born_timestamp=draft.born_timestamp,
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=draft.prepared_transaction_offset,
            light_queues=draft.light_queues,
            kind=kind,
        )
        if put.watched:
            self._gate.wake_when_durable(draft.topic, draft.queue_id, put.end)
            for name in draft.light_queues:
                self._gate.wake_when_durable(name, 0, put.end)
        return put
