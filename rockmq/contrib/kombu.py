"""A transport for kombu, and so for Celery (`pip install rockmq[celery]`). Importing it makes `rockmq://` URLs known:

    import rockmq.contrib.kombu
    app = Celery("shop", broker="rockmq://127.0.0.1:9876")

The host is that of a name server. Each queue of kombu's is a topic, and the group of all who consume it. Tasks with a
countdown or an `eta` wait at the broker, which delivers them then, and so do retries. What a worker hasn't acknowledged
when it ends, or dies, another one gets: with `acks_late` that is every task that hasn't ended. What is rejected without
requeueing becomes a dead letter of the group.

There are no fanout exchanges. Celery needs them for remote control (`celery inspect`), without which its workers run
here, and for broadcast queues.

Transport options: `name_servers` (a list, in place of the URL's host), `queue_name_prefix` (of topics and groups),
`queues` (of a new topic, 8).
"""

import json
import string
import time
from datetime import UTC, datetime
from importlib.metadata import version
from queue import Empty
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from rockmq.base.errors import ClientError, RemotingError, ResponseError, RouteNotFound
from rockmq.blocking import Client, ConsumedMessage, Consumer, Producer
from rockmq.client import Message
from rockmq.protocol.topics import TEMPLATE

DEFAULT_PORT = 9876
QUEUES = 8
DELAY_SECONDS_MAX = 3 * 24 * 3600 - 60
"""What brokers hold a message back for by default, less a little; a worker waits for the rest."""
POLL_SECONDS = 0.02
DEAD_LETTER = -1
"""The delay level of what is never delivered again."""

_ALLOWED = frozenset(string.ascii_letters + string.digits + "_-%|")


class Channel(virtual.Channel):
    """Puts messages into topics, and gets them from groups."""

    do_restore = False  # who isn't told that a message is done with delivers it again
    exchange_types = {kind: virtual.Channel.exchange_types[kind] for kind in ("direct", "topic")}  # noqa: RUF012

    def __init__(self, connection: "Transport", **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._groups: dict[str, Consumer] = {}
        self._unacknowledged: dict[str, ConsumedMessage] = {}

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **kwargs: Any) -> None:
        if type not in self.exchange_types:
            text = f"exchange {exchange!r} is of type {type!r}: RockMQ has direct and topic exchanges"
            raise ChannelError(text, (50, 10), "Channel.exchange_declare", "540")
        super().exchange_declare(exchange, type, **kwargs)

    # Queues

    def _name(self, queue: str) -> str:
        """The topic and the group of a queue."""
        prefix = self.connection.client.transport_options.get("queue_name_prefix", "")
        return "".join(each if each in _ALLOWED else "_" for each in prefix + queue)

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        self.connection.ensure_topic(self._name(queue))

    def _purge(self, queue: str) -> int:
        """Have the group skip what waits for it; how much that was. Workers that run have to be stopped before."""
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

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        found = self._group(queue).fetch(1, timeout=timeout or 0)
        if not found:
            raise Empty
        (message,) = found
        try:
            payload: dict[str, Any] = loads(message.body)
            tag = payload["properties"]["delivery_tag"] = message.msg_id
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
            # Nobody could ever work on it.
            message.nack(DEAD_LETTER)
            raise Empty from None
        payload["redelivered"] = message.reconsume_times > 0
        self._unacknowledged[tag] = message
        return payload

    def _group(self, queue: str) -> Consumer:
        found = self._groups.get(queue)
        if found is None:
            name = self._name(queue)
            found = self.connection.mq.consumer(name, [name], from_where="first")
            found.start()
            self._groups[queue] = found
        return found

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> None:
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
    connection_errors = (RemotingError, ClientError)
    channel_errors = (ChannelError, ResponseError)
    recoverable_connection_errors = (RemotingError, ClientError)

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self._mq: Client | None = None
        self._producer: Producer | None = None
        self._topics: set[str] = set()

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

    def ensure_topic(self, name: str) -> None:
        """Make the topic if there is none."""
        if name in self._topics:
            return
        try:
            self.mq.queues(name)
        except RouteNotFound:
            self.mq.create_topic(name, self.client.transport_options.get("queues", QUEUES))
        self._topics.add(name)

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        mq, self._mq, self._producer = self._mq, None, None
        if mq is not None:
            mq.close()


def _due(eta: str | None) -> float | None:
    """When a broker is to deliver what a worker is to do then: seconds since the epoch, None for at once."""
    if not eta:
        return None
    when = datetime.fromisoformat(eta)
    due = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return min(due, time.time() + DELAY_SECONDS_MAX)


TRANSPORT_ALIASES["rockmq"] = "rockmq.contrib.kombu:Transport"
