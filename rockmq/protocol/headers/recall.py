"""Taking back a message that isn't delivered yet (RecallMessageRequestHeader.java, RecallMessageHandle.java; spec 4.1)."""

import base64
import binascii
from dataclasses import dataclass

from rockmq.base.errors import ProtocolError
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Topic, request

_VERSION = "v1"


class RecallResponse(Header):
    """`msg_id` is the unique key of the message that is taken back."""

    msg_id: str


@request(RequestCode.RECALL_MESSAGE, RecallResponse)
class RecallMessage(Header, kw_only=True):
    topic: Topic
    recall_handle: str
    producer_group: Group | None = None
    bname: str | None = None


@dataclass(frozen=True)
class RecallHandle:
    """What a send's answer says of a message that can be taken back. `timestamp` (ms) is in the step it is delivered in."""

    topic: str
    broker_name: str
    timestamp: int
    unique_key: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.timestamp} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> "RecallHandle":
        """Raises ProtocolError for a text that is no handle."""
        try:
            # As Java's decoder, which takes a handle without the = at its end.
            padded = handle.encode("ascii") + b"=" * (-len(handle) % 4)
            parts = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        except (ValueError, binascii.Error):
            raise ProtocolError(f"recall handle {handle[:200]!r} is not base64") from None
        if len(parts) < 5 or parts[0] != _VERSION:
            raise ProtocolError(f"recall handle {handle[:200]!r} doesn't say: v1 topic broker time id")
        _version, topic, broker_name, timestamp, unique_key = parts[:5]
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15) or not unique_key:
            raise ProtocolError(f"recall handle {handle[:200]!r} has no time in milliseconds, or no id")
        return cls(topic, broker_name, int(timestamp), unique_key)
