"""Requests that wait for their replies (RequestFutureHolder.java, ClientRemotingProcessor.receiveReplyMessage; clients'
spec, 2.9)."""

import asyncio
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError
from rockmq.protocol import codec, properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.compression import decompress
from rockmq.protocol.headers.send import PushReply
from rockmq.protocol.message import Message
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)


class Requests:
    """The replies a client waits for, by correlation id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, asyncio.Future[Message]] = {}

    @contextmanager
    def expect(self) -> "Iterator[tuple[str, asyncio.Future[Message]]]":
        """A new correlation id, and the future of the reply; forgotten at the end of the block."""
        correlation_id = str(uuid.uuid4())
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        try:
            yield correlation_id, reply
        finally:
            del self._waiting[correlation_id]
            if reply.done() and not reply.cancelled():
                reply.exception()  # of no use to who has gone away

    def received(self, header: PushReply, request: Command, connection: Connection) -> Command:
        """Take a reply that a broker pushes. Raises ProtocolError for a body that isn't what its flags say."""
        found = properties.decode((header.properties or "").encode())
        found[properties.ARRIVE_TIME] = str(self._clock.now_ms())
        waiting = self._waiting.get(found.get(properties.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            log.warning("a reply came from %s that nobody waits for any more", header.born_host)
            return codec.reply(request, ResponseCode.SUCCESS)
        try:
            body = decompress(header.sys_flag, request.body)
        except ProtocolError as error:
            fault = ProtocolError(f"message {found.get(properties.UNIQ_KEY)} (the reply to a request): {error}")
            waiting.set_exception(fault)
            raise fault from None
        tag, keys = found.pop(properties.TAGS, None), found.pop(properties.KEYS, "").split()
        waiting.set_result(Message(header.topic, body, tag, keys, found, header.flag))
        return codec.reply(request)
