"""An archive to a topic again: which messages, in which order, each once."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError
from rockmq.cli.main import app
from rockmq.client import Message
from rockmq.pipeline import moving
from rockmq.pipeline.archive import ArchivedFile, archive
from rockmq.pipeline.compact import compact
from rockmq.pipeline.replay import (
    RATE_OF_A_TASK,
    Counts,
    Replayed,
    Selection,
    _rate_of_each,
    _steps,
    _tasks,
    count,
    replay,
)
from rockmq.spark.ledger import Done
from tests.spark import pages
from tests.spark.conftest import create, fill
from tests.spark.written import NONE, faults, stored
from tests.support.cluster import Cluster, broker_name

Topic = Callable[..., str]
QUEUES = 4
KEYS = 6


def orders(queue: int, count: int) -> list[Message]:
    """Bodies `key:number`; keys are of one queue, and the first has no sharding key but a key."""
    sent = []
    for number in range(count):
        key = f"q{queue}k{number % KEYS}"
        sharded = {} if number % KEYS == 0 else {"__SHARDINGKEY": key}
        keys = () if sharded else (key,)
        body = f"{key}:{number}".encode()
        sent.append(Message("", body, tag=("paid", "open")[number % 2], keys=keys, properties=sharded))
    return sent


def texts(*messages: list[Message]) -> list[str]:
    return [message.body.decode() for each in messages for message in each]


class Archived:
    """A topic of three queues, whose archive has four files a queue."""

    def __init__(self, spark: SparkSession, server: Cluster, topic: Topic, directory: Path) -> None:
        self.spark, self.server, self.directory = spark, server, directory
        self.sent = {queue: orders(queue, 400) for queue in range(3)}
        self.topic = topic(self.sent)
        archive(spark, server.namesrv, self.topic, directory / "archive", records_per_file=100)

    def replay(self, target: str, selection: Selection = Selection(), **more: object) -> Replayed:  # noqa: B008
        where = self.directory / "archive", self.topic, target, self.directory / f"work-{target}"
        return replay(self.spark, self.server.namesrv, *where, selection, **more)  # type: ignore[arg-type]

    def count(self, **selection: object) -> int:
        found = count(self.spark, self.directory / "archive", self.topic, Selection(**selection))  # type: ignore[arg-type]
        return found.rows


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession, server: Cluster, tmp_path_factory: pytest.TempPathFactory, unique: Callable[[str], str]
) -> Archived:
    def topic(messages: dict[int, list[Message]]) -> str:
        name = unique("archived")
        asyncio.run(create(server.namesrv, name, 3))
        asyncio.run(fill(server.namesrv, name, messages))
        return name

    return Archived(spark, server, topic, tmp_path_factory.mktemp("archived"))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50), st.integers(0, 100)), max_size=30),
    st.integers(1, 200),
)
def test_steps_have_each_file_once_and_keep_queues_in_order(made: list[tuple[int, int, int]], bound: int) -> None:
    ends: dict[int, int] = defaultdict(int)
    files = []
    for queue, rows, time_ms in made:
        start, ends[queue] = ends[queue], ends[queue] + rows
        place = f"{queue}-{start}", "a", queue, start, ends[queue]
        files.append(ArchivedFile(*place, rows, 1, time_ms, time_ms, 0))

    steps = list(_steps(files, bound))

    order = [file.path for step in steps for file in step]
    assert sorted(order) == sorted(file.path for file in files)
    sizes = {file.path: file.rows for file in files}
    assert all(len(step) == 1 or sum(sizes[file.path] for file in step) <= bound for step in steps)
    for queue in range(3):
        starts = [int(path.split("-")[1]) for path in order if path.startswith(f"{queue}-")]
        assert starts == sorted(starts)


def test_each_message_is_there_once_and_keys_are_in_order(archived: Archived, topic: Topic) -> None:
    target = topic(queues=QUEUES)

    done = archived.replay(target, rows_per_step=500)
    again = archived.replay(target, rows_per_step=500)

    assert done == again == Replayed(done.id, Done(rows=1_200, sent=1_200, found=0, bad=0))
    assert faults(archived.server, target, QUEUES, texts(*archived.sent.values())) == NONE
    messages = [message for queue in stored(archived.server, target, QUEUES) for message in queue]
    assert {message.properties["REPLAY"] for message in messages} == {done.id}
    first = next(message for message in messages if message.body == b"q1k1:1")
    assert first.properties["UNIQ_KEY"] == f"{archived.topic}/{broker_name(archived.server)}/1/1"
    assert (first.properties["TAGS"], first.properties["__SHARDINGKEY"]) == ("open", "q1k1")
    before = next(message for message in stored(archived.server, archived.topic, 3)[1] if message.body == b"q1k1:1")
    assert first.properties["ORIGIN_UNIQ_KEY"] == before.properties["UNIQ_KEY"]


def test_what_has_no_key_stays_in_the_order_of_its_queue(
    spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path
) -> None:
    name = topic({queue: [Message("", f"q{queue}:{n}".encode()) for n in range(300)] for queue in range(2)})
    target = topic(queues=QUEUES)
    archive(spark, server.namesrv, name, tmp_path, records_per_file=100)

    replay(spark, server.namesrv, tmp_path, name, target, tmp_path / "work", rate=5_000)

    assert faults(server, target, QUEUES, [f"q{queue}:{n}" for queue in range(2) for n in range(300)]) == NONE


def test_what_was_sent_before_a_crash_is_not_sent_again(
    archived: Archived, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends when a step's messages are sent and Spark has noted nothing; then between two steps."""
    target = topic(queues=QUEUES)
    work = archived.directory / f"work-{target}"
    real = moving.Work.save

    def save(self: moving.Work, name: str, document: object) -> None:
        if name.startswith("done/"):
            raise KeyboardInterrupt
        real(self, name, document)  # type: ignore[arg-type]

    monkeypatch.setattr(moving.Work, "save", save)
    with pytest.raises(KeyboardInterrupt):
        archived.replay(target, rows_per_step=500)
    monkeypatch.undo()
    (notes,) = work.glob("ledger/*/job/done.json")
    notes.unlink()

    done = archived.replay(target, rows_per_step=500)

    assert done.done == Done(rows=1_200, sent=700, found=500, bad=0)
    assert faults(archived.server, target, QUEUES, texts(*archived.sent.values())) == NONE


