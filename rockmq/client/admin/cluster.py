"""Which servers an administrator's question goes to."""

import asyncio
from collections.abc import Mapping

from rockmq.base import address
from rockmq.base.errors import ClientError, ProtocolError, RouteNotFound
from rockmq.client.instance import Instance
from rockmq.protocol import ids, json
from rockmq.protocol.bodies.route import BrokerData, ClusterInfo
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers.route import GetClusterInfo

TIMEOUT = 5.0
"""For one server's answer, as Apache's tools have it."""
MASTER = "0"


class Cluster:
    """Brokers and name servers as an administrator addresses them. A broker is given by its name, which means its master,
    or by `host:port`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    async def info(self) -> ClusterInfo:
        """All brokers that the name server knows. Raises RemotingError."""
        answer = await self.instance.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, GetClusterInfo())
        return json.decode(answer.body, ClusterInfo, "cluster info")

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Addresses of the masters, of one cluster or of all, by broker name. Raises RouteNotFound when there is none."""
        found = _masters(await self._brokers(cluster))
        if not found:
            raise RouteNotFound("the name server knows no master broker")
        return found

    async def members(self, cluster: str | None = None) -> dict[str, str]:
        """Addresses of masters and slaves, of one cluster or of all, by broker name and id. Raises RouteNotFound when there
        is none."""
        brokers = await self._brokers(cluster)
        found = {f"{name}:{each}": to for name, data in brokers.items() for each, to in data.broker_addrs.items()}
        if not found:
            raise RouteNotFound("the name server knows no broker")
        return found

    async def _brokers(self, cluster: str | None) -> dict[str, BrokerData]:
        info = await self.info()
        if cluster is None:
            return info.broker_addr_table
        if cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise RouteNotFound(f"no cluster {cluster!r}; the name server knows {known}")
        names = info.cluster_addr_table[cluster]
        return {name: info.broker_addr_table[name] for name in names if name in info.broker_addr_table}

    async def chosen(self, cluster: str | None, broker: str | None) -> dict[str, str]:
        """Address of the one broker if it is named, else of the masters; as `masters` and `address`."""
        return await self.masters(cluster) if broker is None else {broker: await self.address(broker)}

    async def masters_of(self, topic: str) -> dict[str, str]:
        """Addresses of the masters that have the topic, by broker name. Raises RouteNotFound."""
        route = await self.instance.routes.fetch(topic)
        found = _masters({data.broker_name: data for data in route.data.broker_datas})
        if not found:
            raise RouteNotFound(f"no broker of topic {topic!r} has a master")
        return found

    async def address(self, broker: str) -> str:
        """Raises RouteNotFound for a name that no master has."""
        if ":" in broker:
            return broker
        masters = await self.masters()
        if broker not in masters:
            raise RouteNotFound(f"no broker {broker!r} has a master; there are {', '.join(sorted(masters))}")
        return masters[broker]

    def at_servers(self, name: str) -> str:
        """The name of a topic or group as servers know it: what is no field of its own isn't seen by the namespace."""
        prefix = self.instance.prefix
        return name if prefix is None else prefix.put(name)

    def at_client(self, name: str) -> str:
        """The name as this client knows it, where the namespace can't be taken from an answer's body."""
        prefix = self.instance.prefix
        return name if prefix is None else prefix.take(name)

    async def ask(self, broker: str, code: int, header: Header, body: bytes = b"", timeout: float = TIMEOUT) -> Command:
        """One broker's answer. Raises RouteNotFound, ResponseError, RemotingError."""
        return await self.instance.ask(await self.address(broker), code, header, body, timeout)

    async def ask_all(self, to: Mapping[str, str], code: int, header: Header, body: bytes = b"") -> dict[str, Command]:
        """The answers of all of them, by the same keys. Raises ResponseError, RemotingError, when all have been asked."""
        asked = [self.instance.ask(each, code, header, body, TIMEOUT) for each in to.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return {name: answer for name, answer in zip(to, answers, strict=True) if isinstance(answer, Command)}

    async def tell_name_servers(self, code: int, header: Header, body: bytes = b"") -> dict[str, Command]:
        """The answers of every name server, by address: what they are told, they don't tell each other."""
        return await self.ask_all({each: each for each in self.instance.names.addresses}, code, header, body)

    async def ask_name_server(self, code: int, header: Header) -> Command:
        """The answer of one name server."""
        return await self.instance.ask_name_server(code, header, TIMEOUT)


def _masters(brokers: Mapping[str, BrokerData]) -> dict[str, str]:
    return {name: data.broker_addrs[MASTER] for name, data in brokers.items() if MASTER in data.broker_addrs}


def place_of(message_id: str) -> tuple[str, int]:
    """The address of the broker that gave a message this id, and where the message is in its log. Raises ClientError."""
    try:
        ip, port, position = ids.parse_offset_id(message_id)
    except ProtocolError as error:
        raise ClientError(str(error)) from None
    return address.join(ip, port), position
