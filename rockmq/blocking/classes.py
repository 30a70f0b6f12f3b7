"""The classes of the asyncio client for threads. Made by scripts/make_blocking.py; don't edit."""

import concurrent.futures
import contextlib
import ssl
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast, overload

import rockmq.client as aio
import rockmq.client.admin
import rockmq.client.admin.access
import rockmq.client.admin.brokers
import rockmq.client.admin.containers
import rockmq.client.admin.controllers
import rockmq.client.admin.groups
import rockmq.client.admin.lite
import rockmq.client.admin.members
import rockmq.client.admin.messages
import rockmq.client.admin.names
import rockmq.client.admin.static_topics
import rockmq.client.admin.storage
import rockmq.client.admin.topics
import rockmq.client.delivery
import rockmq.client.pop_message
from rockmq.base.clock import Clock
from rockmq.blocking.bridge import WRAPPERS, Portal, Wrapper, unwrap, wrap
from rockmq.client.acl import Key
from rockmq.client.admin.access import Acl, PolicyKind, Rule, User, UserKind
from rockmq.client.admin.brokers import BrokerStats, Clusters, RuntimeInfo
from rockmq.client.admin.controllers import ControllerMetadata, Elected
from rockmq.client.admin.groups import (
    ClientConnection,
    GroupConnections,
    GroupProgress,
    GroupSettings,
    QueueTimes,
    Subscription,
)
from rockmq.client.admin.members import DirectResult
from rockmq.client.admin.messages import Consumption
from rockmq.client.admin.storage import RocksCheck, RocksTable
from rockmq.client.admin.topics import BrokerAddresses, TopicQueues, TopicRoute, TopicSettings, TopicStats
from rockmq.client.consumer_options import ConsumerOptions
from rockmq.client.decoding import Body, Decode
from rockmq.client.handlers import Workers
from rockmq.client.hooks import Hook
from rockmq.client.lite_pull import M, PulledMessage
from rockmq.client.lite_pull_options import LitePullOptions
from rockmq.client.options import SendOptions
from rockmq.client.pop import PopLoop
from rockmq.client.pull import PullResult
from rockmq.client.queues import Selector
from rockmq.client.retries import Retry
from rockmq.client.sending import SendReceipt
from rockmq.client.states import StateChange
from rockmq.client.stats import ClientStats
from rockmq.client.subscription import Topics, Wanted
from rockmq.client.transactions import Decision, Half, TransactionReceipt
from rockmq.protocol.bodies.admin import QueueEntries, Replication
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.controller import Epochs, ReplicaSet
from rockmq.protocol.bodies.lite import LiteBroker, LiteClient, LiteGroup, LiteParent, LiteTopic
from rockmq.protocol.bodies.pop import Mode, RequestMode
from rockmq.protocol.bodies.static_topic import QueueMapping, QueuePlacement
from rockmq.protocol.bodies.storage import ColdReads, TimerCheckpoint, TimerCount
from rockmq.protocol.flags import Permission
from rockmq.protocol.message import Message, StoredMessage
from rockmq.protocol.pop import ReceiptHandle
from rockmq.remoting.socks import SocksProxy


class Processing(Wrapper[rockmq.client.delivery.Processing[Body]]):
    """The block around the work on one message, or on a batch of messages of one queue; `begun` says when it began, in
    seconds of the event loop.
    """

    def __enter__(self) -> "ConsumedMessage[Body]":
        return cast("ConsumedMessage[Body]", wrap(self._portal.run(self._wrapped.__aenter__), self._portal))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    def interrupt(self) -> None:
        """Tell whoever works here to stop: TimeoutError is raised at their `await`."""
        self._portal.call(self._wrapped.interrupt)

    def expire(self) -> None:
        """The work doesn't come to an end: refuse the messages in place of who does it, and tell them."""
        self._portal.run(self._wrapped.expire)


class PopProcessing(Wrapper[rockmq.client.pop_message.PopProcessing[Body]]):
    """The block around the work on one message, or on a batch of messages."""

    def __enter__(self) -> "PopMessage[Body]":
        return cast("PopMessage[Body]", wrap(self._portal.run(self._wrapped.__aenter__), self._portal))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._portal.run(self._wrapped.__aexit__, kind, error, trace)


class ConsumedMessage(Wrapper[aio.ConsumedMessage[Body]]):
    """A message as a consumer gets it. End it by `ack`, `nack`, `retry`, `dead_letter` or a `process` block; until then it
    counts as in flight.

    `stored` is all that the broker keeps of it. It can be pickled: the copy tells the same, but can't be ended.
    """

    @property
    def stored(self) -> StoredMessage:
        return self._wrapped.stored

    @property
    def body(self) -> Body:
        """The bytes that were sent, or what `decode` made of them when this was first asked for.

        Raises ProtocolError, which names the message, when it can't be decompressed or decoded.
        """
        return self._wrapped.body

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return self._wrapped.queue

    def ack(self) -> None:
        """It is done with. Raises ClientError when it was ended before."""
        self._portal.run(self._wrapped.ack)

    def nack(self, delay_level: int = 0) -> None:
        """Have it delivered again later: after the delay of that level, 0 lets the broker decide by the number of tries."""
        self._portal.run(self._wrapped.nack, delay_level)

    def retry(self, delay: float | timedelta) -> None:
        """Have it delivered again after so many seconds.

        Brokers can wait for some times only (`retries.LEVEL_SECONDS`): it is the nearest that isn't shorter, 2 h at most. In
        an orderly consumer its queue waits, just so long, but 10 ms at least and 30 s at most.
        """
        self._portal.run(self._wrapped.retry, delay)

    def dead_letter(self) -> None:
        """Have it delivered no more: it goes to the topic `%DLQ%` and the group's name."""
        self._portal.run(self._wrapped.dead_letter)

    def commit(self) -> None:
        """In an orderly consumer with `auto_commit=False`: it is done with, and so is all that was taken of its queue
        before; the group's offset moves behind it, and the broker is told within seconds. Raises ClientError elsewhere.
        """
        self._portal.run(self._wrapped.commit)

    def rollback(self, delay: float | timedelta | None = None) -> None:
        """In an orderly consumer with `auto_commit=False`: have it delivered again, with all of its queue that was taken and
        isn't committed, in order, after so many seconds or those of `suspend`. Raises ClientError elsewhere.
        """
        self._portal.run(self._wrapped.rollback, delay)

    def process(self, *, retry: Retry | None = None, suppress: bool = False) -> Processing[Body]:
        """`with message.process():` acknowledges when the block ends well, and refuses when it raises.

        `retry` says after how many seconds it comes again then (`backoff(1, 60)`), otherwise the broker decides. The
        exception goes on to the caller; with `suppress` it is logged and ends here. A block that takes longer than the
        consumer's `consume_timeout` gets TimeoutError at its next `await`.
        """
        return cast(
            "Processing[Body]", wrap(self._portal.call(self._wrapped.process, retry=retry, suppress=suppress), self._portal)
        )

    def put_back(self) -> None:
        """Have it delivered again at once, as if it hadn't been taken."""
        self._portal.call(self._wrapped.put_back)

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self._wrapped.topic

    @property
    def tag(self) -> str | None:
        return self._wrapped.tag

    @property
    def keys(self) -> list[str]:
        return self._wrapped.keys

    @property
    def key(self) -> str | None:
        """The first of its keys."""
        return self._wrapped.key

    @property
    def properties(self) -> dict[str, str]:
        return self._wrapped.properties

    @property
    def msg_id(self) -> str:
        return self._wrapped.msg_id

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


