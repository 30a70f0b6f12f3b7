"""A transport for kombu, and so for Celery (`pip install rockmq[celery]`). Importing it makes `rockmq://` URLs known:

    import rockmq.contrib.kombu
    app = Celery("shop", broker="rockmq://127.0.0.1:9876")

The host is that of a name server. Each queue of kombu's is a topic, and the group of all who consume it. Tasks with a
countdown or an `eta` wait at the broker, which delivers them then, and so do retries. What a worker hasn't acknowledged
when it ends, or dies, another one gets: with `acks_late` that is every task that hasn't ended. What is rejected without
requeueing becomes a dead letter of the group.

A fanout exchange is a topic (`fanout_` and its name), of which each queue that is bound to it reads everything from then on,
as a broadcast. Such a queue belongs to its connection (`auto_delete` or `exclusive`, as those of `kombu.common.Broadcast`
are): nothing is kept for it, and what it rejects is gone. Celery's remote control (`celery inspect`) works by that; the
answers go the same way, though their exchange is a direct one, as no worker knows the queue of who asks.

Transport options: `name_servers` (a list, in place of the URL's host), `queue_name_prefix` (of topics and groups),
`queues` (of a new topic, 8).
"""

import logging
import re
import string
import tempfile
import time
from collections import deque
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from rockmq.base.errors import ClientError, RemotingError, ResponseError, RouteNotFound
from rockmq.blocking import Client, ConsumedMessage, Consumer, Producer
from rockmq.client import Message
from rockmq.protocol.topics import TEMPLATE

log = logging.getLogger(__name__)

DEFAULT_PORT = 9876
QUEUES = 8
DELAY_SECONDS_MAX = 3 * 24 * 3600 - 60
"""What brokers hold a message back for by default, less a little; a worker waits for the rest."""
POLL_SECONDS = 0.02
DEAD_LETTER = -1
"""The delay level of what is never delivered again."""

FANOUT_PREFIX = "fanout."
FANOUT_QUEUES = 1
FANOUT_WAITING_MAX = 1000
"""Messages that wait for a queue of a fanout; over it the oldest are dropped."""
REPLIES = re.compile(r"reply\..+\.pidbox")
"""Exchanges of answers to remote control (kombu.pidbox.Mailbox)."""

_ALLOWED = frozenset(string.ascii_letters + string.digits + "_-%|")


class Fanout:
    """What goes to an exchange from now on, for the queues of a connection that are bound to it."""

    def __init__(self, mq: Client, name: str) -> None:
        # A broadcast goes on where its file says; this one begins anew each time.
        self._offsets = tempfile.TemporaryDirectory(prefix="rockmq-kombu-", ignore_cleanup_errors=True)
        self._consumer = mq.consumer(
            name, [name], broadcast=True, from_where="last", offsets_directory=Path(self._offsets.name)
        )
        try:
            self._consumer.start()
        except BaseException:
            self._offsets.cleanup()
            raise
        self._keys: dict[str, set[str]] = {}
        self._waiting: dict[str, deque[dict[str, Any]]] = {}

    def bind(self, queue: str, routing_key: str | None) -> None:
        """Give the queue what has this routing key, too; None is everything."""
        self._waiting.setdefault(queue, deque(maxlen=FANOUT_WAITING_MAX))
        if routing_key is not None:
            self._keys.setdefault(queue, set()).add(routing_key)

    def unbind(self, queue: str) -> None:
        self._waiting.pop(queue, None)
        self._keys.pop(queue, None)

    def get(self, queue: str, channel: "Channel") -> dict[str, Any]:
        """The next message of a queue, for that channel. Raises Empty."""
        waiting = self._waiting[queue]
        if not waiting:
            self._share_out(channel)
        try:
            return waiting.popleft()
        except IndexError:
            raise Empty from None

    def purge(self, queue: str, channel: "Channel") -> int:
        self._share_out(channel)
        waiting = self._waiting[queue]
        count = len(waiting)
        waiting.clear()
        return count

    def _share_out(self, channel: "Channel") -> None:
        for message in self._consumer.fetch(timeout=0):
            message.ack()
            for queue, waiting in self._waiting.items():
                payload = _payload(message, channel)
                if payload is not None and self._wants(queue, payload):
                    payload["properties"]["delivery_tag"] = uuid()
                    waiting.append(payload)

    def _wants(self, queue: str, payload: dict[str, Any]) -> bool:
        keys = self._keys.get(queue)
        return keys is None or payload["properties"]["delivery_info"]["routing_key"] in keys

    def close(self) -> None:
        self._consumer.close(0)
        self._offsets.cleanup()


