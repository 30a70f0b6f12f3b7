"""Topics, offsets and plain reading, without a group's membership: what tools and the Spark source build on."""

import asyncio
import logging

from rockmq.base.errors import ConnectError, RequestTimeout, RouteNotFound
from rockmq.client import offsets
from rockmq.client.admin.cluster import Cluster
from rockmq.client.instance import Instance
from rockmq.client.pull import PullResult, pull
from rockmq.client.subscription import Wanted, subscription
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.flags import Permission, PullFlag
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.protocol.headers.pull import Pull

log = logging.getLogger(__name__)

TOOLS_GROUP = "TOOLS_CONSUMER"
"""A group every broker knows; pulling by it stores no offset and joins nothing."""

ROUTE_POLL_SECONDS = 0.05


class Reading:
    """The calls of `Client` that need no producer or consumer; administrators find more at `Client.admin`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, by broker name and id. Raises RouteNotFound."""
        return sorted((await self._instance.routes.fetch(topic)).readable)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is kept."""
        return await offsets.min_offset(self._instance, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await offsets.max_offset(self._instance, queue)

    async def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at that time (milliseconds since the epoch) or later."""
        return await offsets.offset_by_time(self._instance, queue, timestamp)

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The group's offset in each queue of the topic; None where it has none."""
        queues = await self.queues(topic)
        found = await asyncio.gather(
            *(offsets.committed(self._instance, group, queue, zero_if_young=False) for queue in queues)
        )
        return dict(zip(queues, found, strict=True))

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset in a queue; the broker has it when this returns. Backwards is allowed."""
        await offsets.commit(self._instance, group, queue, offset)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int = 32,
        max_bytes: int = 256 * 1024,
        timeout: float = 3.0,
        *,
        wait: float = 0.0,
        tags: Wanted = "*",
    ) -> PullResult:
        """Read messages from an offset on; at least one when there is one, however large.

        With `wait` the broker may hold the request so many seconds until something comes; that is on top of `timeout`.
        Tags are compared by the broker, by hash code; instead of tags it may be given a SQL92 expression.
        """
        instance = self._instance
        await instance.routes.get(queue.topic)
        to = instance.routes.address(queue)
        if to is None:
            raise ConnectError(f"broker {queue.broker_name} stands in no route of {queue.topic}")
        wanted = subscription(queue.topic, tags, instance.clock.now_ms())
        header = Pull(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=int(wait * 1000),
            sub_version=wanted.sub_version,
            subscription=wanted.sub_string,
            expression_type=wanted.expression_type,
            max_msg_bytes=max_bytes,
            bname=queue.broker_name,
        )
        return await pull(instance, to, queue.broker_name, header, timeout + wait)

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        permission: int = Permission.READ | Permission.WRITE,
        order: bool = False,
        cluster: str | None = None,
        timeout: float = 10.0,
    ) -> list[MessageQueue]:
        """Create the topic, or change it, on every master (of the cluster); its readable queues, once the route shows them.

        Raises ResponseError when a broker refuses, RequestTimeout when the route doesn't show the topic in time.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        masters = await Cluster(self._instance).masters(cluster)
        header = CreateTopic(
            topic=topic,
            default_topic=topics.TEMPLATE,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(permission),
            topic_sys_flag=0,
            order=order,
        )
        for master in masters.values():
            await self._instance.ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout=timeout)
        while True:
            try:
                route = await self._instance.routes.fetch(topic)
            except RouteNotFound:
                shown: set[str] = set()
            else:
                shown = {data.broker_name for data in route.data.queue_datas
                         if data.read_queue_nums == queues and data.perm == permission}  # fmt: skip
                if masters.keys() <= shown:
                    return sorted(route.readable)
            if asyncio.get_running_loop().time() >= deadline:
                late = ", ".join(sorted(masters.keys() - shown))
                raise RequestTimeout(f"topic {topic} is created, but the route doesn't show it on {late} yet")
            await asyncio.sleep(ROUTE_POLL_SECONDS)
