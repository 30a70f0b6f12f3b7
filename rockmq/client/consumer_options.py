"""What can be said of a consumer: the keywords of `Client.consumer` (DefaultMQPushConsumer.java; clients' spec, 3.1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rockmq.base.errors import ClientError
from rockmq.client import process_queue, pull
from rockmq.client.offsets import FromWhere
from rockmq.client.queue_listener import RebalanceListener
from rockmq.protocol.allocate import Strategy, averagely


class ConsumerOptions(TypedDict, total=False):
    """Keywords, all of which have a default."""

    order: bool
    """Work on one message of a queue at a time, in order; one that fails holds up its queue."""
    auto_commit: bool
    """With `order`: whether the offset follows what is acknowledged. If not, `ConsumedMessage.commit` moves it, or a
    handler that returns `Decision.COMMIT`. True."""
    broadcast: bool
    """Every member gets every message. Offsets are kept in a file; what fails is dropped."""
    from_where: FromWhere
    """Where the group begins in a queue in which it has no offset: "first", "last" (the default), or a time. Brokers begin
    young queues at the first message whatever it says."""
    max_in_flight: int
    """How many messages may be taken and not finished. 256."""
    max_reconsume_times: int | None
    """How often a message may fail before it is a dead letter. None is 16, and with `order` without end."""
    consume_timeout: float
    """Seconds after which a handler or `process` block that hangs is broken off and its message refused. 900. With `order`
    it may take as long as it likes."""
    suspend: float
    """Seconds that a queue waits after a failure or a rollback, with `order`. 1."""
    allocate: Strategy
    """How the group shares queues; all members must do it alike. `allocate.averagely`."""
    pull_batch: int
    """Messages asked for at once, 1 to 1024. 256, of which brokers give 32 unless set otherwise."""
    pull_interval: float
    """Seconds to wait after each pull that found something. 0."""
    queue_messages_max: int
    """Of one queue, how many messages are held that aren't finished, or not committed. 1000."""
    queue_bytes_max: int
    """The same in bytes. 100 MiB."""
    topic_messages_max: int | None
    """If given, this is shared out over the consumer's queues, and holds instead of `queue_messages_max`."""
    topic_bytes_max: int | None
    """If given, this is shared out over the consumer's queues, and holds instead of `queue_bytes_max`."""
    offsets_directory: Path | None
    """Where a broadcast's offsets are. `~/.rocketmq_offsets`."""
    on_rebalance: RebalanceListener | None
    """Told, soon after it has happened, which queues were won and which were lost, in two lists; those of the group's retry
    topic too. A coroutine function, or a function, which is called on a thread. The end of the consumer isn't told."""
    drain_timeout: float
    """Seconds that `close` waits for messages that are being worked on. 10."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """ConsumerOptions with their defaults. Raises ClientError."""

    order: bool = False
    auto_commit: bool = True
    broadcast: bool = False
    from_where: FromWhere = "last"
    max_in_flight: int = 256
    max_reconsume_times: int | None = None
    consume_timeout: float = 900.0
    suspend: float = 1.0
    allocate: Strategy = averagely
    pull_batch: int = pull.COUNT_MAX
    pull_interval: float = 0.0
    queue_messages_max: int = process_queue.MESSAGES_MAX
    queue_bytes_max: int = process_queue.BYTES_MAX
    topic_messages_max: int | None = None
    topic_bytes_max: int | None = None
    offsets_directory: Path | None = None
    on_rebalance: RebalanceListener | None = None
    drain_timeout: float = 10.0

    def __post_init__(self) -> None:
        if not self.auto_commit and not self.order:
            raise ClientError("auto_commit=False is for consumers with order=True")
        check_bounds(self, _BOUNDS)


def check_bounds(options: object, bounds: Iterable[tuple[str, float, float]]) -> None:
    """Raises ClientError for what is given and not between its least and most."""
    for name, least, most in bounds:
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ClientError(f"{name}={value} is out of range: expected {least:g} to {most:g}")


_BOUNDS = (
    ("max_in_flight", 1, 1_000_000),
    ("max_reconsume_times", 0, 0x7FFF_FFFF),
    ("consume_timeout", 0.01, float("inf")),
    ("suspend", 0.01, 30.0),
    ("pull_batch", 1, 1024),
    ("pull_interval", 0, 65.535),
    ("queue_messages_max", 1, 65_535),
    ("queue_bytes_max", 1, 1 << 30),
    ("topic_messages_max", 1, 6_553_500),
    ("topic_bytes_max", 1, 100 << 30),
    ("drain_timeout", 0, float("inf")),
)
