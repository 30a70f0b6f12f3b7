"""What all producers and consumers of one client share: connections, routes, heartbeats (MQClientInstance.java; spec 1).

A broker knows a client by its heartbeats. They go to every broker of the routes in use (slaves only when something is
consumed) every 30 s, when a producer or consumer starts or its queues change, and as the first request of every new
connection, so that a broker that was away knows its consumers again before they pull. A broker whose connection was lost
is called every 3 s, as it may have something to ask or tell us; one that stands in no route any more is left.
"""

import asyncio
import logging
import os
import re
import ssl
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from rockmq.base import address
from rockmq.base.clock import Clock
from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RequestTimeout, ResponseError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client.acl import Key, stamp
from rockmq.client.channel import Channel
from rockmq.client.heartbeat import Beat, Understood, Versions
from rockmq.client.hooks import Hooks
from rockmq.client.in_flight import InFlight
from rockmq.client.namespaces import Prefix
from rockmq.client.namesrv import NameServers
from rockmq.client.requests import Requests
from rockmq.client.routes import Routes
from rockmq.client.states import State, StateChange
from rockmq.client.stats import QueueStats, Stats
from rockmq.protocol import codec, json, properties
from rockmq.protocol.bodies.client import ConsumerData, DirectResult, ResetOffsets
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command, Serializer
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers.admin import ConsumeDirectly, GetConsumerRunningInfo, GetConsumerStatus, ResetConsumerOffset
from rockmq.protocol.headers.client import HeartBeat, NotifyConsumerIdsChanged, UnregisterClient
from rockmq.protocol.headers.transaction import CheckTransactionState
from rockmq.protocol.ids import UniqueIds
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Handler, Refusal
from rockmq.remoting.socks import SocksProxy

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
RECONNECT_SECONDS = 3.0
API_TIMEOUT = 3.0
_LEGAL_NAME = re.compile(r"[A-Za-z0-9_#-][A-Za-z0-9_.#-]*")
"""Of an instance or a unit: it is part of the client id, and of a path."""

_instances: "weakref.WeakSet[Instance]" = weakref.WeakSet()
"""All of this process, to find two of one client id, and those that a fork has copied."""


