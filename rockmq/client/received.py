"""What every consumer gives to the application: a message, until it is ended."""

from enum import Enum, auto
from typing import Any, Generic

from rockmq.base.errors import ClientError, ProtocolError
from rockmq.client.decoding import Body, Decoder
from rockmq.client.hooks import Watched
from rockmq.protocol.message import StoredMessage


class Decodable(Generic[Body]):
    """A message whose body the application reads; `stored` is all that the broker keeps of it, with the body as bytes."""

    __slots__ = ("_body", "stored")

    _body: Any
    """What was decoded, once it was."""
    decoder: Decoder[Any] | None
    """None leaves the body bytes."""
    stored: StoredMessage

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self.stored.topic

    @property
    def body(self) -> Body:
        """The bytes that were sent, or what `decode` made of them when this was first asked for.

        Raises ProtocolError, which names the message, when it can't be decompressed or decoded.
        """
        if self.stored.fault is not None:
            raise ProtocolError(self.stored.fault)
        if not hasattr(self, "_body"):
            decoder = self.decoder
            self._body = self.stored.body if decoder is None else decoder(self.stored)
        body: Body = self._body
        return body

    @property
    def tag(self) -> str | None:
        return self.stored.tag

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def key(self) -> str | None:
        """The first of its keys."""
        keys = self.stored.keys
        return keys[0] if keys else None

    @property
    def properties(self) -> dict[str, str]:
        return self.stored.properties

    @property
    def msg_id(self) -> str:
        return self.stored.msg_id

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.stored.reconsume_times

    @property
    def born_timestamp(self) -> int:
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.stored.store_timestamp


class State(Enum):
    WAITING = auto()
    DELIVERED = auto()
    REFUSED = auto()
    DONE = auto()


class Received(Decodable[Body]):
    """One that is to be ended."""

    __slots__ = ("state", "taken", "watched")

    state: State
    taken: float
    """When the application got it, by the clock's `monotonic`."""
    watched: Watched | None
    """What hooks know of it, while the application has it."""

    def end(self, state: State) -> None:
        """Decide, before the outcome is told; once. Raises ClientError."""
        if self.state is not State.DELIVERED:
            raise ClientError(f"{self!r} was acknowledged or refused before")
        self.state = state
        if self.watched is not None:
            self.watched.end(succeeded=state is State.DONE)
