"""Requests and responses as values, and their frames (RemotingCommand.java; protocol spec, section 1).

The core cuts frames into tuples (`_core.Command`); here they get names. Encoding mirrors the serializer of the request,
which suits every client (protocol spec, 1.1).
"""

from enum import IntEnum

import msgspec

from rockmq import _core
from rockmq._core import (
    decode_columns,
    decode_messages,
    decode_records,
    encode_batch,
    encode_bodies,
    encode_columns,
    java_hashes,
)
from rockmq.protocol import header as headers
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.header import Header

__all__ = [
    "FRAME_SIZE_MAX",
    "ONEWAY_FLAG",
    "RESPONSE_FLAG",
    "SOFTWARE_VERSION",
    "VERSION",
    "Command",
    "Serializer",
    "body",
    "decode_columns",
    "decode_messages",
    "decode_records",
    "encode_batch",
    "encode_bodies",
    "encode_columns",
    "from_tuple",
    "java_hashes",
    "recode",
    "reply",
    "request",
]

VERSION = 479
"""Our version ordinal on the wire: V5_3_3. Clients derive from it what the server can do (protocol spec, 1.5)."""

SOFTWARE_VERSION = _core.__version__
"""RockMQ's own version."""

FRAME_SIZE_MAX = 16_777_216
"""Bytes of a whole frame with its length word (`com.rocketmq.remoting.frameMaxLength`)."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2


class Serializer(IntEnum):
    JSON = 0
    ROCKETMQ = 1


class Command(msgspec.Struct):
    """One request or response. `fields` are the header's extFields, `body` is empty when there is none."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    language: str = "PYTHON"
    version: int = VERSION
    serializer: int = Serializer.JSON
    arrived: float = 0.0
    """Of a request that is being answered: when it came, by the loop's time."""
    is_parked: bool = False
    """Whether it waits for messages, or did."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def encode(self) -> bytes:
        """The frame."""
        return _core.encode_frame(self.serializer, self.code, self.opaque, self.flag, self.remark, self.fields, self.body)


def body(frame: bytes) -> bytes:
    """The body of an encoded frame: four bytes say how much follows, of four more all but the first how much is header."""
    return frame[8 + int.from_bytes(frame[5:8]) :]


def from_tuple(cut: "_core.Command") -> Command:
    """Give names to what the core cut out of the stream."""
    code, language, version, opaque, flag, serializer, remark, fields, body = cut
    return Command(code, opaque, flag, remark, fields, body, language, version, serializer)


def request(
    code: int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
    serializer: int = Serializer.JSON,
) -> Command:
    """A request; its opaque is set by whoever sends it."""
    fields = headers.encode(header) if header is not None else {}
    return Command(code, 0, ONEWAY_FLAG if oneway else 0, None, fields, body, serializer=serializer)


def reply(
    to: Command,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    header: Header | None = None,
    body: bytes = b"",
    extra: dict[str, str] | None = None,
) -> Command:
    """The response to a request: same opaque, same serializer; `extra` are fields no header declares."""
    fields = headers.encode(header) if header is not None else {}
    if extra:
        fields.update(extra)
    return Command(code, to.opaque, RESPONSE_FLAG, remark, fields, body, serializer=to.serializer)


def recode(frames: bytes, code: int, remark: str) -> bytes:
    """Encoded responses with another code and remark and all their fields kept; those without fields stay as they are."""
    _, _, commands, _, fault = _core.Lane(None, bytes(8), FRAME_SIZE_MAX).feed(frames, 0)
    assert fault is None, fault
    changed = bytearray()
    for cut in commands:
        command = from_tuple(cut)
        if command.fields:
            command.code, command.remark = code, remark
        changed += command.encode()
    return bytes(changed)
