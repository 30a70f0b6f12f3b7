"""A broker for taskiq whose tasks are messages of a topic (`pip install rockmq[taskiq]`).

    broker = RockMQBroker("127.0.0.1:9876")

    @broker.task
    async def charge(order: int) -> None: ...

A worker acknowledges as taskiq is told to (`--ack-type`, by default when the result is saved); what it hasn't acknowledged,
another one gets when it has ended. The label `delay` holds a task back for so many seconds, at the broker, which
SmartRetryMiddleware makes use of. Results are a matter of taskiq's result backends.
"""

import logging
from collections.abc import AsyncGenerator

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from rockmq.base.errors import ClientClosed, ProtocolError, RouteNotFound
from rockmq.client import Client, Consumer, Message, Producer

log = logging.getLogger(__name__)

TOPIC = "taskiq"
GROUP = "taskiq"
QUEUES = 8
DELAY_LABEL = "delay"


class RockMQBroker(AsyncBroker):
    """Sends tasks to `topic`, and has the workers of `group` share them. `client` is made by the caller if it needs more
    than `name_servers`, and is started and closed by this broker."""

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        topic: str = TOPIC,
        group: str = GROUP,
        max_in_flight: int = 256,
        client: Client | None = None,
    ) -> None:
        super().__init__()
        self._client = client or Client(name_servers)
        self._topic = topic
        self._group = group
        self._max_in_flight = max_in_flight
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    async def startup(self) -> None:
        """Connect, and make the topic if there is none; a worker joins the group. Raises RemotingError, ResponseError."""
        await super().startup()
        await self._client.start()
        try:
            await self._join()
        except BaseException:
            await self._client.close()
            raise

    async def _join(self) -> None:
        try:
            await self._client.queues(self._topic)
        except RouteNotFound:
            await self._client.create_topic(self._topic, QUEUES)
        self._producer = self._client.producer(f"{self._group}-producer")
        await self._producer.start()
        if self.is_worker_process:
            self._consumer = self._client.consumer(
                self._group, [self._topic], max_in_flight=self._max_in_flight, from_where="first"
            )
            await self._consumer.start()

    async def shutdown(self) -> None:
        """Leave the group, and close the connections. Tasks that weren't acknowledged come again."""
        await super().shutdown()
        await self._client.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. Raises what `Producer.send` raises."""
        if self._producer is None:
            raise ClientClosed("this broker was not started: await its startup()")
        delay = message.labels.get(DELAY_LABEL)
        task = Message(self._topic, message.message, keys=[message.task_id])
        await self._producer.send(task, delay=float(delay) if delay is not None else None)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks for this worker."""
        if self._consumer is None:
            raise ClientClosed("this broker doesn't listen: it wasn't started as a worker's")
        async for message in self._consumer:
            try:
                data = message.body
            except ProtocolError as error:  # which would end the worker's listening
                log.error("no worker gets a task, it is a dead letter: %s", error)
                await message.dead_letter()
                continue
            yield AckableMessage(data=data, ack=message.ack)
