"""Static topics: their queues have numbers of their own, so that they are as many as before when brokers come and go
(TopicQueueMappingUtils.java).

RockMQ's brokers have none; Apache's do, and producers and consumers of this client use them: see `static_queues`.
"""

from rockmq.base.errors import ClientError, ResponseError
from rockmq.client.admin.cluster import Cluster
from rockmq.client.admin.topics import TopicSettings
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.static_topic import MappedTopicConfig, QueueMapping, QueuePlacement, Segment, StaticRoute
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import CreateStaticTopic, GetTopicConfig
from rockmq.protocol.headers.route import GetRouteInfo


class StaticTopicAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self, topic: str, queues: int, *, cluster: str | None = None) -> dict[str, QueueMapping]:
        """Make a static topic with so many queues, one after the other on all masters (of the cluster); what each was told.
        Raises ClientError when there is one of this name."""
        if queues < 1:
            raise ClientError(f"{queues} queues: expected 1 or more")
        masters = sorted(await self._cluster.masters(cluster))
        if known := await self.mappings(topic):
            raise ClientError(f"{topic!r} is a static topic of {', '.join(sorted(known))} already")
        now = self._cluster.instance.clock.now_ms()
        made = {name: QueueMapping(topic=topic, queues=queues, broker_name=name, epoch=now) for name in masters[:queues]}
        for number in range(queues):
            name = masters[number % len(masters)]
            hosted = made[name].hosted
            hosted[number] = [Segment(queue_id=len(hosted), broker_name=name)]
        for mapping in made.values():
            await self.put(TopicSettings(topic, len(mapping.hosted), len(mapping.hosted)), mapping)
        return made

    async def put(self, settings: TopicSettings, mapping: QueueMapping, *, force: bool = False) -> None:
        """Tell the master of `mapping.broker_name` its part. Raises ResponseError for a mapping that doesn't go with the one
        it has, unless `force` says to take it anyway. `settings.attributes` have no effect."""
        header = CreateStaticTopic(
            topic=settings.name,
            default_topic=topics.TEMPLATE,
            read_queue_nums=settings.read_queues,
            write_queue_nums=settings.write_queues,
            perm=int(settings.permission),
            topic_sys_flag=settings.unit_flags,
            order=settings.order,
            force=force,
        )
        code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
        await self._cluster.ask(mapping.broker_name, code, header, json.encode(mapping))

    async def mappings(self, topic: str) -> dict[str, QueueMapping]:
        """What masters keep of the topic, by broker name; none for a topic that isn't static, or isn't there."""
        header = GetTopicConfig(topic=topic, lo=True)  # without `lo` brokers leave the mapping out
        found = {}
        for name, to in (await self._cluster.masters()).items():
            try:
                answer = await self._cluster.ask(to, RequestCode.GET_TOPIC_CONFIG, header)
            except ResponseError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                continue
            mapping = json.decode(answer.body, MappedTopicConfig, "static topic").mapping
            if mapping is not None:
                found[name] = mapping
        return found

    async def placements(self, topic: str) -> dict[str, QueuePlacement]:
        """Where the topic's queues are now, as the name server knows it, by broker name; none for a topic that isn't static.
        Raises ResponseError (TOPIC_NOT_EXIST)."""
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        answer = await self._cluster.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return json.decode(answer.body, StaticRoute, "route of a static topic").placements or {}
