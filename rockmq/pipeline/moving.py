"""What `replay`, `redrive` and `drain` have in common: stored messages are rows of a write, sent in steps, each one once.

    <directory>/plan.json       the job's own: what was decided before the first message was sent
    <directory>/lock            held by who works here
    <directory>/done/<step>     what became of a step
    <directory>/ledger/<step>/  the sink's notes on the step that goes on (`rockmq.spark.ledger`)
    <directory>/bad/            rows that couldn't be sent, with `reason`

A step that is broken off is done again: the sink finds by its notes what has been sent already. A message's id, which is its
unique key in the new place, is where it came from: topic/broker/queue/offset.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.pandas import functions as udfs
from pyspark.sql.window import Window

from rockmq.base import files
from rockmq.base.clock import Clock
from rockmq.base.errors import ClientError, ConfigError
from rockmq.client import MessageQueue
from rockmq.config.key import Options
from rockmq.pipeline.runs import Progress
from rockmq.pipeline.spark_errors import SPARK_ERRORS, short
from rockmq.protocol import properties as names
from rockmq.spark import cluster
from rockmq.spark.ledger import Done, Ledger, identify
from rockmq.spark.options import ConnectionOptions, ReadOptions, check_connection, convert
from rockmq.spark.tries import Waiting
from rockmq.spark.write_columns import FOR_BROKERS, OF_AN_EARLIER_STORING, hashes
from rockmq.spark.write_options import WriteOptions, parse_write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rockmq.spark.cluster import Brokers

A = TypeVar("A")
T = TypeVar("T", bound=msgspec.Struct)

ID = "id"
"""The column of a message's id."""

ORIGIN_UNIQ_KEY = "ORIGIN_UNIQ_KEY"
"""Property of a message that was moved: the id that its producer gave it."""

_BOOKKEEPING = frozenset(
    {
        *OF_AN_EARLIER_STORING,
        *FOR_BROKERS,
        names.WAIT,
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRANSACTION_ID,
        names.TRANSACTION_CHECK_TIMES,
        names.TRAN_PREPARED_QUEUE_OFFSET,
        names.CHECK_IMMUNITY_TIME,
        names.TIMER_OUT_MS,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_DEL_UNIQKEY,
        names.FIRST_POP_TIME,
        names.ORIGIN_GROUP,
        names.INNER_MULTI_QUEUE_OFFSET,
    }
)
"""Properties that tell of a message's life until now, and not what it is."""

_SET_BY_JOB = {
    "nameserver", "endpoints", "topic", "topics", "topicpattern", "queues", "startingoffsets", "endingoffsets",
    "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy", "group", "minpartitions", "maxrecordsperpartition", "columns", "jsonschema",
    "pushfilters", "readfrom", "brokername", "tags", "sql",
    "delivery", "ledger", "jobid", "dedupkey", "badrows", "rowspersecond",
}  # fmt: skip


NOTHING = Done(0, 0, 0, 0)


class Failed(ClientError):
    """Spark could not do what it was given; the text is the reason in short."""


class Given:
    """A user's options of source and sink, shared out: some, such as `accessKey`, are for both."""

    def __init__(self, name_server: str, options: Mapping[str, str]) -> None:
        """Raises ConfigError for an option that neither has, or that the job sets itself."""
        for name in options:
            if name.lower() in _SET_BY_JOB:
                raise ConfigError(f"option {name!r} can't be given: the job sets it")
            if name.lower() not in _names(ReadOptions):
                convert(WriteOptions, {name: options[name]})  # which names it, if it isn't one
        own = {"nameServer": name_server}
        self.read = {**_of(ReadOptions, options), **own}
        self.write = {**_of(WriteOptions, options), **own}
        self.connection = convert(ConnectionOptions, {**_of(ConnectionOptions, options), **own})
        check_connection(self.connection)
        convert(ReadOptions, self.read)
        parse_write(self.write, streaming=False)


def _names(kind: type[Options]) -> set[str]:
    return {field.encode_name.lower() for field in msgspec.structs.fields(kind)}


def _of(kind: type[Options], options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name.lower() in _names(kind)}


