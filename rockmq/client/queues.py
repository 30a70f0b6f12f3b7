"""Which queue a message goes to (MQFaultStrategy.java, SelectMessageQueueByHash.java; clients' spec, 2.2 and 2.6)."""

import random
from collections.abc import Callable, Sequence

from rockmq.base.errors import ClientError, ConnectError
from rockmq.client.faults import Faults
from rockmq.client.routes import Target, TopicRoute
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message
from rockmq.protocol.properties import tag_code

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Picks one of a topic's writable queues for a message."""

Choice = Callable[[Sequence[Target], str | None], Target]
"""Picks a target; the second argument is a broker that has just failed, and better not asked again at once."""


def target_of(route: TopicRoute, choose: Choice, avoid: str | None = None) -> Target:
    """Where to send now. Raises ConnectError when no master is there for it, and what the choice raises."""
    if not route.targets:
        raise ConnectError(f"no broker of topic {route.topic!r} takes messages: none is writable and has a master")
    target = choose(route.targets, avoid)
    if not target.address:
        broker = f"its broker {target.broker_name} has no master" if target.broker_name else "no broker says that it has it"
        raise ConnectError(f"queue {target.queue_id} of {route.topic!r} can't be sent to now: {broker}")
    return target


class RoundRobin:
    """One queue after another from a random start, of those that have a master; on a retry, queues of the broker that failed
    are skipped.

    With `faults`, queues of brokers that aren't available are skipped as well while there are others, then those of brokers
    that aren't reachable, and a retry begins anywhere again.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults
        self._next = random.randrange(1 << 31)

    def __call__(self, targets: Sequence[Target], avoid: str | None) -> Target:
        faults = self._faults
        if faults is not None:
            if avoid is not None:
                self._next = random.randrange(1 << 31)
            for fits in (faults.is_available, faults.is_reachable):
                for _ in targets:
                    chosen = self._turn(targets)
                    name = chosen.broker_name
                    if name != avoid and fits(name):
                        return chosen
            return self._turn(targets)
        if avoid is None:  # as almost always
            return self._turn(targets)
        for _ in targets:
            chosen = self._turn(targets)
            if chosen.broker_name != avoid:
                return chosen
        return self._turn(targets)

    def _turn(self, targets: Sequence[Target]) -> Target:
        for _ in targets:
            self._next = (self._next + 1) & 0x7FFF_FFFF
            target = targets[self._next % len(targets)]
            if target.address:
                break
        return target


def hashed(key: str) -> Choice:
    """The queue by Java's hash of the key, so that Java producers of the same topic choose alike."""
    number = java_hash(key)
    return lambda targets, _: targets[abs(number) % len(targets)]


def select_by_hash(argument: str | int) -> Selector:
    """Picks the queue that Java's SelectMessageQueueByHash picks for the same argument, an order's number for example.

    An integer counts as Java's Integer if it has 32 bits, else as Long; `True` and `False` as Boolean. Raises ClientError
    for what no Long holds.
    """
    number = abs(java_hash(argument))
    return lambda queues, _: queues[number % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
    """Picks any queue (SelectMessageQueueByRandom.java)."""
    return random.choice(queues)


def java_hash(value: str | int) -> int:
    """Java's `hashCode` of a String, Integer, Long or Boolean: 32 bits, signed."""
    if isinstance(value, str):
        return tag_code(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if -(1 << 31) <= value < 1 << 31:
        return value
    if not -(1 << 63) <= value < 1 << 63:
        raise ClientError(f"{value} has no hash in Java: it has more than 64 bits")
    folded = (value ^ value >> 32) & 0xFFFF_FFFF
    return folded - (1 << 32) if folded >= 1 << 31 else folded


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
            queue = selector([target.queue for target in targets], message)
            if not isinstance(queue, MessageQueue):
                raise ClientError(f"the selector picked {queue!r}: expected one of the queues that it was given")
            picked.append(fixed(queue))
        return picked[0](targets, None)

    return choose
