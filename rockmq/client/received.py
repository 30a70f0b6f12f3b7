"""What every consumer gives to the application: a message, until it is ended."""

from enum import Enum, auto

from rockmq.base.errors import ClientError, ProtocolError
from rockmq.client.hooks import Watched
from rockmq.protocol.message import StoredMessage


class State(Enum):
    WAITING = auto()
    DELIVERED = auto()
    REFUSED = auto()
    DONE = auto()


class Received:
    """A message that a consumer got; `stored` is all that the broker keeps of it."""

    __slots__ = ("state", "stored", "taken", "watched")

    def __init__(self, stored: StoredMessage) -> None:
        self.stored = stored
        self.state = State.WAITING
        self.taken = 0.0
        """When the application got it, by the clock's `monotonic`."""
        self.watched: Watched | None = None
        """What hooks know of it, while the application has it."""

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self.stored.topic

    @property
    def body(self) -> bytes:
        """Raises ProtocolError, which names the message, when it can't be decompressed."""
        if self.stored.fault is not None:
            raise ProtocolError(self.stored.fault)
        return self.stored.body

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

    def end(self, state: State) -> None:
        """Decide, before the outcome is told; once. Raises ClientError."""
        if self.state is not State.DELIVERED:
            raise ClientError(f"{self!r} was acknowledged or refused before")
        self.state = state
        if self.watched is not None:
            self.watched.end(succeeded=state is State.DONE)
