"""Who is forgotten when, and the name server from start to end, over real sockets."""

import asyncio

import pytest

from rockmq.base.errors import ConfigError, ConnectionLost
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers import registration as registering
from rockmq.protocol.headers import route as routes
from tests.support.clock import FakeClock
from tests.unit.namesrv.conftest import Connect, Start
from tests.unit.namesrv.peer import MASTER, registration, topics

# Leaving


async def test_the_loss_of_its_connection_ends_a_broker(start: Start, connect: Connect) -> None:
    server = await start()
    first, second, client = connect(server), connect(server), connect(server)
    await first.good(RequestCode.REGISTER_BROKER, registration(), topics())
    await second.good(RequestCode.REGISTER_BROKER, registration(), topics())
    await first.remoting.close()
    await asyncio.sleep(0.05)
    assert (await client.route()).code == ResponseCode.SUCCESS
    await second.remoting.close()
    await client.until_gone()


async def test_silence_ends_a_broker_and_its_connection(start: Start, connect: Connect, clock: FakeClock) -> None:
    server = await start()
    broker, client = connect(server), connect(server)
    await broker.good(RequestCode.REGISTER_BROKER, registration(heartbeat_timeout_millis=1_000), topics())
    beat = registering.BrokerHeartbeat(cluster_name="C", broker_addr=MASTER, broker_name="a")
    clock.pass_ms(900)
    await broker.good(RequestCode.BROKER_HEARTBEAT, beat)
    clock.pass_ms(900)
    await broker.remoting.send_oneway(broker.address, codec.request(RequestCode.BROKER_HEARTBEAT, beat))
    await broker.good(RequestCode.GET_NAMESRV_CONFIG)
    clock.pass_ms(900)
    server.expire_brokers()
    assert (await client.route()).code == ResponseCode.SUCCESS
    lost = asyncio.Event()
    broker.remoting.on_lost.append(lambda _: lost.set())
    clock.pass_ms(101)
    server.expire_brokers()
    assert (await client.route()).code == ResponseCode.TOPIC_NOT_EXIST
    await asyncio.wait_for(lost.wait(), 30)


async def test_the_scan_runs_by_itself(start: Start, connect: Connect, clock: FakeClock) -> None:
    server = await start(scanNotActiveBrokerInterval="20")
    broker, client = connect(server), connect(server)
    await broker.good(RequestCode.REGISTER_BROKER, registration(), topics())
    clock.pass_ms(120_001)
    await client.until_gone()


async def test_a_broker_that_says_goodbye_is_gone(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    bye = registering.UnregisterBroker(broker_name="a", broker_addr=MASTER, cluster_name="C", broker_id=0)
    await peer.good(RequestCode.UNREGISTER_BROKER, bye)
    await peer.good(RequestCode.UNREGISTER_BROKER, bye)
    assert (await peer.route()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_name_servers_know_nothing_of_each_other(start: Start, connect: Connect) -> None:
    one, two = await start(), await start()
    peer, other = connect(one), connect(two)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    assert (await other.route()).code == ResponseCode.TOPIC_NOT_EXIST


# The process


async def test_key_values_outlive_it(start: Start, connect: Connect) -> None:
    server = await start()
    await connect(server).good(RequestCode.PUT_KV_CONFIG, routes.PutKV(namespace="N", key="k", value="v"))
    await server.close()
    again = await start()
    assert (await connect(again).good(RequestCode.GET_KV_CONFIG, routes.GetKV(namespace="N", key="k"))).fields == {
        "value": "v"
    }


async def test_a_taken_port_is_a_config_error(start: Start) -> None:
    server = await start()
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
        await start(listenPort=str(server.port))


async def test_close_ends_every_connection(start: Start, connect: Connect) -> None:
    server = await start(bindAddress="0.0.0.0")
    assert server.address == f"127.0.0.1:{server.port}"
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    connection = await peer.remoting.connect(peer.address)
    lost = asyncio.Event()
    connection.on_close.append(lambda _: lost.set())
    await server.close()
    await asyncio.wait_for(lost.wait(), 30)
    with pytest.raises(ConnectionLost):
        await connection.invoke(codec.request(RequestCode.GET_NAMESRV_CONFIG), 5)
