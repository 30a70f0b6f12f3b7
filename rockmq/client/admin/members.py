"""Consumers that are running, asked through a broker they are connected to (protocol spec, 4.8)."""

from dataclasses import dataclass

from rockmq.base.errors import ResponseError
from rockmq.client.admin.cluster import Cluster, place_of
from rockmq.client.admin.groups import Subscription, subscribed
from rockmq.protocol import json
from rockmq.protocol.bodies.admin import ConsumeRates, ConsumerRunningInfo, GroupStatus, HeldQueue, PoppedQueue
from rockmq.protocol.bodies.client import DirectResult as DirectResultBody
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import ConsumeDirectly, GetConsumerRunningInfo, GetGroupStatus

RELAY_TIMEOUT = 15.0
"""A broker waits 10 s for a client."""


@dataclass(frozen=True)
class RunningInfo:
    """What a consumer says of itself. `properties` are Apache's PROP_… and its configuration, as text; `stacks` is there
    when it was asked for."""

    properties: dict[str, str]
    subscriptions: list[Subscription]
    queues: dict[MessageQueue, HeldQueue]
    pops: dict[MessageQueue, PoppedQueue]
    rates: dict[str, ConsumeRates]
    stacks: str | None


@dataclass(frozen=True)
class DirectResult:
    """What a consumer made of a message: `result` is CR_SUCCESS, CR_LATER, … (CMResult.java)."""

    result: str
    remark: str | None
    spent_ms: int
    order: bool


class MemberAdmin:
    """`client_id` is one of `GroupAdmin.connections`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> RunningInfo:
        """Raises ResponseError when no broker has this client, or it doesn't answer."""
        header = GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=stacks)
        refused: ResponseError | None = None
        for to in (await self._cluster.masters()).values():
            try:
                answer = await self._cluster.ask(to, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=RELAY_TIMEOUT)
            except ResponseError as error:
                refused = error
                continue
            return _running_info(json.decode(answer.body, ConsumerRunningInfo, f"running info of {client_id}"))
        assert refused is not None, "there is a master, or `masters` raises"
        raise refused

    async def consume(self, group: str, client_id: str, offset_id: str) -> DirectResult:
        """Have a member work on a message now, which changes no offset. Raises ResponseError, also after 10 s."""
        to, _ = place_of(offset_id)
        header = ConsumeDirectly(consumer_group=group, client_id=client_id, msg_id=offset_id)
        answer = await self._cluster.ask(to, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout=RELAY_TIMEOUT)
        body = json.decode(answer.body, DirectResultBody, "result of a message that was handed over")
        return DirectResult(body.consume_result, body.remark, body.spent_time_mills, body.order)

    async def positions(self, group: str, topic: str, client_id: str | None = None) -> dict[str, dict[MessageQueue, int]]:
        """Where members are in their queues of a topic, as they know it themselves: all, or one."""
        header = GetGroupStatus(topic=topic, group=group, client_addr=client_id)
        masters = await self._cluster.masters_of(topic)
        to = next(iter(masters.values()))  # each asks every member
        answer = await self._cluster.ask(to, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, timeout=RELAY_TIMEOUT)
        table = json.decode(answer.body, GroupStatus, "positions of members").consumer_table
        return {name: {MessageQueue.parse(key): offset for key, offset in queues.items()} for name, queues in table.items()}


def _running_info(body: ConsumerRunningInfo) -> RunningInfo:
    return RunningInfo(
        body.properties,
        [subscribed(each) for each in body.subscription_set],
        {MessageQueue.parse(key): each for key, each in body.mq_table.items()},
        {MessageQueue.parse(key): each for key, each in body.mq_pop_table.items()},
        body.status_table,
        body.jstack,
    )
