"""What can be said of a lite pull consumer: the keywords of `Client.lite_pull_consumer` (DefaultLitePullConsumer.java;
clients' spec, 3.13)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rockmq.client import process_queue
from rockmq.client.consumer_options import check_bounds
from rockmq.client.offsets import FromWhere
from rockmq.client.queue_listener import RebalanceListener
from rockmq.protocol.allocate import Strategy, averagely
from rockmq.protocol.bodies.common import MessageQueue

QueuesChanged = Callable[[str, list[MessageQueue]], object]
"""Told a topic and the queues that it has now."""


class LitePullOptions(TypedDict, total=False):
    """Keywords, all of which have a default."""

    from_where: FromWhere
    """Where to begin in a queue in which the group has no offset: "first", "last" (the default), or a time."""
    auto_commit: bool
    """Whether a poll commits what polls before it returned. True."""
    auto_commit_interval: float
    """How many seconds apart such commits are at least. 5."""
    broadcast: bool
    """Every member has all queues. Offsets are kept in a file."""
    allocate: Strategy
    """How the group shares the queues of `topics`; all members must do it alike. `allocate.averagely`."""
    queue_messages_max: int
    """Of one queue, how many messages are held that no poll has returned. 1000."""
    queue_bytes_max: int
    """The same in bytes. 100 MiB."""
    messages_max: int
    """Of all queues together, how many messages are held that no poll has returned. 10,000, and never more than 256 MiB."""
    offsets_directory: Path | None
    """Where a broadcast's offsets are. `~/.rocketmq_offsets`."""
    on_queues: QueuesChanged | None
    """Told each topic in use whose queues have changed, with its queues; called in the event loop."""
    on_rebalance: RebalanceListener | None
    """Told which queues of `topics` were won and lost, as of `ConsumerOptions`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """LitePullOptions with their defaults. Raises ClientError."""

    from_where: FromWhere = "last"
    auto_commit: bool = True
    auto_commit_interval: float = 5.0
    broadcast: bool = False
    allocate: Strategy = averagely
    queue_messages_max: int = process_queue.MESSAGES_MAX
    queue_bytes_max: int = process_queue.BYTES_MAX
    messages_max: int = 10_000
    offsets_directory: Path | None = None
    on_queues: QueuesChanged | None = None
    on_rebalance: RebalanceListener | None = None

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)


_BOUNDS = (
    ("auto_commit_interval", 1, float("inf")),
    ("queue_messages_max", 1, 65_535),
    ("queue_bytes_max", 1, 1 << 30),
    ("messages_max", 1, 1_000_000),
)