class Member(Protocol):
    """A consumer, as the runtime sees it."""

    group: str

    def heartbeat_data(self) -> ConsumerData:
        """The group and its subscriptions, as brokers shall know them."""

    def members_changed(self) -> None:
        """The group's members or the brokers' queues changed."""

    def reconnected(self) -> None:
        """A broker that was lost is there again."""

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """Where it is in the queues of a topic that are its own."""

    async def consume_directly(self, message: StoredMessage) -> DirectResult:
        """Have the application work on a message now; what it made of it."""

    def reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere in these queues."""

    def queue_stats(self) -> tuple[QueueStats, ...]:
        """How it is with the queues that are its own, if it keeps their offsets."""

    def running_info(self, *, stacks: bool = False) -> bytes:
        """What an administrator sees (ConsumerRunningInfo.java); with what all tasks and threads are doing if asked for."""


class Instance:
    """The runtime of one client, from `start` to `close`.

    Brokers know it by its client id, `ip@instance`, with `@unit` behind it if there is one (ClientConfig.buildMQClientId).
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        clock: Clock,
        *,
        serializer: Serializer,
        in_flight: InFlight,
        instance_name: str | None = None,
        client_ip: str | None = None,
        unit_name: str | None = None,
        tls: ssl.SSLContext | None = None,
        proxies: Mapping[str, SocksProxy] | None = None,
        auth: Key | None = None,
        fields: dict[str, str] | None = None,
        prefix: Prefix | None = None,
    ) -> None:
        self.clock = clock
        self.in_flight = in_flight
        self.serializer = serializer
        for name, said in (("instance_name", instance_name), ("unit_name", unit_name or None)):
            if said is not None and not _LEGAL_NAME.fullmatch(said):
                raise ClientError(f"{name}={said!r}: expected letters, digits and any of _ . # -")
        self.ip = client_ip or address.local_ip()
        self.client_id = f"{self.ip}@{instance_name or f'{os.getpid()}#{time.monotonic_ns()}'}"
        self.stable_id = f"{self.ip}@{instance_name or 'DEFAULT'}"
        """Names what must outlive this process, as Java's broadcast consumers do."""
        if unit_name:
            self.client_id += f"@{unit_name}"
            self.stable_id += f"@{unit_name}"
        self.unique_ids = UniqueIds(address.to_bytes(self.ip, 0)[:-4], clock)
        self.tasks = Tasks()
        self.requests = Requests(clock)
        self.prefix = prefix
        handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.requests.received,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
        }
        outgoing = stamp(fields or {}, auth)
        if prefix is not None:
            handlers = {code: prefix.handler(handler) for code, handler in handlers.items()}
            outgoing = prefix.outgoing_then(outgoing)
        self.remoting = RemotingClient(handlers, clock, tls=tls, proxies=proxies, outgoing=outgoing)
        self.remoting.on_connect.append(self._connected)
        self.names = NameServers(name_servers, self.remoting, unit_name)
        self.routes = Routes(self.names, self.tasks, self.request, self._route_changed)
        self._producers: Counter[str] = Counter()
        self._consumers: dict[str, Member] = {}
        self.hooks: Hooks | None = None
        self.stats = Stats()
        self.transaction_checks: dict[str, Callable[[CheckTransactionState, StoredMessage, Connection], None]] = {}
        """By producer group, who answers a broker that asks what came of a transaction."""
        self._channels: dict[str, Channel] = {}
        self._understood = Understood()
        self._versions = Versions()
        self._lost: set[str] = set()
        self._silent: set[str] = set()
        self._heartbeat_soon: asyncio.Event
        self.on_state: list[Callable[[StateChange], object]] = []
        self.running = False
        self.closed = False
        self.forked = False

    def start(self) -> None:
        """Raises ClientError when another client of this process has the same id."""
        if any(other.alive and other.client_id == self.client_id for other in _instances):
            raise ClientError(
                f"this process has a client {self.client_id} already, and brokers couldn't tell the two apart: use that one,"
                " which makes any number of producers and consumers, or give an instance_name of its own"
            )
        _instances.add(self)
        self.running = True
        self._loop = asyncio.get_running_loop()
        self._heartbeat_soon = asyncio.Event()
        self.names.start(self.tasks)
        self.routes.start()
        self.tasks.start(self._keep_beating(), "heartbeats")
        self.tasks.every(RECONNECT_SECONDS, self._reconnect, "reconnecting")

    @property
    def alive(self) -> bool:
        """Whether it runs: the loop of one that nobody has closed may have ended."""
        return self.running and not self._loop.is_closed()

    async def close(self) -> None:
        """Give up everything; producers and consumers must be closed before."""
        if self.closed:
            return
        self.closed = True
        self.running = False
        try:
            await self.tasks.close()
        finally:
            self.routes.close()
            for channel in self._channels.values():
                channel.flush()
            await self.remoting.close()

    def check_open(self) -> None:
        """Raises ClientClosed."""
        if self.forked:
            raise ClientClosed(
                "this client belongs to the process that made it: after a fork, make one of your own in the child"
            )
        if self.closed:
            raise ClientClosed("this client is closed")

    # Requests

    def request(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Raises ClientClosed, also before the start."""
        if not self.running:
            self.check_open()
            raise ClientClosed("this client was not started: use `async with`")
        return codec.request(code, header, body, serializer=self.serializer)

    async def ask(self, to: str, code: int, header: Header, body: bytes = b"", timeout: float = API_TIMEOUT) -> Command:
        """The answer of the server at `to`. Raises ResponseError for its refusal, RemotingError."""
        answer = await self.remoting.ask(to, self.request(code, header, body), timeout)
        return answer if self.prefix is None else self.prefix.answer(code, answer)

    async def ask_name_server(self, code: int, header: Header, timeout: float = API_TIMEOUT) -> Command:
        """The answer of one name server. Raises ResponseError for its refusal, ConnectError when none answers."""
        try:
            answer = await self.names.ask(self.request(code, header), timeout)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ResponseError(error.code, f"{error.remark.strip()}; is it a name server?", error.address) from None
            raise
        return answer if self.prefix is None else self.prefix.answer(code, answer)

    def stored(self, data: bytes, broker_name: str, *, keep_faulty: bool = False) -> list[StoredMessage]:
        """The messages in a broker's answer, or in its request, as `decode_stored`."""
        messages = decode_stored(data, broker_name, keep_faulty=keep_faulty)
        return messages if self.prefix is None else self.prefix.stored(messages)

    # Connections

    def channel(self, to: str) -> Channel | None:
        """The open connection to an address, if there is one."""
        channel = self._channels.get(to)
        return channel if channel is not None and channel.open else None

    def _connected(self, to: str, connection: Connection) -> None:
        self._channels[to] = channel = Channel(connection)
        connection.on_close.append(lambda lost: self._connection_lost(to, lost))
        again = to in self._lost
        self._lost.discard(to)
        if self.routes.is_broker(to):
            if self._producers or self._consumers:
                beat = self._new_beat()
                told = channel.start(self.request(RequestCode.HEART_BEAT, HeartBeat(), beat.full))
                channel.flush()  # before any request of those who waited for the connection
                told.add_done_callback(lambda answer: self._beaten(to, beat, answer))
            if again:
                for consumer in self._consumers.values():
                    consumer.reconnected()
        self._tell(to, State.RECONNECTED if again else State.CONNECTED)

    def _connection_lost(self, to: str, connection: Connection) -> None:
        channel = self._channels.get(to)
        if channel is None or channel.connection is not connection:
            return  # it was retired, and another one is in its place
        del self._channels[to]
        self._understood.forget(to)
        if self.closed:
            return
        if self.routes.is_broker(to):
            log.warning("the connection to broker %s is lost", to)
            self._lost.add(to)
        elif to in self.names.addresses:
            self._lost.add(to)
        self._tell(to, State.DISCONNECTED)

    def _tell(self, to: str, state: State) -> None:
        role: Literal["broker", "name server"] = "name server" if to in self.names.addresses else "broker"
        for callback in self.on_state:
            try:
                callback(StateChange(role, to, state))
            except Exception:  # the user's code
                log.exception("a callback for state changes failed")

    async def _reconnect(self) -> None:
        """Call brokers whose connection was lost; whoever connects tells them who we are."""
        if self._producers or self._consumers:
            await asyncio.gather(*map(self._call, self._lost & self.routes.addresses(slaves=bool(self._consumers))))

    async def _call(self, to: str) -> None:
        try:
            await self.remoting.connect(to)
        except RemotingError as error:
            self._unbeaten(to, error)

    def _leave_strangers(self) -> None:
        """Close connections to servers that stand in no route any more, when they have answered."""
        for to in self.remoting.connected:
            if not self.routes.is_broker(to) and to not in self.names.addresses:
                self.remoting.retire(to)
        known = self.routes.addresses(slaves=True).union(self.names.addresses)
        self._lost &= known
        self._silent &= known

    # Producers and consumers

    def add_producer(self, group: str) -> None:
        self._producers[group] += 1
        self._heartbeat_soon.set()

    def add_consumer(self, consumer: Member) -> None:
        """Make the consumer part of heartbeats. Raises ClientError when this client consumes the group already: brokers
        couldn't tell the two apart."""
        if consumer.group in self._consumers:
            raise ClientError(f"this client already has a consumer of group {consumer.group!r}; use a second Client")
        self._consumers[consumer.group] = consumer

    def queue_stats(self) -> dict[str, tuple[QueueStats, ...]]:
        """By group, for what is consumed."""
        return {group: consumer.queue_stats() for group, consumer in self._consumers.items()}

    async def remove(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell every broker we are connected to that the group is no longer ours."""
        if producer is not None:
            self._producers[producer] -= 1
            if self._producers[producer] > 0:
                return
            del self._producers[producer]
        if consumer is not None:
            self._consumers.pop(consumer, None)
            self._versions.forget(consumer)
        header = UnregisterClient(client_id=self.client_id, producer_group=producer, consumer_group=consumer)
        connected = [each for each in self.routes.addresses(slaves=True) if self.channel(each) is not None]
        await asyncio.gather(*(self._unregister(each, header) for each in connected))

    async def _unregister(self, to: str, header: UnregisterClient) -> None:
        try:
            await self.ask(to, RequestCode.UNREGISTER_CLIENT, header)
        except (RemotingError, ResponseError) as error:
            log.info("broker %s wasn't told that we leave: %s", to, error)

    # Heartbeats

    def heartbeat_soon(self) -> None:
        self._heartbeat_soon.set()

    async def _keep_beating(self) -> None:
        while True:
            regular = False
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._heartbeat_soon.wait()
            except TimeoutError:
                regular = True
            self._heartbeat_soon.clear()
            try:
                self._leave_strangers()
                await self.heartbeat(regular=regular)
            except Exception:  # without heartbeats brokers forget this client, so none may be the last
                log.exception("a heartbeat failed; the next one comes in %g s", HEARTBEAT_SECONDS)

    async def heartbeat(self, *, regular: bool = False) -> None:
        """Tell all brokers of the routes in use who we are, and wait for their answers. A `regular` one, without an event
        behind it, is short for those who know the rest."""
        if self._producers or self._consumers:
            beat = self._new_beat()
            brokers = self.routes.addresses(slaves=bool(self._consumers))
            await asyncio.gather(*(self._beat(to, beat, regular) for to in brokers))

    def _new_beat(self) -> Beat:
        consumers = [self._versions.of(consumer.heartbeat_data()) for consumer in self._consumers.values()]
        return Beat(self.client_id, self._producers, consumers)

    async def _beat(self, to: str, beat: Beat, regular: bool) -> None:
        body = self._understood.body(to, beat) if regular else beat.full
        try:
            answer = await self.ask(to, RequestCode.HEART_BEAT, HeartBeat(), body, API_TIMEOUT)
        except RockMQError as error:
            if isinstance(error, RequestTimeout):
                self.remoting.disconnect(to)  # perhaps the other end is gone without a word
            self._unbeaten(to, error)
        else:
            self._understood.answered(to, beat, answer)
            self._silent.discard(to)

    def _beaten(self, to: str, beat: Beat, answer: "asyncio.Future[Command]") -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None and answer.result().code != ResponseCode.SUCCESS:
            error = ResponseError(answer.result().code, answer.result().remark, to)
        if error is not None:
            self._unbeaten(to, error)
        else:
            self._understood.answered(to, beat, answer.result())
            self._silent.discard(to)

    def _unbeaten(self, to: str, error: BaseException) -> None:
        if to not in self._silent:
            self._silent.add(to)
            log.warning("broker %s takes no heartbeat: %s", to, error)

    # What servers ask and tell

    def _route_changed(self, topic: str) -> None:
        self._heartbeat_soon.set()
        for consumer in self._consumers.values():
            consumer.members_changed()

    def _members_changed(self, header: NotifyConsumerIdsChanged, request: Command, connection: Connection) -> None:
        consumer = self._consumers.get(header.consumer_group)
        if consumer is not None:
            consumer.members_changed()

    def _running_info(self, header: GetConsumerRunningInfo, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=self._consumer(header.consumer_group).running_info(stacks=header.jstack_enable))

    def _status(self, header: GetConsumerStatus, request: Command, connection: Connection) -> Command:
        found = self._consumer(header.group).status(header.topic)
        table = json.object_map({queue.key(): offset for queue, offset in found.items()})
        return codec.reply(request, body=b'{"messageQueueTable":' + table + b"}")

    async def _consume_directly(self, header: ConsumeDirectly, request: Command, connection: Connection) -> Command:
        consumer = self._consumer(header.consumer_group)
        (message,) = self.stored(request.body, header.broker_name or "")
        started = self.clock.monotonic()
        result = await consumer.consume_directly(message)
        result.spent_time_mills = round((self.clock.monotonic() - started) * 1000)
        return codec.reply(request, body=json.encode(result))

    def _reset(self, header: ResetConsumerOffset, request: Command, connection: Connection) -> None:
        """Brokers that don't reset offsets themselves have each member do it (MQClientInstance.resetOffset)."""
        body = json.decode(request.body, ResetOffsets, "offsets to go on at")
        offsets = {MessageQueue.parse(key): offset for key, offset in body.offset_table.items()}
        self._consumer(header.group).reset(header.topic, offsets)

    def _consumer(self, group: str) -> Member:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the consumer group <{group}> isn't at this client")
        return consumer

    def _check_transaction(self, header: CheckTransactionState, request: Command, connection: Connection) -> None:
        for message in self.stored(request.body, header.bname or "", keep_faulty=True):
            if message.fault is not None:
                log.error("broker %s asks for a transaction that nobody can judge: %s", connection.peer, message.fault)
                continue
            group = message.properties.get(properties.PGROUP, "")
            check = self.transaction_checks.get(group)
            if check is None:
                log.warning(
                    "broker %s asks for a transaction of group %r, which isn't at this client", connection.peer, group
                )
            else:
                check(header, message, connection)


def _after_fork() -> None:
    for instance in _instances:
        instance.forked = True
        instance.running = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