class PopMessage(Wrapper[aio.PopMessage[Body]]):
    """A message as a pop consumer gets it. End it by `ack`, `nack`, `retry`, `dead_letter` or a `process` block; a message
    that isn't ended when its invisible time is over comes again, here or elsewhere.

    `stored` is all that the broker keeps of it, `handle` what it is acknowledged by. It can be pickled: the copy tells the
    same, but can't be ended.
    """

    @property
    def stored(self) -> StoredMessage:
        return self._wrapped.stored

    @property
    def handle(self) -> ReceiptHandle:
        return self._wrapped.handle

    @property
    def loop(self) -> PopLoop | None:
        return self._wrapped.loop

    @property
    def expires_at(self) -> float:
        return self._wrapped.expires_at

    @property
    def queue(self) -> MessageQueue:
        """The queue it was popped from; that of a message which comes again is the retry topic's."""
        return self._wrapped.queue

    def ack(self) -> None:
        """It is done with. The broker is told soon, together with others; if that fails the message comes again.

        Raises ClientError when it was ended before.
        """
        self._portal.run(self._wrapped.ack)

    def nack(self) -> None:
        """Have it come again after a delay that grows with its tries: 10 s, 30 s, 1 min … 2 h. After the last try it becomes
        a dead letter.
        """
        self._portal.run(self._wrapped.nack)

    def retry(self, delay: float | timedelta | None = None) -> None:
        """As `nack`, after just so many seconds."""
        self._portal.run(self._wrapped.retry, delay)

    def dead_letter(self) -> None:
        """Move it to the group's dead-letter topic."""
        self._portal.run(self._wrapped.dead_letter)

    def extend(self, seconds: float) -> None:
        """Have so much time from now on. Raises ResponseError when the message isn't ours any more, RemotingError."""
        self._portal.run(self._wrapped.extend, seconds)

    def process(self, *, retry: Retry | None = None, suppress: bool = False) -> PopProcessing[Body]:
        """`with message.process():` acknowledges when the block ends well, and refuses when it raises.

        `retry` says after how many seconds it comes again then. The exception goes on to the caller; with `suppress` it is
        logged and ends here.
        """
        return cast(
            "PopProcessing[Body]",
            wrap(self._portal.call(self._wrapped.process, retry=retry, suppress=suppress), self._portal),
        )

    def put_back(self) -> None:
        """Have it delivered again at once, as if it hadn't been taken."""
        self._portal.call(self._wrapped.put_back)

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self._wrapped.topic

    @property
    def body(self) -> Body:
        """The bytes that were sent, or what `decode` made of them when this was first asked for.

        Raises ProtocolError, which names the message, when it can't be decompressed or decoded.
        """
        return self._wrapped.body

    @property
    def tag(self) -> str | None:
        return self._wrapped.tag

    @property
    def keys(self) -> list[str]:
        return self._wrapped.keys

    @property
    def key(self) -> str | None:
        """The first of its keys."""
        return self._wrapped.key

    @property
    def properties(self) -> dict[str, str]:
        return self._wrapped.properties

    @property
    def msg_id(self) -> str:
        return self._wrapped.msg_id

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


class Transaction(Wrapper[aio.Transaction]):
    """A message that is stored and not delivered yet, inside the block of `TransactionProducer.transaction`.

    `decision` is what the broker will be told at the end of the block. `confirmed` tells afterwards whether it has answered
    that it keeps to it.
    """

    @property
    def sent(self) -> SendReceipt:
        return self._wrapped.sent

    @property
    def id(self) -> str:
        """By which the checker finds out what came of the sender's own work: the message's `msg_id`."""
        return self._wrapped.id

    def roll_back(self) -> None:
        """Have the message not delivered, although the block ends well."""
        self._portal.call(self._wrapped.roll_back)

    def leave_open(self) -> None:
        """Decide nothing at the end of the block: the broker asks the checker later."""
        self._portal.call(self._wrapped.leave_open)


class Producer(Wrapper[aio.Producer]):
    """Sends messages for a producer group; made by `Client.producer`, used with `with`.

    A send is tried up to `1 + retries` times within its timeout, on another broker where there is one, else again after a
    short pause (0.1 s, 0.2 s, … 1 s). Raises RequestTimeout, ConnectionLost, ConnectError (the message may have been
    stored), ResponseError (a broker refused it), RouteNotFound, InvalidMessage (nothing was sent).

    With a `linger` messages travel in batches, except those with a delay, a time or a `timeout` of their own, replies,
    messages to retry topics or to light queues, and bodies that would be compressed or fill a batch alone.
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

    def drain(self, timeout: float | None = None) -> None:
        """Take no more messages, wait for what is on its way, then leave the group.

        Every send ends by its deadline; those that haven't ended `timeout` seconds from now fail with ClientClosed, and may
        have been stored.
        """
        self._portal.run(self._wrapped.drain, timeout)

    def __enter__(self) -> Self:
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

    def send_encoded(self, body: bytes, queue: MessageQueue, *, count: int = 1, timeout: float | None = None) -> SendReceipt:
        """Send messages that are encoded as a batch already (MessageDecoder.encodeMessages) to a queue, in one attempt.

        The receipt is that of the whole batch: its first offset, and no `msg_id`. Whoever encoded it has checked it, too.
        `count` is how many messages `Client.stats` takes it for.
        """
        return self._portal.run(self._wrapped.send_encoded, body, queue, count=count, timeout=timeout)

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

        Raises RequestTimeout when none comes in time, ProtocolError when it can't be decompressed, and what `send` raises.
        """
        return self._portal.run(self._wrapped.request, message, key=key, queue=queue, selector=selector, timeout=timeout)

    def reply(
        self, to: ConsumedMessage[object] | StoredMessage, body: bytes, *, timeout: float | None = None
    ) -> SendReceipt:
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
        """Send what waits for others, and wait until nothing is on its way any more."""
        self._portal.run(self._wrapped.flush)


