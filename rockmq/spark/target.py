"""A topic as one task writes to it: which queue a row goes to, and what of the task's rows is there already."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rockmq.base.errors import ClientError
from rockmq.client import MessageQueue
from rockmq.spark import schema
from rockmq.spark.batch_reader import read_range
from rockmq.spark.options import ConnectionOptions, ReadOptions
from rockmq.spark.ranges import DataLoss, Range, name
from rockmq.spark.write_columns import Rows, identities

RUN_ROWS = 500
"""Rows without a key go to a queue so many at a time: large requests, and all queues in turn."""

SETTLE_SECONDS = 1.0
"""How long a request that nobody waits for any more may still be on its way, before what is stored is read; Apache's broker
has messages in their queues a moment after it has stored them, too."""

_MSG_ID = pa.schema([schema.ARROW.field("msgId")])

Faults = list[tuple[int, str]]
"""(row, why it can't be sent)."""


class Expired(ClientError):
    """A queue doesn't have all messages any more among which a batch's are looked for."""


class Target:
    """A topic and its writable queues; `ends` is where each ended at least, when something of ours was last stored."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue], turn: int) -> None:
        self.topic = topic
        self.queues = queues
        self.ends: dict[MessageQueue, int] = {}
        self.rows = 0
        """How many have come so far."""
        self.found: Found | None = None
        """What attempts before have sent."""
        self._turn = turn

    def choose(self, rows: Rows) -> "tuple[npt.NDArray[np.int32], Faults]":
        """The number of each row's queue: what the row says, else by its key as Java producers choose, else in turn."""
        count = len(self.queues)
        chosen = np.full(rows.count, -1, np.int32)
        open_ = np.ones(rows.count, np.bool_)
        faults: Faults = []
        if rows.queues is not None:
            said = rows.queues.is_valid().to_numpy(zero_copy_only=False)
            numbers = rows.queues.fill_null(0).to_numpy(zero_copy_only=False)
            wrong = said & ((numbers < 0) | (numbers >= count))
            chosen[said & ~wrong] = numbers[said & ~wrong]
            open_ &= ~said
            faults = [
                (int(row), f"queue {numbers[row]} isn't among the {count} of {self.topic}") for row in np.flatnonzero(wrong)
            ]
        if rows.sharding_keys is not None:
            keyed = open_ & rows.sharding_keys.is_valid().to_numpy(zero_copy_only=False)
            chosen[keyed] = np.abs(rows.hashes()[keyed]) % count
            open_ &= ~keyed
        others = np.flatnonzero(open_)
        if len(others):
            run = max(RUN_ROWS, -(-len(others) // count))
            chosen[others] = (self._turn + np.arange(len(others)) // run) % count
            self._turn += -(-len(others) // run)
        return chosen, faults


class Found:
    """What is stored already, each so many times."""

    def __init__(self, stored: "Counter[str]") -> None:
        self._left = stored
        self._known = pa.array(list(stored), pa.string())

    def take(self, identity: pa.Array) -> "npt.NDArray[np.bool_]":
        """Which of these are there, and from now on aren't any more: of equal ones as many as are stored."""
        known = pc.is_in(identity, value_set=self._known).to_numpy(zero_copy_only=False)
        taken = np.zeros(len(identity), np.bool_)
        candidates = np.flatnonzero(known)
        for row, each in zip(candidates, identity.take(pa.array(candidates)).to_pylist(), strict=True):
            if self._left[each] > 0:
                self._left[each] -= 1
                taken[row] = True
        return taken


def stored_between(options: ConnectionOptions, queue: MessageQueue, start: int, end: int, *, given: bool) -> "Counter[str]":
    """What messages of a queue are, and how often each is there. Raises Expired, RockMQError."""
    connection = {field.name: getattr(options, field.name) for field in msgspec.structs.fields(ConnectionOptions)}
    read = ReadOptions(topic=queue.topic, **connection)
    found: Counter[str] = Counter()
    try:
        for batch in read_range(read, Range(queue, start, end), _MSG_ID):
            found.update(identities(batch.column(0), given=given).to_pylist())
    except DataLoss as error:
        raise Expired(
            f"{name(queue)} doesn't have all messages from {start} to {end - 1} any more, so nobody can tell what of this "
            f"batch was sent ({error}); with option delivery=atLeastOnce all of it is sent again"
        ) from None
    return found
