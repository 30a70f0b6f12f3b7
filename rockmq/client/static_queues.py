"""Queues of static topics (ClientMetadata.topicRouteData2EndpointsForStaticTopic).

They are numbered through all brokers, and known by one name in the place of a broker's, so that they stay what they are when
they go from one broker to another; the route tells which broker has each of them now. That one answers for the whole queue,
also for messages that were stored when another had it.
"""

from collections.abc import Mapping

from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.static_topic import SCOPE, QueuePlacement

QUEUES_MAX = 65_536
"""Of a topic; name servers pass on whatever brokers tell them."""
PREFIX = "__syslo__"
"""What stands in the place of a broker's name begins with this (MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX)."""


def is_static(queue: MessageQueue) -> bool:
    return queue.broker_name.startswith(PREFIX)


def hosts(topic: str, placements: Mapping[str, QueuePlacement]) -> dict[MessageQueue, str]:
    """The queues of a static topic, in order, and the name of the broker that has each; "" where none has it.

    Of brokers that both say so, the one whose mapping is newer has it: the other one hasn't heard yet that it gave it away.
    Raises ValueError for more queues than there can be.
    """
    newest: dict[MessageQueue, QueuePlacement] = {}
    found: dict[MessageQueue, str] = {}
    for each in sorted(placements.values(), key=lambda placement: placement.epoch):
        if each.queues > QUEUES_MAX:
            raise ValueError(f"a static topic has {each.queues} queues, expected {QUEUES_MAX} at most")
        name = PREFIX + (SCOPE[2:] if each.scope == SCOPE else each.scope)
        found.update({MessageQueue(topic, name, number): "" for number in range(each.queues)})
        newest |= {MessageQueue(topic, name, number): each for number in each.current or ()}
    found.update({queue: each.broker_name for queue, each in newest.items() if queue in found})
    return dict(sorted(found.items()))
