"""The classes of the asyncio client for threads. Made by scripts/make_blocking.py; don't edit."""

import concurrent.futures
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, cast

import rockmq.client as aio
import rockmq.client.delivery
from rockmq.base.clock import Clock
from rockmq.blocking.bridge import WRAPPERS, Portal, Wrapper, unwrap, wrap
from rockmq.client import producer as producers
from rockmq.client.hooks import Hook
from rockmq.client.offsets import FromWhere
from rockmq.client.pull import PullResult
from rockmq.client.queues import Selector
from rockmq.client.sending import SendReceipt
from rockmq.client.stats import ClientStats
from rockmq.client.subscription import Topics, Wanted
from rockmq.client.transactions import Decision, TransactionReceipt
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.flags import Permission
from rockmq.protocol.message import Message, StoredMessage


class Processing(Wrapper[rockmq.client.delivery.Processing]):
    """The block around the work on one message."""

    def __enter__(self) -> "ConsumedMessage":
        return cast("ConsumedMessage", wrap(self._portal.run(self._wrapped.__aenter__), self._portal))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._portal.run(self._wrapped.__aexit__, kind, error, trace)


class ConsumedMessage(Wrapper[aio.ConsumedMessage]):
    """A message as a consumer gets it. End it by `ack`, `nack` or a `process` block; until then it counts as in flight.

    `stored` is all that the broker keeps of it.
    """

    @property
    def stored(self) -> StoredMessage:
        return self._wrapped.stored

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self._wrapped.topic

    @property
    def body(self) -> bytes:
        return self._wrapped.body

    @property
    def tag(self) -> str | None:
        return self._wrapped.tag

    @property
    def keys(self) -> list[str]:
        return self._wrapped.keys

    @property
    def properties(self) -> dict[str, str]:
        return self._wrapped.properties

    @property
    def msg_id(self) -> str:
        return self._wrapped.msg_id

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return self._wrapped.queue

    @property
    def queue_offset(self) -> int:
        return self._wrapped.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self._wrapped.reconsume_times

    @property
    def born_timestamp(self) -> int:
        return self._wrapped.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self._wrapped.store_timestamp

    def ack(self) -> None:
        """It is done with. Raises ClientError when it was ended before."""
        self._portal.run(self._wrapped.ack)

    def nack(self, delay_level: int = 0) -> None:
        """Have it delivered again later: after the delay of that level, 0 lets the broker decide by the number of tries."""
        self._portal.run(self._wrapped.nack, delay_level)

    def process(self, *, suppress: bool = False) -> Processing:
        """`with message.process():` acknowledges when the block ends well, and refuses when it raises.

        The exception goes on to the caller; with `suppress` it is logged and ends here.
        """
        return cast("Processing", wrap(self._portal.call(self._wrapped.process, suppress=suppress), self._portal))