class TransactionProducer(Producer):
    """A producer that can send in transactions as well; made by `Client.transaction_producer`, used with `with`."""

    _wrapped: aio.TransactionProducer

    def start(self) -> None:
        """Make ready to send and to answer; `with` does it. Raises ClientError when this client has another
        transaction producer of the group.
        """
        self._portal.run(self._wrapped.start)

    def __enter__(self) -> Self:
        self._portal.run(self._wrapped.__aenter__)
        return self

    def drain(self, timeout: float | None = None) -> None:
        """As of every producer; checks under way are given up."""
        self._portal.run(self._wrapped.drain, timeout)

    @contextlib.contextmanager
    def transaction(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> Iterator[Transaction]:
        """Store the message, and have it delivered if the block ends well. The sender's own work belongs into the block, its
        own commit last.

        An exception in the block, and a cancellation, rolls back. If the broker doesn't confirm the decision that isn't an
        error (`Transaction.confirmed`): it asks the checker. Raises what `send` raises if the message can't be stored, and
        ResponseError, before the block, when the broker stored it less durably than it should, or when it refuses the
        commit. The message is sent once, see `send_in_transaction`.
        """
        with self._portal.context(
            self._portal.call(self._wrapped.transaction, message, key=key, queue=queue, selector=selector, timeout=timeout)
        ) as entered:
            yield cast("Transaction", wrap(entered, self._portal))

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

    def send_half(self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None) -> Half:
        """Store the message where nobody sees it until `decide` is called, by any transaction producer of the group.

        Raises what `send` raises; it is sent once, see `send_in_transaction`.
        """
        return self._portal.run(self._wrapped.send_half, message, queue=queue, timeout=timeout)

    def decide(self, half: Half, decision: Decision) -> bool:
        """Have the message delivered or not; whether the broker has answered that it is so. Raises ResponseError when it
        refuses, RouteNotFound, ConnectError.
        """
        return self._portal.run(self._wrapped.decide, half, decision)


class Consumer(Wrapper[aio.Consumer[Body]]):
    """A member of a consumer group; made by `Client.consumer`, used with `with`.

    Take messages by `for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `with` stops pulling, waits for messages that are being worked on, stores offsets and leaves the group.
    """

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now, those of the group's retry topic among them."""
        return self._wrapped.queues

    def __next__(self) -> ConsumedMessage[Body]:
        try:
            return cast("ConsumedMessage[Body]", wrap(self._portal.run(self._wrapped.__anext__), self._portal))
        except StopAsyncIteration:
            raise StopIteration from None

    def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[ConsumedMessage[Body]]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        return cast(
            "list[ConsumedMessage[Body]]", wrap(self._portal.run(self._wrapped.fetch, max_messages, timeout), self._portal)
        )

    def run(
        self,
        handler: Callable[[ConsumedMessage[Body]], object],
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: Callable[[ConsumedMessage[Body]], Hashable] | None = None,
    ) -> None:
        """Call `handler` for each message, up to `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, and refused, with a log line, when it raises; `retry` says after
        how many seconds it comes again then (`backoff(1, 60)`). With `auto_commit=False` a handler may return a `Decision`:
        COMMIT commits its message, ROLLBACK rolls back.

        A handler that is no coroutine function is called on one of as many threads; or, for work that needs a processor, in
        one of as many `processes`: handler and messages are pickled then, and each process imports the program's main
        module, which needs its `if __name__ == "__main__":`.

        With `ordered_by` messages of the same key are worked on one after the other, also of different queues, as long as
        they don't fail; for more than that use a consumer with `order`.
        """
        self._portal.run(
            self._wrapped.run,
            self._portal.function(handler),
            concurrency,
            workers=workers,
            retry=retry,
            ordered_by=self._portal.function(ordered_by) if ordered_by is not None else None,
        )

    def run_batches(
        self,
        handler: Callable[[list[ConsumedMessage[Body]]], object],
        max_messages: int = 32,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
    ) -> None:
        """As `run`, but call `handler` for up to so many messages of one queue at a time, as many as are there.

        They are acknowledged when it returns, but for those that it has ended itself (`await message.nack()`). When it
        raises all are refused, when it raises `PartDone(n)` all but the first n. A `Decision` is for the whole batch.
        """
        self._portal.run(
            self._wrapped.run_batches,
            self._portal.function(handler),
            max_messages,
            concurrency,
            workers=workers,
            retry=retry,
        )

    def commit(self) -> None:
        """Store offsets now, and wait until the brokers have them."""
        self._portal.run(self._wrapped.commit)

    def close(self, drain_timeout: float | None = None) -> None:
        """Take nothing more from brokers, wait for what is being worked on, tell them how far that is, leave the group.

        Whoever calls it meanwhile waits for that, too. `drain_timeout` is how many seconds to wait for handlers and
        `process` blocks, instead of what was said when the consumer was made.
        """
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close, drain_timeout)

    def __iter__(self) -> Self:
        return self

    @property
    def group(self) -> str:
        return self._wrapped.group

    def start(self) -> None:
        """Join the group; returns when it is known what to consume, or after 5 s without; `with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when this
        client consumes the group already, or when what is asked for can't be had.
        """
        self._portal.run(self._wrapped.start)

    def __enter__(self) -> Self:
        self._portal.run(self._wrapped.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Consume a topic too, or other messages of one that is consumed; returns when its queues are shared out.

        Messages that were pulled before still come. All members of a group must subscribe alike. Raises ClientError, and
        ResponseError when a broker can't filter so.
        """
        self._portal.run(self._wrapped.subscribe, topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; returns when its queues are given up. Raises ClientError when it isn't consumed."""
        self._portal.run(self._wrapped.unsubscribe, topic)


class PopConsumer(Wrapper[aio.PopConsumer[Body]]):
    """A member of a group that pops; made by `Client.pop_consumer`, used with `with`.

    Take messages by `for`, by `fetch`, or let `run` call a handler; any number of tasks may do so. Leaving the
    `with` stops popping, waits for messages that are being worked on, has acknowledgements arrive and gives back
    what nobody has taken.
    """

    @property
    def queues(self) -> list[MessageQueue]:
        """What is popped from; queue id -1 is all of a topic at a broker."""
        return self._wrapped.queues

    @property
    def in_flight(self) -> int:
        """Messages that were popped and aren't ended."""
        return self._wrapped.in_flight

    def __next__(self) -> PopMessage[Body]:
        try:
            return cast("PopMessage[Body]", wrap(self._portal.run(self._wrapped.__anext__), self._portal))
        except StopAsyncIteration:
            raise StopIteration from None

    def fetch(self, max_messages: int = 32, timeout: float | None = 1.0) -> list[PopMessage[Body]]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long)."""
        return cast(
            "list[PopMessage[Body]]", wrap(self._portal.run(self._wrapped.fetch, max_messages, timeout), self._portal)
        )

    def run(
        self,
        handler: Callable[[PopMessage[Body]], object],
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: Callable[[PopMessage[Body]], Hashable] | None = None,
    ) -> None:
        """Call `handler` for each message, as `Consumer.run`: it is acknowledged when its handler returns, and refused, with
        a log line, when it raises. One that waits behind others of its key until its invisible time is over comes again.
        """
        self._portal.run(
            self._wrapped.run,
            self._portal.function(handler),
            concurrency,
            workers=workers,
            retry=retry,
            ordered_by=self._portal.function(ordered_by) if ordered_by is not None else None,
        )

    def run_batches(
        self,
        handler: Callable[[list[PopMessage[Body]]], object],
        max_messages: int = 32,
        concurrency: int = 20,
        *,
        workers: Workers = "threads",
        retry: Retry | None = None,
    ) -> None:
        """As `run`, but call `handler` for up to so many messages of one topic at a time, as many as are there; with `order`
        they are of one queue. What fails of a batch is refused as by `Consumer.run_batches`.
        """
        self._portal.run(
            self._wrapped.run_batches,
            self._portal.function(handler),
            max_messages,
            concurrency,
            workers=workers,
            retry=retry,
        )

    def close(self, drain_timeout: float | None = None) -> None:
        """Take nothing more from brokers, wait for what is being worked on, tell them how far that is, leave the group.

        Whoever calls it meanwhile waits for that, too. `drain_timeout` is how many seconds to wait for handlers and
        `process` blocks, instead of what was said when the consumer was made.
        """
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close, drain_timeout)

    def __iter__(self) -> Self:
        return self

    @property
    def group(self) -> str:
        return self._wrapped.group

    def start(self) -> None:
        """Join the group; returns when it is known what to consume, or after 5 s without; `with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when this
        client consumes the group already, or when what is asked for can't be had.
        """
        self._portal.run(self._wrapped.start)

    def __enter__(self) -> Self:
        self._portal.run(self._wrapped.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Consume a topic too, or other messages of one that is consumed; returns when its queues are shared out.

        Messages that were pulled before still come. All members of a group must subscribe alike. Raises ClientError, and
        ResponseError when a broker can't filter so.
        """
        self._portal.run(self._wrapped.subscribe, topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; returns when its queues are given up. Raises ClientError when it isn't consumed."""
        self._portal.run(self._wrapped.unsubscribe, topic)


class LitePullConsumer(Wrapper[aio.LitePullConsumer[M]]):
    """Made by `Client.lite_pull_consumer`, used with `with`.

    One task polls at a time; other methods may be called meanwhile. In a broadcast every member has all queues of the
    topics, and keeps its offsets in a file, the one that Java's consumers have. With `decode` it returns
    `PulledMessage[...]` instead of `StoredMessage`.
    """

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._portal.run(self._wrapped.__aexit__, kind, error, trace)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return self._wrapped.queues

    def assign(self, queues: Iterable[MessageQueue], tags: Wanted = "*") -> None:
        """Read these queues and no others, whoever else reads them; each from where the group is in it, or where it is now.

        Cancelled, it still commits what it has given up, which a broker that doesn't answer holds up for 5 s; cancelled once
        more it doesn't. Raises ClientError for a consumer with topics, whose queues are shared out, RouteNotFound,
        RemotingError.
        """
        self._portal.run(self._wrapped.assign, queues, tags)

    def pause(self, *queues: MessageQueue) -> None:
        """Neither pull nor return anything of these queues until they are resumed; what was pulled stays.

        Raises ClientError for a queue that isn't ours.
        """
        self._portal.call(self._wrapped.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues."""
        self._portal.call(self._wrapped.resume, *queues)

    @property
    def paused(self) -> list[MessageQueue]:
        return self._wrapped.paused

    def poll(self, timeout: float | None = 5.0, max_messages: int = 32) -> list[M]:
        """Up to so many messages: what is there, or else the first to come within the timeout (None: however long).

        Messages of a queue come in order. With `auto_commit` all that polls before this one returned is taken for done.
        Raises ProtocolError, which names the message, for one that can't be decompressed; the next poll goes on behind it.
        With `decode` it is its `body` that raises that.
        """
        return self._portal.run(self._wrapped.poll, timeout, max_messages)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        try:
            return cast("M", wrap(self._portal.run(self._wrapped.__anext__), self._portal))
        except StopAsyncIteration:
            raise StopIteration from None

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that a poll will return. Raises ClientError for a queue that isn't ours."""
        return self._portal.call(self._wrapped.position, queue)

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset at the broker, or in a broadcast that in our file; None when there is none."""
        return self._portal.run(self._wrapped.committed, queue)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Make these the group's offsets, or the positions of all our queues; the brokers have them when this returns, or
        our file, if it is a broadcast.

        Raises ResponseError, RemotingError, ClientError; some queues may be committed then.
        """
        self._portal.run(self._wrapped.commit, offsets)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at that offset, from the oldest that is kept to the one behind the last. Raises ClientError otherwise."""
        self._portal.run(self._wrapped.seek, queue, offset)

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on at the oldest messages that are kept, of these queues or of all."""
        self._portal.run(self._wrapped.seek_to_begin, *queues)

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last messages that are there now, of these queues or of all."""
        self._portal.run(self._wrapped.seek_to_end, *queues)

    def seek_to_time(self, time: datetime, *queues: MessageQueue) -> None:
        """Go on at the first messages stored then or later, of these queues or of all."""
        self._portal.run(self._wrapped.seek_to_time, time, *queues)

    @property
    def group(self) -> str:
        return self._wrapped.group

    def start(self) -> None:
        """Join the group; returns when it is known what to consume, or after 5 s without; `with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when this
        client consumes the group already, or when what is asked for can't be had.
        """
        self._portal.run(self._wrapped.start)

    def close(self) -> None:
        """Stop consuming, store how far that is, leave the group. Who calls it meanwhile waits for that, too."""
        if self._portal.closed:
            return
        self._portal.run(self._wrapped.close)

    def __enter__(self) -> Self:
        self._portal.run(self._wrapped.__aenter__)
        return self

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Consume a topic too, or other messages of one that is consumed; returns when its queues are shared out.

        Messages that were pulled before still come. All members of a group must subscribe alike. Raises ClientError, and
        ResponseError when a broker can't filter so.
        """
        self._portal.run(self._wrapped.subscribe, topic, wanted)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; returns when its queues are given up. Raises ClientError when it isn't consumed."""
        self._portal.run(self._wrapped.unsubscribe, topic)


