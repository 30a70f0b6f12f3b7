"""Messages for later: what they say, and how they are taken back (clients' spec, 2.7)."""

from datetime import datetime, timedelta
from math import ceil, isfinite

import msgspec

from rockmq.base.errors import ConnectError, InvalidMessage, ProtocolError
from rockmq.client.instance import Instance
from rockmq.protocol import properties
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.recall import RecallHandle, RecallMessage, RecallResponse
from rockmq.protocol.message import Message


def timed(message: Message, delay: float | timedelta | None, deliver_at: float | datetime | None) -> Message:
    """The message with its time among its properties; the caller's stays as it was. Raises InvalidMessage."""
    if delay is None and deliver_at is None:
        return message
    if delay is not None and deliver_at is not None:
        raise InvalidMessage("give one of delay and deliver_at, not both")
    if message.delay_level:
        raise InvalidMessage(f"the message has delay_level={message.delay_level}, which brokers would go by alone: give one")
    if isinstance(deliver_at, datetime) and deliver_at.tzinfo is None:
        raise InvalidMessage(f"deliver_at={deliver_at} has no time zone: which time is meant?")
    if delay is not None:
        key, seconds = properties.TIMER_DELAY_MS, delay.total_seconds() if isinstance(delay, timedelta) else delay
    else:
        assert deliver_at is not None
        key, seconds = (
            properties.TIMER_DELIVER_MS,
            deliver_at.timestamp() if isinstance(deliver_at, datetime) else deliver_at,
        )
    if not isfinite(seconds):
        raise InvalidMessage(f"no message can be delivered at a time of {seconds} s")
    # What is added up of fractions is rarely a whole millisecond, and isn't to become a later one.
    wish = {key: str(ceil(round(seconds * 1000, 3)))}
    others = {name: value for name, value in message.properties.items() if name not in properties.TIMER_WISHES}
    return msgspec.structs.replace(message, properties=others | wish)


async def recall(instance: Instance, group: str, handle: str, timeout: float) -> str:
    """See `Producer.recall`."""
    if not isinstance(handle, str):
        raise InvalidMessage(f"{handle!r} is no recall handle: only what was sent to be delivered later has one")
    try:
        said = RecallHandle.decode(handle)
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
    route = await instance.routes.get(said.topic)
    to = route.master(said.broker_name)
    if to is None:
        raise ConnectError(f"broker {said.broker_name} stands in no route of {said.topic}")
    header = RecallMessage(topic=said.topic, recall_handle=handle, producer_group=group, bname=said.broker_name)
    answer = await instance.ask(to, RequestCode.RECALL_MESSAGE, header, timeout=timeout)
    return decode(RecallResponse, answer.fields).msg_id
