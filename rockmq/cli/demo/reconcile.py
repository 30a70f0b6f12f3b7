"""Compares three records that were made apart from each other.

    acknowledged   for each order what its send's receipt said: queue and offset      by the sender
    archived       the rows of the Parquet files: queue, offset, order                read back by Spark
    consumed       a line for each message a member of the group got                  by the members

What was acknowledged must be in the other two. Not the reverse: a send whose answer the crash swallowed is made again,
and both messages may be there; a message whose consumer had not committed when the crash came is delivered again. Such
repeats are counted, not forbidden. Forbidden is what was consumed and isn't stored: a consumer acted on it, and it is gone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rockmq.cli.demo.orders import Plan

EXAMPLES = 3


class Queue(NamedTuple):
    broker: str
    queue_id: int


class Row(NamedTuple):
    """An order in a queue, as stored or as consumed."""

    queue: Queue
    offset: int
    order: int


@dataclass(frozen=True)
class Check:
    """A statement, how many cases it was checked on, and those that contradict it."""

    statement: str
    cases: int
    faults: list[str]

    @property
    def holds(self) -> bool:
        return not self.faults


@dataclass
class Outcome:
    checks: list[Check] = field(default_factory=list)
    stored_again: int = 0
    """Messages that repeat an order that is already stored."""
    consumed_again: int = 0
    """Deliveries of a message that had been delivered before."""

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


def reconcile(
    plan: Plan,
    acknowledged: Mapping[int, tuple[Queue, int]],
    archived: Iterable[Row],
    consumed: Iterable[Row],
    ends: Mapping[Queue, int],
) -> Outcome:
    """`ends` is where the broker says each queue ends: its next offset."""
    rows = sorted(archived)
    deliveries = list(consumed)
    stored = {(row.queue, row.offset): row.order for row in rows}
    consumed_orders = {row.order for row in deliveries}
    return Outcome(
        checks=[
            Check(
                "every order was acknowledged",
                plan.orders,
                [f"order {order}" for order in range(plan.orders) if order not in acknowledged],
            ),
            Check(
                "each acknowledged order is archived where its receipt says",
                len(acknowledged),
                [
                    f"order {order}: {_place(*at)} holds {stored.get(at, 'nothing')}"
                    for order, at in acknowledged.items()
                    if stored.get(at) != order
                ],
            ),
            Check("each queue is archived whole, every offset once", len(ends), _gaps(rows, ends)),
            Check(
                "each acknowledged order was consumed",
                len(acknowledged),
                [f"order {order}" for order in acknowledged if order not in consumed_orders],
            ),
            Check(
                "nothing was consumed that isn't stored",
                len(deliveries),
                [
                    f"order {row.order} from {_place(row.queue, row.offset)}"
                    for row in deliveries
                    if stored.get((row.queue, row.offset)) != row.order
                ],
            ),
            Check("each customer's orders lie in the order they were sent", len(rows), _disorder(plan, rows)),
        ],
        stored_again=len(rows) - len({row.order for row in rows}),
        consumed_again=len(deliveries) - len({(row.queue, row.offset) for row in deliveries}),
    )


def _gaps(rows: list[Row], ends: Mapping[Queue, int]) -> list[str]:
    offsets: dict[Queue, list[int]] = defaultdict(list)
    for row in rows:
        offsets[row.queue].append(row.offset)
    faults = []
    for queue in sorted(ends.keys() | offsets.keys()):
        end = ends.get(queue, 0)
        if offsets[queue] != list(range(end)):
            found = set(offsets[queue])
            missing = [offset for offset in range(end) if offset not in found]
            faults.append(f"{_name(queue)}: {len(offsets[queue])} of {end}, missing {missing[:EXAMPLES]}")
    return faults


def _disorder(plan: Plan, rows: list[Row]) -> list[str]:
    """Where an order lies behind a later one of the same seller, repeats left out; `rows` are sorted."""
    seen: set[int] = set()
    last: dict[tuple[int, Queue], int] = {}
    faults = []
    for row in rows:
        seller, turn = plan.place(row.order)
        if row.order not in seen and turn < last.get((seller, row.queue), -1):
            faults.append(f"order {row.order} at {_place(row.queue, row.offset)} comes too late")
        seen.add(row.order)
        last[seller, row.queue] = max(turn, last.get((seller, row.queue), -1))
    return faults


def _name(queue: Queue) -> str:
    return f"queue {queue.queue_id} of {queue.broker}"


def _place(queue: Queue, offset: int) -> str:
    return f"offset {offset} in {_name(queue)}"
