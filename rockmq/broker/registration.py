"""Keeps every name server told about this broker (BrokerOuterAPI.java; protocol spec, 3.3).

With each name server one long-lived connection: a name server drops a broker whose connection ends. The whole topic table
goes out at the start, on every change (changes that come together go out together), and every period. Name servers know
nothing of each other, so each is served by itself and one that is down holds up nobody.
"""

import asyncio
import logging
import struct
import zlib

from rockmq.base.address import split_list
from rockmq.base.errors import RockMQError
from rockmq.base.tasks import Tasks
from rockmq.broker.topics import TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.route import RegisterBody
from rockmq.protocol.bodies.route import TopicTable as TopicTableBody
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.registration import RegisterBroker, UnregisterBroker
from rockmq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

PERIOD_SECONDS = (10.0, 60.0)
RETRY_SECONDS = 2.0
UNREGISTER_TIMEOUT = 1.0


class Registration:
    """Registers with all name servers from `start` to `close`."""

    def __init__(self, options: BrokerOptions, address: str, topics: TopicTable, remoting: RemotingClient) -> None:
        self._options = options
        self._address = address
        self._topics = topics
        self._remoting = remoting
        self._name_servers = split_list(options.identity.namesrv_addr)
        low, high = PERIOD_SECONDS
        self._period = min(max(options.registration.register_name_server_period / 1000, low), high)
        self._timeout = options.registration.register_broker_timeout_mills / 1000
        self._changes = {server: asyncio.Event() for server in self._name_servers}
        self._tasks = Tasks()
        topics.on_change.append(self.changed)
        remoting.on_lost.append(self._lost)

    async def start(self) -> None:
        """Register with every name server once, so that clients find this broker, then keep at it. A name server that
        can't be reached is tried again later."""
        await asyncio.gather(*(self._try(server) for server in self._name_servers))
        for server in self._name_servers:
            self._tasks.start(self._keep(server), f"registration with {server}")

    def changed(self) -> None:
        for event in self._changes.values():
            event.set()

    def _lost(self, server: str) -> None:
        if server in self._changes:
            self._changes[server].set()

    async def _keep(self, server: str) -> None:
        change = self._changes[server]
        wait = self._period
        while True:
            try:
                async with asyncio.timeout(wait):
                    await change.wait()
            except TimeoutError:
                pass
            change.clear()
            wait = self._period if await self._try(server) else RETRY_SECONDS

    async def _try(self, server: str) -> bool:
        try:
            await self._remoting.ask(server, self._request(), self._timeout)
        except RockMQError as error:
            log.warning("registration with name server %s failed: %s", server, error)
            return False
        return True

    def _request(self) -> codec.Command:
        identity = self._options.identity
        compress = self._options.registration.compressed_register
        table = TopicTableBody(topic_config_table=self._topics.all(), data_version=self._topics.version)
        body = _compressed(table) if compress else json.encode(RegisterBody(topic_config_serialize_wrapper=table))
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
        return codec.request(RequestCode.REGISTER_BROKER, header, body)

    async def close(self) -> None:
        """Unregister everywhere, so that clients go elsewhere at once."""
        await self._tasks.close()
        await asyncio.gather(*(self._unregister(server) for server in self._name_servers))

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
            log.info("could not unregister from name server %s: %s", server, error)


def _compressed(table: TopicTableBody) -> bytes:
    """The compressed body of a registration: a zlib stream of parts with their lengths (protocol spec, 3.3)."""
    parts = [_part(json.encode(table.data_version)), struct.pack(">i", len(table.topic_config_table))]
    for topic in table.topic_config_table.values():
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
