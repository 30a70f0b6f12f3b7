"""Which servers an administrator's question goes to."""

import asyncio
from collections.abc import Mapping

from rockmq.base.errors import RouteNotFound
from rockmq.client.instance import API_TIMEOUT, Instance
from rockmq.protocol import json
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
        request = self.instance.request(RequestCode.GET_BROKER_CLUSTER_INFO, GetClusterInfo())
        answer = await self.instance.names.ask(request, API_TIMEOUT)
        return json.decode(answer.body, ClusterInfo, "cluster info")

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Addresses of the masters, of one cluster or of all, by broker name. Raises RouteNotFound when there is none."""
        info = await self.info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise RouteNotFound(f"no cluster {cluster!r}; the name server knows {known}")
        chosen = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
        found = _masters({name: info.broker_addr_table[name] for name in chosen if name in info.broker_addr_table})
        if not found:
            raise RouteNotFound("the name server knows no master broker")
        return found

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
        return await self.instance.names.ask(self.instance.request(code, header), TIMEOUT)


def _masters(brokers: Mapping[str, BrokerData]) -> dict[str, str]:
    return {name: data.broker_addrs[MASTER] for name, data in brokers.items() if MASTER in data.broker_addrs}