class Channel(virtual.Channel):
    """Puts messages into topics, and gets them from groups."""

    do_restore = False  # who isn't told that a message is done with delivers it again
    supports_fanout = True

    def __init__(self, connection: "Transport", **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._groups: dict[str, Consumer] = {}
        self._unacknowledged: dict[str, ConsumedMessage] = {}

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **kwargs: Any) -> None:
        if type not in self.exchange_types:
            text = f"exchange {exchange!r} is of type {type!r}: RockMQ has direct, topic and fanout exchanges"
            raise ChannelError(text, (50, 10), "Channel.exchange_declare", "540")
        super().exchange_declare(exchange, type, **kwargs)

    # Queues

    def _name(self, queue: str) -> str:
        """The topic and the group of a queue."""
        prefix = self.connection.client.transport_options.get("queue_name_prefix", "")
        return "".join(each if each in _ALLOWED else "_" for each in prefix + queue)

    def _new_queue(self, queue: str, *, auto_delete: bool = False, exclusive: bool = False, **kwargs: Any) -> None:
        if auto_delete or exclusive:
            self.connection.own_queues.add(queue)  # and made when something is put into it
        else:
            self.connection.ensure_topic(self._name(queue))

    def _goes_to_all(self, exchange: str) -> bool:
        return self.typeof(exchange).type == "fanout" or REPLIES.fullmatch(exchange) is not None

    def _queue_bind(self, exchange: str, routing_key: str, pattern: object, queue: str) -> None:
        if not self._goes_to_all(exchange):
            return
        if queue not in self.connection.own_queues:
            text = f"queue {queue!r} is shared: only those with auto_delete or exclusive are bound to a fanout, {exchange!r}"
            raise ChannelError(text, (50, 20), "Channel.queue_bind", "540")
        is_fanout = self.typeof(exchange).type == "fanout"
        fanout = self.connection.fanout(self._name(FANOUT_PREFIX + exchange))
        fanout.bind(queue, None if is_fanout else routing_key)
        self.connection.bound[queue] = fanout

    def after_reply_message_received(self, queue: str) -> None:
        """The next question's answers come to it, too."""

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        self.connection.own_queues.discard(queue)
        fanout = self.connection.bound.pop(queue, None)
        if fanout is not None:
            fanout.unbind(queue)
        else:
            self._purge(queue)

    def _purge(self, queue: str) -> int:
        """Have the group skip what waits for it; how much that was. Workers that run have to be stopped before."""
        if queue in self.connection.bound:
            return int(self.connection.bound[queue].purge(queue, self))
        name, mq = self._name(queue), self.connection.mq
        skipped = 0
        try:
            offsets = mq.committed_offsets(name, name)
        except RouteNotFound:
            return 0
        for each, offset in offsets.items():
            end = mq.max_offset(each)
            skipped += end - (offset if offset is not None else mq.min_offset(each))
            mq.commit(name, each, end)
        return skipped

    # Messages

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        name = self._name(queue)
        self.connection.ensure_topic(name)
        headers = message.get("headers") or {}
        keys = [headers["id"]] if headers.get("id") else []
        made = Message(name, dumps(message).encode(), keys=keys)
        self.connection.producer.send(made, deliver_at=_due(headers.get("eta")))

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        if exchange and self._goes_to_all(exchange):
            self._inplace_augment_message(message, exchange, routing_key)
            self._put_fanout(exchange, message, routing_key)
        else:
            super().basic_publish(message, exchange, routing_key, **kwargs)

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        name = self._name(FANOUT_PREFIX + exchange)
        self.connection.ensure_topic(name, FANOUT_QUEUES)
        self.connection.producer.send(Message(name, dumps(message).encode()))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if queue in self.connection.bound:
            return dict(self.connection.bound[queue].get(queue, self))
        found = self._group(queue).fetch(1, timeout=timeout or 0)
        if not found:
            raise Empty
        (message,) = found
        payload = _payload(message, self)
        if payload is None:
            message.nack(DEAD_LETTER)  # nobody could ever work on it
            raise Empty
        tag = payload["properties"]["delivery_tag"] = message.msg_id
        payload["redelivered"] = message.reconsume_times > 0
        self._unacknowledged[tag] = message
        return payload

    def _group(self, queue: str) -> Consumer:
        found = self._groups.get(queue)
        if found is None:
            name = self._name(queue)
            self.connection.ensure_topic(name)
            found = self.connection.mq.consumer(name, [name], from_where="first")
            found.start()
            self._groups[queue] = found
        return found

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> None:
        if queue in self.connection.bound:
            super().basic_consume(queue, no_ack, *args, **kwargs)
            return
        if no_ack:
            raise ChannelError(f"queue {queue!r}: RockMQ's messages have to be acknowledged (no_ack)",
                               (60, 20), "Channel.basic_consume", "540")  # fmt: skip
        super().basic_consume(queue, no_ack, *args, **kwargs)
        self._group(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue not in self._active_queues and queue in self._groups and not self.closed:
            self._groups.pop(queue).close()

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)
        message = self._unacknowledged.pop(delivery_tag, None)
        if message is not None:
            message.ack()

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.qos.ack(delivery_tag)  # kombu would put a copy
        message = self._unacknowledged.pop(delivery_tag, None)
        if message is not None:
            message.nack(0 if requeue else DEAD_LETTER)

    def close(self) -> None:
        groups, self._groups = self._groups, {}
        try:
            super().close()
        finally:
            for group in groups.values():
                group.close(0)  # Celery has waited for what it works on
            self._unacknowledged.clear()


