"""Popping: one request after the other, each waiting at the broker (DefaultMQPushConsumerImpl.popMessage,
MQClientAPIImpl.processPopResponse; clients' spec, 3.12)."""

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping

from rockmq.base.errors import HeaderError, ProtocolError, RemotingError, ResponseError
from rockmq.client.instance import Instance
from rockmq.client.pull import QUICK_SECONDS, Backoff
from rockmq.protocol import pop as handles
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.pop import Pop, PopResponse
from rockmq.protocol.message import StoredMessage
from rockmq.protocol.pop import Place, ReceiptHandle

log = logging.getLogger(__name__)

POLL_MS = 15_000
TIMEOUT = 25.0
COUNT_MAX = 32
"""Messages that brokers give at once at the most."""

FROM_BEGINNING, FROM_END = 0, 1
"""Where a group begins in a queue it hasn't popped from (ConsumeInitMode.java)."""

Popped = tuple[StoredMessage, ReceiptHandle]


async def pop(instance: Instance, to: str, broker_name: str, header: Pop, timeout: float) -> list[Popped]:
    """Ask once; nothing when the poll time passed. Raises ResponseError for a refusal (POLLING_FULL is one: the broker holds
    too many pops to wait), RemotingError, ProtocolError."""
    answer = await instance.remoting.invoke(to, instance.request(RequestCode.POP_MESSAGE, header), timeout)
    if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
        return []
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, to)
    told = decode(PopResponse, answer.fields)
    stored = instance.stored(answer.body, broker_name, keep_faulty=True)
    return received(stored, header.topic, broker_name, told)


def received(messages: list[StoredMessage], topic: str, broker_name: str, told: PopResponse) -> list[Popped]:
    """The messages with their handles, and with the topic that was asked for: what comes from a retry topic is of it.

    Apache's broker writes the handle into what it gives from retry topics; the others are put together of the answer's
    texts, in which a queue's offsets stand in the order of its messages. Raises ProtocolError.
    """
    starts = handles.parse_start_offsets(told.start_offset_info)
    offsets = handles.parse_message_offsets(told.msg_offset_info)
    counts = handles.parse_order_counts(told.order_count_info)
    seen: dict[Place, int] = defaultdict(int)
    found = []
    for message in messages:
        written = message.properties.get(names.POP_CK)
        if written is not None:
            handle = ReceiptHandle.parse(written)
        else:
            place = _place(message, topic)
            offset = _offset(message, offsets, place, seen)
            start = starts.setdefault(place, offset)
            handle = ReceiptHandle(
                start, told.pop_time, told.invisible_time, told.revive_qid, place[0], broker_name, place[1], offset
            )
            message.reconsume_times = handles.order_count(counts, place, offset) or message.reconsume_times
        message.properties.setdefault(names.FIRST_POP_TIME, str(told.pop_time))
        message.topic = topic
        found.append((message, handle))
    return found


def topic_of(instance: Instance, group: str, topic: str, handle: ReceiptHandle) -> str:
    """The topic that a message with this handle lies in, by the names that brokers know: the name of a retry topic has the
    group's and the topic's in it, each with its namespace."""
    if instance.prefix is not None:
        topic, group = instance.prefix.put(topic), instance.prefix.put(group)
    return handles.real_topic(topic, group, handle.retry_flag)


def _place(message: StoredMessage, topic: str) -> Place:
    if topics.is_light(topic) and not topics.is_retry(message.topic):
        return "0", 0  # the message lies in a queue of another topic
    return handles.flag(message.topic), message.queue_id


def _offset(message: StoredMessage, offsets: Mapping[Place, list[int]], place: Place, seen: dict[Place, int]) -> int:
    told = offsets.get(place)
    if told is None:
        return message.queue_offset
    if seen[place] >= len(told):
        raise ProtocolError(f"a pop gave more messages of queue {place[1]} than offsets, which are {told}")
    seen[place] += 1
    return told[seen[place] - 1]