def test_it_goes_on_when_files_were_put_together_meanwhile(
    spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {queue: orders(queue, 200) for queue in range(2)}
    name, target = topic(sent), topic(queues=QUEUES)
    files = archive(spark, server.namesrv, name, tmp_path / "archive", records_per_file=50).files
    where = tmp_path / "archive", name, target, tmp_path / "work"
    real = moving.Work.send

    def send(self: moving.Work, step: str, *more: Any) -> Done:
        if step.endswith("1"):
            raise KeyboardInterrupt
        return real(self, step, *more)

    monkeypatch.setattr(moving.Work, "send", send)
    with pytest.raises(KeyboardInterrupt):
        replay(spark, server.namesrv, *where, rows_per_step=150)
    monkeypatch.undo()
    compact(spark, tmp_path / "archive", keep_seconds=0)
    assert not any((tmp_path / "archive" / name / each.path).exists() for each in files)

    assert replay(spark, server.namesrv, *where).done == Done(rows=400, sent=400, found=0, bad=0)
    assert faults(server, target, QUEUES, texts(*sent.values())) == NONE


def test_a_selection_is_what_it_says(archived: Archived) -> None:
    times = [message.store_timestamp for queue in stored(archived.server, archived.topic, 3) for message in queue]
    middle = sorted(times)[len(times) // 2]

    assert archived.count() == 1_200
    assert archived.count(tags="paid") == archived.count(filter="tags = 'paid'") == 600
    assert archived.count(tags="paid || open") == 1_200
    assert archived.count(keys=("q0k0",)) == archived.count(filter="decode(body, 'utf-8') like 'q0k0:%'") == 67
    assert archived.count(keys=("q0k0", "q1k0"), tags="open") == 0
    assert archived.count(start_ms=middle) == sum(each >= middle for each in times)
    assert archived.count(end_ms=middle) == sum(each < middle for each in times)
    assert archived.count(start_ms=max(times) + 1) == 0
    found = count(archived.spark, archived.directory / "archive", archived.topic)
    assert found == Counts(1_200, sum(map(len, texts(*archived.sent.values()))), found.first, found.last)
    assert found.first is not None
    assert found.last is not None
    assert (int(found.first.timestamp() * 1_000 + 0.5), int(found.last.timestamp() * 1_000 + 0.5)) == (
        min(times),
        max(times),
    )


def test_only_what_is_selected_is_sent(archived: Archived, topic: Topic) -> None:
    target = topic(queues=QUEUES)

    archived.replay(target, Selection(tags="paid", filter="queueId = 2"))

    wanted = [text for number, text in enumerate(texts(archived.sent[2])) if number % 2 == 0]
    assert faults(archived.server, target, QUEUES, wanted) == NONE


@given(st.floats(0.1, 1_000_000))
def test_a_rate_is_shared_out_to_few_tasks(rate: float) -> None:
    assert _tasks(rate) * _rate_of_each(rate) == pytest.approx(rate)
    assert _rate_of_each(rate) <= RATE_OF_A_TASK < _rate_of_each(rate) + RATE_OF_A_TASK


def test_what_cannot_be_sent_is_a_table(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    name, target = topic({0: [*orders(0, 5), Message("", b"x" * 2_000)]}), topic(queues=QUEUES)
    archive(spark, server.namesrv, name, tmp_path / "archive")

    where = tmp_path / "archive", name, target, tmp_path / "work"
    done = replay(spark, server.namesrv, *where, options={"maxMessageSize": "1024"})

    assert done.done == Done(rows=6, sent=5, found=0, bad=1)
    (bad,) = spark.read.parquet(str(tmp_path / "work" / "bad")).collect()
    assert (bad.id, len(bad.body)) == (f"{name}/{broker_name(server)}/0/5", 2_000)
    assert "1024" in bad.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "same"}, "which only `force` allows"),
        ({"topic": "nothing"}, "holds no archive: there is no manifest"),
        ({"rate": -1.0}, "rate is -1"),
        ({"selection": Selection(start_ms=5, end_ms=5)}, "the time range is empty"),
        ({"selection": Selection(filter="regin = 'eu'")}, "^filter: .*regin"),
        ({"selection": Selection(tags="a || *")}, "neither \\* nor tags"),
        ({"options": {"ledger": "/x"}}, "option 'ledger' can't be given"),
    ],
)
def test_a_wrong_replay_says_what_is_wrong(
    archived: Archived, topic: Topic, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    target = archived.topic if change.pop("target", "") else topic(queues=1)
    name, selection = change.pop("topic", archived.topic), change.pop("selection", Selection())

    where = archived.directory / "archive", name, target, tmp_path, selection
    with pytest.raises(ConfigError, match=words):
        replay(archived.spark, archived.server.namesrv, *where, **change)  # type: ignore[arg-type]


def test_a_directory_belongs_to_one_replay(archived: Archived, topic: Topic) -> None:
    target = topic(queues=1)
    archived.replay(target, Selection(keys=("q0k0",)))
    with pytest.raises(ConfigError, match=r"^filter: "):
        archived.replay(topic(queues=1), Selection(filter="regin = 'eu'"))

    with pytest.raises(ConfigError, match=r"belongs to a job whose selection is"):
        archived.replay(target, Selection(keys=("q1k0",)))


def test_a_file_that_is_missing_is_named(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    name = topic({0: orders(0, 10)})
    (made,) = archive(spark, server.namesrv, name, tmp_path).files
    (tmp_path / name / made.path).unlink()

    with pytest.raises(ConfigError, match=r"\.parquet is missing, which the archive's manifest lists"):
        count(spark, tmp_path, name)


def test_the_command(archived: Archived, topic: Topic, tmp_path: Path) -> None:
    target = topic(queues=QUEUES)
    words = ["pipeline", "replay", str(archived.directory / "archive"), archived.topic, target]
    more = [
        "--namesrv",
        archived.server.namesrv,
        "--ledger",
        str(tmp_path / "runs"),
        "--json",
        "--key",
        "q0k0",
        "--key",
        "q1k0",
    ]

    def run(*options: str) -> dict[str, object]:
        done = CliRunner().invoke(app, [*words, *more, *options])
        assert done.exit_code == 0, done.output
        row: dict[str, object] = json.loads(done.stdout)
        return row

    wanted = [text for queue in (0, 1) for text in texts(archived.sent[queue]) if text.startswith(f"q{queue}k0:")]
    size = sum(map(len, wanted))
    assert run("--dry-run", "--from", "2020-01-01T00:00:00Z")["counts"] == {"rows": len(wanted), "bytes": size}
    row = run("--work", str(tmp_path / "work"))
    assert row["counts"] == {"rows": len(wanted), "sent": len(wanted), "steps": 1}
    assert faults(archived.server, target, QUEUES, wanted) == NONE
    for wrong, said in (
        ("--from=yesterday", "--from 'yesterday'"),
        ("--to=2026-01-31", "has no time zone"),
        ("--tags=a", "--work"),
    ):
        failed = CliRunner().invoke(app, [*words, *more, wrong])
        assert (failed.exit_code, said in failed.stderr) == (1, True), failed.stderr


def test_the_page_tells_what_is_so(archived: Archived, topic: Topic, tmp_path: Path) -> None:
    target = topic(queues=QUEUES)
    shown = {
        "/mnt/archive": str(archived.directory / "archive"),
        "/mnt/shared/replayed": str(tmp_path),
        "127.0.0.1:9876": archived.server.namesrv,
        '"orders-replayed"': f'"{target}"',
        '"orders"': f'"{archived.topic}"',
        "properties['region'] = 'eu'": "queueId = 2",
    }

    assert pages.run("replay", shown) == "200\n"
    assert sum(map(len, stored(archived.server, target, QUEUES))) == 200
    assert not pages.not_named("replay")
