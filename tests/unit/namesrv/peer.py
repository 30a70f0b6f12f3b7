"""A client or broker of a name server under test, and what brokers say."""

import asyncio
import json

from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers import registration as registering
from rockmq.protocol.headers import route as routes
from rockmq.remoting.client import RemotingClient

MASTER = "10.0.0.1:10911"


class Peer:
    """One connection to a name server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remoting = RemotingClient()

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        version: int = codec.VERSION,
        fields: dict[str, str] | None = None,
    ) -> Command:
        """The answer to a request of a client of this version, with more fields than its header declares."""
        plain = codec.request(code, header, body)
        request = Versioned(code, 0, fields=plain.fields | (fields or {}), body=body, version=version)
        return await self.remoting.invoke(self.address, request, 5)

    async def good(
        self, code: RequestCode, header: Header | None = None, body: bytes = b"", **more: dict[str, str] | int
    ) -> Command:
        """As `ask`, for an answer that must be a success."""
        answer = await self.ask(code, header, body, **more)  # type: ignore[arg-type]
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def route(self, topic: str = "T", **more: dict[str, str] | int) -> Command:
        return await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, routes.GetRouteInfo(topic=topic), **more)  # type: ignore[arg-type]

    async def until_gone(self, topic: str = "T") -> None:
        """Return when the topic has no route any more."""
        async with asyncio.timeout(30):
            while (await self.route(topic)).code == ResponseCode.SUCCESS:  # the event is in the server
                await asyncio.sleep(0.01)


class Versioned(Command):
    """A request that keeps its version; the core writes our own, so it is changed in the frame's text."""

    def encode(self) -> bytes:
        frame = Command.encode(self)
        size = int.from_bytes(frame[5:8])
        head = json.loads(frame[8 : 8 + size]) | {"version": self.version}
        text = json.dumps(head).encode()
        rest = frame[8 + size :]
        return (4 + len(text) + len(rest)).to_bytes(4) + len(text).to_bytes(4) + text + rest


def registration(address: str = MASTER, broker_id: int = 0, **more: object) -> registering.RegisterBroker:
    fields = {
        "broker_name": "a",
        "broker_addr": address,
        "cluster_name": "C",
        "ha_server_addr": address.replace("10911", "10912"),
        "broker_id": broker_id,
    }
    return registering.RegisterBroker(**(fields | more))  # type: ignore[arg-type]


def topics(*names: str) -> bytes:
    """A registration's plain body."""
    table = {name: {"topicName": name, "readQueueNums": 8, "writeQueueNums": 8} for name in names or ("T", "U")}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 5}
    return json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()