class TopicAdmin(Wrapper[rockmq.client.admin.topics.TopicAdmin]):
    def put(
        self,
        settings: TopicSettings,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_attributes: Iterable[str] = (),
    ) -> None:
        """Create the topic, or change it, on every master, those of one cluster, or one broker. Attributes that aren't named
        stay as they are. Name servers hear of it a moment later; `Client.create_topic` waits for that.
        """
        self._portal.run(self._wrapped.put, settings, cluster=cluster, broker=broker, remove_attributes=remove_attributes)

    def put_many(self, settings: Iterable[TopicSettings], *, cluster: str | None = None, broker: str | None = None) -> None:
        """As `put`, for several topics in one request. Raises ResponseError and changes nothing when one of them can't be.
        Apache's broker does nothing either, and says nothing, when one of them is there already just so.
        """
        self._portal.run(self._wrapped.put_many, settings, cluster=cluster, broker=broker)

    def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete the topic with its messages from every master (of the cluster), then from every name server."""
        self._portal.run(self._wrapped.delete, topic, cluster=cluster)

    def names(self, cluster: str | None = None) -> list[str]:
        """All topics that the name server knows, retry and dead-letter topics among them; those of one cluster if named."""
        return self._portal.run(self._wrapped.names, cluster)

    def system_names(self) -> list[str]:
        """Topics that are named like a cluster or a broker, as the name server knows them."""
        return self._portal.run(self._wrapped.system_names)

    def unit_names(self, having: Literal["unit", "unit subscription", "unit subscription only"] = "unit") -> list[str]:
        """Topics whose `unit_flags` say that they belong to a unit, that groups of units subscribe to them, or the latter
        and not the former.
        """
        return self._portal.run(self._wrapped.unit_names, having)

    def get(self, topic: str) -> dict[str, TopicSettings]:
        """The topic's settings, by broker name. Raises RouteNotFound when there is no such topic."""
        return self._portal.run(self._wrapped.get, topic)

    def of_broker(self, broker: str) -> dict[str, TopicSettings]:
        """All topics of a broker, by name."""
        return self._portal.run(self._wrapped.of_broker, broker)

    def route(self, topic: str) -> TopicRoute:
        """Raises RouteNotFound."""
        return self._portal.run(self._wrapped.route, topic)

    def stats(self, topic: str) -> TopicStats:
        """What is in the topic's queues, those that can only be written or read included."""
        return self._portal.run(self._wrapped.stats, topic)

    def groups(self, topic: str) -> list[str]:
        """Groups that consume the topic now, or have offsets in it."""
        return self._portal.run(self._wrapped.groups, topic)


class GroupAdmin(Wrapper[rockmq.client.admin.groups.GroupAdmin]):
    def put(
        self,
        settings: GroupSettings,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_attributes: Iterable[str] = (),
    ) -> None:
        """Create the group, or change it, on every master, those of one cluster, or one broker. Attributes that aren't named
        stay as they are.
        """
        self._portal.run(self._wrapped.put, settings, cluster=cluster, broker=broker, remove_attributes=remove_attributes)

    def put_many(self, settings: Iterable[GroupSettings], *, cluster: str | None = None, broker: str | None = None) -> None:
        """As `put`, for several groups in one request."""
        self._portal.run(self._wrapped.put_many, settings, cluster=cluster, broker=broker)

    def delete(self, group: str, *, cluster: str | None = None, offsets: bool = False) -> None:
        """Delete the group on every master, with its offsets if wanted. Where groups are made as they come (the brokers'
        default), a member that is still there makes it anew.
        """
        self._portal.run(self._wrapped.delete, group, cluster=cluster, offsets=offsets)

    def get(self, group: str, *, cluster: str | None = None) -> dict[str, GroupSettings]:
        """The group's settings, by broker name; of those brokers that have it. Where groups are made as they come, that is
        every one: asking makes the group.
        """
        return self._portal.run(self._wrapped.get, group, cluster=cluster)

    def of_broker(self, broker: str) -> dict[str, GroupSettings]:
        """All groups of a broker, by name."""
        return self._portal.run(self._wrapped.of_broker, broker)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Let the group's members read the topic, or have brokers refuse their pulls."""
        self._portal.run(self._wrapped.set_readable, group, topic, readable)

    def readable(self, group: str, topic: str) -> dict[str, bool]:
        """Whether the group's members may read the topic, by broker name."""
        return self._portal.run(self._wrapped.readable, group, topic)

    def set_request_mode(self, group: str, topic: str, mode: Mode, *, share_queues: int = 0) -> None:
        """Have the group's members pull or pop the topic, those that leave it to brokers (`pop_consumer(assigned=True)`).

        Of `share_queues` other members each member pops the queues as well; with 0 all pop from all.
        """
        self._portal.run(self._wrapped.set_request_mode, group, topic, mode, share_queues=share_queues)

    def connections(self, group: str, *, cluster: str | None = None) -> GroupConnections:
        """Raises ResponseError (CONSUMER_NOT_ONLINE) when the group has no member anywhere."""
        return self._portal.run(self._wrapped.connections, group, cluster=cluster)

    def producers(self, group: str, topic: str) -> list[ClientConnection]:
        """Producers of the group that are connected to brokers of the topic."""
        return self._portal.run(self._wrapped.producers, group, topic)

    def all_producers(self, broker: str) -> dict[str, list[ClientConnection]]:
        """All producers that a broker knows, by group."""
        return self._portal.run(self._wrapped.all_producers, broker)

    def topics(self, group: str, *, cluster: str | None = None) -> list[str]:
        """Topics in which the group has offsets or, of its members, subscriptions."""
        return self._portal.run(self._wrapped.topics, group, cluster=cluster)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group's members want of the topic, None when none is there that wants it."""
        return self._portal.run(self._wrapped.subscription, group, topic)

    def progress(self, group: str, topic: str | None = None, *, cluster: str | None = None) -> GroupProgress:
        """How far the group is in all its topics, or in one."""
        return self._portal.run(self._wrapped.progress, group, topic, cluster=cluster)

    def progress_of_all(self, broker: str, *, orderly: bool = False) -> dict[str, GroupProgress]:
        """How far groups are at a broker: those whose settings say `orderly`, or the others."""
        return self._portal.run(self._wrapped.progress_of_all, broker, orderly=orderly)

    def times(self, group: str, topic: str) -> dict[MessageQueue, QueueTimes]:
        """How far the group is in the queues of a topic, in time."""
        return self._portal.run(self._wrapped.times, group, topic)

    def lowest_offsets(self, topic: str, group: str) -> dict[MessageQueue, int | None]:
        """The lowest offset that any group has in each queue of a topic; None where `group` is behind it."""
        return self._portal.run(self._wrapped.lowest_offsets, topic, group)

    def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Have the group go on at an offset of one queue."""
        self._portal.run(self._wrapped.reset_queue, group, queue, offset)

    def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Have one group go on in a topic where another one is."""
        self._portal.run(self._wrapped.clone_offsets, source, target, topic)


