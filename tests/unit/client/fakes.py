"""Name servers and brokers that do as a test tells them, on real sockets."""

import struct
from collections.abc import Callable
from typing import Any

from rockmq.base.clock import SystemClock
from rockmq.config import properties
from rockmq.protocol import codec, json
from rockmq.protocol import headers as declared
from rockmq.protocol import properties as names
from rockmq.protocol.bodies.client import ConsumerList, HeartbeatData, LockBatchBody, LockedQueues
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import GetBrokerConfig
from rockmq.protocol.headers.client import GetConsumerList, HeartBeat, LockBatch, UnlockBatch, UnregisterClient
from rockmq.protocol.headers.offset import GetMaxOffset, OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.headers.route import GetRouteInfo
from rockmq.protocol.headers.send import SendMessage, SendResponse
from rockmq.protocol.headers.transaction import EndTransaction
from rockmq.protocol.message import decode_batch
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Dispatcher, Handler, Refusal
from rockmq.remoting.server import RemotingServer

assert declared
HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 1)


class Fake:
    """Listens, keeps what it was asked, answers by a table of handlers."""

    def __init__(self, handlers: dict[int, Handler]) -> None:
        self.asked: list[Command] = []
        self._handlers = dict(handlers)
        self._dispatch = Dispatcher(self._handlers)
        self._server: RemotingServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def handle(self, code: int, handler: Handler) -> None:
        """Answer requests of this code by `handler` from now on."""
        self._handlers[code] = handler
        self._dispatch = Dispatcher(self._handlers)

    @property
    def connections(self) -> list[Connection]:
        assert self._server is not None
        return self._server.connections

    async def start(self) -> None:
        """Listen; again on the same port after a `stop`."""

        fake = self

        class Keeping(Dispatcher):
            def __call__(self, request: Command, connection: Connection) -> None:
                fake.asked.append(request)
                fake._dispatch(request, connection)

        def make() -> Connection:
            return Connection(Keeping({}), SystemClock())

        server = self._server = RemotingServer("127.0.0.1", [self.port], make, SystemClock())
        await server.start()
        self.port = server.port

    async def stop(self) -> None:
        """Be gone, as after a crash."""
        server, self._server = self._server, None
        if server is not None:
            for connection in server.connections:
                connection.transport.abort()
            await server.close()

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.asked)


class FakeNames(Fake):
    """A name server with the routes in `routes`."""

    def __init__(self) -> None:
        super().__init__({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})
        self.routes: dict[str, TopicRouteData] = {}

    def add(self, topic: str, *brokers: "FakeBroker", queues: int = 4, perm: int = 6) -> None:
        self.routes[topic] = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=each.name, cluster="c", broker_addrs={"0": each.address}) for each in brokers
            ],
            queue_datas=[
                QueueData(broker_name=each.name, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
                for each in brokers
            ],
        )

    def _route(self, header: GetRouteInfo, request: Command, connection: Connection) -> Answer:
        found = self.routes.get(header.topic)
        if found is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {header.topic}")
        return codec.reply(request, body=json.encode(found))


