"""What listens to the queues that a consumer wins and loses."""

import asyncio
import threading

import pytest

from rockmq.client import Client, ClientError, MessageQueue, locks, rebalance, share
from rockmq.client.queue_listener import QueueListener
from tests.unit.client.fakes import FakeBroker, FakeNames
from tests.unit.client.test_consumer import tell_members, until

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only cost time here."""
    monkeypatch.setattr(rebalance, "GAP_SECONDS", 0.02)
    monkeypatch.setattr(rebalance, "TAKE_OVER_SECONDS", 0.1)
    monkeypatch.setattr(rebalance, "UNLOCKED_SECONDS", 0.05)
    monkeypatch.setattr(share, "GIVE_UP_SECONDS", 0.05)
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.1)


class Listener:
    """Notes the numbers of the queues; its second call waits to be told to go on."""

    def __init__(self) -> None:
        self.told: list[tuple[list[int], list[int]]] = []
        self.go_on = asyncio.Event()

    async def __call__(self, won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        self.told.append(([queue.queue_id for queue in won], [queue.queue_id for queue in lost]))
        if len(self.told) == 2:
            await self.go_on.wait()


async def test_what_changes_meanwhile_is_told_by_the_next_call(caplog: pytest.LogCaptureFixture) -> None:
    heard = Listener()

    async def listen(won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        await heard(won, lost)
        if len(heard.told) == 2:
            raise ValueError("the application failed")

    listener = QueueListener(listen, "g")
    running = asyncio.create_task(listener.run())
    listener.won(QUEUES)
    await until(lambda: heard.told == [([0, 1, 2, 3], [])])
    listener.lost(QUEUES[:2])
    await until(lambda: heard.told[1:] == [([], [0, 1])])
    listener.won(QUEUES[:2])
    listener.lost(QUEUES[1:])  # of queue 1 nobody has heard that it is ours again
    listener.won(QUEUES[2:3])
    heard.go_on.set()
    await until(lambda: heard.told[2:] == [([0, 2], [2, 3])])
    assert "what listens to the queues of group g failed" in caplog.text
    running.cancel()


async def test_a_consumer_tells_what_it_wins_and_loses(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    heard = Listener()
    heard.go_on.set()
    async with mq.consumer("g", "T", on_rebalance=heard.__call__) as member:
        await until(lambda: heard.told == [([0, 1, 2, 3], [])])
        broker.members = sorted([mq.client_id, "zzz"])
        await tell_members(broker)
        await until(lambda: heard.told[1:] == [([], [2, 3])])
        broker.members = None
        await tell_members(broker)
        await until(lambda: heard.told[2:] == [([2, 3], [])])
        names.add("U", broker, queues=1)
        await member.subscribe("U")
        await until(lambda: heard.told[3:] == [([0], [])])
        await member.unsubscribe("U")
        await until(lambda: heard.told[4:] == [([], [0])])
    assert len(heard.told) == 5, "the end isn't told"


async def test_a_lock_that_is_lost_is_told(mq: Client, broker: FakeBroker) -> None:
    heard = Listener()
    heard.go_on.set()
    async with mq.consumer("g", "T", order=True, on_rebalance=heard.__call__):
        await until(lambda: heard.told == [([0, 1, 2, 3], [])])
        broker.locks[QUEUES[0]] = "somebody"
        await until(lambda: heard.told[1:] == [([], [0])])
        del broker.locks[QUEUES[0]]
        await until(lambda: heard.told[2:] == [([0], [])])


async def test_functions_listen_on_threads_and_hold_nothing_up(mq: Client, broker: FakeBroker) -> None:
    told: list[list[MessageQueue]] = []
    go_on = threading.Event()

    def listen(won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        told.append(won)
        go_on.wait(10)

    broker.stored["T", 0] = [b"x"]
    async with mq.lite_pull_consumer("g", ["T"], from_where="first", on_rebalance=listen) as consumer:
        await until(lambda: told == [QUEUES])
        assert [message.body for message in await consumer.poll()] == [b"x"]
        go_on.set()
    with pytest.raises(ClientError, match="on_rebalance is for consumers with topics"):
        mq.lite_pull_consumer("h", on_rebalance=listen)


class Busy:
    """A listener that can't be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def listen(self, won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        with self.lock:
            assert won


async def test_who_asks_how_a_consumer_is_leaves_its_listener_alone(mq: Client, broker: FakeBroker) -> None:
    async with mq.consumer("g", "T", on_rebalance=Busy().listen) as member:
        assert b'"queue_messages_max":"1000"' in member.running_info()


async def test_a_listener_that_waits_for_what_it_cancelled_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    told = []

    async def listen(won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        told.append((won, lost))
        if lost:
            work = asyncio.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            work.cancel()
            await work

    listener = QueueListener(listen, "g")
    running = asyncio.create_task(listener.run())
    listener.won(QUEUES[:1])
    await until(lambda: len(told) == 1)
    listener.lost(QUEUES[:1])
    await until(lambda: "waited for what was cancelled" in caplog.text)
    listener.won(QUEUES[1:2])
    await until(lambda: told[2:] == [(QUEUES[1:2], [])])
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
