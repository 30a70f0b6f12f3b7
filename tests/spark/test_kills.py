"""The streaming sink, the archive with its compaction and a drain, all at work in one Spark, while its JVM, its Python
workers or the broker are killed (SIGKILL) at random points: what they write is there once, and rows of a key are in order.

Every job has more to do at any time, so each kill hits all three. In the life of a JVM its workers are killed, the broker
is, and at last the JVM: the first time when every job has gone on, then when one of them has since the last kill, in the
midst of what the others do about that. ROCKMQ_SPARK_KILLS is how many there are of each kind, ROCKMQ_KILL_SEED what their
order and points come from.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rockmq.client import Client, Message, MessageQueue
from rockmq.pipeline.comparing import Sources, compare
from rockmq.protocol.message import StoredMessage
from tests.spark.conftest import create, fill
from tests.spark.kill_program import ARCHIVER, GROUP
from tests.spark.written import NONE, faults, stored
from tests.support import cluster
from tests.support.process import Process, eventually

pytestmark = pytest.mark.flaky(reruns=0)
"""What is lost once is lost."""

KILLS = int(os.environ.get("ROCKMQ_SPARK_KILLS", "5"))
SEED = int(os.environ.get("ROCKMQ_KILL_SEED", random.randrange(1 << 32)))
QUEUES = 4
OLD, NEW = 2, 5
KEYS = 5
FILE_ROWS = 400
FILES_APART = 8
"""Files of the stream that have keys of their own. Two are a batch, and more when Spark dies between noting the files of a
batch and beginning it; files of a batch are written side by side."""
AHEAD = 2_400
"""Rows that the stream and the drain have before them, at least, when one of them is to be killed."""
ALL = range(3)
"""Jobs, by their places in what `Load.reached` tells."""
PATIENCE_S = 600
LOOK_S = 0.2
"""Between looks at how far the jobs are: they need the processor themselves."""


class Load:
    """What the jobs are given, and how far they are."""

    def __init__(self, server: cluster.Cluster, root: Path) -> None:
        self.server = server
        self.root = root
        self.streamed: list[str] = []
        self.drained: list[str] = []
        self._numbers: Counter[str] = Counter()
        self._files = 0
        for topic, queues in (("orders", QUEUES), ("old", OLD), ("new", NEW)):
            asyncio.run(create(server.namesrv, topic, queues))
        asyncio.run(self._group_at_the_beginning())
        (root / "in").mkdir(parents=True)

    async def _group_at_the_beginning(self) -> None:
        async with Client(self.server.namesrv) as mq:
            for queue in range(OLD):
                await mq.commit(GROUP, MessageQueue("old", cluster.broker_name(self.server), queue), 0)

    def reached(self) -> tuple[int, int, int]:
        """Rows that are streamed, drained and archived."""
        archived = (cluster.committed_offset(self.server, ARCHIVER, "orders", queue) or 0 for queue in range(QUEUES))
        return self._stored("orders", QUEUES), self._stored("new", NEW), sum(archived)

    def begun(self, job: str) -> int:
        """How often a job was begun."""
        return len((self.root / f"begun-{job}").read_text().splitlines())

    def _stored(self, topic: str, queues: int) -> int:
        return sum(cluster.max_offset(self.server, topic, queue) for queue in range(queues))

    def feed(self, streamed: int = 0, drained: int = 0) -> None:
        """See to it that nothing runs dry, now that so much is done."""
        while len(self.streamed) < streamed + AHEAD:
            self._write_file()
        while len(self.drained) < drained + AHEAD:
            messages = {queue: [self._message(queue) for _ in range(FILE_ROWS)] for queue in range(OLD)}
            asyncio.run(fill(self.server.namesrv, "old", messages))

    def _next(self, key: str) -> str:
        """Bodies are `key:number`, numbers of a key rise."""
        self._numbers[key] += 1
        return f"{key}:{self._numbers[key]}"

    def _write_file(self) -> None:
        keys = [f"f{self._files % FILES_APART}k{row % KEYS}" for row in range(FILE_ROWS)]
        texts = [self._next(key) for key in keys]
        path = self.root / "in" / f"{self._files:05}.parquet"
        unfinished = path.with_name(f".{path.name}")
        pq.write_table(pa.table({"body": texts, "shardingKey": keys, "keys": texts}), unfinished)
        os.utime(unfinished, (1_700_000_000 + self._files,) * 2)  # by which Spark orders them
        unfinished.replace(path)
        self._files += 1
        self._note("streamed", texts)

    def _message(self, queue: int) -> Message:
        key = f"q{queue}k{len(self.drained) % KEYS}"
        text = self._next(key)
        self._note("drained", [text])
        return Message("", text.encode(), properties={"__SHARDINGKEY": key, "KEYS": text})

    def _note(self, job: str, texts: list[str]) -> None:
        """For the checks: ours, and a ledger for the job `reconcile`."""
        getattr(self, job).extend(texts)
        with (self.root / f"{job}.jsonl").open("a") as ledger:
            for text in texts:
                key, _, number = text.partition(":")
                line = {"id": text, "time": int(time.time() * 1_000), "key": key, "seq": int(number)}
                ledger.write(json.dumps(line) + "\n")


def test_kills_lose_nothing_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    print(f"ROCKMQ_KILL_SEED={SEED}")
    choose = random.Random(SEED)
    lives = [[*choose.sample(["worker", "broker"], 2), "jvm"] for _ in range(KILLS)]
    with cluster.started("rockmq", tmp_path / "server") as server, ExitStack() as running:
        load = Load(server, tmp_path / "jobs")
        command = [sys.executable, "-m", "tests.spark.kill_program", server.namesrv, str(load.root)]
        environment = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}

        def start(number: int) -> Process:
            return running.enter_context(Process(f"program-{number}", [*command, str(number)], tmp_path, environment))

        programs = [start(0)]

        def take_over() -> Process:
            """The one that is ready begins, and the one that is to follow it gets ready."""
            number = len(programs) - 1
            (load.root / f"go-{number}").touch()
            if number < KILLS:
                programs.append(start(number + 1))
            return programs[number]

        load.feed()
        program = take_over()
        for place, kind in ((place, kind) for life in lives for place, kind in enumerate(life)):
            wait_until_gone_on(program, load, choose, [choose.choice(ALL)] if place else ALL)
            print(f"{time.strftime('%X')} {kind} at {load.reached()}", flush=True)
            if kind == "broker":
                server.crash()
                server.start()
            elif kind == "worker":
                eventually(lambda: [pid for pid in workers(program.pid) if kill(pid)], PATIENCE_S, "a worker to kill")  # noqa: B023
            else:
                for pid in descendants(program.pid):
                    kill(pid)
                program.kill()
                program = take_over()
        wait_until_gone_on(program, load, choose, ALL)
        (load.root / "stop").touch()
        assert program.wait(PATIENCE_S) == 0, program.tail()
        # A worker that plans or commits takes its query with it; a broker that is away for some seconds ends none. An
        # archive that begins without a broker ends at once.
        for job in ("stream", "drain"):
            assert load.begun(job) <= 1 + 2 * KILLS, (job, program.tail())

        told = (SEED, lives)
        assert faults(server, "orders", QUEUES, load.streamed) == NONE, told
        assert faults(server, "new", NEW, load.drained) == NONE, told
        ends = [cluster.committed_offset(server, GROUP, "old", queue) for queue in range(OLD)]
        assert ends == [len(load.drained) // OLD] * OLD, told
        assert archive_faults(load.root / "archive" / "orders", stored(server, "orders", QUEUES)) == [], told
        for topic, job, rows in (("orders", "streamed", load.streamed), ("new", "drained", load.drained)):
            sources = Sources(topic=topic, sent=f"ledger:{load.root / job}.jsonl", name_server=server.namesrv, id="keys")
            found = compare(spark, sources, tmp_path / f"checked-{topic}", late_seconds=86_400)
            assert (found.sent, found.stored, found.clean) == (len(rows), len(rows), True), (told, found)


def wait_until_gone_on(program: Process, load: Load, choose: random.Random, jobs: Sequence[int]) -> None:
    """Each of these jobs by at least a row, and one of them by a random number of rows."""
    begun = load.reached()
    point = choose.randrange(2 * FILE_ROWS)

    def went_on() -> bool:
        time.sleep(LOOK_S)
        reached = load.reached()
        load.feed(*reached[:2])
        done = [reached[job] - begun[job] for job in jobs]
        return min(done) > 0 and max(done) > point

    program.wait_until(went_on, PATIENCE_S, f"jobs {jobs} having gone on from {begun}")


def archive_faults(root: Path, messages: list[list[StoredMessage]]) -> list[str]:
    """What readers of the manifest don't see once, and files that are there beside those; knows nothing of how an archive is
    written."""
    found: Counter[tuple[int, int, bytes]] = Counter()
    listed = listed_files(root)
    for path in listed:
        rows = pq.read_table(root / path, columns=["queueId", "queueOffset", "body"]).to_pylist()
        found.update((row["queueId"], row["queueOffset"], row["body"]) for row in rows)
    expected = Counter((queue, at, each.body) for queue, bodies in enumerate(messages) for at, each in enumerate(bodies))
    there = {str(path.relative_to(root)) for path in root.glob("dt=*/*.parquet")}
    wrong = [f"lost {place}" for place in expected - found] + [f"twice {place}" for place in found - expected]
    return wrong + [f"left over {path}" for path in sorted(there - set(listed))]


def listed_files(root: Path) -> list[str]:
    """What the newest complete list and the lists after it say."""
    lists = sorted((root / "_manifest").glob("*.jsonl"))
    newest = max((at for at, path in enumerate(lists) if path.name.endswith(".all.jsonl")), default=0)
    return [json.loads(line)["path"] for path in lists[newest:] for line in path.read_text().splitlines()]


# Processes


def kill(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def workers(pid: int) -> list[int]:
    """Python workers that run tasks or plan: children of Spark's daemons."""
    daemons = {each for each in descendants(pid) if b"pyspark.daemon" in command_line(each)}
    return [each for each, parent in parents().items() if parent in daemons]


def descendants(pid: int) -> list[int]:
    found, tree = [pid], parents()
    for each in found:
        found += [child for child, parent in tree.items() if parent == each]
    return found[1:]


def parents() -> dict[int, int]:
    return dict(_parents())


def _parents() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])


def command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