class Producer(Wrapper[aio.Producer]):
    """Sends messages for a producer group; made by `Client.producer`, used with `with`.

    A send is tried up to `1 + retries` times within its timeout, on another broker where there is one, else again after a
    short pause (0.1 s, 0.2 s, … 1 s). Raises RequestTimeout, ConnectionLost, ConnectError (the message may have been
    stored), ResponseError (a broker refused it), RouteNotFound, InvalidMessage (nothing was sent).
    """

    @property
    def group(self) -> str:
        return self._wrapped.group

    def start(self) -> None:
        """Make ready to send; `with` does it."""
        self._portal.run(self._wrapped.start)

    def close(self) -> None:
        """Wait for what is on its way, then leave the group."""
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close)

    def __enter__(self) -> "Producer":
        self._portal.run(self._wrapped.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send and wait until the broker has stored the message.

        Messages with the same `key` go to the same queue, in the order of their sends if each is awaited; `queue` names
        the queue, `selector` picks one; otherwise queues take turns. While too much is in flight, waits for room.

        With `delay` (seconds) or `deliver_at` (a time with its zone, or seconds since the epoch) consumers get it then, at
        the end of the broker's step of time (`timerPrecisionMs`), never earlier; a time that is past means now. Up to then
        the receipt's `recall_handle` takes it back.
        """
        return self._portal.run(
            self._wrapped.send,
            message,
            key=key,
            queue=queue,
            selector=selector,
            delay=delay,
            deliver_at=deliver_at,
            timeout=timeout,
        )

    def send_nowait(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        delay: float | timedelta | None = None,
        deliver_at: float | datetime | None = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendReceipt]:
        """As `send`, but returns the future of the receipt. Raises TooManyInFlight when there is no room."""
        return self._portal.start(
            self._wrapped.send_nowait,
            message,
            key=key,
            queue=queue,
            selector=selector,
            delay=delay,
            deliver_at=deliver_at,
            timeout=timeout,
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic together; a receipt for each, in order.

        They go to one queue in one request, as far as they fit into the size bound of a message; a larger batch becomes
        several requests, one after the other, each by its own choice of queue. Raises BatchIncomplete when some but not
        all of those requests succeeded.
        """
        return self._portal.run(self._wrapped.send_batch, messages, key=key, queue=queue, selector=selector, timeout=timeout)

    def send_oneway(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without asking whether it arrived: one attempt, no receipt."""
        self._portal.run(self._wrapped.send_oneway, message, key=key, queue=queue, selector=selector)

    def request(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a message that asks for a reply, and wait for the reply; `timeout` is for both.

        Raises RequestTimeout when none comes in time, and what `send` raises.
        """
        return self._portal.run(self._wrapped.request, message, key=key, queue=queue, selector=selector, timeout=timeout)

    def reply(self, to: ConsumedMessage | StoredMessage, body: bytes, *, timeout: float | None = None) -> SendReceipt:
        """Answer a message that was sent as a request (MessageUtil.createReplyMessage). Raises InvalidMessage when it
        wasn't, and ResponseError when who asked isn't there any more.
        """
        return self._portal.run(self._wrapped.reply, unwrap(to), body, timeout=timeout)

    def recall(self, handle: str, *, timeout: float | None = None) -> str:
        """Take back a message that waits for its time: its id.

        The broker has stored the wish then; it can't tell whether the message was still there. Raises InvalidMessage for
        what is no handle, ResponseError when the broker refuses: its time has come, or the broker has
        `recallMessageEnable=false` (the default).
        """
        return self._portal.run(self._wrapped.recall, handle, timeout=timeout)

    def flush(self) -> None:
        """Wait until nothing that was sent before is still on its way."""
        self._portal.run(self._wrapped.flush)


class TransactionProducer(Producer):
    """A producer that can send in transactions as well; made by `Client.transaction_producer`, used with `with`."""

    _wrapped: aio.TransactionProducer

    def start(self) -> None:
        """Make ready to send and to answer; `with` does it. Raises ClientError when this client has another
        transaction producer of the group.
        """
        self._portal.run(self._wrapped.start)

    def close(self) -> None:
        """Wait for what is on its way, then leave the group; checks under way are given up."""
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close)

    def send_in_transaction(
        self,
        message: Message,
        execute: Callable[[SendReceipt], Decision],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> TransactionReceipt:
        """Store the message, do `execute`, and tell the broker its decision.

        Raises what `send` raises if the message can't be stored; it is tried once, as a first attempt that came through
        after all would be a second transaction. `execute` isn't called then, nor, with decision ROLLBACK, when the broker
        stored the message less durably than it should. What `execute` raises is raised, and the broker asks later. Raises
        ResponseError when the broker refuses the decision.
        """
        return self._portal.run(
            self._wrapped.send_in_transaction,
            message,
            self._portal.callback(execute),
            key=key,
            queue=queue,
            selector=selector,
            timeout=timeout,
        )


class Consumer(Wrapper[aio.Consumer]):
    """A member of a consumer group; made by `Client.consumer`, used with `with`.

    Take messages by `for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `with` stops pulling, waits for messages that are being worked on, stores offsets and leaves the group.
    """

    @property
    def group(self) -> str:
        return self._wrapped.group

    def start(self) -> None:
        """Join the group; returns when the first queues are ours, or after 5 s without; `with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to.
        """
        self._portal.run(self._wrapped.start)

    def close(self, drain_timeout: float | None = None) -> None:
        """Stop pulling, wait for what is being worked on, store offsets, leave the group."""
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close, drain_timeout)

    def __enter__(self) -> "Consumer":
        self._portal.run(self._wrapped.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the group's retry topic among them."""
        return self._wrapped.queues

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> ConsumedMessage:
        try:
            return cast("ConsumedMessage", wrap(self._portal.run(self._wrapped.__anext__), self._portal))
        except StopAsyncIteration:
            raise StopIteration from None

    def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[ConsumedMessage]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        return cast(
            "list[ConsumedMessage]", wrap(self._portal.run(self._wrapped.fetch, max_messages, timeout), self._portal)
        )

    def run(self, handler: Callable[[ConsumedMessage], object], concurrency: int = 20) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises.
        """
        self._portal.run(self._wrapped.run, self._portal.callback(handler), concurrency)

    def commit(self) -> None:
        """Store offsets now, and wait until the brokers have them."""
        self._portal.run(self._wrapped.commit)


class Client(Wrapper[aio.Client]):
    """A connection to a RocketMQ cluster, for use with `with`.

    `name_servers` is `host:port`, several joined by `;`, `mq://host:port;host`, or a list; without it the environment
    variable NAMESRV_ADDR is used. At most `max_in_flight` messages and `max_in_flight_bytes` are on their way to brokers
    at a time: over that `Producer.send` waits. With `trace` the client tells what becomes of its messages, in messages of
    the topic RMQ_SYS_TRACE_TOPIC or another one that is named; `hooks` watch it otherwise (`rockmq.client.hooks`).
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        serializer: Literal["json", "binary"] = "json",
        max_in_flight: int = 4096,
        max_in_flight_bytes: int = 32 * 1024 * 1024,
        trace: bool | str = False,
        hooks: Sequence[Hook] = (),
        clock: Clock | None = None,
    ) -> None:
        portal = Portal()
        try:
            wrapped = portal.call(
                aio.Client,
                name_servers,
                serializer=serializer,
                max_in_flight=max_in_flight,
                max_in_flight_bytes=max_in_flight_bytes,
                trace=trace,
                hooks=hooks,
                clock=clock,
            )
        except BaseException:
            portal.close()
            raise
        super().__init__(wrapped, portal)

    @property
    def client_id(self) -> str:
        """The name by which brokers know this client."""
        return self._wrapped.client_id

    def start(self) -> None:
        """Begin; `with` does it. Connections are made when they are needed."""
        self._portal.run(self._wrapped.start)

    def close(self) -> None:
        """Close producers and consumers that are open, then the connections."""
        if self._portal.closed:
            return
        try:
            self._portal.run(self._wrapped.close)
        finally:
            self._portal.close()

    def __enter__(self) -> "Client":
        try:
            self._portal.run(self._wrapped.__aenter__)
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._portal.run(self._wrapped.__aexit__, kind, error, trace)
        finally:
            self._portal.close()

    def producer(
        self,
        group: str = "DEFAULT_ROCKMQ_PRODUCER",
        *,
        timeout: float = 3.0,
        retries: int = 2,
        compression: Literal["zlib", "lz4", "zstd", "none"] = "zlib",
        compress_from: int = producers.COMPRESS_FROM,
        message_size_max: int = producers.MESSAGE_SIZE_MAX,
    ) -> Producer:
        """A producer, for use with `with`. `timeout` is for a whole send with its `retries`; bodies of
        `compress_from` bytes on are compressed if that makes them smaller.
        """
        return cast(
            "Producer",
            wrap(
                self._portal.call(
                    self._wrapped.producer,
                    group,
                    timeout=timeout,
                    retries=retries,
                    compression=compression,
                    compress_from=compress_from,
                    message_size_max=message_size_max,
                ),
                self._portal,
            ),
        )

    def transaction_producer(
        self,
        group: str,
        checker: Callable[[StoredMessage], Decision],
        *,
        timeout: float = 3.0,
        retries: int = 2,
        compression: Literal["zlib", "lz4", "zstd", "none"] = "zlib",
        compress_from: int = producers.COMPRESS_FROM,
        message_size_max: int = producers.MESSAGE_SIZE_MAX,
    ) -> TransactionProducer:
        """A producer that sends in transactions, otherwise as `producer`. Brokers that weren't told what came of one ask
        `checker`, also of transactions that other processes of the group have begun.
        """
        return cast(
            "TransactionProducer",
            wrap(
                self._portal.call(
                    self._wrapped.transaction_producer,
                    group,
                    self._portal.callback(checker),
                    timeout=timeout,
                    retries=retries,
                    compression=compression,
                    compress_from=compress_from,
                    message_size_max=message_size_max,
                ),
                self._portal,
            ),
        )

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        max_in_flight: int = 256,
        from_where: FromWhere = "last",
        drain_timeout: float = 10.0,
    ) -> Consumer:
        """A member of a consumer group, for use with `with`.

        `topics` maps topics to the tags wanted (`"paid || refund"`, `"*"` for all), to a SQL92 expression (`Sql`) or to a
        filter of the broker's (`BrokerFilter`), or lists topics. `max_in_flight` bounds the messages that were taken and not
        finished. `from_where` says where the group begins in a queue in which it has no offset: "first", "last", or a time;
        brokers begin young queues at the first message whatever it says.
        """
        return cast(
            "Consumer",
            wrap(
                self._portal.call(
                    self._wrapped.consumer,
                    group,
                    topics,
                    max_in_flight=max_in_flight,
                    from_where=from_where,
                    drain_timeout=drain_timeout,
                ),
                self._portal,
            ),
        )

    def stats(self) -> ClientStats:
        """What this client has done so far, and what it has to do now."""
        return self._portal.call(self._wrapped.stats)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, by broker name and id. Raises RouteNotFound."""
        return self._portal.run(self._wrapped.queues, topic)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is kept."""
        return self._portal.run(self._wrapped.min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._portal.run(self._wrapped.max_offset, queue)

    def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at that time (milliseconds since the epoch) or later."""
        return self._portal.run(self._wrapped.offset_by_time, queue, timestamp)

    def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The group's offset in each queue of the topic; None where it has none."""
        return self._portal.run(self._wrapped.committed_offsets, group, topic)

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset in a queue; the broker has it when this returns. Backwards is allowed."""
        self._portal.run(self._wrapped.commit, group, queue, offset)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        max_bytes: int = 256 * 1024,
        timeout: float = 3.0,
        *,
        wait: float = 0.0,
        tags: Wanted = "*",
    ) -> PullResult:
        """Read messages from an offset on; at least one when there is one, however large.

        With `wait` the broker may hold the request so many seconds until something comes; that is on top of `timeout`.
        Tags are compared by the broker, by hash code; instead of tags it may be given a SQL92 expression.
        """
        return self._portal.run(self._wrapped.pull, queue, offset, max_messages, max_bytes, timeout, wait=wait, tags=tags)

    def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        permission: int = Permission.READ | Permission.WRITE,
        order: bool = False,
        cluster: str | None = None,
        timeout: float = 10.0,
    ) -> list[MessageQueue]:
        """Create the topic, or change it, on every master (of the cluster); its readable queues, once the route shows them.

        Raises ResponseError when a broker refuses, RequestTimeout when the route doesn't show the topic in time.
        """
        return self._portal.run(
            self._wrapped.create_topic, topic, queues, permission=permission, order=order, cluster=cluster, timeout=timeout
        )


WRAPPERS.update(
    {
        rockmq.client.delivery.Processing: Processing,
        aio.ConsumedMessage: ConsumedMessage,
        aio.Producer: Producer,
        aio.TransactionProducer: TransactionProducer,
        aio.Consumer: Consumer,
        aio.Client: Client,
    }
)
