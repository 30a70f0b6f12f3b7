import asyncio
import io
import json

import pytest

from rockmq.cli import send
from rockmq.client import Client
from rockmq.embedded import Server
from tests.unit.cli.conftest import Command


async def stored(server: Server, topic: str) -> list[bytes]:
    async with Client(server.namesrv) as mq:
        return [message.body for queue in await mq.queues(topic) for message in (await mq.pull(queue, 0, 1_000)).messages]


async def test_a_message_with_all_that_belongs_to_it(rockmq: Command, rockmq_server: Server) -> None:
    words = ("--tag", "paid", "--key", "order-7", "--property", "colour=red", "--json", "-n", rockmq_server.namesrv)
    ended = await rockmq("send", "orders", "hello", *words)
    assert ended.code == 0
    said = json.loads(ended.out)
    async with Client(rockmq_server.namesrv) as mq:
        (queue,) = (each for each in await mq.queues("orders") if each.queue_id == said["queueId"])
        (message,) = (await mq.pull(queue, said["queueOffset"])).messages
    assert (message.body, message.tag, message.keys, message.msg_id) == (b"hello", "paid", ["order-7"], said["msgId"])
    assert message.properties["colour"] == "red"


async def test_for_people(rockmq: Command, rockmq_server: Server) -> None:
    ended = await rockmq("send", "orders", "hello", "--count", "3", "-n", rockmq_server.namesrv)
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 3
    assert all("queue " in line and "offset " in line for line in ended.out.splitlines())
    assert ended.err.startswith("3 messages in ")
    assert await stored(rockmq_server, "orders") == [b"hello"] * 3


async def test_lines_of_standard_input(rockmq: Command, rockmq_server: Server) -> None:
    text = b"".join(b"%d\n" % number for number in range(200)) + b"\n\r\nthe last has no line end"
    ended = await rockmq("send", "orders", "-", "-n", rockmq_server.namesrv, stdin=text)
    assert ended.code == 0
    expected = [b"%d" % number for number in range(200)] + [b"the last has no line end"]
    assert sorted(await stored(rockmq_server, "orders")) == sorted(expected)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("bad topic", "x"), "bad topic"),
        (("orders", ""), "the body is empty"),
        (("orders", "-", "--count", "2"), "--count repeats a BODY"),
        (("orders", "x", "--property", "colour"), "expected key=value"),
    ],
)
async def test_what_cannot_be_sent(rockmq: Command, rockmq_server: Server, words: tuple[str, ...], reason: str) -> None:
    ended = await rockmq("send", *words, "-n", rockmq_server.namesrv, stdin=b"x\n")
    assert ended.code == 1
    assert ended.err.startswith("rockmq: ")
    assert reason in ended.err
    assert ended.err.count("\n") == 1


async def test_nobody_there(rockmq: Command) -> None:
    ended = await rockmq("send", "orders", "x", "-n", "127.0.0.1:1")
    assert ended.code == 1
    assert "127.0.0.1:1" in ended.err


async def test_lines_leave_the_loop_running() -> None:
    waited = 0

    class Slow(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            nonlocal waited
            if waited == 3:
                return 0
            waited += 1
            import time

            time.sleep(0.05)
            buffer[:2] = b"x\n"
            return 2

    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.005)

    counting = asyncio.create_task(count())
    found = [line async for line in send.lines(io.BufferedReader(Slow(), 2))]
    counting.cancel()
    assert found == [b"x"] * 3
    assert turns > 5