class MemberAdmin(Wrapper[rockmq.client.admin.members.MemberAdmin]):
    """`client_id` is one of `GroupAdmin.connections`."""

    def consume(self, group: str, client_id: str, offset_id: str) -> DirectResult:
        """Have a member work on a message now, which changes no offset. Raises ResponseError, also after 10 s."""
        return self._portal.run(self._wrapped.consume, group, client_id, offset_id)

    def positions(self, group: str, topic: str, client_id: str | None = None) -> dict[str, dict[MessageQueue, int]]:
        """Where members are in their queues of a topic, as they know it themselves: all, or one."""
        return self._portal.run(self._wrapped.positions, group, topic, client_id)


class MessageAdmin(Wrapper[rockmq.client.admin.messages.MessageAdmin]):
    def by_offset_id(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """The message with the id that its broker gave it, which tells the broker's address. Raises ClientError for what is
        no such id, ResponseError when the broker has no message there.
        """
        return self._portal.run(self._wrapped.by_offset_id, message_id, topic)

    def by_key(
        self, topic: str, key: str, max_messages: int = 64, *, begin: datetime | None = None, end: datetime | None = None
    ) -> list[StoredMessage]:
        """Messages with that key, the oldest first, of all brokers; at most so many of each."""
        return self._portal.run(self._wrapped.by_key, topic, key, max_messages, begin=begin, end=end)

    def by_unique_key(self, topic: str, message_id: str) -> list[StoredMessage]:
        """Messages with the id that their producer gave them: one, or more when a send was repeated."""
        return self._portal.run(self._wrapped.by_unique_key, topic, message_id)

    def resume_checks(self, message_id: str) -> None:
        """Have the broker ask again what came of a transaction, though it has asked as often as it may. `message_id` is the
        id that the broker gave the half message. Raises ClientError for what is no such id, ResponseError for what was
        committed or rolled back, or is too old (`fileReservedTime`).
        """
        self._portal.run(self._wrapped.resume_checks, message_id)

    def consumption(self, message: StoredMessage) -> dict[str, Consumption]:
        """What became of a message, at each group that consumes its topic or has offsets in it."""
        return self._portal.run(self._wrapped.consumption, message)


class BrokerAdmin(Wrapper[rockmq.client.admin.brokers.BrokerAdmin]):
    """`broker` is the name of one, which means its master, or `host:port`."""

    def clusters(self) -> Clusters:
        """All that the name server knows."""
        return self._portal.run(self._wrapped.clusters)

    def runtime_info(self, broker: str) -> RuntimeInfo:
        return self._portal.run(self._wrapped.runtime_info, broker)

    def config(self, broker: str) -> dict[str, str]:
        """The keys of its broker.conf, with the values in effect."""
        return self._portal.run(self._wrapped.config, broker)

    def system_topics(self, broker: str) -> list[str]:
        """Topics that are the broker's own."""
        return self._portal.run(self._wrapped.system_topics, broker)

    def update_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change keys while it runs. Raises ResponseError for one that can't be changed."""
        self._portal.run(self._wrapped.update_config, broker, changes)

    def stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """What the broker counts under a name, such as TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of `topic@group`.

        Raises ResponseError for what it doesn't count.
        """
        return self._portal.run(self._wrapped.stats, broker, name, key)

    def offsets(self, broker: str) -> dict[tuple[str, str], dict[int, int]]:
        """All offsets that a broker keeps: by topic and group, then by queue id."""
        return self._portal.run(self._wrapped.offsets, broker)

    def queue_entries(self, queue: MessageQueue, offset: int, count: int = 16, group: str | None = None) -> QueueEntries:
        """Entries of a queue from an offset on, and, for a group with members, which of them it subscribes to."""
        return self._portal.run(self._wrapped.queue_entries, queue, offset, count, group)

    def replication(self, broker: str) -> Replication:
        """How the broker's slaves keep up."""
        return self._portal.run(self._wrapped.replication, broker)

    def set_master_flush_offset(self, broker: str, offset: int) -> None:
        """Tell a slave, by its address, up to where its master's log is on disk. A master takes no notice."""
        self._portal.run(self._wrapped.set_master_flush_offset, broker, offset)

    def epochs(self, broker: str) -> Epochs:
        """Under which masters the broker's log was written. Raises ResponseError when no controller chooses its master."""
        return self._portal.run(self._wrapped.epochs, broker)

    def request_modes(self, broker: str) -> list[RequestMode]:
        """Groups and topics for which a mode was set, see `GroupAdmin.set_request_mode`."""
        return self._portal.run(self._wrapped.request_modes, broker)

    def clean_expired_queues(self, broker: str) -> None:
        """Delete queue files whose messages are gone."""
        self._portal.run(self._wrapped.clean_expired_queues, broker)

    def clean_unused_topics(self, broker: str) -> None:
        """Delete the queues of topics that are deleted."""
        self._portal.run(self._wrapped.clean_unused_topics, broker)

    def delete_expired_log(self, broker: str) -> None:
        """Delete log files that are older than they have to be kept, now instead of at the hour for it."""
        self._portal.run(self._wrapped.delete_expired_log, broker)


class NameServerAdmin(Wrapper[rockmq.client.admin.names.NameServerAdmin]):
    """What is changed is changed at every name server; what is asked is asked of one."""

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        self._portal.run(self._wrapped.put_kv, namespace, key, value)

    def get_kv(self, namespace: str, key: str) -> str | None:
        return self._portal.run(self._wrapped.get_kv, namespace, key)

    def delete_kv(self, namespace: str, key: str) -> None:
        """Nothing happens where there is no such key."""
        self._portal.run(self._wrapped.delete_kv, namespace, key)

    def list_kv(self, namespace: str) -> dict[str, str]:
        """All keys of a namespace; none when there is no such namespace."""
        return self._portal.run(self._wrapped.list_kv, namespace)

    def config(self) -> dict[str, dict[str, str]]:
        """The configuration of each name server, by address."""
        return self._portal.run(self._wrapped.config)

    def update_config(self, changes: Mapping[str, str]) -> None:
        """Change the configuration of each. Raises ResponseError for keys that can't be changed."""
        self._portal.run(self._wrapped.update_config, changes)

    def broker_members(self, cluster: str, broker_name: str) -> BrokerAddresses:
        """The brokers of a name; none when the name server doesn't know it."""
        return self._portal.run(self._wrapped.broker_members, cluster, broker_name)

    def register_topic(self, topic: str, queues: Iterable[TopicQueues]) -> None:
        """Have name servers know a topic of brokers before these register it themselves."""
        self._portal.run(self._wrapped.register_topic, topic, queues)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Have producers send nothing more to a broker, until it registers anew; how many topics that concerns."""
        return self._portal.run(self._wrapped.wipe_write_permission, broker_name)

    def add_write_permission(self, broker_name: str) -> int:
        """Let producers send to a broker again; how many topics that concerns."""
        return self._portal.run(self._wrapped.add_write_permission, broker_name)


class AccessAdmin(Wrapper[rockmq.client.admin.access.AccessAdmin]):
    """`broker` is the name of one, which means its master, or `host:port`. What needs a super user's key, or is done at a
    broker that keeps no users, raises ResponseError. Resources have the names that servers know, namespaces included.
    """

    def create_user(
        self,
        name: str,
        password: str,
        *,
        kind: UserKind = "Normal",
        enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Raises ResponseError when there is such a user already."""
        self._portal.run(
            self._wrapped.create_user, name, password, kind=kind, enabled=enabled, cluster=cluster, broker=broker
        )

    def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        kind: UserKind | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Change what is given, leave the rest. Raises ResponseError when there is no such user."""
        self._portal.run(
            self._wrapped.update_user, name, password=password, kind=kind, enabled=enabled, cluster=cluster, broker=broker
        )

    def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> None:
        """Delete the user with the rules for it. Nothing happens when there is none."""
        self._portal.run(self._wrapped.delete_user, name, cluster=cluster, broker=broker)

    def user(self, broker: str, name: str) -> User | None:
        return self._portal.run(self._wrapped.user, broker, name)

    def users(self, broker: str, containing: str | None = None) -> list[User]:
        """All users of a broker, or those in whose names a text is."""
        return self._portal.run(self._wrapped.users, broker, containing)

    def create_acl(
        self, subject: str, rules: Iterable[Rule], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Make rules for a subject, `User:name`; rules for other resources stay. Raises ResponseError when there is no such
        user, or a rule makes no sense.
        """
        self._portal.run(self._wrapped.create_acl, subject, rules, cluster=cluster, broker=broker)

    def update_acl(
        self, subject: str, rules: Iterable[Rule], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Change the rules for these resources; as `create_acl` where there are none."""
        self._portal.run(self._wrapped.update_acl, subject, rules, cluster=cluster, broker=broker)

    def delete_acl(
        self,
        subject: str,
        resource: str | None = None,
        *,
        kind: PolicyKind = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Delete a subject's rule for a resource, or all it has. Raises ResponseError when it has none."""
        self._portal.run(self._wrapped.delete_acl, subject, resource, kind=kind, cluster=cluster, broker=broker)

    def acl(self, broker: str, subject: str) -> Acl | None:
        """Raises ResponseError when there is no such user."""
        return self._portal.run(self._wrapped.acl, broker, subject)

    def acls(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[Acl]:
        """All rules of a broker, or those in whose subjects, and in whose resources, a text is."""
        return self._portal.run(self._wrapped.acls, broker, subject=subject, resource=resource)


class StorageAdmin(Wrapper[rockmq.client.admin.storage.StorageAdmin]):
    """`broker` is the name of one, which means its master, or `host:port`. What concerns RocksDB means nothing to brokers
    that don't use it; RockMQ's never do.
    """

    def timer_checkpoint(self, broker: str) -> TimerCheckpoint:
        """How far timers are."""
        return self._portal.run(self._wrapped.timer_checkpoint, broker)

    def timer_counts(self, broker: str) -> dict[str, TimerCount]:
        """How many messages wait for their time, by topic."""
        return self._portal.run(self._wrapped.timer_counts, broker)

    def delay_offsets(self, broker: str) -> dict[int, int]:
        """By delay level, the offset of the next message to deliver."""
        return self._portal.run(self._wrapped.delay_offsets, broker)

    def switch_timer_engine(self, broker: str, engine: Literal["files", "rocksdb"]) -> None:
        """Have timers kept in RocksDB from now on, or in files. Raises ResponseError when the broker wasn't started so that
        it could.
        """
        self._portal.run(self._wrapped.switch_timer_engine, broker, engine)

    def cold_reads(self, broker: str) -> ColdReads:
        """Who reads messages that aren't in memory any more, and how much of it groups may."""
        return self._portal.run(self._wrapped.cold_reads, broker)

    def limit_cold_reads(self, broker: str, limits: Mapping[str, int]) -> None:
        """Give groups bounds of their own, in bytes (`ColdReads`), until the broker ends."""
        self._portal.run(self._wrapped.limit_cold_reads, broker, limits)

    def unlimit_cold_reads(self, broker: str, group: str) -> None:
        """Let the bound of all others be that of the group again."""
        self._portal.run(self._wrapped.unlimit_cold_reads, broker, group)

    def set_read_ahead(self, broker: str, on: bool) -> None:
        """Whether the system is to read ahead in the commit log."""
        self._portal.run(self._wrapped.set_read_ahead, broker, on)

    def check_rocksdb_queues(self, broker: str, topic: str | None = None, *, since: int = 0) -> tuple[RocksCheck, str]:
        """Begin to compare queues in files with those in RocksDB, of a topic or of all, from messages stored at `since` (ms)
        on; how far that is, with the broker's words. Apache's broker always says "going on", and the rest in its log.
        """
        return self._portal.run(self._wrapped.check_rocksdb_queues, broker, topic, since=since)

    def export_rocksdb_tables(
        self, broker: str, tables: Iterable[RocksTable] = ("topics", "subscriptionGroups", "consumerOffsets")
    ) -> None:
        """Write tables that are in RocksDB into their JSON files, which a broker without it can read."""
        self._portal.run(self._wrapped.export_rocksdb_tables, broker, tables)

    def move_pops_to_files(self, broker: str) -> None:
        """Write what is popped and not acknowledged from RocksDB into the log, where a broker without it finds it."""
        self._portal.run(self._wrapped.move_pops_to_files, broker)


class ControllerAdmin(Wrapper[rockmq.client.admin.controllers.ControllerAdmin]):
    """`controller` is the `host:port` of any of a group. What concerns brokers is asked of the leader, and raises
    ClientError while there is none; what a controller doesn't do raises ResponseError, with one of the codes
    CONTROLLER_….
    """

    def metadata(self, controller: str) -> ControllerMetadata:
        """What this one knows of its group."""
        return self._portal.run(self._wrapped.metadata, controller)

    def replicas(self, controller: str, broker_names: Iterable[str]) -> dict[str, ReplicaSet]:
        """Masters and who has what they have, by broker name; without names that the controller doesn't know."""
        return self._portal.run(self._wrapped.replicas, controller, broker_names)

    def elect(self, controller: str, cluster: str, broker_name: str, broker_id: int) -> Elected:
        """Make a broker the master of its name. Raises ResponseError, CONTROLLER_MASTER_STILL_EXIST when it is that already,
        CONTROLLER_ELECT_MASTER_FAILED when it isn't there or isn't in sync.
        """
        return self._portal.run(self._wrapped.elect, controller, cluster, broker_name, broker_id)

    def forget(
        self,
        controller: str,
        cluster: str,
        broker_name: str,
        broker_ids: Iterable[int] | None = None,
        *,
        living: bool = False,
    ) -> None:
        """Have controllers know nothing more of brokers: these, or all of the name. Raises ResponseError
        (CONTROLLER_INVALID_CLEAN_BROKER_METADATA) when one is alive, except with `living`, or none is known.
        """
        self._portal.run(self._wrapped.forget, controller, cluster, broker_name, broker_ids, living=living)

    def config(self, controller: str) -> dict[str, str]:
        """The configuration of this one controller."""
        return self._portal.run(self._wrapped.config, controller)

    def update_config(self, controller: str, changes: Mapping[str, str]) -> None:
        """Change the configuration of this one. Raises ResponseError for keys that can't be changed."""
        self._portal.run(self._wrapped.update_config, controller, changes)


class ContainerAdmin(Wrapper[rockmq.client.admin.containers.ContainerAdmin]):
    """`container` is the `host:port` of one, which isn't that of a broker in it. `BrokerAdmin.config` and `update_config`
    are for its configuration, too.
    """

    def add(self, container: str, config_path: str) -> None:
        """Start a broker in the container, as a file there configures it. Raises ResponseError when it doesn't start."""
        self._portal.run(self._wrapped.add, container, config_path)

    def remove(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker of the container. Raises ResponseError (BROKER_NOT_EXIST) when there is none."""
        self._portal.run(self._wrapped.remove, container, cluster, broker_name, broker_id)


class StaticTopicAdmin(Wrapper[rockmq.client.admin.static_topics.StaticTopicAdmin]):
    def create(self, topic: str, queues: int, *, cluster: str | None = None) -> dict[str, QueueMapping]:
        """Make a static topic with so many queues, one after the other on all masters (of the cluster); what each was told.
        Raises ClientError when there is one of this name.
        """
        return self._portal.run(self._wrapped.create, topic, queues, cluster=cluster)

    def put(self, settings: TopicSettings, mapping: QueueMapping, *, force: bool = False) -> None:
        """Tell the master of `mapping.broker_name` its part. Raises ResponseError for a mapping that doesn't go with the one
        it has, unless `force` says to take it anyway. `settings.attributes` have no effect.
        """
        self._portal.run(self._wrapped.put, settings, mapping, force=force)

    def mappings(self, topic: str) -> dict[str, QueueMapping]:
        """What masters keep of the topic, by broker name; none for a topic that isn't static, or isn't there."""
        return self._portal.run(self._wrapped.mappings, topic)

    def placements(self, topic: str) -> dict[str, QueuePlacement]:
        """Where the topic's queues are now, as the name server knows it, by broker name; none for a topic that isn't static.
        Raises ResponseError (TOPIC_NOT_EXIST).
        """
        return self._portal.run(self._wrapped.placements, topic)


class LiteAdmin(Wrapper[rockmq.client.admin.lite.LiteAdmin]):
    """`broker` is the name of one, which means its master, or `host:port`. Raises ResponseError for topics that have no lite
    topics, and for groups that aren't bound to one that has.
    """

    def broker(self, broker: str) -> LiteBroker:
        """What the broker has of lite topics."""
        return self._portal.run(self._wrapped.broker, broker)

    def parent(self, broker: str, topic: str) -> LiteParent:
        """What the broker has of a topic's lite topics."""
        return self._portal.run(self._wrapped.parent, broker, topic)

    def topic(self, broker: str, parent: str, lite_topic: str) -> LiteTopic:
        return self._portal.run(self._wrapped.topic, broker, parent, lite_topic)

    def client(self, broker: str, parent: str, group: str, client_id: str) -> LiteClient:
        """Which lite topics a client has subscribed to; at most 10,000 names."""
        return self._portal.run(self._wrapped.client, broker, parent, group, client_id)

    def group(self, broker: str, group: str, lite_topic: str | None = None, *, most: int = 20) -> LiteGroup:
        """How far a group is behind: in one lite topic, or in all with the `most` where it is that most."""
        return self._portal.run(self._wrapped.group, broker, group, lite_topic, most=most)

    def dispatch(self, broker: str, group: str, client_id: str | None = None) -> None:
        """Have the broker tell a group's clients, or one, of all lite topics that have something for them."""
        self._portal.run(self._wrapped.dispatch, broker, group, client_id)


class Admin(Wrapper[rockmq.client.admin.Admin]):
    """The subjects that there are to administer."""

    @property
    def topics(self) -> TopicAdmin:
        return cast("TopicAdmin", wrap(self._wrapped.topics, self._portal))

    @property
    def groups(self) -> GroupAdmin:
        return cast("GroupAdmin", wrap(self._wrapped.groups, self._portal))

    @property
    def members(self) -> MemberAdmin:
        return cast("MemberAdmin", wrap(self._wrapped.members, self._portal))

    @property
    def messages(self) -> MessageAdmin:
        return cast("MessageAdmin", wrap(self._wrapped.messages, self._portal))

    @property
    def brokers(self) -> BrokerAdmin:
        return cast("BrokerAdmin", wrap(self._wrapped.brokers, self._portal))

    @property
    def name_servers(self) -> NameServerAdmin:
        return cast("NameServerAdmin", wrap(self._wrapped.name_servers, self._portal))

    @property
    def access(self) -> AccessAdmin:
        return cast("AccessAdmin", wrap(self._wrapped.access, self._portal))

    @property
    def storage(self) -> StorageAdmin:
        return cast("StorageAdmin", wrap(self._wrapped.storage, self._portal))

    @property
    def controllers(self) -> ControllerAdmin:
        return cast("ControllerAdmin", wrap(self._wrapped.controllers, self._portal))

    @property
    def containers(self) -> ContainerAdmin:
        return cast("ContainerAdmin", wrap(self._wrapped.containers, self._portal))

    @property
    def static_topics(self) -> StaticTopicAdmin:
        return cast("StaticTopicAdmin", wrap(self._wrapped.static_topics, self._portal))

    @property
    def lite(self) -> LiteAdmin:
        return cast("LiteAdmin", wrap(self._wrapped.lite, self._portal))


class Client(Wrapper[aio.Client]):
    """A connection to a RocketMQ cluster, for use with `with`.

    `name_servers` is `host:port`, several joined by `;`, `mq://host:port;host`, or a list; without it the environment
    variable NAMESRV_ADDR is used. `http://host:port/path` is a page whose first line has such addresses; it is read again
    every two minutes, by clients with a `unit_name` at `path-unit?nofix=1`. Host names are resolved at each connect.

    `tls=True` encrypts all connections and checks servers' certificates and names against the system's authorities; an
    `ssl.SSLContext` says otherwise, and has this client's own certificate if servers ask for one. As routes name brokers by
    IP address, their certificates have to be for that, or the context has `check_hostname=False`. `auth` signs every
    request. `namespace` is told to servers with every request (Apache's namespaceV2); `namespace_v1` is the older kind,
    which stands before the names of topics and groups at the servers (`tenant%orders`), and here nowhere.

    Brokers know a client as `ip@instance[@unit]`. Without an `instance_name` each client has one of its own; with one, for
    what must outlive the process, there may be one such client in a process at a time. Broadcast consumers keep their
    offsets under it (by default under `ip@DEFAULT`), so two such processes on one machine need a name each.

    Servers in the networks of `socks_proxies` are reached by SOCKS5: `{"10.0.0.0/8": SocksProxy("gate:1080")}`.
    Of several networks the smallest counts; `0.0.0.0/0` means all hosts, and names, which are in no other one, are resolved
    by the proxy then. The page behind a URL is read without.

    With `trace` the client tells what becomes of its messages, in messages of the topic RMQ_SYS_TRACE_TOPIC or another one
    that is named; `hooks` watch it otherwise (`rockmq.client.hooks`).

    Memory is bounded: at most `max_in_flight` messages and `max_in_flight_bytes` are on their way to brokers at a time, over
    that `Producer.send` waits; each connection holds an unfinished frame of at most 16 MiB; what consumers hold, they say.
    A producer costs some 2 KB, and the heartbeat of a client some 30 bytes for each of its groups.
    """

    @property
    def admin(self) -> Admin:
        return cast("Admin", wrap(self._wrapped.admin, self._portal))

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        tls: bool | ssl.SSLContext = False,
        socks_proxies: Mapping[str, SocksProxy] | None = None,
        auth: Key | None = None,
        namespace: str | None = None,
        namespace_v1: str | None = None,
        instance_name: str | None = None,
        client_ip: str | None = None,
        unit_name: str | None = None,
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
                tls=tls,
                socks_proxies=socks_proxies,
                auth=auth,
                namespace=namespace,
                namespace_v1=namespace_v1,
                instance_name=instance_name,
                client_ip=client_ip,
                unit_name=unit_name,
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
        """Begin; `with` does it. Connections are made when they are needed. Raises ClientError when another client of
        this process has the same id.
        """
        self._portal.run(self._wrapped.start)

    def close(self) -> None:
        """Close producers and consumers that are open, then the connections."""
        if self._portal.closed:
            return
        try:
            self._portal.run(self._wrapped.close)
        finally:
            self._portal.close()

    def on_state(self, callback: Callable[[StateChange], object]) -> None:
        """Have `callback` called, in the event loop, whenever a connection is made, lost, or made again.

        Sends and consumers need nobody's help then: they wait or fail within their own time, and go on.
        """
        self._portal.call(self._wrapped.on_state, callback)

    def __enter__(self) -> Self:
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

    def producer(self, group: str = "DEFAULT_ROCKMQ_PRODUCER", **options: Unpack[SendOptions]) -> Producer:
        """A producer, for use with `with`. The keywords are those of `SendOptions`: `timeout=1.0`,
        `compression="zstd"`, `linger=0.01` for batches that gather by themselves, `durability="disk"`, and more.
        """
        return cast("Producer", wrap(self._portal.call(self._wrapped.producer, group, **options), self._portal))

    def transaction_producer(
        self, group: str, checker: Callable[[StoredMessage], Decision], **options: Unpack[SendOptions]
    ) -> TransactionProducer:
        """A producer that sends in transactions, otherwise as `producer`. Brokers that weren't told what came of one ask
        `checker`, also of transactions that other processes of the group have begun.
        """
        return cast(
            "TransactionProducer",
            wrap(
                self._portal.call(self._wrapped.transaction_producer, group, self._portal.callback(checker), **options),
                self._portal,
            ),
        )

    def consumer(
        self, group: str, topics: Topics, *, decode: Decode[Body] | None = None, **options: Unpack[ConsumerOptions]
    ) -> Consumer[Body]:
        """A member of a consumer group, for use with `with`.

        `topics` maps topics to the tags wanted (`"paid || refund"`, `"*"` for all), to a SQL92 expression (`Sql`) or to a
        filter of the broker's (`BrokerFilter`), or lists topics. The keywords are those of `ConsumerOptions`: `order=True`
        for one message of a queue at a time, `broadcast=True` for all messages at every member, and more.

        With `decode` a message's `body` is what that makes of the bytes: a type that msgspec reads from JSON (a dataclass, a
        `msgspec.Struct`, a TypedDict), or a function.
        """
        return cast(
            "Consumer[Body]",
            wrap(self._portal.call(lambda: self._wrapped.consumer(group, topics, decode=decode, **options)), self._portal),
        )

    def pop_consumer(
        self,
        group: str,
        topics: Topics,
        *,
        decode: Decode[Body] | None = None,
        invisible: float = 60.0,
        max_in_flight: int = 96,
        from_where: Literal["first", "last"] = "last",
        order: bool = False,
        assigned: bool = False,
        max_reconsume_times: int = 16,
        drain_timeout: float = 10.0,
    ) -> PopConsumer[Body]:
        """A member of a group that shares messages instead of queues, for use with `with`.

        `invisible` is how many seconds a message is ours alone; one that isn't acknowledged by then comes again. At most
        `max_in_flight` messages of a topic and broker are popped and not ended: no more than handlers get done in that
        time, or the last of them are late before they are begun. `from_where` says where a group begins that
        is new to a topic. With `order` the messages of a queue come one after the other. With `assigned` brokers say what
        each member pops from, for groups whose request mode is POP; without, it is all queues. A message that failed
        once and then `max_reconsume_times` times again becomes a dead letter. `decode` is as of `consumer`.
        """
        return cast(
            "PopConsumer[Body]",
            wrap(
                self._portal.call(
                    lambda: self._wrapped.pop_consumer(
                        group,
                        topics,
                        decode=decode,
                        invisible=invisible,
                        max_in_flight=max_in_flight,
                        from_where=from_where,
                        order=order,
                        assigned=assigned,
                        max_reconsume_times=max_reconsume_times,
                        drain_timeout=drain_timeout,
                    )
                ),
                self._portal,
            ),
        )

    @overload
    def lite_pull_consumer(
        self, group: str, topics: Topics | None = None, *, decode: None = None, **options: Unpack[LitePullOptions]
    ) -> LitePullConsumer: ...
    @overload
    def lite_pull_consumer(
        self, group: str, topics: Topics | None = None, *, decode: Decode[Body], **options: Unpack[LitePullOptions]
    ) -> LitePullConsumer[PulledMessage[Body]]: ...
    def lite_pull_consumer(
        self,
        group: str,
        topics: Topics | None = None,
        *,
        decode: Decode[Any] | None = None,
        **options: Unpack[LitePullOptions],
    ) -> LitePullConsumer[Any]:
        """A consumer that is asked for messages, and that can be anywhere in its queues, for use with `with`.

        With `topics` it shares their queues with the group's other members; without, `assign` says which queues it reads.
        The keywords are those of `LitePullOptions`. With `decode`, which is as of `consumer`, it returns `PulledMessage`.
        """
        return cast(
            "LitePullConsumer[Any]",
            wrap(
                self._portal.call(lambda: self._wrapped.lite_pull_consumer(group, topics, decode=decode, **options)),
                self._portal,
            ),
        )

    def stats(self) -> ClientStats:
        """What this client has done so far, and what it has to do now."""
        return self._portal.call(self._wrapped.stats)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, by broker name and id. Raises RouteNotFound."""
        return self._portal.run(self._wrapped.queues, topic)

    def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues to send to, in the order in which keys are hashed to them; of order topics and static topics
        also those whose broker is away. Raises RouteNotFound.
        """
        return self._portal.run(self._wrapped.writable_queues, topic)

    def light_queues(self, topic: str, name: str) -> list[MessageQueue]:
        """The light queues of that name, in which messages of `topic` are that say so (`Message.also_in`): one at each of
        its brokers, whether something is in it already or not. `pull` and offsets take them, and `LitePullConsumer.assign`.

        A message that is read there has the queue's id and the offset in it, and the topic it was sent to. Raises
        RouteNotFound, and ClientError for a name that none can have, and with `namespace_v1`.
        """
        return self._portal.run(self._wrapped.light_queues, topic, name)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is kept."""
        return self._portal.run(self._wrapped.min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._portal.run(self._wrapped.max_offset, queue)

    def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at that time (milliseconds since the epoch) or later."""
        return self._portal.run(self._wrapped.offset_by_time, queue, timestamp)

    def earliest_stored(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is kept was stored (milliseconds since the epoch); None when there is none."""
        return self._portal.run(self._wrapped.earliest_stored, queue)

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
        broker_id: int = 0,
    ) -> PullResult:
        """Read messages from an offset on; at least one when there is one, however large.

        With `wait` the broker may hold the request so many seconds until something comes; that is on top of `timeout`.
        Tags are compared by the broker, by hash code; instead of tags it may be given a SQL92 expression. `broker_id` is the
        replica to ask, 0 the master and 1 the first slave; if there is none of that id another one is asked.
        """
        return self._portal.run(
            self._wrapped.pull, queue, offset, max_messages, max_bytes, timeout, wait=wait, tags=tags, broker_id=broker_id
        )

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
        rockmq.client.pop_message.PopProcessing: PopProcessing,
        aio.ConsumedMessage: ConsumedMessage,
        aio.PopMessage: PopMessage,
        aio.Transaction: Transaction,
        aio.Producer: Producer,
        aio.TransactionProducer: TransactionProducer,
        aio.Consumer: Consumer,
        aio.PopConsumer: PopConsumer,
        aio.LitePullConsumer: LitePullConsumer,
        rockmq.client.admin.topics.TopicAdmin: TopicAdmin,
        rockmq.client.admin.groups.GroupAdmin: GroupAdmin,
        rockmq.client.admin.members.MemberAdmin: MemberAdmin,
        rockmq.client.admin.messages.MessageAdmin: MessageAdmin,
        rockmq.client.admin.brokers.BrokerAdmin: BrokerAdmin,
        rockmq.client.admin.names.NameServerAdmin: NameServerAdmin,
        rockmq.client.admin.access.AccessAdmin: AccessAdmin,
        rockmq.client.admin.storage.StorageAdmin: StorageAdmin,
        rockmq.client.admin.controllers.ControllerAdmin: ControllerAdmin,
        rockmq.client.admin.containers.ContainerAdmin: ContainerAdmin,
        rockmq.client.admin.static_topics.StaticTopicAdmin: StaticTopicAdmin,
        rockmq.client.admin.lite.LiteAdmin: LiteAdmin,
        rockmq.client.admin.Admin: Admin,
        aio.Client: Client,
    }
)
