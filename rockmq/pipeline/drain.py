"""A backed-up topic onto one with more queues, for a group that goes on there.

    <directory>/plan.json           who, from where, and the fence: where the target's queues ended before the first message
    <directory>/step.json           the offsets of a step, from and to, decided before it is begun
    <directory>/reached.json        how far the steps before it have come
    and what `rockmq.pipeline.moving` keeps

A step takes some messages of each old queue, in proportion to what that has. One task sends those of one queue, in order,
each to the new queue of its key; a key that was in one queue is so in one new queue, in its order. After a step the group is
told: it has nothing more to do there.
"""

import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from pyspark.sql import functions as f

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError, ConnectError, ResponseError, RouteNotFound
from rockmq.client import MessageQueue
from rockmq.pipeline.moving import (
    ID,
    NOTHING,
    Given,
    Work,
    asked,
    carried,
    explained,
    message_id,
    new_id,
    queue_of,
    together,
    writable,
)
from rockmq.pipeline.runs import Progress
from rockmq.protocol import topics
from rockmq.protocol.codes import ResponseCode
from rockmq.spark import cluster
from rockmq.spark.admission import share
from rockmq.spark.ledger import Done
from rockmq.spark.options import parse
from rockmq.spark.ranges import OffsetTree, from_tree, name, offset_tree, offsets_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

A = TypeVar("A")

ROWS_PER_STEP = 1_000_000
"""So many ids are read back at most after a failure."""

KEY = "coalesce(shardingKey, keys)"
"""What messages are kept in order by, unless a drain says otherwise."""

POLL_SECONDS = 1.0
"""How long a drain that goes on until it is told waits for more."""

_COLUMNS = "topic,broker,queueId,queueOffset,msgId,keys,tags,shardingKey,body,properties"

Offsets = dict[MessageQueue, int]


class Drained(NamedTuple):
    """What became of all of a drain, over its runs.

    `done` counts messages: `rows` are all that were drained, each of which was either `sent`, or `found` as it had been
    sent before a failure, or is `bad` and can't be sent. `fence` is
    where the group starts in the target, and `drained` where the old queues have been read to.
    """

    done: Done
    fence: Offsets
    drained: Offsets


class Plan(msgspec.Struct, frozen=True):
    """`queues` are those of the target that messages go to, `start` and `fence` are offsets of source and target.

    `hands_over` is whether the group had no offset in the target, and is to start at the fence.
    """

    id: str
    source: str
    target: str
    group: str
    key: str
    queues: list[MessageQueue]
    start: OffsetTree
    fence: OffsetTree
    hands_over: bool


class Step(msgspec.Struct, frozen=True):
    """Offsets by topic, broker and queue: from, and up to."""

    number: int
    start: OffsetTree
    end: OffsetTree


class Reached(msgspec.Struct, frozen=True):
    """After so many steps: where in the old queues, and what became of all messages before."""

    steps: int
    end: OffsetTree
    done: Done


