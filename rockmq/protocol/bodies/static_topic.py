"""Static topics: queues with numbers of their own, which stay when they go from one broker to another
(TopicQueueMappingDetail.java, LogicQueueMappingItem.java).

Each broker has the history of the queues it holds: which queue of which broker held a static queue from which offset on.
"""

from msgspec import field

from rockmq.protocol.bodies.common import Body, TopicConfig
from rockmq.protocol.header import Int, Long

SCOPE = "__global__"
UNKNOWN = -1


class Segment(Body, kw_only=True):
    """A part of a static queue, in a queue of a broker: from `logic_offset` on, where that queue is at `start_offset`, up to
    `end_offset`. Times in ms; -1 for an end that isn't there yet."""

    generation: Int = field(default=0, name="gen")
    queue_id: Int
    broker_name: str = field(name="bname")
    logic_offset: Long = 0
    start_offset: Long = 0
    end_offset: Long = UNKNOWN
    time_of_start: Long = UNKNOWN
    time_of_end: Long = UNKNOWN


class QueuePlacement(Body, kw_only=True):
    """What a name server knows: how many queues the topic has, and those of this broker, with the queues they are in
    (TopicQueueMappingInfo.java). A greater `epoch` is newer."""

    topic: str
    scope: str = SCOPE
    queues: Int = field(name="totalQueues")
    broker_name: str = field(name="bname")
    epoch: Long
    dirty: bool = False
    current: dict[int, int] | None = field(default=None, name="currIdMap")


class QueueMapping(Body, kw_only=True):
    """What a broker keeps: its static queues, each with its parts from the oldest on."""

    topic: str
    scope: str = SCOPE
    queues: Int = field(name="totalQueues")
    broker_name: str = field(name="bname")
    epoch: Long
    dirty: bool = False
    hosted: dict[int, list[Segment]] = field(default_factory=dict, name="hostedQueues")


class MappedTopicConfig(TopicConfig, kw_only=True):
    """A topic's settings, with the mapping if it is a static one (TopicConfigAndQueueMapping.java)."""

    mapping: QueueMapping | None = field(default=None, name="mappingDetail")


class StaticRoute(Body, kw_only=True):
    """Of a route that which says where a static topic's queues are."""

    placements: dict[str, QueuePlacement] | None = field(default=None, name="topicQueueMappingByBroker")
