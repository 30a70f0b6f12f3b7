"""Bodies of pop and of rebalance on the server (spec 4.7; BatchAck.java, SetMessageRequestModeRequestBody.java), and of the
messages by which Apache's broker remembers pops (PopCheckPoint.java, AckMsg.java; store spec, 6.5)."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

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


class PopCheckpoint(Body, kw_only=True):
    """What a group popped of a queue at once: `count` messages, `steps` behind `start_offset`, one after the other without.
    Those whose bit is set are acknowledged, `suspended` ones come again without counting as a try."""

    start_offset: Long = field(name="so")
    pop_time: Long = field(name="pt")
    invisible_time: Long = field(name="it")
    bits: Int = field(name="bm", default=0)
    count: Annotated[int, Meta(ge=0, le=127)] = field(name="n")
    queue_id: Int = field(name="q")
    topic: str = field(name="t")
    group: str = field(name="c")
    steps: Annotated[list[Int], Meta(max_length=127)] | None = field(name="d", default=None)
    suspended: bool = field(name="sp", default=False)

    def offsets(self) -> dict[int, bool]:
        """By offset, whether it is acknowledged."""
        steps = self.steps or range(self.count)
        return {self.start_offset + step: number < 32 and bool(self.bits >> number & 1) for number, step in enumerate(steps)}


class PopAcks(Body, kw_only=True):
    """Acknowledgements of what one checkpoint tells of: `offset` of one message, or `offsets` of several."""

    offset: Long = field(name="ao", default=-1)
    offsets: list[Long] = field(name="aol", default_factory=list)
    start_offset: Long = field(name="so")
    group: str = field(name="c")
    topic: str = field(name="t")
    queue_id: Int = field(name="q")
    pop_time: Long = field(name="pt")
    broker_name: str = field(name="bn", default="")


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