def drain(
    spark: "SparkSession",
    name_server: str,
    source: str,
    target: str,
    group: str,
    work: str | os.PathLike[str],
    *,
    key: str = KEY,
    tasks: int = 0,
    until: threading.Event | None = None,
    rows_per_step: int = ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Drained:
    """Send what `group` hasn't consumed of `source` to `target`, and hand the group over: it starts there at the fence,
    where the target ended before, unless it has offsets there, and in `source` it is behind what was drained.

    It ends with what is there when it is called; with `until` it goes on with what comes, until that is set, and drains to
    the end then. `key` is an expression in Spark's SQL over shardingKey, keys, tags, properties and body: messages of one
    key stay in order, those without one are spread over all queues. `tasks` send more at a time than one for each old
    queue, for a shuffle by key. `work` must be the same directory for this program, the driver and the workers; called
    again with it the drain goes on where it was broken off. `options` are those of source and sink (timeout, accessKey,
    failOnDataLoss, …). To be called in the thread that made the session: in others Spark doesn't find our sink.

    Raises ConfigError, also while the group has consumers on `source`; DataLoss, RockMQError.
    """
    progress = progress or Progress()
    given = Given(name_server, options or {})
    for what, topic in (("source", source), ("target", target)):
        if fault := topics.topic_fault(topic):
            raise ConfigError(f"{what}: {fault}")
    if fault := topics.group_fault(group):
        raise ConfigError(fault)
    if source == target:
        raise ConfigError(f"{source} can't be drained to itself")
    if tasks < 0 or rows_per_step < 1:
        raise ConfigError(f"tasks is {tasks}, expected 0 or more; rows_per_step is {rows_per_step}, expected 1 or more")
    with Work(work) as place:
        plan = place.load("plan.json", Plan)
        if plan is not None:
            place.check(plan, source=source, target=target, group=group, key=key)
        asked(given.connection, lambda client: _check_nobody_consumes(client, group, source))
        if plan is None:
            new = new_id(clock or SystemClock())
            plan = asked(given.connection, lambda client: _decided(client, new, source, target, group, key))
            _check_key(spark, given, plan)
            # Whoever came meanwhile goes on from where the plan begins, too.
            asked(given.connection, lambda client: _check_nobody_consumes(client, group, source))
            place.save("plan.json", plan)
        fence = from_tree(plan.fence)
        asked(given.connection, lambda client: _begin(client, plan))
        progress.begin(f"draining {source} to {target}")
        progress.result("fence", offsets_json(fence))
        going = _Drain(spark, given, place, plan, tasks, progress)
        drained = going.run(until, rows_per_step)
        progress.result("drained", offsets_json(drained))
        return Drained(going.done, fence, drained)


class _Drain:
    """A run of a drain, step by step."""

    def __init__(self, spark: "SparkSession", given: Given, place: Work, plan: Plan, tasks: int, progress: Progress) -> None:
        self._spark = spark
        self._given = given
        self._place = place
        self._plan = plan
        self._tasks = tasks
        self._progress = progress
        before = place.load("reached.json", Reached) or Reached(0, plan.start, NOTHING)
        self.done = before.done
        """What became of the messages of all steps, those of runs before too."""
        self._number = before.steps
        self._reached = from_tree(before.end)

    def run(self, until: threading.Event | None, rows_per_step: int) -> Offsets:
        """Drain to the end; how far that is. Goes on before that with what comes, until it is told."""
        begun = self._place.load("step.json", Step)
        if begun is not None and begun.number == self._number:
            self._take(begun)
        elif self._number:
            self._ask(self._advance)  # which may be what is missing
        while True:
            is_last = until is None or until.is_set()  # before the ends are asked for
            ends = self._ask(self._ends)
            left = sum(end - self._reached[queue] for queue, end in ends.items())
            self._progress.begin(self._progress.stage, rows=self._progress.counts["rows"] + left)
            while there := {queue: end - at for queue, at in self._reached.items() if (end := ends[queue]) > at}:
                taken = share(there, rows_per_step)
                reaching = self._reached | {queue: self._reached[queue] + count for queue, count in taken.items()}
                step = Step(self._number, offset_tree(self._reached), offset_tree(reaching))
                self._place.save("step.json", step)
                self._take(step)
            if is_last:
                return self._reached
            assert until is not None
            until.wait(POLL_SECONDS)

    def _take(self, step: Step) -> None:
        """Do the step, and tell the group that it is behind it."""
        name = f"{self._plan.id}-{step.number:08}"
        done = self._place.done(name)
        if done is None:
            rows = _messages(self._spark, self._given, self._plan, step, self._tasks)
            write = {**self._given.write, "topic": self._plan.target}
            done = self._place.send(name, rows, write, self._progress, self._plan.queues)
        self.done = together(self.done, done)
        self._number += 1
        self._reached |= from_tree(step.end)
        self._place.save("reached.json", Reached(self._number, step.end, self.done))
        self._place.forget(name)
        self._ask(self._advance)

    def _ask(self, question: Callable[[cluster.Brokers], Awaitable[A]]) -> A:
        """As `asked`. The topics were there, so one without a route is waited for as a broker is."""

        async def known(client: cluster.Brokers) -> A:
            try:
                return await question(client)
            except RouteNotFound as error:
                raise ConnectError(str(error)) from error

        return asked(self._given.connection, known)

    async def _advance(self, client: cluster.Brokers) -> None:
        """Have the group go on behind what is drained, where it isn't there already."""
        committed = await client.committed_offsets(self._plan.group, self._plan.source)
        for queue, offset in self._reached.items():
            if (committed.get(queue) or 0) < offset:
                await client.commit(self._plan.group, queue, offset)

    async def _ends(self, client: cluster.Brokers) -> Offsets:
        """Where the old queues end now; one that is new is to be read from where the group is, else from its beginning."""
        bounds = await cluster.bounds_of(client, parse({**self._given.read, "topic": self._plan.source}))
        if new := bounds.keys() - self._reached.keys():
            committed = await client.committed_offsets(self._plan.group, self._plan.source)
            for queue in new & committed.keys():
                at = committed[queue]
                self._reached[queue] = bounds[queue].first if at is None else at
        if gone := sorted(self._reached.keys() - bounds.keys()):
            raise ConnectError(f"queue {name(gone[0])} is in no route now, so nobody can tell whether it is drained")
        return {queue: max(bounds[queue].end, at) for queue, at in self._reached.items()}


# Messages


def _read(spark: "SparkSession", given: Given, plan: Plan, start: Offsets, end: Offsets, tasks: int) -> "DataFrame":
    numbers: dict[str, list[int]] = {}
    for queue in sorted(start):
        numbers.setdefault(queue.broker_name, []).append(queue.queue_id)
    options = {
        "queues": json.dumps({plan.source: numbers}),  # and none that has come just now
        "startingOffsets": offsets_json(start),
        "endingOffsets": offsets_json(end),
        "columns": _COLUMNS,
        "minPartitions": str(tasks),
    }
    return spark.read.format("rockmq").options(**given.read, **options).load()


def _check_key(spark: "SparkSession", given: Given, plan: Plan) -> None:
    """Raises ConfigError for a key that Spark doesn't understand, before anything is kept."""
    start = from_tree(plan.start)
    with explained():
        rows = _read(spark, given, plan, start, start, 0)
        rows.schema  # noqa: B018  (Spark Connect looks at things only when it is asked for something)
    with explained("key"):
        rows.select(f.expr(f"string({plan.key})")).schema  # noqa: B018


def _messages(spark: "SparkSession", given: Given, plan: Plan, step: Step, tasks: int) -> "DataFrame":
    rows = _read(spark, given, plan, from_tree(step.start), from_tree(step.end), tasks)
    rows = rows.withColumn("orderKey", f.expr(f"string({plan.key})"))
    if tasks:
        # What has no key needs no order, and shall not all be one task's.
        alone = f.concat_ws("/", "broker", "queueId", "queueOffset")
        rows = rows.repartition(tasks, f.coalesce("orderKey", alone))
        rows = rows.sortWithinPartitions("broker", "queueId", "queueOffset")
    return rows.select(
        message_id().alias(ID),
        "body",
        carried().alias("properties"),
        queue_of(f.col("orderKey"), len(plan.queues)).alias("queue"),
    )


# What brokers are asked and told


async def _decided(client: cluster.Brokers, new: str, source: str, target: str, group: str, key: str) -> Plan:
    committed = await client.committed_offsets(group, source)
    if all(offset is None for offset in committed.values()):
        raise ConfigError(f"group {group} has no offset in topic {source}, so there is nothing from which to drain it")
    start = {queue: await client.min_offset(queue) if at is None else at for queue, at in committed.items()}
    queues = await writable(client, target)
    fence = {queue: await client.max_offset(queue) for queue in await client.queues(target)}
    known = await client.committed_offsets(group, target)
    hands_over = all(offset is None for offset in known.values())
    return Plan(new, source, target, group, key, queues, offset_tree(start), offset_tree(fence), hands_over)


async def _check_nobody_consumes(client: cluster.Brokers, group: str, source: str) -> None:
    """Raises ConfigError while consumers of the group are on the old topic."""
    try:
        found = await client.admin.groups.connections(group)
    except ResponseError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return
    if source in found.subscriptions:
        who = ", ".join(sorted(each.address for each in found.clients))
        raise ConfigError(
            f"group {group} has consumers on {source} ({who}), which would consume what is moved; stop them first"
        )


async def _begin(client: cluster.Brokers, plan: Plan) -> None:
    """Have the group start at the fence, also where a call before didn't come so far, if it is handed over."""
    if not plan.hands_over:
        return
    committed = await client.committed_offsets(plan.group, plan.target)
    for queue, offset in from_tree(plan.fence).items():
        if queue not in committed:
            raise ConnectError(f"queue {name(queue)} is in no route now, so the group can't be told to start at its fence")
        if committed[queue] is None:
            await client.commit(plan.group, queue, offset)