class PopLoop:
    """Pops one queue of a broker, or all of a topic there (queue id -1), until it is told to `stop`.

    `deliver` takes what was popped; each of it is unacknowledged until `ended` is told, and no more is popped than
    `unacknowledged_max` allows (popThresholdForQueue). What comes after `stop` goes to `deliver`, too: a pop that waits at
    the broker can't be taken back, and what it gets would be nobody's until its time is over.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscription: SubscriptionData,
        queue: MessageQueue,
        *,
        invisible_ms: int,
        init_mode: int,
        order: bool,
        unacknowledged_max: int,
        deliver: Callable[["PopLoop", list[Popped]], None],
    ) -> None:
        self.queue = queue
        self.unacknowledged = 0
        self.stopped = False
        self.last_pop_ms = 0
        self._instance = instance
        self._unacknowledged_max = unacknowledged_max
        self._deliver = deliver
        self._room: asyncio.Future[None] | None = None
        self._order = order
        self._errors = Backoff(0.1, 1.0)
        self._quick = Backoff(0.01, 1.0)
        self._header = Pop(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            max_msg_nums=COUNT_MAX,
            invisible_time=invisible_ms,
            poll_time=POLL_MS,
            born_time=0,  # now, by the broker's clock: ours may differ
            init_mode=init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=order,
            bname=queue.broker_name,
        )

    @property
    def name(self) -> str:
        which = "all queues" if self.queue.queue_id < 0 else f"queue {self.queue.queue_id}"
        return f"{which} of {self.queue.topic} on {self.queue.broker_name}"

    def stop(self) -> None:
        """Pop no more. A pop that waits at the broker ends with it."""
        self.stopped = True
        self._make_room()

    def ended(self) -> None:
        """One of the messages is acknowledged or given up."""
        self.unacknowledged -= 1
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def run(self) -> None:
        while not self.stopped:
            if self.unacknowledged >= self._unacknowledged_max:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                continue
            try:
                await self._turn()
            except RemotingError as error:
                self._complain(error, logging.INFO)  # the loss of the broker itself is told once, with a warning
                self._instance.routes.refresh_soon(self.queue.topic)
                await asyncio.sleep(self._errors.pause())
            except ResponseError as error:
                self._complain(error)
                if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    self._instance.heartbeat_soon()  # brokers make the group when they hear of it
                else:
                    self._instance.routes.refresh_soon(self.queue.topic)
                await asyncio.sleep(self._errors.pause())
            except (ProtocolError, HeaderError) as error:
                log.error("what %s answered can't be read, trying again: %s", self.name, error)
                await asyncio.sleep(self._errors.pause())
            except Exception:  # a queue that silently stops is worse than a fault that is told again and again
                log.exception("popping %s failed, trying again", self.name)
                await asyncio.sleep(self._errors.pause())
            else:
                if not self._errors.fresh:
                    log.info("popping %s again", self.name)
                    self._errors.reset()

    async def _turn(self) -> None:
        to = self._instance.routes.master(self.queue)
        if to is None:
            raise RemotingError("no route leads to its master")
        header = self._header
        header.max_msg_nums = min(COUNT_MAX, self._unacknowledged_max - self.unacknowledged)
        if self._order and header.attempt_id is None:
            # In order nobody gets anything while messages are out, but who asks again for those of a lost answer.
            header.attempt_id = uuid.uuid4().hex
        self.last_pop_ms = self._instance.clock.now_ms()
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        found = await pop(self._instance, to, self.queue.broker_name, header, TIMEOUT)
        header.attempt_id = None
        if found:
            self._quick.reset()
            self.unacknowledged += len(found)
            self._deliver(self, found)
        elif loop.time() - asked_at >= QUICK_SECONDS:
            self._quick.reset()
        else:
            await asyncio.sleep(self._quick.pause())

    def _complain(self, error: Exception, level: int = logging.WARNING) -> None:
        """The first of a row of errors is told; the rest are the same story."""
        if self._errors.fresh:
            log.log(level, "%s can't be popped, trying again: %s", self.name, error)
