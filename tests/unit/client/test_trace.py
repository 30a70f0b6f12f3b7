"""What hooks are told, and what message trace makes of it."""

import asyncio
from typing import Any

import pytest

from rockmq.client import (
    Client,
    InvalidMessage,
    Message,
    RequestTimeout,
    ResponseError,
    SendReceipt,
    SendStatus,
    trace,
)
from rockmq.client.hooks import Consumption, Ended, Hook, Outgoing, Recall, Send
from rockmq.protocol import codec
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.route import GetRouteInfo
from rockmq.protocol.headers.send import SendResponse
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal


class Watching(Hook):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.sends: list[Send] = []

    def batching(self, topic: str, properties: dict[str, str]) -> None:
        properties["in"] = "batch"

    def sending(self, send: Send) -> Ended:
        self.sends.append(send)
        send.messages[0].properties["added"] = "yes"
        return lambda: self.seen.append((send.receipt is not None, type(send.error), send.broker))

    def consuming(self, consumption: Consumption) -> Ended:
        self.seen.append("begun")
        return lambda: self.seen.append((consumption.succeeded, type(consumption.error)))

    def processing(self, consumption: Consumption) -> Ended:
        self.seen.append("entered")
        return lambda: self.seen.append("left")


class Failing(Hook):
    def sending(self, send: Send) -> Ended:
        raise RuntimeError("a hook's fault")


async def test_a_hook_sees_how_sends_end(names: FakeNames, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    hook = Watching()
    async with Client(names.address, hooks=[Failing(), hook]) as mq, mq.producer("pg", retries=0) as producer:
        await producer.send(Message("T", b"1"))
        await producer.send_oneway(Message("T", b"2"))
        await producer.send_batch([Message("T", b"3"), Message("T", b"4")])
        broker.on_send = lambda header, request: refusal(request, ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(ResponseError):
            await producer.send(Message("T", b"5"))
        broker.on_send = lambda header, request: "silence"
        with pytest.raises(RequestTimeout):
            await producer.send(Message("T", b"6"), timeout=0.05)
        with pytest.raises(InvalidMessage):
            await producer.send(Message("T", b""))
    nothing = type(None)
    expected = [(True, nothing), (False, nothing), (True, nothing), (False, ResponseError), (False, RequestTimeout)]
    assert sorted(map(str, hook.seen)) == sorted(str((*each, broker.address)) for each in expected)
    assert [send.is_batch for send in hook.sends] == [False, False, True, False, False]
    assert "added\x01yes" in str(broker.headers[0].properties)
    assert [each.properties["in"] for each in hook.sends[2].messages] == ["batch", "batch"]
    # Not by the text: PySpark has the handler of all tests after its own write JSON.
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a hook's fault"] * 5


async def test_a_hook_sees_what_becomes_of_messages(names: FakeNames, broker: FakeBroker) -> None:
    hook = Watching()
    names.add("T", broker, queues=1)
    names.add("%RETRY%cg", broker, queues=1)
    broker.stored["T", 0] = [b"1", b"2", b"3"]
    broker.offsets["cg", "T", 0] = 0
    async with Client(names.address, hooks=[hook]) as mq, mq.consumer("cg", ["T"]) as consumer:
        async with (await anext(consumer)).process():
            pass
        await (await anext(consumer)).ack()
        with pytest.raises(ZeroDivisionError):
            async with (await anext(consumer)).process():
                raise ZeroDivisionError
    assert hook.seen == [
        "begun", "entered", "left", (True, type(None)),
        "begun", (True, type(None)),
        "begun", "entered", "left", (False, ZeroDivisionError),
    ]  # fmt: skip


async def test_what_the_client_sends_for_itself_is_nobodys_concern(names: FakeNames, broker: FakeBroker) -> None:
    hook = Watching()
    names.add("traces", broker)
    async with Client(names.address, trace="traces", hooks=[hook]) as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"1"))
    assert [send.topic for send in hook.sends] == ["T"]
    assert len(broker.bodies("traces")) == 1


async def test_ten_records_go_at_once_and_less_at_the_end(names: FakeNames, broker: FakeBroker) -> None:
    names.add("traces", broker)
    async with Client(names.address, trace="traces") as mq, mq.producer("pg") as producer:
        await asyncio.gather(*(producer.send(Message("T", b"1")) for _ in range(10)))
        async with asyncio.timeout(10):
            while not broker.bodies("traces"):
                await asyncio.sleep(0.01)
        await producer.send(Message("T", b"1"))
        assert len(broker.bodies("traces")) == 1
    first, second = broker.bodies("traces")
    assert first.count(b"Pub\x01") + second.count(b"Pub\x01") == 11


