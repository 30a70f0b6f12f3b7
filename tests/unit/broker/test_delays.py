"""Messages that wait for their delay level, under a clock that the tests move."""

import asyncio
import json
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.broker import delays
from rockmq.broker.server import Broker
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.protocol.properties import tag_code
from rockmq.remoting.client import RemotingClient
from rockmq.store import layout
from rockmq.store.dump import Wanted, queue_entries
from rockmq.store.message_store import MessageStore
from rockmq.store.verify import verify
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HOUR = 3600


async def pulled(
    remote: RemotingClient, broker: Broker, queue_id: int = 0, *, offset: int = 0, tags: str = "*", wait: bool = False
) -> list[StoredMessage]:
    pull = pull_request(offset, queue_id=queue_id, count=1000, tags=tags, suspend_ms=15_000 if wait else 0)
    pull.fields["maxMsgBytes"] = str(8 << 20)
    return decode_stored((await remote.invoke(broker.address, pull, 16)).body, check_crc=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "LOOK_SECONDS", 0.02)


async def settled() -> None:
    """Longer than the service sleeps while something is parked."""
    await asyncio.sleep(0.2)


async def offsets(remote: RemotingClient, broker: Broker) -> dict[str, int]:
    answer = await remote.ask(broker.address, Command(RequestCode.GET_ALL_DELAY_OFFSET, 0), 5)
    table: dict[str, int] = json.loads(answer.body)["offsetTable"]
    return table


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_message_comes_when_its_level_is_over(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, flush: str
) -> None:
    """Pitfall 9.17: what it was delayed by is in its properties still, and doesn't delay it again."""
    async with running(tmp_path, clock, flushDiskType=flush) as broker:
        await remote.ask(broker.address, create_request(), 5)
        result = await sent(remote, broker, send_request(b"later", queue_id=2, tag="paid", DELAY="3", mine="ä"))
        assert (result.queue_id, result.queue_offset) == (2, 0), "the queue that was asked for, the offset where it waits"
        parked_at = clock.now_ms()
        assert await pulled(remote, broker, 2) == []
        clock.seconds += 9.9
        await settled()
        assert await pulled(remote, broker, 2) == []
        waiting = asyncio.create_task(pulled(remote, broker, 2, wait=True))
        await asyncio.sleep(0.1)
        clock.seconds += 0.1
        (message,) = await waiting
        assert (message.topic, message.queue_id, message.queue_offset, message.body) == ("T", 2, 0, b"later")
        assert (message.born_timestamp, message.flag, message.reconsume_times) == (1_700_000_000_000, 7, 0)
        assert message.store_timestamp == clock.now_ms()
        left = {"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "2", "TAGS": "paid", "mine": "ä"}
        assert left.items() <= message.properties.items(), "they stay, and delay nothing any more"
        assert message.properties["UNIQ_KEY"] == result.transaction_id
        assert "WAIT" not in message.properties
        assert [each.body for each in await pulled(remote, broker, 2, tags="paid")] == [b"later"]
        assert await pulled(remote, broker, 2, tags="other") == []
    found = layout.find(tmp_path)
    (entry,) = queue_entries(found, Wanted(SCHEDULE))
    assert (entry["queueId"], entry["tagsCode"]) == (2, parked_at + 10_000)
    (entry,) = queue_entries(found, Wanted("T"))
    assert entry["tagsCode"] == tag_code("paid")
    report = verify(found, lambda done, total: None)
    assert report.is_clean, report.findings


async def test_levels_are_those_configured(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    async with running(tmp_path, clock, messageDelayLevel=" 2s  1d ") as broker:
        for level in ("0", "-1"):
            await sent(remote, broker, send_request(b"now", DELAY=level))
        assert len(await pulled(remote, broker)) == 2
        await sent(remote, broker, send_request(b"a day", DELAY="2"))
        await sent(remote, broker, send_request(b"the last level", DELAY="99"))
        await sent(remote, broker, send_request(b"soon", DELAY="+1", TAGS="x"))
        clock.seconds += 2
        (message,) = await pulled(remote, broker, offset=2, wait=True)
        assert (message.body, message.properties["DELAY"]) == (b"soon", "+1")
        clock.seconds += 24 * HOUR
        await settled()
        assert [(each.body, each.properties["DELAY"]) for each in await pulled(remote, broker, offset=3)] == [
            (b"a day", "2"),
            (b"the last level", "2"),
        ]


async def test_the_lane_parks_as_the_hook_does(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """A topic that isn't there yet is no ordinary one."""
    async with running(tmp_path, clock) as broker:
        for _ in range(2):
            result = await sent(
                remote, broker, send_request(b"x", queue_id=1, tag="t", DELAY="3", UNIQ_KEY="U", REAL_QID="7")
            )
            assert (result.queue_id, result.transaction_id) == (1, "U")
        pull = pull_request(queue_id=2)
        pull.fields["topic"] = SCHEDULE
        by_hook, by_lane = decode_stored((await remote.ask(broker.address, pull, 5)).body, check_crc=True)
        assert (by_hook.queue_offset, by_lane.queue_offset) == (0, 1)
        assert by_lane.properties == by_hook.properties
        assert (by_lane.properties["REAL_TOPIC"], by_lane.properties["REAL_QID"]) == ("T", "1")
        assert (by_lane.born_timestamp, by_lane.born_host, by_lane.flag, by_lane.sys_flag, by_lane.size) == (
            by_hook.born_timestamp, by_hook.born_host, by_hook.flag, by_hook.sys_flag, by_hook.size + 11,
        )  # fmt: skip
        clock.seconds += 10
        await settled()
        assert [each.body for each in await pulled(remote, broker, 1)] == [b"x", b"x"]


async def test_a_clock_that_goes_back_makes_nobody_wait_longer(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with running(tmp_path, clock) as broker:
        await sent(remote, broker, send_request(b"parked before", DELAY="5"))
        clock.seconds -= HOUR
        (message,) = await pulled(remote, broker, wait=True)
        assert message.body == b"parked before"


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_after_a_stop_in_order_each_comes_once(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, flush: str
) -> None:
    """Stopped while it delivers, and with some parked; in a queue of several slices."""
    bodies = [b"%d" % number for number in range(1000)]
    async with running(tmp_path, clock, flushDiskType=flush) as broker:
        await sent(remote, broker, send_request(b"the first", DELAY="2"))
        await asyncio.gather(*(sent(remote, broker, send_request(body, DELAY="1")) for body in bodies))
        clock.seconds += 1
        await pulled(remote, broker, wait=True)
    async with running(tmp_path, clock, flushDiskType=flush) as broker:
        async with asyncio.timeout(30):  # for the disk
            while len(await pulled(remote, broker)) < len(bodies):
                await asyncio.sleep(0.02)
        await settled()
        assert sorted(each.body for each in await pulled(remote, broker)) == sorted(bodies)
    async with running(tmp_path, clock, flushDiskType=flush) as broker:
        clock.seconds += 4
        (message,) = await pulled(remote, broker, offset=1000, wait=True)
        assert message.body == b"the first"
        table = {"1": 1000, "2": 1}
        async with asyncio.timeout(30):  # what isn't forced yet isn't told
            while await offsets(remote, broker) != table:
                await asyncio.sleep(0.05)
        runtime = await remote.ask(broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO, 0), 5)
        figures = json.loads(runtime.body)["table"]
        assert [figures[f"scheduleMessageOffset_{level}"] for level in (1, 2)] == ["1000,1000", "1,1"]
    assert json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == table


async def test_what_was_saved_is_where_delivery_goes_on(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """Apache's document, with offsets that are taken as they are, too large, and of a level that isn't there any more."""
    async with running(tmp_path, clock) as broker:
        for level in ("1", "2"):
            for number in range(3):
                await sent(remote, broker, send_request(f"level {level} {number}".encode(), DELAY=level))
    document = tmp_path / "config" / "delayOffset.json"
    document.write_text('{\n\t"dataVersion":{"counter":4,"timestamp":1},\n\t"offsetTable":{1:1,2:99,33:5\n\t}\n}')
    clock.seconds += HOUR
    async with running(tmp_path, clock, flushDelayOffsetInterval="100") as broker:
        await settled()
        assert [each.body for each in await pulled(remote, broker)] == [b"level 1 1", b"level 1 2"]
        async with asyncio.timeout(30):
            while json.loads(document.read_bytes())["offsetTable"] != {"1": 3, "2": 3, "33": 5}:
                await asyncio.sleep(0.05)
        assert json.loads(document.read_bytes())["dataVersion"]["counter"] > 4
    document.write_text("{")
    (document.parent / "delayOffset.json.bak").write_text("not JSON either")
    with pytest.raises(ConfigError, match=r"delayOffset\.json"):
        async with running(tmp_path, clock):
            pass


async def test_offsets_are_never_ahead_of_the_disk(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """With async flush deliveries are seen before they are forced; a power cut then must not have lost them."""
    settings = {"flushIntervalCommitLog": "3600000", "flushDelayOffsetInterval": "50"}
    async with running(tmp_path, clock, **settings) as broker:
        await sent(remote, broker, send_request(b"later", DELAY="1"))
        clock.seconds += 1
        (message,) = await pulled(remote, broker, wait=True)
        assert message.body == b"later"
        await settled()
        assert await offsets(remote, broker) == {}
        assert not (tmp_path / "config" / "delayOffset.json").exists()
    assert json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {"1": 1}


async def test_a_store_that_takes_nothing_makes_them_wait(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    full = {"diskSpaceWarningLevelRatio": "1", "cleanFileForciblyEnable": "false"}
    async with running(tmp_path, clock) as broker:
        await sent(remote, broker, send_request(b"parked", DELAY="1"))
    clock.seconds += HOUR
    async with running(tmp_path, clock, **full) as broker:
        refused = await remote.invoke(broker.address, send_request(b"no"), 5)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        clock.seconds += HOUR
        await settled()
        clock.seconds += HOUR
        await settled()
        assert await pulled(remote, broker) == []
    assert [record.message for record in caplog.records if "delayed messages wait" in record.message] != []
    async with running(tmp_path, clock) as broker:
        (message,) = await pulled(remote, broker, wait=True)
        assert message.body == b"parked"


async def test_a_level_that_stumbles_goes_on_and_holds_up_no_other(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = MessageStore.deliver

    def stumble(store: MessageStore, level: int, *more: int) -> object:
        if level == 1:
            raise RuntimeError("not foreseen")
        return deliver(store, level, *more)

    async with running(tmp_path, clock) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "deliver", stumble)
            for level in "12":
                await sent(remote, broker, send_request(level.encode(), DELAY=level))
            for _ in range(5):
                clock.seconds += 1
                await settled()
            assert [message.body for message in await pulled(remote, broker)] == [b"2"]
        clock.seconds += 1
        await settled()
        assert [message.body for message in await pulled(remote, broker)] == [b"2", b"1"]


async def test_light_queues_get_it_when_it_is_delivered(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    on = {"enableLmq": "true", "enableMultiDispatch": "true"}
    async with running(tmp_path, clock, **on) as broker:
        said = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "5,5"}
        await sent(remote, broker, send_request(b"later", DELAY="1", **said))
        pull = pull_request(suspend_ms=15_000)
        pull.fields["topic"] = "%LMQ%b"
        waiting = asyncio.create_task(remote.invoke(broker.address, pull, 16))
        await asyncio.sleep(0.1)
        clock.seconds += 1
        (message,) = decode_stored((await waiting).body)
        assert (message.topic, message.body, message.properties["INNER_MULTI_QUEUE_OFFSET"]) == ("T", b"later", "0,0")


@pytest.mark.parametrize("crc", ["false", "true"])
async def test_delivered_records_are_whole(tmp_path: Path, remote: RemotingClient, clock: FakeClock, crc: str) -> None:
    """With `enabledAppendPropCRC` the CRC is that of the new record."""
    settings = {"enabledAppendPropCRC": crc, "forceVerifyPropCRC": crc}
    async with running(tmp_path, clock, **settings) as broker:
        await sent(remote, broker, send_request(b"later", DELAY="1"))
        clock.seconds += 1
        (before,) = await pulled(remote, broker, wait=True)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    async with running(tmp_path, clock, **settings) as broker:
        (after,) = await pulled(remote, broker)
        assert after == before
        assert ("__CRC32#" in after.properties) == (crc == "true")


@pytest.mark.parametrize("level", ["soon", "1.5", "2147483648", "-2147483649", "١"])
async def test_a_level_that_is_no_number_is_refused(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, level: str
) -> None:
    async with running(tmp_path, clock) as broker:
        refused = await remote.invoke(broker.address, send_request(b"x", DELAY=level), 5)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert "DELAY" in (refused.remark or "")
        assert level in (refused.remark or "")
