"""What consumers of all kinds have in common: they join a group, want something of topics, and leave (MQConsumerInner.java;
clients' spec, 3.1 and 3.15)."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import ClassVar, Self

from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RockMQError
from rockmq.base.tasks import Tasks
from rockmq.client.instance import Instance, Member
from rockmq.client.offsets import FromWhere
from rockmq.client.subscription import Topics, Wanted, check_shared, subscription, subscriptions
from rockmq.filter import is_tag
from rockmq.protocol import json
from rockmq.protocol import topics as topic_names
from rockmq.protocol.bodies.client import CheckClientBody, ConsumerData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import CheckClientConfig

log = logging.getLogger(__name__)

START_TIMEOUT = 5.0


class GroupMember(Member):
    """A member of a group, from `start` to `close`."""

    _consume_type: ClassVar[str]
    """As brokers are told (ConsumeType.java)."""
    _sends_back: ClassVar[bool] = False
    """Whether the group's retry topic is consumed, too."""

    def __init__(
        self, instance: Instance, group: str, topics: Topics | None, *, from_where: FromWhere, broadcast: bool = False
    ) -> None:
        self.group = group
        self._instance = instance
        self._subscriptions: dict[str, SubscriptionData] = {}
        if topics is not None:
            self._subscriptions = subscriptions(topics, group, instance.clock.now_ms())
            if broadcast or not self._sends_back:
                del self._subscriptions[topic_names.retry_topic(group)]
        self._from_where = from_where
        self._broadcast = broadcast
        self._tasks = Tasks()
        self._started_ms = 0
        self._joined = False
        self._closed = False
        self._closing = asyncio.Lock()

    async def start(self) -> None:
        """Join the group; returns when it is known what to consume, or after 5 s without; `async with` does it.

        Raises ResponseError when a broker can't filter by an expression that is subscribed to, and ClientError when this
        client consumes the group already, or when what is asked for can't be had.
        """
        self._instance.check_open()
        if self._closed or self._started_ms:
            raise ClientClosed("a consumer can be started once")
        self._instance.add_consumer(self)
        self._started_ms = self._instance.clock.now_ms()
        self._joined = True
        try:
            await self._look_up(self._subscriptions.values())
            await self._instance.heartbeat()
            settled = await self._begin()
            async with asyncio.timeout(START_TIMEOUT):
                await settled.wait()
        except TimeoutError:
            log.warning("group %s has no queues yet, going on trying", self.group)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop consuming, store how far that is, leave the group. Who calls it meanwhile waits for that, too."""
        self._closed = True
        async with self._closing:
            if not self._joined:
                return
            try:
                await self._end()
            finally:
                self._joined = False
                await self._instance.remove(consumer=self.group)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        return self._closed

    @abstractmethod
    async def _begin(self) -> asyncio.Event:
        """Brokers know us: begin to consume. The event says when it is known what."""

    @abstractmethod
    async def _end(self) -> None:
        """Stop, also what was begun in part."""

    # What is consumed

    async def subscribe(self, topic: str, wanted: Wanted = "*") -> None:
        """Consume a topic too, or other messages of one that is consumed; returns when its queues are shared out.

        Messages that were pulled before still come. All members of a group must subscribe alike. Raises ClientError, and
        ResponseError when a broker can't filter so.
        """
        self._check_subscribes()
        check_shared(topic)
        fresh = subscription(topic, wanted, self._instance.clock.now_ms())
        await self._look_up([fresh])
        self._subscriptions[topic] = fresh
        await self._instance.heartbeat()
        await self._resubscribed(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer; returns when its queues are given up. Raises ClientError when it isn't consumed."""
        self._check_subscribes()
        if topic not in self._subscriptions or topic_names.is_retry(topic):
            raise ClientError(f"group {self.group} isn't subscribed to {topic!r}")
        del self._subscriptions[topic]
        await self._resubscribed(topic)
        await self._instance.heartbeat()

    def _check_subscribes(self) -> None:
        """Whether topics are subscribed to now. Raises ClientError."""
        self._check_open()

    @abstractmethod
    async def _resubscribed(self, topic: str) -> None:
        """Something else, or nothing, is wanted of the topic from now on."""

    def _check_started(self) -> None:
        if self._instance.forked:
            self._instance.check_open()
        if not self._started_ms:
            raise ClientClosed("this consumer was not started: use `async with`")

    def _check_open(self) -> None:
        self._check_started()
        if self._closed:
            raise ClientClosed("this consumer is closed")

    async def _look_up(self, wanted: Iterable[SubscriptionData]) -> None:
        """Have the routes, and brokers say whether they can filter so (MQClientInstance.checkClientInBroker). Raises
        ResponseError."""
        await asyncio.gather(*map(self._look_up_one, wanted))

    async def _look_up_one(self, wanted: SubscriptionData) -> None:
        try:
            route = await self._instance.routes.get(wanted.topic)
        except RockMQError as error:
            log.info("%s", error)  # it is asked for again, and complained about, when it comes to consuming
            return
        if not is_tag(wanted.expression_type):
            await asyncio.gather(*(self._check_filter(wanted, master) for master in route.masters()))

    async def _check_filter(self, wanted: SubscriptionData, master: str) -> None:
        body = CheckClientBody(client_id=self._instance.client_id, group=self.group, subscription_data=wanted)
        try:
            await self._instance.ask(master, RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfig(), json.encode(body))
        except RemotingError as error:
            log.info("%s", error)  # it may come back

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model="BROADCASTING" if self._broadcast else "CLUSTERING",
            consume_from_where=_FROM_WHERE.get(str(self._from_where), "CONSUME_FROM_TIMESTAMP"),
            subscription_data_set=list(self._subscriptions.values()),
        )


_FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


async def until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait for a condition that changes now and then; whether it came true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    # Polled: this is rare and short, while an event would burden every message.
    while not (met := condition()) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return met
