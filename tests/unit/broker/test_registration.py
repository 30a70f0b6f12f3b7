"""The broker and its name servers, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rockmq.base import address
from rockmq.base.errors import ConfigError, ConnectError
from rockmq.broker.registration import Registration as Sender
from rockmq.broker.topics import WHOLE_MAX
from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv.route_table import Master, Registration, RegistrationRefused, RouteTable
from rockmq.namesrv.server import NameServer
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import CreateTopic, UpdateBrokerConfig
from rockmq.protocol.headers.route import GetRouteInfo
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.dispatch import Refusal
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request


def name_server(root: Path, port: int = 0) -> NameServer:
    settings = {"bindAddress": "127.0.0.1", "listenPort": str(port), "kvConfigPath": str(root / "kv.json")}
    return NameServer(load(NamesrvOptions, settings))


async def route(remote: RemotingClient, server: str, topic: str) -> codec.Command:
    header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
    return await remote.invoke(server, codec.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), 5)


async def route_appears(remote: RemotingClient, server: str, topic: str) -> dict[str, object]:
    async with asyncio.timeout(30):
        while True:
            response = await route(remote, server, topic)
            if response.code == ResponseCode.SUCCESS:
                found: dict[str, object] = json.loads(response.body)
                return found
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("compressed", ["false", "true"])
async def test_topics_reach_every_name_server(tmp_path: Path, remote: RemotingClient, compressed: str) -> None:
    first, second = name_server(tmp_path / "1"), name_server(tmp_path / "2")
    await first.start()
    await second.start()
    servers = f"{first.address};{second.address}"
    async with running(tmp_path / "b", namesrvAddr=servers, compressedRegister=compressed) as broker:
        for server in (first, second):
            assert (await route(remote, server.address, "TBW102")).code == ResponseCode.SUCCESS, "known when started"
        header = CreateTopic(topic="T", default_topic="TBW102", read_queue_nums=3, write_queue_nums=2, perm=6)
        await remote.ask(broker.address, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 5)
        for server in (first, second):
            found = await route_appears(remote, server.address, "T")
            assert found["queueDatas"] == [
                {"brokerName": "broker-a", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 2}
            ]
            assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}  # type: ignore[index]
    for server in (first, second):
        assert (await route(remote, server.address, "T")).code == ResponseCode.TOPIC_NOT_EXIST, "unregistered by close"
        await server.close()


async def test_broker_comes_back_to_a_name_server_that_restarts(tmp_path: Path, remote: RemotingClient) -> None:
    server = name_server(tmp_path / "1")
    await server.start()
    where = server.address
    async with running(tmp_path / "b", namesrvAddr=where) as broker:
        await server.close()
        again = name_server(tmp_path / "1", address.split(where)[1])
        await again.start()
        found = await route_appears(remote, where, "TBW102")
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}  # type: ignore[index]
        await again.close()


async def test_a_first_connection_that_fails_is_followed_by_another_at_once(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, failed = Sender._tell, []

    async def fail_once(registration: Sender, *arguments: Any, **named: bool) -> None:
        if not failed:
            failed.append(registration)
            raise ConnectError("this process was slow")
        await tell(registration, *arguments, **named)

    monkeypatch.setattr(Sender, "_tell", fail_once)
    server = name_server(tmp_path / "1")
    await server.start()
    async with running(tmp_path / "b", namesrvAddr=server.address):
        assert failed
        assert (await route(remote, server.address, "TBW102")).code == ResponseCode.SUCCESS, "known when started"
    await server.close()


async def test_missing_name_server_does_not_keep_the_broker_from_serving(tmp_path: Path) -> None:
    async with running(tmp_path / "b", namesrvAddr="127.0.0.1:1;localhost:2") as broker:
        assert broker.address


MANY = 2 * WHOLE_MAX + 300


async def create(remote: RemotingClient, broker: str, topic: str, queues: int = 4) -> None:
    await remote.ask(broker, create_request(topic, queues=queues), 20)


async def create_many(remote: RemotingClient, broker: str) -> None:
    for start in range(0, MANY, 500):
        await asyncio.gather(*(create(remote, broker, f"t{each}") for each in range(start, min(start + 500, MANY))))


async def queues_become(remote: RemotingClient, server: str, topic: str, queues: int) -> None:
    async with asyncio.timeout(30):
        while (await route_appears(remote, server, topic))["queueDatas"][0]["readQueueNums"] != queues:  # type: ignore[index]
            await asyncio.sleep(0.02)


async def missing(remote: RemotingClient, server: str) -> list[int]:
    answers = await asyncio.gather(*(route(remote, server, f"t{each}") for each in range(MANY)))
    return [each for each, answer in enumerate(answers) if answer.code != ResponseCode.SUCCESS]


@pytest.fixture
def registrations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(topics, counter of the version) of each registration that name servers in this process take."""
    taken: list[tuple[int, int]] = []
    register = RouteTable.register

    def noting(table: RouteTable, it: Registration, *arguments: object, **named: bool) -> Master:
        taken.append((len(it.topics), it.version.counter))
        return register(table, it, *arguments, **named)

    monkeypatch.setattr(RouteTable, "register", noting)
    return taken


