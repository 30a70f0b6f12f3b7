"""What receipts say about durability, and what a producer does that wants some."""

import asyncio

import pytest

from rockmq import embedded
from rockmq.base.errors import ClientError, RequestTimeout, ResponseError
from rockmq.client import Client, Decision, Durability, Message, SendStatus, durability
from rockmq.client.durability import promised, suffices
from rockmq.client.sending import reached
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import dump, load
from rockmq.protocol.codes import RequestCode
from tests.unit.client.fakes import FakeBroker

HELLO = Message("T", b"hello")
ASYNC = {"flushDiskType": "ASYNC_FLUSH", "brokerRole": "ASYNC_MASTER"}
DISK = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "ASYNC_MASTER", "inSyncReplicas": "2"}
BOTH = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


@pytest.mark.parametrize(
    ("config", "durability"),
    [
        ({}, "unknown"),
        (ASYNC, "memory"),
        (DISK, "disk"),
        (BOTH, "replicated+disk"),
        (BOTH | {"flushDiskType": "ASYNC_FLUSH"}, "replicated"),
        (BOTH | {"inSyncReplicas": "1"}, "disk"),
        (BOTH | {"inSyncReplicas": "1", "allAckInSyncStateSet": "true"}, "disk"),
        (BOTH | {"inSyncReplicas": "1", "allAckInSyncStateSet": "true", "enableControllerMode": "true"}, "replicated+disk"),
        (BOTH | {"inSyncReplicas": "²"}, "disk"),
        (BOTH | {"inSyncReplicas": "2" * 5000}, "disk"),
        ({"flushDiskType": "ASYNC_FLUSH", "brokerRole": "SYNC_MASTER"}, "replicated"),
    ],
)
def test_what_a_configuration_promises(config: dict[str, str], durability: Durability) -> None:
    assert promised(config) == durability


@pytest.mark.parametrize(
    ("promise", "status", "waited", "durability"),
    [
        ("disk", SendStatus.OK, True, "disk"),
        ("disk", SendStatus.OK, False, "memory"),
        ("unknown", SendStatus.OK, True, "unknown"),
        ("unknown", SendStatus.FLUSH_DISK_TIMEOUT, True, "memory"),
        ("disk", SendStatus.FLUSH_DISK_TIMEOUT, True, "memory"),
        ("replicated+disk", SendStatus.FLUSH_DISK_TIMEOUT, True, "replicated"),
        ("replicated+disk", SendStatus.FLUSH_SLAVE_TIMEOUT, True, "memory"),
        ("replicated", SendStatus.SLAVE_NOT_AVAILABLE, True, "memory"),
    ],
)
def test_what_is_reached(promise: Durability, status: SendStatus, waited: bool, durability: Durability) -> None:
    assert reached(promise, status, waited=waited) == durability


def test_what_suffices() -> None:
    assert suffices("replicated+disk", "disk")
    assert suffices("disk", "memory")
    assert not suffices("disk", "replicated")
    assert not suffices("disk", "replicated+disk")
    assert not suffices("unknown", "memory")


async def test_brokers_are_asked_once_and_receipts_tell(mq: Client, broker: FakeBroker) -> None:
    broker.config = DISK
    async with mq.producer("pg", durability="disk", linger=0) as producer:
        receipts = await asyncio.gather(*(producer.send(HELLO) for _ in range(3)), producer.send(HELLO, timeout=2))
        assert {receipt.durability for receipt in receipts} == {"disk"}
        assert broker.count(RequestCode.GET_BROKER_CONFIG) == 1
        await broker.stop()
        await broker.start()
        assert (await producer.send(HELLO)).durability == "disk"
        assert broker.count(RequestCode.GET_BROKER_CONFIG) == 2, "a new connection may be to another configuration"


async def test_a_broker_that_doesnt_answer_is_asked_again(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hasn't refused to tell: neither does the send fail, nor are all that come after it on this connection."""
    monkeypatch.setattr(durability, "API_TIMEOUT", 0.1)
    broker.config = DISK
    answer = broker._config
    silent = True
    broker.handle(RequestCode.GET_BROKER_CONFIG, lambda *asked: None if silent else answer(*asked))
    async with mq.producer("pg", durability="disk", timeout=20) as producer:
        with pytest.raises(RequestTimeout):
            await producer.send(HELLO, timeout=0.3)
        sending = producer.send_nowait(HELLO)
        await asyncio.sleep(0.15)
        monkeypatch.setattr(durability, "API_TIMEOUT", 10)
        silent = False
        assert (await sending).durability == "disk"
        await broker.stop()
        sending = producer.send_nowait(HELLO)
        await asyncio.sleep(0)
        await broker.start()
        assert (await sending).durability == "disk"


@pytest.mark.parametrize(("config", "fault"), [(ASYNC, "promises 'memory'"), (None, "doesn't tell"), ({}, "doesn't tell")])
async def test_nothing_is_sent_to_a_broker_that_promises_less(
    mq: Client, broker: FakeBroker, config: dict[str, str] | None, fault: str
) -> None:
    broker.config = config
    async with mq.producer("pg", durability="disk") as producer:
        with pytest.raises(ClientError, match=fault):
            await producer.send(HELLO)
    assert not broker.headers


async def test_a_transaction_is_not_begun_at_a_broker_that_promises_less(mq: Client, broker: FakeBroker) -> None:
    broker.config = ASYNC

    async def never(_: object) -> Decision:
        raise AssertionError("nothing was stored")

    async with mq.transaction_producer("tx", never, durability="disk") as producer:
        with pytest.raises(ClientError, match="promises 'memory'"):
            await producer.send_in_transaction(HELLO, never)
    assert not broker.headers


async def test_what_is_stored_less_durably_is_an_error(mq: Client, broker: FakeBroker) -> None:
    broker.config = DISK
    broker.on_send = lambda header, request: broker.store(header, request, SendStatus.FLUSH_DISK_TIMEOUT)
    async with mq.producer("pg", durability="disk") as producer:
        with pytest.raises(ResponseError, match="is stored, but its durability is 'memory': the disk") as caught:
            await producer.send(HELLO)
        assert (caught.value.code, caught.value.retriable) == (SendStatus.FLUSH_DISK_TIMEOUT, True)
        broker.on_send = None
        with pytest.raises(ResponseError, match="'memory'"):
            await producer.send(Message("T", b"x", properties={"WAIT": "false"}))


async def test_nobody_is_asked_unless_it_is_wished(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg") as producer:
        assert (await producer.send(HELLO)).durability == "unknown"
    assert broker.count(RequestCode.GET_BROKER_CONFIG) == 0


@pytest.mark.parametrize(("flush", "durability"), [("SYNC_FLUSH", "disk"), ("ASYNC_FLUSH", "memory")])
async def test_a_real_broker(flush: str, durability: Durability) -> None:
    async with (
        embedded.serve(flush=flush) as served,  # type: ignore[arg-type]
        Client(served.namesrv) as mq,
        mq.producer(durability="memory") as producer,
    ):
        assert (await producer.send(HELLO)).durability == durability


def test_a_sync_master_of_ours_promises_no_copy() -> None:
    """Pitfall 9.13: it waits for nobody, and has to say so."""
    for role, flush, found in (("SYNC_MASTER", "SYNC_FLUSH", "disk"), ("SYNC_MASTER", "ASYNC_FLUSH", "memory")):
        options = load(BrokerOptions, {"brokerRole": role, "flushDiskType": flush})
        assert promised(dump(options)) == found
