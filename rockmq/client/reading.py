"""Topics, offsets and plain reading, without a group's membership: what tools and the Spark source build on."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rockmq.base.errors import ClientError, RemotingError, RequestTimeout, RouteNotFound
from rockmq.client import offsets
from rockmq.client.admin.cluster import Cluster
from rockmq.client.instance import Instance
from rockmq.client.pull import PullResult, pull
from rockmq.client.routes import MASTER_ID
from rockmq.client.subscription import Wanted, subscription
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.flags import Permission, PullFlag
from rockmq.protocol.header import decode
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.protocol.headers.offset import GetEarliestStoreTime, TimestampResponse
from rockmq.protocol.headers.pull import Pull

log = logging.getLogger(__name__)

TOOLS_GROUP = "TOOLS_CONSUMER"
"""A group every broker knows; pulling by it stores no offset and joins nothing."""

ROUTE_POLL_SECONDS = 0.05


class Reading:
    """The calls of `Client` that need no producer or consumer; administrators find more at `Client.admin`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @contextmanager
    def _doubting(self, queue: MessageQueue) -> Iterator[None]:
        """Around what asks the queue's broker: one that can't be reached may be elsewhere by now, and the route tells."""
        try:
            yield
        except RemotingError:
            if self._instance.running:
                self._instance.routes.refresh_soon(queue.topic)
            raise

    async def _broker_of(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str:
        await self._instance.routes.get(queue.topic)
        to = self._instance.routes.address(queue, broker_id)
        if to is None:
            raise self._instance.routes.nowhere(queue)
        return to

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues, by broker name and id. Raises RouteNotFound."""
        return await self._instance.routes.queues(topic)

    async def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues to send to, in the order in which keys are hashed to them; of order topics and static topics
        also those whose broker is away. Raises RouteNotFound."""
        return [target.queue for target in (await self._instance.routes.fetch(topic)).targets]

    async def light_queues(self, topic: str, name: str) -> list[MessageQueue]:
        """The light queues of that name, in which messages of `topic` are that say so (`Message.also_in`): one at each of
        its brokers, whether something is in it already or not. `pull` and offsets take them, and `LitePullConsumer.assign`.

        A message that is read there has the queue's id and the offset in it, and the topic it was sent to. Raises
        RouteNotFound, and ClientError for a name that none can have, and with `namespace_v1`.
        """
        if self._instance.prefix is not None:
            raise ClientError("light queues have no namespaces, which brokers would take for a part of their names")
        queue = topics.light_queue(name)
        fault = topics.light_queue_fault(queue)
        if fault is not None:
            raise ClientError(f"light queue: {fault}")
        return await self._instance.routes.light_queues(queue, topic)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is kept."""
        with self._doubting(queue):
            return await offsets.min_offset(self._instance, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        with self._doubting(queue):
            return await offsets.max_offset(self._instance, queue)

    async def offset_by_time(self, queue: MessageQueue, timestamp: int) -> int:
        """The offset of the first message stored at that time (milliseconds since the epoch) or later."""
        with self._doubting(queue):
            return await offsets.offset_by_time(self._instance, queue, timestamp)

    async def earliest_stored(self, queue: MessageQueue) -> int | None:
        """When the oldest message that is kept was stored (milliseconds since the epoch); None when there is none."""
        header = GetEarliestStoreTime(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        with self._doubting(queue):
            to = await self._broker_of(queue)
            answer = await self._instance.ask(to, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        found = decode(TimestampResponse, answer.fields).timestamp
        return found if found >= 0 else None

    async def committed_offsets(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The group's offset in each queue of the topic; None where it has none."""
        queues = await self.queues(topic)
        found = await asyncio.gather(
            *(offsets.committed(self._instance, group, queue, zero_if_young=False) for queue in queues)
        )
        return dict(zip(queues, found, strict=True))

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group's offset in a queue; the broker has it when this returns. Backwards is allowed."""
        with self._doubting(queue):
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
        broker_id: int = 0,
    ) -> PullResult:
        """Read messages from an offset on; at least one when there is one, however large.

        With `wait` the broker may hold the request so many seconds until something comes; that is on top of `timeout`.
        Tags are compared by the broker, by hash code; instead of tags it may be given a SQL92 expression. `broker_id` is the
        replica to ask, 0 the master and 1 the first slave; if there is none of that id another one is asked.
        """
        instance = self._instance
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
        with self._doubting(queue):
            to = await self._broker_of(queue, broker_id)
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