class FakeBroker(Fake):
    """Stores sends in `stored`; a test replaces `on_send` and `on_pull` to answer otherwise."""

    def __init__(self, name: str = "a") -> None:
        super().__init__(
            {
                RequestCode.SEND_MESSAGE_V2: self._send,
                RequestCode.SEND_BATCH_MESSAGE: self._send,
                RequestCode.PULL_MESSAGE: self._pull,
                RequestCode.LITE_PULL_MESSAGE: self._pull,
                RequestCode.HEART_BEAT: self._heartbeat,
                RequestCode.UNREGISTER_CLIENT: self._unregister,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
                RequestCode.QUERY_CONSUMER_OFFSET: self._query,
                RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
                RequestCode.GET_MAX_OFFSET: self._max,
                RequestCode.END_TRANSACTION: self._end,
                RequestCode.LOCK_BATCH_MQ: self._lock,
                RequestCode.UNLOCK_BATCH_MQ: self._unlock,
                RequestCode.GET_BROKER_CONFIG: self._config,
            }
        )
        self.name = name
        self.stored: dict[tuple[str, int], list[bytes]] = {}
        self.headers: list[SendMessage] = []
        self.pulls: list[Pull] = []
        self.ends: list[tuple[EndTransaction, Command]] = []
        self.beats: list[HeartbeatData] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: list[str] | None = None
        self.locks: dict[MessageQueue, str] = {}
        self.config: dict[str, str] | None = None
        self.on_send: Callable[[SendMessage, Command], Any] | None = None
        self.on_pull: Callable[[Pull, Command, Connection], Any] | None = None
        self.on_end: Callable[[EndTransaction, Command], Any] | None = None

    def _send(self, header: SendMessage, request: Command, connection: Connection) -> Any:
        self.headers.append(header)
        if self.on_send is not None:
            answer = self.on_send(header, request)
            if answer is not None:
                return None if answer == "silence" else answer
        return self.store(header, request)

    def store(self, header: SendMessage, request: Command, code: int = 0) -> Command:
        queue = self.stored.setdefault((header.topic, header.queue_id), [])
        first = len(queue)
        batch = [body for _, body, _ in decode_batch(request.body)] if header.batch else [request.body]
        queue.extend(batch)
        ids = ",".join(f"{self.name.upper()}{first + index}" for index in range(len(batch)))
        return codec.reply(request, code, None, SendResponse(msg_id=ids, queue_id=header.queue_id, queue_offset=first))

    def bodies(self, topic: str = "T") -> list[bytes]:
        return [body for (name, _), bodies in sorted(self.stored.items()) if name == topic for body in bodies]

    def _pull(self, header: Pull, request: Command, connection: Connection) -> Any:
        self.pulls.append(header)
        if self.on_pull is not None:
            answer = self.on_pull(header, request, connection)
            if answer is not None:
                return None if answer == "silence" else answer
        bodies = self.stored.get((header.topic, header.queue_id), [])
        found = bodies[header.queue_offset : header.queue_offset + header.max_msg_nums]
        records = [
            record(header.topic, header.queue_id, header.queue_offset + index, body) for index, body in enumerate(found)
        ]
        # A pull that finds nothing is parked for good: the tests that need more send first.
        return pulled(request, header.queue_offset, records, len(bodies)) if records else None

    def _end(self, header: EndTransaction, request: Command, connection: Connection) -> Any:
        self.ends.append((header, request))
        answer = self.on_end(header, request) if self.on_end is not None else codec.reply(request)
        return None if answer == "silence" else answer

    def _lock(self, header: LockBatch, request: Command, connection: Connection) -> Command:
        asked = json.decode(request.body, LockBatchBody, "lock")
        granted = [queue for queue in asked.mq_set if self.locks.setdefault(queue, asked.client_id) == asked.client_id]
        return codec.reply(request, body=json.encode(LockedQueues(queues=granted)))

    def _unlock(self, header: UnlockBatch, request: Command, connection: Connection) -> Command:
        asked = json.decode(request.body, LockBatchBody, "unlock")
        for queue in asked.mq_set:
            if self.locks.get(queue) == asked.client_id:
                del self.locks[queue]
        return codec.reply(request)

    def _config(self, header: GetBrokerConfig, request: Command, connection: Connection) -> Command:
        if self.config is None:
            raise Refusal(ResponseCode.NO_PERMISSION, "not for you")
        return codec.reply(request, body=properties.write(self.config).encode())

    def _heartbeat(self, header: HeartBeat, request: Command, connection: Connection) -> Command:
        self.beats.append(json.decode(request.body, HeartbeatData, "heartbeat"))
        return codec.reply(request)

    def _unregister(self, header: UnregisterClient, request: Command, connection: Connection) -> Command:
        return codec.reply(request)

    def _members(self, header: GetConsumerList, request: Command, connection: Connection) -> Command:
        members = self.members if self.members is not None else sorted({beat.client_id for beat in self.beats})
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "nobody")
        return codec.reply(request, body=json.encode(ConsumerList(consumer_id_list=members)))

    def _query(self, header: QueryConsumerOffset, request: Command, connection: Connection) -> Command:
        offset = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, "none")
        return codec.reply(request, header=OffsetResponse(offset))

    def _update(self, header: UpdateConsumerOffset, request: Command, connection: Connection) -> Command:
        self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return codec.reply(request)

    def _max(self, header: GetMaxOffset, request: Command, connection: Connection) -> Command:
        return codec.reply(request, header=OffsetResponse(len(self.stored.get((header.topic, header.queue_id), []))))


def refusal(request: Command, code: int, remark: str = "because") -> Command:
    return codec.reply(request, code, remark)


def pulled(request: Command, offset: int, records: list[bytes], end: int, next_offset: int | None = None) -> Command:
    """An answer that found records."""
    header = PullResponse(0, offset + len(records) if next_offset is None else next_offset, 0, end)
    return codec.reply(request, header=header, body=b"".join(records))


def empty(request: Command, code: int, next_offset: int) -> Command:
    """An answer without records."""
    return codec.reply(request, code, "status", PullResponse(0, next_offset, 0, next_offset))


def record(
    topic: str, queue_id: int, offset: int, body: bytes, carried: dict[str, str] | None = None, reconsume_times: int = 0
) -> bytes:
    """A stored message as it lies in the log (V1)."""
    text = names.encode(carried or {})
    name = topic.encode()
    tail = struct.pack(">i", len(body)) + body + struct.pack(">b", len(name)) + name + struct.pack(">h", len(text)) + text
    fixed = struct.pack(">iiiqqi", 0, queue_id, 0, offset, offset * 1000, 0)
    times = struct.pack(">q", 1) + HOST + struct.pack(">q", 2) + HOST + struct.pack(">iq", reconsume_times, 0)
    size = 8 + len(fixed) + len(times) + len(tail)
    return struct.pack(">iI", size, 0xDAA320A7) + fixed + times + tail
