"""The client: one runtime, from which producers and consumers are made."""

import contextlib
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Literal

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ClientClosed, ClientError
from rockmq.client import producer as producers
from rockmq.client.admin import Admin
from rockmq.client.consumer import Consumer
from rockmq.client.hooks import Hook, Hooks
from rockmq.client.in_flight import InFlight
from rockmq.client.instance import Instance
from rockmq.client.namesrv import parse
from rockmq.client.offsets import FromWhere
from rockmq.client.producer import Producer
from rockmq.client.stats import ClientStats
from rockmq.client.subscription import Topics
from rockmq.client.trace import TOPIC as TRACE_TOPIC
from rockmq.client.trace import MessageTrace, message_trace
from rockmq.client.transactions import Checker, TransactionProducer
from rockmq.protocol import topics as topic_names
from rockmq.protocol.codec import Serializer
from rockmq.protocol.compression import Compression

log = logging.getLogger(__name__)

_COMPRESSIONS = {"zlib": Compression.ZLIB, "lz4": Compression.LZ4, "zstd": Compression.ZSTD, "none": None}
_SERIALIZERS = {"json": Serializer.JSON, "binary": Serializer.ROCKETMQ}


class Client(Admin):
    """A connection to a RocketMQ cluster, for use with `async with`.

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
        super().__init__(
            Instance(
                parse(name_servers),
                clock or SystemClock(),
                serializer=_SERIALIZERS[serializer],
                in_flight=InFlight(max_in_flight, max_in_flight_bytes),
            )
        )
        self._trace: MessageTrace | None = None
        if trace:
            topic = trace if isinstance(trace, str) else TRACE_TOPIC
            self._trace = message_trace(self._instance, topic)
            hooks = [*hooks, self._trace]
        if hooks:
            self._instance.hooks = Hooks(hooks, self._instance.clock, unwatched={self._trace.topic} if self._trace else ())
        self._started = False
        self._made: list[Producer | Consumer] = []

    @property
    def client_id(self) -> str:
        """The name by which brokers know this client."""
        return self._instance.client_id

    async def start(self) -> None:
        """Begin; `async with` does it. Connections are made when they are needed."""
        self._instance.check_open()
        if self._started:
            raise ClientClosed("a client can be started once")
        self._started = True
        self._instance.start()
        if self._trace is not None:
            await self._trace.start()

    async def close(self) -> None:
        """Close producers and consumers that are open, then the connections."""
        async with contextlib.AsyncExitStack() as last_first:
            last_first.push_async_callback(self._instance.close)
            if self._trace is not None:
                last_first.push_async_callback(self._trace.close)
            for made in self._made:
                last_first.push_async_callback(made.close)

    async def __aenter__(self) -> "Client":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        """A producer, for use with `async with`. `timeout` is for a whole send with its `retries`; bodies of
        `compress_from` bytes on are compressed if that makes them smaller."""
        self._check(group)
        made = Producer(
            self._instance,
            group,
            timeout=timeout,
            retries=retries,
            compression=_COMPRESSIONS[compression],
            compress_from=compress_from,
            message_size_max=message_size_max,
        )
        self._keep(made)
        return made

    def transaction_producer(
        self,
        group: str,
        checker: Checker,
        *,
        timeout: float = 3.0,
        retries: int = 2,
        compression: Literal["zlib", "lz4", "zstd", "none"] = "zlib",
        compress_from: int = producers.COMPRESS_FROM,
        message_size_max: int = producers.MESSAGE_SIZE_MAX,
    ) -> TransactionProducer:
        """A producer that sends in transactions, otherwise as `producer`. Brokers that weren't told what came of one ask
        `checker`, also of transactions that other processes of the group have begun."""
        self._check(group)
        made = TransactionProducer(
            self._instance,
            group,
            checker,
            timeout=timeout,
            retries=retries,
            compression=_COMPRESSIONS[compression],
            compress_from=compress_from,
            message_size_max=message_size_max,
        )
        self._keep(made)
        return made

    def consumer(
        self,
        group: str,
        topics: Topics,
        *,
        max_in_flight: int = 256,
        from_where: FromWhere = "last",
        drain_timeout: float = 10.0,
    ) -> Consumer:
        """A member of a consumer group, for use with `async with`.

        `topics` maps topics to the tags wanted (`"paid || refund"`, `"*"` for all), to a SQL92 expression (`Sql`) or to a
        filter of the broker's (`BrokerFilter`), or lists topics. `max_in_flight` bounds the messages that were taken and not
        finished. `from_where` says where the group begins in a queue in which it has no offset: "first", "last", or a time;
        brokers begin young queues at the first message whatever it says.
        """
        self._check(group)
        made = Consumer(
            self._instance,
            group,
            topics,
            max_in_flight=max_in_flight,
            from_where=from_where,
            drain_timeout=drain_timeout,
        )
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

    def _keep(self, made: Producer | Consumer) -> None:
        self._made = [each for each in self._made if not each.closed]
        self._made.append(made)

    def _check(self, group: str) -> None:
        self._instance.check_open()
        if not self._started:
            raise ClientClosed("this client was not started: use `async with`")
        fault = topic_names.group_fault(group)
        if fault is not None:
            raise ClientError(fault)
