import asyncio
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.errors import ConfigError
from rockmq.client import Client, Message

pytest_plugins = ["pytester"]


async def exchange(namesrv: str) -> bytes:
    async with Client(namesrv) as mq, mq.producer() as producer:
        receipt = await producer.send(Message("orders", b"hello"))
        return (await mq.pull(receipt.queue, receipt.queue_offset)).messages[0].body


async def test_serves_in_a_folder_that_goes_with_it() -> None:
    async with embedded.serve() as server:
        assert await exchange(server.namesrv) == b"hello"
        assert server.data.is_dir()
    assert not server.data.exists()
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection(*server.broker.split(":"))


async def test_data_that_is_given_stays(tmp_path: Path) -> None:
    async with embedded.serve(tmp_path / "data") as server:
        await exchange(server.namesrv)
    async with embedded.serve(tmp_path / "data", flush="ASYNC_FLUSH") as server, Client(server.namesrv) as mq:
        assert sum([await mq.max_offset(queue) for queue in await mq.queues("orders")]) == 1


async def test_two_at_once_in_one_loop() -> None:
    async with embedded.serve() as a, embedded.serve() as b:
        assert len({a.namesrv, a.broker, b.namesrv, b.broker}) == 4
        assert await exchange(a.namesrv) == await exchange(b.namesrv) == b"hello"


async def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    async with embedded.serve(tmp_path / "a") as server:
        port = int(server.broker.split(":")[1])
        with pytest.raises(ConfigError, match="can't listen"):
            async with embedded.serve(tmp_path / "b", broker_port=port):
                pass
        assert len(asyncio.all_tasks()) > 1
        assert await exchange(server.namesrv) == b"hello"
    async with embedded.serve(tmp_path / "b"):
        pass


@pytest.mark.parametrize("key", ["listenPort", "bindAddress", "storePathRootDir", "kvConfigPath"])
def test_keys_that_are_said_otherwise(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} can't be set here"):
        embedded.Server(tmp_path, properties={key: "1"})


def test_keys_go_to_the_role_that_knows_them(tmp_path: Path) -> None:
    settings = {"serverChannelMaxIdleTimeSeconds": "7", "enableTopicList": "false", "brokerName": "here"}
    server = embedded.Server(tmp_path, properties=settings)
    assert server._namesrv_options.network.server_channel_max_idle_time_seconds == 7
    assert server._broker_options.network.server_channel_max_idle_time_seconds == 7
    assert server._namesrv_options.routes.enable_topic_list is False
    assert server._broker_options.identity.broker_name == "here"


def test_a_key_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'brokerName'"):
        embedded.Server(tmp_path, properties={"brokerNam": "x"})


async def test_its_own_name_server_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "192.0.2.1:9876")
    async with asyncio.timeout(20), embedded.serve() as server:
        assert await exchange(server.namesrv) == b"hello"


def test_fixtures_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from rockmq.client import Message

        @pytest.mark.asyncio
        async def test_it(rockmq_server, rockmq_client):
            async with rockmq_client.producer() as producer:
                receipt = await producer.send(Message("orders", b"hello"))
            assert receipt.queue.topic == "orders"
            assert rockmq_server.data.is_dir()
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
