"""Keeps every name server told about this broker (BrokerController.java, BrokerOuterAPI.java; protocol spec, 3.3).

With each name server one long-lived connection: a name server drops a broker whose connection ends. The whole topic table
goes out at the start and every period; on a change too while it is small, of a larger one only what changed
(registerIncrementBrokerData). Changes that come together go out together. Name servers know nothing of each other, so each
is served by itself and one that is down holds up nobody.

A table over `WHOLE_MAX` topics goes out in pieces of so many, since as a whole it may not fit a frame, and would keep the
name server, perhaps in this process, from all else (enableSplitRegistration). A name server takes the topics it knows only
from a registration of another version than the last, so each piece has a version of its own when all must be taken, and the
last one has the table's. A name server with deleteTopicWithBrokerRegistration drops what a registration lacks: it is told
the whole table in one compressed registration each time. Whether it has that is asked before anything is told in part, each
time, as it can be changed while it runs.
"""

import asyncio
import logging
import struct
import zlib

import msgspec

from rockmq.base.address import split_list
from rockmq.base.errors import ConfigError, ConnectError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.broker.topics import WHOLE_MAX, TopicTable
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.bodies.route import RegisterBody
from rockmq.protocol.bodies.route import TopicTable as TopicTableBody
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.registration import RegisterBroker, UnregisterBroker
from rockmq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

PERIOD_SECONDS = (10.0, 60.0)
RETRY_SECONDS = 2.0
UNREGISTER_TIMEOUT = 1.0
_BOTH = Permission.READ | Permission.WRITE


