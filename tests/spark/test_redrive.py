"""Dead letters to their topics again: which, changed how, each once, and what is told of them."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError
from rockmq.cli.main import app
from rockmq.cli.pipeline.redrive import loaded, selecting
from rockmq.client import Client, Message
from rockmq.pipeline.moving import Work
from rockmq.pipeline.redrive import _TYPES, Group, Outcome, count, redrive
from tests.spark import dead_letters, pages
from tests.spark.written import bodies, stored
from tests.support.cluster import Cluster

Topic = Callable[..., str]
Unique = Callable[[str], str]


class Letters:
    """A group with dead letters of two topics, three of each; those of the second were given up after a try."""

    def __init__(self, spark: SparkSession, server: Cluster, directory: Path, group: str, first: str, second: str) -> None:
        self.spark, self.server, self.directory = spark, server, directory
        self.group, self.first, self.second = group, first, second
        for topic in (first, second):
            made = (
                Message("", b"%s-%d" % (topic.encode(), number), "paid", "key", {"at": f"{number}"}) for number in range(3)
            )
            dead_letters.make(server, group, topic, made)

    def redrive(self, **more: Any) -> Outcome:
        return redrive(self.spark, self.server.namesrv, self.group, self.directory / "redriven", **more)

    def count(self, **more: Any) -> list[Group]:
        return count(self.spark, self.server.namesrv, self.group, self.directory / "redriven", **more)

    def result(self) -> DataFrame:
        return self.spark.read.parquet(str(self.directory / "redriven" / "result"))

    def of(self, topic: str) -> "Counter[str]":
        """How often each body is in a topic, the first time not counted."""
        return bodies(self.server, topic, 1) - Counter(f"{topic}-{number}" for number in range(3))


@pytest.fixture
def letters(spark: SparkSession, server: Cluster, topic: Topic, unique: Unique, tmp_path: Path) -> Letters:
    return Letters(spark, server, tmp_path, unique("group"), topic(queues=1), topic(queues=1))


def all_of(topic: str) -> dict[str, int]:
    return {f"{topic}-{number}": 1 for number in range(3)}


def test_dead_letters_go_where_they_came_from_once(letters: Letters) -> None:
    first, second = sorted((letters.first, letters.second))
    assert letters.count() == [Group(first, "1 tries", "", 3), Group(second, "1 tries", "", 3)]
    assert letters.of(first).total() == 0

    assert letters.redrive() == Outcome(moved=6)
    assert letters.redrive() == Outcome()

    assert (letters.of(first), letters.of(second)) == (all_of(first), all_of(second))
    was, now = (stored(letters.server, first, 1)[0][at] for at in (0, 3))
    assert (was.body, now.body, now.reconsume_times) == (f"{first}-0".encode(),) * 2 + (0,)
    assert {"TAGS": "paid", "KEYS": "key", "at": "0"}.items() <= now.properties.items()
    assert now.properties["ORIGIN_UNIQ_KEY"] == was.properties["UNIQ_KEY"]
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & now.properties.keys()
    rows = letters.result().orderBy("queueOffset").collect()
    assert [(row.realTopic, row.outcome, row.reason, row.run) for row in rows] == [
        (topic, "moved", None, 1) for topic in (letters.first, letters.second) for _ in range(3)
    ]
    assert now.properties["UNIQ_KEY"] in {row.id for row in rows}
    assert not list(letters.directory.glob("redriven/runs/*/chosen"))


def test_a_redrive_that_broke_off_sends_what_it_had_chosen_once(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends when messages are sent and nobody has noted it; the next call wants other ones."""
    real = Work.save

    def save(self: Work, name: str, document: Any) -> None:
        if name.startswith("done/"):
            raise KeyboardInterrupt
        real(self, name, document)

    monkeypatch.setattr(Work, "save", save)
    with pytest.raises(KeyboardInterrupt):
        letters.redrive(limit=2)
    monkeypatch.undo()
    (notes,) = (letters.directory / "redriven").glob("ledger/*/job/done.json")
    notes.unlink()

    assert letters.redrive(filter=f"realTopic = '{letters.second}'") == Outcome(moved=5)

    assert letters.of(letters.second) == all_of(letters.second)
    assert letters.of(letters.first) == {f"{letters.first}-0": 1, f"{letters.first}-1": 1}
    assert letters.result().where("outcome = 'moved'").count() == 5


