"""Lite topics, new in Apache's 5.5: a parent topic has very many of them (LiteManagerProcessor.java)."""

from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import json
from rockmq.protocol.bodies.lite import LiteBroker, LiteClient, LiteGroup, LiteParent, LiteTopic
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.lite import (
    GetLiteBroker,
    GetLiteClient,
    GetLiteGroup,
    GetLiteParent,
    GetLiteTopic,
    TriggerLiteDispatch,
)

NAMES_MAX = 10_000
"""More than that a broker never gives."""


class LiteAdmin:
    """`broker` is the name of one, which means its master, or `host:port`. Raises ResponseError for topics that have no lite
    topics, and for groups that aren't bound to one that has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def broker(self, broker: str) -> LiteBroker:
        """What the broker has of lite topics."""
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_LITE_INFO, GetLiteBroker())
        found = json.decode(answer.body, LiteBroker, "lite topics of a broker")
        found.groups = {topic: [self._cluster.at_client(group) for group in names] for topic, names in found.groups.items()}
        return found

    async def parent(self, broker: str, topic: str) -> LiteParent:
        """What the broker has of a topic's lite topics."""
        answer = await self._cluster.ask(broker, RequestCode.GET_PARENT_TOPIC_INFO, GetLiteParent(topic=topic))
        return json.decode(answer.body, LiteParent, "parent of lite topics")

    async def topic(self, broker: str, parent: str, lite_topic: str) -> LiteTopic:
        header = GetLiteTopic(parent_topic=parent, lite_topic=lite_topic)
        answer = await self._cluster.ask(broker, RequestCode.GET_LITE_TOPIC_INFO, header)
        return json.decode(answer.body, LiteTopic, "lite topic")

    async def client(self, broker: str, parent: str, group: str, client_id: str) -> LiteClient:
        """Which lite topics a client has subscribed to; at most 10,000 names."""
        header = GetLiteClient(parent_topic=parent, group=group, client_id=client_id, max_count=NAMES_MAX)
        answer = await self._cluster.ask(broker, RequestCode.GET_LITE_CLIENT_INFO, header)
        return json.decode(answer.body, LiteClient, "lite topics of a client")

    async def group(self, broker: str, group: str, lite_topic: str | None = None, *, most: int = 20) -> LiteGroup:
        """How far a group is behind: in one lite topic, or in all with the `most` where it is that most."""
        header = GetLiteGroup(group=group, lite_topic=lite_topic, top_k=most)
        answer = await self._cluster.ask(broker, RequestCode.GET_LITE_GROUP_INFO, header)
        return json.decode(answer.body, LiteGroup, "lite topics of a group")

    async def dispatch(self, broker: str, group: str, client_id: str | None = None) -> None:
        """Have the broker tell a group's clients, or one, of all lite topics that have something for them."""
        header = TriggerLiteDispatch(group=group, client_id=client_id)
        await self._cluster.ask(broker, RequestCode.TRIGGER_LITE_DISPATCH, header)
