"""Sends, stored and consumed messages compared: what was planted is found, and nothing that wasn't."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError
from rockmq.cli.main import app
from rockmq.client import Client, Message
from rockmq.pipeline import comparing
from rockmq.pipeline.archive import archive
from rockmq.pipeline.comparing import Sources, compare
from rockmq.pipeline.ledgers import _files, read_ledger
from rockmq.pipeline.reconcile import FAULTS, Reconciliation, reconcile
from rockmq.protocol.bodies.common import MessageQueue
from tests.spark.test_batch_read import Topic, numbered
from tests.support.cluster import Cluster

START_MS = 1_800_000_000_000
LATE_S = 30.0
_TIME = pa.timestamp("us", tz="UTC")
_SENT = pa.schema([("id", pa.string()), ("time", _TIME), ("key", pa.string()), ("seq", pa.int64())])
_STORED = pa.schema(
    [("id", pa.string()), ("topic", pa.string()), ("broker", pa.string()), ("queueId", pa.int32()),
     ("queueOffset", pa.int64()), ("storeTimestamp", _TIME)]
)  # fmt: skip
_CONSUMED = pa.schema([("id", pa.string()), ("time", _TIME)])


@dataclass
class World:
    """What was sent, stored and consumed, with times in milliseconds; and what was planted: (id, fault)."""

    sent: list[tuple[str, int, str | None, int | None]] = field(default_factory=list)
    stored: list[tuple[str, str, str, int, int, int]] = field(default_factory=list)
    consumed: list[tuple[str, int]] = field(default_factory=list)
    planted: set[tuple[str, str]] = field(default_factory=set)


def grow(world: World, number: int, dice: random.Random) -> None:
    """A queue of some keys, with random plants. Each message suffers from one at most."""
    names = count()
    turns = [key for key in range(dice.randint(1, 4)) for _ in range(dice.randint(1, 12))]
    dice.shuffle(turns)
    now = START_MS + number * 7_000
    order: list[tuple[str, int, int]] = []  # id, key, seq, as they will lie in the queue
    seqs: dict[int, int] = {}
    for key in turns:
        seqs[key] = seq = seqs.get(key, -1) + dice.randint(1, 3)
        order.append((f"{number}-{next(names)}", key, seq))
    for id, key, seq in order:
        now += dice.randint(0, 300)
        world.sent.append((id, now, f"{number}-{key}", seq))
    plants = {
        id: dice.choice(["lost", "duplicated", "notConsumed", "late", "consumedAgain"])
        for id, _, _ in order
        if dice.random() < 0.2
    }
    if dice.random() < 0.5:  # one goes behind the next of its key
        for at, (id, key, _) in enumerate(order):
            behind = [place for place in range(at + 1, len(order)) if order[place][1] == key]
            if behind and not {id, order[behind[0]][0]} & plants.keys():
                order.insert(behind[0], order.pop(at))
                world.planted |= {(id, "outOfOrder")}
                break
    if dice.random() < 0.3:
        order.append((f"{number}-stray", 0, 0))
        world.planted.add((f"{number}-stray", "notSent"))
    if dice.random() < 0.3:
        world.consumed.append((f"{number}-ghost", now))
        world.planted.add((f"{number}-ghost", "notStored"))
    world.planted |= set(plants.items())
    lies = [id for id, _, _ in order if plants.get(id) != "lost"]
    for id in [id for id in lies if plants.get(id) == "duplicated"]:
        lies.insert(dice.randint(lies.index(id) + 1, len(lies)), id)
    seen: set[str] = set()
    for offset, id in enumerate(lies):
        now += dice.randint(1, 50)
        world.stored.append((id, "orders", "broker-a", number, offset, now))
        if id in seen or plants.get(id) == "notConsumed":
            continue
        seen.add(id)
        took = int(LATE_S * 1_000) + 1 + dice.randint(0, 5_000) if plants.get(id) == "late" else 900
        world.consumed.append((id, now + took))
        if plants.get(id) == "consumedAgain":
            world.consumed.append((id, now + took + dice.randint(0, 500)))


def judged(world: World) -> set[tuple[str, str]]:
    """Every fault, found by looking at each message beside each other one."""
    places: dict[str, list[tuple[int, int, int]]] = {}
    for id, _, _, queue, offset, time in world.stored:
        places.setdefault(id, []).append((queue, offset, time))
    ends: dict[str, list[int]] = {}
    for id, time in world.consumed:
        ends.setdefault(id, []).append(time)
    sends = {id: (key, seq) for id, _, key, seq in world.sent}
    found = set()
    for id in sends.keys() | places.keys() | ends.keys():
        there, taken = sorted(places.get(id, [])), sorted(ends.get(id, []))
        checks = {
            "lost": id in sends and not there,
            "duplicated": len(there) > 1,
            "notConsumed": bool(there) and not taken,
            "late": bool(there) and bool(taken) and taken[0] - there[0][2] > LATE_S * 1_000,
            "consumedAgain": len(taken) > 1,
            "notSent": bool(there) and id not in sends,
            "notStored": bool(taken) and not there,
        }
        if id in sends:
            later = [other for other, (key, seq) in sends.items() if key == sends[id][0] and seq > sends[id][1]]
            checks["outOfOrder"] = bool(there) and any(
                other in places and min(places[other])[0] == there[0][0] and min(places[other])[1] < there[0][1]
                for other in later
            )
            checks["consumedOutOfOrder"] = bool(taken) and any(
                other in ends and min(ends[other]) < taken[0] for other in later
            )
        found |= {(id, fault) for fault, holds in checks.items() if holds}
    return found


def run(spark: SparkSession, world: World, directory: Path, **more: Any) -> Reconciliation:
    given_in = directory / "given"
    given_in.mkdir(exist_ok=True)

    def frame(name: str, rows: list[Any], schema: pa.Schema) -> Any:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [
            pa.array([value * 1_000 for value in values], _TIME) if kind.type == _TIME else pa.array(values, kind.type)
            for values, kind in zip(columns, schema, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), given_in / name)
        return spark.read.parquet(str(given_in / name))

    given = {"consumed": frame("consumed", world.consumed, _CONSUMED), "until_ms": START_MS * 2, "window_seconds": 60} | more
    sent, stored = frame("sent", world.sent, _SENT), frame("stored", world.stored, _STORED)
    return reconcile(spark, sent, stored, directory, late_seconds=LATE_S, **given)


def faults(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(directory / "faults").to_pylist()
    return found


def test_plants_are_found_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """300 queues with random plants, in one run; and a second one leaves the same."""
    seed = random.randrange(1 << 32)
    dice, world = random.Random(seed), World()
    for number in range(300):
        grow(world, number, dice)

    result = run(spark, world, tmp_path)

    rows = faults(tmp_path)
    found = [(row["id"], row["fault"]) for row in rows]
    assert len(found) == len(set(found)), f"seed {seed}"
    assert world.planted - set(found) == set(), f"seed {seed}"
    assert set(found) == judged(world), f"seed {seed}"
    # What follows from plants: who is late, or lies behind, is consumed behind.
    follows = {"consumedOutOfOrder"}
    assert {each for each in set(found) - world.planted if each[1] not in follows} == set(), f"seed {seed}"
    assert result.faults == {fault: sum(each[1] == fault for each in found) for fault in FAULTS}
    assert {fault for fault, amount in result.faults.items() if amount} == set(FAULTS)
    assert (result.sent, result.stored) == (len(world.sent), len({row[0] for row in world.stored}))
    times = {id: time for id, time, _, _ in world.sent}
    assert all(
        row["window"].timestamp() * 1_000 == times[row["id"]] // 60_000 * 60_000 for row in rows if row["id"] in times
    )
    assert "duplicated" in result.report.read_text()

    again = run(spark, world, tmp_path)
    assert again.faults == result.faults
    assert faults(tmp_path) == rows


def test_a_window_is_replaced_and_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    minute = 60_000
    world = World(sent=[("a", START_MS, None, None), ("b", START_MS + minute, None, None)])
    first = run(spark, world, tmp_path)
    assert (first.faults["lost"], first.clean) == (2, False)

    world.stored = [("b", "orders", "broker-a", 0, 0, START_MS + minute)]
    world.consumed = [("b", START_MS + minute + 1)]
    second = run(spark, world, tmp_path, since_ms=START_MS + minute, until_ms=START_MS + 3 * minute)

    assert second.clean
    assert [row["id"] for row in faults(tmp_path)] == ["a"]
    windows = pq.read_table(tmp_path / "windows").to_pylist()
    assert [(row["sent"], row["stored"], row["lost"]) for row in windows] == [(1, 0, 1), (1, 1, 0)]
    names = sorted(path.name for path in (tmp_path / "faults").iterdir())
    assert names == ["20270115T080000Z.parquet", "20270115T080100Z.parquet", "20270115T080200Z.parquet"]


def test_what_was_stored_just_now_may_wait(spark: SparkSession, tmp_path: Path) -> None:
    world = World(
        sent=[("a", START_MS, None, None), ("b", START_MS + 31_000, None, None), ("c", START_MS + 99_000, None, None)],
        stored=[(id, "orders", "b", 0, n, START_MS + n * 31_000) for n, id in enumerate("ab")],
    )
    result = run(spark, world, tmp_path, until_ms=START_MS + 60_000)

    assert (result.sent, result.pending) == (2, 1)
    later = run(spark, World(), tmp_path, since_ms=START_MS + 60_000, until_ms=START_MS + 120_000)
    assert 'class="verdict bad">Nothing was sent in this time.' in later.report.read_text()
    assert [(row["id"], row["fault"]) for row in faults(tmp_path)] == [("a", "notConsumed")]


def test_offsets_of_a_group_say_what_is_consumed(spark: SparkSession, tmp_path: Path) -> None:
    world = World(
        sent=[(id, START_MS, None, None) for id in "abcd"],
        stored=[(id, "orders", "broker-a", n % 2, n // 2, START_MS) for n, id in enumerate("abcd")],
    )
    offsets = {MessageQueue("orders", "broker-a", 0): 2, MessageQueue("orders", "broker-a", 1): 1}
    result = run(spark, world, tmp_path, consumed=None, offsets=offsets)

    assert result.consumed == 3
    assert [(row["id"], row["fault"]) for row in faults(tmp_path)] == [("d", "notConsumed")]


def test_offsets_that_lack_a_queue_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    world = World(stored=[("a", "orders", "store", 0, 0, START_MS)])
    with pytest.raises(ConfigError, match="queue 0 of orders on store, and the group's offsets don't have it"):
        run(spark, world, tmp_path, consumed=None, offsets={MessageQueue("orders", "broker-a", 0): 1})


def test_200_000_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Plants as rare as they are in life, in numbers that were made without the code above."""
    total, keys = 200_000, 1_000
    dice = np.random.default_rng(random.randrange(1 << 32))
    picked = dice.choice(np.arange(keys, total - keys), 37 + 21 + 13 + 11, replace=False)
    lost, repeated, late, moved = np.split(picked, [37, 37 + 21, 37 + 21 + 13])
    number = np.arange(total)
    sent_ms = START_MS + number * 5
    # Numbers of a key are `keys` apart. What is moved lies behind the next one of its key.
    place = number.astype(np.float64)
    place[moved] += keys + 0.5
    here = np.setdiff1d(number, lost)
    lies = np.concatenate([here, repeated])[np.argsort(np.concatenate([place[here], place[repeated] + 7.25]))]
    stored_ms = sent_ms[lies] + 2
    ended_ms = sent_ms[here] + 10
    ended_ms[np.isin(here, late)] += 31_000

    def table(name: str, ids: Any, **columns: Any) -> Any:
        names = pa.array(np.char.add("id-", ids.astype(str)))
        times = {
            name: pa.array(values * 1_000, _TIME)
            for name, values in columns.items()
            if name.lower().endswith(("time", "stamp"))
        }
        rest = {name: values for name, values in columns.items() if name not in times}
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"id": names, **times, **rest}), path)
        return spark.read.parquet(str(path))

    sent = table("sent", number, time=sent_ms, key=pa.array((number % keys).astype(str)), seq=pa.array(number // keys))
    ones = np.zeros(len(lies), np.int32)
    stored = table(
        "stored", lies, storeTimestamp=stored_ms, queueOffset=pa.array(np.arange(len(lies))), queueId=pa.array(ones),
        topic=pa.array(["orders"] * len(lies)), broker=pa.array(["broker-a"] * len(lies)),
    )  # fmt: skip
    consumed = table("consumed", here, time=ended_ms)

    result = reconcile(
        spark, sent, stored, tmp_path, consumed=consumed, until_ms=START_MS * 2, window_seconds=300, late_seconds=LATE_S
    )

    found: dict[str, set[int]] = {}
    for row in faults(tmp_path):
        found.setdefault(row["fault"], set()).add(int(row["id"].removeprefix("id-")))
    # A key's next message comes 5 s later, so who is consumed 31 s late is behind it, unless that is lost or late itself.
    behind = found.pop("consumedOutOfOrder")
    assert found == {"lost": set(lost), "duplicated": set(repeated), "late": set(late), "outOfOrder": set(moved)}
    assert behind <= set(late)
    assert (result.sent, result.stored, result.consumed) == (total, total - 37, total - 37)


def test_more_windows_than_a_report_can_have_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match="there are over 100,000 windows of 60 s"):
        reconcile(nothing, nothing, nothing, tmp_path, since_ms=0, until_ms=START_MS, window_seconds=60)


# Ledgers


def test_a_ledger_of_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    path.write_text(
        '{"id": "a", "time": 1800000000000, "key": "k", "seq": 7, "note": "of no interest"}\n'
        '{"id": "b", "time": "2027-01-15T08:00:01.5Z", "topic": "orders"}\n'
        '{"id": "c", "time": "2027-01-15T08:00:01Z", "topic": "another"}\n'
        '{"id": "d", "time": "yesterday"}\n'
        '{"id": "d", "time": 1800000000000000000}\n'
        '{"time": 1800000000000}\n'
        '{"id": "e", "time": 1800000000000, "seq": "many"}\n'
        "half a li\n"
    )
    rows, bad = read_ledger(spark, str(path), "orders")

    told = rows.selectExpr("id", "unix_millis(time) ms", "key", "seq").orderBy("id").collect()
    assert [tuple(row) for row in told] == [("a", START_MS, "k", 7), ("b", START_MS + 1_500, None, None)]
    reasons = sorted(row["reason"] for row in bad.collect())
    assert [reason.split()[:4] for reason in reasons] == [
        ["it", "has", "no", "id"],
        ["it", "is", "no", "JSON"],
        ["it", "is", "no", "JSON"],
        ["its", "time", "is", "neither"],
        ["its", "time", "is", "neither"],
    ]
    assert any(row["text"] == "half a li" for row in bad.collect())


def test_a_ledger_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    times = pa.array([START_MS, None], pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"id": [1, 2], "time": times, "seq": [3, 4]}), tmp_path / "ledger" / "0.parquet")

    rows, bad = read_ledger(spark, str(tmp_path / "ledger"), "orders")

    told = rows.selectExpr("id", "unix_millis(time)", "key", "seq").collect()
    assert [tuple(row) for row in told] == [("1", START_MS, None, 3)]
    assert [row["text"] for row in bad.collect()] == ['{"id":2,"seq":4}']


