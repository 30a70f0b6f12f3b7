"""Bodies of pop and of rebalance on the server (spec 4.7; BatchAck.java, SetMessageRequestModeRequestBody.java)."""

from typing import Literal

from msgspec import UNSET, UnsetType, field

from rockmq.protocol.bodies.common import Body, MessageQueue
from rockmq.protocol.header import Int, Long

Mode = Literal["PULL", "POP"]


class BatchAckPart(Body, kw_only=True):
    """Offsets of one pop in one queue: `bits` are a Java BitSet's bytes, base64, bit 0 is `start_offset`."""

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    retry: str = field(name="r", default="0")
    start_offset: Long = field(name="so")
    queue_id: Int = field(name="q")
    revive_queue_id: Int = field(name="rq")
    pop_time: Long = field(name="pt")
    invisible_time: Long = field(name="it")
    bits: bytes = field(name="b")


class BatchAckBody(Body, kw_only=True):
    broker_name: str | None = None
    acks: list[BatchAckPart] = field(default_factory=list)


class RequestMode(Body, kw_only=True):
    """How a group gets the messages of a topic; with `pop_share_queue_num` 0 or less each client pops from all queues."""

    topic: str
    consumer_group: str
    mode: Mode = "PULL"
    pop_share_queue_num: Int = 0


class RequestModes(Body, kw_only=True):
    """By topic and group (MessageRequestModeManager.java)."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = field(default_factory=dict)


class QueryAssignmentBody(Body, kw_only=True):
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: Literal["CLUSTERING", "BROADCASTING"] = "CLUSTERING"


class Assignment(Body, kw_only=True):
    message_queue: MessageQueue
    mode: Mode


class Assignments(Body, kw_only=True):
    """Without the member the client keeps what it has."""

    message_queue_assignments: list[Assignment] | UnsetType = UNSET