class Work:
    """A directory that driver, workers and this program share, for one job; used with `with`, by one process at a time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).resolve()
        self._ledger = self.directory / "ledger"
        self._lock: int | None = None
        self._is_shared = False

    def __enter__(self) -> Self:
        """Raises ConfigError when another process works there."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(f"another process works in {self.directory}: one at a time can go on with a job") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._lock is not None
        os.close(self._lock)

    def load(self, name: str, kind: type[T]) -> T | None:
        """A document of the directory. Raises ConfigError when it is something else."""
        path = self.directory / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} isn't what this job keeps there: {error}; choose another directory") from None

    def save(self, name: str, document: msgspec.Struct) -> None:
        files.save(self.directory / name, msgspec.json.encode(document).decode())

    def done(self, step: str) -> Done | None:
        """What became of a step, None while it isn't done."""
        return self.load(f"done/{step}", Done)

    def forget(self, step: str) -> None:
        """Keep nothing of a step that won't come again."""
        (self.directory / "done" / step).unlink(missing_ok=True)

    def check(self, plan: msgspec.Struct, **wanted: object) -> None:
        """Raises ConfigError when the plan that is kept here says something else."""
        for name, value in wanted.items():
            if getattr(plan, name) != value:
                raise ConfigError(
                    f"{self.directory} belongs to a job whose {name} is {getattr(plan, name)}, not {value}; choose another "
                    "directory for another job"
                )

    def send(
        self,
        step: str,
        frame: "DataFrame",
        write: Mapping[str, str],
        progress: Progress,
        queues: Sequence[MessageQueue] = (),
    ) -> Done:
        """Send the rows of a step, those that aren't sent yet: columns of a write, and `id`. Numbers in their column `queue`
        are of `queues`, and wait for these.

        Raises Failed, and ConfigError when Spark's processes don't share the directory.
        """
        notes = Ledger(self._ledger, step, BATCH)
        notes.open(identify(self._ledger))
        self._check_shared(frame.sparkSession)
        if queues:
            notes.number(queues)
        own = {"ledger": str(self._ledger), "jobId": step, "dedupKey": ID, "badRows": str(self.directory / "bad")}
        if notes.done() is None:
            with explained():
                frame.write.format("rockmq").options(**write, **own).mode("append").save()
        done = notes.done()
        if done is None:  # also if there was no row, nor a task
            with explained():
                if not frame.isEmpty():
                    raise self._not_shared()
            done = NOTHING
        self.save(f"done/{step}", done)
        notes.forget()
        progress.add(rows=done.rows, sent=done.sent)
        for count, text in ((done.found, "found"), (done.bad, "bad")):
            if count:
                progress.add(**{text: count})
        if done.bad:
            progress.result("bad rows", self.directory / "bad")
        return done

    def _check_shared(self, spark: "SparkSession") -> None:
        """Raises ConfigError when Spark sees another ledger, or none: it would send, and nothing would be noted here."""
        if self._is_shared:
            return
        path = self._ledger / "ledger.json"
        with explained():
            try:
                seen = [row.value for row in spark.read.text(f"file:{path}").collect()]
            except AnalysisException:
                seen = []  # it isn't there
        if seen != [path.read_text()]:
            raise self._not_shared()
        self._is_shared = True

    def _not_shared(self) -> ConfigError:
        return ConfigError(
            f"{self.directory} isn't the same directory here and where Spark's driver and workers run; expected one that "
            "all of them share"
        )


def together(*done: Done) -> Done:
    """What became of several steps."""
    return Done(*map(sum, zip(*map(msgspec.structs.astuple, (NOTHING, *done)), strict=True)))


BATCH = "job"
"""What the sink calls the one batch of a batch write in its ledger."""


@contextlib.contextmanager
def explained(what: str = "") -> Iterator[None]:
    """Spark's errors in short: as ConfigError of `what` where it doesn't understand what it was told, else as Failed."""
    try:
        yield
    except AnalysisException as error:
        raise (ConfigError if what else Failed)(f"{what}: {short(error)}" if what else short(error)) from error
    except SPARK_ERRORS as error:
        raise Failed(short(error)) from error


def asked(connection: ConnectionOptions, question: "Callable[[Brokers], Awaitable[A]]") -> "A":
    """What servers answer; asked again, until the `timeout`, while they are away. Raises RockMQError."""

    async def once() -> "A":
        async with cluster.connected(connection) as client:
            return await question(client)

    async def patiently() -> "A":
        return await Waiting(connection.timeout).until(once)

    return cluster.run(patiently())


async def writable(client: "Brokers", topic: str) -> list[MessageQueue]:
    """The queues of a topic that can be written to. Raises ConfigError if there is none, NotSupported, RockMQError."""
    found = await client.writable_queues(topic)
    if not found:
        raise ConfigError(f"topic {topic} has no queue that can be written to")
    cluster.refuse_static(found, "written to")
    return found


def new_id(clock: Clock) -> str:
    """What a job's steps are called by, and nobody else's."""
    stamp = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}-{secrets.token_hex(3)}"


# Columns


def message_id() -> "Column":
    """Where a message is stored, as its id in the new place."""
    return f.concat_ws("/", "topic", "broker", "queueId", "queueOffset")


def carried(more: Mapping[str, str] | None = None, *, without: tuple[str, ...] = ()) -> "Column":
    """The properties that a message keeps when it is moved: all but those of its life until now, and `more`.

    Of column `properties` and, as it may have no unique key, `msgId`.
    """
    said = {name: f.lit(text) for name, text in (more or {}).items()}
    said[ORIGIN_UNIQ_KEY] = f.coalesce(f.col("properties")[ORIGIN_UNIQ_KEY], f.col("msgId"))
    left_out = sorted({*_BOOKKEEPING, *said, *without})
    kept = f.map_filter(
        "properties", lambda name, _: ~name.isin(left_out) & ~f.startswith(name, f.lit(names.TRANSIENT_PREFIX))
    )
    pairs = [column for name, text in said.items() for column in (f.lit(name), text)]
    return f.map_concat(kept, f.create_map(*pairs))


def queue_of(key: "Column", queues: int) -> "Column":
    """The number of the queue, of so many, to which Java's producers send what has that key; null for a null."""

    def chosen(keys: pa.Array) -> pa.Array:
        numbers = pa.array(abs(hashes(keys)) % queues, pa.int32())
        return pc.if_else(keys.is_valid(), numbers, pa.scalar(None, pa.int32()))

    if hasattr(udfs, "arrow_udf"):
        return udfs.arrow_udf(chosen, "int")(key)  # type: ignore[call-overload, no-any-return]
    # Spark 4.0 has them on pandas' series only.
    import pandas as pd  # type: ignore[import-untyped]

    def of_series(keys: pd.Series) -> pd.Series:
        return chosen(pa.array(keys, pa.string())).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)

    return udfs.pandas_udf(of_series, "int")(key)  # type: ignore[call-overload, no-any-return]


def placed(frame: "DataFrame") -> "DataFrame":
    """With a column `place`: sorted by `IN_ORDER`, rows come in the order in which they were stored, those of one queue
    exactly in its order, also where its broker's clock was set back."""
    of_queue = Window.partitionBy("topic", "broker", "queueId").orderBy("queueOffset")
    latest = f.max("storeTimestamp").over(of_queue.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return frame.withColumn("place", latest)


IN_ORDER = ("place", "broker", "queueId", "queueOffset")
