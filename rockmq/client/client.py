"""The client: one runtime, from which producers and consumers are made."""

import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Unpack, overload

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ClientClosed, ClientError
from rockmq.client.acl import Key
from rockmq.client.admin import Admin
from rockmq.client.consumer import Consumer
from rockmq.client.consumer_options import ConsumerOptions
from rockmq.client.decoding import Body, Decode
from rockmq.client.hooks import Hook, Hooks
from rockmq.client.in_flight import InFlight
from rockmq.client.instance import Instance
from rockmq.client.lite_pull import LitePullConsumer, PulledMessage
from rockmq.client.lite_pull_options import LitePullOptions
from rockmq.client.namespaces import Prefix, request_fields
from rockmq.client.namesrv import parse
from rockmq.client.offsets import FromWhere
from rockmq.client.options import SendOptions, options_of
from rockmq.client.pop_consumer import PopConsumer
from rockmq.client.producer import Producer
from rockmq.client.reading import Reading
from rockmq.client.states import StateChange
from rockmq.client.stats import ClientStats
from rockmq.client.subscription import Topics
from rockmq.client.trace import TOPIC as TRACE_TOPIC
from rockmq.client.trace import MessageTrace, message_trace
from rockmq.client.transactions import Checker, TransactionProducer
from rockmq.protocol import topics as topic_names
from rockmq.protocol.codec import Serializer
from rockmq.remoting.socks import SocksProxy

log = logging.getLogger(__name__)

_SERIALIZERS = {"json": Serializer.JSON, "binary": Serializer.ROCKETMQ}


