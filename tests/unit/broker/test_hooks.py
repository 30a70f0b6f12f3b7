"""Functions of an operator's own that are told of sends and of consuming."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.errors import ConfigError, ResponseError
from rockmq.broker.hooks import Consumed, Send, SendRefused, Sent, Way
from rockmq.broker.server import Broker
from rockmq.client import Client, Message
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import running, slow_disk
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent
from tests.unit.broker.test_pop import popping
from tests.unit.broker.test_send_back import back, of

PAGE = Path(__file__).parents[3] / "docs" / "hooks.md"

sends: list[Send] = []
ends: list[Sent] = []
consumed: list[Consumed] = []


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    for each in (sends, ends, consumed):
        each.clear()


def watch(send: Send) -> Callable[[Sent], None]:
    sends.append(send)
    return ends.append


def choosy(send: Send) -> None:
    if send.messages[0].body == b"bad":
        raise SendRefused("it is bad", ResponseCode.NO_PERMISSION)


def broken(_: object) -> None:
    raise RuntimeError("the operator's")


def breaks_later(_: Send) -> Callable[[Sent], None]:
    return broken


async def never(_: object) -> None:
    raise AssertionError("it is never run")


def ends_async(_: Send) -> Callable[[Sent], object]:
    return never


def hides_async(event: object) -> object:
    return never(event)


def refuses_too_late(_: object) -> None:
    raise SendRefused("nobody asked")


def note(event: Consumed) -> None:
    consumed.append(event)


class Later:
    async def __call__(self, _: object) -> None:
        raise AssertionError("it is never called")


later = Later()


def named(*functions: Callable[..., object]) -> str:
    return ";".join(f"{each.__name__}={__name__}:{each.__name__}" for each in functions)


async def hooks_failed(remote: RemotingClient, broker: Broker) -> dict[str, int]:
    answer = await remote.ask(broker.address, codec.request(RequestCode.GET_BROKER_RUNTIME_INFO), 5)
    return {name.decode(): int(count) for name, count in re.findall(rb'"hookFailures_(\w+)":"(\d+)"', answer.body)}


async def test_a_send_is_told_and_how_it_ended(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, sendHooks=named(watch)) as broker:
        receipts = [await sent(remote, broker, send_request(b"%d" % number, tag="paid", mine="ä")) for number in range(3)]
        assert [send.messages[0].body for send in sends] == [b"0", b"1", b"2"]
        assert {(send.group, send.topic, send.queue_id) for send in sends} == {("producers", "T", 0)}
        assert sends[0].messages[0].properties == {"TAGS": "paid", "mine": "ä"}
        assert sends[0].peer.startswith("127.0.0.1:")
        assert [(end.code, end.fields["msgId"], end.fields["queueOffset"]) for end in ends] == [
            (ResponseCode.SUCCESS, receipt.msg_id, str(offset)) for offset, receipt in enumerate(receipts)
        ]
        oneway = send_request(b"oneway")
        oneway.flag |= codec.ONEWAY_FLAG
        await remote.send_oneway(broker.address, oneway)
        async with asyncio.timeout(10):
            while len(ends) < 4:
                await asyncio.sleep(0.01)
        assert (sends[3].messages[0].body, ends[3].fields["queueOffset"]) == (b"oneway", "3")

        refused = await remote.invoke(broker.address, send_request(b"x", topic="no such topic"), 5)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert (ends[4].code, ends[4].remark) == (refused.code, refused.remark)
        assert "msgId" not in ends[4].fields


async def test_a_batch_is_told_message_by_message(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, sendHooks=named(watch)) as broker:
        body = codec.encode_batch([(0, b"one", b"a\x01b\x02"), (0, b"two", b"")])
        await sent(remote, broker, send_request(body, batch=True))
        (send,) = sends
        assert [(dict(message.properties), message.body) for message in send.messages] == [
            ({"a": "b"}, b"one"),
            ({}, b"two"),
        ]
        answer = await remote.invoke(broker.address, send_request(body[:-3], batch=True), 5)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert len(sends) == 1


async def test_what_a_hook_refuses_isnt_stored_and_the_reason_is_told(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, sendHooks=named(watch, choosy)) as broker:
        for body in (b"good", b"bad"):
            answer = await remote.invoke(broker.address, send_request(body), 5)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "it is bad")
        assert ends[1] == Sent(ResponseCode.NO_PERMISSION, "it is bad", {})
        assert [message.body for message in await of(remote, broker, "T")] == [b"good"]
        assert await hooks_failed(remote, broker) == {"watch": 0, "choosy": 0}


async def test_a_hook_that_fails_changes_nothing_and_is_counted(
    tmp_path: Path, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"sendHooks": named(broken, breaks_later, watch), "consumeHooks": named(refuses_too_late, note)}
    async with running(tmp_path, **settings) as broker:
        await sent(remote, broker, send_request(b"one"))
        assert [message.body for message in await of(remote, broker, "T")] == [b"one"]
        assert (len(ends), len(consumed)) == (1, 1)
        assert await hooks_failed(remote, broker) == {
            "broken": 1,
            "breaks_later": 1,
            "watch": 0,
            "refuses_too_late": 1,
            "note": 0,
        }
    failed = [(record.message, vars(record)["hook"]) for record in caplog.records if record.exc_info]
    assert failed == [("a hook fails", name) for name in ("broken", "breaks_later", "refuses_too_late")]


async def test_a_hook_that_is_async_is_one_that_fails(
    tmp_path: Path, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"sendHooks": named(ends_async, hides_async, watch), "consumeHooks": f"consumes={__name__}:hides_async"}
    async with running(tmp_path, **settings) as broker:
        await sent(remote, broker, send_request(b"one"))
        assert [message.body for message in await of(remote, broker, "T")] == [b"one"]
        assert len(ends) == 1
        assert await hooks_failed(remote, broker) == {"ends_async": 1, "hides_async": 1, "watch": 0, "consumes": 1}
    failed = {vars(record)["hook"]: str(record.exc_info[1]) for record in caplog.records if record.exc_info}
    assert failed.keys() == {"ends_async", "hides_async", "consumes"}
    assert all(why.startswith("it is async; expected a plain function") for why in failed.values())


async def test_what_consumers_get_and_give_back_is_told(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    async with popping(tmp_path, remote, clock, consumeHooks=named(note)) as group:
        broker = group.broker
        await remote.ask(broker.address, create_request(queues=1), 5)
        waiting = asyncio.create_task(remote.invoke(broker.address, pull_request(suspend_ms=60_000), 30))
        await asyncio.sleep(0.1)
        await group.send(b"one")
        assert (await asyncio.wait_for(waiting, 10)).code == ResponseCode.SUCCESS
        await group.send(b"two")
        (first, _) = await of(remote, broker, "T")
        assert await group.bodies() == [b"one", b"two"]
        await remote.ask(broker.address, back(first), 5)
        await of(remote, broker, "T", 2)  # nothing, and nobody is told
        assert [(event.way, event.group, event.topic, event.queue_id, event.count) for event in consumed] == [
            (Way.PULLED, "consumers", "T", 0, 1),
            (Way.PULLED, "consumers", "T", 0, 2),
            (Way.POPPED, "g", "T", 0, 2),
            (Way.GIVEN_BACK, "consumers", "T", -1, 1),
        ]
        bodies = [[message.body for message in event.messages()] for event in consumed]
        assert bodies == [[b"one"], [b"one", b"two"], [b"one", b"two"], []]


async def test_a_stop_ends_what_a_hook_was_told_of(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, sendHooks=named(watch), flushDiskType="SYNC_FLUSH", syncFlushTimeout="200") as broker:
        with slow_disk():
            answer = await remote.invoke(broker.address, send_request(b"late"), 10)
        assert (answer.code, ends[0].code) == (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT)
        assert ends[0].fields["queueOffset"] == "0", "it is stored"


@pytest.mark.parametrize("key", ["sendHooks", "consumeHooks"])
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("audit", "'audit': expected name=module:function"),
        ("audit=no.such.module:f", "can't be loaded: No module"),
        ("audit=builtins:__name__", "is no function"),
        ("audit=asyncio:sleep", "is async; expected a plain function"),
        (f"audit={__name__}:later", "is async; expected a plain function"),
    ],
)
async def test_a_hook_that_is_not_there_stops_the_start(tmp_path: Path, key: str, text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: .*{fault}"):
        async with running(tmp_path, **{key: text}):
            pass


async def test_the_page_tells_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    keys = dict(line.split(" = ") for line in re.findall(r"^\w+Hooks = .*$", page, re.MULTILINE))
    (tmp_path / "shop_hooks.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with embedded.serve(properties=keys) as server, Client(server.namesrv) as mq, mq.producer("shop") as producer:
        with pytest.raises(ResponseError, match="a payment needs a key"):
            await producer.send(Message("payments", b"10"))
        receipt = await producer.send(Message("payments", b"10", keys=["4711"]))
        await mq.pull(receipt.queue, receipt.queue_offset)
    audit = [record.message for record in caplog.records if record.name == "shop.audit"]
    assert audit[0] == "payments was sent 1 messages by shop: code 0"
    assert audit[1].startswith("1 of payments were pulled by ")
