"""How much of what is there a micro-batch takes, when it may not take all.

From each queue in proportion to what it has, and at least one message of it: a queue with little must not wait until those
with much are empty. So a limit below the number of queues is exceeded (as by Spark's KafkaMicroBatchStream.rateLimit).
"""

from collections.abc import Mapping
from math import ceil

from rockmq.protocol.bodies.common import MessageQueue

Amounts = dict[MessageQueue, int]
"""Messages, or bytes, by queue."""


def share(there: Mapping[MessageQueue, int], limit: int) -> Amounts:
    """`limit` of all, or all; of each queue one at least."""
    if sum(there.values()) <= limit:
        return dict(there)
    taken = {queue: min(amount, 1) for queue, amount in there.items()}
    rest = {queue: amount - taken[queue] for queue, amount in there.items()}
    total, room = sum(rest.values()), limit - sum(taken.values())
    if room <= 0:
        return taken
    for queue, amount in rest.items():
        taken[queue] += room * amount // total
    by_cut_off = sorted(rest, key=lambda queue: (-(room * rest[queue] % total), queue))
    for queue in by_cut_off[: limit - sum(taken.values())]:
        taken[queue] += 1
    return taken


def share_bytes(there: Mapping[MessageQueue, int], sizes: Mapping[MessageQueue, float], limit: int) -> Amounts:
    """So many messages of each queue that they have about `limit` bytes, with `sizes` for the average message of a queue."""
    bytes_there = {queue: ceil(count * sizes[queue]) for queue, count in there.items()}
    if sum(bytes_there.values()) <= limit:
        return dict(there)
    allowed = share(bytes_there, limit)

    def taken(queue: MessageQueue, count: int) -> int:
        fitting = min(allowed[queue] / sizes[queue], count) if sizes[queue] else count
        return min(max(int(fitting), 1), count)

    return {queue: taken(queue, count) for queue, count in there.items()}
