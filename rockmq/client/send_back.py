"""Refused messages on their way to the broker (DefaultMQPushConsumerImpl.sendMessageBack; clients' spec, 3.8)."""

import logging

from rockmq.base.errors import ClientError, ProtocolError, RockMQError
from rockmq.client import static_queues
from rockmq.client.delivery import AnyMessage
from rockmq.client.instance import Instance
from rockmq.client.options import ProducerOptions
from rockmq.client.producer import Producer
from rockmq.config.key import INT_MAX
from rockmq.protocol import properties as names
from rockmq.protocol import topics as topic_names
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import SendMessageBack
from rockmq.protocol.message import Message

log = logging.getLogger(__name__)

TIMEOUT = 5.0
FIRST_LEVEL = 3
"""Delay level of the first try, as brokers choose it."""
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
"""Java's, for what consumers send."""
_OF_THIS_DELIVERY = (
    names.TRAN_MSG,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
    names.REAL_TOPIC,
    names.REAL_QID,
    names.CRC32,
    names.MSG_REGION,
    names.TRACE_ON,
    names.CLUSTER,
    names.POP_CK,
)
"""Properties that are of the message as it was stored, not of the one that is sent anew."""


class SendBack:
    """Gives a group's messages to the broker for a later try, of which there are `times_max`."""

    def __init__(self, instance: Instance, group: str, times_max: int) -> None:
        self._instance = instance
        self._group = group
        self._times_max = times_max
        self._producer: Producer | None = None

    async def __call__(self, message: AnyMessage, delay_level: int) -> None:
        """Have the message's broker store it again, or else send it to the retry topic. Raises RockMQError.

        Those of static topics are sent: their queue may have gone to another broker than the one that has the record.
        """
        if static_queues.is_static(message.queue):
            await self.anew(message, delay_level)
            return
        try:
            await self._back(message, delay_level)
        except RockMQError as error:
            log.info("%r couldn't be sent back, it is sent to the retry topic: %s", message, error)
            await self.anew(message, delay_level)

    async def _back(self, message: AnyMessage, delay_level: int) -> None:
        stored = message.stored
        to = self._instance.routes.master(message.queue)
        if to is None:
            raise ClientError(f"broker {message.queue.broker_name} has no master")
        header = SendMessageBack(
            offset=stored.position,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=stored.msg_id,
            origin_topic=stored.topic,
            max_reconsume_times=self._times_max,
            bname=message.queue.broker_name,
        )
        await self._instance.ask(to, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=TIMEOUT)

    async def anew(self, message: AnyMessage, delay_level: int) -> None:
        """Send a refused message to the group's retry topic (sendMessageBackAsNormalMessage). Raises RockMQError.

        A broker that finds its tries used up makes it a dead letter.
        """
        stored = message.stored
        if self._producer is None:
            options = ProducerOptions(timeout=TIMEOUT, compression=None)
            self._producer = Producer(self._instance, PRODUCER_GROUP, options)
            await self._producer.start()
        carried = {key: value for key, value in stored.properties.items() if key not in _OF_THIS_DELIVERY}
        carried[names.RETRY_TOPIC] = stored.topic
        carried.setdefault(names.ORIGIN_MESSAGE_ID, stored.offset_id)
        # Producers may say any count of tries, so it can be at its end.
        carried[names.RECONSUME_TIME] = str(min(stored.reconsume_times + 1, INT_MAX))
        # A negative level is for the broker alone to understand: there, none is left.
        carried[names.MAX_RECONSUME_TIMES] = str(self._times_max if delay_level >= 0 else 0)
        carried[names.DELAY] = str(max(delay_level, 0) or min(FIRST_LEVEL + stored.reconsume_times, INT_MAX))
        topic = topic_names.retry_topic(self._group)
        if stored.fault is not None:
            raise ProtocolError(stored.fault)
        await self._producer.send(Message(topic, stored.body, properties=carried, flag=stored.flag))

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