def test_a_run_that_is_gone_on_with_judges_topics_as_before(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends when its messages are sent, and a topic that wasn't there comes back."""
    real, absent = Work.save, f"{letters.second}-gone"

    def save(self: Work, name: str, document: Any) -> None:
        if name.endswith("outcome.json"):
            raise KeyboardInterrupt
        real(self, name, document)

    to = f.when(f.col("realTopic") == letters.first, f.col("realTopic")).otherwise(f.lit(absent))
    monkeypatch.setattr(Work, "save", save)
    with pytest.raises(KeyboardInterrupt):
        letters.redrive(transform=lambda rows: rows.withColumn("realTopic", to), options={"timeout": "5"})
    monkeypatch.undo()
    asyncio.run(created(letters.server, absent))

    assert letters.redrive(limit=1) == Outcome(moved=4, skipped=3)

    assert letters.of(letters.first) == all_of(letters.first)
    assert letters.of(letters.second) == {f"{letters.second}-0": 1}


async def created(server: Cluster, topic: str) -> None:
    async with Client(server.namesrv) as mq:
        await mq.create_topic(topic, 1)


def test_what_cannot_be_moved_is_told_and_tried_again(letters: Letters) -> None:
    async def close(permission: int) -> None:
        async with Client(letters.server.namesrv) as mq:
            await mq.create_topic(letters.second, 1, permission=permission)

    large = f.when(f.col("properties")["at"] == "1", f.expr("repeat('x', 2000)")).otherwise(f.expr("string(body)"))

    def change(rows: DataFrame) -> DataFrame:
        return rows.where("properties['at'] != '2'").withColumn("body", large)

    asyncio.run(close(4))
    done = letters.redrive(transform=change, options={"maxMessageSize": "1024"})
    asyncio.run(close(6))

    assert done == Outcome(moved=1, skipped=4, failed=1)
    found = Counter((row.outcome, row.reason) for row in letters.result().collect())
    (failed,) = (reason for outcome, reason in found if outcome == "failed")
    assert "1024" in failed
    assert found == {
        ("moved", None): 1,
        ("failed", failed): 1,
        ("skipped", "the transformation left it out"): 2,
        ("skipped", f"topic {letters.second} has no queue that can be written to"): 2,
    }
    assert letters.redrive() == Outcome(moved=5)
    assert (letters.of(letters.first), letters.of(letters.second)) == (all_of(letters.first), all_of(letters.second))


def test_a_letter_without_a_topic_is_skipped(spark: SparkSession, server: Cluster, unique: Unique, tmp_path: Path) -> None:
    group = unique("group")

    async def send() -> None:
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            (queue,) = await mq.create_topic(f"%DLQ%{group}", 1)
            for properties in ({}, {"RETRY_TOPIC": "not-there"}, {"RETRY_TOPIC": "%RETRY%other"}):
                await producer.send(Message(queue.topic, b"x", properties=dict(properties)), queue=queue)

    asyncio.run(send())

    assert redrive(spark, server.namesrv, group, tmp_path, options={"timeout": "5"}) == Outcome(skipped=3)

    reasons = [row.reason for row in spark.read.parquet(str(tmp_path / "result")).orderBy("queueOffset").collect()]
    assert reasons == [
        "none of its properties DLQ_ORIGIN_TOPIC and RETRY_TOPIC names the topic that it was sent to",
        "there is no topic not-there any more",
        "%RETRY%other is a retry topic, to which no batches go",
    ]


def test_what_came_again_by_pop_goes_to_its_topic(
    spark: SparkSession, server: Cluster, topic: Topic, unique: Unique, tmp_path: Path
) -> None:
    group, target = unique("group"), topic(queues=1)

    async def send() -> None:
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            (queue,) = await mq.create_topic(f"%DLQ%{group}", 1)
            for between in "_+":
                again = {"RETRY_TOPIC": f"%RETRY%{group}{between}{target}"}
                await producer.send(Message(queue.topic, between.encode(), properties=again), queue=queue)

    asyncio.run(send())

    assert redrive(spark, server.namesrv, group, tmp_path) == Outcome(moved=2)
    assert bodies(server, target, 1) == {"_": 1, "+": 1}


def test_a_transformation_may_leave_only_what_it_has_to(shared: Letters) -> None:
    def change(rows: DataFrame) -> DataFrame:
        return selecting(["'mended' TAGS"])(rows.select(*_TYPES))

    assert sum(each.rows for each in shared.count(transform=change)) == 6


def test_a_transformation_may_send_elsewhere(letters: Letters, topic: Topic, tmp_path: Path) -> None:
    target = topic(queues=1)
    file = tmp_path / "mended.py"
    file.write_text(
        "from pyspark.sql import functions as f\n"
        "@f.udf('string')\n"
        "def loud(body):\n    return body.decode().upper()\n"
        "def mended(rows):\n"
        f"    return rows.withColumn('body', loud('body')).withColumn('realTopic', f.lit('{target}'))\n"
    )

    letters.redrive(transform=loaded(f"{file}:mended"), filter=f"realTopic = '{letters.first}'")

    assert bodies(letters.server, target, 1) == {name.upper(): 1 for name in all_of(letters.first)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"filter": "realTopik = 'x'"}, "^filter: .*realTopik"),
        ({"limit": -1}, "limit is -1"),
        ({"transform": selecting(["nothing body"])}, "^transform: .*nothing"),
        ({"transform": selecting(["upper(tags)"])}, "^--select: 'upper\\(tags\\)' is no column of a dead letter"),
        ({"transform": lambda rows: rows.selectExpr("*", "'x' body")}, "^transform: .*body"),
        ({"transform": selecting(["5 body"])}, "makes column 'body' int: expected binary or string"),
        ({"transform": lambda rows: rows.drop("id")}, "leaves no column 'id'"),
        ({"transform": lambda rows: rows.union(rows)}, "it makes 12 rows of 6 dead letters"),
        ({"options": {"topic": "x"}}, "option 'topic' can't be given"),
    ],
)
def test_a_wrong_redrive_says_what_is_wrong(shared: Letters, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shared.redrive(**options)


@pytest.fixture(scope="module")
def shared(spark: SparkSession, server: Cluster, unique: Unique, tmp_path_factory: pytest.TempPathFactory) -> Letters:
    """Of which nothing is moved."""
    topics = unique("letters"), unique("letters")

    async def create() -> None:
        async with Client(server.namesrv) as mq:
            for topic in topics:
                await mq.create_topic(topic, 1)

    asyncio.run(create())
    return Letters(spark, server, tmp_path_factory.mktemp("letters"), unique("group"), *topics)


def test_a_group_without_dead_letters_is_named(spark: SparkSession, server: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="group nobody has no dead letters"):
        redrive(spark, server.namesrv, "nobody", tmp_path, options={"timeout": "2"})


def test_a_directory_is_of_one_group(letters: Letters, shared: Letters) -> None:
    letters.redrive(limit=1)

    with pytest.raises(ConfigError, match=f"is of group {letters.group}, not {shared.group}"):
        redrive(letters.spark, letters.server.namesrv, shared.group, letters.directory / "redriven")


def test_the_command(letters: Letters, tmp_path: Path) -> None:
    words = ["pipeline", "redrive", letters.group, str(tmp_path / "out"), "--namesrv", letters.server.namesrv, "--json"]
    more = ["--ledger", str(tmp_path / "runs"), "--filter", f"realTopic = '{letters.first}'", "--limit", "2"]

    def run(*options: str) -> Any:
        done = CliRunner().invoke(app, [*words, *more, *options])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert run("--dry-run", "--by", "properties['at']")["results"] == {f"{letters.first}, {at}": "1" for at in (0, 1)}
    row = run("--select", "replace(string(body), '-', '+') body", "--select", "'mended' tags")
    assert (row["counts"], row["results"]) == ({"rows": 2, "sent": 2}, {"result": str(tmp_path / "out" / "result")})
    assert letters.of(letters.first) == {f"{letters.first}-{at}".replace("-", "+"): 1 for at in (0, 1)}
    assert stored(letters.server, letters.first, 1)[0][3].properties["TAGS"] == "mended"
    for wrong in (
        ["--transform", "nowhere"],
        ["--transform", f"{tmp_path}/no.py:f"],
        ["--select", "1 x", "--transform", "a:b"],
    ):
        failed = CliRunner().invoke(app, [*words, *more, *wrong])
        assert (failed.exit_code, "--transform" in failed.stderr) == (1, True), failed.output


def test_the_page_tells_what_is_so(letters: Letters, tmp_path: Path) -> None:
    shown = {
        '"127.0.0.1:9876", "billing"': f'"{letters.server.namesrv}", "{letters.group}"',
        "/mnt/shared/billing-redriven": str(tmp_path / "out"),
        "'EURO', 'EUR'": "'-', '+'",
    }

    assert pages.run("redrive", shown) == "Outcome(moved=6, skipped=0, failed=0)\n"
    assert letters.of(letters.first) == {name.replace("-", "+"): 1 for name in all_of(letters.first)}
    assert not pages.not_named("redrive")
