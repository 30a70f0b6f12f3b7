import json

from rockmq.client import Client, Message
from rockmq.embedded import Server
from tests.unit.cli.conftest import Command


async def send(server: Server, *bodies: bytes, tag: str | None = None) -> None:
    async with Client(server.namesrv) as mq, mq.producer() as producer:
        for body in bodies:
            await producer.send(Message("orders", body, tag=tag, keys="order-7"))


async def test_count_and_what_the_group_remembers(rockmq: Command, rockmq_server: Server) -> None:
    await send(rockmq_server, *(b"%d" % number for number in range(10)))
    words = ("consume", "orders", "--group", "billing", "-n", rockmq_server.namesrv, "--json")
    first = await rockmq(*words, "--count", "4")
    assert first.code == 0
    second = await rockmq(*words, "--count", "6")
    assert second.code == 0
    bodies = [json.loads(line)["body"] for ended in (first, second) for line in ended.out.splitlines()]
    assert sorted(bodies) == [str(number) for number in range(10)]


async def test_for_people(rockmq: Command, rockmq_server: Server) -> None:
    await send(rockmq_server, b"hello", tag="paid")
    ended = await rockmq("consume", "orders", "--group", "g", "--count", "1", "-n", rockmq_server.namesrv)
    assert ended.code == 0
    assert "tag=paid" in ended.out
    assert "keys=order-7" in ended.out
    assert ended.out.endswith("hello\n")


async def test_bytes_that_are_no_text(rockmq: Command, rockmq_server: Server) -> None:
    await send(rockmq_server, b"\xff\x00")
    ended = await rockmq("consume", "orders", "--group", "g", "--count", "1", "-n", rockmq_server.namesrv, "--json")
    assert json.loads(ended.out)["bodyBase64"] == "/wA="


async def test_tags(rockmq: Command, rockmq_server: Server) -> None:
    async with Client(rockmq_server.namesrv) as mq:
        await mq.create_topic("orders", 1)
    await send(rockmq_server, b"no", tag="refund")
    await send(rockmq_server, b"yes", tag="paid")
    words = ("consume", "orders", "--group", "g", "--tags", "paid", "--count", "1", "-n", rockmq_server.namesrv)
    ended = await rockmq(*words)
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 1
    assert ended.out.endswith("yes\n")


async def test_too_few_before_the_timeout(rockmq: Command, rockmq_server: Server) -> None:
    await send(rockmq_server, b"one")
    words = ("consume", "orders", "--group", "g", "--count", "2", "-n", rockmq_server.namesrv)
    ended = await rockmq(*words, "--timeout", "1")
    assert ended.code == 1
    if not ended.out:  # on a slow machine not even that one came in time
        ended = await rockmq(*words, "--timeout", "30")
        assert ended.code == 1
    assert ended.out.endswith("one\n")


async def test_a_topic_that_nobody_knows(rockmq: Command, rockmq_server: Server) -> None:
    ended = await rockmq("consume", "nosuch", "--group", "g", "-n", rockmq_server.namesrv)
    assert ended.code == 1
    assert "no route for topic 'nosuch'" in ended.err
    assert rockmq_server.namesrv in ended.err


async def test_nobody_there(rockmq: Command) -> None:
    ended = await rockmq("consume", "orders", "--group", "g", "-n", "127.0.0.1:1")
    assert ended.code == 1
    assert "127.0.0.1:1" in ended.err