async def test_of_a_large_table_only_changes_are_told(
    tmp_path: Path, remote: RemotingClient, registrations: list[tuple[int, int]]
) -> None:
    server = name_server(tmp_path / "1")
    await server.start()
    where = server.address
    async with running(tmp_path / "b", namesrvAddr=where) as broker:
        await create_many(remote, broker.address)
        await route_appears(remote, where, f"t{MANY - 1}")
        assert await missing(remote, where) == []
        registrations.clear()
        await create(remote, broker.address, "t7", queues=9)
        await queues_become(remote, where, "t7", 9)
        assert [topics for topics, _ in registrations] == [1]

        # A name server that comes back knows nothing: it gets all, in pieces, and takes each.
        await server.close()
        registrations.clear()
        again = name_server(tmp_path / "1", address.split(where)[1])
        await again.start()
        await route_appears(remote, where, f"t{MANY - 1}")
        assert await missing(remote, where) == []
        assert max(topics for topics, _ in registrations) == WHOLE_MAX
        assert len({counter for _, counter in registrations}) == len(registrations), "each of another version"
    assert len(await missing(remote, where)) == MANY, "unregistered by close"
    await again.close()


async def test_changes_that_a_name_server_missed_are_told_again(tmp_path: Path, remote: RemotingClient) -> None:
    """Its table has the version of a later change by then, so that it would take nothing it knows already."""
    server = name_server(tmp_path / "1")
    await server.start()
    where = server.address
    async with running(tmp_path / "b", namesrvAddr=where, registerBrokerTimeoutMills="300") as broker:
        await create_many(remote, broker.address)
        await route_appears(remote, where, f"t{MANY - 1}")
        register = RouteTable.register

        def refuse(*_: object, **__: object) -> Master:
            raise RegistrationRefused("not now")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RouteTable, "register", refuse)
            await create(remote, broker.address, "t7", queues=9)
            await create(remote, broker.address, f"t{MANY - 1}", queues=9)
            await asyncio.sleep(0.5)
        assert RouteTable.register is register
        await create(remote, broker.address, "t8", queues=9)
        for topic in ("t7", "t8", f"t{MANY - 1}"):
            await queues_become(remote, where, topic, 9)
    await server.close()


@pytest.fixture
async def dropping(tmp_path: Path) -> AsyncIterator[NameServer]:
    """A name server that drops what a registration lacks."""
    settings = {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
    settings |= {"deleteTopicWithBrokerRegistration": "true", "configStorePath": str(tmp_path / "namesrv.properties")}
    server = NameServer(load(NamesrvOptions, settings))
    await server.start()
    yield server
    await server.close()


async def test_name_server_that_drops_missing_topics_gets_all_in_one(
    tmp_path: Path, remote: RemotingClient, registrations: list[tuple[int, int]], dropping: NameServer
) -> None:
    where = dropping.address
    async with running(tmp_path / "b") as broker:
        await create_many(remote, broker.address)
    async with running(tmp_path / "b", namesrvAddr=where) as broker:
        assert await missing(remote, where) == []
        await create(remote, broker.address, "t7", queues=9)
        await queues_become(remote, where, "t7", 9)
        assert await missing(remote, where) == []
        assert min(topics for topics, _ in registrations) > MANY, "never a part"


async def test_broker_may_outgrow_whole_registrations_with_a_name_server_that_drops(
    tmp_path: Path, remote: RemotingClient, registrations: list[tuple[int, int]], dropping: NameServer
) -> None:
    """Its first increment would take all other routes away. When the name server stops dropping, it gets parts again."""
    where = dropping.address
    async with running(tmp_path / "b", namesrvAddr=where) as broker:
        await create_many(remote, broker.address)
        await queues_become(remote, where, f"t{MANY - 1}", 4)
        assert await missing(remote, where) == []
        sizes = [topics for topics, _ in registrations]
        assert sizes == sorted(sizes), "each has all that the one before had"
        changes = b"deleteTopicWithBrokerRegistration=false"
        await remote.ask(where, codec.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=changes), 5)
        registrations.clear()
        await create(remote, broker.address, "t7", queues=9)
        await queues_become(remote, where, "t7", 9)
        assert [topics for topics, _ in registrations] == [1]
        assert await missing(remote, where) == []