class Transport(virtual.Transport):
    """A connection: one client, made when it is first needed, so that processes which fork each have their own."""

    Channel = Channel
    default_port = DEFAULT_PORT
    polling_interval = POLL_SECONDS
    driver_type = "rockmq"
    driver_name = "rockmq"
    can_parse_url = False
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "topic", "fanout"]))
    connection_errors = (RemotingError, ClientError)
    channel_errors = (ChannelError, ResponseError)
    recoverable_connection_errors = (RemotingError, ClientError)

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._mq: Client | None = None
        self._producer: Producer | None = None
        self._topics: set[str] = set()
        self._fanouts: dict[str, Fanout] = {}
        self.own_queues: set[str] = set()
        """Queues that are this connection's alone."""
        self.bound: dict[str, Fanout] = {}
        """Those that read a fanout."""

    def driver_version(self) -> str:
        return version("rockmq")

    @property
    def mq(self) -> Client:
        if self._mq is None:
            host = self.client.hostname or "127.0.0.1"
            names = self.client.transport_options.get("name_servers") or f"{host}:{self.client.port or DEFAULT_PORT}"
            mq = Client(names)
            mq.__enter__()
            self._mq = mq
        return self._mq

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            producer = self.mq.producer("kombu")
            producer.start()
            self._producer = producer
        return self._producer

    def establish_connection(self) -> "Transport":
        super().establish_connection()
        try:
            self.mq.queues(TEMPLATE)  # who can't be reached is to be known now, not at the first message
        except BaseException:
            self.close_connection(self)
            raise
        return self

    def fanout(self, name: str) -> Fanout:
        """What goes to that topic from now on."""
        found = self._fanouts.get(name)
        if found is None:
            self.ensure_topic(name, FANOUT_QUEUES)
            found = self._fanouts[name] = Fanout(self.mq, name)
        return found

    def ensure_topic(self, name: str, queues: int | None = None) -> None:
        """Make the topic if there is none."""
        if name in self._topics:
            return
        try:
            self.mq.queues(name)
        except RouteNotFound:
            self.mq.create_topic(name, queues or self.client.transport_options.get("queues", QUEUES))
        self._topics.add(name)

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        mq, self._mq, self._producer = self._mq, None, None
        for fanout in self._fanouts.values():
            fanout.close()
        self._fanouts.clear()
        self.bound.clear()
        if mq is not None:
            mq.close()


def _payload(message: ConsumedMessage, channel: Channel) -> dict[str, Any] | None:
    """What kombu has written; None for what is of somebody else, or damaged: workers would fail at it."""
    try:
        payload: dict[str, Any] = loads(message.body)
        properties = payload["properties"]
        hash(properties["delivery_info"]["routing_key"])
        channel.Message(payload | {"properties": properties | {"delivery_tag": message.msg_id}}, channel=channel)
    except Exception:  # whatever makes dates, numbers and an application's own types of it raises
        log.warning("a message of topic %s isn't kombu's, no worker gets it", message.topic, exc_info=True)
        return None
    return payload


def _due(eta: str | None) -> float | None:
    """When a broker is to deliver what a worker is to do then: seconds since the epoch, None for at once."""
    if not eta:
        return None
    when = datetime.fromisoformat(eta)
    due = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return min(due, time.time() + DELAY_SECONDS_MAX)


TRANSPORT_ALIASES["rockmq"] = "rockmq.contrib.kombu:Transport"