class Client(Reading):
    """A connection to a RocketMQ cluster, for use with `async with`.

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
        if max_in_flight < 1 or max_in_flight_bytes < 1:
            bounds = f"max_in_flight={max_in_flight}, max_in_flight_bytes={max_in_flight_bytes}"
            raise ClientError(f"{bounds}: expected 1 or more of each")
        if serializer not in _SERIALIZERS:
            raise ClientError(f"serializer is {serializer!r}: expected {', '.join(map(repr, _SERIALIZERS))}")
        super().__init__(
            Instance(
                parse(name_servers),
                clock or SystemClock(),
                serializer=_SERIALIZERS[serializer],
                in_flight=InFlight(max_in_flight, max_in_flight_bytes),
                instance_name=instance_name,
                client_ip=client_ip,
                unit_name=unit_name,
                tls=ssl.create_default_context() if tls is True else tls or None,
                proxies=socks_proxies,
                auth=auth,
                fields=request_fields(namespace),
                prefix=Prefix(namespace_v1) if namespace_v1 else None,
            )
        )
        self.admin = Admin(self._instance)
        """What administrators do."""
        self._trace: MessageTrace | None = None
        if trace:
            topic = trace if isinstance(trace, str) else TRACE_TOPIC
            self._trace = message_trace(self._instance, topic)
            hooks = [*hooks, self._trace]
        if hooks:
            self._instance.hooks = Hooks(hooks, self._instance.clock, unwatched={self._trace.topic} if self._trace else ())
        self._started = False
        self._made: list[Producer | Consumer[Any] | PopConsumer[Any] | LitePullConsumer[Any]] = []

    @property
    def client_id(self) -> str:
        """The name by which brokers know this client."""
        return self._instance.client_id

    async def start(self) -> None:
        """Begin; `async with` does it. Connections are made when they are needed. Raises ClientError when another client of
        this process has the same id."""
        self._instance.check_open()
        if self._started:
            raise ClientClosed("a client can be started once")
        self._instance.start()
        self._started = True
        if self._trace is not None:
            try:
                await self._trace.start()
            except BaseException:
                await self._instance.close()
                raise

    async def close(self) -> None:
        """Close producers and consumers that are open, then the connections."""
        async with contextlib.AsyncExitStack() as last_first:
            last_first.push_async_callback(self._instance.close)
            if self._trace is not None:
                last_first.push_async_callback(self._trace.close)
            for made in self._made:
                last_first.push_async_callback(made.close)

    def on_state(self, callback: Callable[[StateChange], object]) -> None:
        """Have `callback` called, in the event loop, whenever a connection is made, lost, or made again.

        Sends and consumers need nobody's help then: they wait or fail within their own time, and go on.
        """
        self._instance.on_state.append(callback)

    async def __aenter__(self) -> "Client":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def producer(self, group: str = "DEFAULT_ROCKMQ_PRODUCER", **options: Unpack[SendOptions]) -> Producer:
        """A producer, for use with `async with`. The keywords are those of `SendOptions`: `timeout=1.0`,
        `compression="zstd"`, `linger=0.01` for batches that gather by themselves, `durability="disk"`, and more."""
        self._check(group)
        made = Producer(self._instance, group, options_of(**options))
        self._keep(made)
        return made

    def transaction_producer(self, group: str, checker: Checker, **options: Unpack[SendOptions]) -> TransactionProducer:
        """A producer that sends in transactions, otherwise as `producer`. Brokers that weren't told what came of one ask
        `checker`, also of transactions that other processes of the group have begun."""
        self._check(group)
        made = TransactionProducer(self._instance, group, checker, options_of(**options))
        self._keep(made)
        return made

    def consumer(
        self, group: str, topics: Topics, *, decode: Decode[Body] | None = None, **options: Unpack[ConsumerOptions]
    ) -> Consumer[Body]:
        """A member of a consumer group, for use with `async with`.

        `topics` maps topics to the tags wanted (`"paid || refund"`, `"*"` for all), to a SQL92 expression (`Sql`) or to a
        filter of the broker's (`BrokerFilter`), or lists topics. The keywords are those of `ConsumerOptions`: `order=True`
        for one message of a queue at a time, `broadcast=True` for all messages at every member, and more.

        With `decode` a message's `body` is what that makes of the bytes: a type that msgspec reads from JSON (a dataclass, a
        `msgspec.Struct`, a TypedDict), or a function.
        """
        self._check(group, options.get("from_where", "last"))
        made = Consumer(self._instance, group, topics, decode, **options)
        self._keep(made)
        return made

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
        """A member of a group that shares messages instead of queues, for use with `async with`.

        `invisible` is how many seconds a message is ours alone; one that isn't acknowledged by then comes again. At most
        `max_in_flight` messages of a topic and broker are popped and not ended: no more than handlers get done in that
        time, or the last of them are late before they are begun. `from_where` says where a group begins that
        is new to a topic. With `order` the messages of a queue come one after the other. With `assigned` brokers say what
        each member pops from, for groups whose request mode is POP; without, it is all queues. A message that failed
        once and then `max_reconsume_times` times again becomes a dead letter. `decode` is as of `consumer`.
        """
        self._check(group)
        made = PopConsumer(
            self._instance,
            group,
            topics,
            decode,
            invisible=invisible,
            max_in_flight=max_in_flight,
            from_where=from_where,
            order=order,
            assigned=assigned,
            max_reconsume_times=max_reconsume_times,
            drain_timeout=drain_timeout,
        )
        self._keep(made)
        return made

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
        """A consumer that is asked for messages, and that can be anywhere in its queues, for use with `async with`.

        With `topics` it shares their queues with the group's other members; without, `assign` says which queues it reads.
        The keywords are those of `LitePullOptions`. With `decode`, which is as of `consumer`, it returns `PulledMessage`.
        """
        self._check(group, options.get("from_where", "last"))
        made: LitePullConsumer[Any] = LitePullConsumer(self._instance, group, topics, decode, **options)
        self._keep(made)
        return made

    def stats(self) -> ClientStats:
        """What this client has done so far, and what it has to do now."""
        counted, in_flight = self._instance.stats, self._instance.in_flight
        return ClientStats(
            sends={topic: work.snapshot() for topic, work in counted.sends.items()},
            consumption={key: work.snapshot() for key, work in counted.consumption.items()},
            queues=self._instance.queue_stats(),
            in_flight=in_flight.messages,
            in_flight_bytes=in_flight.bytes,
            trace_dropped=self._trace.dropped if self._trace is not None else 0,
        )

    def _keep(self, made: Producer | Consumer[Any] | PopConsumer[Any] | LitePullConsumer[Any]) -> None:
        self._made = [each for each in self._made if not each.closed]
        self._made.append(made)

    def _check(self, group: str, from_where: FromWhere = "last") -> None:
        self._instance.check_open()
        if not self._started:
            raise ClientClosed("this client was not started: use `async with`")
        fault = topic_names.group_fault(group)
        if fault is not None:
            raise ClientError(fault)
        if from_where not in ("first", "last") and not isinstance(from_where, datetime):
            raise ClientError(f"from_where is {from_where!r}: expected 'first', 'last' or a datetime")