async def test_what_is_being_sent_at_the_end_arrives(names: FakeNames, broker: FakeBroker) -> None:
    names.add("traces", broker)
    asked, answers = asyncio.Event(), asyncio.Event()

    async def route(header: GetRouteInfo, request: codec.Command, connection: Connection) -> Answer:
        if header.topic == "traces":
            asked.set()
            await answers.wait()
        return names._route(header, request, connection)

    names.handle(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
    async with Client(names.address, trace="traces") as mq:
        async with mq.producer("pg") as producer:
            await asyncio.gather(*(producer.send(Message("T", b"1")) for _ in range(10)))
        await asyncio.wait_for(asked.wait(), 10)
        asyncio.get_running_loop().call_later(0.1, answers.set)
    (body,) = broker.bodies("traces")
    assert body.count(b"Pub\x01") == 10


async def test_what_can_not_be_told_at_the_end_holds_up_nobody(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "CLOSE_SECONDS", 0.1)
    names.add("traces", broker)
    broker.on_send = lambda header, request: "silence"
    async with Client(names.address, trace="traces") as mq:
        kept = mq._trace
        assert kept is not None
        for _ in range(25):
            kept.recalled(Recall("pg", "T", "ID", succeeded=True))
    assert kept.dropped == 25


async def test_a_broker_may_want_no_trace(names: FakeNames, broker: FakeBroker) -> None:
    def untraced(header: Any, request: codec.Command) -> codec.Command:
        answer = codec.reply(request, header=SendResponse(msg_id="A", queue_id=header.queue_id, queue_offset=0))
        answer.fields["TRACE_ON"] = "false"
        return answer

    broker.on_send = untraced
    names.add("traces", broker)
    async with Client(names.address, trace="traces") as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"1"))
    assert {header.topic for header in broker.headers} == {"T"}


async def test_records_over_the_bound_are_dropped_and_counted(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace, "RECORDS_MAX", 3)
    names.add("traces", broker)
    async with Client(names.address, trace="traces") as mq:
        kept = mq._trace
        assert kept is not None
        for _ in range(5):
            kept.recalled(Recall("pg", "T", "ID", succeeded=True))
        assert kept.dropped == 2
    assert caplog.text.count("message trace isn't complete") == 1
    (body,) = broker.bodies("traces")
    assert body.count(b"Recall") == 3


def test_long_records_are_spread_over_messages() -> None:
    records = [trace.Record("T", "x" * 50_000, (str(number),)) for number in range(3)]
    found = trace.messages([*records, trace.Record("U", "y", ("4",))], "traces")
    assert [(len(each.body), each.keys) for each in found] == [(100_000, ["0", "1"]), (50_000, ["2"]), (1, ["4"])]


def test_a_send_as_apache_writes_it() -> None:
    receipt = SendReceipt("ID", "OFFSET", MessageQueue("T", "b", 0), 7, SendStatus.SLAVE_NOT_AVAILABLE)
    send = Send("pg", "T", [], False, 1000, "h:1", {"MSG_REGION": "eu"}, receipt)
    found = trace.sent(send, Outgoing("ID", {"TAGS": "paid"}, 5), "OFFSET", 12)
    assert found.text == "\x01".join(
        ["Pub", "1000", "eu", "pg", "T", "ID", "paid", "null", "h:1", "5", "12", "0", "OFFSET", "false\x02"]
    )
    assert found.keys == ("ID",)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("TAGS", "paid", 0),
        ("TRAN_MSG", "true", 1),
        ("DELAY", "3", 3),
        ("TIMER_DELAY_SEC", "1", 3),
        ("TIMER_DELAY_MS", "1000", 3),
        ("TIMER_DELIVER_MS", "1000", 3),
    ],
)
def test_a_send_tells_what_kind_of_message_it_was(name: str, value: str, kind: int) -> None:
    send = Send("pg", "T", [], False, 1000, "h:1", {}, SendReceipt("ID", "OFFSET", MessageQueue("T", "b", 0), 7))
    found = trace.sent(send, Outgoing("ID", {name: value}, 5), "OFFSET", 12)
    assert found.text.split("\x01")[11] == str(kind)