class _NameServer:
    """What a name server must be told: all topics if it is `behind` or has to get the `whole`, else those that changed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wake = asyncio.Event()
        self.behind = True
        self.whole = False
        self.changed: set[str] = set()
        self.drops_missing = False
        """What it said last, for the log."""


class Registration:
    """Registers with all name servers from `start` to `close`."""

    def __init__(self, options: BrokerOptions, address: str, topics: TopicTable, remoting: RemotingClient) -> None:
        self._options = options
        self._address = address
        self._topics = topics
        self._remoting = remoting
        self._name_servers = [_NameServer(each) for each in split_list(options.identity.namesrv_addr)]
        low, high = PERIOD_SECONDS
        self._period = min(max(options.registration.register_name_server_period / 1000, low), high)
        self._timeout = options.registration.register_broker_timeout_mills / 1000
        self._tasks = Tasks()
        topics.on_change.append(self.changed)
        remoting.on_lost.append(self._lost)

    async def start(self) -> None:
        """Register with every name server once, so that clients find this broker, then keep at it. A name server that
        can't be reached is tried again at once, as it may be this process that was slow, busy with its start; then later."""
        await asyncio.gather(*(self._begin(server) for server in self._name_servers))
        for server in self._name_servers:
            self._tasks.start(self._keep(server), f"registration with {server.address}")

    @property
    def missing(self) -> list[str]:
        """The name servers that don't know this broker as it is; all of them before the first registration."""
        return [server.address for server in self._name_servers if server.behind]

    @property
    def is_known(self) -> bool:
        """Whether clients can find this broker: one name server knows it, or there are none to know it."""
        return not self._name_servers or len(self.missing) < len(self._name_servers)

    def changed(self, topic: str) -> None:
        for server in self._name_servers:
            if not server.behind:
                server.changed.add(topic)
                server.wake.set()

    def anew(self) -> None:
        """Tell the whole table to all name servers, now."""
        for server in self._name_servers:
            server.whole = True
            server.wake.set()

    def _lost(self, address: str) -> None:
        for server in self._name_servers:
            if server.address == address:
                server.behind = True
                server.wake.set()

    async def _begin(self, server: _NameServer) -> None:
        if isinstance(await self._try(server), ConnectError):
            await self._try(server)

    async def _keep(self, server: _NameServer) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + (RETRY_SECONDS if server.behind else self._period)
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await server.wake.wait()
            except TimeoutError:
                pass
            whole = loop.time() >= due
            server.wake.clear()
            if await self._try(server, periodic=whole) is not None:
                server.wake.clear()  # that the connection was lost on the way says nothing new
                due = loop.time() + RETRY_SECONDS
            elif whole:
                due = loop.time() + self._period

    async def _try(self, server: _NameServer, *, periodic: bool = False) -> RockMQError | None:
        """Tell it what it must be told; what went wrong."""
        behind, server.behind = server.behind, False
        anew, server.whole = behind or server.whole, False
        changed, server.changed = server.changed, set()
        try:
            in_one = len(self._topics.all()) > WHOLE_MAX and await self._drops_missing(server)
            table = self._topics.all()
            whole = in_one or anew or periodic or len(table) <= WHOLE_MAX
            found = (table.get(name) for name in changed)
            topics = list(table.values()) if whole else [config for config in found if config is not None]
            topics = self._permitted(topics)
            if in_one:
                await self._tell(server, topics, self._topics.version, compress=True)
            else:
                await self._tell_in_pieces(server, topics, anew=anew or bool(changed))
        except RockMQError as error:
            server.behind = True
            log.warning("a registration failed: %s", error, extra={"namesrv": server.address})
            return error
        return None

    def _permitted(self, topics: list[TopicConfig]) -> list[TopicConfig]:
        """The topics with no more permission than the broker has (BrokerController.registerBrokerAll)."""
        permission = self._options.topics.broker_permission
        if permission & _BOTH == _BOTH:
            return topics
        return [msgspec.structs.replace(each, perm=each.perm & permission) for each in topics]

    async def _drops_missing(self, server: _NameServer) -> bool:
        """Whether what a registration lacks is dropped there; taken for granted of one that doesn't say."""
        request = codec.request(RequestCode.GET_NAMESRV_CONFIG)
        response = await self._remoting.invoke(server.address, request, self._timeout)
        drops = True
        if response.code == ResponseCode.SUCCESS:
            try:
                drops = properties.read_bytes(response.body).get("deleteTopicWithBrokerRegistration") == "true"
            except ConfigError as error:
                log.warning("the name server's configuration can't be read: %s", error, extra={"namesrv": server.address})
        if drops and not server.drops_missing:
            log.warning(
                "the name server drops topics that a registration lacks, or doesn't say: all go in one",
                extra={"namesrv": server.address},
            )
        server.drops_missing = drops
        return drops

    async def _tell_in_pieces(self, server: _NameServer, topics: list[TopicConfig], *, anew: bool) -> None:
        version = self._topics.version
        starts = range(0, len(topics), WHOLE_MAX)
        for left, start in zip(reversed(range(len(starts))), starts, strict=True):
            # No table has a version like this one, so it differs from whatever the name server has.
            own = msgspec.structs.replace(version, counter=version.counter + (left << 32)) if anew else version
            compress = self._options.registration.compressed_register
            await self._tell(server, topics[start : start + WHOLE_MAX], own, compress=compress)

    async def _tell(self, server: _NameServer, topics: list[TopicConfig], version: DataVersion, *, compress: bool) -> None:
        identity = self._options.identity
        body = await asyncio.to_thread(_compressed if compress else _plain, topics, version)
        header = RegisterBroker(
            broker_name=identity.broker_name,
            broker_addr=self._address,
            cluster_name=identity.broker_cluster_name,
            # Replication isn't served yet; name servers want some address here.
            ha_server_addr=identity.broker_ip2 or self._address,
            broker_id=identity.broker_id,
            compressed=compress,
            body_crc32=zlib.crc32(body) & 0x7FFF_FFFF,
        )
        await self._remoting.ask(server.address, codec.request(RequestCode.REGISTER_BROKER, header, body), self._timeout)

    async def close(self) -> None:
        """Unregister everywhere, so that clients go elsewhere at once."""
        await self._tasks.close()
        await asyncio.gather(*(self._unregister(server.address) for server in self._name_servers))

    async def _unregister(self, server: str) -> None:
        identity = self._options.identity
        header = UnregisterBroker(
            broker_name=identity.broker_name,
            broker_addr=self._address,
            cluster_name=identity.broker_cluster_name,
            broker_id=identity.broker_id,
        )
        try:
            await self._remoting.ask(server, codec.request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_TIMEOUT)
        except RockMQError as error:
            log.info("could not unregister: %s", error, extra={"namesrv": server})


def _plain(topics: list[TopicConfig], version: DataVersion) -> bytes:
    table = TopicTableBody(topic_config_table={topic.topic_name: topic for topic in topics}, data_version=version)
    return json.encode(RegisterBody(topic_config_serialize_wrapper=table))


def _compressed(topics: list[TopicConfig], version: DataVersion) -> bytes:
    """The compressed body of a registration: a zlib stream of parts with their lengths (protocol spec, 3.3)."""
    parts = [_part(json.encode(version)), struct.pack(">i", len(topics))]
    for topic in topics:
        words = (
            topic.topic_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.topic_filter_type,
            json.encode(topic.attributes).decode(),
        )
        parts.append(_part(" ".join(map(str, words)).encode()))
    parts += [_part(b"[]"), struct.pack(">i", 0)]
    return zlib.compress(b"".join(parts), 9)


def _part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
