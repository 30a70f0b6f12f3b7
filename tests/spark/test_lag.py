"""Lag over time: what a sample says, how samples are kept, and what they add up to."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError, ConnectError
from rockmq.base.virtual_time import VirtualTime
from rockmq.cli.main import app
from rockmq.client import Client
from rockmq.client import environment as said
from rockmq.embedded import Server
from rockmq.pipeline import lag
from rockmq.pipeline.runs import Progress
from tests.spark.test_batch_read import Topic, numbered
from tests.support.clock import FakeClock
from tests.support.cluster import Cluster
from tests.unit.cli.test_secured import authority, environment, secured

__all__ = ["authority", "environment", "secured"]

MINUTE = lag.MINUTE_MS
START = 1_800_000_000_000  # 2027-01-15 08:00


def rows(minute: int, group: str = "g", **more: Any) -> pa.Table:
    """A sample of one queue."""
    row = {
        "minute": START + minute * MINUTE,
        "group": group,
        "topic": "orders",
        "broker": "b",
        "queueId": 0,
        "sampledAt": START,
        "minOffset": 0,
        "maxOffset": 0,
        "groupOffset": 0,
        "lag": 0,
        "lagSeconds": 0.0,
        "expired": 0,
    }
    return pa.Table.from_pylist([row | more], schema=lag.SCHEMA)


async def test_a_sample(server: Cluster, unique: Callable[[str], str]) -> None:
    name, group = unique("lag"), unique("group")
    async with Client(server.namesrv) as mq:
        queues = await mq.create_topic(name, 3)
        async with mq.producer() as producer:
            for queue in queues[:2]:
                for message in numbered(10):
                    message.topic = name
                    await producer.send(message, queue=queue)
        await mq.commit(group, queues[0], 4)
        clock = FakeClock()
        clock.seconds = (await mq.pull(queues[0], 4, 1)).messages[0].store_timestamp / 1_000 + 7
        found = (await lag.sample(mq, [group], [name], clock=clock)).to_pylist()

    shown = [(row["queueId"], row["groupOffset"], row["minOffset"], row["maxOffset"], row["lag"]) for row in found]
    assert shown == [(0, 4, 0, 10, 6), (1, None, 0, 10, 10), (2, None, 0, 0, 0)]
    assert found[0]["lagSeconds"] == 7.0
    assert found[0]["nextStored"].timestamp() == pytest.approx(clock.seconds - 7)
    assert found[1]["lagSeconds"] is not None
    assert (found[2]["lagSeconds"], found[2]["nextStored"]) == (0.0, None)
    assert {row["minute"].timestamp() * 1_000 for row in found} == {clock.now_ms() // MINUTE * MINUTE}


async def test_nobody_to_sample() -> None:
    with pytest.raises(ConfigError, match="no group is named"):
        await lag.sample(Client("127.0.0.1:1"), [])


async def test_samples_go_on_while_servers_are_away(
    server: Cluster, topic: Topic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    time, progress, seen = VirtualTime(), Progress(), asyncio.Event()
    answers = iter([rows(0), None, rows(1)])

    async def sample(*_: object, **__: object) -> pa.Table:
        answer = next(answers, None)
        if answer is None:
            if progress.counts["samples"] == 2:
                seen.set()
            raise ConnectError("nobody there")
        return answer

    monkeypatch.setattr(lag, "sample", sample)
    async with Client(server.namesrv) as mq:
        work = asyncio.create_task(lag.watch(mq, tmp_path, ["g"], every_seconds=60, clock=time, progress=progress))
        async with asyncio.timeout(20):
            while not seen.is_set():
                await time.advance(60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    assert (progress.counts["samples"], progress.counts["rows"]) == (2, 2)
    assert progress.counts["failed"] >= 2
    assert lag.read(tmp_path).num_rows == 2


def test_a_minute_has_one_row_for_a_queue_of_a_group(tmp_path: Path) -> None:
    lag.append(tmp_path, rows(0, lag=5))
    lag.append(tmp_path, rows(0, "another", lag=6))
    lag.append(tmp_path, rows(0, lag=7))

    found = lag.read(tmp_path).to_pylist()

    assert [(row["group"], row["lag"]) for row in found] == [("another", 6), ("g", 7)]
    assert [path.name for path in tmp_path.glob("*/*")] == ["0800.parquet"]


def test_a_day_that_is_over_becomes_one_file(tmp_path: Path) -> None:
    day = 24 * 60
    for minute in (0, 1, 2):
        lag.append(tmp_path, rows(minute, lag=minute))
    lag.append(tmp_path, rows(day))
    # As after a crash between the new file and the end of the old ones.
    pq.write_table(rows(1, lag=1), tmp_path / "dt=2027-01-15" / "0801.parquet")

    found = lag.read(tmp_path)

    assert sorted(path.name for path in (tmp_path / "dt=2027-01-15").iterdir()) == ["0801.parquet", "day.parquet"]
    assert found.column("lag").to_pylist() == [0, 1, 2, 0]
    assert lag.read(tmp_path, START + day * MINUTE).num_rows == 1
    assert lag.read(tmp_path, START + MINUTE, START + 2 * MINUTE).column("lag").to_pylist() == [1]
    lag.append(tmp_path, rows(day + 1))
    assert [path.name for path in (tmp_path / "dt=2027-01-15").iterdir()] == ["day.parquet"]
    assert lag.read(tmp_path).num_rows == 5
    with pytest.raises(ConfigError, match="there are no samples of that time"):
        lag.read(tmp_path, START + 3 * day * MINUTE)


def test_trend_and_the_time_until_nothing_is_left() -> None:
    """10 messages a second come, 15 are consumed; an hour ago it was otherwise."""
    old = [rows(minute, lag=minute, maxOffset=minute) for minute in range(10)]
    recent = [
        rows(
            200 + at, lag=30_000 - 300 * at, lagSeconds=3_000.0 - 30 * at, maxOffset=50_000 + 600 * at,
            groupOffset=20_000 + 900 * at, expired=3,
        )
        for at in range(31)
    ]  # fmt: skip
    (found,) = lag.standings(pa.concat_tables([*old, *recent]))

    assert (found.lag, found.lag_seconds, found.expired) == (21_000, 2_100.0, 3)
    assert found.sent_rate == pytest.approx(10)
    assert found.consumed_rate == pytest.approx(15)
    assert found.trend == pytest.approx(-5)
    assert found.drain_seconds == pytest.approx(4_200)
    text = lag.report(pa.concat_tables(recent)).html()
    assert "1 h 10 min" in text
    assert "Every group that is behind is catching up." in text


def test_a_group_that_falls_behind_is_named() -> None:
    rising = [rows(at, lag=at, maxOffset=at) for at in range(5)]
    calm = [rows(at, "calm") for at in range(5)]
    first, second = lag.standings(pa.concat_tables(rising + calm))

    assert (first.group, first.drain_seconds) == ("g", None)
    assert (second.group, second.lag, second.drain_seconds) == ("calm", 0, 0.0)
    assert "Behind, and not catching up: g in orders." in lag.report(pa.concat_tables(rising + calm)).html()


def test_one_sample_has_no_trend() -> None:
    (found,) = lag.standings(rows(0, lag=5, lagSeconds=None))
    assert (found.lag, found.lag_seconds, found.trend, found.drain_seconds) == (5, None, None, None)
    text = lag.report(rows(0, lag=5, lagSeconds=None)).html()
    assert "Behind, with one sample that tells no trend: g in orders." in text
    assert "never" not in text
    assert "not catching up" not in text


def test_a_group_that_is_sampled_no_more_is_not_judged() -> None:
    old = [rows(at, "old", lag=at + 1, maxOffset=at + 1) for at in range(5)]
    text = lag.report(pa.concat_tables([*old, *(rows(100 + at) for at in range(5))])).html()
    assert "Every group that is behind is catching up." in text


def test_the_command(server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path) -> None:
    name, group = topic({0: numbered(7)}), unique("group")
    words = ["pipeline", "lag", str(tmp_path / "lag"), "--namesrv", server.namesrv, "--ledger", str(tmp_path / "runs")]
    done = CliRunner().invoke(app, [*words, "--group", group, "--topic", name, "--once", "--report", "--json"])

    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert row["counts"] == {"samples": 1, "rows": 1}
    assert row["results"][f"{group}, {name}"].startswith("7 messages")
    assert group in (tmp_path / "lag" / "lag.html").read_text()


async def test_the_command_at_servers_that_enforce_tls(secured: Server, environment: dict[str, str], tmp_path: Path) -> None:
    async with said.client(secured.namesrv) as mq:
        await mq.create_topic("orders", 1)
    words = ["pipeline", "lag", str(tmp_path / "lag"), "--namesrv", secured.namesrv, "--ledger", str(tmp_path / "runs")]
    wanted = [*words, "--group", "g", "--topic", "orders", "--once", "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, wanted)

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"] == {"samples": 1, "rows": 1}


@pytest.mark.parametrize("words", [[], ["--once", "--every", "5"]])
def test_the_command_wants_to_know_what_to_do(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["pipeline", "lag", str(tmp_path), *words])
    assert done.exit_code == 1
    assert "say one of --once and --every SECONDS, or --report" in done.output
