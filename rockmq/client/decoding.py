"""What the application gets for a message's body: bytes, or what its `decode` makes of them."""

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec.inspect
import msgspec.json

from rockmq.base.errors import ClientError, ProtocolError
from rockmq.protocol.message import StoredMessage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Body = TypeVar("Body", default=bytes, covariant=True)
    """What bodies are. Who says nothing of it means bytes: that is for type checkers, as Python 3.11 knows no defaults."""
else:
    Body = typing.TypeVar("Body", covariant=True)

T = typing.TypeVar("T")

Decode = type[T] | Callable[[bytes], T]
"""A type that msgspec makes of JSON (a dataclass, a `msgspec.Struct`, a TypedDict, `list[int]`), or a function of bytes."""


class Decoder(typing.Generic[Body]):
    """Applies `decode`. Raises ClientError for what can't be one. It can be pickled if `decode` can."""

    __slots__ = ("_call", "_decode")

    def __init__(self, decode: Decode[Body]) -> None:
        self._decode = decode
        self._call: Callable[[bytes], Body] = _function(decode)

    def __call__(self, stored: StoredMessage) -> Body:
        """What the message's body says. Raises ProtocolError, which names the message."""
        try:
            return self._call(stored.body)
        except Exception as error:  # whatever a function of the application's raises
            name = getattr(self._decode, "__qualname__", repr(self._decode))
            raise ProtocolError(f"message {stored.msg_id}: its body can't be decoded as {name}: {error}") from error

    def __repr__(self) -> str:
        return f"decode={self._decode!r}"

    def __reduce__(self) -> tuple[object, ...]:
        return Decoder, (self._decode,)


def _function(decode: Decode[T]) -> Callable[[bytes], T]:
    if isinstance(decode, type) or typing.get_origin(decode) is not None:
        try:
            known = not isinstance(msgspec.inspect.type_info(decode), msgspec.inspect.CustomType)
            decoder = msgspec.json.Decoder(decode)
        except TypeError as error:
            raise ClientError(f"decode={decode!r}: {error}") from None
        if not known:
            raise ClientError(f"decode={decode!r} is no type that msgspec makes of JSON: give a function of bytes instead")
        return decoder.decode
    if not callable(decode):
        raise ClientError(f"decode={decode!r}: expected a type or a function of bytes")
    return decode
