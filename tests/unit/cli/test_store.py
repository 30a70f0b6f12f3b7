"""`rockmq store …` as a user runs it, on stores that are whole, damaged, and in use."""

import asyncio
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client, Decision, Message
from rockmq.store.files import StoreLock
from tests.golden.stored import unpack
from tests.unit.cli.conftest import Command
from tests.unit.store.test_verify import make_batches

LOG = "commitlog/00000000000000000000"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack(tmp_path / "store")


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


async def test_a_whole_store_has_no_fault(rockmq: Command, store: Path) -> None:
    ended = await rockmq("store", "verify", str(store))
    assert ended.code == 0, ended.out + ended.err
    assert "no fault" in ended.out


async def test_a_damage_is_said_with_file_and_byte(rockmq: Command, store: Path) -> None:
    flip(store / LOG, 100)
    ended = await rockmq("store", "verify", str(store))
    assert ended.code == 1
    assert f"{LOG} byte 0: crc (golden, queue 1)" in ended.out
    ended = await rockmq("store", "verify", "--json", str(store))
    assert ended.code == 1
    assert json.loads(ended.out)["faults"] == {"crc": 1}


async def test_what_is_no_store_is_one_line(rockmq: Command, tmp_path: Path) -> None:
    ended = await rockmq("store", "verify", str(tmp_path))
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "no store" in ended.err


async def test_dump_shows_what_was_asked_for(rockmq: Command, store: Path) -> None:
    ended = await rockmq(
        "store", "dump", str(store), "--json", "--topic", "golden", "--queue", "1", "--from", "1", "--to", "3"
    )
    records = [json.loads(line) for line in ended.out.splitlines()]
    assert [(record["topic"], record["queueId"], record["queueOffset"]) for record in records] == [
        ("golden", 1, 1),
        ("golden", 1, 2),
    ]
    ended = await rockmq("store", "dump", str(store), "--json", "--position", "291", "--limit", "1", "--body", "4")
    (record,) = (json.loads(line) for line in ended.out.splitlines())
    assert (record["position"], record["body"]) == (291, "new-")
    ended = await rockmq("store", "dump", str(store), "--queues", "--json", "--topic", "golden", "--limit", "1")
    assert json.loads(ended.out)["position"] >= 0
    ended = await rockmq("store", "dump", str(store), "--index", "--json")
    assert json.loads(ended.out)["entries"] == 79


async def test_dump_shows_a_time_that_no_calendar_has(rockmq: Command, store: Path) -> None:
    flip(store / LOG, 56)  # the first byte of the time that the first record was stored at
    ended = await rockmq("store", "dump", str(store), "--json", "--limit", "2")
    damaged, whole = (json.loads(line) for line in ended.out.splitlines())
    assert damaged["stored"].startswith("-7")
    assert datetime.fromisoformat(whole["stored"]).year > 2000


async def test_dump_shows_batch_queues_with_columns_of_their_own(rockmq: Command, tmp_path: Path) -> None:
    ended = await rockmq("store", "dump", str(make_batches(tmp_path / "store")), "--queues")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["topic", "queueId", "queueOffset", "position", "size", "tagsCode"]
    assert lines[10][:4] == ["topic", "queueId", "queueOffset", "messages"]
    assert lines[12][:4] == ["B", "0", "1", "2"]


async def test_repair_mends_queues_and_says_what_it_does(rockmq: Command, store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "golden")
    ended = await rockmq("store", "repair", str(store))
    assert ended.code == 0, ended.out + ended.err
    assert "going to" in ended.out
    assert "done: 31 records in 8 queues" in ended.out
    assert (await rockmq("store", "verify", str(store))).code == 0


async def test_repair_refuses_while_a_broker_runs(rockmq: Command, store: Path) -> None:
    lock = StoreLock(store / "lock")
    ended = await rockmq("store", "repair", str(store))
    assert ended.code == 1
    assert "running" in ended.err
    assert (await rockmq("store", "verify", str(store))).code == 0
    lock.release()


async def test_timers_shows_what_waits(rockmq: Command, tmp_path: Path) -> None:
    settings = {"recallMessageEnable": "true", "timerMaxDelaySec": "864000"}
    async with (
        embedded.serve(tmp_path, flush="ASYNC_FLUSH", properties=settings) as served,
        Client(served.namesrv) as mq,
        mq.producer() as producer,
    ):
        begun = datetime.now().astimezone()
        far = await producer.send(Message("T", b"x", keys=["k"]), deliver_at=begun + timedelta(days=5))
        near = await producer.send(Message("U", b"x"), delay=timedelta(hours=1))
        recalled = await producer.send(Message("U", b"x"), delay=timedelta(hours=2))
        await producer.recall(recalled.recall_handle or "")
        async with asyncio.timeout(60):
            while (await mq.admin.brokers.runtime_info(served.broker)).table["timerOffsetBehind"] != "0":
                await asyncio.sleep(0.05)
    ended = await rockmq("store", "timers", str(tmp_path), "--json")
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [(line["topic"], line["msgId"], line["recalls"], line["keys"]) for line in lines] == [
        ("U", near.msg_id, None, None),
        ("U", recalled.msg_id, recalled.msg_id, None),
        ("U", recalled.msg_id, None, None),
        ("T", far.msg_id, None, "k"),
    ]
    late = datetime.fromisoformat(lines[-1]["deliver"]) - begun - timedelta(days=5)
    assert timedelta(0) <= late <= timedelta(seconds=1)
    ended = await rockmq("store", "timers", str(tmp_path), "--limit", "1")
    assert near.msg_id in ended.out
    assert "and 3 more" in ended.out


async def test_pending_transactions_are_listed_with_their_age(rockmq: Command, tmp_path: Path) -> None:
    async def undecided(about: object) -> Decision:
        return Decision.UNKNOWN

    async with embedded.serve(tmp_path / "store") as served, Client(served.namesrv) as mq:
        async with mq.transaction_producer("shop", undecided) as producer:
            receipt = await producer.send_in_transaction(Message("orders", b"x"), undecided)
        async with asyncio.timeout(60):  # a broker keeps what came last in memory
            while not (running := await rockmq("store", "transactions", str(tmp_path / "store"), "--json")).out:
                await asyncio.sleep(0.2)
    stopped = await rockmq("store", "transactions", str(tmp_path / "store"))
    [line] = map(json.loads, running.out.splitlines())
    assert (line["transaction"], line["topic"], line["group"]) == (receipt.sent.msg_id, "orders", "shop")
    assert (line["checks"], line["queueOffset"], line["ageSeconds"] < 60) == (0, 0, True)
    assert [words.split()[-1] for words in stopped.out.splitlines()] == ["transaction", receipt.sent.msg_id]
