"""Which queue a message goes to (MQFaultStrategy.java, SelectMessageQueueByHash.java; clients' spec, 2.2 and 2.6)."""

import random
from collections.abc import Callable, Sequence

from rockmq.base.errors import ClientError
from rockmq.client.routes import Target
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message
from rockmq.protocol.properties import tag_code

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Picks one of a topic's writable queues for a message."""

Choice = Callable[[Sequence[Target], str | None], Target]
"""Picks a target; the second argument is a broker that has just failed, and better not asked again at once."""


class RoundRobin:
    """One queue after another from a random start; on a retry, queues of the broker that failed are skipped."""

    def __init__(self) -> None:
        self._next = random.randrange(1 << 31)

    def __call__(self, targets: Sequence[Target], avoid: str | None) -> Target:
        for _ in targets:
            chosen = self._turn(targets)
            if chosen.queue.broker_name != avoid:
                return chosen
        return self._turn(targets)

    def _turn(self, targets: Sequence[Target]) -> Target:
        self._next = (self._next + 1) & 0x7FFF_FFFF
        return targets[self._next % len(targets)]


def hashed(key: str) -> Choice:
    """The queue by Java's hash of the key, so that Java producers of the same topic choose alike."""
    number = abs(tag_code(key))
    return lambda targets, _: targets[number % len(targets)]


def fixed(queue: MessageQueue) -> Choice:
    """This queue and no other."""

    def choose(targets: Sequence[Target], _: str | None) -> Target:
        for target in targets:
            if target.queue == queue:
                return target
        raise ClientError(f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} can't be sent to: it isn't in "
                          f"the topic's route, isn't writable, or its broker has no master")  # fmt: skip

    return choose


def selected(selector: Selector, message: Message) -> Choice:
    """The queue that the user's function picks, once: a retry goes where the first attempt went."""
    picked: list[Choice] = []

    def choose(targets: Sequence[Target], _: str | None) -> Target:
        if not picked:
            picked.append(fixed(selector([target.queue for target in targets], message)))
        return picked[0](targets, None)

    return choose