async def test_name_server_that_keeps_its_configuration_to_itself_gets_all_in_one(
    tmp_path: Path, remote: RemotingClient, registrations: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> codec.Command:
        raise Refusal(ResponseCode.NO_PERMISSION, "not for brokers")

    monkeypatch.setattr("rockmq.namesrv.handlers.Handlers.get_config", refuse)
    server = name_server(tmp_path / "1")
    await server.start()
    async with running(tmp_path / "b", namesrvAddr=server.address) as broker:
        await create_many(remote, broker.address)
        await queues_become(remote, server.address, f"t{MANY - 1}", 4)
        sizes = [topics for topics, _ in registrations]
        assert sizes == sorted(sizes)
    await server.close()


async def test_a_change_of_permission_goes_out_whole_and_leaves_the_broker_known(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []
    anew = Sender.anew

    def noting(registration: Sender) -> None:
        anew(registration)
        known.append(registration.is_known)

    monkeypatch.setattr(Sender, "anew", noting)
    server = name_server(tmp_path / "1")
    await server.start()
    async with running(tmp_path / "b", namesrvAddr=server.address) as broker:
        request = codec.request(RequestCode.UPDATE_BROKER_CONFIG, UpdateBrokerConfig(), b"brokerPermission=4")
        await remote.ask(broker.address, request, 5)
        assert known == [True]
        async with asyncio.timeout(30):
            while (await route_appears(remote, server.address, "TBW102"))["queueDatas"][0]["perm"] != 4:  # type: ignore[index]
                await asyncio.sleep(0.02)
    await server.close()


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_host_names_and_ipv6(tmp_path: Path, remote: RemotingClient, host: str) -> None:
    server = name_server(tmp_path / "1")
    await server.start()
    async with running(tmp_path / "b", namesrvAddr=server.address, bindAddress=host, brokerIP1=host) as broker:
        assert address.split(broker.address)[0] == host
        found = await route_appears(remote, server.address, "TBW102")
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}  # type: ignore[index]
        assert (await remote.ask(broker.address, codec.request(RequestCode.GET_BROKER_RUNTIME_INFO), 5)).body
    await server.close()


async def test_name_that_only_outsiders_know_is_advertised(tmp_path: Path, remote: RemotingClient) -> None:
    server = name_server(tmp_path / "1")
    await server.start()
    settings = {"namesrvAddr": server.address, "brokerIP1": "mq.outside.invalid", "advertisedPort": "31911"}
    async with running(tmp_path / "b", **settings) as broker:
        assert broker.address == "mq.outside.invalid:31911"
        found = await route_appears(remote, server.address, "TBW102")
        assert found["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}  # type: ignore[index]
    await server.close()


async def test_what_it_cant_show_name_servers_stops_a_start_before_the_store_is_opened(tmp_path: Path) -> None:
    keys = {"tls.enable": "true", "tls.test.mode.enable": "false", "tls.client.certPath": "/nowhere/cert.pem"}
    shown = {"tls.server.mode": "disabled"} | keys
    with pytest.raises(ConfigError, match=r"towards name servers with /nowhere/cert\.pem: No such file"):
        async with running(tmp_path / "store", **shown):
            pass
    assert not (tmp_path / "store").exists()