def test_what_lies_beside_a_ledger_is_none_of_it(tmp_path: Path) -> None:
    for name in ("_spark_metadata/0.json", "_temporary/0/part.parquet", "_delta_log/0.json", "dt=1/part.parquet", "_x/.crc"):
        path = tmp_path / "_ledger" / name
        path.parent.mkdir(parents=True)
        path.touch()

    assert _files(tmp_path / "_ledger") == ([f"file://{tmp_path}/_ledger/dt=1/part.parquet"], False)


def test_what_is_no_ledger(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no ledger in"):
        read_ledger(spark, str(tmp_path), "orders")
    pq.write_table(pa.table({"msgid": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="has no column 'id'; its columns are msgid"):
        read_ledger(spark, str(tmp_path), "orders")
    (tmp_path / "b.jsonl").touch()
    with pytest.raises(ConfigError, match="a ledger is of one kind"):
        read_ledger(spark, str(tmp_path), "orders")


# From a real server


def test_the_command(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    """A topic, its archive, and ledgers that leave something out and make something up."""
    name = topic({0: numbered(30, keys=["k"]), 1: numbered(30)})
    archive(spark, server.namesrv, name, tmp_path / "archive")
    ids = [
        row["msgId"]
        for row in spark.read.parquet(str(tmp_path / "archive" / name)).orderBy("queueId", "queueOffset").collect()
    ]
    lines = [{"id": id, "time": 1_700_000_000_000, "key": "k", "seq": seq} for seq, id in enumerate([*ids[1:], "nowhere"])]
    (tmp_path / "sent.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "consumed.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines[3:-1], lines[3]]) + "{oops\n"
    )

    words = [
        name,
        str(tmp_path / "out"),
        "--sent",
        f"ledger:{tmp_path}/sent.jsonl",
        "--consumed",
        f"ledger:{tmp_path}/consumed.jsonl",
    ]
    rest = ["--namesrv", server.namesrv, "--ledger", str(tmp_path / "runs"), "--json", "--late", "0"]
    results = [
        CliRunner().invoke(app, ["pipeline", "reconcile", *words, "--from", source, *rest])
        for source in ("broker", f"archive:{tmp_path}/archive")
    ]

    assert [each.exit_code for each in results] == [0, 0], results
    for each in results:
        row = json.loads(each.stdout)
        assert {key: row["counts"][key] for key in ("sent", "stored", "consumed")} == {
            "sent": 60,
            "stored": 60,
            "consumed": 56,
        }
        said = {key.split()[0]: value for key, value in row["results"].items()}
        assert said["lost"] == "1"
        assert said["notSent"] == "1"
        assert said["notConsumed"] == "4"
        assert said["consumedAgain"] == "1"
        assert said["bad"] == "1"
    rows = faults(tmp_path / "out")
    assert {row["id"] for row in rows if row["fault"] == "lost"} == {"nowhere"}
    assert {row["id"] for row in rows if row["fault"] == "notSent"} == {ids[0]}
    assert {row["id"] for row in rows if row["fault"] == "notConsumed"} == set(ids[:4])


def test_trace_and_offsets_of_a_group(
    spark: SparkSession, server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, traces, group = topic(queues=2), topic(), unique("traced")

    async def work() -> None:
        async with Client(server.namesrv, trace=traces) as mq:
            async with mq.producer("pg") as producer:
                await producer.send_batch([Message(name, b"%d" % number) for number in range(20)])
                await producer.send(Message(name, b"not due", delay_level=18))
            async with mq.consumer(group, [name], from_where="first") as consumer:
                for _ in range(20):
                    await (await anext(consumer)).ack()
        async with Client(server.namesrv) as mq, mq.producer("pg") as producer:
            await producer.send(Message(name, b"not traced"))

    asyncio.run(work())
    by_trace = Sources(topic=name, sent="trace", consumed=f"trace:{group}", name_server=server.namesrv, trace_topic=traces)
    first = compare(spark, by_trace, tmp_path / "trace", late_seconds=0)
    by_offsets = Sources(
        topic=name, sent="trace", consumed=f"offsets:{group}", name_server=server.namesrv, trace_topic=traces
    )
    second = compare(spark, by_offsets, tmp_path / "offsets", late_seconds=0)

    assert (first.sent, first.stored, first.consumed, first.faults["notSent"]) == (20, 21, 20, 1)
    assert (second.sent, second.stored, second.consumed, second.faults["notSent"]) == (20, 21, 20, 1)
    assert first.faults["notConsumed"] == second.faults["notConsumed"] == 1


def test_who_lags_consumes_what_was_stored_before_since(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = spark.sql(
        "select 'orders' topic, 'b' broker, 0 queueId, 0L queueOffset, 'a' msgId, "
        f"timestamp_millis({START_MS}) storeTimestamp"
    )
    monkeypatch.setattr(comparing, "messages", lambda *_, **__: stored)
    (tmp_path / "sent.jsonl").write_text(f'{{"id": "a", "time": {START_MS}}}\n')
    (tmp_path / "consumed.jsonl").write_text("".join(f'{{"id": "{id}", "time": {START_MS + 1}}}\n' for id in ("a", "old")))
    sources = Sources(topic="orders", sent=f"ledger:{tmp_path}/sent.jsonl", consumed=f"ledger:{tmp_path}/consumed.jsonl")

    result = compare(spark, sources, tmp_path / "out", since_ms=START_MS, until_ms=START_MS + 3_600_000)

    assert (result.sent, result.consumed, result.faults["notStored"], result.clean) == (1, 1, 0, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sent": "kafka"}, "sent is 'kafka': expected ledger:PATH or trace"),
        ({"consumed": "trace:"}, "consumed is 'trace:': expected ledger:PATH, trace:GROUP or offsets:GROUP"),
        (
            {"messages": "store:/s", "consumed": "offsets:g"},
            "a store doesn't know its broker's name.*: give option brokerName",
        ),
        ({"sent": "trace", "id": "keys"}, "id is 'keys': trace knows messages by msgId alone"),
        ({"messages": "s3"}, "messages can't be read from 's3': expected broker, store:DIR or archive:DIR"),
        ({"messages": "archive:/nowhere"}, "/nowhere holds no finished archive of topic orders"),
        ({"options": {"columns": "body"}}, "option 'columns' can't be given"),
    ],
)
def test_sources_that_are_wrong_are_named(spark: SparkSession, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    (tmp_path / "sent.jsonl").write_text('{"id": "a", "time": 1}\n')
    given = {"topic": "orders", "sent": f"ledger:{tmp_path}", "name_server": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="until is no edge of a window of 3600 s"):
        compare(spark, Sources(**given), tmp_path / "out", until_ms=START_MS + 1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        compare(spark, Sources(**given | changes), tmp_path / "out")  # type: ignore[arg-type]
